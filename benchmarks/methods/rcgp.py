"""The robust conjugate GP (Altamirano et al., ICML 2024), its weights centered by leave-one-out.

A generalized Bayes posterior with weights w_i = (sigma / sqrt 2) (1 + r_i^2 / c_i^2)^(-1/2) is that of an exact GP
(Proposition 3.1 there) with noise variances sigma^4 / (2 w_i^2) = sigma^2 (1 + r_i^2 / c_i^2) and targets
y_i - sigma^2 d log(w_i^2) / dy_i = y_i + 2 sigma^2 r_i / (c_i^2 + r_i^2). The paper has r_i = y_i - m(x_i) and one c, a
quantile of |r|. Here r_i and c_i^2 are the residual and variance of y_i predicted from the others, as Laplante et al.
(2025) have them for a time series: then an outlier need not lie outside f's own range. Hyperparameters maximize the
weighted leave-one-out log density, which the papers use for want of an evidence, and the log priors of BoTorch.
"""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass
from typing import Any

import torch
from botorch.models import SingleTaskGP
from botorch.optim.closures.core import ForwardBackwardClosure
from botorch.optim.fit import fit_gpytorch_mll_scipy
from gpytorch.mlls import ExactMarginalLogLikelihood
from linear_operator.utils.cholesky import psd_safe_cholesky
from torch import Tensor

from benchmarks.methods.designs import BoTorchMethod

ROUNDS = 3  # of weights and hyperparameters in turns
STEPS = 20  # of L-BFGS a round


@dataclass(frozen=True, kw_only=True)
class RCGP(BoTorchMethod):
    """The robust conjugate GP in BoTorch's loop."""

    def model(self, X: Tensor, Y: Tensor, outliers: Tensor) -> Any:
        return rcgp(X, Y)


def robust_units(Y: Tensor) -> tuple[float, float]:
    """Median and 1.4826 times the median absolute deviation; the standard deviation where that is zero, else one."""
    center = float(Y.median())
    scale = 1.4826 * float((Y - center).abs().median()) or float(Y.std()) or 1.0
    return center, scale


def leave_one_out(K: Tensor, noise_var: Tensor, residual: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and variance of f at each of ``n`` points given all other targets (Rasmussen & Williams 2006, 5.12).

    ``residual`` are the targets without the prior mean, and so is the mean returned.
    """
    G = torch.cholesky_inverse(psd_safe_cholesky(K + torch.diag(noise_var)))
    precision = G.diagonal()
    return residual - (G @ residual) / precision, (1.0 / precision - noise_var).clamp_min(1e-9)


def reweighted(y: Tensor, center: Tensor, scale_sq: Tensor, noise_var: Tensor) -> tuple[Tensor, Tensor]:
    """Targets and noise variances of the exact GP with this posterior; ``scale_sq`` are the c_i^2."""
    r = y - center
    return y + 2.0 * noise_var * r / (scale_sq + r.square()), noise_var * (1.0 + r.square() / scale_sq)


def rcgp(X: Tensor, Y: Tensor) -> SingleTaskGP:
    """The fitted model of (Y - median) / scale, which has the same best points; ``X`` ``n x d``, ``Y`` ``n x 1``."""
    center, scale = robust_units(Y)
    y = ((Y - center) / scale).clamp(-1e6, 1e6)  # beyond this 1 / w^2 is no longer a noise variance to compute with
    gp: Any = SingleTaskGP(X, y, outcome_transform=None)
    y = y.squeeze(-1)
    ratio = torch.ones_like(y)
    shift = torch.zeros_like(y)
    for _ in range(ROUNDS):
        with torch.no_grad():
            noise_var = gp.likelihood.noise
            mean = gp.mean_module(X)
            m, var = leave_one_out(gp.covar_module(X).to_dense(), noise_var * ratio, y + shift - mean)
            target, noises = reweighted(y, mean + m, var + noise_var, noise_var)
            ratio, shift = noises / noise_var, target - y
        _fit(gp, X, y, ratio, shift)
    with torch.no_grad():
        noises = (gp.likelihood.noise * ratio).unsqueeze(-1)
    modules = copy.deepcopy((gp.covar_module, gp.mean_module))
    return SingleTaskGP(X, (y + shift).unsqueeze(-1), noises, None, *modules, outcome_transform=None)


def _fit(gp: Any, X: Tensor, y: Tensor, ratio: Tensor, shift: Tensor) -> None:
    """Hyperparameters of ``gp`` at fixed weights, by BoTorch's optimizer from where they are."""

    def loss() -> Tensor:
        noise_var, mean = gp.likelihood.noise, gp.mean_module(X)
        m, var = leave_one_out(gp.covar_module(X).to_dense(), noise_var * ratio, y + shift - mean)
        var = var + noise_var
        density = -0.5 * ((y - mean - m).square() / var + var.log() + math.log(2.0 * math.pi))
        prior = sum(prior.log_prob(closure(module)).sum() for _, module, prior, closure, _ in gp.named_priors())
        return -((density / ratio).sum() + prior)

    mll = ExactMarginalLogLikelihood(gp.likelihood, gp)
    parameters = {name: p for name, p in mll.named_parameters() if p.requires_grad}
    closure = ForwardBackwardClosure(loss, parameters)
    fit_gpytorch_mll_scipy(mll, parameters=parameters, closure=closure, options={"maxiter": STEPS})
