"""The methods: each makes a model of all readings, and the loop around it is the same for all."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from botorch.exceptions import ModelFittingError
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from gpytorch.mlls import ExactMarginalLogLikelihood
from torch import Tensor

from benchmarks.baselines import RelevancePursuitGP, tukey_limits
from benchmarks.robustness.rcgp import rcgp
from benchmarks.robustness.samplers import SAMPLERS
from benchmarks.robustness.student_t import StudentTGP
from bo_robust.models import TruncatedGP
from bo_robust.tails import choose_constants
from bo_robust.truncation import TGPTruncation

__all__ = ["METHODS", "OURS", "PEERS", "Method", "fitted"]

PILOT = 100  # rewards of the past that tails.choose_constants needs, at Sobol points; no other method gets them
RELEVANCE_PURSUIT_EVERY = 5  # evaluations, and after the last: one search takes seconds

Modeller = Callable[[Tensor, Tensor, np.ndarray], Any]  # a BoTorch model


@dataclass(frozen=True)
class Method:
    """A model for the loop.

    Attributes:
        make: The modeller of one campaign, from pilot rewards: from points ``n x d``, readings ``n x 1`` and which of
            them are outliers, to the model.
        verify: A point ``1 x d`` to measure again before the acquisition is asked, or None, from the model.
        pilot: Whether ``make`` needs pilot rewards.
        seldom: Whether the modeller searches for outliers in some calls only, so that the last one must be its first.
    """

    make: Callable[[Tensor | None], Modeller]
    verify: Callable[[Any], Tensor | None] = lambda model: None
    pilot: bool = False
    seldom: bool = False


def fitted(model: Any) -> Any:
    """The model, fitted as BoTorch's tutorials do; unfitted where the fit ends nowhere."""
    with contextlib.suppress(ModelFittingError):
        fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
    return model


def _plain(Y: Callable[[Tensor], Tensor] = lambda Y: Y) -> Method:
    """``SingleTaskGP`` of some function of the readings."""
    return Method(lambda pilot: lambda X, readings, outlier: fitted(SingleTaskGP(X, Y(readings))))


def _known(pilot: Tensor | None) -> Modeller:
    def model(X: Tensor, Y: Tensor, outlier: np.ndarray) -> Any:
        kept = torch.from_numpy(~outlier) if (~outlier).sum() >= 2 else torch.ones(len(Y), dtype=torch.bool)
        return fitted(SingleTaskGP(X[kept], Y[kept]))

    return model


def _relevance_pursuit(pilot: Tensor | None) -> Modeller:
    gp = RelevancePursuitGP(refit_every=RELEVANCE_PURSUIT_EVERY)
    return lambda X, Y, outlier: gp(X, Y)


def _student_t(pilot: Tensor | None) -> Modeller:
    gp = StudentTGP()
    return lambda X, Y, outlier: gp(X, Y)


def _truncated(pilot: Tensor | None) -> Modeller:
    assert pilot is not None
    advice = choose_constants(pilot)
    level = TGPTruncation(advice.moment_bound, advice.alpha)
    rule = "zero" if advice.rule == "zero" else "clip"  # TruncatedGP has no rule "residual"
    return lambda X, Y, outlier: fitted(TruncatedGP(X, (Y - advice.centre) / advice.scale, level, rule=rule))


def _robust(pilot: Tensor | None) -> Modeller:
    from bo_robust import RobustGP

    return lambda X, Y, outlier: fitted(RobustGP(X, Y))


def _verify(model: Any) -> Tensor | None:
    from bo_robust import verify

    return verify(model)


METHODS: dict[str, Method] = {
    "plain": _plain(),
    "known": Method(_known),
    "winsorised-bad": _plain(lambda Y: Y.clamp(*tukey_limits(Y, two_sided=False))),
    "winsorised-both": _plain(lambda Y: Y.clamp(*tukey_limits(Y, two_sided=True))),
    "rrp": Method(_relevance_pursuit, seldom=True),
    "student-t": Method(_student_t),
    "rcgp": Method(lambda pilot: lambda X, Y, outlier: rcgp(X, Y)),
    "truncated": Method(_truncated, pilot=True),
    "robust": Method(_robust, _verify),
    "robust-noverify": Method(_robust),
}
OURS = ("robust", "robust-noverify")
PEERS = (*(name for name in METHODS if name not in (*OURS, "known")), *SAMPLERS)
