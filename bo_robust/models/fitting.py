"""Hyperparameters of exact GPs by gradients that are written out: an ``optimizer`` of ``fit_gpytorch_mll``."""

from collections.abc import Callable
from typing import Any

import numpy as np
from botorch.models import SingleTaskGP
from botorch.optim.core import OptimizationResult, OptimizationStatus
from botorch.optim.fit import fit_gpytorch_mll_scipy
from gpytorch.mlls import ExactMarginalLogLikelihood, MarginalLogLikelihood
from linear_operator.utils.errors import NotPSDError
from torch import Tensor

from bo_robust.models.marginal_likelihood import IMPOSSIBLE, Indices, StationaryEvidence, evidence_of, one_thread
from bo_robust.utils.random import stream

MOST = 800  # rewards that hyperparameters are fitted to: the evidence of n takes O(n^3), and more would teach little


def fit_rows(n: int) -> Indices:
    """Which of n rewards hyperparameters are fitted to: all, or 800 drawn at random, the same whenever called."""
    return np.sort(stream(0, "fit", n).permutation(n)[:MOST])


@one_thread
def fit_evidence(
    mll: MarginalLogLikelihood, closure: Callable[..., Any] | None = None, **options: Any
) -> OptimizationResult:
    """Climb the evidence and log prior as ``fit_gpytorch_mll_scipy`` does, but by gradients that are written out.

    Both climb the same function from the same start. So they end at the same hyperparameters, to the tolerance of
    L-BFGS, unless there are several maxima or the rewards are more than :func:`fit_rows` takes. With modules other than
    BoTorch's default ones, a ``closure`` or any of its ``options``, it is that function. Use it as
    ``fit_gpytorch_mll(mll, optimizer=fit_evidence)``.

    Raises ``NotPSDError`` where no covariance matrix on the way has a Cholesky factor. ``fit_gpytorch_mll`` then starts
    elsewhere, and raises ``ModelFittingError`` after its last attempt.
    """
    model: Any = mll.model
    exact = type(mll) is ExactMarginalLogLikelihood and isinstance(model, SingleTaskGP)
    single = exact and model.train_targets.ndim == 1
    evidence = evidence_of(model) if single and closure is None and not options else None
    mll.train()
    if not isinstance(evidence, StationaryEvidence) or not len(evidence.start):
        return fit_gpytorch_mll_scipy(mll, closure=closure, **options)
    targets: Tensor = model.train_targets
    y, rows = targets.detach().cpu().double().numpy(), fit_rows(len(targets))
    theta = evidence.maximise(y, rows)
    loss, _ = evidence.loss(theta, y, rows)
    if loss >= IMPOSSIBLE:
        raise NotPSDError("no covariance matrix of the training points has a Cholesky factor.")
    evidence.assign(theta)
    return OptimizationResult(0, loss / len(rows), OptimizationStatus.SUCCESS)
