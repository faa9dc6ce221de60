"""Covariance functions k(x, x') on arm locations: two stationary ones, and any GPyTorch kernel."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from numbers import Real
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np
import torch
from gpytorch.kernels import Kernel, MaternKernel, RBFKernel, ScaleKernel
from numpy.typing import NDArray
from torch import Tensor

from bo_robust.utils.input_checks import check_positive, is_number, quoted
from bo_robust.utils.linalg import on_cuda

Array = NDArray[np.float64]


class Covariance(Protocol):
    """What everything that needs k takes."""

    def __call__(self, X1: Tensor, X2: Tensor) -> Tensor:
        """k(x, x') of points ``n1 x d`` and ``n2 x d``: ``n1 x n2``."""

    def diagonal(self, X: Tensor) -> Tensor:
        """k(x, x) of points ``n x d``: ``n``."""


def _distance(X1: Tensor, X2: Tensor, lengthscale: float | tuple[float, ...]) -> Tensor:
    """Euclidean distances in units of the lengthscale, ``... x n1 x n2``."""
    if isinstance(lengthscale, tuple):
        if len(lengthscale) != X1.shape[-1]:
            raise ValueError(f"{len(lengthscale)} lengthscales for points of {X1.shape[-1]} dimensions.")
        X1, X2 = (
            torch.stack([x / ell for x, ell in zip(X.unbind(-1), lengthscale, strict=True)], -1) for X in (X1, X2)
        )
        lengthscale = 1.0
    if on_cuda(X1):  # cdist spends a block of threads on every entry there
        return distances_by_differences(X1, X2).div_(lengthscale)
    # cdist's default, a matrix product, loses digits where points are close.
    return torch.cdist(X1, X2, compute_mode="donot_use_mm_for_euclid_dist").div_(lengthscale)


def distances_by_differences(X1: Tensor, X2: Tensor) -> Tensor:
    """Euclidean distances, ``... x n1 x n2``, by differences: zero where points coincide.

    The points are ``... x n1 x d`` and ``... x n2 x d``; their batch axes broadcast.
    """
    batch = torch.broadcast_shapes(X1.shape[:-2], X2.shape[:-2])
    if on_cuda(X1) and math.prod(batch) * X1.shape[-2] * X2.shape[-2] * X1.shape[-1] <= 1 << 26:  # half a GiB
        return torch.linalg.vector_norm(X1.unsqueeze(-2) - X2.unsqueeze(-3), dim=-1)
    squares = X1.new_zeros(*batch, X1.shape[-2], X2.shape[-2])
    for a, b in zip(X1.unbind(-1), X2.unbind(-1), strict=True):
        difference = a.unsqueeze(-1) - b.unsqueeze(-2)
        squares.addcmul_(difference, difference)
    return squares.sqrt_()


def squared_distances(X1: Tensor, X2: Tensor) -> Tensor:
    """Squared distances of points ``... x n1 x d`` and ``... x n2 x d``, ``... x n1 x n2``, as one product.

    It rounds as the largest squared coordinate does, so points should be near zero.
    """
    square1, square2 = (X.square().sum(-1, keepdim=True) for X in (X1, X2))
    first = torch.cat([-2.0 * X1, square1, torch.ones_like(square1)], -1)
    return (first @ torch.cat([X2, torch.ones_like(square2), square2], -1).mT).clamp_min_(0.0)


def squared_exponential_(square: Tensor) -> Tensor:
    """exp(-square / 2) of squared distances in units of the lengthscale, in place."""
    return square.mul_(-0.5).exp_()


def matern52(square: Tensor) -> Tensor:
    """(1 + r + r^2 / 3) exp(-r) of squared distances in units of the lengthscale, r^2 = 5 square."""
    root = (5.0 * square).clamp_min(1e-30).sqrt()  # which has a gradient
    return (1.0 + root + 5.0 / 3.0 * square) * (-root).exp()


def _squared_exponential_slope(half: Array, scale: float) -> tuple[Array, Array]:
    covariance = scale * np.exp(half, out=half)
    return covariance, np.copy(covariance, order="K")


def _matern52_slope(half: Array, scale: float) -> tuple[Array, Array]:
    half *= -10.0
    root = np.sqrt(half)
    decay = 5.0 / 3.0 * scale * np.exp(-root)
    return decay * (0.6 + 0.6 * root + 0.2 * half), decay * (1.0 + root)


class Radial(NamedTuple):
    """A covariance as a function of |x - x'|^2 in units of the lengthscale, 1 at 0.

    Attributes:
        of: Its values at these squares, with their gradients; it may change its argument.
        with_slope: ``scale`` times its values at -|x - x'|^2 / 2, and their derivative by that number, in NumPy. It
            changes its argument.
    """

    of: Callable[[Tensor], Tensor]
    with_slope: Callable[[Array, float], tuple[Array, Array]]


# Kernels that are written out, with nu. All that read `shape_of` take every row: a row says all they need.
RADIALS: dict[tuple[type[Kernel], float | None], Radial] = {
    (RBFKernel, None): Radial(squared_exponential_, _squared_exponential_slope),
    (MaternKernel, 2.5): Radial(matern52, _matern52_slope),
}


class Shape(NamedTuple):
    """A GPyTorch kernel as k(x, x') = outputscale * radial(|x - x'|^2 in units of the lengthscale)."""

    radial: Radial
    lengthscale: Tensor  # `1` or `d`
    outputscale: Tensor  # a scalar


def shape_of(kernel: Kernel) -> Shape | None:
    """The shape of a kernel of :data:`RADIALS` on all dimensions, in a ``ScaleKernel`` or not; None of others.

    Classes derived from these are others: they may be another function, as ``RBFKernelGrad`` is.
    """
    base: Any = kernel.base_kernel if type(kernel) is ScaleKernel else kernel
    radial = RADIALS.get((type(base), getattr(base, "nu", None)))
    if radial is None or kernel.batch_shape.numel() != 1:
        return None
    if kernel.active_dims is not None or base.active_dims is not None:
        return None
    lengthscale: Tensor = base.lengthscale.flatten()
    outputscale: Any = kernel.outputscale if kernel is not base else torch.ones_like(lengthscale[0])
    return Shape(radial, lengthscale, outputscale.reshape(()))


class _Stationary:
    lengthscale: float | tuple[float, ...]
    outputscale: float

    def __post_init__(self) -> None:
        ell = self.lengthscale
        if not (len(ell) > 0 if isinstance(ell, tuple) else isinstance(ell, Real)):
            must = "lengthscale must be a positive number or a tuple of one per dimension"
            raise ValueError(f"{must}, got {quoted(ell)}.")
        for value in ell if isinstance(ell, tuple) else (ell,):
            check_positive(lengthscale=value)
        check_positive(outputscale=self.outputscale)

    def diagonal(self, X: Tensor) -> Tensor:
        """k(x, x) of every point."""
        return X.new_full((X.shape[0],), self.outputscale)


@dataclass(frozen=True)
class SquaredExponential(_Stationary):
    """k(x, x') = outputscale * exp(-||x - x'||^2 / (2 lengthscale^2)).

    Args:
        lengthscale: One positive number, or one per input dimension.
        outputscale: k(x, x), > 0.
    """

    capturable: ClassVar[bool] = True

    lengthscale: float | tuple[float, ...]
    outputscale: float = 1.0

    def __call__(self, X1: Tensor, X2: Tensor) -> Tensor:
        """The matrix of k(x, x')."""
        out = squared_exponential_(_distance(X1, X2, self.lengthscale).square_())
        return out if self.outputscale == 1.0 else out.mul_(self.outputscale)


@dataclass(frozen=True)
class Matern(_Stationary):
    """Matérn covariance with smoothness nu in {0.5, 1.5, 2.5}.

    With c = sqrt(2 nu) ||x - x'|| / lengthscale, k is outputscale times exp(-c), (1 + c) exp(-c) or
    (1 + c + c^2/3) exp(-c). Other settings are those of :class:`SquaredExponential`.
    """

    capturable: ClassVar[bool] = True

    nu: float
    lengthscale: float | tuple[float, ...]
    outputscale: float = 1.0

    def __post_init__(self) -> None:
        if not is_number(self.nu) or self.nu not in (0.5, 1.5, 2.5):
            raise ValueError(f"nu must be 0.5, 1.5 or 2.5, got {quoted(self.nu)}; use a GPyTorch kernel for others.")
        super().__post_init__()

    def __call__(self, X1: Tensor, X2: Tensor) -> Tensor:
        """The matrix of k(x, x')."""
        c = _distance(X1, X2, self.lengthscale).mul_(math.sqrt(2.0 * self.nu))
        decay = c.neg().exp_()
        if self.nu == 1.5:
            decay.addcmul_(decay, c)
        elif self.nu == 2.5:
            decay.mul_(torch.addcmul(c + 1.0, c, c, value=1.0 / 3.0))
        return decay if self.outputscale == 1.0 else decay.mul_(self.outputscale)


@dataclass(frozen=True)
class GPyTorchCovariance:
    """Any GPyTorch kernel without a batch shape. Hyperparameters are read at every call; there is no gradient."""

    kernel: Kernel

    def __post_init__(self) -> None:
        if not isinstance(self.kernel, Kernel):
            raise ValueError(f"kernel must be a GPyTorch kernel, got {quoted(self.kernel)}.")

    def diagonal(self, X: Tensor) -> Tensor:
        """k(x, x) of every point."""
        with torch.no_grad():
            return self.kernel(X, diag=True)

    def __call__(self, X1: Tensor, X2: Tensor) -> Tensor:
        """The matrix of k(x, x')."""
        with torch.no_grad():
            return self.kernel(X1, X2).to_dense()
