"""Most probable improvement (Mockus 1989): argmax Phi((mu - incumbent - margin) / sigma).

A baseline of Srinivas et al. 2010, who leave incumbent and margin open. Ours are the best posterior mean of the arms
pulled so far, and a margin in units of the reward. Difference from :mod:`gp_ucb`: the rule.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from bo_robust.algorithms.base import ArmAlgorithm, Selection, State
from bo_robust.algorithms.expected_improvement import incumbent
from bo_robust.linalg import row_argmax
from bo_robust.validation import check_positive


@dataclass(frozen=True)
class ProbabilityOfImprovement(ArmAlgorithm):
    """Probability of improvement.

    Args:
        margin: Improvement asked for, > 0, in units of the reward. Without a margin the best mean always wins.
    """

    margin: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(margin=self.margin)

    def select(self, state: State, uniform: Tensor) -> Selection:
        """Choose the arm most probably better than the incumbent by the margin."""
        posterior = state.posterior
        # Not zero, as an arm that is known exactly would divide by it.
        sigma = posterior.variance.clamp(min=torch.finfo(posterior.mean.dtype).tiny).sqrt_()
        return Selection(row_argmax((posterior.mean - (incumbent(posterior) + self.margin)).div_(sigma)))
