"""HE-StableOpt: x_t, u_t = argmax_{x, u} min_z UCB^u(x, z) and z_t, v_t = argmin_{z, u} LCB^u(x_t, z), then two tests.

Ziomek, Adachi & Osborne (ICML 2024), Algorithm 2 (Appendix I). It is optimistic about candidates when it chooses the
design, and pessimistic when it chooses the condition. u_t and v_t are each tested with their own sums, with sigma_{t-1}
(``posteriors/elimination.py``). Differences from :mod:`stable_opt`: a posterior per candidate, and the tests; from
:mod:`he_gp_ucb`: the choice.
"""

import math
from dataclasses import dataclass, field, replace

from torch import Tensor

from bo_robust.bandits.base import State, checked_state
from bo_robust.bandits.candidate_algorithm import CandidateSelection, best_among, masked, of_map_candidate, reaches
from bo_robust.bandits.elimination_algorithm import EliminationAlgorithm, HEInfo, HEState
from bo_robust.bandits.pairs import check_pairs, recommended_design
from bo_robust.bandits.posteriors.candidates import CandidatePosterior, checked_pulls
from bo_robust.confidence import elimination
from bo_robust.risk_measures.functionals import WorstCase
from bo_robust.utils.input_checks import Count


@dataclass
class HEStableState(HEState):
    """State with ``sums`` over the rounds that u chose the design, and ``lower_sums`` for v and the condition."""

    lower_sums: Tensor = field(kw_only=True)


@dataclass(frozen=True)
class HEStableSelection(CandidateSelection):
    """The arms to pull next; ``candidate`` is u_t and ``lower_candidate`` is v_t, ``s`` long each."""

    lower_candidate: Tensor | None = None


@dataclass(frozen=True)
class HEStableOpt(EliminationAlgorithm):
    """HE-StableOpt. Other arguments and errors are those of :class:`.he_gp_ucb.HEGPUCB`.

    Args:
        num_conditions: w >= 1, conditions per design; arms are numbered x * w + z.
    """

    num_conditions: Count

    def start(self, posterior: CandidatePosterior) -> HEStableState:
        """Make the state around a fresh posterior, whose number of arms must be a multiple of w."""
        check_pairs(posterior.means.shape[2], self.num_conditions)
        state = super().start(posterior)
        return HEStableState(posterior, sums=state.sums, failures=state.failures, lower_sums=state.sums.clone())

    def select(self, state: State, uniform: Tensor) -> HEStableSelection:
        """Choose the design of largest worst upper bound and its condition of least lower bound, ties to the first."""
        posterior: CandidatePosterior = checked_state(state, HEStableState, CandidatePosterior).posterior
        w, shape = self.widths(posterior, state.round + 1, uniform), posterior.active.shape
        among = self.acquisition_set(posterior)
        upper = reaches(posterior.variances, w).add_(posterior.means).view(*shape, -1, self.num_conditions)
        design, optimist = best_among(upper.amin(3), among)
        here = self._conditions(design, shape[1])
        mean = posterior.means.view_as(upper).gather(2, here).squeeze(2)
        # mu - w sigma is 2 mu - (mu + w sigma).
        lower = masked(2.0 * mean - upper.gather(2, here).squeeze(2), among, math.inf)
        z = lower.amin(1).argmin(1)
        pessimist = lower.gather(2, z.view(-1, 1, 1).expand(-1, shape[1], 1)).squeeze(2).argmin(1)
        return HEStableSelection(design * self.num_conditions + z, of_map_candidate(posterior, w), optimist, pessimist)

    def observe(self, state: State, arms: Tensor, rewards: Tensor, uniform: Tensor | None = None) -> HEInfo:
        """Learn from the rewards under every candidate; test u_t of each arm's design, then v_t of each arm."""
        state = checked_state(state, HEStableState, CandidatePosterior)
        posterior: CandidatePosterior = state.posterior
        arms, rewards = checked_pulls(posterior, arms, rewards)
        # Bounds of round t - 1: `condition` updates the posterior in place.
        w, shape = self.widths(posterior, state.round + 1, uniform), posterior.active.shape
        upper = reaches(posterior.variances, w).add_(posterior.means).view(*shape, -1, self.num_conditions)
        upper = upper.gather(2, self._conditions(arms // self.num_conditions, shape[1])).squeeze(2)
        among = self.acquisition_set(posterior)
        optimist = elimination.largest_bound(upper.amin(2), among)
        observed = self.condition(posterior, arms, rewards)
        reach = observed.variance.sqrt_().mul_(w)
        pessimist = elimination.largest_bound(reach - observed.mean, among)
        state.sums, info = self.run_test(state, state.sums, optimist, reach, observed)
        state.lower_sums, lower = self.run_test(state, state.lower_sums, pessimist, reach, observed)
        state.round += 1
        return replace(info, lower=lower)

    def recommend(self, state: State) -> Tensor:
        """The queried design of largest min_z mu(x, z) under the MAP candidate, ``s``; before any query the first."""
        return recommended_design(state.posterior, WorstCase(), self.num_conditions, None)

    def _conditions(self, design: Tensor, candidates: int) -> Tensor:
        """Index of all conditions of one design per trial (``s``) into ``s x h x designs x w``, ``s x h x 1 x w``."""
        return design.view(-1, 1, 1, 1).expand(-1, candidates, 1, self.num_conditions)
