"""Covariance functions on arm locations: stationary ones of our own and any GPyTorch kernel.

Everything that needs k(x, x') takes a :class:`Covariance`. A GPyTorch kernel becomes one by
:class:`GPyTorchCovariance`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from bo_robust.validation import check_finite, check_positive

__all__ = ["CallbackCovariance", "Covariance", "GPyTorchCovariance", "Matern", "SquaredExponential"]


class Covariance(Protocol):
    """k, as a matrix between two point sets and on its diagonal."""

    def __call__(self, X1: Tensor, X2: Tensor) -> Tensor:
        """k(x, x') of points ``n1 x d`` and ``n2 x d``, ``n1 x n2``."""

    def diagonal(self, X: Tensor) -> Tensor:
        """k(x, x) of points ``n x d``, ``n``."""


def _distance(X1: Tensor, X2: Tensor, lengthscale: float | tuple[float, ...]) -> Tensor:
    """Euclidean distances in units of the lengthscale(s), ``n1 x n2``, by differences (exact where points meet)."""
    if isinstance(lengthscale, tuple):
        if len(lengthscale) != X1.shape[-1]:
            raise ValueError(f"{len(lengthscale)} lengthscales for points of {X1.shape[-1]} dimensions.")
        X1, X2 = (
            torch.stack([x / ell for x, ell in zip(X.unbind(-1), lengthscale, strict=True)], -1) for X in (X1, X2)
        )
        lengthscale = 1.0
    if X1.is_cuda:  # where cdist takes a block of threads per entry
        return _by_differences(X1, X2).div_(lengthscale)
    return torch.cdist(X1, X2, compute_mode="donot_use_mm_for_euclid_dist").div_(lengthscale)


def _by_differences(X1: Tensor, X2: Tensor) -> Tensor:
    """Euclidean distances, one dimension after the other."""
    squares = X1.new_zeros(X1.shape[0], X2.shape[0])
    for a, b in zip(X1.unbind(-1), X2.unbind(-1), strict=True):
        difference = a.unsqueeze(1) - b
        squares.addcmul_(difference, difference)
    return squares.sqrt_()


@dataclass(frozen=True)
class SquaredExponential:
    """k(x, x') = outputscale * exp(-||x - x'||^2 / (2 lengthscale^2)).

    Args:
        lengthscale: One positive number, or one per input dimension.
        outputscale: k(x, x), > 0.
    """

    lengthscale: float | tuple[float, ...]
    outputscale: float = 1.0

    def __post_init__(self) -> None:
        _check(self.lengthscale, self.outputscale)

    def diagonal(self, X: Tensor) -> Tensor:
        """k(x, x) of every point, ``n``."""
        return X.new_full((X.shape[0],), self.outputscale)

    def __call__(self, X1: Tensor, X2: Tensor) -> Tensor:
        """The ``n1 x n2`` matrix of k(x, x')."""
        out = _distance(X1, X2, self.lengthscale).square_().mul_(-0.5).exp_()
        return out if self.outputscale == 1.0 else out.mul_(self.outputscale)


@dataclass(frozen=True)
class Matern:
    """Matérn covariance with smoothness nu in {0.5, 1.5, 2.5}.

    With r = ||x - x'|| / lengthscale and c = sqrt(2 nu) r: exp(-c), (1 + c) exp(-c), (1 + c + c^2/3) exp(-c).

    Args:
        nu: Smoothness, one of 0.5, 1.5, 2.5.
        lengthscale: One positive number, or one per input dimension.
        outputscale: k(x, x), > 0.
    """

    nu: float
    lengthscale: float | tuple[float, ...]
    outputscale: float = 1.0

    def __post_init__(self) -> None:
        if self.nu not in (0.5, 1.5, 2.5):
            raise ValueError(f"nu must be 0.5, 1.5 or 2.5, got {self.nu!r}; use a GPyTorch kernel for others.")
        _check(self.lengthscale, self.outputscale)

    def diagonal(self, X: Tensor) -> Tensor:
        """k(x, x) of every point, ``n``."""
        return X.new_full((X.shape[0],), self.outputscale)

    def __call__(self, X1: Tensor, X2: Tensor) -> Tensor:
        """The ``n1 x n2`` matrix of k(x, x')."""
        c = _distance(X1, X2, self.lengthscale).mul_(math.sqrt(2.0 * self.nu))
        decay = torch.exp(-c)
        if self.nu == 1.5:
            decay.mul_(c.add_(1.0))
        elif self.nu == 2.5:
            decay.mul_(c.mul(1.0 / 3.0).add_(1.0).mul_(c).add_(1.0))
        return decay if self.outputscale == 1.0 else decay.mul_(self.outputscale)


@dataclass(frozen=True)
class GPyTorchCovariance:
    """Any GPyTorch kernel as a covariance: hyperparameters as they stand at each call, no gradient.

    Args:
        kernel: Kernel without a batch shape.
    """

    kernel: Kernel

    def diagonal(self, X: Tensor) -> Tensor:
        """k(x, x) of every point, ``n``."""
        with torch.no_grad():
            return self.kernel(X, diag=True)

    def __call__(self, X1: Tensor, X2: Tensor) -> Tensor:
        """The ``n1 x n2`` matrix of k(x, x')."""
        with torch.no_grad():
            return self.kernel(X1, X2).to_dense()


@dataclass(frozen=True)
class CallbackCovariance:
    """A covariance of things that are known by number only: graphs, strings, rows of a table.

    Args:
        matrix: Takes numbers ``a`` and ``b`` of things (long) and gives their covariances, ``a x b``; symmetric and
            positive semi-definite.
        prior: k(i, i) of every thing, ``n``.
    """

    matrix: Callable[[Tensor, Tensor], Tensor]
    prior: Tensor

    def diagonal(self, X: Tensor) -> Tensor:
        """k(x, x) of every thing of ``n x 1`` numbers, ``n``."""
        return self.prior[X[..., 0]]

    def __call__(self, X1: Tensor, X2: Tensor) -> Tensor:
        """The covariances of ``... x n1 x 1`` and ``... x n2 x 1`` numbers, ``... x n1 x n2``.

        Raises:
            ValueError: if the callback returns another shape, dtype or device, or NaN.
        """
        batch = torch.broadcast_shapes(X1.shape[:-2], X2.shape[:-2])
        if batch:
            first, second = (X.expand(*batch, *X.shape[-2:]).flatten(0, -3) for X in (X1, X2))
            return torch.stack([self(a, b) for a, b in zip(first, second, strict=True)]).unflatten(0, batch)
        K, want = self.matrix(X1[:, 0], X2[:, 0]), (X1.shape[0], X2.shape[0])
        if K.shape != want:
            raise ValueError(
                f"the kernel callback must return {want[0]} x {want[1]} for so many arms, got {tuple(K.shape)}."
            )
        if (K.dtype, K.device) != (self.prior.dtype, self.prior.device):
            raise ValueError(
                f"the kernel callback returned {K.dtype} on {K.device}, its diagonal is {self.prior.dtype} on "
                f"{self.prior.device}; convert one."
            )
        check_finite("the matrix of the kernel callback", K)
        return K


def _check(lengthscale: float | tuple[float, ...], outputscale: float) -> None:
    if not isinstance(lengthscale, float | int | tuple) or lengthscale == ():
        raise ValueError(f"lengthscale must be a positive number or a tuple of one per dimension, got {lengthscale!r}.")
    for value in lengthscale if isinstance(lengthscale, tuple) else (lengthscale,):
        check_positive(lengthscale=value)
    check_positive(outputscale=outputscale)
