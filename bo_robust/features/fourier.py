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

import torch
from numpy.polynomial.hermite import hermgauss
from scipy.special import roots_hermite
from torch import Tensor

from bo_robust.features.box import BoxFeatures, check_grid, keep_half
from bo_robust.utils.covariance import SquaredExponential, squared_exponential_


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

    @property
    def covariance(self) -> SquaredExponential:
        return SquaredExponential(self.lengthscale, self.outputscale)

    def frequencies(self, *, dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor]:
        frequencies, weights = hermite_frequencies(self.nodes, self.dim)
        frequencies = frequencies / torch.tensor(self.lengthscale, dtype=torch.float64)
        return frequencies.to(device, dtype), weights.to(device, dtype)

    def error_along_axis(self) -> float:
        """Largest |k(x, x') - phi(x) . phi(x')| measured on points of the box that differ in one input.

        That input is the one of the shortest lengthscale, for which the differences reach farthest.
        """
        frequencies, weights = _hermite(self.nodes)
        differences = torch.linspace(0.0, 1.0 / min(self.relative_lengthscales), 65, dtype=torch.float64)
        approximate = torch.cos(differences.unsqueeze(1) * frequencies) @ weights
        return self.outputscale * float((approximate - squared_exponential_(differences.square())).abs().max())


@lru_cache(maxsize=32)
def _hermite(nodes: int) -> tuple[Tensor, Tensor]:
    """Ascending frequencies and weights with sum 1 of exp(-x^2/2), ``nodes`` each."""
    # NumPy's weights overflow above 370 nodes.
    z, w = hermgauss(nodes) if nodes <= 300 else roots_hermite(nodes)
    return torch.from_numpy(math.sqrt(2.0) * z), torch.from_numpy(w / w.sum())
