"""StableOpt: the upper confidence bound of the worst case, x = argmax_x min_z u(x, z), then z = argmin_z l(x, z).

Bogunovic, Scarlett, Jegelka & Cevher, "Adversarially Robust Optimization with Gaussian Processes" (NeurIPS 2018). It is
V-UCB with ``WorstCase()``, its limit as alpha -> 0 (Nguyen et al. 2021, Section 3.4). The lacing values of x are then
the minimisers of l.
"""

import torch
from botorch.acquisition.objective import PosteriorTransform
from botorch.models.model import Model
from torch import Tensor

from bo_robust.acquisition.value_at_risk import ValueAtRiskUCB
from bo_robust.confidence import Width
from bo_robust.environments import Environment
from bo_robust.functionals import WorstCase


class StableOpt(ValueAtRiskUCB):
    """min_z u(x, z) over the conditions of an environment; ``select_condition`` is argmin_z l(x, z).

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
