"""Wrong observations: which evaluations they hit, and by how much.

What happens depends on the number of the evaluation only, so that it is the same for every method.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Annotated, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field
from scipy import stats
from torch import Tensor

from bo_robust.experiments.problems import DesignProblem
from bo_robust.utils.random import stream

DEAD_RANGE = 3.0  # what a dead sensor shows lies within this many sd of f's mean


@dataclass(frozen=True)
class Draws:
    """The randomness of one trial, a number for each evaluation."""

    uniform: np.ndarray  # Which replicate of a table is read
    normal: np.ndarray  # Standard Gaussian noise
    shift: np.ndarray  # Added to the observation, in sd of f
    stuck: np.ndarray  # Shown instead of the observation; NaN where it is not
    outlier: np.ndarray  # Whether the observation is one. Of Student-t noise: beyond one sd of f

    def observation(self, problem: DesignProblem, x: Tensor, t: int) -> float:
        """What is observed in evaluation ``t`` (from 0) at a point."""
        if math.isfinite(self.stuck[t]):
            return float(self.stuck[t])
        return float(problem.observe(x, self.uniform[t], self.normal[t]) + self.shift[t])


Share = Annotated[float, Field(gt=0.0, lt=1.0)]
InSd = Annotated[float, Field(gt=0.0)]  # in standard deviations of f


class Frozen(BaseModel):
    """Base of all models of a configuration: no unknown keys, and no conversion (a text is no number, nor is true)."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class Kind(Frozen, ABC):
    """Base of the kinds of outliers."""

    @abstractmethod
    def applied(self, draws: Draws, hit: np.ndarray, wild: np.ndarray, level: Callable[[], float]) -> Draws:
        """Draws without outliers, with those of this kind.

        ``hit`` says by uniform numbers which observations are wrong, ``wild`` by how much. ``level`` is a constant of
        the trial within :data:`DEAD_RANGE`.
        """


class SomeWrong(Kind):
    """Base of the kinds with a ``share`` of wrong observations."""

    share: Share

    @abstractmethod
    def shift(self, wild: np.ndarray) -> np.ndarray:
        """What a wrong observation is off by."""

    def applied(self, draws: Draws, hit: np.ndarray, wild: np.ndarray, level: Callable[[], float]) -> Draws:
        outlier = hit < self.share
        return replace(draws, outlier=outlier, shift=np.where(outlier, self.shift(wild), 0.0))


class Shift(SomeWrong):
    """A ``share`` of the observations are wrong by ``size``: too good, too bad, or on either side."""

    kind: Literal["shift"]
    size: InSd = 10.0
    side: Literal["either", "good", "bad"] = "either"

    def shift(self, wild: np.ndarray) -> np.ndarray:
        sides = {"good": np.ones_like(wild), "bad": -np.ones_like(wild), "either": np.sign(wild - 0.5)}
        return self.size * sides[self.side]


class Cauchy(SomeWrong):
    """A ``share`` of the observations have Cauchy noise of this ``scale``."""

    kind: Literal["cauchy"]
    scale: InSd = 1.0

    def shift(self, wild: np.ndarray) -> np.ndarray:
        return np.asarray(self.scale * np.tan(math.pi * (wild - 0.5)))


class StudentT(Kind):
    """All observations have Student-t noise of 2 degrees of freedom and this ``scale`` instead of Gaussian noise."""

    kind: Literal["student_t"]
    scale: InSd = 0.3  # then 8 % of it lies beyond one sd of f

    def applied(self, draws: Draws, hit: np.ndarray, wild: np.ndarray, level: Callable[[], float]) -> Draws:
        shift = self.scale * stats.t(2).ppf(wild)
        return replace(draws, normal=np.zeros(len(wild)), shift=shift, outlier=np.abs(shift) > 1.0)


class DeadSensor(Kind):
    """A ``share`` of the observations show one constant."""

    kind: Literal["dead_sensor"]
    share: Share

    def applied(self, draws: Draws, hit: np.ndarray, wild: np.ndarray, level: Callable[[], float]) -> Draws:
        outlier = hit < self.share
        return replace(draws, outlier=outlier, stuck=np.where(outlier, level(), np.nan))


OUTLIERS: dict[str, type[BaseModel]] = {
    "shift": Shift,
    "cauchy": Cauchy,
    "student_t": StudentT,
    "dead_sensor": DeadSensor,
}
Outliers = Annotated[Shift | Cauchy | StudentT | DeadSensor, Field(discriminator="kind")]


def draw(name: str, outliers: Kind | None, seed: int, n: int) -> Draws:
    """Draw n evaluations of the problem of a name. Kinds share numbers: what is hit at 10 % is hit at 30 % too."""
    rng = stream(seed, f"robustness readings {name}", 0)
    uniform, normal, hit, wild = stats.norm.cdf(rng.standard_normal((n, 4))).T
    draws = Draws(uniform, stats.norm.ppf(normal), np.zeros(n), np.full(n, np.nan), np.zeros(n, dtype=bool))
    if outliers is None:
        return draws
    dead = stream(seed, f"robustness dead {name}", 0)
    return outliers.applied(draws, hit, wild, lambda: float(dead.uniform(-DEAD_RANGE, DEAD_RANGE)))
