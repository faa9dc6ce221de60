"""StableOpt: the upper confidence bound of the worst case, x = argmax_x min_z u(x, z), then z = argmin_z l(x, z).

Bogunovic, Scarlett, Jegelka & Cevher, "Adversarially Robust Optimization with Gaussian Processes" (NeurIPS 2018). V-UCB
with ``WorstCase()``, which is its limit as alpha -> 0 (Nguyen et al. 2021, Section 3.4): the lacing values of x are the
minimisers of l.
"""

from __future__ import annotations

from typing import Any

import torch
from botorch.acquisition.input_constructors import ACQF_INPUT_CONSTRUCTOR_REGISTRY, acqf_input_constructor
from botorch.acquisition.objective import PosteriorTransform
from botorch.models.model import Model
from torch import Tensor

from bo_robust.acquisition.value_at_risk import ValueAtRiskUCB, construct_inputs_value_at_risk_ucb
from bo_robust.environments import Environment
from bo_robust.functionals import WorstCase
from bo_robust.schedules import Width

__all__ = ["StableOpt", "construct_inputs_stable_opt"]


class StableOpt(ValueAtRiskUCB):
    """min_z u(x, z) over the points of an environment; ``select_environment`` is argmin_z l(x, z).

    For the epsilon-stable setting pass ``PerturbationEnvironment.ball(epsilon, bounds)``: the minimum is then taken
    over fixed points of the ball, so it may miss the smallest value on the ball by a little.

    Args:
        model: As in :class:`ValueAtRiskUCB`.
        environment: Finite conditions or perturbations; probabilities only tell the possible (> 0) from the impossible.
        width: A schedule of :mod:`bo_robust.schedules`, or a number.
        t: As in :class:`ValueAtRiskUCB`.
        posterior_transform: As in :class:`ValueAtRiskUCB`.
        X_pending: As in :class:`ValueAtRiskUCB`.
        generator: As in :class:`ValueAtRiskUCB`.

    Raises:
        ValueError: as :class:`ValueAtRiskUCB`.
    """

    def __init__(
        self,
        model: Model,
        environment: Environment,
        width: Width | float,
        t: int | None = None,
        posterior_transform: PosteriorTransform | None = None,
        X_pending: Tensor | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__(model, environment, WorstCase(), width, t, posterior_transform, X_pending, generator)


def construct_inputs_stable_opt(
    model: Model,
    environment: Environment,
    width: Width | str | float,
    width_options: dict[str, Any] | None = None,
    delta: float = 0.1,
    t: int | None = None,
    posterior_transform: PosteriorTransform | None = None,
    X_pending: Tensor | None = None,
) -> dict[str, Any]:
    """Keyword arguments of :class:`StableOpt`.

    Args:
        model: The fitted model.
        environment: As in :class:`StableOpt`.
        width: A width, a number, or the name of one in ``WIDTHS``.
        width_options: Arguments of the named width.
        delta: Failure probability of the named width.
        t: As in :class:`StableOpt`.
        posterior_transform: As in :class:`StableOpt`.
        X_pending: As in :class:`StableOpt`.

    Returns:
        The keyword arguments.

    Raises:
        ValueError: if the name is unknown, or options come with a width that is not a name.
    """
    inputs = construct_inputs_value_at_risk_ucb(
        model, environment, WorstCase(), width, width_options, delta, t, posterior_transform, X_pending
    )
    del inputs["functional"]
    return inputs


if StableOpt not in ACQF_INPUT_CONSTRUCTOR_REGISTRY:  # registering twice, as on a reload, is an error
    acqf_input_constructor(StableOpt)(construct_inputs_stable_opt)
