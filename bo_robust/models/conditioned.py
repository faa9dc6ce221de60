"""A Gaussian process given some of its rewards, at fixed hyperparameters: leave-one-out and moves in closed form."""

from __future__ import annotations

import copy
import math

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from bo_robust.models.evidence import IMPOSSIBLE, LOG_2PI, Array, Indices, Prior
from bo_robust.models.reward_units import Units

LEAST_PIVOT = 1e-12  # smallest variance and pivot: rounding makes smaller ones

Rows = NDArray[np.bool_]


class Conditioned:
    """The GP, which sees rewards in these ``units``, given the believed ones; rows leave and enter by rank-one updates.

    ``swept`` is the covariance A of all rewards, swept (Beaton's operator) on the believed rows S: there it is
    -A_SS^-1, between S and the others A_SS^-1 A_SD, and among the others the covariance that is left given S,
    A_DD - A_DS A_SS^-1 A_SD. Its lower half counts. ``weights`` is the residual y - mean, swept likewise: on S it is
    A_SS^-1 (y - mean)_S, and for the others what is left of their residual. ``log_evidence`` is log p(y_S | theta) +
    log p(theta). Densities are those of the rewards as they are told, so they compare between units.
    """

    def __init__(self, prior: Prior, y: Array, believed: Rows, units: Units) -> None:
        self.believed, self.noise, self.units = believed.copy(), prior.noise, units
        self.log_norm = LOG_2PI + 2.0 * math.log(units.scale)  # of a normal density, for a variance of 1 in these units
        # Believed rows first: slices of a matrix are faster than scattered parts of it.
        order, k = np.argsort(~believed, kind="stable"), int(believed.sum())
        total = prior.covariance[order][:, order]
        total[np.diag_indices_from(total)] += prior.noise[order]
        residual = ((y - units.center) / units.scale - prior.mean)[order]
        inverse, log_det = _inverse(total[:k, :k])
        weights = linalg.blas.dsymm(1.0, inverse, residual[:k, None], lower=True)[:, 0]
        quadratic = max(float(residual[:k] @ weights), 0.0)  # rounding can make an indefinite inverse, which would win
        self.log_evidence = prior.log_density - 0.5 * (quadratic + log_det + k * self.log_norm)
        known = total[k:, :k].copy()
        total[:k, :k], residual[:k] = -inverse, weights
        if k < len(y):
            regression = linalg.blas.dsymm(1.0, inverse, known.T, lower=True)
            total[k:, :k], total[:k, k:] = regression.T, regression
            total[k:, k:] -= known @ regression
            residual[k:] -= known @ weights
        back = order.argsort()
        self.swept, self.weights = np.asfortranarray(total[back][:, back]), residual[back]

    def with_rows(self, rows: Indices) -> tuple[Conditioned, float]:
        """A copy that believes these rows too, and log p(y_rows | y_S)."""
        other = copy.copy(self)
        other.swept, other.weights, other.believed = self.swept.copy("F"), self.weights.copy(), self.believed.copy()
        for row in rows:
            other.move(int(row))
        return other, other.log_evidence - self.log_evidence

    def expected(self) -> tuple[Array, Array]:
        """Each reward's distance ``n`` from what the other believed ones let expect, and its variance ``n``.

        Of a believed row they are w_i / G_ii and 1 / G_ii with the weights w and G = A_SS^-1 (Rasmussen & Williams
        2006, equation 5.12); of another one they stand in ``weights`` and on the diagonal.
        """
        sign = np.where(self.believed, -1.0, 1.0)
        diagonal = np.maximum(sign * self.swept.diagonal(), LEAST_PIVOT)
        variance = np.where(self.believed, 1.0 / diagonal, diagonal)
        return np.where(self.believed, self.weights * variance, self.weights), variance

    def log_densities(self) -> Array:
        """Log density ``n`` of each reward given the other believed ones."""
        residual, variance = self.expected()
        densities: Array = -0.5 * (self.log_norm + np.log(variance) + residual**2 / variance)
        return densities

    def precision(self, rows: Indices) -> Array:
        """The part of A_SS^-1 that belongs to these believed rows, ascending, ``k x k``; its lower half counts."""
        return -self.swept[rows][:, rows]

    def move(self, i: int) -> None:
        """Believe row i no more if it is believed, or else believe it too: sweep or unsweep ``swept`` on it.

        With v the column i of ``swept``, p = v_i its pivot, v_i set to 0 and s = -1 for a row that leaves, 1 for one
        that enters: ``swept`` becomes ``swept`` - v v^T / p, its column i s v / p and its pivot -1 / p. ``weights``
        become ``weights`` - v w_i / p, and w_i becomes s w_i / p. ``log_evidence`` changes by the log density of the
        row given the others, of variance |p|^s and squared distance w_i^2 |p|^(s - 1).
        """
        sign = -1.0 if self.believed[i] else 1.0
        column = np.concatenate([self.swept[i, :i], self.swept[i:, i]])
        pivot = sign * max(sign * column[i], LEAST_PIVOT)
        column[i] = 0.0
        own = self.weights[i] / pivot
        self.log_evidence -= 0.5 * (sign * self.log_norm + math.log(abs(pivot)) + float(self.weights[i] * own))
        self.swept = linalg.blas.dsyr(-1.0 / pivot, column, lower=True, a=self.swept, overwrite_a=True)
        self.weights -= column * own
        moved = sign * column / pivot
        self.swept[i, :i] = moved[:i]
        self.swept[i:, i] = moved[i:]
        self.swept[i, i] = -1.0 / pivot
        self.weights[i] = sign * own
        self.believed[i] = not self.believed[i]


def _inverse(covariance: Array) -> tuple[Array, float]:
    """Lower half of the inverse of a covariance matrix, and its log determinant.

    Of one that rounding has made indefinite too, but no evidence then speaks for it.
    """
    root, failed = linalg.lapack.dpotrf(covariance.T, lower=True)
    if failed:
        return np.asarray(np.linalg.inv(covariance), dtype=np.float64), 2.0 * IMPOSSIBLE
    log_det = 2.0 * float(np.log(root.diagonal()).sum())
    return linalg.lapack.dpotri(root, lower=True, overwrite_c=True)[0], log_det
