"""What any fitted model says of its observations, and what to report at points: for all hosts, which ask no class.

A model of BoTorch may say more than its posterior, by these attributes:

- ``verdict(maximize)``: a :class:`Verdict`; or ``flagged``, which observations it leaves out or truncates, ``n`` bool;
- ``outliers_detected``, with ``predict(X, maximize)`` and ``reliable_model(maximize)``: what is reported by the
  observations that are reliable;
- ``wants_replicates``: whether :func:`bo_robust.models.suggest_replicates` is to be asked what to measure again;
- ``centers``, of the class: False where it needs the zero of the observations.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor

from bo_robust.utils.linalg import is_among

TAIL = 0.025  # probability on either side of a 95 % interval
Z95 = 1.96  # standard deviations from the mean to the ends of one, of a normal distribution


class Prediction(NamedTuple):
    """Mean and 95 % interval of f at points, ``n`` each, in the units of the observations."""

    mean: Tensor
    lower: Tensor
    upper: Tensor

    @classmethod
    def gaussian(cls, mean: Tensor, variance: Tensor) -> Prediction:
        """That of normal distributions with these moments, ``n`` each."""
        half = Z95 * variance.sqrt()
        return cls(mean, mean - half, mean + half)


@dataclass(frozen=True)
class Verdict:
    """What a model says of its observations ``n``, where one side is good.

    Attributes:
        flagged: Which it takes for outliers, or truncates.
        held: Which are good and plausible in a learnt outcome scale alone.
        recommendable: Which are of a point with a reliable observation; all, if none is reliable.
    """

    flagged: Tensor
    held: Tensor
    recommendable: Tensor

    @classmethod
    def of(cls, X: Tensor, flagged: Tensor, held: Tensor | None = None) -> Verdict:
        """The verdict of observations at points ``n x d``; by default none is held."""
        held = torch.zeros_like(flagged) if held is None else held
        reliable = ~(flagged | held)
        return cls(flagged, held, is_among(X, X[reliable]) if reliable.any() else torch.ones_like(flagged))

    @property
    def reliable(self) -> Tensor:
        """Which observations are neither flagged nor held."""
        return ~(self.flagged | self.held)


def verdict_of(model: Any, X: Tensor, maximize: bool | None = None) -> Verdict:
    """The verdict of a fitted model on its observations at points ``n x d``; most models flag none."""
    if hasattr(model, "verdict"):
        return cast(Verdict, model.verdict(maximize))
    flagged = getattr(model, "flagged", None)
    return Verdict.of(X, torch.zeros(len(X), dtype=torch.bool, device=X.device) if flagged is None else flagged)


def predict(model: Any, X: Tensor, maximize: bool | None = None) -> Prediction:
    """Mean and 95 % interval at points ``n x d``, from the observations that are reliable."""
    if getattr(model, "outliers_detected", False):
        return cast(Prediction, model.predict(X, maximize))
    with torch.no_grad():
        posterior = model.posterior(X)
        mean = getattr(posterior, "mixture_mean", posterior.mean).squeeze(-1)
        variance = getattr(posterior, "mixture_variance", posterior.variance).squeeze(-1)
    return Prediction.gaussian(mean, variance)


def reliable_model(model: Any, maximize: bool | None = None) -> Any:
    """The model given the observations that are reliable; itself where it says nothing of them."""
    return model.reliable_model(maximize) if getattr(model, "outliers_detected", False) else model
