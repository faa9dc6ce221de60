"""What a user has against outliers: Ax's limits, and a model for a loop that calls it with all data every round.

The model is called with ``X`` (``n x d``, in the unit cube) and ``Y`` (``n x 1``); it returns one of f up to an
increasing affine map, which neither an upper bound nor the argmax of the posterior mean notices.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from botorch.models.model import Model
from botorch.models.robust_relevance_pursuit_model import RobustRelevancePursuitSingleTaskGP
from gpytorch.mlls import ExactMarginalLogLikelihood
from torch import Tensor

__all__ = ["RelevancePursuitGP", "tukey_limits"]


def tukey_limits(Y: Tensor, two_sided: bool) -> tuple[float, float]:
    """The limits Ax's ``Winsorize`` clips rewards to be maximised at.

    q1 - 1.5 (q3 - q1) from below, with quartiles that are observed values, and nothing from above: Ax winsorises a
    single objective on its bad side only (facebook/Ax at e3371084, ``ax/adapter/transforms/winsorize.py``,
    ``_get_auto_winsorization_cutoffs_single_objective``). ``WinsorizationConfig`` with ``AUTO_WINS_QUANTILE`` on both
    sides adds q3 + 1.5 (q3 - q1).

    Args:
        Y: Rewards, any shape.
        two_sided: Whether to clip from above too, which is not Ax's default.

    Returns:
        The lower and the upper limit, possibly infinite.
    """
    q1 = float(np.percentile(Y.numpy(), 25, method="lower"))
    q3 = float(np.percentile(Y.numpy(), 75, method="higher"))
    return q1 - 1.5 * (q3 - q1), q3 + 1.5 * (q3 - q1) if two_sided else math.inf


class RelevancePursuitGP:
    """``RobustRelevancePursuitSingleTaskGP``: a search for rewards with a noise variance of their own.

    Rewards are standardised. Between fits their mean and standard deviation are kept with the hyperparameters fitted to
    them; outliers keep the noise found for them, and new rewards have that of inliers.

    Args:
        refit_every: Calls between fits, >= 1; the first fits.
    """

    def __init__(self, refit_every: int) -> None:
        self.refit_every, self.calls = refit_every, 0

    def __call__(self, X: Tensor, Y: Tensor) -> Model:
        """The model of all data."""
        refit = self.calls % self.refit_every == 0
        self.calls += 1
        if refit:
            self.centre, self.scale = Y.mean(), Y.std()
        Z = (Y - self.centre) / self.scale
        if refit:
            self.fitted = self._fit(X, Z)
        new = self.inlier_var.expand(len(Z) - len(self.noise_var))
        noise_var = torch.cat([self.noise_var, new]).unsqueeze(-1)
        old = self.fitted
        return SingleTaskGP(X, Z, noise_var, None, old.covar_module, old.mean_module, outcome_transform=None)

    def _fit(self, X: Tensor, Z: Tensor) -> SingleTaskGP:
        model = RobustRelevancePursuitSingleTaskGP(X, Z, outcome_transform=None)
        fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
        with torch.no_grad():
            noise = model.likelihood.noise_covar
            self.inlier_var = noise.base_noise.noise
            self.noise_var = self.inlier_var + (model.covar_module(X, diag=True) + self.inlier_var) * noise.rho
        return model
