"""An ``optimizer`` of ``fit_gpytorch_mll`` by the evidence that is written out (:mod:`.marginal_likelihood`)."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from botorch.models import SingleTaskGP
from botorch.optim.core import OptimizationResult, OptimizationStatus
from botorch.optim.fit import fit_gpytorch_mll_scipy
from gpytorch.mlls import ExactMarginalLogLikelihood, MarginalLogLikelihood
from linear_operator.utils.errors import NotPSDError
from scipy.optimize import minimize
from torch import Tensor

from bo_robust.models.marginal_likelihood import IMPOSSIBLE, Array, Indices, StationaryEvidence, one_thread
from bo_robust.utils.random import stream

MOST = 800  # observations that a fit begins with: the evidence of n takes O(n^3)
LEAST_VARIANCE = 1e-8  # of a hyperparameter, as the curvature of the evidence of some rows says
NOISIER = 3.0  # logarithm of the noise of a second start over the first: little noise may overfit


def fit_rows(n: int) -> Indices:
    """Which of n observations a fit begins with: all, or 800 drawn at random, the same whenever called."""
    return np.sort(stream(0, "fit", n).permutation(n)[:MOST])


@one_thread
def fit_evidence(
    mll: MarginalLogLikelihood, closure: Callable[..., Any] | None = None, **options: Any
) -> OptimizationResult:
    """Climb the evidence and log prior as ``fit_gpytorch_mll_scipy`` does, but by gradients that are written out.

    Both end at the same hyperparameters, to the tolerance of L-BFGS, unless there are several maxima; this one takes
    the higher of two, from the model's noise and from twenty times as much. Of many observations those of
    :func:`fit_rows` say where all begin. With modules other than BoTorch's default ones, a ``closure`` or any of its
    ``options``, it is that function. Use it as ``fit_gpytorch_mll(mll, optimizer=fit_evidence)``, which starts
    elsewhere where this raises ``NotPSDError``: no covariance matrix on the way has a Cholesky factor.
    """
    model: Any = mll.model
    exact = type(mll) is ExactMarginalLogLikelihood and isinstance(model, SingleTaskGP)
    single = exact and model.train_targets.ndim == 1
    written_out = single and closure is None and not options and StationaryEvidence.fits(model)
    evidence = StationaryEvidence(model) if written_out else None
    mll.train()
    if evidence is None or not len(evidence.start):
        return fit_gpytorch_mll_scipy(mll, closure=closure, **options)
    targets: Tensor = model.train_targets
    y, every = targets.detach().cpu().double().numpy(), np.arange(len(targets))
    theta = _climbed(evidence, y)
    loss, _ = evidence.loss(theta, y, every)
    if not loss < IMPOSSIBLE:
        raise NotPSDError("no covariance matrix of the training points has a Cholesky factor.")
    evidence.assign(theta)
    return OptimizationResult(0, loss / len(every), OptimizationStatus.SUCCESS)


def _climbed(evidence: StationaryEvidence, y: Array) -> Array:
    """Climb by some rows first, then by all: in half of the steps, as the curvature of the former is known."""
    some, every, bounds = fit_rows(len(y)), np.arange(len(y)), np.asarray(evidence.bounds)
    starts = [evidence.start, evidence.start + NOISIER * evidence.is_noise][: 1 + int(evidence.is_noise.any())]
    climbs = (minimize(evidence.loss, start, (y, some), "L-BFGS-B", True, bounds=bounds) for start in starts)
    first = min(climbs, key=lambda climb: np.nan_to_num(climb.fun, nan=math.inf))
    begin = np.asarray(first.x)
    if len(some) == len(every):
        return begin
    unit = np.sqrt(np.maximum(first.hess_inv.todense().diagonal() * len(some) / len(every), LEAST_VARIANCE))

    def loss(steps: Array) -> tuple[float, Array]:
        value, slope = evidence.loss(begin + unit * steps, y, every)
        return value, slope * unit

    reach = (bounds - begin[:, None]) / unit[:, None]
    best = minimize(loss, np.zeros_like(unit), method="L-BFGS-B", jac=True, bounds=reach)
    return np.asarray(np.clip(begin + unit * best.x, *bounds.T))
