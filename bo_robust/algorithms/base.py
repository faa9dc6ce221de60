"""What every finite-arm algorithm shares: the state, the round, and how it starts.

A round is ``selection = algorithm.select(state, uniform)``, then rewards from the world, then
``algorithm.observe(state, selection.arms, rewards, uniform)``. ``select`` is pure; ``observe`` updates the state in
place.
All trials advance together and nothing returns to the host.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor

from bo_robust.states import arms as arm_states
from bo_robust.states.arms import ArmKernel

__all__ = ["ArmAlgorithm", "Info", "Posterior", "Selection", "State"]


class Posterior(Protocol):
    """What rules and the runner read of any posterior over arms."""

    @property
    def mean(self) -> Tensor:
        """mu_t of every arm, ``s x n``."""

    @property
    def variance(self) -> Tensor:
        """sigma_t^2 of every arm, without noise, ``s x n``."""

    @property
    def counts(self) -> Tensor:
        """Rewards taken in per arm, ``s x n``."""

    @property
    def noise_var(self) -> Tensor:
        """lambda, ``s``."""

    @property
    def information_gain(self) -> Tensor:
        """Realised 1/2 log det(I + K_t / lambda), ``s``."""


@dataclass
class State:
    """Posterior of all trials after ``round`` rounds: an ``ArmPosterior`` unless the algorithm keeps another."""

    posterior: Any
    round: int = 0


@dataclass(frozen=True)
class Selection:
    """What to pull next.

    Attributes:
        arms: ``s``, long.
        width: Multiplier of sigma in the confidence interval, a number or ``s``; None where there is none.
    """

    arms: Tensor
    width: Tensor | float | None = None


@dataclass(frozen=True)
class Info:
    """What became of the rewards of a round.

    Attributes:
        ok: ``s`` bool, False where the reward was NaN or infinite: a failed pull, nothing learnt.
        truncated: ``s`` bool, True where a reward was lost to truncation (or clipped); None for methods that never do.
    """

    ok: Tensor
    truncated: Tensor | None = None


class ArmAlgorithm(ABC):
    """Base of the finite-arm algorithms; subclasses are frozen dataclasses of their settings."""

    def init(
        self,
        kernel: ArmKernel,
        noise_var: float | Tensor,
        trials: int = 1,
        *,
        prior_mean: Tensor | None = None,
        rounds: int | None = None,
    ) -> State:
        """State before any reward; arguments and errors as :func:`bo_robust.states.arms.init`."""
        return State(arm_states.init(kernel, noise_var, trials, prior_mean=prior_mean, rounds=rounds))

    @abstractmethod
    def select(self, state: State, uniform: Tensor) -> Selection:
        """Choose one arm per trial.

        Args:
            state: State after t - 1 rounds.
            uniform: ``s``, draws from [0, 1) of this round, one stream per trial; deterministic rules ignore it.
        """

    def observe(self, state: State, arms: Tensor, rewards: Tensor, uniform: Tensor | None = None) -> Info:
        """Take in the ``rewards`` (``s``) of ``arms`` (``s``), in place.

        Args:
            state: State after t - 1 rounds.
            arms: The arms pulled, long.
            rewards: Of these arms; NaN or infinite ones are failed pulls.
            uniform: The draws of this round given to :meth:`select`, for rules that learn at random.
        """
        ok = arm_states.observe(state.posterior, arms, rewards)
        state.round += 1
        return Info(ok)

    def seen(self, state: State, arms: Tensor, rewards: Tensor) -> Tensor:
        """The rewards as the posterior is about to take them, ``s``: truncated ones where a method truncates."""
        return rewards

    def learn(self, state: State, arms: Tensor, rewards: Tensor, uniform: Tensor | None = None) -> Info:
        """Take in a round of an initial design, which this rule did not choose; by default as :meth:`observe`."""
        return self.observe(state, arms, rewards, uniform)
