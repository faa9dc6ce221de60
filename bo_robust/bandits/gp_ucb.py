"""GP-UCB: x_t = argmax mu_{t-1}(x) + w_t sigma_{t-1}(x).

Srinivas, Krause, Kakade, Seeger (ICML 2010), Algorithm 1 and eq. (6). The width w_t (their beta_t^{1/2}) is any of
:mod:`bo_robust.confidence.widths`; it is given the realized information gain. The other files of this folder read as
differences from this one.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from bo_robust.bandits.base import ArmAlgorithm, Selection, State, checked_state
from bo_robust.confidence import Width
from bo_robust.confidence.base import width_at
from bo_robust.utils.linalg import on_cuda, row_argmax


@dataclass(frozen=True)
class GPUCB(ArmAlgorithm):
    """GP-UCB."""

    capturable: ClassVar[bool] = True

    width: Width

    def select(self, state: State, uniform: Tensor) -> Selection:
        """Choose the arm of largest upper confidence bound."""
        return select_ucb(checked_state(state, State), self.width, uniform)


def select_ucb(state: State, width: Width, uniform: Tensor) -> Selection:
    """Choose the arm of largest mu + w sigma; ties go to the first."""
    posterior = state.posterior
    w = width_at(width, state.round + 1, posterior.information_gain, uniform)
    return Selection(largest_bound(posterior.mean, posterior.variance, w), w)


def largest_bound(mean: Tensor, variance: Tensor, width: Tensor | float) -> Tensor:
    """The arm of largest mean + width sigma in every trial, ``s`` long; ties go to the first.

    ``mean`` and ``variance`` are ``s x n``; ``width`` is ``s`` or one number.
    """
    if on_cuda(mean):
        sd = variance.sqrt()
        if isinstance(width, Tensor):
            width = width.unsqueeze(1)
        return row_argmax(sd.mul_(width).add_(mean))  # rounds twice, where `addcmul` may once: replays are eager rounds
    bound = np.sqrt(variance.numpy())
    bound *= width.numpy()[:, None] if isinstance(width, Tensor) else width
    bound += mean.numpy()
    return torch.from_numpy(bound.argmax(1))
