"""What every finite-arm algorithm shares: the state, the round, and how it starts.

A round is ``selection = algorithm.select(state, uniform)``, then rewards from the world, then
``algorithm.observe(state, selection.arms, rewards)``. ``select`` is pure; ``observe`` updates the state in place.
All trials advance together and nothing returns to the host.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from torch import Tensor

from bo_robust.states import arms as arm_states
from bo_robust.states.arms import ArmKernel, ArmPosterior

__all__ = ["ArmAlgorithm", "Info", "Selection", "State"]


@dataclass
class State:
    """Posterior of all trials after ``round`` rounds."""

    posterior: ArmPosterior
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
        truncated: ``s`` bool, True where a reward was set to zero; None for methods that never do.
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

    def observe(self, state: State, arms: Tensor, rewards: Tensor) -> Info:
        """Take in the ``rewards`` (``s``) of ``arms`` (``s``), in place."""
        ok = arm_states.observe(state.posterior, arms, rewards)
        state.round += 1
        return Info(ok)
