"""When a study looks again at what follows from its data, and which random numbers each purpose has."""

import math
import threading
from collections.abc import Sequence
from typing import Any

import torch

from bo_robust.random import stream


def last_step(n: int, first: int, growths: Sequence[tuple[float, float]]) -> int:
    """How many of n things, n >= 1, there were when they were last looked at.

    Up to ``first`` there is a look at each. Then a pair ``(many, growth)`` of ``growths`` says: below ``many``, the
    next look is at ``growth`` times as many, rounded up.
    """
    m = min(n, first)
    while (later := math.ceil(next(growth for many, growth in growths if m < many) * m)) <= n:
        m = later
    return m


def stream_seed(seed: int, purpose: str, index: int) -> int:
    """A seed for PyTorch, for one purpose and one number, such as that of a trial."""
    return int(stream(seed, f"study.{purpose}", index).integers(2**62))


class seeded:
    """Seed PyTorch's global random numbers within a block and restore them after it; one thread at a time."""

    _one = threading.RLock()

    def __init__(self, seed: int, device: str) -> None:
        self.seed, self.fork = seed, torch.random.fork_rng(devices=[] if device == "cpu" else [torch.device(device)])

    def __enter__(self) -> None:
        self._one.acquire()
        self.fork.__enter__()
        torch.manual_seed(self.seed)

    def __exit__(self, *error: Any) -> None:
        self.fork.__exit__(*error)
        self._one.release()
