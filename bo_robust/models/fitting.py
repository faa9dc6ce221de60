"""Hyperparameters of exact GPs by gradients that are written out: an ``optimizer`` of BoTorch's ``fit_gpytorch_mll``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from botorch.models import SingleTaskGP
from botorch.optim.core import OptimizationResult, OptimizationStatus
from botorch.optim.fit import fit_gpytorch_mll_scipy
from gpytorch.mlls import ExactMarginalLogLikelihood, MarginalLogLikelihood
from torch import Tensor

from bo_robust.models.evidence import StationaryEvidence, evidence_of

__all__ = ["fit_evidence"]


def fit_evidence(
    mll: MarginalLogLikelihood, closure: Callable[..., Any] | None = None, **options: Any
) -> OptimizationResult:
    """Climb the evidence and log prior as ``fit_gpytorch_mll_scipy`` does, but by gradients that are written out.

    Both climb the same function from the same start, so they end at the same hyperparameters, to the tolerance of
    L-BFGS, unless there are several maxima. With modules other than BoTorch's default ones, a ``closure`` or any of its
    ``options``, it is that function. Use it as ``fit_gpytorch_mll(mll, optimizer=fit_evidence)``.
    """
    model: Any = mll.model
    exact = type(mll) is ExactMarginalLogLikelihood and isinstance(model, SingleTaskGP)
    single = exact and model.train_targets.ndim == 1
    evidence = evidence_of(model) if single and closure is None and not options else None
    mll.train()
    if not isinstance(evidence, StationaryEvidence):
        return fit_gpytorch_mll_scipy(mll, closure=closure, **options)
    targets: Tensor = model.train_targets
    y, rows = targets.detach().cpu().double().numpy(), np.arange(len(targets))
    theta = evidence.maximise(evidence.start, y, rows)
    evidence.assign(theta)
    return OptimizationResult(0, evidence.loss(theta, y, rows)[0] / len(y), OptimizationStatus.SUCCESS)
