"""HE-StableOpt: x_t, u_t = argmax_{x, u} min_z UCB^u(x, z) and z_t, v_t = argmin_{z, u} LCB^u(x_t, z), then two tests.

Ziomek, Adachi & Osborne (ICML 2024), Algorithm 2 (Appendix I): optimistic about hypotheses in the design, pessimistic
in the condition; u_t and v_t are tested each by its own sums, with sigma_{t-1} (:mod:`bo_robust.states.elimination`).
Difference from :mod:`stable_opt`: a posterior per hypothesis, and the tests; from :mod:`he_gp_ucb`: the choice.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import Tensor

from bo_robust.algorithms.base import ArmAlgorithm, Info, State
from bo_robust.algorithms.he_gp_ucb import HEInfo, HEState, judge_round
from bo_robust.algorithms.hypothesis_space import (
    HypothesisAlgorithm,
    HypothesisSelection,
    alive_only,
    begin,
    check_base,
    of_leader,
    take_in,
    upper_bounds,
    width_of,
)
from bo_robust.algorithms.v_ucb import check_pairs, recommended_design
from bo_robust.functionals import WorstCase
from bo_robust.linalg import row_argmax
from bo_robust.states import elimination
from bo_robust.states.arms import ArmKernel
from bo_robust.states.elimination import Tally
from bo_robust.states.hypotheses import HypothesisPosterior
from bo_robust.validation import check_count, check_delta, check_positive

__all__ = ["HEStableInfo", "HEStableOpt", "HEStableSelection", "HEStableState"]


@dataclass
class HEStableState(HEState):
    """As :class:`HEState`; ``tally`` is of the rounds u chose the design, ``lower_tally`` of those v the condition."""

    lower_tally: Tally | None = None


@dataclass(frozen=True)
class HEStableSelection(HypothesisSelection):
    """What to pull next; ``hypothesis`` is u_t.

    Attributes:
        lower_hypothesis: v_t, ``s`` long.
    """

    lower_hypothesis: Tensor | None = None


@dataclass(frozen=True)
class HEStableInfo(HEInfo):
    """As :class:`HEInfo` for u_t, and for v_t, ``s`` each.

    Attributes:
        lower_hypothesis: v_t.
        lower_left: |sum eta| of v_t.
        lower_right: Its limit.
        lower_failed: lower_left > lower_right, v_t having survived the test of u_t.
    """

    lower_hypothesis: Tensor | None = None
    lower_left: Tensor | None = None
    lower_right: Tensor | None = None
    lower_failed: Tensor | None = None


@dataclass(frozen=True)
class HEStableOpt(HypothesisAlgorithm):
    """HE-StableOpt.

    Args:
        width: As :class:`bo_robust.algorithms.he_gp_ucb.HEGPUCB`.
        noise_scale: R > 0.
        delta: Failure probability in (0, 1).
        num_environments: w, conditions per design; arms are numbered x * w + z.
        base: As :class:`bo_robust.algorithms.he_gp_ucb.HEGPUCB`.

    Raises:
        ValueError: if an argument is outside its range.
    """

    noise_scale: float
    delta: float
    num_environments: int
    base: ArmAlgorithm | None = None

    def __post_init__(self) -> None:
        check_positive(noise_scale=self.noise_scale)
        check_delta(self.delta)
        check_base(self.base)
        check_count(1, num_environments=self.num_environments)

    def init(
        self,
        kernel: ArmKernel,
        noise_var: float | Tensor,
        trials: int = 1,
        *,
        prior_mean: Tensor | None = None,
        rounds: int | None = None,
    ) -> HEStableState:
        """State before any reward; as :meth:`HEGPUCB.init`, and the arms must be a multiple of w."""
        check_pairs(kernel, self.num_environments)
        posterior = begin(self.width, kernel, noise_var, trials, prior_mean, rounds, self.base)
        tally, failures = elimination.start(posterior.evidence)
        return HEStableState(posterior, tally=tally, failures=failures, lower_tally=elimination.start(tally.errors)[0])

    def select(self, state: State, uniform: Tensor) -> HEStableSelection:
        """The design of largest worst upper bound, under the condition of its smallest lower bound; first of equals."""
        posterior: HypothesisPosterior = state.posterior
        w, shape = width_of(self.width, posterior, state.round + 1, uniform), posterior.alive.shape
        upper = upper_bounds(posterior, w).view(*shape, -1, self.num_environments)
        worst = alive_only(upper.amin(3), posterior.alive)
        design = row_argmax(worst.amax(1))
        chosen = worst.gather(2, design.view(-1, 1, 1).expand(-1, shape[1], 1)).squeeze(2).argmax(1)
        here = design.view(-1, 1, 1, 1).expand(-1, shape[1], 1, self.num_environments)
        mean = posterior.means.view_as(upper).gather(2, here).squeeze(2)
        lower = alive_only(2.0 * mean - upper.gather(2, here).squeeze(2), posterior.alive, math.inf)
        z = lower.amin(1).argmin(1)
        pessimist = lower.gather(2, z.view(-1, 1, 1).expand(-1, shape[1], 1)).squeeze(2).argmin(1)
        return HEStableSelection(design * self.num_environments + z, of_leader(posterior, w), chosen, pessimist)

    def observe(self, state: State, arms: Tensor, rewards: Tensor, uniform: Tensor | None = None) -> HEStableInfo:
        """Take in the rewards under every hypothesis; test u_t of each arm's design, then v_t of each arm."""
        assert isinstance(state, HEStableState)
        posterior: HypothesisPosterior = state.posterior
        w, shape = width_of(self.width, posterior, state.round + 1, uniform), posterior.alive.shape
        design = (arms // self.num_environments).view(-1, 1, 1, 1).expand(-1, shape[1], 1, self.num_environments)
        upper = upper_bounds(posterior, w).view(*shape, -1, self.num_environments).gather(2, design).squeeze(2)
        chosen = alive_only(upper.amin(2), posterior.alive).argmax(1)
        ok, error, mean, variance = take_in(posterior, arms, rewards, uniform, self.base)
        reach = variance.sqrt_().mul_(w)
        pessimist = alive_only(mean - reach, posterior.alive, math.inf).argmin(1)
        state.tally, first = judge_round(self, state, state.tally, chosen, error, reach, ok)
        state.lower_tally, second = judge_round(self, state, state.lower_tally, pessimist, error, reach, ok)
        state.round += 1
        return HEStableInfo(
            ok,
            hypothesis=chosen,
            left=first.left,
            right=first.right,
            failed=first.failed,
            lower_hypothesis=pessimist,
            lower_left=second.left,
            lower_right=second.right,
            lower_failed=second.failed,
        )

    def learn(self, state: State, arms: Tensor, rewards: Tensor, uniform: Tensor | None = None) -> Info:
        """Take in a round of an initial design under every hypothesis; nobody is tested."""
        state.round += 1
        return Info(take_in(state.posterior, arms, rewards, uniform, self.base)[0])

    def recommend(self, state: State) -> Tensor:
        """The queried design of largest min_z mu(x, z) under the leader, ``s``; the first before any query."""
        return recommended_design(state.posterior, WorstCase(), self.num_environments, None)
