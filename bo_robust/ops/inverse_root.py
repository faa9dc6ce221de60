"""The symmetric V^{-1/2} of many matrices V that change a little every round, by rank-one terms.

On a CPU :func:`correct_` follows V between two eigendecompositions, by a few small products. On CUDA
:func:`newton_schulz` computes the root anew and reads nothing back to the host.

X = V^{-1/2} is the symmetric positive definite solution of X V X = I. Let V = E diag(d) E^T. A change dX changes X V X
by dX V^{1/2} + V^{1/2} dX. In the basis E this multiplies entry (i, j) of dX by sqrt(d_i) + sqrt(d_j). Newton's method
with E and d frozen at the last eigendecomposition, all matrices in the basis E, is

    X <- X + (I - X V X) / (sqrt(d_i) + sqrt(d_j)).

X and V need not commute. The fixed point is the root of the CURRENT V, so errors do not accumulate. ||I - X V X|| is a
residual to stop by. The iteration contracts by about the relative change of V since the last eigendecomposition. A new
one is due if MAX_STEPS do not suffice, and after a jump, trace(X V X - I) >= 1: from there the iteration could reach a
root that is not positive definite (from X = 1, V = 4 it steps to X = -1/2 at once).
"""

import math

import torch
from torch import Tensor

TOLERANCE = 1e-6  # Largest entry of I - X V X before the last correction, which shrinks the error further
MAX_STEPS = 3


def newton_schulz(V: Tensor, smallest: float, largest: float) -> Tensor:
    """V^{-1/2} of symmetric V (``s x k x k``) whose eigenvalues lie between ``smallest`` > 0 and ``largest``,
    ``ValueError`` if these are no such bounds.

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
