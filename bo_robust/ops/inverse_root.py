"""The symmetric V^{-1/2} of many matrices V, without reading anything back from the device."""

import math

import torch
from torch import Tensor


def newton_schulz(V: Tensor, smallest: float, largest: float) -> Tensor:
    """V^{-1/2} of symmetric V (``s x k x k``) whose eigenvalues lie between ``smallest`` > 0 and ``largest``.

    Raises ``ValueError`` if these are no such bounds.

    With a Cholesky factor V = L L^T and the polar decomposition L = V^{1/2} U it is U L^{-1}. From U = L, the iteration
    U <- U (3 rho I - rho^3 U^T U) / 2 takes all singular values of U to 1. Their bounds, kept on the host, give rho and
    say when to stop: p(x) = (3 rho x - rho^3 x^3) / 2 takes both bounds to the same value, and none beyond 1 (Chen &
    Chow 2014: a small singular value grows 2.6 times a step, with rho = 1 only 1.5 times). Nothing is read back from
    the device. U is orthogonal to rounding, so that U L^{-1} is a root of V^{-1} as exactly as L^{-1} is.
    """
    if not 0.0 < smallest <= largest < math.inf:  # the iteration would not end
        raise ValueError(f"the eigenvalues of V cannot lie between {smallest:g} and {largest:g}.")
    factor = torch.linalg.cholesky_ex(V)[0]  # not `cholesky`, which waits to see whether it succeeded
    U, low, high = factor, math.sqrt(smallest), math.sqrt(largest)
    rounding = 4.0 * torch.finfo(V.dtype).eps
    while True:
        rho = math.sqrt(3.0 / (low * low + low * high + high * high))
        U = torch.baddbmm(U, U, U.mT @ U, beta=1.5 * rho, alpha=-0.5 * rho**3)
        low, high = 0.5 * rho * low * (3.0 - (rho * low) ** 2), 1.0
        if 1.0 - low < rounding:
            return torch.linalg.solve_triangular(factor, U, upper=False, left=False)
