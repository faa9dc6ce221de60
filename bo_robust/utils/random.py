"""Independent random streams, one per (seed, purpose, trial, block).

A stream depends on its key only. So trial 7 alone draws what trial 7 of 256 draws, and no generator state
is ever saved. Every algorithm of a comparison meets the same noise (common random numbers).
"""

import zlib
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

Integers = TypeVar("Integers", Tensor, np.ndarray)  # 64 bits, signed
SEED_STEP, STEP = 0xD1342543DE82EF95, 0x9E3779B97F4A7C15  # the first keeps neighboring uniforms apart; SplitMix64's


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
    bits = 53 if uniform.dtype == torch.float64 else 24
    seed = (uniform.double() * 2.0**53).long() * _int64(SEED_STEP)
    states = seed[:, None] + torch.arange(1, n + 1, device=uniform.device) * _int64(STEP)
    return _mixed(states, bits).to(uniform.dtype) * 2.0**-bits


def spread_at(uniform: float, index: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Some numbers of :func:`spread` of one ``uniform`` of a dtype: those in the places ``index`` (from 0)."""
    bits = 53 if dtype == np.float64 else 24
    seed = _int64(int(uniform * 2.0**53) * SEED_STEP % 2**64)
    numbers: np.ndarray = _mixed(index * _int64(STEP) + _int64((seed + STEP) % 2**64), bits).astype(dtype)
    return numbers * dtype.type(2.0**-bits)


def _mixed(z: Integers, bits: int) -> Integers:
    """The first ``bits`` of SplitMix64 in the states ``z``."""
    z = (z ^ _shifted(z, 30)) * _int64(0xBF58476D1CE4E5B9)
    z = (z ^ _shifted(z, 27)) * _int64(0x94D049BB133111EB)
    return _shifted(z ^ _shifted(z, 31), 64 - bits)


def _int64(bits: int) -> int:
    """The signed integer of the same 64 bits: torch takes no larger ones."""
    return bits - 2**64 if bits >= 2**63 else bits


def _shifted(z: Integers, by: int) -> Integers:
    """Shift 64-bit integers to the right and fill with zeros, where ``>>`` fills with the sign bit."""
    return (z >> by) & ((1 << (64 - by)) - 1)
