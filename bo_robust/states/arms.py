"""Exact GP posterior over n finite arms for s independent trials, one reward per trial and round.

Axes: ``s`` trials, ``n`` arms. mu_t and sigma_t^2 of every arm are kept up to date by
:func:`observe`, at O(n m) a round for m distinct arms pulled (see :mod:`bo_robust.ops.arm_update`).
Source: exact GP posterior, Srinivas et al. 2010, eqs. (1)-(2); the noise variance lambda is ``noise_var``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from bo_robust.covariance import CallbackCovariance, Covariance
from bo_robust.ops import arm_update
from bo_robust.ops.arm_update import LONG_BLOCK, SHORT_BLOCK, ArmBuffers, Scratch
from bo_robust.validation import check_count, check_finite, check_kernel_matrix, check_positive

__all__ = ["ArmKernel", "ArmPosterior", "check_pulls", "init", "noise_of_trials", "observe", "zeros_like_shape"]

# Up to this many arms every arm has its covariance row from the start (dense); beyond it rows are
# allocated as arms get pulled (low rank). Measured crossover, benchmarks/arm_engine.py `crossover`.
DENSE_MAX_ARMS = 256
# Covariance rows allocated at first in the low-rank layout.
FIRST_ROWS = 64
# With fewer rows than this left, more are allocated.
SPARE_ROWS = 16
# Up to this many arms a covariance function is tabulated once as an n x n matrix.
MATRIX_MAX_ARMS = 4096
# Beyond this many arms a row no longer fits the cache; rows of the covariance are evaluated in pieces of this size.
ROW_BLOCK = 16_384
# Memory that may be reserved at once for covariance rows of rounds to come.
RESERVE_BYTES = 2**31


@dataclass(frozen=True)
class ArmKernel:
    """Prior covariance of the arms: a matrix, or a covariance function evaluated row by row.

    Attributes:
        diagonal: k(x, x), ``n`` or ``s x n``.
        matrix: ``n x n`` (shared by the trials) or ``s x n x n``; None when rows are evaluated.
        covariance: None when a matrix is given.
        arms: Locations ``n x d``; None where they are unknown.
    """

    diagonal: Tensor
    matrix: Tensor | None = None
    covariance: Covariance | None = None
    arms: Tensor | None = None

    @classmethod
    def from_matrix(cls, K: Tensor, arms: Tensor | None = None) -> ArmKernel:
        """From a kernel matrix ``n x n`` or ``s x n x n`` (copied), and the locations ``n x d`` if features need them.

        Raises:
            ValueError: if K is not finite, symmetric and positive semi-definite, or ``arms`` are not its arms.
        """
        K = K.detach()
        check_kernel_matrix(K)
        if arms is not None and (arms.ndim != 2 or arms.shape[0] != K.shape[-1]):
            raise ValueError(f"arms must be {K.shape[-1]} x d as the matrix has it, got shape {tuple(arms.shape)}.")
        K = 0.5 * (K + K.mT)
        return cls(diagonal=K.diagonal(dim1=-2, dim2=-1).clone(), matrix=K, arms=arms)

    @classmethod
    def from_covariance(cls, covariance: Covariance, arms: Tensor) -> ArmKernel:
        """From a covariance function (e.g. :class:`bo_robust.covariance.Matern`) and arm locations ``n x d``.

        Raises:
            ValueError: if ``arms`` is empty, not ``n x d``, not floating point or not finite, or the
                covariance of the arms is not that of one kernel.
        """
        if arms.ndim != 2 or arms.shape[0] == 0:
            raise ValueError(f"arms must be n x d with n >= 1, got shape {tuple(arms.shape)}.")
        if not arms.is_floating_point():
            raise ValueError(f"arms must be floating point, got {arms.dtype}; convert them with .double().")
        check_finite("arms", arms)
        arms = arms.detach()
        diagonal = covariance.diagonal(arms)
        if diagonal.ndim != 1:
            raise ValueError("the covariance has a batch shape; give its s x n x n matrices to from_matrix.")
        if arms.shape[0] <= MATRIX_MAX_ARMS:
            return cls.from_matrix(covariance(arms, arms), arms)
        check_finite("k(x, x)", diagonal)
        return cls(diagonal=diagonal, covariance=covariance, arms=arms)

    @classmethod
    def from_callback(cls, matrix: Callable[[Tensor, Tensor], Tensor], diagonal: Tensor) -> ArmKernel:
        """From a function of the numbers of arms, for arms that are no vectors.

        Args:
            matrix: Takes numbers ``a`` and ``b`` of arms (long, on the device of the diagonal), gives ``a x b``
                covariances. Rows are asked for as arms get pulled.
            diagonal: k(i, i) >= 0 of all n arms, floating point; it says how many there are.

        Raises:
            ValueError: if the callback returns another shape, dtype or device or NaN, does not agree with the
                diagonal, or is not symmetric and positive semi-definite on all arms, or 256 of them when there are
                more than MATRIX_MAX_ARMS.
        """
        if diagonal.ndim != 1 or len(diagonal) == 0 or not diagonal.is_floating_point():
            raise ValueError(f"diagonal must be n >= 1 floats, got {diagonal.dtype} of shape {tuple(diagonal.shape)}.")
        check_finite("diagonal", diagonal)
        if bool((diagonal < 0.0).any()):
            raise ValueError("diagonal must be k(i, i) >= 0: no variance is negative.")
        diagonal = diagonal.detach().clone()
        covariance, n = CallbackCovariance(matrix, diagonal), len(diagonal)
        arms = torch.arange(n, device=diagonal.device).unsqueeze(1)
        some = arms if n <= MATRIX_MAX_ARMS else arms[torch.arange(256, device=arms.device) * (n - 1) // 255]
        K = covariance(some, some)
        kernel = cls.from_matrix(K)
        error = float((kernel.diagonal - covariance.diagonal(some)).abs().max())
        if error > 1e-6 * max(float(diagonal.abs().max()), 1e-300):
            raise ValueError(f"the kernel callback and its diagonal differ by up to {error:.3g}; give k(i, i).")
        return kernel if n <= MATRIX_MAX_ARMS else cls(diagonal, covariance=covariance, arms=arms)

    @property
    def num_arms(self) -> int:
        """n."""
        return self.diagonal.shape[-1]

    def diagonal_of(self, arms: Tensor, trials: Tensor) -> Tensor:
        """k(x, x) of arms (``t x A``) of some ``trials`` (``t`` long), ``t x A``."""
        return self.diagonal[arms] if self.diagonal.ndim == 1 else self.diagonal[trials.unsqueeze(1), arms]

    def rows(self, arms: Tensor, trials: Tensor | None = None) -> Tensor:
        """Rows K[a, :] of the chosen ``arms`` (r,) as ``r x n``; ``trials`` (r,) when not one per trial in order."""
        if self.matrix is None:
            assert self.covariance is not None
            assert self.arms is not None
            chosen, out = self.arms[arms], self.diagonal.new_empty(arms.shape[0], self.num_arms)
            step = self.num_arms if arms.is_cuda else ROW_BLOCK  # temporaries stay in a CPU's cache
            for start in range(0, self.num_arms, step):
                block = slice(start, start + step)
                out[:, block] = self.covariance(chosen, self.arms[block])
            return out
        if self.matrix.ndim == 2:
            return self.matrix.index_select(0, arms)
        if trials is None:
            trials = torch.arange(arms.shape[0], device=arms.device)
        return self.matrix[trials, arms]

    def columns(self, arms: Tensor) -> Tensor:
        """Columns K[:, a] of the ``arms`` of every trial (``s x M``), ``s x n x M``."""
        return self.block(arms, slice(0, self.num_arms)).mT

    def block(self, arms: Tensor, block: slice, trials: Tensor | None = None) -> Tensor:
        """K[a, x] of the ``arms`` of some trials (``t x M``) with a slice of all arms, ``t x M x B``.

        ``trials`` (``t`` long) say which they are, where each has a matrix of its own; None: all in order.
        """
        if self.matrix is None:
            assert self.covariance is not None
            assert self.arms is not None
            return self.covariance(self.arms[arms], self.arms[block])
        if self.matrix.ndim == 2:
            return self.matrix[:, block].index_select(0, arms.reshape(-1)).reshape(*arms.shape, -1)
        own = torch.arange(arms.shape[0], device=arms.device) if trials is None else trials
        return self.matrix[own.unsqueeze(1), arms, block]

    def between(self, first: Tensor, second: Tensor, trials: Tensor) -> Tensor:
        """K[a, b] of two lists of arms of some ``trials`` (``t`` long): ``t x A`` and ``t x B`` give ``t x A x B``."""
        if self.matrix is None:
            assert self.covariance is not None
            assert self.arms is not None
            return self.covariance(self.arms[first], self.arms[second])
        a, b = first.unsqueeze(2), second.unsqueeze(1)
        return self.matrix[a, b] if self.matrix.ndim == 2 else self.matrix[trials.view(-1, 1, 1), a, b]


@dataclass
class ArmPosterior:
    """What is known about n arms in s trials; :func:`observe` updates it in place.

    Attributes:
        kernel: The prior covariance.
        buffers: All tensors of the state (:class:`bo_robust.ops.arm_update.ArmBuffers`).
        row_budget: Rounds that can be observed before free covariance rows must be counted again.
        scratch: Of the CPU path; derived from the buffers, never saved.
    """

    kernel: ArmKernel
    buffers: ArmBuffers
    row_budget: int
    scratch: Scratch = field(repr=False)

    @property
    def mean(self) -> Tensor:
        """mu_t of every arm, ``s x n``."""
        return self.buffers.mean

    @property
    def variance(self) -> Tensor:
        """sigma_t^2 of f at every arm (without noise), ``s x n``, never negative."""
        return self.buffers.variance

    @property
    def counts(self) -> Tensor:
        """Rewards taken in per arm, ``s x n``."""
        return self.buffers.counts

    @property
    def noise_var(self) -> Tensor:
        """lambda, ``s``."""
        return self.buffers.noise_var

    @property
    def information_gain(self) -> Tensor:
        """Realised gain 1/2 log det(I + K_t / lambda) of the rewards so far, ``s``."""
        return self.buffers.information_gain


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
    """The prior, as the posterior of no data.

    Args:
        kernel: Prior covariance of the arms; fixes dtype and device.
        noise_var: lambda > 0, one number or one per trial (``s``). In float32 keep it above about 1e-3 k(x, x): below,
            rounding of the kernel is as large as the noise.
        trials: s >= 1.
        prior_mean: ``n`` or ``s x n``; zero by default.
        rounds: Rounds to come, if known: in the low-rank layout room for their covariance rows is then reserved at
            once where that is at most 2 GiB, which saves the copies of growing (on a CPU the memory is taken only as
            rows are used).
        dense: Force the dense (True) or low-rank (False) layout; by size when None.
        block: Rounds between refreshes of the base covariance, at least; by layout and size when None.

    Raises:
        ValueError: on a noise variance <= 0, no trials, or shapes and dtypes that do not fit.
    """
    n = kernel.num_arms
    like = kernel.diagonal
    check_count(1, block=1 if block is None else block)
    check_count(0, rounds=rounds or 0)
    noise = noise_of_trials(kernel, noise_var, trials)
    mean = like.new_zeros(trials, n)
    if prior_mean is not None:
        if prior_mean.shape not in ((n,), (trials, n)):
            raise ValueError(f"prior_mean must be {n} or {trials} x {n}, got shape {tuple(prior_mean.shape)}.")
        _check_kind("prior_mean", prior_mean, mean)
        check_finite("prior_mean", prior_mean)
        mean += prior_mean
    dense = (n <= DENSE_MAX_ARMS) if dense is None else dense
    if block is None:
        block = SHORT_BLOCK if dense or n > ROW_BLOCK else LONG_BLOCK
    capacity = n if dense else _first_capacity(n, trials, rounds, mean.element_size())
    if dense:
        K = kernel.rows(torch.arange(n, device=mean.device)) if kernel.matrix is None else kernel.matrix
        rows = K.expand(trials, n, n).clone(memory_format=torch.contiguous_format)
    else:
        rows = zeros_like_shape((trials, capacity, n), mean)
    tracked = 0 if dense else capacity
    buffers = ArmBuffers(
        noise_var=noise,
        mean=mean,
        variance=kernel.diagonal.expand(trials, n).clone().clamp_(min=0.0),
        counts=like.new_zeros(trials, n),
        information_gain=like.new_zeros(trials),
        pending=zeros_like_shape((trials, block, n), mean),
        rows=rows,
        row_arm=like.new_zeros(trials, tracked, dtype=torch.long),
        row_counts=like.new_zeros(trials, tracked),
        root=zeros_like_shape((trials, tracked, tracked), mean),
        root_ready=like.new_zeros(trials, dtype=torch.bool),
        slots=like.new_full((trials, 0 if dense else n), -1, dtype=torch.long),
        filled=like.new_zeros(trials, dtype=torch.long),
        block_filled=like.new_zeros(trials, dtype=torch.long),
        dense=dense,
    )
    budget = min(capacity, FIRST_ROWS)
    return ArmPosterior(kernel, buffers, row_budget=budget, scratch=Scratch([{} for _ in range(trials)]))


def noise_of_trials(kernel: ArmKernel, noise_var: float | Tensor, trials: int) -> Tensor:
    """lambda of every trial, ``s``, of the kernel's dtype and device.

    Raises:
        ValueError: on a noise variance <= 0, no trials, or a kernel or noise of another number of trials.
    """
    like = kernel.diagonal
    check_count(1, trials=trials)
    given = like.shape[0] if like.ndim == 2 else trials
    if given != trials:
        raise ValueError(f"the kernel has {given} matrices for {trials} trials; give one, or one per trial.")
    noise = torch.as_tensor(noise_var, dtype=like.dtype, device=like.device)
    if noise.ndim > 1 or noise.numel() not in (1, trials):
        raise ValueError(f"noise_var must be one number or one per trial ({trials}), got shape {tuple(noise.shape)}.")
    check_positive(noise_var=float(noise.min()))
    check_finite("noise_var", noise)
    return noise.expand(trials).clone()


def observe(posterior: ArmPosterior, arms: Tensor, rewards: Tensor, counts: Tensor | None = None) -> Tensor:
    """Take in one reward per trial; ``posterior`` is updated in place.

    Args:
        posterior: State before the round.
        arms: ``s``, long, the arms pulled, each of 0..n-1 (checked on a CPU; reading them back from a GPU would wait).
        rewards: ``s``; a NaN or infinite reward is a failed pull and changes nothing of its trial.
        counts: ``s``, whole numbers >= 0 of the dtype of the rewards, when each reward is the mean of so many pulls of
            its arm, which all together are one reward of noise lambda / count. A trial whose count is zero changes in
            nothing, whatever its reward; on a CPU it costs nearly nothing. One everywhere when None.

    Returns:
        ``ok`` (``s``, bool), False where nothing was taken in.

    Raises:
        ValueError: if shapes, dtypes or devices do not fit, or an arm is out of range.
    """
    check_pulls(posterior.buffers.noise_var, arms, rewards)
    if counts is not None:
        if counts.shape != rewards.shape:
            raise ValueError(f"counts must hold one entry per trial ({len(rewards)}), got shape {tuple(counts.shape)}.")
        _check_kind("counts", counts, rewards)
    if not posterior.buffers.dense:
        if posterior.row_budget == 0:
            _reserve(posterior)
        posterior.row_budget -= 1
    return arm_update.update_(
        posterior.buffers, arms, rewards.detach(), posterior.kernel.rows, posterior.scratch, counts
    )


def check_pulls(like: Tensor, arms: Tensor, rewards: Tensor) -> None:
    """Raise ``ValueError`` unless ``arms`` and ``rewards`` are one per trial, of the shape and device of ``like``."""
    if arms.shape != like.shape or rewards.shape != like.shape:
        shapes = f"{tuple(arms.shape)} and {tuple(rewards.shape)}"
        raise ValueError(f"arms and rewards must hold one entry per trial ({like.shape[0]}), got shapes {shapes}.")
    if arms.dtype != torch.long:
        raise ValueError(f"arms must be of dtype long, got {arms.dtype}.")
    _check_kind("rewards", rewards, like)


def _check_kind(name: str, x: Tensor, like: Tensor) -> None:
    if x.dtype != like.dtype or x.device != like.device:
        raise ValueError(
            f"{name} is {x.dtype} on {x.device}, the posterior {like.dtype} on {like.device}; convert it with `.to`."
        )


def _first_capacity(n: int, trials: int, rounds: int | None, item: int) -> int:
    """Rows to make room for at first, with their m x m root: what ``rounds`` can need, as far as it is affordable."""
    if rounds is None:
        return min(n, FIRST_ROWS)
    entries = RESERVE_BYTES / (trials * item)
    affordable = int(math.sqrt(n * n / 4.0 + entries) - n / 2.0)  # rows m of which m (n + m) entries are that many
    return min(n, max(FIRST_ROWS, min(rounds + SPARE_ROWS, affordable)))


def _reserve(posterior: ArmPosterior) -> None:
    """Count the rows in use and make room for more.

    Counting is the only host synchronisation. It happens after FIRST_ROWS rounds at first, then ever more seldom
    as rows accumulate, and keeps ``num_rows`` near the truth.
    """
    buffers = posterior.buffers
    trials, capacity, n = buffers.rows.shape
    buffers.num_rows = filled = int(buffers.filled.max())
    if capacity < n and capacity - filled < SPARE_ROWS:
        capacity = min(n, capacity + max(FIRST_ROWS, capacity // 2))
        for name in ("rows", "row_arm", "row_counts"):
            old = getattr(buffers, name)
            new = zeros_like_shape((trials, capacity, *old.shape[2:]), old)
            new[:, :filled] = old[:, :filled]
            setattr(buffers, name, new)
        root = zeros_like_shape((trials, capacity, capacity), buffers.root)
        root[:, :filled, :filled] = buffers.root[:, :filled, :filled]
        buffers.root = root
    until_next = max(FIRST_ROWS, filled // 2)
    # With a row for every arm there is always room, however many rounds go by.
    posterior.row_budget = until_next if capacity == n else min(capacity - filled, until_next)


def zeros_like_shape(shape: tuple[int, ...], like: Tensor) -> Tensor:
    """Zeros of the dtype and device of ``like``; on a CPU by calloc, so that pages are taken only when written."""
    if like.is_cuda:
        return like.new_zeros(shape)
    return torch.from_numpy(np.zeros(shape, dtype=like.numpy().dtype))
