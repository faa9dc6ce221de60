"""A-GP-UCB over finitely many lengthscales: GP-UCB under the one nearest to theta_0 / g(t), g(t) = t^0.9.

Berkenkamp, Schoellig & Krause, "No-Regret Bayesian Optimization with Unknown Hyperparameters" (JMLR 2019), in the form
that Ziomek, Adachi & Osborne (ICML 2024), Appendix J.1, run: the lengthscale shrinks whatever the rewards are, and the
nearest candidate stands in for it. The width's norm bound does not grow with it. Difference from
:mod:`candidate_algorithm`: which candidate is used.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from bo_robust.bandits.base import Info, State, checked_state
from bo_robust.bandits.candidate_algorithm import CandidateAlgorithm
from bo_robust.bandits.posteriors.candidates import CandidatePosterior
from bo_robust.utils.input_checks import Positive, check_positive, quoted


@dataclass
class AGPState(State):
    """:class:`State` that counts the rounds of an initial design, ``initial``."""

    initial: int = 0


@dataclass(frozen=True)
class AGPUCB(CandidateAlgorithm):
    """A-GP-UCB. Only the candidate of the coming round is active; t counts the rounds it chose itself.

    Args:
        width: As in :class:`CandidateAlgorithm`.
        lengthscales: One per candidate, in the candidates' order, > 0 (else ``ValueError``); theta_0 is the largest.
        power: g(t) = t^power, > 0 (else ``ValueError``).
    """

    lengthscales: tuple[float, ...]
    power: Positive = 0.9

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.lengthscales, tuple | list) or len(self.lengthscales) == 0:
            raise ValueError(f"lengthscales must hold one number per candidate, got {quoted(self.lengthscales)}.")
        for value in self.lengthscales:
            check_positive(lengthscale=value)

    def start(self, posterior: CandidatePosterior) -> AGPState:
        """Make the state around a fresh posterior; ``ValueError`` if there is not one lengthscale per candidate."""
        candidates = posterior.active.shape[1]
        if candidates != len(self.lengthscales):
            raise ValueError(f"{len(self.lengthscales)} lengthscales for {candidates} candidates.")
        state = AGPState(posterior)
        self._update_active(state)
        return state

    def observe_initial(self, state: State, arms: Tensor, rewards: Tensor, uniform: Tensor | None = None) -> Info:
        """Learn from a round of an initial design under every candidate; the lengthscale does not shrink."""
        state = checked_state(state, AGPState, CandidatePosterior)
        info = super().observe(state, arms, rewards, uniform)
        state.initial += 1
        self._update_active(state)
        return info

    def observe(self, state: State, arms: Tensor, rewards: Tensor, uniform: Tensor | None = None) -> Info:
        """Learn from the rewards under every candidate, then shrink the lengthscale."""
        state = checked_state(state, AGPState, CandidatePosterior)
        info = super().observe(state, arms, rewards, uniform)
        self._update_active(state)
        return info

    def nearest(self, t: int) -> int:
        """The candidate of the ``t``-th round it chooses (from 1); ties go to the first."""
        target = max(self.lengthscales) / t**self.power
        return min(range(len(self.lengthscales)), key=lambda u: abs(self.lengthscales[u] - target))

    def _update_active(self, state: AGPState) -> None:
        posterior: CandidatePosterior = state.posterior
        posterior.active = torch.zeros_like(posterior.active)
        posterior.active[:, self.nearest(state.round - state.initial + 1)] = True
