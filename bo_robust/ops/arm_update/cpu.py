"""The round on a CPU: the numbers of :mod:`naive`, but only what is needed is computed.

Reading data costs nothing on a CPU. So in the low-rank layout the row of an arm is computed once per block and brought
up to date when the arm comes again. Most rounds repeat an arm of their block, often the last one. Rows and single
trials use NumPy views of the same memory: at a few thousand arms a round is some twenty calls, and a torch call costs
several times a NumPy call.
"""

import math
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from bo_robust.ops.arm_update.naive import (
    ArmBuffers,
    KernelRows,
    apply_,
    end_block_,
    posterior_row,
    refresh_root_,
)


class Views(NamedTuple):
    """NumPy views of one trial's buffers; those of all trials are the last four."""

    pending: np.ndarray
    mean: np.ndarray
    variance: np.ndarray
    counts: np.ndarray
    rows: np.ndarray
    row_arm: np.ndarray
    root: np.ndarray
    slots: np.ndarray
    information_gain: np.ndarray
    noise_var: np.ndarray
    filled: np.ndarray
    block_filled: np.ndarray


@dataclass
class Scratch:
    """What the rounds of one block share: derived from the buffers, cleared at the end of the block, never saved."""

    # Per trial and arm, C[a, :] when the arm was last pulled in this block, `n`, and the number of pending rows in it.
    # A group keeps its rows, `group x n`, with its first trial.
    rows: list[dict[int, tuple[np.ndarray, int]]]
    # Number of neighbouring trials (candidates of one trial) that always pull the same arms and have the same failed
    # pulls. One batched call serves them all.
    group: int = 1
    # Views per trial, made as needed. Whoever replaces a buffer clears them.
    views: dict[int, Views] = field(default_factory=dict)
    # Rows no longer known. Long rows are written over: the system would clear new memory page by page.
    free: list[np.ndarray] = field(default_factory=list)
    # One number per trial and arm, for whoever needs it within a call; see :meth:`room_like`
    room: Tensor | None = None

    def __reduce__(self) -> tuple[type, tuple[list[dict[int, tuple[np.ndarray, int]]], int]]:
        """A copy, or what is pickled, knows nothing: views of the original would not follow the copy's buffers."""
        return Scratch, ([{} for _ in self.rows], self.group)

    def room_like(self, x: Tensor) -> Tensor | None:
        """Memory of the shape of ``x`` that lasts, where that is large; else None."""
        if x.numel() <= NUMPY_MAX_ARMS:
            return None
        if self.room is None:
            self.room = torch.empty_like(x)
        return self.room

    def views_of(self, buffers: ArmBuffers, trial: int) -> Views:
        """The views of a trial."""
        if trial not in self.views:
            own, shared = Views._fields[:8], Views._fields[8:]
            parts = [getattr(buffers, name).numpy()[trial] for name in own]
            self.views[trial] = Views(*parts, *(getattr(buffers, name).numpy() for name in shared))
        return self.views[trial]

    def clear(self) -> None:
        """Forget everything."""
        self.views.clear()
        for known in self.rows:
            self.free += [row for row, _ in known.values() if len(row) > NUMPY_MAX_ARMS]
            known.clear()


# Beyond this many arms a single trial is bound by memory rather than by calls, and torch's threads are worth it.
NUMPY_MAX_ARMS = 20_000


def update_(
    buffers: ArmBuffers,
    arms: Tensor,
    rewards: Tensor,
    kernel_rows: KernelRows,
    scratch: Scratch,
    counts: Tensor | None = None,
) -> Tensor:
    """See :func:`naive.update_`."""
    if buffers.num_pending == buffers.pending.shape[1]:
        end_block_(buffers)
        scratch.clear()
    s, n = buffers.mean.shape
    if s == 1 and n <= NUMPY_MAX_ARMS:
        return _update_one_(buffers, arms, rewards, kernel_rows, scratch, counts)
    low, high = arms.aminmax()
    if int(low) < 0 or int(high) >= n:
        raise ValueError(_out_of_range(n, arms))
    if counts is not None and not counts.all():
        return _update_some_(buffers, arms, rewards, kernel_rows, scratch, counts)
    if buffers.dense:
        base = buffers.rows.view(s * n, n).index_select(0, arms + torch.arange(0, s * n, n))
        row = posterior_row(buffers, base, arms)
    elif s == 1:
        known = _low_rank_row_(buffers, 0, int(arms), buffers.pending.numpy()[0], kernel_rows, scratch)
        row = torch.from_numpy(known).unsqueeze(0)
    else:
        row, pending = torch.empty_like(buffers.mean), buffers.pending.numpy()
        out, g = row.numpy(), scratch.group if n <= NUMPY_MAX_ARMS else 1
        for i, arm in zip(range(0, s, g), arms[::g].tolist(), strict=True):
            if g == 1:
                out[i] = _low_rank_row_(buffers, i, arm, pending[i], kernel_rows, scratch)
            else:
                out[i : i + g] = _group_rows_(buffers, slice(i, i + g), arm, pending[i : i + g], kernel_rows, scratch)
    return apply_(buffers, row, arms, rewards, counts)


def _low_rank_row_(
    buffers: ArmBuffers, trial: int, arm: int, pending: np.ndarray, kernel_rows: KernelRows, scratch: Scratch
) -> np.ndarray:
    """C[a, :] of one trial, ``n``, read only; ``pending`` are the trial's rows, ``b x n``."""
    k = buffers.num_pending
    row, done = scratch.rows[trial].get(arm) or (_base_row_(buffers, trial, arm, kernel_rows, scratch), 0)
    if k > done:
        _subtract_product_(row, pending[done:k, arm], pending[done:k])
    scratch.rows[trial][arm] = (row, k)
    return row


def _base_row_(buffers: ArmBuffers, trial: int, arm: int, kernel_rows: KernelRows, scratch: Scratch) -> np.ndarray:
    """C_base[a, :] of one trial, ``n``. Stores the prior row of a new arm first."""
    views = scratch.views_of(buffers, trial)
    m, slot = int(views.block_filled[trial]), int(views.slots[arm])
    if slot < 0:
        slot = int(views.filled[trial])
        place = torch.from_numpy(np.array([arm])), torch.from_numpy(np.array([trial]))
        if len(views.mean) > NUMPY_MAX_ARMS:
            kernel_rows(*place, buffers.rows[trial, slot : slot + 1])
            row = _copy(views.rows[slot], scratch.free)
        else:
            views.rows[slot] = row = kernel_rows(*place).numpy()[0]
        _note_row_(buffers, views, trial, slot, arm)
    else:
        row = _copy(views.rows[slot], scratch.free)
    if m:
        if not buffers.root_ready.numpy()[trial]:
            refresh_root_(buffers, slice(trial, trial + 1), m, branch_free=False)
        root = views.root[:m, :m]
        _subtract_product_(row, (root @ row[views.row_arm[:m]]) @ root, views.rows[:m])
    return row


def _group_rows_(
    buffers: ArmBuffers, trials: slice, arm: int, pending: np.ndarray, kernel_rows: KernelRows, scratch: Scratch
) -> np.ndarray:
    """:func:`_low_rank_row_` of all g trials of a group, ``g x n``; ``pending`` is ``g x b x n``."""
    k, known = buffers.num_pending, scratch.rows[trials.start]
    rows, done = known.get(arm) or (_group_base_rows_(buffers, trials, arm, kernel_rows, scratch), 0)
    if k > done:
        rows -= np.matmul(pending[:, None, done:k, arm], pending[:, done:k])[:, 0]
    known[arm] = (rows, k)
    return rows


def _group_base_rows_(
    buffers: ArmBuffers, trials: slice, arm: int, kernel_rows: KernelRows, scratch: Scratch
) -> np.ndarray:
    """:func:`_base_row_` of all trials of a group, ``g x n``. Their rows are of the same arms in the same slots."""
    first = trials.start
    m = int(buffers.block_filled.numpy()[first])
    if m and not buffers.root_ready.numpy()[first]:
        refresh_root_(buffers, trials, m, branch_free=False)
    slot = int(buffers.slots.numpy()[first, arm])
    if slot < 0:
        slot = int(buffers.filled.numpy()[first])
        everyone = torch.arange(first, trials.stop)
        prior = kernel_rows(torch.full_like(everyone, arm), everyone)
        for i in everyone.tolist():
            views = scratch.views_of(buffers, i)
            views.rows[slot] = prior[i - first].numpy()
            _note_row_(buffers, views, i, slot, arm)
    rows, root = buffers.rows.numpy()[trials], buffers.root.numpy()[trials, :m, :m]
    row = rows[:, slot].copy()
    if m:
        at_arms = rows[:, slot, buffers.row_arm.numpy()[first, :m]]
        weights = np.matmul(np.matmul(root, at_arms[:, :, None])[:, None, :, 0], root)
        row -= np.matmul(weights, rows[:, :m])[:, 0]
    return row


def _subtract_product_(row: np.ndarray, weights: np.ndarray, rows: np.ndarray) -> None:
    """row -= weights @ rows."""
    if len(row) > NUMPY_MAX_ARMS:  # one pass, because rows are too long for the cache
        torch.from_numpy(row).addmv_(torch.from_numpy(rows).T, torch.from_numpy(weights.copy()), alpha=-1.0)
    else:
        row -= weights[0] * rows[0] if len(rows) == 1 else weights @ rows


def _copy(row: np.ndarray, free: list[np.ndarray]) -> np.ndarray:
    """A copy, in memory that is free if there is some."""
    if not free:
        return row.copy()
    np.copyto(copy := free.pop(), row)
    return copy


def _note_row_(buffers: ArmBuffers, views: Views, trial: int, slot: int, arm: int) -> None:
    """Note that the prior row of an arm is in its slot."""
    views.row_arm[slot], views.slots[arm], views.filled[trial] = arm, slot, slot + 1
    buffers.num_rows = max(buffers.num_rows, slot + 1)


def _update_one_(
    buffers: ArmBuffers,
    arms: Tensor,
    rewards: Tensor,
    kernel_rows: KernelRows,
    scratch: Scratch,
    counts: Tensor | None,
) -> Tensor:
    """:func:`naive.update_` of a single trial."""
    arm, reward, count = int(arms), float(rewards), 1.0 if counts is None else float(counts)
    if not 0 <= arm < buffers.mean.shape[1]:
        raise ValueError(_out_of_range(buffers.mean.shape[1], arms))
    ok = math.isfinite(reward) and count != 0.0
    if ok:
        _take_in_(buffers, 0, arm, reward, count, kernel_rows, scratch)
        buffers.num_pending += 1
    return torch.from_numpy(np.array([ok]))


def _update_some_(
    buffers: ArmBuffers, arms: Tensor, rewards: Tensor, kernel_rows: KernelRows, scratch: Scratch, counts: Tensor
) -> Tensor:
    """:func:`naive.update_` if some trials take nothing in. For these only the pending row, zero, is written."""
    ok = rewards.isfinite().logical_and_(counts > 0)
    buffers.pending[:, buffers.num_pending].numpy()[~ok.numpy()] = 0.0
    for i in ok.nonzero().squeeze(1).tolist():
        _take_in_(buffers, i, int(arms[i]), float(rewards[i]), float(counts[i]), kernel_rows, scratch)
    buffers.num_pending += 1
    return ok


def _take_in_(
    buffers: ArmBuffers,
    trial: int,
    arm: int,
    reward: float,
    count: float,
    kernel_rows: KernelRows,
    scratch: Scratch,
) -> None:
    """One trial's part of a round, on NumPy views of the buffers. The caller raises ``num_pending``."""
    views = scratch.views_of(buffers, trial)
    pending, mean, variance, k = views.pending, views.mean, views.variance, buffers.num_pending
    if buffers.dense:
        row = views.rows[arm] - pending[:k, arm] @ pending[:k]
    else:
        row = _low_rank_row_(buffers, trial, arm, pending, kernel_rows, scratch)
    noise_var, prior_variance = views.noise_var.item(trial) / count, max(row.item(arm), 0.0)
    scale = 1.0 / math.sqrt(prior_variance + noise_var)
    new = np.multiply(row, scale, out=pending[k])
    mean += new * ((reward - mean.item(arm)) * scale)
    variance -= new * new
    np.maximum(variance, 0.0, out=variance)
    views.counts[arm] += count
    views.information_gain[trial] += 0.5 * math.log1p(prior_variance / noise_var)


def _out_of_range(n: int, arms: Tensor) -> str:
    return f"arms must be between 0 and {n - 1}, got {arms.tolist()}."
