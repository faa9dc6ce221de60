"""HE-GP-UCB: x_t, u_t = argmax of mu^u_{t-1}(x) + w^u_t sigma^u_{t-1}(x) over arms and active candidates; tests u_t.

Ziomek, Adachi & Osborne, "Beyond Lengthscales: No-regret Bayesian Optimisation With Unknown Hyperparameters Of Any
Type" (ICML 2024), Algorithm 1 as its proof needs it (:mod:`bo_robust.confidence.elimination`). Differences from
:mod:`gp_ucb`: a posterior per candidate, the largest bound of any of them, and the test.
"""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from bo_robust.bandits.base import State, checked_state
from bo_robust.bandits.candidate_algorithm import CandidateSelection, best_among, of_map_candidate, reaches
from bo_robust.bandits.elimination_algorithm import EliminationAlgorithm, HEInfo, HEState
from bo_robust.bandits.posteriors.candidates import CandidatePosterior
from bo_robust.confidence import elimination


@dataclass(frozen=True)
class HEGPUCB(EliminationAlgorithm):
    """HE-GP-UCB; with |U| = 1 it is GP-UCB.

    If every candidate of a trial fails, the last is kept. A warning says so: on a CPU when it happens, and always in
    :func:`eliminations`. An initial design is not tested; pass its rewards to :meth:`observe_initial`.

    Args:
        width: Confidence width w^u_t, one for all candidates or a tuple of one each. The guarantee needs a width that
            holds with probability 1 - delta / 2. ``BayesianFiniteWidth(n, delta)`` halves delta itself;
            ``SelfNormalizedWidth(B, R, delta / 2)`` does not.
        noise_scale: R > 0, in units of the reward; the noise is R-sub-Gaussian.
        delta: Failure probability in (0, 1).
        elimination: One of :data:`bo_robust.confidence.elimination.ELIMINATION_KINDS`.

    Raises:
        ValueError: if an argument is outside its range.
    """

    capturable: ClassVar[bool] = True

    def select(self, state: State, uniform: Tensor) -> CandidateSelection:
        """Choose the arm of largest bound under any active candidate, and that candidate; ties go to the first."""
        posterior: CandidatePosterior = checked_state(state, HEState, CandidatePosterior).posterior
        if self.elimination == "likeliest":  # the MAP candidate decides alone
            return super().select(state, uniform)
        w = self.widths(posterior, state.round + 1, uniform)
        bounds = reaches(posterior.variances, w).add_(posterior.means)
        arms, chosen = best_among(bounds, self.acquisition_set(posterior))
        return CandidateSelection(arms, of_map_candidate(posterior, w), chosen)

    def observe(self, state: State, arms: Tensor, rewards: Tensor, uniform: Tensor | None = None) -> HEInfo:
        """Learn from the rewards under every candidate; test the one of largest bound at each arm.

        That is u_t if :meth:`select` chose the arm. At any other arm, too, the true candidate passes the test.
        """
        state = checked_state(state, HEState, CandidatePosterior)
        posterior: CandidatePosterior = state.posterior
        # Widths and acquisition set of round t - 1: `condition` updates the posterior in place.
        w, among = self.widths(posterior, state.round + 1, uniform), self.acquisition_set(posterior)
        observed = self.condition(posterior, arms, rewards)
        reach = observed.variance.sqrt_().mul_(w)
        chosen = elimination.largest_bound(observed.mean + reach, among)
        state.sums, info = self.run_test(state, state.sums, chosen, reach, observed)
        state.round += 1
        return info
