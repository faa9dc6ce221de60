"""Follow V^{-1/2} by a few small products a round (CPU).

X = V^{-1/2} is the symmetric positive definite solution of X V X = I. At X, with V = E diag(d) E^T, a change dX
changes X V X by dX V^{1/2} + V^{1/2} dX; in the basis E that is a product by sqrt(d_i) + sqrt(d_j), entry by entry.
Newton's method with these numbers frozen at the last eigendecomposition (all matrices held in its basis E) is

    X <- X + (I - X V X) / (sqrt(d_i) + sqrt(d_j)).

It needs no commutation of X with V (as Newton-Schulz does), its fixed point is the symmetric root of the CURRENT V
whatever came before, so errors do not accumulate, and ||I - X V X|| is a residual to stop by. It contracts by about
the relative change of V since E, d were computed: when MAX_STEPS do not do, a new eigendecomposition is due. So it is
after a jump, trace(X V X - I) >= 1: from there the iteration could land on a root that is not positive definite (from
X = 1 it takes V = 4 to -1/2 at once).
"""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["MAX_STEPS", "TOLERANCE", "correct_"]

# Largest entry of I - X V X before the last correction; that correction then shrinks the error by the contraction,
# which is well below one where the iteration stops in time.
TOLERANCE = 1e-6
MAX_STEPS = 3


def correct_(X: Tensor, V: Tensor, gap: Tensor) -> Tensor:
    """Bring X (``s x k x k``) to V^{-1/2}, in place.

    Args:
        X: V^{-1/2} of an earlier V, in the basis of the last eigendecomposition.
        V: The matrices now, in that basis.
        gap: 1 / (sqrt(d_i) + sqrt(d_j)) of the last eigendecomposition.

    Returns:
        ``s`` bool, True where V jumped or the residual stayed above TOLERANCE: take a new eigendecomposition there.
    """
    far = late = V.new_zeros(V.shape[0], dtype=torch.bool)
    for step in range(MAX_STEPS):
        residual = X @ V @ X
        surplus = residual.diagonal(dim1=-2, dim2=-1).sub_(1.0)
        if step == 0:
            far = surplus.sum(-1) >= 1.0
        X.addcmul_(residual, gap, value=-1.0)
        size = residual.abs().amax((-2, -1))
        late = ~(size <= TOLERANCE)
        if not (late & ~far).any():
            break
    return late | far
