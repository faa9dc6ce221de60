"""Local deviations (bumps) of f that the other observations do not predict, weighed against as many gross errors.

f = g + sum_j b_j. The deviation b_j around the point c of an observation with residual a is a Gaussian process of
covariance

    B(x, x') = a^2 phi(x) phi(x') exp(-|x - x'|^2 / 2 r^2),    phi(x) = exp(-|x - c|^2 / 2 r^2),

in the box that the points span, scaled to sides of 1. Its prior probability is that of a point to lie in a bump of this
size: min(1, max(share / RARER, DENSITY V_d r^d)), where V_d r^d is the volume of the ball. Its
size, the largest within it, has the prior density of an outlier, p_0(y_c). Let S be the inliers, D the outliers that
the deviation explains, and o the log odds of one outlier more than those elsewhere
(:mod:`bo_robust.models.robust.detection`). The log odds of the deviation against |D| outliers are

    Delta J = log p(y_S, y_D | K + B) - log p(y_S | K) - sum_(i in D) (o + log p_0(y_i)) + log prior
              + log(p_0(y_c) |a| sqrt(2 pi e)).

The last term replaces the density of a under B, at its maximum, by p_0.

Inliers C at the point c may contradict the deviation. If they are the gross errors instead, they leave S first, which
changes J by log p(y_(S without C)) - log p(y_S) + sum_(i in C) (o + log p_0(y_i)), with o for one outlier more each.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from bo_robust.models.marginal_likelihood import LOG_2PI, Array, Indices
from bo_robust.models.robust.conditioned_gp import ConditionedGP, Rows

RADII = (0.3, 0.2, 0.13, 0.085, 0.055, 0.035, 0.01)  # in sides of the box, from half of the box to replicates alone
DENSITY = 0.1  # expected number of local deviations of one radius, per volume of the box
EXTENT = 0.1  # relative height of a local deviation down to which it explains outliers of the same sign
RARER = 5.0  # times that a local deviation may be rarer than an outlier at most: one observation decides nothing
FEWEST = 2  # outliers that a deviation explains: one alone decides nothing
LEAST_SIZE = 1e-300  # smallest |a| of which a logarithm is taken
NEGLIGIBLE = 1e-3  # value of phi below which a deviation does not change an observation


class LocalDeviation(NamedTuple):
    """A possible deviation of f around the point of a row.

    Attributes:
        row: The row at its center.
        rows: Outliers that it explains, the center among them.
        radius: Radius r, in sides of the box.
        size: Residual a of ``row`` given the inliers, in units of the observations.
        log_odds: Log odds against gross errors in all its rows.
        contradicting: Inliers at its point that are gross errors if it exists.
    """

    row: int
    rows: tuple[int, ...]
    radius: float
    size: float
    log_odds: float
    contradicting: tuple[int, ...] = ()


class LocalDeviations:
    """Local deviations among points ``n x d`` in the unit box; ``log_p0`` are log densities ``n`` as outliers.

    ``share`` is the share of outliers that is expected.
    """

    def __init__(self, places: Array, log_p0: Array, share: float) -> None:
        self._places, self._log_p0, self._share = places, log_p0, share

    def instead_of(self, inliers: Indices, row: int, gp: ConditionedGP, odds: Array) -> Iterator[LocalDeviation]:
        """Deviations of all radii around an outlier if these inliers at its point are gross errors instead."""
        without, gain = gp.with_rows(inliers)
        outliers = int((~gp.inliers).sum())
        gain += float(odds[outliers : outliers + len(inliers)].sum() + self._log_p0[inliers].sum())
        gain = gain if math.isfinite(gain) else -math.inf  # a clipped one is no gross error instead
        for each in self.about(row, without, odds, gp.inliers):
            yield each._replace(log_odds=each.log_odds + gain, contradicting=tuple(inliers.tolist()))

    def about(self, row: int, gp: ConditionedGP, odds: Array, never: Rows | None = None) -> list[LocalDeviation]:
        """Deviations around an outlier, the widest first; ``odds`` has o by the number of outliers elsewhere.

        They explain at least two, and no row of ``never``.
        """
        weights, outliers = gp.weights, int((~gp.inliers).sum())
        residual = float(weights[row])
        # A deviation is largest at its center, and a row beyond that a gross error.
        likewise = ~gp.inliers & (np.sign(weights) == np.sign(residual)) & (np.abs(weights) <= abs(residual))
        if never is not None:
            likewise &= ~never
        size = residual * gp.units.scale
        log_size = float(self._log_p0[row]) + math.log(max(abs(size), LEAST_SIZE)) + 0.5 * (LOG_2PI + 1.0)
        together, gain, found = gp, 0.0, []
        for radius in sorted(RADII):  # a wider deviation explains all rows of a narrower one
            back = likewise & (self._nearness(row, radius) > EXTENT)
            rows = np.flatnonzero(back)
            if len(rows) < FEWEST:
                continue
            with np.errstate(all="ignore"):  # a singular matrix says nothing about a deviation
                if not together.inliers[rows].all():
                    together, more = together.with_rows(rows[~together.inliers[rows]])
                    gain += more
                as_outliers = len(rows) * float(odds[outliers - len(rows)]) + self._log_p0[rows].sum()
                log_odds = gain - as_outliers + self._gain(row, radius, residual, together)
                log_odds += self._log_prior(radius) + log_size
            log_odds = log_odds if math.isfinite(log_odds) else -math.inf
            found.append(LocalDeviation(row, tuple(rows.tolist()), radius, size, log_odds))
        return found[::-1]

    def covariance(self, deviation: LocalDeviation, scale: float = 1.0) -> Array:
        """B at all points, ``n x n``, for observations that are divided by ``scale``."""
        return self._covariance(deviation.row, deviation.radius, deviation.size / scale, np.arange(len(self._places)))

    def _gain(self, row: int, radius: float, size: float, gp: ConditionedGP) -> float:
        """log p(y_S | K + B) - log p(y_S | K); only rows near the center count, because B is zero elsewhere."""
        rows = np.flatnonzero(gp.inliers & (self._nearness(row, radius) > NEGLIGIBLE))
        return gp.gain(rows, self._covariance(row, radius, size, rows))

    def _log_prior(self, radius: float) -> float:
        d = self._places.shape[1]
        log_ball = d / 2 * math.log(math.pi) - math.lgamma(d / 2 + 1) + d * math.log(radius)
        least = math.log(self._share / RARER)
        return min(max(math.log(DENSITY) + log_ball, least), 0.0)

    def _nearness(self, row: int, radius: float) -> Array:
        """phi at all points, ``n``."""
        return np.asarray(np.exp(-0.5 * ((self._places - self._places[row]) ** 2).sum(1) / radius**2))

    def _covariance(self, row: int, radius: float, size: float, rows: Indices) -> Array:
        x = (self._places[rows] - self._places[row]) / radius  # near zero, where products do not round
        square = (x**2).sum(1)
        # phi phi' exp(-|x - x'|^2 / 2) = exp(x x' - |x|^2 - |x'|^2)
        return np.asarray(size**2 * np.exp(x @ x.T - square[:, None] - square))
