"""Independent random streams, one per (seed, purpose, trial, block).

A stream depends on nothing but its key, so trial 7 alone draws what trial 7 of 256 draws, a resumed run
needs no generator state, and every algorithm of a comparison meets the same noise (common random numbers).
"""

from __future__ import annotations

import zlib

import numpy as np
import torch
from torch import Tensor

__all__ = ["spread", "stream"]


def stream(seed: int, purpose: str, trial: int, block: int = 0) -> np.random.Generator:
    """The generator of one purpose ("problem", "reward", "algorithm", ...) of one trial.

    Args:
        seed: Seed of the experiment, >= 0.
        purpose: What the numbers are for; different purposes never share numbers.
        trial: Index of the trial, >= 0.
        block: Index of a block of rounds, >= 0, so that long tables are drawn piece by piece.

    Returns:
        A NumPy generator (Philox, counter based).
    """
    key = np.random.SeedSequence([seed, zlib.crc32(purpose.encode()), trial, block])
    return np.random.Generator(np.random.Philox(key))


def spread(uniform: Tensor, n: int) -> Tensor:
    """n uniforms out of one, per trial: SplitMix64 (Steele, Lea & Flood 2014) seeded by the bits of the uniform.

    For rules that need a number per arm where the world hands out one per trial and round. Same numbers on every
    device; uniforms that differ by 2^-53 give unrelated rows.

    Args:
        uniform: ``s``, in [0, 1).
        n: Numbers per trial.

    Returns:
        ``s x n`` in [0, 1), of the dtype and device of ``uniform``.
    """
    index = torch.arange(1, n + 1, device=uniform.device)
    seed = (uniform.double() * 2.0**53).long().unsqueeze(1) * _int64(0xD1342543DE82EF95)
    z = seed + index * _int64(0x9E3779B97F4A7C15)
    z = (z ^ _shifted(z, 30)) * _int64(0xBF58476D1CE4E5B9)
    z = (z ^ _shifted(z, 27)) * _int64(0x94D049BB133111EB)
    bits = 53 if uniform.dtype == torch.float64 else 24
    return _shifted(z ^ _shifted(z, 31), 64 - bits).to(uniform.dtype) * 2.0**-bits


def _int64(bits: int) -> int:
    return bits - 2**64 if bits >= 2**63 else bits


def _shifted(z: Tensor, by: int) -> Tensor:
    """Logical shift to the right of 64-bit integers, which torch shifts arithmetically."""
    return (z >> by) & ((1 << (64 - by)) - 1)
