"""Wrong readings: which evaluations they hit, and by how much.

What happens depends on the number of the evaluation only, so that it is the same for every method.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy import stats
from torch import Tensor

from bo_robust.experiments.config import Cauchy, DeadSensor, Outliers, Shift, StudentT
from bo_robust.experiments.problems import DesignProblem
from bo_robust.utils.random import stream

DEAD_RANGE = 3.0  # what a dead sensor shows lies within this many sd of f's mean


@dataclass(frozen=True)
class Draws:
    """The randomness of one trial, a number for each evaluation.

    Attributes:
        uniform: Which replicate of a table is read.
        normal: Standard Gaussian noise.
        shift: Added to the reading, in sd of f.
        stuck: Shown instead of the reading; NaN where it is not.
        outlier: Whether the reading is one. Of Student-t noise: beyond one sd of f.
    """

    uniform: np.ndarray
    normal: np.ndarray
    shift: np.ndarray
    stuck: np.ndarray
    outlier: np.ndarray

    def reading(self, problem: DesignProblem, x: Tensor, t: int) -> float:
        """What is observed in evaluation ``t`` (from 0) at a point."""
        if math.isfinite(self.stuck[t]):
            return float(self.stuck[t])
        return float(problem.read(x, self.uniform[t], self.normal[t]) + self.shift[t])


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
