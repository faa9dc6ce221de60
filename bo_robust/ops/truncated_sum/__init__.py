"""Sums of rewards truncated in every direction of feature space: the inner step of ATA-GP-UCB on continuous X.

Ray Chowdhury & Gopalan 2019, Algorithm 2. With R a root of the inverse (R^T R = V^-1), phi_tau the features of
observation tau and u_tau = R phi_tau,

    out_i = sum_tau u_{i tau} y_tau 1{|u_{i tau} y_tau| <= b}.

Every past reward is truncated at the current level, separately in each direction i. So all ``p x t`` products are
formed again in every round, and no path keeps them. ``naive`` is plain torch, ``fused`` one Triton op for CUDA. The
sums carry no gradient: the indicator jumps as the level or the root changes.
"""

import torch
from torch import Tensor

from bo_robust.ops.checked import dispatch
from bo_robust.ops.truncated_sum import naive

__all__ = ["truncated_count", "truncated_sum"]


def truncated_sum(root: Tensor, features: Tensor, rewards: Tensor, level: float | Tensor) -> Tensor:
    """sum_tau u_{i tau} y_tau 1{|u_{i tau} y_tau| <= b} of Algorithm 2, ``... x p``.

    A product equal to the level is kept. One that overflows is truncated at every finite level. NaN rewards give NaN
    sums. The level ``inf`` gives R Phi^T y.

    Args:
        root: R, ``... x p x p``, float32 or float64.
        features: Phi, ``... x t x p``, or ``t x p`` if all batch members share it.
        rewards: y before truncation, ``... x t``.
        level: b >= 0, one number or one per batch member, ``...``. Compared in the dtype of ``root``.

    Raises:
        ValueError: if shapes, dtypes or devices do not fit.
    """
    _check(root, features, rewards, level)
    return dispatch(
        "truncated_sum",
        root,
        lambda fused: fused.truncated_sum(root, features, rewards, level),
        lambda: naive.truncated_sum(root, features, rewards, level),
    )


def truncated_count(root: Tensor, features: Tensor, rewards: Tensor, level: float | Tensor) -> Tensor:
    """Count the truncated products, ``...`` int64. Arguments and errors are those of :func:`truncated_sum`."""
    _check(root, features, rewards, level)
    return dispatch(
        "truncated_sum",
        root,
        lambda fused: fused.truncated_count(root, features, rewards, level),
        lambda: naive.truncated_count(root, features, rewards, level),
    )


def _check(root: Tensor, features: Tensor, rewards: Tensor, level: float | Tensor) -> None:
    batch, p, t = root.shape[:-2], root.shape[-1], rewards.shape[-1]
    if root.shape != (*batch, p, p):
        raise ValueError(f"root must be ... x p x p, got shape {tuple(root.shape)}.")
    if rewards.shape != (*batch, t):
        raise ValueError(f"rewards must be {tuple(batch)} x t like root, got shape {tuple(rewards.shape)}.")
    if features.shape not in ((*batch, t, p), (t, p)):
        raise ValueError(
            f"features must be {(*batch, t, p)} or, shared, {(t, p)} (t rewards, p rows of root), "
            f"got shape {tuple(features.shape)}."
        )
    if root.dtype not in (torch.float32, torch.float64):
        raise ValueError(f"root must be float32 or float64, got {root.dtype}; convert it.")
    for name, x in (("features", features), ("rewards", rewards)):
        if x.dtype != root.dtype or x.device != root.device:
            raise ValueError(f"{name} are {x.dtype} on {x.device}, root is {root.dtype} on {root.device}; convert one.")
    if isinstance(level, Tensor) and (level.shape not in (batch, ()) or level.device != root.device):
        raise ValueError(
            f"level must be one number or {tuple(batch)} on {root.device}, "
            f"got shape {tuple(level.shape)} on {level.device}."
        )
