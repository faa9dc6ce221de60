"""A fitted model of one outcome with its good side, which is what hosts have that fit and search by themselves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from bo_robust.models import suggest_replicates
from bo_robust.models.verdict import Prediction, Verdict, predict, verdict_of
from bo_robust.utils.linalg import is_among


@dataclass(frozen=True, eq=False)
class SidedModel:
    """A fitted model of one outcome, and which of its values are good.

    Attributes:
        model: The model.
        maximize: Whether large values are good; None: as the model was made.
        X: The points of its observations, ``n x d``.
    """

    model: Any
    maximize: bool | None
    X: Tensor

    @cached_property
    def verdict(self) -> Verdict:
        return verdict_of(self.model, self.X, self.maximize)

    def predict(self, X: Tensor) -> Prediction:
        """Mean and 95 % interval at points ``k x d``, by the reliable observations."""
        return predict(self.model, X, self.maximize)


def replicates(
    objectives: Sequence[SidedModel], finite: bool = False, X_pending: Tensor | None = None
) -> Iterator[Tensor]:
    """The points to measure again before others, ``d`` each, the best of each objective first.

    In a ``finite`` space a replicate is of an equal point. Points of ``X_pending``, ``m x d``, are left out.
    """
    for sided in objectives:
        model, X = sided.model, sided.X
        if getattr(model, "wants_replicates", False) and model.outliers_detected:
            candidates = X if finite else None
            points = suggest_replicates(model, len(X), candidates, maximize=sided.maximize, X_pending=X_pending)
            if points is not None:
                yield from points
                X_pending = points if X_pending is None else torch.cat([X_pending, points])


def recommendable(outcomes: Sequence[SidedModel], X: Tensor) -> Tensor:
    """Which points ``k x d`` may be recommended, ``k`` bool: where no outcome has unreliable observations alone."""
    refused = [sided.X[~sided.verdict.recommendable] for sided in outcomes]
    return ~is_among(X, torch.cat([X[:0], *refused]))
