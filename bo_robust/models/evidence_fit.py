"""An ``optimizer`` of ``fit_gpytorch_mll`` by the evidence that is written out (:mod:`.marginal_likelihood`)."""

from collections.abc import Callable
from typing import Any

import numpy as np
from botorch.models import SingleTaskGP
from botorch.optim.core import OptimizationResult, OptimizationStatus
from botorch.optim.fit import fit_gpytorch_mll_scipy
from gpytorch.mlls import ExactMarginalLogLikelihood, MarginalLogLikelihood
from linear_operator.utils.errors import NotPSDError
from torch import Tensor

from bo_robust.models.marginal_likelihood import IMPOSSIBLE, Indices, StationaryEvidence, one_thread
from bo_robust.utils.random import stream

MOST = 800  # observations that hyperparameters are first fitted to: the evidence of n takes O(n^3)


def fit_rows(n: int) -> Indices:
    """Which of n rewards hyperparameters are fitted to: all, or 800 drawn at random, the same whenever called."""
    return np.sort(stream(0, "fit", n).permutation(n)[:MOST])


@one_thread
def fit_evidence(
    mll: MarginalLogLikelihood, closure: Callable[..., Any] | None = None, **options: Any
) -> OptimizationResult:
    """Climb the evidence and log prior as ``fit_gpytorch_mll_scipy`` does, but by gradients that are written out.

    Both end at the same hyperparameters, to the tolerance of L-BFGS, unless there are several maxima. Of many
    observations those of :func:`fit_rows` say where all begin. With modules other than BoTorch's default ones, a
    ``closure`` or any of its ``options``, it is that function. Use it as ``fit_gpytorch_mll(mll,
    optimizer=fit_evidence)``, which starts elsewhere where this raises ``NotPSDError``: no covariance matrix on the way
    has a Cholesky factor.
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
    y, every, some = targets.detach().cpu().double().numpy(), np.arange(len(targets)), fit_rows(len(targets))
    theta = evidence.maximize_after(y, some)
    loss, _ = evidence.loss(theta, y, every)
    if loss >= IMPOSSIBLE:
        raise NotPSDError("no covariance matrix of the training points has a Cholesky factor.")
    evidence.assign(theta)
    return OptimizationResult(0, loss / len(every), OptimizationStatus.SUCCESS)
