"""HE-GP-UCB: x_t, u_t = argmax over arms and candidates alive of mu^u_{t-1}(x) + w^u_t sigma^u_{t-1}(x); u_t is tested.

Ziomek, Adachi & Osborne, "Beyond Lengthscales: No-regret Bayesian Optimisation With Unknown Hyperparameters Of Any
Type" (ICML 2024), Algorithm 1 as its proof needs it (:mod:`bo_robust.posteriors.elimination`). Differences from
:mod:`gp_ucb`: a posterior per candidate, the largest bound of any of them, and the test.
"""

from dataclasses import dataclass

from torch import Tensor

from bo_robust.algorithms.base import State, checked_state
from bo_robust.algorithms.candidate_algorithm import CandidateSelection, best_alive, of_leader, reaches
from bo_robust.algorithms.elimination_algorithm import EliminationAlgorithm, HEInfo, HEState
from bo_robust.algorithms.v_ucb import VUCB
from bo_robust.posteriors import elimination
from bo_robust.posteriors.candidates import CandidatePosterior, checked_pulls


@dataclass(frozen=True)
class HEGPUCB(EliminationAlgorithm):
    """HE-GP-UCB; with |U| = 1 it is GP-UCB.

    If every candidate of a trial fails, the last is kept. A warning says so: on a CPU when it happens, and always in
    :func:`eliminations`. An initial design is not tested; pass its rewards to :meth:`observe_initial`.

    Args:
        width: Confidence width w^u_t, one for all candidates or a tuple of one each. The guarantee needs a width that
            holds with probability 1 - delta / 2. ``BayesianFiniteWidth(n, delta)`` halves delta itself;
            ``SelfNormalisedWidth(B, R, delta / 2)`` does not.
        noise_scale: R > 0, in units of the reward; the noise is R-sub-Gaussian.
        delta: Failure probability in (0, 1).
        base: Algorithm whose posterior is kept under every candidate (TGP-UCB, BKB, ...); None for the exact posterior.
            Its ``init`` and ``observe`` are used, its rule and width are not. If it is V-UCB, its rule is used as well:
            arms are pairs (x, z), u_t has the largest bound of F at x_t, and z_t is a lacing value under u_t. Tests and
            evidence see the rewards as the posterior takes them (TGP-UCB: truncated), and the noise of these must be
            R-sub-Gaussian. With BBKB, whose means wait for the end of a batch, evidence is no exact marginal
            likelihood.

    Raises:
        ValueError: if an argument is outside its range, or the base is over candidates itself or has features that do
            not depend on the kernel.
    """

    def select(self, state: State, uniform: Tensor) -> CandidateSelection:
        """Choose the arm of largest bound under any candidate alive, and that candidate; ties go to the first."""
        posterior: CandidatePosterior = checked_state(state, HEState).posterior
        if self.elimination == "likeliest" and not isinstance(self.base, VUCB):  # the leader decides alone
            return super().select(state, uniform)
        w, base = self.widths(posterior, state.round + 1, uniform), self.base
        reach, means = reaches(posterior.variances, w), posterior.means
        if not isinstance(base, VUCB):
            arms, chosen = best_alive(reach.add_(means), self.choosers(posterior))
            return CandidateSelection(arms, of_leader(posterior, w), chosen)
        design, chosen = best_alive(_values(base, means, reach), self.choosers(posterior))
        pairs = base.pairs(design)
        mean, own = (posterior.under(chosen, part).gather(1, pairs) for part in (means, reach))
        arms = design * base.num_conditions + base.condition(mean, own, uniform)
        return CandidateSelection(arms, of_leader(posterior, w), chosen)

    def observe(self, state: State, arms: Tensor, rewards: Tensor, uniform: Tensor | None = None) -> HEInfo:
        """Learn from the rewards under every candidate; test the one of largest bound at each arm (V-UCB: design).

        That is u_t if :meth:`select` chose the arm. At any other arm, too, the true candidate passes the test.
        """
        state = checked_state(state, HEState)
        posterior: CandidatePosterior = state.posterior
        w, base, bounds = self.widths(posterior, state.round + 1, uniform), self.base, None
        choosers = self.choosers(posterior)
        # Bounds of round t - 1: take_in updates the posterior in place.
        if isinstance(base, VUCB):
            arms, rewards = checked_pulls(posterior, arms, rewards)
            there = base.pairs(arms // base.num_conditions).unsqueeze(1).expand(-1, posterior.alive.shape[1], -1)
            reach = reaches(posterior.variances.gather(2, there), w)
            bounds = _values(base, posterior.means.gather(2, there), reach).squeeze(2)
        taken = self.take_in(posterior, arms, rewards, uniform)
        reach = taken.variance.sqrt_().mul_(w)
        chosen = elimination.largest_alive(taken.mean + reach if bounds is None else bounds, choosers)
        state.sums, info = self.judge(state, state.sums, chosen, reach, taken)
        state.round += 1
        return info


def _values(base: VUCB, mean: Tensor, reach: Tensor) -> Tensor:
    """V-UCB's bound of F per design under every candidate, ``s x h x designs``, from mean and reach of the pairs."""
    return base.values(mean.flatten(0, 1), reach.flatten(0, 1)).view(*mean.shape[:2], -1)
