"""Independent random streams, one per (seed, purpose, trial, block).

A stream depends on its key only. So trial 7 alone draws what trial 7 of 256 draws, and no generator state
is ever saved. Every algorithm of a comparison meets the same noise (common random numbers).
"""

import zlib

import numpy as np
import torch
from torch import Tensor


def stream(seed: int, purpose: str, trial: int, block: int = 0) -> np.random.Generator:
    """The NumPy generator (Philox) of one purpose ("problem", "reward", ...) of one trial, one ``block`` of rounds.

    All numbers of the key are >= 0.
    """
    key = np.random.SeedSequence([seed, zlib.crc32(purpose.encode()), trial, block])
    return np.random.Generator(np.random.Philox(key))


def spread(uniform: Tensor, n: int) -> Tensor:
    """Make n uniforms out of one, per trial: ``s`` in [0, 1) to ``s x n`` in [0, 1).

    Some rules need a number per arm, but a round provides only one per trial. Its bits seed SplitMix64 (Steele, Lea &
    Flood 2014). The numbers are the same on every device. Uniforms that differ by 2^-53 give unrelated rows.
    """
    # The first constant keeps the seeds of neighboring uniforms apart; the other three are those of SplitMix64.
    index = torch.arange(1, n + 1, device=uniform.device)
    seed = (uniform.double() * 2.0**53).long()
    z = seed[:, None] * _int64(0xD1342543DE82EF95) + index * _int64(0x9E3779B97F4A7C15)
    z = (z ^ _shifted(z, 30)) * _int64(0xBF58476D1CE4E5B9)
    z = (z ^ _shifted(z, 27)) * _int64(0x94D049BB133111EB)
    bits = 53 if uniform.dtype == torch.float64 else 24
    return _shifted(z ^ _shifted(z, 31), 64 - bits).to(uniform.dtype) * 2.0**-bits


def _int64(bits: int) -> int:
    """The signed integer of the same 64 bits: torch takes no larger ones."""
    return bits - 2**64 if bits >= 2**63 else bits


def _shifted(z: Tensor, by: int) -> Tensor:
    """Shift 64-bit integers to the right and fill with zeros; torch fills with the sign bit."""
    return (z >> by) & ((1 << (64 - by)) - 1)
