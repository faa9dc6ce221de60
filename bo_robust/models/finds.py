"""Finds: regions where f deviates from what the other rewards let expect, weighed against as many faults.

f = g + sum_j b_j. The find b_j about the point c of a reward that deviates by a is a Gaussian process of covariance

    B(x, x') = a^2 phi(x) phi(x') exp(-|x - x'|^2 / 2 r^2),    phi(x) = exp(-|x - c|^2 / 2 r^2),

in the box of the points, all of whose sides are 1. Its prior probability is that a point lies in a bump of that size:
min(1, max(NEEDLE, DENSE V_d r^d)), V_d r^d the volume of the ball. Its size is as likely beforehand as that of a fault,
p_0(y_c). So, with S believed, D the rewards that come back with it and o the log odds of one fault more than those
elsewhere (:mod:`bo_robust.models.outliers`), the log odds of the find against |D| faults are

    Delta J = log p(y_S, y_D | K + B) - log p(y_S | K) - sum_(i in D) (o + log p_0(y_i)) + log prior
              + log(p_0(y_c) |a| sqrt(2 pi e));

the last term replaces the density of a under B, at its maximum, by p_0. P(find) = 1 / (1 + exp(-Delta J)).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

import numpy as np
from scipy.linalg import blas, lapack

from bo_robust.models.conditioned import Conditioned
from bo_robust.models.evidence import LOG_2PI, Array, Indices

RADII = (0.3, 0.2, 0.13, 0.085, 0.055, 0.035)  # from "half the box feels it" to "no other point does"
DENSE = 0.1  # expected finds of one radius, in volumes of the box; with .3 more faults of 10 sd come back
NEEDLE = 0.01  # least prior of a find: a fifth of that of a fault, so that one reading alone decides nothing
WITHIN = 0.1  # of the find's height: rewards that deviate likewise where it is larger come back with it
LEAST_SIZE = 1e-300  # of a deviation, whose logarithm is taken
LOCAL = 1e-3  # of the find's height: where it is smaller, rewards are as if it were not there


class Find(NamedTuple):
    """A guess that f deviates about the point of a row.

    Attributes:
        row: Its centre.
        rows: Rows set aside that come back with it, the centre among them.
        radius: In sides of the box.
        deviation: Of the reward of ``row`` from what the believed rewards let expect, in the units of the rewards.
        log_odds: Of the find against faults in all its rows.
    """

    row: int
    rows: tuple[int, ...]
    radius: float
    deviation: float
    log_odds: float

    @property
    def probability(self) -> float:
        """That it is a find and no fault."""
        return 1.0 / (1.0 + math.exp(min(-self.log_odds, 700.0)))


class Finds:
    """Finds among points ``places``, ``n x d`` in the unit box, whose rewards have log densities as faults ``n``."""

    def __init__(self, places: Array, log_p0: Array) -> None:
        self._places, self._log_p0 = places, log_p0

    @cached_property
    def _squares(self) -> Array:
        """Squared distances of all points, ``n x n``."""
        return np.asarray(((self._places[:, None] - self._places) ** 2).sum(-1))

    def about(self, row: int, given: Conditioned, odds: Array) -> Iterator[Find]:
        """Finds of all radii about a row that is set aside; ``odds`` has o by the number of faults elsewhere."""
        deviation = float(given.weights[row])
        outliers = int((~given.believed).sum())
        likewise = ~given.believed & (np.sign(given.weights) == np.sign(deviation))  # the row itself always
        size = deviation * given.units.scale
        log_size = float(self._log_p0[row]) + math.log(max(abs(size), LEAST_SIZE)) + 0.5 * (LOG_2PI + 1.0)
        returned: dict[bytes, tuple[Conditioned, float]] = {}
        for radius in RADII:
            back = likewise & (self.nearness(row, radius) > WITHIN)
            key = back.tobytes()
            with np.errstate(all="ignore"):  # a singular matrix says nothing of a find
                if key not in returned:
                    together, gain = given.with_rows(np.flatnonzero(back))
                    rows = int(back.sum())
                    returned[key] = together, gain - rows * float(odds[outliers - rows]) - self._log_p0[back].sum()
                together, gain = returned[key]
                log_odds = gain + self._gain(row, radius, deviation, together) + self._log_prior(radius) + log_size
            log_odds = log_odds if math.isfinite(log_odds) else -math.inf
            yield Find(row, tuple(np.flatnonzero(back).tolist()), radius, size, log_odds)

    def covariance(self, find: Find, scale: float = 1.0) -> Array:
        """B at all points, ``n x n``, of rewards that are divided by ``scale``."""
        return self._covariance(find.row, find.radius, find.deviation / scale, np.arange(len(self._places)))

    def _gain(self, row: int, radius: float, deviation: float, given: Conditioned) -> float:
        """log p(y_S | K + B) - log p(y_S | K) = 1/2 w' B (I + G B)^-1 w - 1/2 log|I + G B|, with G = A_SS^-1, w = G r.

        Only rows near the centre count, for B is zero elsewhere.
        """
        rows = np.flatnonzero(given.believed & (self.nearness(row, radius) > LOCAL))
        found, weights = self._covariance(row, radius, deviation, rows), given.weights[rows]
        widened = np.eye(len(rows)) + blas.dsymm(1.0, given.precision(rows), found, lower=True)
        factors, _, solved, _ = lapack.dgesv(widened, weights)
        log_det = float(np.log(np.abs(factors.diagonal())).sum())
        return 0.5 * float(weights @ found @ solved) - 0.5 * log_det

    def _log_prior(self, radius: float) -> float:
        d = self._places.shape[1]
        log_ball = d / 2 * math.log(math.pi) - math.lgamma(d / 2 + 1) + d * math.log(radius)
        return min(max(math.log(DENSE) + log_ball, math.log(NEEDLE)), 0.0)

    def nearness(self, row: int, radius: float) -> Array:
        """phi at all points, ``n``."""
        return np.asarray(np.exp(-0.5 * self._squares[row] / radius**2))

    def _covariance(self, row: int, radius: float, deviation: float, rows: Indices) -> Array:
        near, square = self.nearness(row, radius)[rows], self._squares[rows][:, rows]
        return np.asarray(deviation**2 * np.outer(near, near) * np.exp(-0.5 * square / radius**2))
