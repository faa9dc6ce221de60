"""Axes of a space of designs: what a column of numbers, of steps or of categories is to a search."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from bo_robust.proposals.inputs import ROUNDING


@dataclass(frozen=True)
class Axis:
    """A column of numbers between two ends, all of them or a list of ``values``; to a search it is [0, 1]."""

    column: int  # its number in X
    low: float
    high: float
    values: Tensor | None = None

    @property
    def categories(self) -> int:
        """Number of categories; 0 where values have an order."""
        return 0

    def holds(self, x: Tensor) -> Tensor:
        """Which numbers may have been measured."""
        return x.isfinite()

    def rounded(self, x: Tensor) -> Tensor:
        """Numbers, of which those that differ from a value or an end by rounding are that."""
        known = x.new_tensor([self.low, self.high]) if self.values is None else self.values
        nearest = known[(x.unsqueeze(-1) - known).abs().argmin(-1)]
        return nearest.where((x - nearest).abs() <= ROUNDING * (self.high - self.low), x)

    def coordinate(self, x: Tensor) -> Tensor:
        """Coordinates of numbers, which may lie beyond the ends."""
        return (x - self.low) / (self.high - self.low or 1.0)

    def value(self, u: Tensor) -> Tensor:
        """Values next to coordinates."""
        x = (self.low + (self.high - self.low) * u).clamp(self.low, self.high)
        return x if self.values is None else self.values[(x.unsqueeze(-1) - self.values).abs().argmin(-1)]

    def moves(self, x: float, target: float) -> Sequence[float]:
        """Values that may be better than x: the target, or the next ones of a list."""
        if self.values is None:
            return [min(max(target, self.low), self.high)]
        return [*self.values[self.values < x][-1:].tolist(), *self.values[self.values > x][:1].tolist()]


@dataclass(frozen=True)
class Categories(Axis):
    """A column of whole numbers that stand for categories; to a search a category is the number of its value."""

    values: Tensor

    @property
    def categories(self) -> int:
        return len(self.values)

    def holds(self, x: Tensor) -> Tensor:
        return torch.isin(x, self.values)

    def coordinate(self, x: Tensor) -> Tensor:
        return (x.unsqueeze(-1) == self.values).double().argmax(-1).double()

    def value(self, u: Tensor) -> Tensor:
        return self.values[u.round().long()]
