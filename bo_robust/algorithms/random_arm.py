"""Uniformly random arms, to which no method should lose. Difference from :mod:`gp_ucb`: the rule."""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from bo_robust.algorithms.base import ArmAlgorithm, Selection, State


@dataclass(frozen=True)
class RandomArm(ArmAlgorithm):
    """Uniformly random arms; no settings."""

    is_baseline: ClassVar[bool] = True

    def select(self, state: State, uniform: Tensor) -> Selection:
        """Choose one uniformly random arm per trial."""
        return Selection(uniform_arms(uniform, state.posterior.mean.shape[1]))


def uniform_arms(uniform: Tensor, num_arms: int) -> Tensor:
    """Arms, ``s`` long, from draws of [0, 1)."""
    # uniform * num_arms can round up to num_arms.
    return (uniform * num_arms).long().clamp_(max=num_arms - 1)
