"""Posterior of f in a regression on features of x: moments of each point, or the joint law of points.

With weights of mean m and covariance S the mean is phi^T m and the covariance phi^T S phi'. Where features miss part of
the kernel (Nyström), the missed k(x, x') - phi^T phi' is added: the DTC posterior.
"""

import torch
from gpytorch.distributions import MultivariateNormal
from gpytorch.kernels import Kernel
from gpytorch.settings import min_variance
from linear_operator.operators import MatmulLinearOperator
from torch import Tensor

from bo_robust.linalg import on_cuda
from bo_robust.models.feature_maps import FeatureModule, NystromWeights
from bo_robust.models.feature_regression import WeightPosterior

CPU_BLOCK = 1024  # features of so many points stay in the processor's cache: twice as fast as all at once (p = 512)
CUDA_BLOCK = 65_536


def block_size(X: Tensor) -> int:
    """Number of points whose features are best evaluated together on the device of X."""
    return CUDA_BLOCK if on_cuda(X) else CPU_BLOCK


def marginal_posterior(
    X: Tensor,
    features: FeatureModule,
    covar_module: Kernel,
    dictionary: NystromWeights | None,
    weights: WeightPosterior,
    block: int | None,
) -> tuple[Tensor, Tensor]:
    """Mean and variance of f at each of the transformed points ``... x 1 x d``, ``... x 1`` each.

    ``dictionary`` is what ``features.prepare`` returned. ``block`` is the number of points to evaluate at a time; None
    is for all at once, which batched weights need.
    """
    if block is not None and X.shape[:-1].numel() > block:
        pieces = [
            marginal_posterior(x, features, covar_module, dictionary, weights, block)
            for x in X.reshape(-1, *X.shape[-2:]).split(block)
        ]
        mean, variance = (torch.cat(x).reshape(X.shape[:-1]) for x in zip(*pieces, strict=True))
        return mean, variance
    Phi = features(X, covar_module, dictionary)
    mean, spread = weights.predict(Phi)
    variance = spread.square().sum(-1)
    if features.has_residual:
        prior = covar_module(X.reshape(-1, X.shape[-1]), diag=True).reshape(X.shape[:-1])
        variance = variance + prior - Phi.square().sum(-1)
    return mean, variance.clamp_min(min_variance.value(X.dtype))


def joint_posterior(
    X: Tensor,
    features: FeatureModule,
    covar_module: Kernel,
    dictionary: NystromWeights | None,
    weights: WeightPosterior,
) -> MultivariateNormal:
    """The joint law of f at transformed points ``... x q x d``; its covariance is a linear operator."""
    Phi = features(X, covar_module, dictionary)
    mean, spread = weights.predict(Phi)
    batch_shape = mean.shape[:-1]
    spread = spread.expand(*batch_shape, *spread.shape[-2:])
    if not features.has_residual:
        return MultivariateNormal(mean, MatmulLinearOperator(spread, spread.mT))
    Phi, X = Phi.expand(*batch_shape, *Phi.shape[-2:]), X.expand(*batch_shape, *X.shape[-2:])
    # One product for both terms: spread spread^T - Phi Phi^T.
    low_rank = MatmulLinearOperator(torch.cat([spread, Phi], -1), torch.cat([spread, -Phi], -1).mT)
    return MultivariateNormal(mean, covar_module(X) + low_rank)
