"""StableOpt: the upper confidence bound of the worst case, x = argmax_x min_z u(x, z), then z = argmin_z l(x, z).

Bogunovic, Scarlett, Jegelka & Cevher, "Adversarially Robust Optimization with Gaussian Processes" (NeurIPS 2018). It is
V-UCB with ``WorstCase()``, its limit as alpha -> 0 (Nguyen et al. 2021, Section 3.4). The lacing values of x are then
the minimisers of l.

Over candidates it is HE-StableOpt (Ziomek, Adachi & Osborne 2024, Algorithm 2): the design has the largest worst bound
of any candidate, the condition the least lower bound of any.
"""

import torch
from botorch.acquisition.objective import PosteriorTransform
from botorch.models.model import Model
from torch import Tensor

from bo_robust.acquisition.elimination import Elimination
from bo_robust.acquisition.value_at_risk import ValueAtRiskUCB
from bo_robust.confidence import Width
from bo_robust.risk_measures.environments import Environment
from bo_robust.risk_measures.functionals import WorstCase


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
        elimination: Elimination | None = None,
    ) -> None:
        super().__init__(
            model, environment, WorstCase(), width, t, posterior_transform, X_pending, generator, elimination
        )

    def _chosen(self, lower: Tensor, upper: Tensor) -> tuple[Tensor, Tensor]:
        """At every condition the least lower bound of any candidate, and the upper bound of the one that chose x."""
        lower_of_winner, upper_of_winner = super()._chosen(lower, upper)
        if not self.over_candidates:
            return lower_of_winner, upper_of_winner
        return lower[..., self._among, :].amin(-2), upper_of_winner

    def _choosing_candidates(self, lower: Tensor, upper: Tensor, index: Tensor) -> Tensor:
        """The candidate that chose the design, and the one that chose its condition: indices in U, ``... x 2``."""
        at = lower.gather(-1, index[..., None, None].expand(*lower.shape[:-1], 1)).squeeze(-1)
        of_condition = self._indices[at.masked_fill(~self._among, torch.inf).argmin(-1)]
        return torch.cat([super()._choosing_candidates(lower, upper, index), of_condition.unsqueeze(-1)], -1)
