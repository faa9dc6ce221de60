"""Prior covariance of finitely many arms, and the noise variance of every trial.

Axes: ``s`` trials, ``n`` arms; ``t`` of the trials, where a function takes some of them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from bo_robust.utils.covariance import Covariance
from bo_robust.utils.input_checks import (
    check_count,
    check_finite,
    check_kernel_matrix,
    check_positive,
    check_tensor,
    quoted,
)
from bo_robust.utils.linalg import on_cuda, refuse_tf32

# Up to this many arms a covariance function is tabulated once as an n x n matrix.
MATRIX_MAX_ARMS = 4096
# Noise variance below this many roundings of k(x, x) is lost in them, and a posterior ends in NaN.
LEAST_NOISE = 500.0
# Beyond this many arms a row no longer fits the cache; rows of the covariance are evaluated in pieces of this size.
ROW_BLOCK = 16_384


@dataclass(frozen=True)
class ArmKernel:
    """Prior covariance of the arms: a matrix, or a covariance function that is evaluated where it is needed."""

    diagonal: Tensor  # k(x, x), `n` or `s x n`
    # `n x n` (shared by the trials) or `s x n x n`; None where a covariance function is evaluated. The exact posterior
    # also takes `h x n x n` for a multiple of h trials, of which trial i * h + u has matrix u.
    matrix: Tensor | None = None
    covariance: Covariance | None = None  # The covariance function; None when a matrix is given
    arms: Tensor | None = None  # Locations `n x d`; None where they are unknown

    def __post_init__(self) -> None:
        if self.matrix is None and self.arms is not None and on_cuda(self.arms):
            # Distances are summed one input after the other: each is to be consecutive in memory.
            object.__setattr__(self, "arms", self.arms.mT.contiguous().mT)

    @classmethod
    def from_matrix(cls, K: Tensor, arms: Tensor | None = None) -> ArmKernel:
        """From a kernel matrix ``n x n`` or ``s x n x n`` (copied), with the locations ``n x d`` if features need them.

        Raises ``ValueError`` if K is not finite, symmetric and positive semi-definite, or ``arms`` has not one row per
        arm.
        """
        check_kernel_matrix(K)
        K = K.detach()
        if arms is not None:
            check_tensor("arms", arms, floating=False)
            if arms.ndim != 2 or arms.shape[0] != K.shape[-1]:
                raise ValueError(f"arms must be {K.shape[-1]} x d as the matrix has it, got shape {tuple(arms.shape)}.")
        # The check allows asymmetry by rounding; code downstream reads rows as columns.
        K = 0.5 * (K + K.mT)
        return cls(diagonal=K.diagonal(dim1=-2, dim2=-1).clone(), matrix=K, arms=arms)

    @classmethod
    def from_covariance(cls, covariance: Covariance, arms: Tensor) -> ArmKernel:
        """From a covariance function, e.g. :class:`bo_robust.utils.covariance.Matern`, and arm locations ``n x d``.

        Raises ``ValueError`` if ``arms`` is empty, not ``n x d``, not floating point or not finite, or if the
        covariance has a batch shape or gives no valid kernel matrix.
        """
        diagonal, arms = checked_diagonal(covariance, arms), arms.detach()
        if arms.shape[0] <= MATRIX_MAX_ARMS:
            return cls.from_matrix(covariance(arms, arms), arms)
        check_finite("k(x, x)", diagonal)
        return cls(diagonal=diagonal, covariance=covariance, arms=arms)

    @property
    def num_arms(self) -> int:
        """n."""
        return self.diagonal.shape[-1]

    @property
    def function(self) -> tuple[Covariance, Tensor]:
        """The covariance function and the locations, which both are known where there is no matrix."""
        assert self.covariance is not None
        assert self.arms is not None
        return self.covariance, self.arms

    def diagonal_of(self, arms: Tensor, trials: Tensor) -> Tensor:
        """k(x, x) of ``arms`` (``t x A``) in some ``trials`` (``t``), ``t x A``."""
        return self.diagonal[arms] if self.diagonal.ndim == 1 else self.diagonal[trials.unsqueeze(1), arms]

    def rows(self, arms: Tensor, trials: Tensor | None = None, out: Tensor | None = None) -> Tensor:
        """Rows K[a, :] of ``arms`` (``r``) in the given ``trials`` (``r``; None: in order), ``r x n``, in ``out``."""
        if self.matrix is None:
            covariance, points = self.function
            chosen = points[arms]
            out = self.diagonal.new_empty(arms.shape[0], self.num_arms) if out is None else out
            step = self.num_arms if on_cuda(arms) else ROW_BLOCK  # temporaries stay in a CPU's cache
            for start in range(0, self.num_arms, step):
                block = slice(start, start + step)
                out[:, block] = covariance(chosen, points[block])
            return out
        if self.matrix.ndim == 2:
            rows = self.matrix.index_select(0, arms)
        else:
            trials = torch.arange(arms.shape[0], device=arms.device) if trials is None else trials
            rows = self.matrix[trials if len(self.matrix) == len(self.diagonal) else trials % len(self.matrix), arms]
        return rows if out is None else out.copy_(rows)

    def write_row(self, arm: int, trial: int, out: np.ndarray) -> None:
        """Write K[a, :] of one arm in one trial into ``out``, ``n``, on a CPU."""
        if self.matrix is None:
            self.rows(torch.tensor([arm]), None, torch.from_numpy(out).unsqueeze(0))
        else:
            K = self.matrix.numpy()
            out[:] = K[arm] if K.ndim == 2 else K[trial % len(K), arm]

    def block(self, arms: Tensor, block: slice, trials: Tensor | None = None) -> Tensor:
        """K[a, x] of ``arms`` (``t x M``) with B arms x, in the given ``trials`` (``t``; None: all), ``t x M x B``."""
        if self.matrix is None:
            covariance, points = self.function
            return covariance(points[arms], points[block])
        if self.matrix.ndim == 2:
            return self.matrix[:, block].index_select(0, arms.reshape(-1)).reshape(*arms.shape, -1)
        rows = torch.arange(arms.shape[0], device=arms.device) if trials is None else trials
        return self.matrix[rows.unsqueeze(1), arms, block]

    def between(self, first: Tensor, second: Tensor, trials: Tensor) -> Tensor:
        """K[a, b] of two lists of arms (``t x A`` and ``t x B``) in some ``trials`` (``t``), ``t x A x B``."""
        if self.matrix is None:
            covariance, points = self.function
            return covariance(points[first], points[second])
        a, b = first.unsqueeze(2), second.unsqueeze(1)
        return self.matrix[a, b] if self.matrix.ndim == 2 else self.matrix[trials.view(-1, 1, 1), a, b]


def checked_diagonal(covariance: Covariance, arms: Tensor) -> Tensor:
    """k(x, x) of arms ``n x d``; ``ValueError`` as :meth:`ArmKernel.from_covariance` if either is not as described."""
    if isinstance(covariance, type) or not (callable(covariance) and hasattr(covariance, "diagonal")):
        must = "covariance must be one of bo_robust.utils.covariance, such as GPyTorchCovariance(kernel)"
        raise ValueError(f"{must}, got {quoted(covariance)}.")
    check_tensor("arms", arms, floating=False)
    if arms.ndim != 2 or arms.shape[0] == 0:
        raise ValueError(f"arms must be n x d with n >= 1, got shape {tuple(arms.shape)}.")
    check_tensor("arms", arms)
    check_finite("arms", arms)
    diagonal = covariance.diagonal(arms.detach())
    if diagonal.ndim != 1:
        raise ValueError("the covariance has a batch shape; give its matrices in its place.")
    return diagonal


def noise_of_each(kernel: ArmKernel, noise_var: float | Tensor, owner: str) -> Tensor:
    """The noise variance as a tensor of the kernel's dtype and device.

    Raises ``ValueError`` if it is no number and no list of them, one per ``owner``, or the kernel is no ``ArmKernel``.
    """
    if not isinstance(kernel, ArmKernel):
        raise ValueError(f"kernel must be an ArmKernel, such as ArmKernel.from_matrix(K), got {quoted(kernel)}.")
    try:
        return torch.as_tensor(noise_var, dtype=kernel.diagonal.dtype, device=kernel.diagonal.device)
    except (TypeError, ValueError, RuntimeError):
        raise ValueError(f"noise_var must be one number or one per {owner}, got {quoted(noise_var)}.") from None


def noise_of_trials(kernel: ArmKernel, noise_var: float | Tensor, trials: int) -> Tensor:
    """Noise variance lambda of every trial, ``s``, of the kernel's dtype and device.

    Raises ``ValueError`` on a noise variance <= 0 or lost in the rounding of the kernel, no trials, a kernel or noise
    of another number of trials, or float32 on CUDA where torch rounds its products further.
    """
    noise, template = noise_of_each(kernel, noise_var, "trial"), kernel.diagonal
    check_count(1, trials=trials)
    own_trials = template.shape[0] if template.ndim == 2 else trials
    if own_trials != trials:
        raise ValueError(f"the kernel has {own_trials} matrices for {trials} trials; give one, or one per trial.")
    if noise.ndim > 1 or noise.numel() not in (1, trials):
        raise ValueError(f"noise_var must be one number or one per trial ({trials}), got shape {tuple(noise.shape)}.")
    check_positive(noise_var=float(noise.min()))
    check_finite("noise_var", noise)
    refuse_tf32(template)
    noise, floor = noise.expand(trials), LEAST_NOISE * torch.finfo(template.dtype).eps * template.amax(-1)
    if bool((noise < floor).any()):
        raise ValueError(
            f"noise_var must be at least {float(floor.max()):.2g} in {template.dtype} ({LEAST_NOISE:g} roundings of "
            f"the largest k(x, x)), got {float(noise.min()):.3g}; raise it, or use float64."
        )
    return noise.clone()
