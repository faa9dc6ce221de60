"""Exact GP posterior over n finite arms for s independent trials, one reward per trial and round.

Axes: ``s`` trials, ``n`` arms. :func:`observe` keeps mu_t and sigma_t^2 of every arm up to date. A round costs O(n m)
for m distinct arms pulled (see :mod:`bo_robust.ops.arm_update`).
Source: Srinivas et al. 2010, eqs. (1)-(2); the noise variance lambda is ``noise_var``.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor

from bo_robust.bandits.posteriors.arm_kernel import ROW_BLOCK, ArmKernel, noise_of_trials
from bo_robust.ops import arm_update
from bo_robust.ops.arm_update.naive import ArmBuffers, begin_round_, rounds_of_a_block, zeros_like_shape
from bo_robust.utils.input_checks import check_count, check_finite, check_like, check_tensor
from bo_robust.utils.linalg import entries_at_once, free_bytes, on_cuda

# The reference page of this module shows what it lists, ArmKernel too.
__all__ = ["ArmKernel", "ArmPosterior", "check_pulls", "init", "is_dense", "noise_of_trials", "observe", "within"]

# Up to this many arms every arm has its covariance row from the start (dense); beyond it rows are allocated as arms get
# pulled (low rank). Measured on one thread of a CPU.
DENSE_MAX_ARMS = 256
# Rounds of a block, by measurement. A short block reads few pending rows. A long one factorizes seldom, which matters
# in the low-rank layout while rows are short.
SHORT_BLOCK, LONG_BLOCK = 32, 96
FIRST_ROWS = 64  # Covariance rows allocated at first in the low-rank layout
SPARE_ROWS = 16  # With fewer rows than this left, more are allocated
RESERVE_BYTES = 2**31  # Memory that may be reserved at once for covariance rows of rounds to come
KERNEL_ENTRIES = 1 << 24  # Entries of a dense prior that a GPU evaluates at once


@dataclass
class ArmPosterior(ArmBuffers):
    """What is known about n arms in s trials; :func:`observe` updates it in place.

    Attributes:
        mean: mu_t of every arm, ``s x n``.
        variance: sigma_t^2 of f at every arm (without noise), ``s x n``, never negative.
        counts: Rewards observed per arm, ``s x n``.
        noise_var: lambda, ``s``.
        information_gain: Realized gain 1/2 log det(I + K_t / lambda) of the rewards so far, in nats, ``s``.
        kernel: The prior covariance.
        row_budget: Rounds that can be observed before free covariance rows must be counted again.
    """

    kernel: ArmKernel = field(kw_only=True)
    row_budget: int = field(kw_only=True)

    has_blocks: ClassVar[bool] = True

    def begin_block(self) -> tuple[int, ...]:
        """End a full block, and return the sizes of the rounds that come next, first their number; none within a block.

        In the low-rank layout sizes change only with the space for rows from now on. How many are in use is read at the
        end of a block, which waits for the device.
        """
        K = self.pending.shape[1]
        if self.num_pending not in (0, K):
            return ()
        if not self.dense:
            _reserve(self, K)
            if self.row_budget < K:
                return ()
        self.whole = True
        begin_round_(self)
        longer = self.pending.shape[1] > K  # which begins with the next call
        return () if longer else (K, self.rows.shape[1])


def init(
    kernel: ArmKernel,
    noise_var: float | Tensor,
    trials: int = 1,
    *,
    prior_mean: Tensor | None = None,
    rounds: int | None = None,
    dense: bool | None = None,
    block: int | None = None,
) -> ArmPosterior:
    """The posterior of no data.

    Args:
        kernel: Prior covariance of the arms; fixes dtype and device.
        noise_var: lambda > 0, one number or one per trial (``s``). In float32 keep it above about 1e-3 k(x, x); below
            500 roundings of k(x, x) it is refused.
        trials: s >= 1.
        prior_mean: ``n`` or ``s x n``; zero by default.
        rounds: Rounds to come, if known. If their covariance rows take at most 2 GiB, the low-rank layout reserves them
            at once, which saves the copies of growing. A CPU takes the memory only as rows are used.
        dense: Force the dense (True) or low-rank (False) layout; by size when None, on CUDA by 2 GiB.
        block: Least number of rounds between refreshes of the base covariance; by layout and size when None.

    Warns if a GPU has space for it, but not for the rows of so many ``rounds``.

    Raises:
        ValueError: on a noise variance <= 0, no trials, or shapes and dtypes that do not fit.
        torch.OutOfMemoryError: if a GPU has less memory left than it takes.
    """
    noise = noise_of_trials(kernel, noise_var, trials)
    n = kernel.num_arms
    template = kernel.diagonal
    check_count(1, block=1 if block is None else block)
    check_count(0, rounds=rounds or 0)
    mean = template.new_zeros(trials, n)
    if prior_mean is not None:
        check_tensor("prior_mean", prior_mean)
        if prior_mean.shape not in ((n,), (trials, n)):
            raise ValueError(f"prior_mean must be {n} or {trials} x {n}, got shape {tuple(prior_mean.shape)}.")
        check_like("prior_mean", prior_mean, "the posterior", mean)
        check_finite("prior_mean", prior_mean)
        mean += prior_mean
    dense = is_dense(mean, trials) if dense is None else dense
    if block is None:
        block = SHORT_BLOCK if dense or n > ROW_BLOCK or on_cuda(mean) else LONG_BLOCK
    capacity = n if dense else _first_capacity(n, trials, rounds, mean.element_size())
    _check_memory(mean, dense, capacity, block, rounds or 0)
    rows = _dense_prior(kernel, mean) if dense else zeros_like_shape((trials, capacity, n), mean)
    variance = kernel.diagonal.expand(trials, n).clone().clamp_(min=0.0)
    source = {"kernel": kernel, "row_budget": min(capacity, FIRST_ROWS)}
    return ArmPosterior.of_no_rewards(noise, mean, variance, rows, block, dense, **source)


def is_dense(template: Tensor, trials: int) -> bool:
    """Whether the layout of ``trials`` is dense, for arms as in the last axis of ``template``.

    On CUDA a round of the low-rank layout is some 20 launches, whatever it saves, so that there memory decides.
    """
    n = template.shape[-1]
    return trials * n * n * template.element_size() <= RESERVE_BYTES if on_cuda(template) else n <= DENSE_MAX_ARMS


def observe(posterior: ArmPosterior, arms: Tensor, rewards: Tensor, counts: Tensor | None = None) -> Tensor:
    """Observe one reward per trial, in place; returns whether it was observed, ``s`` bool.

    Args:
        posterior: State before the round.
        arms: The arms pulled, ``s`` long, each in 0..n-1. On CUDA a reward of another arm is a failed pull.
        rewards: ``s``. A NaN or infinite reward is a failed pull and changes nothing of its trial.
        counts: Number of pulls that each reward is the mean of, ``s``, whole numbers >= 0 in the dtype of the rewards;
            None: one each. Such a mean counts as one reward of noise lambda / count. A trial of count zero does not
            change, at nearly no cost on a CPU.

    Raises:
        ValueError: if shapes, dtypes or devices do not fit, or an arm is out of range.
    """
    check_pulls(posterior.noise_var, arms, rewards)
    if counts is not None:
        if counts.shape != rewards.shape:
            raise ValueError(f"counts must hold one entry per trial ({len(rewards)}), got shape {tuple(counts.shape)}.")
        check_like("counts", counts, "the posterior", rewards)
    if not posterior.dense:
        if posterior.row_budget == 0:
            _reserve(posterior)
        posterior.row_budget -= 1
    return arm_update.update_(posterior, arms, rewards, posterior.kernel, counts)


def check_pulls(template: Tensor, arms: Tensor, rewards: Tensor) -> None:
    """Raise ``ValueError`` unless ``arms`` and ``rewards`` are one per trial, shaped and placed as ``template``."""
    if isinstance(arms, Tensor) and isinstance(rewards, Tensor):  # the usual case, checked every round
        same = arms.shape == template.shape == rewards.shape and arms.device == template.device == rewards.device
        if same and arms.dtype is torch.long and rewards.dtype is template.dtype:
            return
    check_tensor("arms", arms, floating=False)
    check_tensor("rewards", rewards, floating=False)
    if arms.shape != template.shape or rewards.shape != template.shape:
        shapes = f"{tuple(arms.shape)} and {tuple(rewards.shape)}"
        raise ValueError(f"arms and rewards must hold one entry per trial ({template.shape[0]}), got shapes {shapes}.")
    if arms.dtype != torch.long:
        raise ValueError(f"arms must be of dtype long, got {arms.dtype}.")
    check_like("rewards", rewards, "the posterior", template)


def within(arms: Tensor, rewards: Tensor, num_arms: int) -> tuple[Tensor, Tensor]:
    """``arms`` and ``rewards`` (``s``), all arms in 0 .. num_arms - 1.

    An arm out of range raises ``ValueError``. On CUDA, where reading it back would wait, its reward becomes NaN, a
    failed pull.
    """
    if on_cuda(arms):
        inside = (arms >= 0) & (arms < num_arms)
        return arms.clamp(0, num_arms - 1), torch.where(inside, rewards, math.nan)
    low, high = arms.aminmax() if arms.shape[0] > 1 else (arms, arms)
    if not 0 <= int(low) <= int(high) < num_arms:
        raise ValueError(f"arms must be between 0 and {num_arms - 1}, got {arms.tolist()}.")
    return arms, rewards


def _first_capacity(n: int, trials: int, rounds: int | None, item: int) -> int:
    """Number of rows to allocate at first: as many as ``rounds`` can need and RESERVE_BYTES allow."""
    if rounds is None:
        return min(n, FIRST_ROWS)
    entries = RESERVE_BYTES / (trials * item)
    affordable = int(math.sqrt(n * n / 4.0 + entries) - n / 2.0)  # the m with m (n + m) = entries
    return min(n, max(FIRST_ROWS, min(rounds + SPARE_ROWS, affordable)))


def _check_memory(mean: Tensor, dense: bool, capacity: int, block: int, rounds: int) -> None:
    """Raise ``torch.OutOfMemoryError`` where a GPU has no space for :func:`init`; warn if for ``rounds``."""
    free = free_bytes(mean)
    if free is None:
        return
    (s, n), item = mean.shape, mean.element_size()

    def needed(rows: int, pending: int) -> float:
        """GiB of covariance rows, root and pending rows, of variance and counts, and of the slots."""
        held = n * n if dense else rows * (n + rows) + 8 // item * n
        return s * item * (held + (pending + 2) * n) / 2**30

    last = min(n, max(capacity, rounds))
    at_first, at_last = needed(capacity, block), needed(last, max(block, 0 if dense else rounds_of_a_block(last, mean)))
    remedy = "take fewer trials at once, " + ("float32, " if mean.dtype == torch.float64 else "")
    remedy += "dense=False" if dense else "fewer rounds or fewer arms"
    left = f"{mean.device} has {free / 2**30:.3g} left; {remedy}."
    if at_first * 2**30 > free:
        raise torch.OutOfMemoryError(f"{s} x {n} trials and arms take {at_first:.3g} GiB, and {left}")
    if at_last * 2**30 > free:
        words = f"{s} x {n} trials and arms may take {at_last:.3g} GiB by round {rounds}, and {left}"
        warnings.warn(words, UserWarning, stacklevel=3)


def _dense_prior(kernel: ArmKernel, mean: Tensor) -> Tensor:
    """K of every trial, ``s x n x n``; on CUDA evaluated in blocks of arms, as it takes several temporaries."""
    s, n = mean.shape
    if kernel.matrix is not None:
        return kernel.matrix.expand(s, n, n).clone(memory_format=torch.contiguous_format)
    K = mean.new_empty(s, n, n)
    step = max(1, entries_at_once(mean, n * n, KERNEL_ENTRIES) // n)
    for arms, rows in zip(torch.arange(n, device=mean.device).split(step), K[0].split(step), strict=True):
        kernel.rows(arms, out=rows)
    K[1:] = K[0]
    return K


def _reserve(posterior: ArmPosterior, rounds: int = 1) -> None:
    """Count the rows in use, the only wait for the device, less and less often; make space for ``rounds`` or more."""
    trials, capacity, n = posterior.rows.shape
    posterior.num_rows = filled = int(posterior.filled.max())
    if capacity < n and capacity - filled < SPARE_ROWS:
        capacity = min(n, capacity + max(FIRST_ROWS, capacity // 2))
        for name in ("rows", "row_arm", "row_counts"):
            old = getattr(posterior, name)
            new = zeros_like_shape((trials, capacity, *old.shape[2:]), old)
            new[:, :filled] = old[:, :filled]
            posterior.replace(**{name: new})
        root = zeros_like_shape((trials, capacity, capacity), posterior.root)
        root[:, :filled, :filled] = posterior.root[:, :filled, :filled]
        posterior.replace(root=root)
    until_next = max(FIRST_ROWS, filled // 2, rounds)
    # With a row for every arm there is always space, however many rounds go by.
    posterior.row_budget = until_next if capacity == n else min(capacity - filled, until_next)
