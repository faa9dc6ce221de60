"""Follow V^{-1/2} by a few small products per round, on the CPU.

X = V^{-1/2} is the symmetric positive definite solution of X V X = I. Let V = E diag(d) E^T. A change dX changes X V X
by dX V^{1/2} + V^{1/2} dX. In the basis E this multiplies entry (i, j) of dX by sqrt(d_i) + sqrt(d_j). Newton's method
with E and d frozen at the last eigendecomposition, all matrices in the basis E, is

    X <- X + (I - X V X) / (sqrt(d_i) + sqrt(d_j)).

X and V need not commute, as they must for Newton-Schulz. The fixed point is the root of the CURRENT V, so errors do not
accumulate. ||I - X V X|| is a residual to stop by. The iteration contracts by about the relative change of V since the
last eigendecomposition. A new one is due if MAX_STEPS do not suffice, and after a jump, trace(X V X - I) >= 1: from
there the iteration could reach a root that is not positive definite (from X = 1, V = 4 it steps to X = -1/2 at once).
"""

import torch
from torch import Tensor

# Largest entry of I - X V X before the last correction. This correction shrinks the error further, by a factor well
# below one if the iteration stops in time.
TOLERANCE = 1e-6
MAX_STEPS = 3


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
