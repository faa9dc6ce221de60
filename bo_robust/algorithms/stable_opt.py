"""StableOpt on finitely many pairs (x, z): x_t = argmax_x min_z u(x, z), z_t = argmin_z l(x_t, z).

Bogunovic, Scarlett, Jegelka & Cevher, "Adversarially Robust Optimization with Gaussian Processes" (NeurIPS 2018).
Difference from :mod:`v_ucb`: the functional is the worst case, V-UCB's limit as alpha -> 0, and nothing is random.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from bo_robust.algorithms.base import ArmAlgorithm, Selection, State
from bo_robust.algorithms.v_ucb import VUCB, check_pairs, recommended_design
from bo_robust.functionals import WorstCase
from bo_robust.schedules import Width
from bo_robust.states.arms import ArmKernel
from bo_robust.validation import check_count

__all__ = ["StableOpt"]


@dataclass(frozen=True)
class StableOpt(ArmAlgorithm):
    """StableOpt.

    Args:
        width: Confidence width w_t.
        num_environments: w, conditions per design; arms are numbered x * w + z.

    Raises:
        ValueError: if there are no conditions.
    """

    width: Width
    num_environments: int

    def __post_init__(self) -> None:
        check_count(1, num_environments=self.num_environments)

    def init(
        self,
        kernel: ArmKernel,
        noise_var: float | Tensor,
        trials: int = 1,
        *,
        prior_mean: Tensor | None = None,
        rounds: int | None = None,
    ) -> State:
        """State before any reward; as :meth:`ArmAlgorithm.init`, and the arms must be a multiple of w."""
        check_pairs(kernel, self.num_environments)
        return super().init(kernel, noise_var, trials, prior_mean=prior_mean, rounds=rounds)

    def select(self, state: State, uniform: Tensor) -> Selection:
        """The design of largest worst upper bound, under the condition of its smallest lower bound."""
        return VUCB(self.width, WorstCase(), self.num_environments).select(state, uniform)

    def recommend(self, state: State) -> Tensor:
        """The queried design of largest min_z mu(x, z), ``s``; the first before any query."""
        return recommended_design(state.posterior, WorstCase(), self.num_environments, None)
