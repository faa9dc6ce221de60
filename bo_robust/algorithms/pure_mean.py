"""Pure exploitation: argmax mu_{t-1}(x), a baseline of Srinivas et al. 2010.

The first arm is uniformly random (before any reward all means are equal). Difference from :mod:`gp_ucb`: the rule.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from bo_robust.algorithms.base import ArmAlgorithm, Selection, State
from bo_robust.algorithms.random_arm import uniform_arms
from bo_robust.linalg import row_argmax

__all__ = ["PureMean"]


@dataclass(frozen=True)
class PureMean(ArmAlgorithm):
    """Largest posterior mean; no settings."""

    def select(self, state: State, uniform: Tensor) -> Selection:
        """The arm of largest posterior mean."""
        if state.round == 0:
            return Selection(uniform_arms(uniform, state.posterior.mean.shape[1]))
        return Selection(row_argmax(state.posterior.mean))
