"""V^{-1/2} by eigendecomposition, and by Newton-Schulz with a fixed number of matrix products."""

from __future__ import annotations

import math

import torch
from torch import Tensor

__all__ = ["exact", "newton_schulz", "products_needed"]


def exact(V: Tensor) -> tuple[Tensor, Tensor]:
    """Eigenvectors E (columns, ``... k x k``) and eigenvalues (``... k``) of V: V^{-1/2} = E diag(d^{-1/2}) E^T."""
    values, vectors = torch.linalg.eigh(V)
    return vectors, values


def products_needed(condition: float, size: int) -> int:
    """Iterations of :func:`newton_schulz` that reach rounding for V (``size x size``) of at most this condition number.

    Far from convergence an iteration multiplies the smallest eigenvalue of (V / ||V||_F)^{1/2}, at least
    (condition sqrt(size))^{-1/2}, by 3/2; six more square the remaining error down to rounding.
    """
    return math.ceil(0.5 * math.log(max(condition, 1.0) * math.sqrt(size)) / math.log(1.5)) + 6


def newton_schulz(V: Tensor, iterations: int) -> Tensor:
    """V^{-1/2} of symmetric positive definite V (``... k x k``): the coupled Newton-Schulz iteration.

    With c = ||V||_F, Y_0 = V / c and Z_0 = I: T = (3 I - Z Y) / 2, Y <- Y T, Z <- T Z; then Z -> (V / c)^{-1/2}
    (Higham, Functions of Matrices, 2008, eq. (6.35), numerically stable). No branch, no read-back.
    """
    k = V.shape[-1]
    scale = torch.linalg.matrix_norm(V, keepdim=True)
    Y = V / scale
    Z = torch.eye(k, dtype=V.dtype, device=V.device).expand_as(V)
    shift = 1.5 * torch.eye(k, dtype=V.dtype, device=V.device)
    for _ in range(iterations):
        T = shift - 0.5 * (Z @ Y)
        Y, Z = Y @ T, T @ Z
    return 0.5 * (Z + Z.mT) * scale.rsqrt()
