"""Uniformly random arms: what no method should lose to. Difference from :mod:`gp_ucb`: the rule."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from bo_robust.algorithms.base import ArmAlgorithm, Selection, State

__all__ = ["RandomArm", "uniform_arms"]


@dataclass(frozen=True)
class RandomArm(ArmAlgorithm):
    """Uniformly random arms; no settings."""

    def select(self, state: State, uniform: Tensor) -> Selection:
        """One uniformly random arm per trial."""
        return Selection(uniform_arms(uniform, state.posterior.mean.shape[1]))


def uniform_arms(uniform: Tensor, num_arms: int) -> Tensor:
    """Arms ``s`` from draws of [0, 1)."""
    return (uniform * num_arms).long().clamp_(max=num_arms - 1)
