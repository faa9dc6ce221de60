"""argmax over arms of mean + width * sigma: the choice of every UCB algorithm.

``naive`` is plain torch (four passes over the arms), ``fused`` one pass in Triton for CUDA. No gradients.
"""

import torch
from torch import Tensor

from bo_robust.ops.checked import dispatch
from bo_robust.ops.ucb_argmax import naive

__all__ = ["ucb_argmax"]


def ucb_argmax(mean: Tensor, variance: Tensor, width: float | Tensor) -> tuple[Tensor, Tensor]:
    """Return the first arm of largest mean + width sqrt(variance), ``s`` long, and this bound, ``s``.

    NaN counts as larger than any number, as in ``torch.argmax``: the first arm whose bound is NaN is returned.

    Args:
        mean: ``s x n``, float32 or float64, n >= 1.
        variance: ``s x n``.
        width: One number or one per trial, ``s``.

    Raises:
        ValueError: if shapes, dtypes or devices do not fit.
    """
    if mean.ndim != 2 or mean.shape[1] == 0 or mean.dtype not in (torch.float32, torch.float64):
        raise ValueError(f"mean must be s x n with n >= 1, float32 or float64, got {mean.dtype} {tuple(mean.shape)}.")
    if variance.shape != mean.shape or variance.dtype != mean.dtype or variance.device != mean.device:
        raise ValueError(
            f"variance must be as mean, {mean.dtype} {tuple(mean.shape)} on {mean.device}, "
            f"got {variance.dtype} {tuple(variance.shape)} on {variance.device}."
        )
    if isinstance(width, Tensor) and (width.shape not in (mean.shape[:1], ()) or width.device != mean.device):
        raise ValueError(
            f"width must be one number or {mean.shape[0]} on {mean.device}, "
            f"got shape {tuple(width.shape)} on {width.device}."
        )
    return dispatch(
        "ucb_argmax",
        mean,
        lambda fused: fused.ucb_argmax(mean, variance, width),
        lambda: naive.ucb_argmax(mean, variance, width),
    )
