"""V^{-1/2}, symmetric, of many matrices V = S + sum of rank-one terms that change a little every round.

Exact: an eigendecomposition (:func:`exact`). Between two of them, on a CPU, :func:`correct_` follows V by a Newton
iteration whose Jacobian is frozen at the last exact root and stops by its measured residual; elsewhere
:func:`newton_schulz` computes the root anew with a number of products fixed beforehand, so that nothing is read back.
"""

from bo_robust.ops.inverse_root.chord import TOLERANCE, correct_
from bo_robust.ops.inverse_root.naive import exact, newton_schulz, products_needed

__all__ = ["TOLERANCE", "correct_", "exact", "newton_schulz", "products_needed"]
