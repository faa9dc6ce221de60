"""The :class:`ConditionedGP` of many observations on a GPU."""

from __future__ import annotations

import math

import numpy as np
import torch

from bo_robust.models.marginal_likelihood import IMPOSSIBLE, Array, Indices, Prior
from bo_robust.models.reward_units import Units
from bo_robust.models.robust.conditioned_gp import ConditionedGP, Rows
from bo_robust.utils.linalg import cholesky, on_device


class DeviceGP(ConditionedGP):
    """Its matrices are on the device, both halves valid; vectors are on the host, where the search reads them."""

    def __init__(self, device: torch.device, prior: Prior, y: Array, inliers: Rows, units: Units) -> None:
        self._device = device
        super().__init__(prior, y, inliers, units)

    def _condition(self) -> tuple[float, float]:
        self._total = on_device(self._prior.covariance, self._device)
        self._total.diagonal().add_(on_device(self.noise, self._device))
        self._residual_there = on_device(self._residual, self._device)
        S, D = (on_device(np.flatnonzero(rows), self._device) for rows in (self.inliers, ~self.inliers))
        known, total, residual = self._total[S], self._total[D], self._residual_there
        if (factor := cholesky(known[:, S])) is not None:
            inverse, log_det = torch.cholesky_inverse(factor[0]), factor[1]
        else:  # as on the host
            inverse, log_det = torch.linalg.pinv(known[:, S], rtol=1e-15, hermitian=True), 2.0 * IMPOSSIBLE
        own, cross = inverse @ residual[S], total[:, S]
        regression = cross @ inverse
        self.swept, weights = torch.empty_like(self._total), residual.clone()
        self.swept[S[:, None], S] = -inverse
        self.swept[D[:, None], S], self.swept[S[:, None], D] = regression, regression.mT
        self.swept[D[:, None], D] = total[:, D] - regression @ cross.mT
        weights[S], weights[D] = own, residual[D] - cross @ own
        self.weights, self._diagonal = torch.stack([weights, self.swept.diagonal()]).cpu().numpy()
        return max(float(self._residual[self.inliers] @ self.weights[self.inliers]), 0.0), log_det

    def _swept_diagonal(self) -> Array:
        return self._diagonal

    def _swept_on_host(self) -> Array:
        return np.asarray(self.swept.cpu().numpy())

    def exchange_gains(self, y: Array) -> Array:
        a, y_there = on_device(np.stack([self.weights, y]), self._device)
        return np.asarray(self._exchange_gains(-self.swept, a, y_there).cpu().numpy())

    def _norm_with(self, rows: Indices, extra: Array) -> float:
        inliers = np.flatnonzero(self.inliers)
        S, some = (on_device(x, self._device) for x in (inliers, np.searchsorted(inliers, rows)))
        total = self._total[S][:, S]
        total[some[:, None], some] += on_device(extra, self._device)
        if (factor := cholesky(total)) is None:
            return math.inf
        whitened = torch.linalg.solve_triangular(factor[0], self._residual_there[S, None], upper=False)
        return float(whitened.square().sum()) + factor[1]

    def _swept_column(self, i: int) -> Array:
        return np.asarray(self.swept[i].cpu().numpy()).copy()

    def _sweep(self, i: int, column: Array, pivot: float, moved: Array) -> None:
        """Five launches, two of which copy O(n) numbers."""
        change, row = on_device(np.stack([column, moved]), self._device)
        self.swept.addr_(change, change, alpha=-1.0 / pivot)
        self.swept[i], self.swept[:, i] = row, row
        self._diagonal = self._diagonal - column**2 / pivot  # a new array, as a copy of this GP has the old one
        self._diagonal[i] = moved[i]
