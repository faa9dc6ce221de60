"""Input constructors, by which Ax and other frameworks build our acquisition functions."""

from collections.abc import Mapping
from typing import Any

from botorch.acquisition.input_constructors import ACQF_INPUT_CONSTRUCTOR_REGISTRY, acqf_input_constructor
from botorch.acquisition.objective import PosteriorTransform
from botorch.models.model import Model
from torch import Tensor

from bo_robust.acquisition.elimination import EliminationUCB
from bo_robust.acquisition.gp_ucb import GPUCB
from bo_robust.confidence import WIDTHS, Width
from bo_robust.models.inputs import from_spec


def construct_inputs_gp_ucb(
    model: Model,
    width: Width | Mapping[str, Any],
    delta: float = 0.1,
    t: int | None = None,
    posterior_transform: PosteriorTransform | None = None,
    X_pending: Tensor | None = None,
) -> dict[str, Any]:
    """Keyword arguments of :class:`GPUCB`, with its arguments and two that differ.

    ``width`` may also be ``{"kind": name in WIDTHS, ...}``; an unknown, missing or bad option raises ``ValueError``. Ax
    can store only this form in JSON (and GPUCB once
    ``ax.storage.botorch_modular_registry.register_acquisition_function`` knows it). ``delta`` is the failure
    probability of such a width, unless its options name one or it has none.
    """
    return {
        "model": model,
        "width": from_spec(width, WIDTHS, {"delta": delta}, "width"),
        "t": t,
        "posterior_transform": posterior_transform,
        "X_pending": X_pending,
    }


def construct_inputs_elimination_ucb(
    model: Model,
    posterior_transform: PosteriorTransform | None = None,
    X_pending: Tensor | None = None,
    average: bool = False,
) -> dict[str, Any]:
    """Keyword arguments of :class:`EliminationUCB`, whose widths are those of the model."""
    return {"model": model, "posterior_transform": posterior_transform, "X_pending": X_pending, "average": average}


if GPUCB not in ACQF_INPUT_CONSTRUCTOR_REGISTRY:  # registering twice, as on a reload, is an error
    acqf_input_constructor(GPUCB)(construct_inputs_gp_ucb)
if EliminationUCB not in ACQF_INPUT_CONSTRUCTOR_REGISTRY:
    acqf_input_constructor(EliminationUCB)(construct_inputs_elimination_ucb)
