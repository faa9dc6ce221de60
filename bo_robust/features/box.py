"""Fourier features on a grid of frequencies, for points of a box: the parts that all covariances share."""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from bo_robust.utils.covariance import Covariance
from bo_robust.utils.input_checks import check_count, check_tensor, quoted

MAX_FREQUENCIES = 65_536  # of a grid, nodes ** dim


def fourier_features(
    X: Tensor, frequencies: Tensor, weights: Tensor, lengthscale: float | Tensor, outputscale: float | Tensor = 1.0
) -> Tensor:
    """phi(x), ``... x n x 2f``: sqrt(weight * outputscale) times cosines, then sines, of omega . (x / lengthscale).

    Differentiable in X, the lengthscale and the outputscale. A zero frequency has a column of zeros as its sine.

    Args:
        X: ``... x n x d`` points.
        frequencies: omega, ``f x d``, of the dtype and on the device of X.
        weights: ``f``, >= 0, of the dtype and on the device of X.
        lengthscale: A number, or a tensor: ``d`` or ``... x 1 x d``.
        outputscale: k(x, x): a number, or a tensor without dimensions or ``... x 1 x 1``.
    """
    angles = (X / lengthscale) @ frequencies.mT
    amplitudes = weights.sqrt() * outputscale**0.5
    return torch.cat([amplitudes * angles.cos(), amplitudes * angles.sin()], dim=-1)


class Features(Protocol):
    """A feature map x -> phi(x) with phi(x) . phi(x') near k(x, x')."""

    @property
    def num_features(self) -> int:
        """Length p of phi(x)."""

    def __call__(self, X: Tensor) -> Tensor:
        """phi, ``... x n x p``, of points ``... x n x d``, of the dtype and on the device of X."""


@dataclass(frozen=True)
class BoxFeatures(ABC):
    """Fourier features on a grid of frequencies, for points of a box; a subclass chooses the grid."""

    lengthscale: float | tuple[float, ...]
    nodes: int
    bounds: tuple[tuple[float, float], ...]
    outputscale: float = 1.0

    def __post_init__(self) -> None:
        for field in ("lengthscale", "bounds"):  # lists, as JSON gives them back, become tuples
            object.__setattr__(self, field, _as_tuple(getattr(self, field)))
        if not isinstance(self.bounds, tuple) or not self.bounds or not all(map(_is_interval, self.bounds)):
            must = "bounds must hold one (lower, upper) per dimension, finite and lower < upper"
            raise ValueError(f"{must}, got {quoted(self.bounds)}.")
        if isinstance(self.lengthscale, tuple) and len(self.lengthscale) != self.dim:
            raise ValueError(f"{len(self.lengthscale)} lengthscales for bounds of {self.dim} dimensions.")
        _ = self.covariance  # checks its hyperparameters
        check_grid(self.nodes, self.dim)
        object.__setattr__(self, "nodes", int(self.nodes))  # 8.0 is a whole number too

    @property
    @abstractmethod
    def covariance(self) -> Covariance:
        """The covariance k that is approximated."""

    @abstractmethod
    def frequencies(self, *, dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor]:
        """Frequencies ``f x d``, in radians per unit of x, and weights ``f`` with sum 1."""

    @property
    def dim(self) -> int:
        """d, the input dimension."""
        return len(self.bounds)

    @property
    def num_frequencies(self) -> int:
        """nodes ** dim, the m of the paper's truncation level and width."""
        return self.nodes**self.dim

    @property
    def num_features(self) -> int:
        """Length p of phi(x): a cosine and a sine for every frequency."""
        return 2 * self.num_frequencies

    @property
    def relative_lengthscales(self) -> tuple[float, ...]:
        """Lengthscale divided by the side of the box, per dimension."""
        scales = self.lengthscale if isinstance(self.lengthscale, tuple) else (self.lengthscale,) * self.dim
        return tuple(ell / (upper - lower) for ell, (lower, upper) in zip(scales, self.bounds, strict=True))

    def __call__(self, X: Tensor) -> Tensor:
        """phi, ``... x n x p``, of points ``... x n x d`` in the box, of their dtype and on their device.

        Raises:
            ValueError: if X is not floating point, has another d, or a point is NaN or outside the box by more than
                rounding (1e-6 of the side).
        """
        check_tensor("X", X, floating=False)
        if not X.is_floating_point() or X.ndim < 2 or X.shape[-1] != self.dim:
            raise ValueError(
                f"X must be floating point points ... x n x {self.dim} as bounds has {self.dim} dimension(s), "
                f"got {X.dtype} of shape {tuple(X.shape)}."
            )
        lower, upper = X.new_tensor(self.bounds).unbind(-1)
        beyond = outside(X, lower, upper)
        if bool(beyond.any()):
            raise ValueError(
                f"{int(beyond.sum())} of {beyond.numel()} points are NaN or outside the box {self.bounds}, where "
                "the approximation does not hold; widen `bounds` (and raise `nodes`), or rescale X."
            )
        frequencies, weights = self.frequencies(dtype=X.dtype, device=X.device)
        return fourier_features(X - lower, frequencies, weights, 1.0, self.outputscale)


def outside(X: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
    """Which points ``... x d`` are NaN or outside a box by more than rounding, ``...`` bool."""
    slack = 1e-6 * (upper - lower) + 4.0 * torch.finfo(X.dtype).eps * torch.maximum(lower.abs(), upper.abs())
    return ~((X - X.clamp(lower, upper)).abs() <= slack).all(-1)


def check_grid(nodes: int, dim: int) -> None:
    """Raise ``ValueError`` unless nodes and dim are >= 1 and nodes ** dim is at most ``MAX_FREQUENCIES``."""
    check_count(1, nodes=nodes, dim=dim)
    if nodes**dim > MAX_FREQUENCIES:
        raise ValueError(
            f"{nodes} nodes in each of {dim} dimension(s) are {nodes**dim} frequencies, more than {MAX_FREQUENCIES}; "
            "use fewer nodes, or Nyström features."
        )


def keep_half(frequencies: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """One frequency of each pair +-omega, with twice the weight, from a grid ``f x d`` symmetric about zero.

    The grid must be in lexicographic order: then its reverse is its negative, and an odd f has zero in the middle.
    """
    first = weights.numel() // 2
    doubled = 2.0 * weights[first:]
    if weights.numel() % 2:
        doubled[0] = weights[first]
    return frequencies[first:], doubled


def _as_tuple(value: object) -> object:
    return tuple(map(_as_tuple, value)) if isinstance(value, list | tuple) else value


def _is_interval(pair: object) -> bool:
    if not isinstance(pair, tuple) or len(pair) != 2:
        return False
    lower, upper = pair
    return math.isfinite(lower) and math.isfinite(upper) and lower < upper
