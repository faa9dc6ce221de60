"""MLE-GP-UCB: GP-UCB under the hypothesis of largest marginal likelihood, chosen anew each round.

The baseline of Ziomek, Adachi & Osborne (ICML 2024), section 7: what is done in practice, over a finite U, without a
guarantee. Difference from :mod:`gp_ucb`: a posterior per hypothesis, one of which is used.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from bo_robust.algorithms.base import ArmAlgorithm, Info, State
from bo_robust.algorithms.hypothesis_space import HypothesisSelection, Widths, begin, select_under, take_in
from bo_robust.states.arms import ArmKernel

__all__ = ["MLEGPUCB"]


@dataclass(frozen=True)
class MLEGPUCB(ArmAlgorithm):
    """MLE-GP-UCB.

    Args:
        width: Confidence width w^u_t, one for all hypotheses or a tuple of one each.
    """

    width: Widths

    def init(
        self,
        kernel: ArmKernel,
        noise_var: float | Tensor,
        trials: int = 1,
        *,
        prior_mean: Tensor | None = None,
        rounds: int | None = None,
    ) -> State:
        """State before any reward; as :meth:`bo_robust.algorithms.he_gp_ucb.HEGPUCB.init`."""
        return State(begin(self.width, kernel, noise_var, trials, prior_mean, rounds))

    def select(self, state: State, uniform: Tensor) -> HypothesisSelection:
        """The arm of largest bound under the likeliest hypothesis; the first one before any reward."""
        return select_under(state, self.width, state.posterior.leader, uniform)

    def observe(self, state: State, arms: Tensor, rewards: Tensor, uniform: Tensor | None = None) -> Info:
        """Take in the rewards under every hypothesis."""
        state.round += 1
        return Info(take_in(state.posterior, arms, rewards, uniform, None)[0])
