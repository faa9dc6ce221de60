"""V^{-1/2} by eigendecomposition, or by a fixed number of Newton-Schulz iterations."""

import math

import torch
from torch import Tensor


def exact(V: Tensor) -> tuple[Tensor, Tensor]:
    """Eigenvectors E (columns, ``... x k x k``) and eigenvalues d (``... x k``): V^{-1/2} = E diag(d^{-1/2}) E^T."""
    values, vectors = torch.linalg.eigh(V)
    return vectors, values


def products_needed(condition: float, size: int) -> int:
    """Iterations after which :func:`newton_schulz` is exact to rounding, for V (``size x size``) of this condition.

    Far from convergence an iteration multiplies the smallest eigenvalue of (V / ||V||_F)^{1/2} by 3/2. It starts at
    (condition sqrt(size))^{-1/2} or above. Six more iterations square the remaining error down to rounding.
    """
    return math.ceil(0.5 * math.log(max(condition, 1.0) * math.sqrt(size)) / math.log(1.5)) + 6


def newton_schulz(V: Tensor, iterations: int) -> Tensor:
    """V^{-1/2} of symmetric positive definite V (``... x k x k``) by the coupled Newton-Schulz iteration.

    Let c = ||V||_F, Y_0 = V / c and Z_0 = I. With T = (3 I - Z Y) / 2, Y <- Y T and Z <- T Z, Z tends to (V / c)^{-1/2}
    (Higham, Functions of Matrices, 2008, eq. (6.35), numerically stable). Nothing is read back to the host.
    """
    k = V.shape[-1]
    scale = torch.linalg.matrix_norm(V, keepdim=True)
    Y = V / scale
    Z = torch.eye(k, dtype=V.dtype, device=V.device).expand_as(V)
    shift = 1.5 * torch.eye(k, dtype=V.dtype, device=V.device)
    for _ in range(iterations):
        T = shift - 0.5 * (Z @ Y)
        Y, Z = Y @ T, T @ Z
    return 0.5 * (Z + Z.mT) * scale.rsqrt()  # rounding makes Z slightly asymmetric
