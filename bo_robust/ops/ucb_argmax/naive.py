"""The choice in plain torch."""

import torch
from torch import Tensor

from bo_robust.linalg import row_argmax


@torch.no_grad()
def ucb_argmax(mean: Tensor, variance: Tensor, width: float | Tensor) -> tuple[Tensor, Tensor]:
    """See :func:`bo_robust.ops.ucb_argmax.ucb_argmax`."""
    bound = variance.sqrt().mul_(width.unsqueeze(1) if isinstance(width, Tensor) and width.ndim else width).add_(mean)
    arms = row_argmax(bound)
    return arms, bound.gather(1, arms.unsqueeze(1)).squeeze(1)
