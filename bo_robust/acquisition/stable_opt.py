"""StableOpt: the upper confidence bound of the worst case, x = argmax_x min_z u(x, z), then z = argmin_z l(x, z).

Bogunovic, Scarlett, Jegelka & Cevher, "Adversarially Robust Optimization with Gaussian Processes" (NeurIPS 2018). It is
V-UCB with ``WorstCase()``, its limit as alpha -> 0 (Nguyen et al. 2021, Section 3.4). The lacing values of x are then
the minimisers of l.
"""

from collections.abc import Mapping
from typing import Any

import torch
from botorch.acquisition.input_constructors import ACQF_INPUT_CONSTRUCTOR_REGISTRY, acqf_input_constructor
from botorch.acquisition.objective import PosteriorTransform
from botorch.models.model import Model
from torch import Tensor

from bo_robust.acquisition.value_at_risk import ValueAtRiskUCB, construct_inputs_value_at_risk_ucb
from bo_robust.confidence import Width
from bo_robust.environments import Environment
from bo_robust.functionals import WorstCase


class StableOpt(ValueAtRiskUCB):
    """min_z u(x, z) over the points of an environment; ``select_environment`` is argmin_z l(x, z).

    For the epsilon-stable setting pass ``PerturbationEnvironment.ball(epsilon, bounds)``. The minimum is then over
    fixed points of the ball, and may miss the smallest value on the ball by a little.

    Other arguments and errors are those of :class:`ValueAtRiskUCB`.

    Args:
        environment: Finite conditions or perturbations. Probabilities only tell the possible (> 0) from the impossible.
    """

    def __init__(
        self,
        model: Model,
        environment: Environment,
        width: Width | float | None = None,
        t: int | None = None,
        posterior_transform: PosteriorTransform | None = None,
        X_pending: Tensor | None = None,
        generator: torch.Generator | None = None,
        ignores_z: bool = False,
    ) -> None:
        super().__init__(
            model, environment, WorstCase(), width, t, posterior_transform, X_pending, generator, ignores_z
        )


def construct_inputs_stable_opt(
    model: Model,
    environment: Environment,
    width: Width | Mapping[str, Any] | float,
    delta: float = 0.1,
    t: int | None = None,
    posterior_transform: PosteriorTransform | None = None,
    X_pending: Tensor | None = None,
    training_data: Any = None,
) -> dict[str, Any]:
    """Keyword arguments of :class:`StableOpt`, as :func:`construct_inputs_value_at_risk_ucb` makes them."""
    inputs = construct_inputs_value_at_risk_ucb(
        model, environment, WorstCase(), width, delta, t, posterior_transform, X_pending, training_data
    )
    del inputs["functional"]
    return inputs


if StableOpt not in ACQF_INPUT_CONSTRUCTOR_REGISTRY:  # registering twice, as on a reload, is an error
    acqf_input_constructor(StableOpt)(construct_inputs_stable_opt)
