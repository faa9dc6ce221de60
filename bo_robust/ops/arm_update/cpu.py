"""The round on a CPU: the numbers of :mod:`naive`, but only what is needed is computed.

Reading data costs nothing on a CPU, and most rounds repeat an arm of their block, often the last one. After round j
pulled arm a, C[a, :] is a multiple of the pending row p_j:

    C_j[a, :] = C_{j-1}[a, :] lambda / (lambda + C_{j-1}[a, a]) = p_j lambda / sqrt(lambda + C_{j-1}[a, a]).

So only the pending rows after j are subtracted from it, and C_base[a, :] is formed once per block. At a few thousand
arms a round is some twenty calls, and a torch call costs several times a NumPy call: single trials use NumPy views of
the same memory. Beyond, a row is read from memory whole: in pieces that fit the cache the products took longer
(``docs/results/speed.md``).
"""

import math
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

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
from bo_robust.utils.linalg import all_numbers

# Beyond this many arms a row no longer fits the cache: memory and torch's threads count, not calls.
NUMPY_MAX_ARMS = 20_000
# Up to this many trials are played one by one: a batched round has some forty calls whatever the number of trials.
FEW_TRIALS = 4


class PriorRows(Protocol):
    """The prior covariance, :class:`bo_robust.bandits.posteriors.arm_kernel.ArmKernel`."""

    @property
    def rows(self) -> KernelRows: ...

    def write_row(self, arm: int, trials: int | slice, out: np.ndarray) -> None:
        """Write K[a, :] of one arm into ``out``: ``n`` in one trial, ``t x n`` in neighbouring ones."""


class Views(NamedTuple):
    """NumPy views of the buffers of one trial, or of a group of them; those of all trials are the last five."""

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
    root_ready: np.ndarray


@dataclass
class Scratch:
    """What the rounds of one block share: derived from the buffers, cleared at the end of the block, never saved."""

    # Per trial and arm, the pending row of its last pull in this block and the factor that makes it C[a, :], a number.
    # A group keeps its factors, `group x 1`, with its first trial.
    pulled: list[dict[int, tuple[int, float | np.ndarray]]]
    # Number of neighbouring trials (candidates of one trial) that always pull the same arms and have the same failed
    # pulls. One batched call serves them all.
    group: int = 1
    # Views per trial or group, made as needed. Whoever replaces a buffer clears them.
    views: dict[int, Views] = field(default_factory=dict)

    def __reduce__(self) -> tuple[type, tuple[list[dict[int, tuple[int, float]]], int]]:
        """A copy, or what is pickled, knows nothing: views of the original would not follow the copy's buffers."""
        return Scratch, ([{} for _ in self.pulled], self.group)

    def views_of(self, buffers: ArmBuffers, trials: int | slice) -> Views:
        """The views of a trial, or of a group."""
        first = trials.start if isinstance(trials, slice) else trials
        if first not in self.views:
            own, shared = Views._fields[:8], Views._fields[8:]
            parts = [getattr(buffers, name).numpy()[trials] for name in own]
            self.views[first] = Views(*parts, *(getattr(buffers, name).numpy() for name in shared))
        return self.views[first]

    @property
    def single(self) -> Views | None:
        """The views of the only trial, if they are made and it is played in NumPy."""
        views = self.views.get(0) if len(self.pulled) == 1 else None
        return None if views is None or len(views.mean) > NUMPY_MAX_ARMS else views

    def clear(self) -> None:
        """Forget everything."""
        self.views.clear()
        for known in self.pulled:
            known.clear()


def update_(
    buffers: ArmBuffers,
    arms: Tensor,
    rewards: Tensor,
    kernel: PriorRows,
    scratch: Scratch,
    counts: Tensor | None = None,
) -> Tensor:
    """See :func:`naive.update_`."""
    if buffers.num_pending == buffers.pending.shape[1]:
        end_block_(buffers)
        scratch.clear()
    if len(scratch.pulled) == 1:
        views = scratch.views_of(buffers, 0)
        arm, reward, count = int(arms.item()), rewards.item(), 1.0 if counts is None else counts.item()
        if not 0 <= arm < len(views.mean):
            raise ValueError(_out_of_range(len(views.mean), arms))
        took = math.isfinite(reward) and count != 0.0
        if took:
            took = _take_in_(buffers, 0, views, arm, reward, count, kernel, scratch)
            buffers.num_pending += 1
        return torch.from_numpy(np.array([took]))
    s, n = buffers.mean.shape
    rewards = rewards.detach()
    low, high = arms.aminmax()
    if int(low) < 0 or int(high) >= n:
        raise ValueError(_out_of_range(n, arms))
    few = s <= FEW_TRIALS and scratch.group == 1
    if few or n > NUMPY_MAX_ARMS or (counts is not None and not counts.all()):
        return _update_each_(buffers, arms, rewards, kernel, scratch, counts)
    if buffers.dense:
        base = buffers.rows.view(s * n, n).index_select(0, arms + torch.arange(0, s * n, n))
        ok = apply_(buffers, posterior_row(buffers, base, arms), arms, rewards, counts)
    else:
        ok = _update_all_(buffers, arms, rewards, kernel, scratch, counts)
    return ok.logical_and_(all_numbers(buffers.mean, buffers.variance))


def _update_all_(
    buffers: ArmBuffers,
    arms: Tensor,
    rewards: Tensor,
    kernel: PriorRows,
    scratch: Scratch,
    counts: Tensor | None,
) -> Tensor:
    """:func:`naive.update_` of many trials in the low-rank layout: rows one by one, what follows at once."""
    s, k, g = len(arms), buffers.num_pending, scratch.group
    row, pulled = buffers.pending[:, k], arms[::g].tolist()
    out, noise_var = row.numpy(), buffers.noise_var.numpy()
    for i, arm in zip(range(0, s, g), pulled, strict=True):
        trials = slice(i, i + g) if g > 1 else i
        _row_(buffers, trials, scratch.views_of(buffers, trials), arm, kernel, scratch, out[trials])
    if counts is not None:
        noise_var = noise_var / counts.numpy()
    factors = noise_var / np.sqrt(noise_var + np.maximum(out[np.arange(s), arms.numpy()], 0.0))
    ok = apply_(buffers, row, arms, rewards, counts)
    for i, arm, took in zip(range(0, s, g), pulled, ok[::g].tolist(), strict=True):
        if took:
            scratch.pulled[i][arm] = k, factors[i : i + g, None] if g > 1 else factors.item(i)
    return ok


def _update_each_(
    buffers: ArmBuffers,
    arms: Tensor,
    rewards: Tensor,
    kernel: PriorRows,
    scratch: Scratch,
    counts: Tensor | None,
) -> Tensor:
    """:func:`naive.update_` trial by trial; of those that take nothing in only the pending row, zero, is written."""
    if scratch.group > 1:  # it knows groups, not trials
        scratch = Scratch([{} for _ in arms])
    ok = rewards.isfinite() if counts is None else rewards.isfinite().logical_and_(counts > 0)
    buffers.pending.numpy()[~ok.numpy(), buffers.num_pending] = 0.0
    for i in ok.nonzero().squeeze(1).tolist():
        count = 1.0 if counts is None else float(counts[i])
        views = scratch.views_of(buffers, i)
        ok[i] = _take_in_(buffers, i, views, int(arms[i]), float(rewards[i]), count, kernel, scratch)
    buffers.num_pending += 1
    return ok


def _take_in_(
    buffers: ArmBuffers,
    trial: int,
    views: Views,
    arm: int,
    reward: float,
    count: float,
    kernel: PriorRows,
    scratch: Scratch,
) -> bool:
    """One trial's part of a round, after which the caller raises ``num_pending``.

    Returns whether mean and variance are numbers everywhere.
    """
    k = buffers.num_pending
    mean, variance, row = views.mean, views.variance, views.pending[k]
    _row_(buffers, trial, views, arm, kernel, scratch, row)
    noise_var, prior_variance = views.noise_var.item(trial) / count, max(row.item(arm), 0.0)
    scale = 1.0 / math.sqrt(prior_variance + noise_var)
    scratch.pulled[trial][arm] = k, noise_var * scale
    row *= scale
    step = (reward - mean.item(arm)) * scale
    if len(row) > NUMPY_MAX_ARMS:
        p, mu, sigma2 = torch.from_numpy(row), torch.from_numpy(mean), torch.from_numpy(variance)
        mu.add_(p, alpha=step)
        sigma2.addcmul_(p, p, value=-1.0).clamp_(min=0.0)
    else:
        mean += row * step
        variance -= row * row
        if not variance[variance.argmin()] >= 0.0:  # rounding, or no number
            np.maximum(variance, 0.0, out=variance)
    views.counts[arm] += count
    views.information_gain[trial] += 0.5 * math.log1p(prior_variance / noise_var)
    if math.isfinite(mean.dot(variance)):
        return True
    return bool(all_numbers(torch.from_numpy(mean[None]), torch.from_numpy(variance[None])))


def _row_(
    buffers: ArmBuffers,
    trials: int | slice,
    views: Views,
    arm: int,
    kernel: PriorRows,
    scratch: Scratch,
    out: np.ndarray,
) -> None:
    """Write C[a, :] of a trial (``n``) or of all in a group (``g x n``) into ``out``."""
    k = buffers.num_pending
    first = trials.start if isinstance(trials, slice) else trials
    done, factor = scratch.pulled[first].get(arm, (-1, 1.0))
    if done >= 0:
        np.multiply(views.pending[..., done, :], factor, out)
    elif buffers.dense:
        out[:] = views.rows[arm]
    else:
        m = views.block_filled.item(first)
        out[:] = views.rows[..., _slot(buffers, views, trials, arm, kernel), :]
        if m:
            if not views.root_ready[first]:
                refresh_root_(buffers, slice(first, first + (1 if out.ndim == 1 else len(out))), m, branch_free=False)
            root, at_arms = views.root[..., :m, :m], out[..., views.row_arm.ravel()[:m]]
            _subtract_product_(out, _product(_product(at_arms, root.swapaxes(-1, -2)), root), views.rows[..., :m, :])
    if done + 1 < k:
        since = views.pending[..., done + 1 : k, :]
        _subtract_product_(out, since[..., arm].copy(), since)


def _slot(buffers: ArmBuffers, views: Views, trials: int | slice, arm: int, kernel: PriorRows) -> int:
    """The slot of an arm's prior row, the same in all trials of a group; stores the row of a new arm first."""
    slot = views.slots.item(arm)
    if slot < 0:
        slot = views.filled.item(trials if isinstance(trials, int) else trials.start)
        kernel.write_row(arm, trials, views.rows[..., slot, :])
        views.row_arm[..., slot], views.slots[..., arm], views.filled[trials] = arm, slot, slot + 1
        buffers.num_rows = max(buffers.num_rows, slot + 1)
    return slot


def _product(x: np.ndarray, A: np.ndarray) -> np.ndarray:
    """x^T A of a trial (``m`` and ``m x n``), or of each in a group (``g x m`` and ``g x m x n``)."""
    return x.dot(A) if x.ndim == 1 else np.matmul(x[:, None], A)[:, 0]


def _subtract_product_(row: np.ndarray, weights: np.ndarray, rows: np.ndarray) -> None:
    """row -= weights^T rows."""
    if len(row) > NUMPY_MAX_ARMS:  # one pass, because rows are too long for the cache
        torch.from_numpy(row).addmv_(torch.from_numpy(rows).T, torch.from_numpy(weights), alpha=-1.0)
    else:
        row -= _product(weights, rows)


def _out_of_range(n: int, arms: Tensor) -> str:
    return f"arms must be between 0 and {n - 1}, got {arms.tolist()}."
