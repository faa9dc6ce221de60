"""Greedy experimental design: argmax sigma_{t-1}(x) (Srinivas et al. 2010, eq. 4).

A baseline of theirs, and the rule behind the greedy bound on the maximum information gain
(:func:`bo_robust.confidence.information_gain.greedy`). Difference from :mod:`gp_ucb`: the rule.
"""

from dataclasses import dataclass

from torch import Tensor

from bo_robust.algorithms.base import ArmAlgorithm, Selection, State
from bo_robust.linalg import row_argmax


@dataclass(frozen=True)
class PureVariance(ArmAlgorithm):
    """Largest posterior variance; no settings."""

    def select(self, state: State, uniform: Tensor) -> Selection:
        """Choose the arm of largest posterior variance."""
        return Selection(row_argmax(state.posterior.variance))
