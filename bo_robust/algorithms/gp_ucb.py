"""GP-UCB: x_t = argmax mu_{t-1}(x) + w_t sigma_{t-1}(x).

Srinivas, Krause, Kakade, Seeger (ICML 2010), Algorithm 1 and eq. (6). The width w_t is any of
:mod:`bo_robust.schedules.widths` (their beta_t^{1/2}); it is handed the realised information gain.
The other files of this folder read as differences from this one.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from bo_robust.algorithms.base import ArmAlgorithm, Selection, State
from bo_robust.linalg import row_argmax
from bo_robust.ops.ucb_argmax import ucb_argmax
from bo_robust.schedules import Width

__all__ = ["GPUCB", "select_ucb"]


@dataclass(frozen=True)
class GPUCB(ArmAlgorithm):
    """GP-UCB.

    Args:
        width: Confidence width w_t.
    """

    width: Width

    def select(self, state: State, uniform: Tensor) -> Selection:
        """The arm of largest upper confidence bound."""
        return select_ucb(state, self.width, uniform)


def select_ucb(state: State, width: Width, uniform: Tensor) -> Selection:
    """argmax of mu + w sigma over the arms, first of equals."""
    posterior = state.posterior
    w = width(state.round + 1, posterior.information_gain, uniform)
    if posterior.mean.is_cuda:
        return Selection(ucb_argmax(posterior.mean, posterior.variance, w)[0], w)
    bound = posterior.variance.sqrt().mul_(w.unsqueeze(1) if isinstance(w, Tensor) else w).add_(posterior.mean)
    return Selection(row_argmax(bound), w)
