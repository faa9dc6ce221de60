"""IRGP-UCB: GP-UCB with a randomised width w_t = sqrt(2 log(|X| / 2) + Exp(rate 1/2)).

Takeno, Inatsu, Karasuyama (ICML 2023), Theorem 4.2: for f drawn from the prior and finite X the Bayesian
regret is sublinear although the width does not grow with t. Difference from :mod:`gp_ucb`: the width only.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from bo_robust.algorithms.base import ArmAlgorithm, Selection, State
from bo_robust.algorithms.gp_ucb import select_ucb
from bo_robust.schedules import RandomisedWidth

__all__ = ["IRGPUCB"]


@dataclass(frozen=True)
class IRGPUCB(ArmAlgorithm):
    """IRGP-UCB.

    Args:
        width: The randomised width; its ``scale`` multiplies every draw.
    """

    width: RandomisedWidth

    def select(self, state: State, uniform: Tensor) -> Selection:
        """The arm of largest bound, with a fresh width per trial."""
        return select_ucb(state, self.width, uniform)
