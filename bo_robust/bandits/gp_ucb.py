"""GP-UCB: x_t = argmax mu_{t-1}(x) + w_t sigma_{t-1}(x).

Srinivas, Krause, Kakade, Seeger (ICML 2010), Algorithm 1 and eq. (6). The width w_t (their beta_t^{1/2}) is any of
:mod:`bo_robust.confidence.widths`; it is given the realised information gain. The other files of this folder read as
differences from this one.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from bo_robust.bandits.base import ArmAlgorithm, PosteriorOverArms, Selection, State, checked_state
from bo_robust.confidence import Width
from bo_robust.ops.arm_update.cpu import NUMPY_MAX_ARMS
from bo_robust.utils.linalg import on_cuda, row_argmax


@dataclass(frozen=True)
class GPUCB(ArmAlgorithm):
    """GP-UCB."""

    width: Width

    @property
    def fused_rounds(self) -> bool:
        """Always."""
        return True

    def select(self, state: State, uniform: Tensor) -> Selection:
        """Choose the arm of largest upper confidence bound."""
        return select_ucb(state, self.width, uniform)


def select_ucb(state: State, width: Width, uniform: Tensor) -> Selection:
    """Choose the arm of largest mu + w sigma; ties go to the first."""
    posterior = checked_state(state, State).posterior
    w = width(state.round + 1, posterior.information_gain, uniform)
    return Selection(best_arms(posterior, w), w)


def best_arms(posterior: PosteriorOverArms, width: Tensor | float) -> Tensor:
    """The arm of largest mu + width sigma in every trial, ``s`` long; of a single trial by its views, if it has any."""
    single = getattr(posterior, "single", None)
    if single is None:
        return largest_bound(posterior.mean, posterior.variance, width)
    return bound_of_one(single.mean, single.variance, width)


def largest_bound(mean: Tensor, variance: Tensor, width: Tensor | float) -> Tensor:
    """The arm of largest mean + width sigma in every trial, ``s`` long, in plain torch; ties go to the first.

    ``mean`` and ``variance`` are ``s x n``; ``width`` is ``s`` or one number.
    """
    if on_cuda(mean) or mean.numel() > NUMPY_MAX_ARMS:
        per_arm = width.unsqueeze(1) if isinstance(width, Tensor) else width
        return row_argmax(torch.sqrt(variance).mul_(per_arm).add_(mean))
    if mean.shape[0] == 1:
        return bound_of_one(mean.numpy()[0], variance.numpy()[0], width)
    bound = np.sqrt(variance.numpy())
    bound *= width.numpy()[:, None] if isinstance(width, Tensor) else width
    bound += mean.numpy()
    return torch.from_numpy(bound.argmax(1))


def bound_of_one(mean: np.ndarray, variance: np.ndarray, width: Tensor | float) -> Tensor:
    """:func:`largest_bound` of a single trial, from arrays ``n``."""
    bound = np.sqrt(variance)
    bound *= width.item() if isinstance(width, Tensor) else width
    bound += mean
    return torch.from_numpy(bound.argmax(keepdims=True))
