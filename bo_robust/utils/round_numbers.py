"""Numbers that the host computes anew each round, such as a width that grows: plain numbers, or memory in a graph.

A CUDA graph repeats the numbers that it was captured with. So while rounds are captured
(:mod:`bo_robust.bandits.captured`) such a number is an entry of :class:`RoundNumbers`, which is filled before a replay.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from torch import Tensor

_captured: ContextVar[RoundNumbers | None] = ContextVar("bo_robust_round_numbers", default=None)


def is_capturable(of: object) -> bool:
    """Whether the class says ``capturable``: all but :func:`by_round` is the same in each round, and nothing is read.

    It is never inherited, as a subclass may compute something else.
    """
    declared: bool = vars(type(of)).get("capturable", False)
    return declared


def is_capturing() -> bool:
    """Whether rounds are captured now, in this thread."""
    return _captured.get() is not None


def by_round(schedule: Callable[[int], float], t: int, like: Tensor | float) -> Tensor | float:
    """``schedule(t)``; while rounds are captured as a tensor, of the shape and dtype of the tensor ``like``."""
    numbers = _captured.get()
    return numbers.entry(schedule, t, like) if numbers is not None and isinstance(like, Tensor) else schedule(t)


class RoundNumbers:
    """The numbers of a block of rounds, at most ``size``, whose first round comes after ``begun`` others."""

    def __init__(self, size: int, begun: int, device: torch.device) -> None:
        self._memory, self._begun = torch.zeros(size, dtype=torch.float64, device=device), begun
        self._schedules: list[tuple[Callable[[int], float], int]] = []

    @contextmanager
    def captured(self) -> Iterator[None]:
        """Hand out entries for the numbers of this thread."""
        token = _captured.set(self)
        try:
            yield
        finally:
            _captured.reset(token)

    def entry(self, schedule: Callable[[int], float], t: int, like: Tensor) -> Tensor:
        """The next entry, which is ``schedule(t)`` if the block begins where the first one did."""
        i = len(self._schedules)
        if i == len(self._memory):
            raise RuntimeError(f"a block of rounds takes more than {i} numbers of the host")
        self._schedules.append((schedule, t - self._begun))
        return self._memory[i].to(like.dtype).expand(like.shape)

    def fill(self, begun: int) -> None:
        """Compute the numbers of a block that comes after ``begun`` rounds; the host does not wait."""
        if not self._schedules:
            return
        values = torch.tensor([float(of(begun + at)) for of, at in self._schedules], dtype=torch.float64, device="cpu")
        if self._memory.is_cuda:
            values = values.pin_memory()
        self._memory[: len(values)].copy_(values, non_blocking=True)
