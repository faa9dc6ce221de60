"""Input constructors, by which Ax and other frameworks build our acquisition functions."""

from __future__ import annotations

from typing import Any

from botorch.acquisition.input_constructors import ACQF_INPUT_CONSTRUCTOR_REGISTRY, acqf_input_constructor
from botorch.acquisition.objective import PosteriorTransform
from botorch.models.model import Model
from torch import Tensor

from bo_robust.acquisition.elimination import EliminationUCB
from bo_robust.acquisition.gp_ucb import GPUCB
from bo_robust.models.inputs import width_by_name
from bo_robust.schedules import Width

__all__ = ["construct_inputs_elimination_ucb", "construct_inputs_gp_ucb"]


def construct_inputs_gp_ucb(
    model: Model,
    width: Width | str,
    width_options: dict[str, Any] | None = None,
    delta: float = 0.1,
    t: int | None = None,
    posterior_transform: PosteriorTransform | None = None,
    X_pending: Tensor | None = None,
) -> dict[str, Any]:
    """Keyword arguments of :class:`GPUCB`.

    Args:
        model: The fitted model.
        width: A width, or the name of one in ``WIDTHS``. Ax can store only a name in JSON (and GPUCB once
            ``ax.storage.botorch_modular_registry.register_acquisition_function`` knows it).
        width_options: Arguments of the named width.
        delta: Failure probability of the named width, unless among its options or unknown to it.
        t: As in :class:`GPUCB`.
        posterior_transform: As in :class:`GPUCB`.
        X_pending: As in :class:`GPUCB`.

    Returns:
        The keyword arguments.

    Raises:
        ValueError: if the name is unknown, or options come with a width that is not a name.
    """
    return {
        "model": model,
        "width": width_by_name(width, width_options, delta),
        "t": t,
        "posterior_transform": posterior_transform,
        "X_pending": X_pending,
    }


def construct_inputs_elimination_ucb(
    model: Model,
    posterior_transform: PosteriorTransform | None = None,
    X_pending: Tensor | None = None,
) -> dict[str, Any]:
    """Keyword arguments of :class:`EliminationUCB`, whose widths are those of the model.

    Args:
        model: The :class:`~bo_robust.models.CandidateEnsemble`.
        posterior_transform: As in :class:`EliminationUCB`.
        X_pending: As in :class:`EliminationUCB`.

    Returns:
        The keyword arguments.
    """
    return {"model": model, "posterior_transform": posterior_transform, "X_pending": X_pending}


if GPUCB not in ACQF_INPUT_CONSTRUCTOR_REGISTRY:  # registering twice, as on a reload, is an error
    acqf_input_constructor(GPUCB)(construct_inputs_gp_ucb)
if EliminationUCB not in ACQF_INPUT_CONSTRUCTOR_REGISTRY:
    acqf_input_constructor(EliminationUCB)(construct_inputs_elimination_ucb)
