"""The base of HE-GP-UCB and HE-StableOpt: the state of the elimination test, and how a round enters it.

Ziomek, Adachi & Osborne (ICML 2024), Algorithm 1, lines 8-14, by :mod:`bo_robust.confidence.elimination`, which
has the test by likelihood as well.

Axes: ``s`` trials, ``h`` candidates.
"""

import warnings
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor

from bo_robust.bandits.base import Info, State, checked_state
from bo_robust.bandits.candidate_algorithm import CandidateAlgorithm
from bo_robust.bandits.posteriors.candidates import CandidatePosterior, Observed
from bo_robust.confidence import elimination
from bo_robust.confidence.elimination import EliminationKind, Failures
from bo_robust.utils.input_checks import FailureProbability, Positive
from bo_robust.utils.linalg import on_cuda
from bo_robust.utils.round_numbers import by_round


@dataclass
class HEState(State):
    """The posterior under every candidate, and the sums and record of the test."""

    # Sums over the rounds that each candidate u chose, `3 x s x h` (:mod:`bo_robust.confidence.elimination`)
    sums: Tensor = field(kw_only=True)
    failures: Failures = field(kw_only=True)  # The first test that each candidate failed


@dataclass(frozen=True)
class HEInfo(Info):
    """What happened in a round, ``s`` each."""

    # The candidate tested (u_t), an index in U. By likelihood everyone is; this is who chose.
    candidate: Tensor | None = None
    left: Tensor | None = None  # |sum eta| of that candidate; by likelihood, its nats below the likeliest
    right: Tensor | None = None  # The limit of `left`
    # Whether left > right. The candidate was then removed, unless it was the last active one.
    failed: Tensor | None = None
    lower: "HEInfo | None" = None  # HE-StableOpt's second test, of v_t, made after that of u_t


@dataclass(frozen=True)
class EliminationAlgorithm(CandidateAlgorithm):
    """Base of the algorithms that eliminate candidates; arguments and errors are as in :class:`.he_gp_ucb.HEGPUCB`."""

    records: ClassVar[frozenset[str]] = frozenset({"eliminations"})

    noise_scale: Positive
    delta: FailureProbability
    elimination: EliminationKind = field(default="errors", kw_only=True)

    def start(self, posterior: CandidatePosterior) -> HEState:
        """Make the state around a fresh posterior."""
        sums, failures = elimination.untested(posterior.evidence)
        self._update_active(posterior)
        return HEState(posterior, sums=sums, failures=failures)

    def observe_initial(self, state: State, arms: Tensor, rewards: Tensor, uniform: Tensor | None = None) -> Info:
        """Learn from a round of an initial design under every candidate; no candidate is tested by errors."""
        state = checked_state(state, HEState, CandidatePosterior)
        info = super().observe(state, arms, rewards, uniform)
        self._record(state, state.round)
        return info

    def condition(self, posterior: CandidatePosterior, arms: Tensor, rewards: Tensor) -> Observed:
        """As the base class; candidates are tested here where the test is by likelihood."""
        observed = super().condition(posterior, arms, rewards)
        self._update_active(posterior)
        return observed

    def widths(self, posterior: CandidatePosterior, t: int, uniform: Tensor | None) -> Tensor | float:
        """As the base class; where the test is by likelihood, smaller the less likely a candidate is."""
        w = super().widths(posterior, t, uniform)
        if self.elimination != "likelihood":
            return w
        return w * elimination.shrinkage(posterior.evidence, self._bound(posterior))

    def acquisition_set(self, posterior: CandidatePosterior) -> Tensor:
        """The candidates among which the largest bound is maximized, ``s x h`` bool."""
        if self.elimination != "likelihood":
            return posterior.active
        return elimination.acquisition_set(posterior.active, posterior.evidence, posterior.last_gain)

    def run_test(
        self, state: HEState, sums: Tensor, chosen: Tensor, reach: Tensor, observed: Observed
    ) -> tuple[Tensor, HEInfo]:
        """Test one candidate per trial; write to ``state``, as of before the round, who is active and who failed.

        By likelihood :meth:`condition` has tested everyone, and who failed is written. The other arguments are those of
        :func:`bo_robust.confidence.elimination.run_error_test`. The result is the sums with this round, and
        what happened in it. On a CPU a last active candidate that failed gives a warning.
        """
        posterior: CandidatePosterior = state.posterior
        t, before = state.round + 1, state.failures
        if self.elimination != "errors":
            self._record(state, t)
            gap = posterior.evidence.amax(1) - posterior.under(chosen, posterior.evidence)
            right = torch.full_like(gap, self._bound(posterior))
            failed = ~posterior.under(chosen, posterior.active)
            return sums, HEInfo(observed.ok, candidate=chosen, left=gap, right=right, failed=failed)
        h, column = posterior.active.shape[1], chosen.unsqueeze(1)
        xi = by_round(lambda t: elimination.noise_allowance(t, self.noise_scale, h, self.delta), t, reach[:, :1])
        when = by_round(int, t, column)
        outcome = elimination.run_error_test(
            posterior.active, sums, before, chosen, observed.error, reach, xi, when, observed.ok
        )
        posterior.active, state.failures = outcome.active, outcome.failures
        # On CUDA reading would wait for the device: there only `eliminations` warns. The same object: nobody failed.
        if not on_cuda(outcome.failed) and outcome.failures is not before:
            failed_now = posterior.under(chosen, outcome.failures.at) == t
            _warn_of_violated(elimination.violated(outcome.active, outcome.failures) & failed_now, 4)
        info = HEInfo(observed.ok, candidate=chosen, left=outcome.left, right=outcome.right, failed=outcome.failed)
        return outcome.sums, info

    def _bound(self, posterior: CandidatePosterior) -> float:
        return elimination.evidence_bound(self.elimination, posterior.active.shape[1], self.delta)

    def _update_active(self, posterior: CandidatePosterior) -> None:
        if self.elimination != "errors":
            posterior.active = elimination.plausible(posterior.evidence, self._bound(posterior))

    def _record(self, state: HEState, t: int) -> None:
        posterior: CandidatePosterior = state.posterior
        if self.elimination != "errors":
            of = (posterior.active, state.failures, posterior.evidence, self._bound(posterior))
            state.failures = elimination.run_likelihood_test(*of, by_round(int, t, state.failures.at))


def eliminations(state: Any) -> list[dict[str, Any]]:
    """The record of failed tests of HE-GP-UCB or HE-StableOpt (:func:`.posteriors.elimination.timeline`).

    Trials in which every candidate failed give a warning.
    """
    active = state.posterior.active
    _warn_of_violated(elimination.violated(active, state.failures), 3)
    return elimination.timeline(active, state.failures)


def _warn_of_violated(bad: Tensor, stacklevel: int) -> None:
    if bool(bad.any()):
        warnings.warn(
            f"every candidate failed its test in trial(s) {bad.nonzero().squeeze(1).tolist()}: {elimination.UNFIT}. "
            "The last candidate of each is kept.",
            UserWarning,
            stacklevel=stacklevel,
        )
