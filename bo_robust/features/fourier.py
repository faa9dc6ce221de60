"""Quadrature Fourier features of the squared exponential covariance, for points of a box.

k(x - x') is the mean of cos(omega . (x - x')) over its spectral density, a Gaussian. Gauss-Hermite quadrature replaces
that mean by a weighted sum over a fixed grid of frequencies, and cos(a - b) = cos a cos b + sin a sin b splits it into
features. The approximate covariance depends on x - x' only, is positive semi-definite, and equals k where x = x'.

Source: Mutny & Krause 2018; Ray Chowdhury & Gopalan 2019, eq. (1). The nodes and weights are NumPy's
(SciPy's above 300 nodes), not the paper's formula in H_(m-1), which overflows.
"""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

import torch
from numpy.polynomial.hermite import hermgauss
from scipy.special import roots_hermite
from torch import Tensor

from bo_robust.utils.covariance import SquaredExponential, squared_exponential_
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


def hermite_frequencies(
    nodes: int, dim: int, *, half: bool = False, dtype: torch.dtype = torch.float64, device: torch.device | None = None
) -> tuple[Tensor, Tensor]:
    """The Cartesian Gauss-Hermite grid: frequencies and weights of exp(-||x - x'||^2 / 2), lengthscale 1.

    Args:
        nodes: m, the nodes per dimension, >= 1.
        dim: d, the input dimension, >= 1.
        half: Keep one of each pair +-omega with twice the weight, and the zero frequency (``nodes`` odd) with its own:
            the same covariance from half the frequencies.
        dtype: Floating point type of the result; computed in float64.
        device: Device of the result.

    Returns:
        Frequencies sqrt(2) z, ``f x d``, in lexicographic order, and weights ``f``, >= 0 with sum 1. f is nodes ** dim,
        or half of it rounded up.

    Raises:
        ValueError: if ``nodes`` or ``dim`` is below 1 or nodes ** dim exceeds ``MAX_FREQUENCIES``.
    """
    check_grid(nodes, dim)
    axis, axis_weights = _hermite(int(nodes))
    frequencies = torch.cartesian_prod(*[axis.clone()] * dim).reshape(-1, dim)  # dim = 1 hands its argument back
    weights = torch.cartesian_prod(*[axis_weights] * dim).reshape(-1, dim).prod(-1)
    if half:
        frequencies, weights = keep_half(frequencies, weights)
    return frequencies.to(device, dtype), weights.to(device, dtype)


@dataclass(frozen=True)
class FourierFeatures:
    """Quadrature Fourier features of :class:`~bo_robust.utils.covariance.SquaredExponential` on a box.

    On [0, 1]^d these are exactly eq. (1) of Ray Chowdhury & Gopalan 2019. The error falls exponentially once
    nodes > (side / lengthscale)^2. That is enough, and plenty for short lengthscales: where side / lengthscale is 2, 5,
    10 and 20, an error of 1e-2 of k(x, x) takes 6, 16, 42 and 132 nodes, and 1e-6 takes 10, 24, 56 and 157. The norm of
    every phi(x) is sqrt(outputscale) to rounding.

    Args:
        lengthscale: One number > 0, or one per dimension, in the units of X.
        nodes: Quadrature nodes per dimension, >= 1.
        bounds: (lower, upper) of every dimension of the box that holds all points.
        outputscale: k(x, x), > 0.

    Raises:
        ValueError: if an argument is out of range, the number of lengthscales is not that of bounds, or nodes ** dim
            exceeds ``MAX_FREQUENCIES``.
    """

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
    def covariance(self) -> SquaredExponential:
        """The covariance k that is approximated."""
        return SquaredExponential(self.lengthscale, self.outputscale)

    def frequencies(self, *, dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor]:
        """Frequencies ``f x d``, in radians per unit of x, and weights ``f`` with sum 1."""
        frequencies, weights = hermite_frequencies(self.nodes, self.dim)
        frequencies = frequencies / torch.tensor(self.lengthscale, dtype=torch.float64, device="cpu")
        return frequencies.to(device, dtype), weights.to(device, dtype)

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

    def error_along_axis(self) -> float:
        """Largest |k(x, x') - phi(x) . phi(x')| measured on points of the box that differ in one input.

        That input is the one of the shortest lengthscale, for which the differences reach farthest.
        """
        frequencies, weights = _hermite(self.nodes)
        differences = torch.linspace(0.0, 1.0 / min(self.relative_lengthscales), 65, dtype=torch.float64)
        approximate = torch.cos(differences.unsqueeze(1) * frequencies) @ weights
        return self.outputscale * float((approximate - squared_exponential_(differences.square())).abs().max())


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


@lru_cache(maxsize=32)
def _hermite(nodes: int) -> tuple[Tensor, Tensor]:
    """Ascending frequencies and weights with sum 1 of exp(-x^2/2), ``nodes`` each."""
    # NumPy's weights overflow above 370 nodes.
    z, w = hermgauss(nodes) if nodes <= 300 else roots_hermite(nodes)
    return torch.from_numpy(math.sqrt(2.0) * z), torch.from_numpy(w / w.sum())
