"""Reward models of particular problems: spikes at one arm, the hard rewards of the lower bound, data tables.

Every model turns random numbers into rewards with torch operations only, so it runs on any device.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from torch import Tensor

from bo_robust.validation import check_finite, check_positive, check_tail_index


def mean_at(f: Tensor, arms: Tensor) -> Tensor:
    """The mean reward ``s`` of one arm per trial, given f ``s x n`` and arms ``s``."""
    return f.gather(-1, arms.unsqueeze(-1)).squeeze(-1)


def signs(rng: np.random.Generator, rounds: int) -> np.ndarray:
    """-1.0 or 1.0 with equal probability, ``rounds x 1``."""
    return 2.0 * rng.integers(0, 2, (rounds, 1)) - 1.0


class TensorFree:
    """A reward model without tensors, which is the same on every device."""

    def to(self, device: torch.device | str, dtype: torch.dtype) -> Self:
        return self


@dataclass(frozen=True, eq=False)
class OnePointSpikes:
    """Noise of +-magnitude, equally likely, at ONE arm of each trial (Ray Chowdhury & Gopalan 2019, Fig. 1f).

    ``points`` holds the noisy arm of every trial, ``s`` integer.
    """

    points: Tensor
    magnitude: float = 10.0

    def draw(self, rng: np.random.Generator, rounds: int) -> np.ndarray:
        return signs(rng, rounds)

    def __call__(self, f: Tensor, arms: Tensor, draws: Tensor) -> Tensor:
        return mean_at(f, arms) + self.magnitude * draws[:, 0] * (arms == self.points)

    def to(self, device: torch.device | str, dtype: torch.dtype) -> OnePointSpikes:
        return OnePointSpikes(self.points.to(device), self.magnitude)  # the points stay integers


@dataclass(frozen=True)
class HardRewards(TensorFree):
    """A reward is sgn(f) (v / 2 gap)^(1/alpha) with probability (2 gap / v)^(1/alpha) |f|, else 0.

    Source: Ray Chowdhury & Gopalan 2019, Theorem 2. The mean is f, and E|y|^(1+alpha) = (v / 2 gap) |f| <= v for
    |f| <= 2 gap. A probability that could exceed 1 for such f raises ``ValueError``.
    """

    gap: float
    v: float
    alpha: float

    def __post_init__(self) -> None:
        check_positive(gap=self.gap, v=self.v)
        check_tail_index(self.alpha)
        largest = 2.0 * self.gap / self.value
        if largest > 1.0:
            raise ValueError(
                f"(2 gap / v)^(1/alpha) |f| reaches {largest:.3g} > 1 and is no probability; "
                f"take a smaller gap (now {self.gap:g}) or a larger v (now {self.v:g})."
            )

    @property
    def value(self) -> float:
        """(v / 2 gap)^(1/alpha), the size of a nonzero reward."""
        return (self.v / (2.0 * self.gap)) ** (1.0 / self.alpha)

    def draw(self, rng: np.random.Generator, rounds: int) -> np.ndarray:
        return rng.random((rounds, 1))

    def __call__(self, f: Tensor, arms: Tensor, draws: Tensor) -> Tensor:
        mean = mean_at(f, arms)
        return self.value * mean.sign() * (draws[:, 0] < mean.abs() / self.value)


@dataclass(frozen=True, eq=False)
class TableRewards:
    """A reward is the arm's entry in a uniformly random row of ``table``, ``m x n``; f plays no part."""

    table: Tensor

    def __post_init__(self) -> None:
        if self.table.ndim != 2 or 0 in self.table.shape:
            raise ValueError(f"the reward table must be m x n, m and n >= 1, got {tuple(self.table.shape)}.")
        check_finite("the reward table", self.table)

    def draw(self, rng: np.random.Generator, rounds: int) -> np.ndarray:
        return rng.integers(0, self.table.shape[0], (rounds, 1)).astype(np.float64)

    def __call__(self, f: Tensor, arms: Tensor, draws: Tensor) -> Tensor:
        return self.table[draws[:, 0].long(), arms]

    def to(self, device: torch.device | str, dtype: torch.dtype) -> TableRewards:
        return TableRewards(self.table.to(device, dtype))
