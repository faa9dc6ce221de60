"""Quadrature Fourier features of the squared exponential covariance.

k(x - x') is the mean of cos(omega . (x - x')) over its spectral density, a Gaussian. Gauss-Hermite quadrature replaces
that mean by a weighted sum over a fixed grid of frequencies, and cos(a - b) = cos a cos b + sin a sin b splits it into
features. The approximate covariance depends on x - x' only, is positive semi-definite, and equals k where x = x'.

Source: Mutny & Krause 2018; Ray Chowdhury & Gopalan 2019, eq. (1). The nodes and weights are NumPy's
(SciPy's above 300 nodes), not the paper's formula in H_(m-1), which overflows.
"""

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from numpy.polynomial.hermite import hermgauss
from scipy.special import roots_hermite
from torch import Tensor

from bo_robust.features.box import BoxFeatures, check_grid, keep_half
from bo_robust.utils.covariance import SquaredExponential
from bo_robust.utils.input_checks import check_count


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
class FourierFeatures(BoxFeatures):
    """Quadrature Fourier features of :class:`~bo_robust.utils.covariance.SquaredExponential` on a box.

    On [0, 1]^d these are exactly eq. (1) of Ray Chowdhury & Gopalan 2019. The error falls exponentially once
    nodes > (side / lengthscale)^2. That is enough, and plenty for short lengthscales; :func:`fewest_nodes` finds the
    number needed. The norm of every phi(x) is sqrt(outputscale) to rounding.

    Args:
        lengthscale: One number > 0, or one per dimension, in the units of X.
        nodes: Quadrature nodes per dimension, >= 1.
        bounds: (lower, upper) of every dimension of the box that holds all points.
        outputscale: k(x, x), > 0.

    Raises:
        ValueError: if an argument is out of range, the number of lengthscales is not that of bounds, or nodes ** dim
            exceeds ``MAX_FREQUENCIES``.
    """

    @property
    def covariance(self) -> SquaredExponential:
        return SquaredExponential(self.lengthscale, self.outputscale)

    def frequencies(self, *, dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor]:
        frequencies, weights = hermite_frequencies(self.nodes, self.dim)
        frequencies = frequencies / torch.tensor(self.lengthscale, dtype=torch.float64)
        return frequencies.to(device, dtype), weights.to(device, dtype)

    def sup_error(self, grid: int = 201) -> float:
        """Largest |k(x, x') - phi(x) . phi(x')| over all grid ** dim differences x - x', by measurement.

        ``grid`` >= 2 is the number of differences per dimension, from 0 to the side of the box. The result is good to
        about 1e-15. The cost grows with ``grid``, not with grid ** dim: both covariances are products over dimensions.
        """
        check_count(2, grid=grid)
        return self.outputscale * _sup_error(self.relative_lengthscales, self.nodes, grid)


def fewest_nodes(lengthscale: float | tuple[float, ...], bounds: tuple[tuple[float, float], ...], error: float) -> int:
    """The smallest ``nodes`` of :class:`FourierFeatures` with a measured error of at most ``error``, by bisection.

    ``lengthscale`` and ``bounds`` are those of :class:`FourierFeatures`; ``error`` is relative to k(x, x) and in
    [1e-12, 1).

    At side / lengthscale = 2, 5, 10 and 20, an error of 1e-2 takes 6, 16, 42 and 132 nodes, 1e-6 10, 24, 56 and 157.

    Raises:
        ValueError: if an argument is out of range or it would take more than ``MAX_FREQUENCIES`` frequencies.
    """
    features = FourierFeatures(lengthscale, 1, bounds)
    if not 1e-12 <= error < 1.0:
        raise ValueError(f"error must be in [1e-12, 1), relative to k(x, x), got {error!r}.")
    too_few, enough = 0, 1
    while _sup_error(features.relative_lengthscales, enough) > error:
        too_few, enough = enough, 2 * enough
        check_grid(too_few + 1, features.dim)
    # Bisection is allowed: the error falls with the nodes once it is below 0.9.
    while enough - too_few > 1:
        middle = (too_few + enough) // 2
        if _sup_error(features.relative_lengthscales, middle) > error:
            too_few = middle
        else:
            enough = middle
    check_grid(enough, features.dim)
    return enough


@lru_cache(maxsize=32)
def _hermite(nodes: int) -> tuple[Tensor, Tensor]:
    """Ascending frequencies and weights with sum 1 of exp(-x^2/2), ``nodes`` each."""
    # NumPy's weights overflow above 370 nodes.
    z, w = hermgauss(nodes) if nodes <= 300 else roots_hermite(nodes)
    return torch.from_numpy(math.sqrt(2.0) * z), torch.from_numpy(w / w.sum())


def _sup_error(relative_lengthscales: tuple[float, ...], nodes: int, grid: int = 201) -> float:
    """sup |prod_j k_j - prod_j khat_j| over the grid of differences of all dimensions, for outputscale 1.

    The difference is linear in one dimension's pair (k_j, khat_j), or in the products over some dimensions, while the
    rest is fixed. So its largest magnitude is at a corner of the convex hull of the pairs. Pairs are kept as
    (k, khat - k): the small differences keep their digits.
    """
    frequencies, weights = _hermite(nodes)
    side = torch.linspace(0.0, 1.0, grid, dtype=torch.float64).unsqueeze(1)
    products = np.array([[1.0, 0.0]])
    for ell in relative_lengthscales:
        corners = _convex_hull(products)
        k = SquaredExponential(ell)(side[:1], side)[0]
        pairs = torch.stack([k, torch.cos(side / ell * frequencies) @ weights - k], dim=1).numpy()
        product = np.multiply.outer(corners[:, 0], pairs[:, 0])
        error = np.multiply.outer(corners.sum(1), pairs[:, 1]) + np.multiply.outer(corners[:, 1], pairs[:, 0])
        products = np.stack([product.ravel(), error.ravel()], axis=1)
    return float(np.abs(products[:, 1]).max())


def _convex_hull(points: np.ndarray) -> np.ndarray:
    """Corners of the convex hull of points ``n x 2`` (Andrew's monotone chain), the two ends twice."""
    ordered = sorted(map(tuple, points.tolist()))
    corners = []
    for sequence in (ordered, ordered[::-1]):
        chain: list[tuple[float, ...]] = []
        for x, y in sequence:
            while len(chain) > 1:
                (x1, y1), (x2, y2) = chain[-2:]
                if (x2 - x1) * (y - y1) > (y2 - y1) * (x - x1):
                    break
                chain.pop()
            chain.append((x, y))
        corners += chain
    return np.array(corners)
