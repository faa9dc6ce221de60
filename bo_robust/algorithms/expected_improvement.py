"""Expected improvement (Mockus et al. 1978) over the best posterior mean of the arms pulled so far.

A baseline of Srinivas et al. 2010. The rule compares log EI, so that it also ranks arms far below the incumbent.
Difference from :mod:`gp_ucb`: the rule.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from bo_robust.algorithms.base import ArmAlgorithm, Selection, State
from bo_robust.linalg import row_argmax
from bo_robust.posteriors.arms import ArmPosterior


@dataclass(frozen=True)
class ExpectedImprovement(ArmAlgorithm):
    """Expected improvement; no settings."""

    def select(self, state: State, uniform: Tensor) -> Selection:
        """Choose the arm of largest expected improvement."""
        posterior = state.posterior
        # Not zero: z and log sigma stay finite at an arm that is known exactly.
        sigma = posterior.variance.clamp(min=torch.finfo(posterior.mean.dtype).tiny).sqrt_()
        z = (posterior.mean - incumbent(posterior)).div_(sigma)
        return Selection(row_argmax(log_expected_improvement(z).add_(sigma.log())))


def incumbent(posterior: ArmPosterior) -> Tensor:
    """Best posterior mean of the arms pulled so far, ``s x 1``; of all arms before the first reward."""
    pulled = posterior.counts > 0
    unseen = ~pulled.any(1, keepdim=True)
    return torch.where(pulled | unseen, posterior.mean, -math.inf).amax(1, keepdim=True)


def log_expected_improvement(z: Tensor) -> Tensor:
    """log(phi(z) + z Phi(z)), the log of the expected improvement at sigma = 1 for a mean z above the incumbent."""
    # Both branches are computed everywhere; each gets arguments of its own range only, so that none overflows.
    upper, lower = z.clamp(min=-1.0), z.clamp(max=-1.0)
    log_phi = -0.5 * lower.square() - 0.5 * math.log(2.0 * math.pi)
    # The Mills ratio Phi(z) / phi(z) does not underflow. z times it tends to -1, and rounding must not pass that.
    mills = torch.special.erfcx(lower / -math.sqrt(2.0)).mul_(math.sqrt(0.5 * math.pi))
    below = log_phi + torch.log1p((lower * mills).clamp_(min=-1.0 + torch.finfo(z.dtype).eps))
    phi = torch.exp(-0.5 * upper.square()) / math.sqrt(2.0 * math.pi)
    above = torch.log(phi + upper * torch.special.ndtr(upper))
    return torch.where(z < -1.0, below, above)
