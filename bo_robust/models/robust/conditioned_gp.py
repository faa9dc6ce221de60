"""A Gaussian process given the inliers among its observations: leave-one-out and changes of the set in closed form."""

from __future__ import annotations

import copy
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from bo_robust.models.marginal_likelihood import IMPOSSIBLE, LOG_2PI, Array, Indices, Prior
from bo_robust.models.reward_units import Units

LEAST_PIVOT = 1e-12  # smallest variance and pivot, in prior variances: rounding makes smaller ones

Rows = NDArray[np.bool_]


class ConditionedGP:
    """The GP given its inliers, at fixed hyperparameters; rows leave and enter by rank-one updates.

    The GP sees observations in these ``units``. ``swept`` is the covariance A of all observations, swept (Beaton's
    operator) on the inliers S. It is -A_SS^-1 on S, A_SS^-1 A_SD between S and the outliers D, and the covariance given
    S among the outliers, A_DD - A_DS A_SS^-1 A_SD. Only its lower half is valid. ``weights`` is the residual y - mean,
    swept likewise: A_SS^-1 (y - mean)_S on S, and the residual given S for the outliers. ``log_evidence`` is
    log p(y_S | theta) + log p(theta). Densities are per unit of the original observations, so they compare between
    units.
    """

    swept: Any  # an array, or a tensor of the subclass for devices

    def __init__(self, prior: Prior, y: Array, inliers: Rows, units: Units) -> None:
        self.inliers, self.noise, self.units = inliers.copy(), prior.noise, units
        self.log_norm = LOG_2PI + 2.0 * math.log(units.scale)  # of a normal density, for a variance of 1 in these units
        self._variance = prior.covariance.diagonal() + prior.noise
        self._prior, self._residual = prior, (y - units.center) / units.scale - prior.mean
        quadratic, log_det = self._condition()
        self.log_evidence = prior.log_density - 0.5 * (quadratic + log_det + int(inliers.sum()) * self.log_norm)

    def _condition(self) -> tuple[float, float]:
        """Make ``swept`` and ``weights``; returns (y - mean)_S' A_SS^-1 (y - mean)_S and log|A_SS|."""
        # Inliers come first, because slices of a matrix are faster than scattered parts of it.
        order, k = np.argsort(~self.inliers, kind="stable"), int(self.inliers.sum())
        total = self._prior.covariance[order][:, order]
        total[np.diag_indices_from(total)] += self.noise[order]
        residual = self._residual[order]
        inverse, log_det = _inverse(total[:k, :k])
        weights = linalg.blas.dsymm(1.0, inverse, residual[:k, None], lower=True)[:, 0]
        quadratic = max(float(residual[:k] @ weights), 0.0)  # rounding can make the inverse indefinite, which would win
        known = total[k:, :k].copy()
        total[:k, :k], residual[:k] = -inverse, weights
        if k < len(order):
            regression = linalg.blas.dsymm(1.0, inverse, known.T, lower=True)
            total[k:, :k], total[:k, k:] = regression.T, regression
            total[k:, k:] -= known @ regression
            residual[k:] -= known @ weights
        back = order.argsort()
        self.swept, self.weights = np.asfortranarray(total[back][:, back]), residual[back]
        return quadratic, log_det

    def _swept_diagonal(self) -> Array:
        return np.asarray(self.swept.diagonal())

    def _swept_on_host(self) -> Array:
        return self.swept

    def with_rows(self, rows: Indices) -> tuple[ConditionedGP, float]:
        """A copy with these rows among the inliers, and log p(y_rows | y_S)."""
        other = copy.copy(self)
        other.swept, other.weights, other.inliers = copy.deepcopy((self.swept, self.weights, self.inliers))
        for row in rows:
            other.move(int(row))
        return other, other.log_evidence - self.log_evidence

    def loo_residuals(self) -> tuple[Array, Array]:
        """Leave-one-out residuals ``n`` of all observations given the other inliers, and their variances ``n``.

        For an inlier they are w_i / G_ii and 1 / G_ii, with the weights w and G = A_SS^-1 (Rasmussen & Williams 2006,
        equation 5.12). For an outlier they are in ``weights`` and on the diagonal of ``swept``.
        """
        sign = np.where(self.inliers, -1.0, 1.0)
        diagonal = np.maximum(sign * self._swept_diagonal(), self._least_pivot(slice(None)))
        variance = np.where(self.inliers, 1.0 / diagonal, diagonal)
        return np.where(self.inliers, self.weights * variance, self.weights), variance

    def residuals_without(self, alike: Rows) -> tuple[Array, Array]:
        """As :meth:`loo_residuals`, of inliers given the others that are not ``alike``, ``n x n``.

        Those of rows R left out together are G_RR^-1 w_R, of covariance G_RR^-1.
        """
        residual, variance = self.loo_residuals()
        alike = alike & self.inliers
        swept = self._swept_on_host() if alike.any() else self.swept
        for i in np.flatnonzero(self.inliers & alike.any(1)):
            rows = np.flatnonzero(alike[i] | (np.arange(len(alike)) == i))
            own, covariance = int(np.searchsorted(rows, i)), np.linalg.inv(-_symmetric(swept[np.ix_(rows, rows)]))
            residual[i], variance[i] = covariance[own] @ self.weights[rows], covariance[own, own]
        return residual, variance

    def _least_pivot(self, rows: int | slice) -> Array:
        """The smallest pivot of rows: the others lower the variance of an inlier, so its G_ii is larger."""
        variance = self._variance[rows]
        return np.where(self.inliers[rows], 1.0 / variance, LEAST_PIVOT * variance)

    def log_densities(self) -> Array:
        """Log density ``n`` of each observation given the other inliers."""
        residual, variance = self.loo_residuals()
        densities: Array = -0.5 * (self.log_norm + np.log(variance) + residual**2 / variance)
        return densities

    def gain(self, rows: Indices, extra: Array) -> float:
        """log p(y_S) with a covariance B, ``extra``, more between these inliers, ascending, less log p(y_S)."""
        norm = self._norm_with(rows, extra) + int(self.inliers.sum()) * self.log_norm
        return self._prior.log_density - 0.5 * norm - self.log_evidence

    def _norm_with(self, rows: Indices, extra: Array) -> float:
        """(y - mean)_S' (A_SS + B)^-1 (y - mean)_S + log|A_SS + B|, by a Cholesky factor; infinite without one."""
        order = np.append(np.setdiff1d(np.flatnonzero(self.inliers), rows), rows)  # a slice is faster than parts
        total = self._prior.covariance[order][:, order]
        total[np.diag_indices_from(total)] += self.noise[order]
        total[-len(rows) :, -len(rows) :] += extra
        root, failed = linalg.lapack.dpotrf(total.T, lower=True, clean=False, overwrite_a=True)
        whitened, _ = linalg.lapack.dtrtrs(root, self._residual[order], lower=True)
        return math.inf if failed else float(whitened @ whitened) + 2.0 * float(np.log(root.diagonal()).sum())

    def exchange_gains(self, y: Array) -> Array:
        """What ``log_evidence`` gains where two inliers exchange their observations, ``n x n``; of others, nothing.

        With P = A_SS^-1, the weights a = P (y - mean) and d = y_j - y_i it is
        -d (a_i - a_j) - d^2 / 2 (P_ii + P_jj - 2 P_ij).
        """
        return np.asarray(self._exchange_gains(-_symmetric(self.swept), self.weights, y))

    def _exchange_gains(self, P: Any, a: Any, y: Any) -> Any:
        """Of arrays or tensors."""
        d, diagonal = (y - y[:, None]) / self.units.scale, P.diagonal()
        return -d * (a[:, None] - a) - 0.5 * d**2 * (diagonal[:, None] + diagonal - 2.0 * P)

    def move(self, i: int) -> None:
        """Make the inlier i an outlier, or the outlier i an inlier: sweep or unsweep ``swept`` on it.

        Let v be column i of ``swept``, p = v_i its pivot, v_i be set to 0, and s be -1 for a row that leaves the
        inliers and 1 for one that enters. ``swept`` becomes ``swept`` - v v^T / p, its column i s v / p and its pivot
        -1 / p. ``weights`` become ``weights`` - v w_i / p, and w_i becomes s w_i / p. ``log_evidence`` changes by the
        log density of the row given the others, of variance |p|^s and squared distance w_i^2 |p|^(s - 1).
        """
        sign = -1.0 if self.inliers[i] else 1.0
        column = self._swept_column(i)
        pivot = sign * max(sign * column[i], float(self._least_pivot(i)))
        column[i] = 0.0
        own = self.weights[i] / pivot
        self.log_evidence -= 0.5 * (sign * self.log_norm + math.log(abs(pivot)) + float(self.weights[i] * own))
        moved = sign * column / pivot
        moved[i] = -1.0 / pivot
        self._sweep(i, column, pivot, moved)
        self.weights -= column * own
        self.weights[i] = sign * own
        self.inliers[i] = not self.inliers[i]

    def _swept_column(self, i: int) -> Array:
        """A copy of column i of ``swept``."""
        return np.concatenate([self.swept[i, :i], self.swept[i:, i]])

    def _sweep(self, i: int, column: Array, pivot: float, moved: Array) -> None:
        """``swept`` - v v^T / p of the column v, with this column i."""
        self.swept = linalg.blas.dsyr(-1.0 / pivot, column, lower=True, a=self.swept, overwrite_a=True)
        self.swept[i, :i] = moved[:i]
        self.swept[i:, i] = moved[i:]


def _symmetric(lower: Array) -> Array:
    """The matrix of this lower half."""
    return np.tril(lower) + np.tril(lower, -1).T


def _inverse(covariance: Array) -> tuple[Array, float]:
    """Lower half of the inverse, and the log determinant: huge where rounding has made the matrix indefinite."""
    root, failed = linalg.lapack.dpotrf(covariance.T, lower=True)
    if failed:
        # Finite, which the inverse is not on every processor.
        return np.asarray(np.linalg.pinv(covariance, hermitian=True), dtype=np.float64), 2.0 * IMPOSSIBLE
    log_det = 2.0 * float(np.log(root.diagonal()).sum())
    return linalg.lapack.dpotri(root, lower=True, overwrite_c=True)[0], log_det
