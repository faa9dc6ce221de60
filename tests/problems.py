"""What models and acquisition functions are tested on: points, rewards, kernels and how two models are compared.

``tkwargs`` are dtype and device, the fixture of ``conftest.py``. Numbers are drawn on the CPU, so that every device
sees the same.
"""

import numpy as np
import torch
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from gpytorch.kernels import RBFKernel
from gpytorch.means import ZeroMean
from gpytorch.mlls import ExactMarginalLogLikelihood

from bo_robust.risk_measures.environments import FiniteEnvironment


def rand(tkwargs, *shape, seed=0):
    """Uniform numbers in [0, 1)."""
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(**tkwargs)


def points(tkwargs, *shape, seed=7, d=2):
    """Points ``... x d`` of the unit box."""
    return rand(tkwargs, *shape, d, seed=seed)


def rewards(X, seed=0, noise=0.3):
    """sin(5 x_1) cos(3 x_d) with Gaussian noise at points ``... x d``, ``... x 1``."""
    draws = torch.randn(*X.shape[:-1], 1, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return torch.sin(5.0 * X[..., :1]) * torch.cos(3.0 * X[..., -1:]) + noise * draws.to(X)


def unit_box(tkwargs, d=2):
    """Lower and upper corner, ``2 x d``."""
    return torch.stack([torch.zeros(d, **tkwargs), torch.ones(d, **tkwargs)])


def rbf(tkwargs, lengthscale=0.5, batch=()):
    """A kernel whose lengthscale is not rounded to float32, as a plain number would be."""
    kernel = RBFKernel(batch_shape=torch.Size(batch)).to(**tkwargs)
    kernel.lengthscale = torch.tensor(lengthscale, **tkwargs)
    return kernel


def conditions(tkwargs):
    """Six conditions z of one column, of different probabilities."""
    return FiniteEnvironment(rand(tkwargs, 6, 1, seed=1), torch.tensor([0.3, 0.05, 0.25, 0.1, 0.2, 0.1], **tkwargs))


def fit(model, **options):
    """The model, with its hyperparameters learnt."""
    fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model), **options)
    return model


def outliers(model):
    """The rows that a RobustGP flags."""
    return (~model.inlier_mask).nonzero().flatten().tolist()


def moments(model, X):
    """Posterior mean and variance without gradient."""
    posterior = model.posterior(X)
    return posterior.mean.detach(), posterior.variance.detach()


def assert_same(model, other, X, tol=1e-9):
    """Two models have the same moments at X."""
    for a, b in zip(moments(model, X), moments(other, X), strict=True):
        torch.testing.assert_close(a, b, atol=tol, rtol=0)


def dense_posterior(at, X, y, noise_var, lengthscale):
    """Mean and variance of the GP of an RBF kernel at points ``at``, by dense solves in numpy."""
    at, X, y = (np.asarray(a.detach().cpu()) for a in (at, X, y))

    def k(A, B):
        return np.exp(-((A[:, None] - B[None]) ** 2).sum(-1) / (2 * lengthscale**2))

    C, K = k(X, X) + np.diag(np.broadcast_to(noise_var, len(X))), k(at, X)
    return K @ np.linalg.solve(C, y), 1.0 - (K * np.linalg.solve(C, K.T).T).sum(-1)


def gp_of_candidate(model, index=0):
    """BoTorch's GP with the prior of one candidate of a CandidateEnsemble."""
    c, X, Y = model.candidates[index], model.train_inputs[0], model.train_targets.unsqueeze(-1)
    noise = torch.full_like(Y, c.noise_var)
    return SingleTaskGP(X, Y, noise, covar_module=c.covar_module, mean_module=ZeroMean(), outcome_transform=None)
