"""Marginal posterior moments of one exact GP, by one matrix product per block of points.

mu(x) = m(x) + k(x, X) alpha and sigma^2(x) = k(x, x) - |R k(X, x)|^2 with R = L^-1, L L^T = K + noise. GPyTorch's
prediction strategy evaluates the kernel of the points with each other as well, and solves with the factor; here
neither happens. alpha and R are kept as long as the model keeps its prediction strategy, which it forgets when its data
or hyperparameters are set.
"""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

import torch
from botorch.models import SingleTaskGP
from botorch.models.model import Model
from botorch.models.transforms.outcome import Standardize
from botorch.models.utils import gpt_posterior_settings
from gpytorch.models.exact_prediction_strategies import DefaultPredictionStrategy
from torch import Tensor

__all__ = ["exact_moments"]

# Entries of k(x, X) held at once; a block of them stays in the cache.
BLOCK_ENTRIES = 1 << 17

# What makes a model the GP that its parts say.
DEFINING = ("posterior", "forward", "transform_inputs", "__call__")

_SOLVED: WeakKeyDictionary[Any, tuple[Tensor, Tensor]] = WeakKeyDictionary()


def exact_moments(model: Model, X: Tensor) -> tuple[Tensor, Tensor] | None:
    """Posterior mean and variance of f at each point, where the model is one this is known to be right for.

    Args:
        model: Any. Models with methods of their own, of batches, of several outputs, with outcome transforms other than
            ``Standardize``, or whose kernels have a prediction strategy of their own are left to their ``posterior``.
        X: Points, ``lead x q x d``.

    Returns:
        Mean and variance, ``lead x q`` each (the variance may be rounded below zero), differentiable in X as
        ``posterior`` is; None where the model is another.
    """
    gp: Any = model
    plain = isinstance(gp, SingleTaskGP) and all(getattr(type(gp), m) is getattr(SingleTaskGP, m) for m in DEFINING)
    if not plain or gp.num_outputs != 1 or gp.batch_shape:
        return None
    outcome = getattr(gp, "outcome_transform", None)
    if outcome is not None and type(outcome) is not Standardize:
        return None
    gp.eval()  # as `posterior` does; inputs are transformed from here on
    points = gp.transform_inputs(X)
    if points.shape[:-1] != X.shape[:-1]:
        return None
    if gp.prediction_strategy is None:
        with torch.no_grad(), gpt_posterior_settings():
            gp(points.reshape(-1, points.shape[-1])[:1])
    strategy = gp.prediction_strategy
    if type(strategy) is not DefaultPredictionStrategy:
        return None
    train = gp.train_inputs[0]
    alpha, root = _solved(strategy)
    flat = points.reshape(-1, points.shape[-1])
    parts = []
    for block in flat.split(max(1, BLOCK_ENTRIES // max(1, len(train)))):
        k = gp.covar_module(block, train).to_dense()
        prior = gp.covar_module(block, diag=True)
        mean = gp.mean_module(block) + k @ alpha
        parts.append((mean, prior - (k @ root.mT).square().sum(-1)))
    mean, variance = (torch.cat(column).reshape(X.shape[:-1]) for column in zip(*parts, strict=True))
    if outcome is not None:
        scale = outcome.stdvs.squeeze()
        mean, variance = outcome.means.squeeze() + scale * mean, scale.square() * variance
    return mean, variance


def _solved(strategy: DefaultPredictionStrategy) -> tuple[Tensor, Tensor]:
    """alpha = (K + noise)^-1 (y - m), ``n``, and R, ``n x n``, without gradient."""
    known = _SOLVED.get(strategy)
    if known is None:
        with torch.no_grad():
            L = strategy.lik_train_train_covar.cholesky().to_dense()  # the one the strategy keeps
            error = strategy.train_labels - strategy.train_prior_dist.mean
            alpha = torch.cholesky_solve(error.unsqueeze(-1), L).squeeze(-1)
            root = torch.linalg.solve_triangular(L, torch.eye(len(L), dtype=L.dtype, device=L.device), upper=False)
        known = _SOLVED[strategy] = (alpha, root)
    return known
