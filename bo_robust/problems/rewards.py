"""Reward models of particular problems: spikes at one arm, the hard rewards of the lower bound, data tables.

Every model turns the raw variates of a round into rewards with torch operations only, on any device.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from torch import Tensor

from bo_robust.validation import check_finite, check_positive, check_tail_index

__all__ = ["HardRewards", "OnePointSpikes", "TableRewards", "TensorFree", "mean_at", "signs"]


def mean_at(f: Tensor, arms: Tensor) -> Tensor:
    """f (``s x n``) at one arm per trial (``s``), ``s``."""
    return f.gather(-1, arms.unsqueeze(-1)).squeeze(-1)


def signs(rng: np.random.Generator, rounds: int) -> np.ndarray:
    """-1.0 or 1.0 with equal probability, ``rounds x 1``."""
    return 2.0 * rng.integers(0, 2, (rounds, 1)) - 1.0


class TensorFree:
    """A reward model without tensors: the same on every device."""

    def to(self, device: torch.device | str, dtype: torch.dtype) -> Self:
        """Itself."""
        return self


@dataclass(frozen=True, eq=False)
class OnePointSpikes:
    """Noise of +-magnitude, equally likely, at ONE arm of each trial, none elsewhere.

    Ray Chowdhury & Gopalan 2019, Fig. 1 (f).

    Attributes:
        points: The arm of every trial, ``s`` integer.
        magnitude: Size of the noise.
    """

    points: Tensor
    magnitude: float = 10.0

    def draw(self, rng: np.random.Generator, rounds: int) -> np.ndarray:
        """``rounds x 1``: the sign."""
        return signs(rng, rounds)

    def __call__(self, f: Tensor, arms: Tensor, draws: Tensor) -> Tensor:
        """f at the arms, with noise where the arm is the trial's spiked one, ``s``."""
        return mean_at(f, arms) + self.magnitude * draws[:, 0] * (arms == self.points)

    def to(self, device: torch.device | str, dtype: torch.dtype) -> OnePointSpikes:
        """The same model on ``device`` (the points stay integers)."""
        return OnePointSpikes(self.points.to(device), self.magnitude)


@dataclass(frozen=True)
class HardRewards(TensorFree):
    """sgn(f) (v / 2 gap)^(1/alpha) with probability (2 gap / v)^(1/alpha) |f|, else 0.

    Ray Chowdhury & Gopalan 2019, Theorem 2. The mean is f and E|y|^(1+alpha) = (v / 2 gap) |f| <= v for |f| <= 2 gap.

    Raises:
        ValueError: if the probability could exceed 1 for |f| <= 2 gap.
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
        """(v / 2 gap)^(1/alpha), the size of a reward that is not 0."""
        return (self.v / (2.0 * self.gap)) ** (1.0 / self.alpha)

    def draw(self, rng: np.random.Generator, rounds: int) -> np.ndarray:
        """``rounds x 1``: uniform in [0, 1)."""
        return rng.random((rounds, 1))

    def __call__(self, f: Tensor, arms: Tensor, draws: Tensor) -> Tensor:
        """Rewards at the arms, ``s``."""
        mean = mean_at(f, arms)
        return self.value * mean.sign() * (draws[:, 0] < mean.abs() / self.value)


@dataclass(frozen=True, eq=False)
class TableRewards:
    """A reward is the arm's entry in a uniformly random row of ``table`` (``m x n``); f plays no part."""

    table: Tensor

    def __post_init__(self) -> None:
        if self.table.ndim != 2 or 0 in self.table.shape:
            raise ValueError(f"the reward table must be m x n, m and n >= 1, got {tuple(self.table.shape)}.")
        check_finite("the reward table", self.table)

    def draw(self, rng: np.random.Generator, rounds: int) -> np.ndarray:
        """``rounds x 1``: the row number."""
        return rng.integers(0, self.table.shape[0], (rounds, 1)).astype(np.float64)

    def __call__(self, f: Tensor, arms: Tensor, draws: Tensor) -> Tensor:
        """table[row, arm], ``s``."""
        return self.table[draws[:, 0].long(), arms]

    def to(self, device: torch.device | str, dtype: torch.dtype) -> TableRewards:
        """The same model with its table on ``device`` and in ``dtype``."""
        return TableRewards(self.table.to(device, dtype))
