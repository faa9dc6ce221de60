"""The base of acquisition functions with one confidence width: its round, and points without feedback yet."""

import math
from numbers import Integral
from typing import Any

import torch
from botorch.acquisition import AcquisitionFunction
from botorch.acquisition.analytic import AnalyticAcquisitionFunction
from botorch.acquisition.objective import PosteriorTransform
from botorch.models import SingleTaskGP
from botorch.models.model import Model
from botorch.utils.transforms import is_ensemble
from torch import Tensor

from bo_robust.acquisition.elimination import Elimination, check_elimination_of
from bo_robust.confidence import BKBWidth, Width
from bo_robust.models.candidate_ensemble import CandidateEnsemble
from bo_robust.models.feature_gp import FeatureGP
from bo_robust.models.moments import information_gain
from bo_robust.utils.input_checks import check_finite, check_like, check_schedule, check_tensor, quoted


class ConfidenceBoundAcquisition(AnalyticAcquisitionFunction):
    """Base of the acquisition functions made of mu + w_t sigma under one GP.

    The width is computed once, at construction. Width and pending points are buffers, so that ``.to`` moves them.
    Arguments and errors are those of :class:`~bo_robust.acquisition.GPUCB`.
    """

    width: Tensor
    model: Any
    over_candidates: bool
    members: CandidateEnsemble
    _among: Tensor
    _indices: Tensor
    _moved_together = "model, width and pending points"  # by the `.to` of the acquisition function

    def __init__(
        self,
        model: Model,
        width: Width | None,
        t: int | None,
        posterior_transform: PosteriorTransform | None,
        generator: torch.Generator | None,
        elimination: Elimination | None = None,
    ) -> None:
        name = type(self).__name__
        if not isinstance(model, Model):
            raise ValueError(f"model must be a BoTorch model, got {quoted(model)}.")
        super().__init__(model=model, posterior_transform=posterior_transform)
        if is_ensemble(model):
            raise ValueError(f"{name} needs the posterior of one GP; an ensemble has no single confidence width.")
        if (elimination is None) == (width is None):
            raise ValueError("give a width, such as 2.0, or an elimination of candidates, which has widths of its own.")
        self.t = num_observations(model) + 1 if t is None else t
        if not isinstance(self.t, Integral):
            raise ValueError(f"t (the round about to be run) must be an int, got {t!r}.")
        like = reference(model)
        self.over_candidates = elimination is not None
        if elimination is not None:
            check_elimination_of(model, elimination)
            self.members = model.subset(elimination.active)
            value = elimination.widths[elimination.active]
            # Of the active candidates: which are in the acquisition set, and their indices in U.
            self.register_buffer("_among", elimination.acquisition_set[elimination.active])
            self.register_buffer("_indices", elimination.active.nonzero().flatten())
        else:
            check_schedule("width", "ConstantWidth(2.0)", width)
            value = width_of_round(width, self.t, model, like.dtype, generator)
        self.register_buffer("width", torch.as_tensor(value, dtype=like.dtype, device=like.device))
        self.register_buffer("X_pending", None, persistent=False)

    def set_X_pending(self, X_pending: Tensor | None = None) -> None:
        """Hallucinate these points (``k x d``, no gradient) from now on; None for no points.

        ``ValueError`` unless they are ``k x d``, finite and of the model's dtype and device.
        """
        if X_pending is not None:
            check_tensor("X_pending", X_pending, floating=False)
            if X_pending.ndim != 2:
                raise ValueError(f"X_pending must be k x d, got shape {tuple(X_pending.shape)}.")
            self._check("X_pending", X_pending)
            check_finite("X_pending", X_pending)
        AcquisitionFunction.set_X_pending(self, X_pending)

    def _check_columns(self, name: str, x: Tensor) -> None:
        """Raise ``ValueError`` unless points have as many columns as the data of a ``SingleTaskGP`` or our models."""
        data = getattr(self.model, "train_inputs", None)
        if isinstance(self.model, SingleTaskGP | FeatureGP) and data and not hasattr(self.model, "input_transform"):
            d = data[0].shape[-1]
            if x.shape[-1] != d:
                raise ValueError(f"{name} has {x.shape[-1]} columns, the model's data {d}; give points of {d} columns.")

    def _check(self, name: str, x: Tensor) -> None:
        advice = (
            "convert points, or the bounds or choices they come from, with `.to`, and "
            f"{self._moved_together} together with the `.to` of the acquisition function"
        )
        check_like(name, x, "the model", reference(self.model), advice)


def width_of_round(
    width: Width, t: int, model: Model, dtype: torch.dtype, generator: torch.Generator | None
) -> float | Tensor:
    """w_t; random numbers and the information gain are computed only if the width depends on them."""
    gain: float | Tensor = 0.0
    uniform = torch.full(model.batch_shape, math.nan, dtype=dtype)
    # A width that reads the draws answers NaN to NaN; so does one that reads the information gain, below.
    if _has_nan(width(t, information_gain=gain, uniform=uniform)):
        uniform = torch.rand(model.batch_shape, generator=generator, dtype=dtype)
    else:
        uniform = torch.zeros_like(uniform)
    if isinstance(width, BKBWidth):
        known = getattr(model, "effective_dimension", None)
        if not isinstance(known, Tensor):
            raise ValueError("BKBWidth needs a model with an effective_dimension, such as BKBModel.")
        gain = known
    elif _has_nan(width(t, information_gain=math.nan, uniform=uniform)):
        gain = information_gain(model)
        uniform = uniform.to(gain.device)
    return width(t, information_gain=gain, uniform=uniform)


def _has_nan(value: float | Tensor) -> bool:
    return bool(torch.as_tensor(value).isnan().any())


def reference(model: Model) -> Tensor:
    """A tensor of the model's dtype and device."""
    inputs = getattr(model, "train_inputs", None)
    while isinstance(inputs, tuple | list):
        inputs = inputs[0]
    tensor = inputs if isinstance(inputs, Tensor) else next(model.parameters(), None)
    if tensor is None:
        raise ValueError(
            f"{type(model).__name__} has neither training data nor parameters to read a dtype and device from; "
            "GPUCB needs a model with uncertainty, such as a GP."
        )
    return tensor


def num_observations(model: Model) -> int:
    """The number of observations of the model, or of each model of a list (models without data do not count).

    Outliers that the model leaves out (``num_outliers``) count too, because they were observed in a round.
    """
    models = [m for m in getattr(model, "models", [model]) if getattr(m, "train_targets", None) is not None]
    counts = {m.train_targets.shape[-1] + getattr(m, "num_outliers", 0) for m in models}
    if len(counts) != 1:
        raise ValueError("the number of observations cannot be read from the model; pass t, the round about to be run.")
    return counts.pop()
