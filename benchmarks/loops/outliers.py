"""Wrong observations: which evaluations they hit, and by how much.

What happens depends on the number of the evaluation only, so that it is the same for every method.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from scipy import stats
from torch import Tensor

from benchmarks.problems.designs import DesignProblem
from bo_robust.utils.random import stream

DEAD_RANGE = 3.0  # what a dead sensor shows lies within this many sd of f's mean


@dataclass(frozen=True)
class Draws:
    """The randomness of one trial, a number for each evaluation."""

    uniform: np.ndarray  # Which replicate of a table is read
    normal: np.ndarray  # Standard Gaussian noise
    shift: np.ndarray  # Added to the observation, in sd of f
    stuck: np.ndarray  # Shown instead of the observation; NaN where it is not
    factor: np.ndarray  # The observation is multiplied by this; positive problems only, where it is not 1
    outlier: np.ndarray  # Whether the observation is one. Of Student-t noise: beyond one sd of f

    def observation(self, problem: DesignProblem, x: Tensor, t: int) -> float:
        """What is observed in evaluation ``t`` (from 0) at a point."""
        if math.isfinite(self.stuck[t]):
            return float(self.stuck[t])
        y = problem.observe(x, self.uniform[t], self.normal[t])
        if self.factor[t] != 1.0:
            return float((problem.center + y) * self.factor[t] - problem.center)
        return float(y + self.shift[t])


class Outliers(ABC):
    """Base of the kinds of outliers. Sizes are in standard deviations of f."""

    @abstractmethod
    def applied(self, draws: Draws, hit: np.ndarray, wild: np.ndarray, level: Callable[[], float]) -> Draws:
        """Draws without outliers, with those of this kind.

        ``hit`` says by uniform numbers which observations are wrong, ``wild`` by how much. ``level`` is a constant of
        the trial within :data:`DEAD_RANGE`.
        """


@dataclass(frozen=True)
class SomeWrong(Outliers):
    """Base of the kinds with a ``share`` of wrong observations."""

    share: float  # in (0, 1)

    def __post_init__(self) -> None:
        if not 0.0 < self.share < 1.0:
            raise ValueError(f"the share of wrong observations must be in (0, 1), got {self.share}.")

    @abstractmethod
    def changes(self, wild: np.ndarray, level: Callable[[], float]) -> dict[str, np.ndarray]:
        """Numbers of :class:`Draws` by name, as they would be if all observations were wrong."""

    def applied(self, draws: Draws, hit: np.ndarray, wild: np.ndarray, level: Callable[[], float]) -> Draws:
        outlier = hit < self.share
        changes = self.changes(wild, level).items()
        return replace(draws, outlier=outlier, **{k: np.where(outlier, of, getattr(draws, k)) for k, of in changes})


@dataclass(frozen=True)
class Shift(SomeWrong):
    """A ``share`` of the observations are wrong by ``size``: too good, too bad, or on either side."""

    size: float = 10.0
    side: str = "either"  # or "good", "bad"

    def changes(self, wild: np.ndarray, level: Callable[[], float]) -> dict[str, np.ndarray]:
        sides = {"good": np.ones_like(wild), "bad": -np.ones_like(wild), "either": np.sign(wild - 0.5)}
        return {"shift": self.size * sides[self.side]}


@dataclass(frozen=True)
class Cauchy(SomeWrong):
    """A ``share`` of the observations have Cauchy noise of this ``scale``."""

    scale: float = 1.0

    def changes(self, wild: np.ndarray, level: Callable[[], float]) -> dict[str, np.ndarray]:
        return {"shift": np.asarray(self.scale * np.tan(math.pi * (wild - 0.5)))}


@dataclass(frozen=True)
class Factor(SomeWrong):
    """A ``share`` of the observations are too large or too small by a factor ``size``, of a positive f."""

    size: float = 10.0

    def changes(self, wild: np.ndarray, level: Callable[[], float]) -> dict[str, np.ndarray]:
        return {"factor": self.size ** np.sign(wild - 0.5)}


@dataclass(frozen=True)
class DeadSensor(SomeWrong):
    """A ``share`` of the observations show one constant."""

    def changes(self, wild: np.ndarray, level: Callable[[], float]) -> dict[str, np.ndarray]:
        return {"stuck": np.full(len(wild), level())}


@dataclass(frozen=True)
class StudentT(Outliers):
    """All observations have Student-t noise of 2 degrees of freedom and this ``scale`` instead of Gaussian noise."""

    scale: float = 0.3  # then 8 % of it lies beyond one sd of f

    def applied(self, draws: Draws, hit: np.ndarray, wild: np.ndarray, level: Callable[[], float]) -> Draws:
        shift = self.scale * stats.t(2).ppf(wild)
        return replace(draws, normal=np.zeros(len(wild)), shift=shift, outlier=np.abs(shift) > 1.0)


def draw(name: str, outliers: Outliers | None, seed: int, n: int) -> Draws:
    """Draw n evaluations of the problem of a name. Kinds share numbers: what is hit at 10 % is hit at 30 % too."""
    rng = stream(seed, f"robustness readings {name}", 0)
    uniform, normal, hit, wild = stats.norm.cdf(rng.standard_normal((n, 4))).T
    right = {"shift": np.zeros(n), "stuck": np.full(n, np.nan), "factor": np.ones(n), "outlier": np.zeros(n, bool)}
    draws = Draws(uniform, stats.norm.ppf(normal), **right)
    if outliers is None:
        return draws
    dead = stream(seed, f"robustness dead {name}", 0)
    return outliers.applied(draws, hit, wild, lambda: float(dead.uniform(-DEAD_RANGE, DEAD_RANGE)))
