"""A variational GP with Student-t noise, for a loop that calls it with all data every evaluation."""

from __future__ import annotations

from typing import Any

from botorch.models import SingleTaskVariationalGP
from botorch.optim.utils import get_parameters_and_bounds
from gpytorch.likelihoods import StudentTLikelihood
from gpytorch.mlls import VariationalELBO
from gpytorch.variational import CholeskyVariationalDistribution
from torch import Tensor
from torch.optim import Adam

from benchmarks.robustness.rcgp import robust_units

__all__ = ["StudentTGP"]

FIRST_STEPS, STEPS, RATE = 200, 20, 0.1


class StudentTGP:
    """``SingleTaskVariationalGP`` with ``StudentTLikelihood``, its inducing points all data; called with more and more.

    Adam goes on from the posterior and the hyperparameters of the last call: the posterior is that of L^-1 f with L L^T
    = K, so a new point adds a coordinate with the prior's mean 0 and variance 1. (40 inducing points that stay are
    too few beyond two inputs: on Hartmann-6 such a model recommended points of the initial design's level.)
    """

    def __init__(self) -> None:
        self.modules: dict[str, Any] = {}
        self.posterior: CholeskyVariationalDistribution | None = None

    def __call__(self, X: Tensor, Y: Tensor) -> Any:
        """The model of (Y - median) / scale."""
        centre, scale = robust_units(Y)
        z = (Y - centre) / scale
        posterior = CholeskyVariationalDistribution(len(X)).to(X)
        gp = SingleTaskVariationalGP(
            X,
            z,
            learn_inducing_points=False,
            inducing_points=X.clone(),
            variational_distribution=posterior,
            **(self.modules or {"likelihood": StudentTLikelihood().to(X)}),
        ).train()
        steps = FIRST_STEPS
        if self.posterior is not None:
            steps, n = STEPS, self.posterior.num_inducing_points
            posterior.variational_mean.data[:n] = self.posterior.variational_mean.data
            posterior.chol_variational_covar.data[:n, :n] = self.posterior.chol_variational_covar.data
            gp.model.variational_strategy.variational_params_initialized.fill_(1)
        elbo = VariationalELBO(gp.likelihood, gp.model, num_data=len(z))
        optimiser = Adam(gp.parameters(), lr=RATE)
        _, bounds = get_parameters_and_bounds(gp.model)
        named = dict(gp.model.named_parameters())
        for _ in range(steps):
            optimiser.zero_grad()
            loss = -elbo(gp.model(X), z.squeeze(-1))
            loss.backward()
            optimiser.step()
            for name, (low, high) in bounds.items():  # BoTorch's constraints bound, they do not transform
                named[name].data.clamp_(low, high)
        self.posterior = posterior
        self.modules = {
            "likelihood": gp.likelihood,
            "covar_module": gp.model.covar_module,
            "mean_module": gp.model.mean_module,
        }
        return gp.eval()
