"""The symmetric V^{-1/2} of many matrices V that change a little every round, by rank-one terms.

:func:`eigen_root` takes an eigendecomposition. On a CPU :func:`correct_` follows V between two of them, by a few small
products. On CUDA :func:`newton_schulz` computes the root anew and reads nothing back to the host.

X = V^{-1/2} is the symmetric positive definite solution of X V X = I. Let V = E diag(d) E^T. A change dX changes X V X
by dX V^{1/2} + V^{1/2} dX. In the basis E this multiplies entry (i, j) of dX by sqrt(d_i) + sqrt(d_j). Newton's method
with E and d frozen at the last eigendecomposition, all matrices in the basis E, is

    X <- X + (I - X V X) / (sqrt(d_i) + sqrt(d_j)).

X and V need not commute, as they must for Newton-Schulz. The fixed point is the root of the CURRENT V, so errors do not
accumulate. ||I - X V X|| is a residual to stop by. The iteration contracts by about the relative change of V since the
last eigendecomposition. A new one is due if MAX_STEPS do not suffice, and after a jump, trace(X V X - I) >= 1: from
there the iteration could reach a root that is not positive definite (from X = 1, V = 4 it steps to X = -1/2 at once).
"""

import math

import torch
from torch import Tensor

__all__ = ["TOLERANCE", "correct_", "eigen_root", "newton_schulz", "products_needed"]

# Largest entry of I - X V X before the last correction. This correction shrinks the error further, by a factor well
# below one if the iteration stops in time.
TOLERANCE = 1e-6
MAX_STEPS = 3


def eigen_root(V: Tensor) -> tuple[Tensor, Tensor]:
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


def correct_(X: Tensor, V: Tensor, gap: Tensor) -> Tensor:
    """Bring X, the root of an earlier V, to V^{-1/2} in place.

    X, V and ``gap``, 1 / (sqrt(d_i) + sqrt(d_j)), are ``s x k x k`` in the basis of the last eigendecomposition.
    Returns where V jumped or the residual stayed above TOLERANCE, ``s`` bool: a new eigendecomposition is due there.
    """
    far = late = V.new_zeros(V.shape[0], dtype=torch.bool)
    for step in range(MAX_STEPS):
        residual = X @ V @ X
        surplus = residual.diagonal(dim1=-2, dim2=-1).sub_(1.0)
        if step == 0:
            far = surplus.sum(-1) >= 1.0
        X.addcmul_(residual, gap, value=-1.0)
        size = residual.abs().amax((-2, -1))
        late = ~(size <= TOLERANCE)  # true for NaN too
        if not (late & ~far).any():
            break
    return late | far
