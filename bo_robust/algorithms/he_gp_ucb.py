"""HE-GP-UCB: x_t, u_t = argmax over arms and candidates alive of mu^u_{t-1}(x) + w^u_t sigma^u_{t-1}(x); u_t is tested.

Ziomek, Adachi & Osborne, "Beyond Lengthscales: No-regret Bayesian Optimisation With Unknown Hyperparameters Of Any
Type" (ICML 2024), Algorithm 1 as its proof needs it (:mod:`bo_robust.posteriors.elimination`). Differences from
:mod:`gp_ucb`: a posterior per candidate, the largest bound of any of them, and the test.

Axes: ``s`` trials, ``h`` candidates.
"""

import warnings
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor

from bo_robust.algorithms.ata_gp_ucb import ATAGPUCB
from bo_robust.algorithms.base import ArmAlgorithm, Info, State
from bo_robust.algorithms.bbkb import BBKB
from bo_robust.algorithms.bkb import BKB
from bo_robust.algorithms.candidate_algorithm import (
    CandidateAlgorithm,
    CandidateSelection,
    Taken,
    best_alive,
    of_leader,
    reaches,
)
from bo_robust.algorithms.gp_ucb import GPUCB
from bo_robust.algorithms.mom_gp_ucb import MoMGPUCB
from bo_robust.algorithms.tgp_ucb import TGPUCB
from bo_robust.algorithms.v_ucb import VUCB
from bo_robust.confidence.candidate_widths import delta_of_width
from bo_robust.linalg import on_cuda
from bo_robust.posteriors import elimination
from bo_robust.posteriors.candidates import CandidatePosterior
from bo_robust.posteriors.dictionary import NystromDictionary
from bo_robust.posteriors.elimination import Failures
from bo_robust.validation import check_delta, check_positive, quoted


@dataclass
class HEState(State):
    """The posterior under every candidate, and the sums and record of the test."""

    # Sums over the rounds that each candidate u chose, `3 x s x h` (:mod:`bo_robust.posteriors.elimination`)
    sums: Tensor | None = None
    failures: Failures | None = None  # The first test that each candidate failed


@dataclass(frozen=True)
class HEInfo(Info):
    """What happened in a round, ``s`` each."""

    # The candidate tested (u_t), an index in U. By likelihood everyone is; this is who chose.
    candidate: Tensor | None = None
    left: Tensor | None = None  # |sum eta| of that candidate; by likelihood, its nats below the likeliest
    right: Tensor | None = None  # The limit of `left`
    # Whether left > right. The candidate was then eliminated, unless it was the last of its trial.
    failed: Tensor | None = None


# The algorithms that choose by the largest bound of one posterior, which elimination can keep under every candidate.
PLAYED_BY_BOUND = (GPUCB, TGPUCB, ATAGPUCB, MoMGPUCB, BKB, BBKB, VUCB)


@dataclass(frozen=True)
class HEGPUCB(CandidateAlgorithm):
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

    records: ClassVar[frozenset[str]] = frozenset({"eliminations"})

    noise_scale: float
    delta: float
    base: ArmAlgorithm | None = field(default=None, kw_only=True)
    elimination: str = field(default="errors", kw_only=True)

    @classmethod
    def delta_of_width(cls, delta: float, kind: str) -> float:
        """See :func:`bo_robust.confidence.candidate_widths.delta_of_width`."""
        return delta_of_width({"kind": kind}, delta)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(noise_scale=self.noise_scale)
        check_delta(self.delta)
        elimination.check_elimination(self.elimination)
        base, features = self.base, getattr(self.base, "features", None)
        if base is not None and not isinstance(base, ArmAlgorithm):
            raise ValueError(
                f"base must be an algorithm, such as TGPUCB(width, truncation), or None, got {quoted(base)}. A "
                "configuration leaves it out."
            )
        if isinstance(base, CandidateAlgorithm):
            raise ValueError(
                f"base is itself over candidates ({type(base).__name__}); give None or an algorithm of one."
            )
        if base is not None and not isinstance(base, PLAYED_BY_BOUND):
            known = ", ".join(each.__name__ for each in PLAYED_BY_BOUND)
            raise ValueError(
                f"base must be None or one of {known}, which play the largest bound; {type(base).__name__} plays "
                "another arm, as elimination would not."
            )
        if features is not None and not isinstance(features, NystromDictionary):
            raise ValueError(
                f"{type(features).__name__} of {type(base).__name__} know nothing of the candidates' kernels, whose "
                "posteriors would be the same; take a NystromDictionary, or a base without features."
            )

    def start(self, posterior: CandidatePosterior) -> HEState:
        """Make the state around a fresh posterior."""
        sums, failures = elimination.untested(posterior.evidence)
        self._believe(posterior)
        return HEState(posterior, sums=sums, failures=failures)

    def select(self, state: State, uniform: Tensor) -> CandidateSelection:
        """Choose the arm of largest bound under any candidate alive, and that candidate; ties go to the first."""
        posterior: CandidatePosterior = state.posterior
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
        assert isinstance(state, HEState)
        posterior: CandidatePosterior = state.posterior
        w, base, bounds = self.widths(posterior, state.round + 1, uniform), self.base, None
        choosers = self.choosers(posterior)
        # Bounds of round t - 1: take_in updates the posterior in place.
        if isinstance(base, VUCB):
            there = base.pairs(arms // base.num_conditions).unsqueeze(1).expand(-1, posterior.alive.shape[1], -1)
            reach = reaches(posterior.variances.gather(2, there), w)
            bounds = _values(base, posterior.means.gather(2, there), reach).squeeze(2)
        taken = self.take_in(posterior, arms, rewards, uniform)
        reach = taken.variance.sqrt_().mul_(w)
        chosen = elimination.largest_alive(taken.mean + reach if bounds is None else bounds, choosers)
        info = self._judge(state, chosen, reach, taken)
        state.round += 1
        return info

    def observe_initial(self, state: State, arms: Tensor, rewards: Tensor, uniform: Tensor | None = None) -> Info:
        """Learn from a round of an initial design under every candidate; no candidate is tested by errors."""
        assert isinstance(state, HEState)
        info = super().observe(state, arms, rewards, uniform)
        self._record(state, state.round)
        return info

    def take_in(self, posterior: CandidatePosterior, arms: Tensor, rewards: Tensor, uniform: Tensor | None) -> Taken:
        """As the base class; candidates are tested here where the test is by likelihood."""
        taken = super().take_in(posterior, arms, rewards, uniform)
        self._believe(posterior)
        return taken

    def widths(self, posterior: CandidatePosterior, t: int, uniform: Tensor | None) -> Tensor | float:
        """As the base class; where the test is by likelihood, smaller the less likely a candidate is."""
        w = super().widths(posterior, t, uniform)
        if self.elimination != "likelihood":
            return w
        return w * elimination.shrinkage(posterior.evidence, self._bound(posterior))

    def choosers(self, posterior: CandidatePosterior) -> Tensor:
        """The candidates of which that of largest bound chooses, ``s x h`` bool."""
        if self.elimination != "likelihood":
            return posterior.alive
        return elimination.choosers(posterior.alive, posterior.evidence, posterior.last_gain)

    def _judge(self, state: HEState, chosen: Tensor, reach: Tensor, taken: Taken) -> HEInfo:
        """Test one candidate per trial; write to ``state``, as of before the round, its sums, who is alive and failed.

        By likelihood :meth:`take_in` has tested everyone, and who failed is written. The other arguments are those of
        :func:`bo_robust.posteriors.elimination.judge`. On a CPU a last survivor that failed gives a warning.
        """
        posterior: CandidatePosterior = state.posterior
        t, before = state.round + 1, state.failures
        assert state.sums is not None
        assert before is not None
        if self.elimination != "errors":
            self._record(state, t)
            gap = posterior.evidence.amax(1) - posterior.under(chosen, posterior.evidence)
            right = torch.full_like(gap, self._bound(posterior))
            failed = ~posterior.under(chosen, posterior.alive)
            return HEInfo(taken.ok, taken.truncated, candidate=chosen, left=gap, right=right, failed=failed)
        xi = elimination.noise_allowance(t, self.noise_scale, posterior.alive.shape[1], self.delta)
        verdict = elimination.judge(posterior.alive, state.sums, before, chosen, taken.error, reach, xi, t, taken.ok)
        posterior.alive, state.sums, state.failures = verdict.alive, verdict.sums, verdict.failures
        # On CUDA reading would wait for the device: there only `eliminations` warns. The same object: nobody failed.
        if not on_cuda(verdict.failed) and verdict.failures is not before:
            failed_now = posterior.under(chosen, verdict.failures.at) == t
            _warn_of_violated(elimination.violated(verdict.alive, verdict.failures) & failed_now, 4)
        return HEInfo(
            taken.ok, taken.truncated, candidate=chosen, left=verdict.left, right=verdict.right, failed=verdict.failed
        )

    def _bound(self, posterior: CandidatePosterior) -> float:
        return elimination.evidence_bound(self.elimination, posterior.alive.shape[1], self.delta)

    def _believe(self, posterior: CandidatePosterior) -> None:
        if self.elimination != "errors":
            posterior.alive = elimination.plausible(posterior.evidence, self._bound(posterior))

    def _record(self, state: HEState, t: int) -> None:
        posterior: CandidatePosterior = state.posterior
        if self.elimination != "errors":
            assert state.failures is not None
            of = (posterior.alive, state.failures, posterior.evidence)
            state.failures = elimination.judge_evidence(*of, self._bound(posterior), t)


def eliminations(state: Any) -> list[dict[str, Any]]:
    """The record of failed tests of HE-GP-UCB (:func:`bo_robust.posteriors.elimination.timeline`).

    Trials in which every candidate failed give a warning.
    """
    alive = state.posterior.alive
    _warn_of_violated(elimination.violated(alive, state.failures), 3)
    return elimination.timeline(alive, state.failures)


def _warn_of_violated(bad: Tensor, stacklevel: int) -> None:
    if bool(bad.any()):
        warnings.warn(
            f"every candidate failed its test in trial(s) {bad.nonzero().squeeze(1).tolist()}: {elimination.UNFIT}. "
            "The last survivor of each is kept.",
            UserWarning,
            stacklevel=stacklevel,
        )


def _values(base: VUCB, mean: Tensor, reach: Tensor) -> Tensor:
    """V-UCB's bound of F per design under every candidate, ``s x h x designs``, from mean and reach of the pairs."""
    return base.values(mean.flatten(0, 1), reach.flatten(0, 1)).view(*mean.shape[:2], -1)
