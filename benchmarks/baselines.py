"""Models for a BoTorch loop that calls them with all data every round, above all those a user has against outliers.

Each is an object called with ``X`` (``n x d``, in the unit cube) and ``Y`` (``n x 1``) that returns a model of f up to
an increasing affine map, which neither GP-UCB nor the argmax of the posterior mean notices.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP, SingleTaskVariationalGP
from botorch.models.model import Model
from botorch.models.robust_relevance_pursuit_model import RobustRelevancePursuitSingleTaskGP
from gpytorch.likelihoods import StudentTLikelihood
from gpytorch.mlls import ExactMarginalLogLikelihood, VariationalELBO
from torch import Tensor
from torch.quasirandom import SobolEngine

__all__ = ["FittedGP", "Refitted", "RelevancePursuitGP", "StudentTGP", "tukey_limits"]


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


class FittedGP:
    """``SingleTaskGP`` as it comes: RBF kernel, ARD, BoTorch's priors, maximum a posteriori, standardised rewards.

    Between fits the mean and standard deviation of the rewards are kept with the hyperparameters fitted to them.

    Args:
        refit_every: Calls between fits, >= 1; the first fits.
        winsorise: None, "ax" or "two-sided": :func:`tukey_limits` of all rewards, anew in every call.
    """

    def __init__(self, refit_every: int = 5, winsorise: str | None = None) -> None:
        self.refit_every, self.winsorise = refit_every, winsorise
        self.calls = 0

    def __call__(self, X: Tensor, Y: Tensor) -> Model:
        """The model of all data."""
        if self.winsorise is not None:
            Y = Y.clamp(*tukey_limits(Y, self.winsorise == "two-sided"))
        refit = self.calls % self.refit_every == 0
        self.calls += 1
        if refit:
            self.centre, self.scale = Y.mean(), Y.std()
        Z = (Y - self.centre) / self.scale
        if not refit:
            return self._extended(X, Z)
        self.fitted = self._fit(X, Z)
        return self.fitted

    def _fit(self, X: Tensor, Z: Tensor) -> SingleTaskGP:
        model = SingleTaskGP(X, Z, outcome_transform=None)
        fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
        return model

    def _extended(self, X: Tensor, Z: Tensor) -> SingleTaskGP:
        """A model of more data with the hyperparameters of the last fit."""
        old = self.fitted
        return SingleTaskGP(X, Z, None, old.likelihood, old.covar_module, old.mean_module, outcome_transform=None)


class RelevancePursuitGP(FittedGP):
    """``RobustRelevancePursuitSingleTaskGP``: a search for rewards with a noise variance of their own.

    Between fits outliers keep the noise found for them and new rewards have that of inliers.
    """

    def _fit(self, X: Tensor, Z: Tensor) -> SingleTaskGP:
        model = RobustRelevancePursuitSingleTaskGP(X, Z, outcome_transform=None)
        fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
        with torch.no_grad():
            noise = model.likelihood.noise_covar
            self.inlier_var = noise.base_noise.noise
            self.noise_var = self.inlier_var + (model.covar_module(X, diag=True) + self.inlier_var) * noise.rho
        return self._with_noise(model, X, Z)

    def _extended(self, X: Tensor, Z: Tensor) -> SingleTaskGP:
        return self._with_noise(self.fitted, X, Z)

    def _with_noise(self, old: SingleTaskGP, X: Tensor, Z: Tensor) -> SingleTaskGP:
        new = self.inlier_var.expand(len(Z) - len(self.noise_var))
        noise_var = torch.cat([self.noise_var, new]).unsqueeze(-1)
        return SingleTaskGP(X, Z, noise_var, None, old.covar_module, old.mean_module, outcome_transform=None)


class StudentTGP:
    """``SingleTaskVariationalGP`` with a Student-t likelihood (df > 2, learned) and inducing points that stay.

    A variational posterior knows nothing of rewards it was not trained on, so it is trained every call: ``steps`` of
    Adam from where it was, ten times as many in the first. Rewards are used as they come, O(1): their standard
    deviation would follow the outliers.

    Args:
        inducing: Inducing points, from the Sobol sequence.
        steps: Steps of Adam a call.
        rate: Its learning rate.
    """

    def __init__(self, inducing: int = 40, steps: int = 20, rate: float = 0.03) -> None:
        self.inducing, self.steps, self.rate = inducing, steps, rate
        self.model: SingleTaskVariationalGP | None = None

    def __call__(self, X: Tensor, Y: Tensor) -> Model:
        """The model of all data."""
        steps = self.steps
        if self.model is None:
            points = SobolEngine(X.shape[-1]).draw(self.inducing, dtype=X.dtype)
            self.model = SingleTaskVariationalGP(
                X, Y, StudentTLikelihood(), learn_inducing_points=False, inducing_points=points
            )
            steps *= 10
        model = self.model.train()
        elbo = VariationalELBO(model.likelihood, model.model, num_data=len(Y))
        optimiser = torch.optim.Adam(model.parameters(), lr=self.rate)
        for _ in range(steps):
            optimiser.zero_grad()
            loss = -elbo(model.model(X), Y.squeeze(-1))
            loss.backward()
            optimiser.step()
        return model.eval()


class Refitted:
    """A model class of ours, kernel and noise variance fitted as :class:`FittedGP` fits those of ``SingleTaskGP``.

    Args:
        build: The model of all data, called with X, Y and, between fits, ``covar_module`` and ``likelihood``.
        refit_every: Calls between fits, >= 1; the first fits.
    """

    def __init__(self, build: Any, refit_every: int = 5) -> None:
        self.build, self.refit_every = build, refit_every
        self.modules: dict[str, Any] = {}
        self.calls = 0

    def __call__(self, X: Tensor, Y: Tensor) -> Model:
        """The model of all data."""
        refit = self.calls % self.refit_every == 0
        self.calls += 1
        if not refit:
            return self.build(X, Y, **self.modules)
        model = self.build(X, Y)
        fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
        self.modules = {"covar_module": model.covar_module, "likelihood": model.likelihood}
        return model
