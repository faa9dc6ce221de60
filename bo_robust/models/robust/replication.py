"""Which observations of a ``RobustGP`` are worth a replicate."""

from __future__ import annotations

import math
from numbers import Integral
from typing import cast

import torch
from botorch.models.model import Model, ModelList
from torch import Tensor

from bo_robust.models.robust.robust_gp import RobustGP
from bo_robust.models.robust.search_data import points_seen
from bo_robust.models.training_data import nearly_equal
from bo_robust.utils.input_checks import check_finite, check_like, quoted
from bo_robust.utils.linalg import is_among

SAME = 0.999  # correlation of f at two points from which on an observation of one is a replicate of the other


def suggest_replicates(
    model: Model,
    q: int = 1,
    candidates: Tensor | None = None,
    *,
    maximize: bool | None = None,
    X_pending: Tensor | None = None,
) -> Tensor | None:
    """Suggest the points to measure again before the acquisition is maximized, ``k x d`` with 1 <= k <= q, or None.

    An observation that is better than all inliers, but flagged as an outlier or held, is a gross error or a discovery.
    A replicate decides. If it agrees, both become inliers, and a third observation makes sure of a flagged one. If it
    does not, the point is never suggested again. Flagged observations are no longer suggested once replicates
    contradicted as many as the model expects outliers, at least one.

    Args:
        model: A fitted model; only a ``RobustGP`` has outliers. The models of a list are asked one by one, each for its
            own good side; one that was made with ``maximize=None``, as that of a constraint, is passed over.
        q: Largest number of points, the best candidate first. Fill the batch up by the acquisition, which gets these
            points as ``X_pending``.
        candidates: ``N x d`` points of a finite space, where a replicate is an observation of an equal point; no others
            are suggested. Without them a replicate is any observation where f is nearly the same (a correlation of
            .999).
        maximize: Whether large observations are good. None: as the model was made, or True where it does not say.
        X_pending: ``m x d`` points where another measurement is running or has failed; they are not suggested.

    Raises:
        ValueError: if a ``RobustGP`` is not fitted, ``maximize`` is given for a list of models, q is no whole number of
            at least 1, or ``X_pending`` is not ``m x d``, not finite, or has another dtype or device than the model.
        TypeError: if ``model`` is no model of BoTorch, or ``maximize`` no bool.

    Examples:
        >>> candidate = suggest_replicates(model)
        >>> if candidate is None:
        >>>     candidate, _ = optimize_acqf(...)
    """
    if not isinstance(model, Model):
        raise TypeError(f"suggest_replicates takes a model, such as a fitted RobustGP, got {quoted(model)}.")
    if not (maximize is None or isinstance(maximize, bool)):
        raise TypeError(f"maximize must be True, False or None, got {quoted(maximize)}.")
    if not (isinstance(q, Integral) and q >= 1):
        raise ValueError(f"q must be a whole number of at least 1, got {quoted(q)}.")
    if isinstance(model, ModelList):
        if maximize is not None:
            raise ValueError("give maximize to each RobustGP of the list, and None to that of a constraint, instead.")
        sided = [part for part in model.models if getattr(part, "maximize", None) is not None]
        suggestions = (suggest_replicates(part, q, candidates, X_pending=X_pending) for part in sided)
        return next((points for points in suggestions if points is not None), None)
    if not getattr(model, "wants_replicates", False):
        return None
    robust = cast(RobustGP, model)
    if not robust.outliers_detected:
        raise ValueError("this RobustGP has not looked for outliers yet; call fit_gpytorch_mll first.")
    _check_pending(X_pending, robust.train_X_all)
    rows, replicates = _undecided(robust, candidates, maximize)
    X, chosen = robust.train_X_all, list[int]()
    for row in rows.tolist():
        pending = X_pending is not None and is_among(X[row], X_pending, nearly_equal)
        if not replicates[row, chosen].any() and not pending:
            chosen.append(row)
    return X[chosen[:q]] if chosen else None


def _check_pending(X_pending: Tensor | None, X: Tensor) -> None:
    if X_pending is not None:  # in single precision no point would equal a candidate
        check_like("X_pending", X_pending, "the model", X)
        if X_pending.ndim != 2 or X_pending.shape[1] != X.shape[1]:
            raise ValueError(f"X_pending must be m x {X.shape[1]}, got {tuple(X_pending.shape)}.")
        check_finite("X_pending", X_pending)


def _undecided(model: RobustGP, candidates: Tensor | None, maximize: bool | None) -> tuple[Tensor, Tensor]:
    """Rows that a replicate would decide, the best first, and which rows are replicates of each other, ``n x n``."""
    X = model.train_X_all
    replicates = model.replicate_mask()
    if candidates is None:
        replicates = replicates | _correlated(model)
    rows = replication_candidates(model, maximize, replicates)
    if candidates is not None:
        rows = rows[is_among(X[rows], candidates, nearly_equal)]
    value = model.signed_Y(maximize)
    outvoted = (replicates & model.inlier_mask & (value > value.unsqueeze(1))).any(1)  # by better ones at its point
    contradicted = ~model.inlier_mask & replicates.any(1) & ~outvoted & (value > value.median())
    contradicted[rows] = False
    if int(contradicted.sum()) >= model.outlier_prior.expected(len(X)):
        rows = rows[model.held_mask[rows]]
    return rows, replicates


def replication_candidates(model: RobustGP, maximize: bool | None = None, replicates: Tensor | None = None) -> Tensor:
    """Rows of observations that are better than all that the others support, and need a replicate; the best first.

    Such an observation is an outlier and alone at its point, or has one replicate that is as good and an outlier too.
    Or it is an inlier only because a replicate confirms it: the same gross error is rare twice, and does not occur
    three times. Or it is held. ``replicates`` are by default those of ``model.replicate_mask()``.
    """
    value, replicates = model.signed_Y(maximize), model.replicate_mask() if replicates is None else replicates
    supported = model.inlier_mask & ~model.held_mask & ~model.confirmed_by_replicate
    best = value[supported].amax() if supported.any() else -math.inf
    # A replicate that is no better than what the others support has contradicted the observation.
    contradicted = (~model.inlier_mask | model.held_mask) & (replicates & (value <= best)).any(1)
    undecided = (replicates.sum(1) < 2) & ~supported & ~contradicted & model.within_limits()
    rows = (undecided & (value > best)).nonzero().squeeze(-1)
    return rows[value[rows].argsort(descending=True)]


def _correlated(model: RobustGP) -> Tensor:
    """Which other rows have nearly the same f, ``n x n`` bool."""
    with torch.no_grad():
        covariance = model.covar_module(points_seen(model)).to_dense()
    scale = covariance.diagonal().sqrt()
    correlation = covariance / (scale * scale.unsqueeze(-1))
    return (correlation >= SAME) & ~torch.eye(len(scale), dtype=torch.bool, device=scale.device)
