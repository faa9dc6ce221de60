"""ExpectedUCB: x_t = argmax sum_u p(u | y_1..t-1) (mu^u_{t-1}(x) + w^u_t sigma^u_{t-1}(x)), p(u) uniform on U.

The baseline of Ziomek, Adachi & Osborne (ICML 2024), section 7; no guarantee. Difference from :mod:`mle_gp_ucb`: the
bounds are averaged, weighted by marginal likelihood.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from bo_robust.algorithms.base import State
from bo_robust.algorithms.hypothesis_space import (
    HypothesisAlgorithm,
    HypothesisSelection,
    of_leader,
    upper_bounds,
    width_of,
)
from bo_robust.linalg import row_argmax
from bo_robust.states.hypotheses import HypothesisPosterior

__all__ = ["ExpectedUCB"]


@dataclass(frozen=True)
class ExpectedUCB(HypothesisAlgorithm):
    """ExpectedUCB.

    Args:
        width: Confidence width w^u_t, one for all hypotheses or a tuple of one each.
    """

    def select(self, state: State, uniform: Tensor) -> HypothesisSelection:
        """The arm of largest expected bound, first of equals."""
        posterior: HypothesisPosterior = state.posterior
        w = width_of(self.width, posterior, state.round + 1, uniform)
        weights = torch.softmax(posterior.evidence, 1).unsqueeze(1)
        expected = torch.bmm(weights, upper_bounds(posterior, w)).squeeze(1)
        return HypothesisSelection(row_argmax(expected), of_leader(posterior, w))
