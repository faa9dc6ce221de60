"""What is done to readings: by the number of the evaluation only, so that it is the same for every method."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy import stats

from benchmarks.robustness.problems import Problem
from bo_robust.utils.random import stream

__all__ = ["FAULTY", "MAIN", "REGIMES", "Draws", "Regime", "draw"]

STUDENT_SCALE = 0.3  # of Student-t(2) noise, in sd of f: then 8 % of it lies beyond one sd of f
DEAD_RANGE = 3.0  # what a dead sensor shows lies within this many sd of f's mean


@dataclass(frozen=True)
class Regime:
    """A kind of contamination.

    Attributes:
        kind: "none", "shift" (by ``size`` sd of f), "either" (the same, on either side), "cauchy" (noise of scale
            ``size``), "student" (instead of Gaussian noise, on all) or "dead" (one constant).
        share: Of readings.
        size: In sd of f; a negative shift is on the bad side.
    """

    kind: str
    share: float = 0.0
    size: float = 0.0


# The most telling first, since a grid may be cut off.
REGIMES: dict[str, Regime] = {
    "clean": Regime("none"),
    "10% 10sd either": Regime("either", 0.1, 10.0),
    "30% 10sd either": Regime("either", 0.3, 10.0),
    "10% 10sd good": Regime("shift", 0.1, 10.0),
    "10% 10sd bad": Regime("shift", 0.1, -10.0),
    "10% 3sd either": Regime("either", 0.1, 3.0),
    "student-t": Regime("student", 1.0, STUDENT_SCALE),
    "20% cauchy": Regime("cauchy", 0.2, 1.0),
    "dead sensor": Regime("dead", 0.15),
}
MAIN = tuple(REGIMES)[:3]  # of the whole grid; the others are played as time allows
FAULTY = MAIN[1:]


@dataclass(frozen=True)
class Draws:
    """The randomness of one campaign, a number for each evaluation.

    Attributes:
        uniform: Which replicate of a table is read.
        normal: Standard Gaussian noise.
        shift: Added to the reading, in sd of f.
        stuck: Shown instead of the reading; NaN where it is not.
        outlier: Whether the reading is one, which the method ``known`` is told. Of Student-t noise: beyond one sd of f.
    """

    uniform: np.ndarray
    normal: np.ndarray
    shift: np.ndarray
    stuck: np.ndarray
    outlier: np.ndarray

    def reading(self, problem: Problem, x: object, t: int) -> float:
        """What is told of evaluation ``t`` (from 0) at a point."""
        if math.isfinite(self.stuck[t]):
            return float(self.stuck[t])
        return problem.read(x, self.uniform[t], self.normal[t]) + self.shift[t]  # type: ignore[arg-type]


def draw(problem: Problem, regime: Regime, seed: int, n: int) -> Draws:
    """The draws of a campaign of n evaluations. Regimes share numbers: what is hit at 10 % is hit at 30 % too."""
    rng = stream(seed, f"robustness readings {problem.name}", 0)
    uniform, normal, hit, wild = stats.norm.cdf(rng.standard_normal((n, 4))).T
    gauss = stats.norm.ppf(normal)
    shift, stuck, outlier = np.zeros(n), np.full(n, np.nan), hit < regime.share
    if regime.kind == "shift":
        shift = np.where(outlier, regime.size, 0.0)
    elif regime.kind == "either":
        shift = np.where(outlier, regime.size * np.sign(wild - 0.5), 0.0)
    elif regime.kind == "cauchy":
        shift = np.where(outlier, regime.size * np.tan(math.pi * (wild - 0.5)), 0.0)
    elif regime.kind == "student":
        shift = regime.size * stats.t(2).ppf(wild)
        gauss, outlier = np.zeros(n), np.abs(shift) > 1.0
    elif regime.kind == "dead":
        level = stream(seed, f"robustness dead {problem.name}", 0).uniform(-DEAD_RANGE, DEAD_RANGE)
        stuck = np.where(outlier, level, np.nan)
    return Draws(uniform, gauss, shift, stuck, outlier)
