"""The round on a CPU: the numbers of :mod:`naive`, but only what is needed is computed.

Reading data costs nothing on a CPU, and most rounds repeat an arm of their block, often the last one. After round j
pulled arm a, C[a, :] is a multiple of the pending row p_j:

    C_j[a, :] = C_{j-1}[a, :] lambda / (lambda + C_{j-1}[a, a]) = p_j lambda / sqrt(lambda + C_{j-1}[a, a]).

So only the pending rows after j are subtracted from it, and C_base[a, :] is formed once per block. At a few thousand
arms a round is some twenty calls, and a torch call costs several times a NumPy call: trials are updated one by one, in
NumPy. Against :mod:`naive` a round of GP-UCB is 4 times as fast for one trial of 100 arms, 3 times for one of 1000, and
4 to 5 times for several trials of 1000.
"""

import math

import numpy as np
import torch
from torch import Tensor

from bo_robust.ops.arm_update import naive
from bo_robust.ops.arm_update.naive import ArmBuffers, PriorRows
from bo_robust.utils.linalg import FEW_TRIALS, all_numbers


def update_(
    buffers: ArmBuffers, arms: Tensor, rewards: Tensor, kernel: PriorRows, counts: Tensor | None = None
) -> Tensor:
    """See :func:`naive.update_`. An arm out of range raises ``ValueError``."""
    s, n = buffers.mean.shape
    pulled = arms.tolist()
    if not 0 <= min(pulled) <= max(pulled) < n:
        raise ValueError(f"arms must be between 0 and {n - 1}, got {pulled}.")
    if buffers.dense and s > FEW_TRIALS:  # one batch has some forty calls, whatever the number of trials
        return naive.update_(buffers, arms, rewards.detach(), kernel, counts)
    if buffers.num_pending == buffers.pending.shape[1]:
        naive.end_block_(buffers)
    numbers = [1.0] * s if counts is None else counts.tolist()
    rounds = list(zip(pulled, rewards.tolist(), numbers, strict=True))
    observed = [math.isfinite(reward) and count > 0.0 for _, reward, count in rounds]
    step = 1 if buffers.dense else buffers.group
    assert step == 1 or counts is None
    if any(observed):
        for i in range(0, s, step):
            if not observed[i]:
                buffers.arrays.pending[i : i + step, buffers.num_pending] = 0.0
            elif step > 1:
                observed[i : i + step] = _condition_group_(buffers, slice(i, i + step), *rounds[i][:2], kernel)
            else:
                observed[i] = _condition_(buffers, i, *rounds[i], kernel)
        buffers.num_pending += 1
    return torch.from_numpy(np.array(observed))


def _condition_group_(buffers: ArmBuffers, trials: slice, arm: int, reward: float, kernel: PriorRows) -> list[bool]:
    """:func:`_condition_` of the trials of a group at once, in the low-rank layout.

    HE-GP-UCB over 16 candidates is 1.6 times as fast for it at n = 300 (4 trials), and 1.2 times at n = 1000.
    """
    arrays, k = buffers.arrays, buffers.num_pending
    mean, variance, noise_var = arrays.mean[trials], arrays.variance[trials], arrays.noise_var[trials]
    rows = arrays.pending[trials, k]
    _write_rows(buffers, trials, arm, kernel, rows)
    prior_variance = np.maximum(rows[:, arm], 0.0)
    scale = 1.0 / np.sqrt(prior_variance + noise_var)
    buffers.pulled[trials.start, arm] = k, noise_var * scale
    rows *= scale[:, None]
    step = rows * ((reward - mean[:, arm]) * scale)[:, None]
    mean += step
    variance -= np.multiply(rows, rows, out=step)
    if not variance.min() >= 0.0:  # rounding, or no number
        np.maximum(variance, 0.0, out=variance)
    arrays.counts[trials, arm] += 1.0
    arrays.information_gain[trials] += 0.5 * np.log1p(prior_variance / noise_var)
    if math.isfinite(np.vdot(mean, variance)):
        return [True] * len(mean)
    return all_numbers(torch.from_numpy(mean), torch.from_numpy(variance)).tolist()


def _write_rows(buffers: ArmBuffers, trials: slice, arm: int, kernel: PriorRows, out: np.ndarray) -> None:
    """:func:`_write_row` of the trials of a group, whose arms have the same slots, into ``out``, ``h x n``."""
    arrays, k = buffers.arrays, buffers.num_pending
    pending = arrays.pending[trials]
    done, factor = buffers.pulled.get((trials.start, arm), (-1, 1.0))
    if done >= 0:
        np.multiply(pending[:, done], np.expand_dims(factor, 1), out=out)
    else:
        if arrays.slots.item(trials.start, arm) < 0:
            for trial in range(trials.start, trials.stop):
                _slot(buffers, trial, arm, kernel)
        rows = arrays.rows[trials]
        out[:] = rows[:, arrays.slots.item(trials.start, arm)]
        if m := arrays.block_filled.item(trials.start):
            if not arrays.root_ready[trials.start]:
                naive.refresh_root_(buffers, trials, m, branch_free=False)
            root = arrays.root[trials, :m, :m]
            at_arms = root.transpose(0, 2, 1) @ (root @ out[:, arrays.row_arm[trials.start, :m], None])
            out -= (at_arms.transpose(0, 2, 1) @ rows[:, :m])[:, 0]
    if done + 1 < k:
        since = pending[:, done + 1 : k]
        out -= (since[:, None, :, arm].copy() @ since)[:, 0]


def _condition_(buffers: ArmBuffers, trial: int, arm: int, reward: float, count: float, kernel: PriorRows) -> bool:
    """Condition one trial, after which the caller raises ``num_pending``.

    Returns whether mean and variance are numbers everywhere.
    """
    arrays, k = buffers.arrays, buffers.num_pending
    mean, variance, row = arrays.mean[trial], arrays.variance[trial], arrays.pending[trial, k]
    _write_row(buffers, trial, arm, kernel, row)
    noise_var, prior_variance = arrays.noise_var.item(trial) / count, max(row.item(arm), 0.0)
    scale = 1.0 / math.sqrt(prior_variance + noise_var)
    buffers.pulled[trial, arm] = k, noise_var * scale
    row *= scale
    mean += row * ((reward - mean.item(arm)) * scale)
    variance -= row * row
    if not variance[variance.argmin()] >= 0.0:  # rounding, or no number
        np.maximum(variance, 0.0, out=variance)
    arrays.counts[trial, arm] += count
    arrays.information_gain[trial] += 0.5 * math.log1p(prior_variance / noise_var)
    if math.isfinite(mean.dot(variance)):
        return True
    return bool(all_numbers(torch.from_numpy(mean[None]), torch.from_numpy(variance[None])))


def _write_row(buffers: ArmBuffers, trial: int, arm: int, kernel: PriorRows, out: np.ndarray) -> None:
    """Write C[a, :] of a trial into ``out``, ``n``."""
    arrays, k = buffers.arrays, buffers.num_pending
    pending = arrays.pending[trial]
    done, factor = buffers.pulled.get((trial, arm), (-1, 1.0))
    if done >= 0:
        np.multiply(pending[done], factor, out)
    elif buffers.dense:
        out[:] = arrays.rows[trial, arm]
    else:
        rows = arrays.rows[trial]
        out[:] = rows[_slot(buffers, trial, arm, kernel)]
        if m := arrays.block_filled.item(trial):
            if not arrays.root_ready[trial]:
                naive.refresh_root_(buffers, slice(trial, trial + 1), m, branch_free=False)
            root = arrays.root[trial, :m, :m]
            out -= out[arrays.row_arm[trial, :m]].dot(root.T).dot(root).dot(rows[:m])
    if done + 1 < k:
        since = pending[done + 1 : k]
        out -= since[:, arm].copy().dot(since)


def _slot(buffers: ArmBuffers, trial: int, arm: int, kernel: PriorRows) -> int:
    """The slot of an arm's prior row; stores the row of a new arm first."""
    arrays = buffers.arrays
    slot: int = arrays.slots.item(trial, arm)
    if slot < 0:
        slot = arrays.filled.item(trial)
        kernel.write_row(arm, trial, arrays.rows[trial, slot])
        arrays.row_arm[trial, slot], arrays.slots[trial, arm], arrays.filled[trial] = arm, slot, slot + 1
        buffers.num_rows = max(buffers.num_rows, slot + 1)
    return slot
