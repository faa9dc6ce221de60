"""HE-GP-UCB: x_t, u_t = argmax over arms and hypotheses alive of mu^u_{t-1}(x) + w^u_t sigma^u_{t-1}(x); u_t is tested.

Ziomek, Adachi & Osborne, "Beyond Lengthscales: No-regret Bayesian Optimisation With Unknown Hyperparameters Of Any
Type" (ICML 2024), Algorithm 1 as its proof needs it (:mod:`bo_robust.states.elimination`). Difference from
:mod:`gp_ucb`: a posterior per hypothesis, the largest bound of any, and the test.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from bo_robust.algorithms.base import ArmAlgorithm, Info, State
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
from bo_robust.algorithms.v_ucb import VUCB
from bo_robust.linalg import row_argmax
from bo_robust.states import elimination
from bo_robust.states.arms import ArmKernel
from bo_robust.states.elimination import Failures, Tally, Verdict
from bo_robust.states.hypotheses import HypothesisPosterior
from bo_robust.validation import check_delta, check_positive

__all__ = ["HEGPUCB", "HEInfo", "HEState", "eliminations", "judge_round"]


@dataclass
class HEState(State):
    """Posterior under every hypothesis (``posterior``, which says who is alive), and the test's sums and record."""

    tally: Tally | None = None
    failures: Failures | None = None


@dataclass(frozen=True)
class HEInfo(Info):
    """What became of a round, ``s`` each.

    Attributes:
        hypothesis: u_t, index in U.
        left: |sum eta| of u_t.
        right: Its limit.
        failed: left > right: u_t was eliminated, unless it was the last of its trial.
    """

    hypothesis: Tensor | None = None
    left: Tensor | None = None
    right: Tensor | None = None
    failed: Tensor | None = None


@dataclass(frozen=True)
class HEGPUCB(HypothesisAlgorithm):
    """HE-GP-UCB.

    With |U| = 1 it is GP-UCB. If every hypothesis of a trial fails, the last is kept and a warning given, on a CPU when
    it happens, always by :func:`eliminations`. Initial designs go in untested, by :meth:`learn`.

    Args:
        width: Confidence width w^u_t, one for all hypotheses or a tuple of one each. The guarantee wants one that holds
            with probability 1 - delta / 2: ``BayesianFiniteWidth(n, delta)`` has that half in it,
            ``SelfNormalisedWidth(B, R, delta / 2)`` has not.
        noise_scale: R > 0, the noise is R-sub-Gaussian; in units of the reward.
        delta: Failure probability in (0, 1).
        base: Algorithm whose posterior is kept under every hypothesis (TGP-UCB, BKB, ...); its ``init`` and ``observe``
            are used, its rule and width are not, but of V-UCB the rule is: arms are pairs (x, z), u_t is the hypothesis
            of largest bound of F at x_t and z_t its lacing value. None: the exact posterior. Tests and evidence are of
            the rewards as the posterior takes them (TGP-UCB: truncated), whose noise is what must be R-sub-Gaussian;
            with BBKB, whose means wait for the end of a batch, evidence is no exact marginal likelihood.

    Raises:
        ValueError: if an argument is outside its range, or the base is over hypotheses itself or has features that
            do not depend on the kernel.
    """

    noise_scale: float
    delta: float
    base: ArmAlgorithm | None = None

    def __post_init__(self) -> None:
        check_positive(noise_scale=self.noise_scale)
        check_delta(self.delta)
        check_base(self.base)

    def init(
        self,
        kernel: ArmKernel,
        noise_var: float | Tensor,
        trials: int = 1,
        *,
        prior_mean: Tensor | None = None,
        rounds: int | None = None,
    ) -> HEState:
        """State before any reward; hypotheses and errors as :func:`bo_robust.algorithms.hypothesis_space.begin`.

        Args:
            kernel: One for all hypotheses, or ``h x n x n`` (:func:`bo_robust.states.hypotheses.candidate_kernel`).
            noise_var: lambda > 0, one number or one per hypothesis.
            trials: s >= 1.
            prior_mean: ``n`` or ``h x n``; zero when None.
            rounds: Rounds to come, if known.
        """
        posterior = begin(self.width, kernel, noise_var, trials, prior_mean, rounds, self.base)
        tally, failures = elimination.start(posterior.evidence)
        return HEState(posterior, tally=tally, failures=failures)

    def select(self, state: State, uniform: Tensor) -> HypothesisSelection:
        """The arm of largest bound under any hypothesis alive, first of equals, and the first such hypothesis."""
        posterior: HypothesisPosterior = state.posterior
        w = width_of(self.width, posterior, state.round + 1, uniform)
        if isinstance(self.base, VUCB):
            return self._select_pair(self.base, posterior, w, uniform)
        bounds = alive_only(upper_bounds(posterior, w), posterior.alive)
        arms = row_argmax(bounds.amax(1))
        chosen = bounds.gather(2, arms.view(-1, 1, 1).expand(-1, bounds.shape[1], 1)).squeeze(2).argmax(1)
        return HypothesisSelection(arms, of_leader(posterior, w), chosen)

    def _select_pair(
        self, base: VUCB, posterior: HypothesisPosterior, w: Tensor | float, uniform: Tensor
    ) -> HypothesisSelection:
        """x_t, u_t = argmax of the bound of F under any hypothesis alive; z_t is chosen under u_t."""
        mean, shape = posterior.means, posterior.alive.shape
        reach = posterior.variances.sqrt().mul_(w.unsqueeze(2) if isinstance(w, Tensor) else w)
        values = alive_only(base.values(mean.flatten(0, 1), reach.flatten(0, 1)).view(*shape, -1), posterior.alive)
        design = row_argmax(values.amax(1))
        chosen = values.gather(2, design.view(-1, 1, 1).expand(-1, shape[1], 1)).squeeze(2).argmax(1)
        pairs = base.pairs(design)
        own_mean, own_reach = (posterior.of(chosen, part).gather(1, pairs) for part in (mean, reach))
        z = base.condition(own_mean, own_reach, uniform)
        return HypothesisSelection(design * base.num_environments + z, of_leader(posterior, w), chosen)

    def observe(self, state: State, arms: Tensor, rewards: Tensor, uniform: Tensor | None = None) -> HEInfo:
        """Take in the rewards under every hypothesis; test the one of largest bound at each arm (over V-UCB: design).

        At the arm of :meth:`select` that is u_t; at another arm, too, the test is one the true hypothesis passes.
        """
        assert isinstance(state, HEState)
        posterior: HypothesisPosterior = state.posterior
        w = width_of(self.width, posterior, state.round + 1, uniform)
        bounds = self._bounds_of_design(self.base, posterior, w, arms) if isinstance(self.base, VUCB) else None
        ok, error, mean, variance = take_in(posterior, arms, rewards, uniform, self.base)
        reach = variance.sqrt_().mul_(w)
        chosen = alive_only(mean + reach if bounds is None else bounds, posterior.alive).argmax(1)
        state.tally, verdict = judge_round(self, state, state.tally, chosen, error, reach, ok)
        state.round += 1
        return HEInfo(ok, hypothesis=chosen, left=verdict.left, right=verdict.right, failed=verdict.failed)

    @staticmethod
    def _bounds_of_design(base: VUCB, posterior: HypothesisPosterior, w: Tensor | float, arms: Tensor) -> Tensor:
        """The bound of F at each arm's design under every hypothesis, ``s x h``."""
        shape = posterior.alive.shape
        pairs = base.pairs(arms // base.num_environments).unsqueeze(1).expand(-1, shape[1], -1)
        sd = posterior.variances.gather(2, pairs).sqrt_()
        reach = sd.mul_(w.unsqueeze(2) if isinstance(w, Tensor) else w)
        mean = posterior.means.gather(2, pairs)
        return base.values(mean.flatten(0, 1), reach.flatten(0, 1)).view(shape)

    def learn(self, state: State, arms: Tensor, rewards: Tensor, uniform: Tensor | None = None) -> Info:
        """Take in a round of an initial design under every hypothesis; nobody is tested."""
        state.round += 1
        return Info(take_in(state.posterior, arms, rewards, uniform, self.base)[0])


def judge_round(
    algorithm: Any,
    state: Any,
    tally: Tally | None,
    chosen: Tensor,
    error: Tensor,
    reach: Tensor,
    ok: Tensor,
) -> tuple[Tally, Verdict]:
    """Judge the hypotheses ``chosen`` (``s``), enter the outcome in ``state`` and warn of a last survivor that failed.

    Args:
        algorithm: With ``noise_scale`` and ``delta``.
        state: With ``posterior``, ``failures`` and ``round``, of before this round.
        tally: The sums of this test.
        chosen: Who is tested.
        error: eta_t under every hypothesis, ``s x h``.
        reach: w^u_t sigma^u_{t-1}(x_t), ``s x h``.
        ok: ``s`` bool.

    Returns:
        The new sums and the verdict.
    """
    posterior: HypothesisPosterior = state.posterior
    t, of = state.round + 1, posterior.of
    xi = elimination.noise_allowance(t, algorithm.noise_scale, posterior.alive.shape[1], algorithm.delta)
    failures: Failures = state.failures
    assert tally is not None
    own = torch.stack((error, reach)).gather(2, chosen.view(1, -1, 1).expand(2, -1, 1)).squeeze(2)
    verdict = elimination.judge(posterior.alive, tally, failures, chosen, own[0], own[1], xi, t, ok)
    posterior.alive, state.failures = verdict.alive, verdict.failures
    if not verdict.failed.is_cuda and verdict.failures is not failures:
        now = elimination.violated(verdict.alive, verdict.failures) & (of(chosen, verdict.failures.at) == t)
        if bool(now.any()):
            _warn(now.nonzero().squeeze(1).tolist(), 4)
    return verdict.tally, verdict


def eliminations(state: Any) -> list[dict[str, Any]]:
    """The record of failed tests (:func:`bo_robust.states.elimination.timeline`), by trial and round.

    Args:
        state: Of :class:`HEGPUCB` or :class:`bo_robust.algorithms.he_stable_opt.HEStableOpt`.

    Warns:
        UserWarning: if in some trials every hypothesis failed.
    """
    alive = state.posterior.alive
    bad = elimination.violated(alive, state.failures)
    if bool(bad.any()):
        _warn(bad.nonzero().squeeze(1).tolist(), 3)
    return elimination.timeline(alive, state.failures)


def _warn(trials: list[int], level: int) -> None:
    warnings.warn(
        f"every hypothesis failed its test in trial(s) {trials}: the assumptions do not hold (no candidate fits, the "
        "noise is larger than noise_scale, or the norm bound too small). The last survivor of each is kept.",
        UserWarning,
        stacklevel=level,
    )
