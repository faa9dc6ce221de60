"""Which readings of a ``RobustGP`` are worth another one."""

from __future__ import annotations

from numbers import Integral

import torch
from botorch.models.model import Model, ModelList
from torch import Tensor

from bo_robust.models.robust import ROUNDING, RobustGP
from bo_robust.validation import check_finite, check_like, quoted


def verify(model: Model, maximize: bool | None = None, q: int = 1, X_pending: Tensor | None = None) -> Tensor | None:
    """The points to measure again before the acquisition is maximised, ``k x d`` with 1 <= k <= q, or None.

    A reward that is better than all believed ones, but not believed, is an outlier or the find of the campaign. One
    more reading tells: if it agrees, both are believed, and a third one makes sure; if not, the point is never asked
    for again. No more is verified once the share of outliers that the model expects, its ``outlier_share``, and at
    least one reward, belongs to refuted suspects. Use it as ::

        candidate = verify(model)
        if candidate is None:
            candidate, _ = optimize_acqf(...)

    Args:
        model: A fitted model; only a ``RobustGP`` has suspects. A list of models is asked one by one, each for its own
            good side; one that was made with ``maximize=None``, as that of a constraint, is passed over.
        maximize: Whether large rewards are good. None: as the model was made, or True where it does not say.
        q: The most points to return, the best suspect first. The acquisition fills a batch up: give it these points as
            ``X_pending``, and make the model with ``maximize=None``, or its doubt draws the others beside them.
        X_pending: ``m x d`` points where another reading is under way or has failed; suspects there are passed over.

    Raises:
        ValueError: if a ``RobustGP`` is not fitted, ``maximize`` is given for a list of models, q is no whole number of
            at least 1, or ``X_pending`` is not ``m x d``, not finite, or has another dtype or device than the model.
        TypeError: if ``model`` is no model of BoTorch, or ``maximize`` no bool.
    """
    if not isinstance(model, Model):
        raise TypeError(f"verify takes a model, such as a fitted RobustGP, got {quoted(model)}.")
    if not (maximize is None or isinstance(maximize, bool)):
        raise TypeError(f"maximize must be True, False or None, got {quoted(maximize)}.")
    if not (isinstance(q, Integral) and q >= 1):
        raise ValueError(f"q must be a whole number of at least 1, got {quoted(q)}.")
    if isinstance(model, ModelList):
        if maximize is not None:
            raise ValueError("give maximize to each RobustGP of the list, None to that of a constraint, not to verify.")
        sided = [part for part in model.models if isinstance(part, RobustGP) and part.maximize is not None]
        found = (verify(part, None, q, X_pending) for part in sided)
        return next((points for points in found if points is not None), None)
    if not isinstance(model, RobustGP):
        return None
    if not model.judged:
        raise ValueError("this RobustGP believes all rewards until it is fitted; call fit_gpytorch_mll before verify.")
    if X_pending is not None:  # in single precision no point would be that of a suspect
        check_like("X_pending", X_pending, "the model", model.points)
        if X_pending.ndim != 2 or X_pending.shape[1] != model.points.shape[1]:
            raise ValueError(f"X_pending must be m x {model.points.shape[1]}, got {tuple(X_pending.shape)}.")
        check_finite("X_pending", X_pending)
    suspects, twins = model.suspects(maximize), model.twins()
    value = model.value(maximize)
    refuted = ~model.believed & twins.any(1) & (value > value.median())
    refuted[suspects] = False
    if int(refuted.sum()) >= max(1.0, model.outlier_share * len(model.believed)):
        return None
    chosen: list[int] = []
    for row in suspects.tolist():
        point = model.points[row]
        if not twins[row, chosen].any() and not (X_pending is not None and _holds(X_pending, point)):
            chosen.append(row)
    return model.points[chosen[:q]] if chosen else None


def _holds(X: Tensor, point: Tensor) -> bool:
    """Whether ``d`` is one of the points ``m x d``, but for rounding."""
    rounding = ROUNDING * torch.finfo(point.dtype).eps * torch.maximum(X.abs(), point.abs())
    return bool(((X - point).abs() <= rounding).all(-1).any())
