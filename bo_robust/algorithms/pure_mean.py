"""Pure exploitation: argmax mu_{t-1}(x), a baseline of Srinivas et al. 2010.

Before its first reward all means of a trial are equal, so its arms are uniformly random. Difference from :mod:`gp_ucb`:
the rule.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from bo_robust.algorithms.base import ArmAlgorithm, Selection, State
from bo_robust.algorithms.random_arm import uniform_arms
from bo_robust.linalg import row_argmax


@dataclass(frozen=True)
class PureMean(ArmAlgorithm):
    """Largest posterior mean; no settings."""

    def select(self, state: State, uniform: Tensor) -> Selection:
        """Choose the arm of largest posterior mean."""
        posterior = state.posterior
        seen = posterior.counts.amax(1) > 0
        start = uniform_arms(uniform, posterior.mean.shape[1])
        return Selection(torch.where(seen, row_argmax(posterior.mean), start))
