"""StableOpt on finitely many pairs (x, z): x_t = argmax_x min_z u(x, z), z_t = argmin_z l(x_t, z).

Bogunovic, Scarlett, Jegelka & Cevher, "Adversarially Robust Optimization with Gaussian Processes" (NeurIPS 2018).
Difference from :mod:`v_ucb`: the functional is the worst case, V-UCB's limit as alpha -> 0, and nothing is random.
"""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from bo_robust.bandits.base import Selection, State
from bo_robust.bandits.pairs import PairAlgorithm, recommended_design
from bo_robust.bandits.v_ucb import VUCB
from bo_robust.confidence import Width
from bo_robust.risk_measures.functionals import WorstCase
from bo_robust.utils.input_checks import Count


@dataclass(frozen=True)
class StableOpt(PairAlgorithm):
    """StableOpt.

    Args:
        width: Confidence width w_t.
        num_conditions: w >= 1, conditions per design; arms are numbered x * w + z.
    """

    capturable: ClassVar[bool] = True

    width: Width
    num_conditions: Count

    def select(self, state: State, uniform: Tensor) -> Selection:
        """Choose the design of largest worst upper bound, and its condition of smallest lower bound."""
        return VUCB(self.width, WorstCase(), self.num_conditions).select(state, uniform)

    def recommend(self, state: State) -> Tensor:
        """The queried design of largest min_z mu(x, z), ``s``; the first design before any query."""
        return recommended_design(state.posterior, WorstCase(), self.num_conditions, None)
