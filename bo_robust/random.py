"""Independent random streams, one per (seed, purpose, trial, block).

A stream depends on nothing but its key, so trial 7 alone draws what trial 7 of 256 draws, a resumed run
needs no generator state, and every algorithm of a comparison meets the same noise (common random numbers).
"""

from __future__ import annotations

import zlib

import numpy as np

__all__ = ["stream"]


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
