"""What acquisition functions with a confidence width read from a model: its round, width, dtype and device."""

import math

import torch
from botorch.models.model import Model
from torch import Tensor

from bo_robust.confidence import BKBWidth, Width
from bo_robust.models.moments import information_gain


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
        raise ValueError(
            "the number of observations cannot be read from the model; pass t, the round about to be played."
        )
    return counts.pop()
