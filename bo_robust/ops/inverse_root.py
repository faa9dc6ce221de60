"""The polar factor of many matrices, and with it V^{-1/2}, without reading anything back from the device."""

import math

import torch
from torch import Tensor


def newton_schulz(A: Tensor, smallest: float, largest: float) -> Tensor:
    """Q of the polar decompositions A = Q (A^T A)^{1/2}, ``s x n x k``, Q^T Q = I.

    ``ValueError`` unless 0 < ``smallest`` <= ``largest``: they bound the eigenvalues of A^T A.

    From U = A the iteration U <- U (3 rho I - rho^3 U^T U) / 2 takes all singular values of U to 1. Their bounds, kept
    on the host, give rho and say when to stop: p(x) = (3 rho x - rho^3 x^3) / 2 takes both bounds to the same value,
    and none beyond 1 (Chen & Chow 2014: a small singular value grows 2.6 times a step, with rho = 1 only 1.5 times).

    With the rows of lambda^{1/2} I as the last of A, the last k rows of Q are lambda^{1/2} V^{-1/2}, V = A^T A. As V is
    never formed, the error is eps times the root of its condition number.
    """
    if not 0.0 < smallest <= largest < math.inf:  # the iteration would not end
        raise ValueError(f"the eigenvalues of A^T A cannot lie between {smallest:g} and {largest:g}.")
    U, low, high = A, math.sqrt(smallest), math.sqrt(largest)
    rounding = 4.0 * torch.finfo(A.dtype).eps
    while True:
        rho = math.sqrt(3.0 / (low * low + low * high + high * high))
        U = torch.baddbmm(U, U, U.mT @ U, beta=1.5 * rho, alpha=-0.5 * rho**3)
        low, high = 0.5 * rho * low * (3.0 - (rho * low) ** 2), 1.0
        if 1.0 - low < rounding:
            return U
