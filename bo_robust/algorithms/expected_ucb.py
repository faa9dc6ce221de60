"""ExpectedUCB: x_t = argmax sum_u p(u | y_1..t-1) (mu^u_{t-1}(x) + w^u_t sigma^u_{t-1}(x)), p(u) uniform on U.

The baseline of Ziomek, Adachi & Osborne (ICML 2024), section 7; no guarantee. Difference from :mod:`mle_gp_ucb`: the
bounds are averaged, weighted by marginal likelihood.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from bo_robust.algorithms.base import ArmAlgorithm, Info, State
from bo_robust.algorithms.hypothesis_space import (
    HypothesisSelection,
    Widths,
    begin,
    of_leader,
    take_in,
    upper_bounds,
    width_of,
)
from bo_robust.linalg import row_argmax
from bo_robust.states.arms import ArmKernel
from bo_robust.states.hypotheses import HypothesisPosterior

__all__ = ["ExpectedUCB"]


@dataclass(frozen=True)
class ExpectedUCB(ArmAlgorithm):
    """ExpectedUCB.

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
        """The arm of largest expected bound, first of equals."""
        posterior: HypothesisPosterior = state.posterior
        w = width_of(self.width, posterior, state.round + 1, uniform)
        weights = torch.softmax(posterior.evidence, 1).unsqueeze(1)
        expected = torch.bmm(weights, upper_bounds(posterior, w)).squeeze(1)
        return HypothesisSelection(row_argmax(expected), of_leader(posterior, w))

    def observe(self, state: State, arms: Tensor, rewards: Tensor, uniform: Tensor | None = None) -> Info:
        """Take in the rewards under every hypothesis."""
        state.round += 1
        return Info(take_in(state.posterior, arms, rewards, uniform, None)[0])
