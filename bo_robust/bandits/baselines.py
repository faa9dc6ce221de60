"""Rules that others are compared with. Difference of all from :mod:`gp_ucb`: the rule.

Expected improvement (Mockus et al. 1978), most probable improvement (Mockus 1989), the largest mean and the largest
variance are the baselines of Srinivas et al. 2010.
"""

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from bo_robust.bandits.base import ArmAlgorithm, Selection, State, checked_state, uniform_arms
from bo_robust.bandits.gp_ucb import GPUCB
from bo_robust.bandits.posteriors.arms import ArmPosterior
from bo_robust.utils.input_checks import Positive
from bo_robust.utils.linalg import row_argmax


@dataclass(frozen=True)
class IRGPUCB(GPUCB):
    """IRGP-UCB: :class:`GPUCB` with the randomized width w_t = sqrt(2 log(|X| / 2) + Exp(rate 1/2)) by default.

    Takeno, Inatsu, Karasuyama (ICML 2023), Theorem 4.2: if f is drawn from the prior and X is finite, the Bayesian
    regret is sublinear although the width does not grow with t. The ``scale`` of the width multiplies every draw.
    """

    capturable: ClassVar[bool] = True


@dataclass(frozen=True)
class ExpectedImprovement(ArmAlgorithm):
    """Expected improvement over the best posterior mean of the arms pulled so far; no settings.

    The rule compares log EI, so that it also ranks arms far below the incumbent.
    """

    capturable: ClassVar[bool] = True

    def select(self, state: State, uniform: Tensor) -> Selection:
        """Choose the arm of largest expected improvement."""
        posterior = checked_state(state, State).posterior
        # Not zero: z and log sigma stay finite at an arm that is known exactly.
        sigma = posterior.variance.clamp(min=torch.finfo(posterior.mean.dtype).tiny).sqrt_()
        z = (posterior.mean - incumbent(posterior)).div_(sigma)
        return Selection(row_argmax(log_expected_improvement(z).add_(sigma.log())))


@dataclass(frozen=True)
class ProbabilityOfImprovement(ArmAlgorithm):
    """Most probable improvement: argmax Phi((mu - incumbent - margin) / sigma).

    Srinivas et al. leave incumbent and margin open. Ours are the best posterior mean of the arms pulled so far, and a
    margin in units of the reward.

    Args:
        margin: Improvement asked for, > 0, in units of the reward. Without a margin the best mean always wins.
    """

    capturable: ClassVar[bool] = True

    margin: Positive = 0.1

    def select(self, state: State, uniform: Tensor) -> Selection:
        """Choose the arm most probably better than the incumbent by the margin."""
        posterior = checked_state(state, State).posterior
        # Not zero, as an arm that is known exactly would divide by it.
        sigma = posterior.variance.clamp(min=torch.finfo(posterior.mean.dtype).tiny).sqrt_()
        return Selection(row_argmax((posterior.mean - (incumbent(posterior) + self.margin)).div_(sigma)))


@dataclass(frozen=True)
class PureMean(ArmAlgorithm):
    """Pure exploitation: argmax mu_{t-1}(x), and uniformly random arms until a trial has a reward; no settings."""

    capturable: ClassVar[bool] = True

    def select(self, state: State, uniform: Tensor) -> Selection:
        """Choose the arm of largest posterior mean."""
        posterior = checked_state(state, State).posterior
        seen = posterior.counts.amax(1) > 0
        start = uniform_arms(uniform, posterior.mean.shape[1])
        return Selection(torch.where(seen, row_argmax(posterior.mean), start))


@dataclass(frozen=True)
class PureVariance(ArmAlgorithm):
    """Greedy experimental design: argmax sigma_{t-1}(x) (Srinivas et al. 2010, eq. 4); no settings.

    It is the rule behind the greedy bound on the maximum information gain
    (:func:`bo_robust.confidence.information_gain.greedy`).
    """

    capturable: ClassVar[bool] = True

    def select(self, state: State, uniform: Tensor) -> Selection:
        """Choose the arm of largest posterior variance."""
        return Selection(row_argmax(checked_state(state, State).posterior.variance))


@dataclass(frozen=True)
class RandomArm(ArmAlgorithm):
    """Uniformly random arms; no settings."""

    capturable: ClassVar[bool] = True
    is_baseline: ClassVar[bool] = True

    def select(self, state: State, uniform: Tensor) -> Selection:
        """Choose one uniformly random arm per trial."""
        return Selection(uniform_arms(uniform, checked_state(state, State).posterior.mean.shape[1]))


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
