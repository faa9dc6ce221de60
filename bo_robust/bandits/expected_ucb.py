"""ExpectedUCB: x_t = argmax sum_u p(u | y_1..t-1) (mu^u_{t-1}(x) + w^u_t sigma^u_{t-1}(x)), p(u) uniform on U.

The baseline of Ziomek, Adachi & Osborne (ICML 2024), section 7; it has no guarantee. Difference from
:mod:`candidate_algorithm`: it averages the bounds, weighted by marginal likelihood.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from bo_robust.bandits.base import State, checked_state
from bo_robust.bandits.candidate_algorithm import CandidateAlgorithm, CandidateSelection, of_map_candidate, reaches
from bo_robust.bandits.posteriors.candidates import CandidatePosterior
from bo_robust.utils.linalg import row_argmax


@dataclass(frozen=True)
class ExpectedUCB(CandidateAlgorithm):
    """ExpectedUCB."""

    capturable: ClassVar[bool] = True

    def select(self, state: State, uniform: Tensor) -> CandidateSelection:
        """Choose the arm of largest expected bound; ties go to the first."""
        posterior: CandidatePosterior = checked_state(state, State, CandidatePosterior).posterior
        w = self.widths(posterior, state.round + 1, uniform)
        weights = torch.softmax(posterior.evidence, 1).unsqueeze(1)
        expected = torch.bmm(weights, reaches(posterior.variances, w).add_(posterior.means)).squeeze(1)
        return CandidateSelection(row_argmax(expected), of_map_candidate(posterior, w))
