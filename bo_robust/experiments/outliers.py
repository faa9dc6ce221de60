"""Wrong readings: which evaluations they hit, and by how much.

What happens depends on the number of the evaluation only, so that it is the same for every method.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
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
    shift: np.ndarray  # Added to the reading, in sd of f
    stuck: np.ndarray  # Shown instead of the reading; NaN where it is not
    outlier: np.ndarray  # Whether the reading is one. Of Student-t noise: beyond one sd of f

    def reading(self, problem: DesignProblem, x: Tensor, t: int) -> float:
        """What is observed in evaluation ``t`` (from 0) at a point."""
        if math.isfinite(self.stuck[t]):
            return float(self.stuck[t])
        return float(problem.read(x, self.uniform[t], self.normal[t]) + self.shift[t])


Share = Annotated[float, Field(gt=0.0, lt=1.0)]
InSd = Annotated[float, Field(gt=0.0)]  # in standard deviations of f


class Frozen(BaseModel):
    """Base of all models of a configuration: no unknown keys, and no conversion (a text is no number, nor is true)."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class Shift(Frozen):
    """A ``share`` of the readings are wrong by ``size``: too good, too bad, or on either side."""

    kind: Literal["shift"]
    share: Share
    size: InSd = 10.0
    side: Literal["either", "good", "bad"] = "either"


class Cauchy(Frozen):
    """A ``share`` of the readings have Cauchy noise of this ``scale``."""

    kind: Literal["cauchy"]
    share: Share
    scale: InSd = 1.0


class StudentT(Frozen):
    """All readings have Student-t noise of 2 degrees of freedom and this ``scale`` instead of Gaussian noise."""

    kind: Literal["student_t"]
    scale: InSd = 0.3  # then 8 % of it lies beyond one sd of f


class DeadSensor(Frozen):
    """A ``share`` of the readings show one constant."""

    kind: Literal["dead_sensor"]
    share: Share


OUTLIERS: dict[str, type[BaseModel]] = {
    "shift": Shift,
    "cauchy": Cauchy,
    "student_t": StudentT,
    "dead_sensor": DeadSensor,
}
Outliers = Annotated[Shift | Cauchy | StudentT | DeadSensor, Field(discriminator="kind")]


def draw(name: str, outliers: Outliers | None, seed: int, n: int) -> Draws:
    """Draw n evaluations of the problem of a name. Kinds share numbers: what is hit at 10 % is hit at 30 % too."""
    rng = stream(seed, f"robustness readings {name}", 0)
    uniform, normal, hit, wild = stats.norm.cdf(rng.standard_normal((n, 4))).T
    gauss = stats.norm.ppf(normal)
    shift, stuck, outlier = np.zeros(n), np.full(n, np.nan), hit < getattr(outliers, "share", 0.0)
    if isinstance(outliers, Shift):
        sign = {"good": 1.0, "bad": -1.0, "either": np.sign(wild - 0.5)}[outliers.side]
        shift = np.where(outlier, outliers.size * sign, 0.0)
    elif isinstance(outliers, Cauchy):
        shift = np.where(outlier, outliers.scale * np.tan(math.pi * (wild - 0.5)), 0.0)
    elif isinstance(outliers, StudentT):
        shift = outliers.scale * stats.t(2).ppf(wild)
        gauss, outlier = np.zeros(n), np.abs(shift) > 1.0
    elif isinstance(outliers, DeadSensor):
        level = stream(seed, f"robustness dead {name}", 0).uniform(-DEAD_RANGE, DEAD_RANGE)
        stuck = np.where(outlier, level, np.nan)
    return Draws(uniform, gauss, shift, stuck, outlier)
