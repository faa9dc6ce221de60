"""IRGP-UCB: GP-UCB with a randomised width w_t = sqrt(2 log(|X| / 2) + Exp(rate 1/2)).

Takeno, Inatsu, Karasuyama (ICML 2023), Theorem 4.2: if f is drawn from the prior and X is finite, the Bayesian regret
is sublinear although the width does not grow with t. Difference from :mod:`gp_ucb`: the width only.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from bo_robust.algorithms.base import ArmAlgorithm, Selection, State
from bo_robust.algorithms.gp_ucb import select_ucb
from bo_robust.confidence import RandomisedWidth


@dataclass(frozen=True)
class IRGPUCB(ArmAlgorithm):
    """IRGP-UCB. The ``scale`` of its width multiplies every draw."""

    default_width: ClassVar[Mapping[str, Any]] = {"kind": "randomised"}

    width: RandomisedWidth

    @property
    def fused_rounds(self) -> bool:
        """Always."""
        return True

    def select(self, state: State, uniform: Tensor) -> Selection:
        """Choose the arm of largest bound, with a fresh width per trial."""
        return select_ucb(state, self.width, uniform)
