"""The CPU's own round: same numbers as :mod:`naive`, its oracle, computing only what is needed.

On a CPU looking at data costs nothing, so a base row is computed once per block and arm (most rounds repeat an
arm of their block). A single trial runs on NumPy views of the same memory: at a few thousand arms a round is
some twenty calls, and a torch call costs several times a NumPy call.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from bo_robust.ops.arm_update.naive import (
    ArmBuffers,
    KernelRows,
    apply_,
    end_block_,
    posterior_row,
    refresh_inverse_,
)

__all__ = ["BlockRows", "update_"]

BlockRows = list[dict[int, np.ndarray]]
"""Base rows computed in this block, per trial and arm; empty at every block start."""

# Beyond this many arms a single trial is bound by memory, not by calls, and torch's threads pay.
NUMPY_MAX_ARMS = 20_000


def update_(
    buffers: ArmBuffers, arms: Tensor, rewards: Tensor, kernel_rows: KernelRows, block_rows: BlockRows
) -> Tensor:
    """Take in one reward per trial; arguments and result as :func:`naive.update_`."""
    if buffers.num_pending == buffers.pending.shape[1]:
        end_block_(buffers)
        for known in block_rows:
            known.clear()
    s, n = buffers.mean.shape
    if s == 1 and n <= NUMPY_MAX_ARMS:
        return _update_one_(buffers, arms, rewards, kernel_rows, block_rows)
    if buffers.dense:
        flat = arms + torch.arange(0, s * n, n)
        base = buffers.rows.view(s * n, n).index_select(0, flat)
    else:
        base = torch.empty_like(buffers.mean)
        out = base.numpy()
        for i, arm in enumerate(arms.tolist()):
            out[i] = _base_row_(buffers, i, arm, arms, kernel_rows, block_rows)
    return apply_(buffers, posterior_row(buffers, base, arms), arms, rewards)


def _base_row_(
    buffers: ArmBuffers, trial: int, arm: int, arms: Tensor, kernel_rows: KernelRows, block_rows: BlockRows
) -> np.ndarray:
    """C_base[a, :] of one arm of one trial (``n``), known from this block or computed; low rank only."""
    row = block_rows[trial].get(arm)
    if row is None:
        m = int(buffers.block_filled.numpy()[trial])
        if m and not buffers.inverse_ready.numpy()[trial]:
            refresh_inverse_(buffers, slice(trial, trial + 1), m, branch_free=False)
        slot = int(buffers.slots.numpy()[trial, arm])
        if slot < 0:
            slot = int(buffers.filled.numpy()[trial])
            _add_prior_row_(buffers, trial, slot, arm, kernel_rows(arms[trial : trial + 1], torch.tensor([trial])))
        rows, inverse = buffers.rows.numpy()[trial], buffers.inverse.numpy()[trial, :m, :m]
        pulls = buffers.row_counts.numpy()[trial, slot]
        if pulls > 0:
            row = (inverse[slot] * (buffers.noise_var.numpy()[trial] / pulls)) @ rows[:m]
        else:
            weights = inverse @ rows[slot, buffers.row_arm.numpy()[trial, :m]]
            row = rows[slot] - weights @ rows[:m]
        block_rows[trial][arm] = row
    return row


def _add_prior_row_(buffers: ArmBuffers, trial: int, slot: int, arm: int, k_row: Tensor) -> None:
    buffers.rows[trial, slot] = k_row[0]
    buffers.row_arm.numpy()[trial, slot] = arm
    buffers.slots.numpy()[trial, arm] = slot
    buffers.filled.numpy()[trial] = slot + 1
    buffers.num_rows = max(buffers.num_rows, slot + 1)


def _update_one_(
    buffers: ArmBuffers, arms: Tensor, rewards: Tensor, kernel_rows: KernelRows, block_rows: BlockRows
) -> Tensor:
    """:func:`naive.update_` of a single trial, on NumPy views of the buffers."""
    arm, reward, noise_var = int(arms), float(rewards), float(buffers.noise_var)
    if not math.isfinite(reward):
        return torch.zeros(1, dtype=torch.bool)
    if buffers.dense:
        row = buffers.rows.numpy()[0, arm]
    else:
        row = _base_row_(buffers, 0, arm, arms, kernel_rows, block_rows)
    pending = buffers.pending.numpy()[0]
    k = buffers.num_pending
    if k:
        row = row - pending[:k, arm] @ pending[:k]
    prior_variance = max(float(row[arm]), 0.0)
    scale = 1.0 / math.sqrt(prior_variance + noise_var)
    new = np.multiply(row, scale, out=pending[k])
    buffers.num_pending = k + 1
    mean, variance = buffers.mean.numpy()[0], buffers.variance.numpy()[0]
    mean += new * ((reward - float(mean[arm])) * scale)
    variance -= new * new
    np.maximum(variance, 0.0, out=variance)
    buffers.counts.numpy()[0, arm] += 1.0
    buffers.information_gain.numpy()[0] += 0.5 * math.log1p(prior_variance / noise_var)
    return torch.ones(1, dtype=torch.bool)
