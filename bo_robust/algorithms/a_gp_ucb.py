"""A-GP-UCB over finitely many lengthscales: GP-UCB under the one nearest to theta_0 / g(t), g(t) = t^0.9.

Berkenkamp, Schoellig & Krause, "No-Regret Bayesian Optimization with Unknown Hyperparameters" (JMLR 2019), as Ziomek,
Adachi & Osborne (ICML 2024), Appendix J.1, run it: the lengthscale shrinks whatever the rewards, and the nearest
candidate takes its place. The width's norm bound is not grown along. Difference from :mod:`mle_gp_ucb`: who is used.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from bo_robust.algorithms.base import Info, State
from bo_robust.algorithms.hypothesis_space import HypothesisAlgorithm
from bo_robust.states.arms import ArmKernel
from bo_robust.states.hypotheses import HypothesisPosterior
from bo_robust.validation import check_positive

__all__ = ["AGPUCB"]


@dataclass
class AGPState(State):
    """As :class:`State`; ``learnt`` rounds were of an initial design."""

    learnt: int = 0


@dataclass(frozen=True)
class AGPUCB(HypothesisAlgorithm):
    """A-GP-UCB. Only the hypothesis of the coming round counts as alive; t counts the rounds it chooses itself.

    Args:
        width: Confidence width w^u_t, one for all hypotheses or a tuple of one each.
        lengthscales: Of the hypotheses, in their order, > 0; theta_0 is the largest.
        power: g(t) = t^power, > 0.

    Raises:
        ValueError: if there are no lengthscales, or one of them or the power is not > 0.
    """

    lengthscales: tuple[float, ...]
    power: float = 0.9

    def __post_init__(self) -> None:
        if len(self.lengthscales) == 0:
            raise ValueError("lengthscales must hold one number per hypothesis, got none.")
        for value in self.lengthscales:
            check_positive(lengthscale=value)
        check_positive(power=self.power)

    def init(
        self,
        kernel: ArmKernel,
        noise_var: float | Tensor,
        trials: int = 1,
        *,
        prior_mean: Tensor | None = None,
        rounds: int | None = None,
    ) -> State:
        """State before any reward; as :meth:`bo_robust.algorithms.he_gp_ucb.HEGPUCB.init`.

        Raises:
            ValueError: if there is not one lengthscale per hypothesis.
        """
        state = super().init(kernel, noise_var, trials, prior_mean=prior_mean, rounds=rounds)
        hypotheses = state.posterior.alive.shape[1]
        if hypotheses != len(self.lengthscales):
            raise ValueError(f"{len(self.lengthscales)} lengthscales for {hypotheses} hypotheses.")
        state = AGPState(state.posterior)
        self._believe(state)
        return state

    def learn(self, state: State, arms: Tensor, rewards: Tensor, uniform: Tensor | None = None) -> Info:
        """Take in a round of an initial design under every hypothesis; the lengthscale does not shrink."""
        assert isinstance(state, AGPState)
        state.learnt += 1
        return self.observe(state, arms, rewards, uniform)

    def observe(self, state: State, arms: Tensor, rewards: Tensor, uniform: Tensor | None = None) -> Info:
        """Take in the rewards under every hypothesis."""
        info = super().observe(state, arms, rewards, uniform)
        self._believe(state)
        return info

    def nearest(self, t: int) -> int:
        """The hypothesis of the ``t``-th round chosen (from 1), the first of equally near ones."""
        target = max(self.lengthscales) / t**self.power
        return min(range(len(self.lengthscales)), key=lambda u: abs(self.lengthscales[u] - target))

    def _believe(self, state: State) -> None:
        posterior: HypothesisPosterior = state.posterior
        posterior.alive = torch.zeros_like(posterior.alive)
        assert isinstance(state, AGPState)
        posterior.alive[:, self.nearest(state.round - state.learnt + 1)] = True
