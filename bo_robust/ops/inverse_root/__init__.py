"""The symmetric V^{-1/2} of many matrices V that change a little every round, by rank-one terms.

:func:`exact` takes an eigendecomposition. On a CPU :func:`correct_` follows V between two of them. Elsewhere
:func:`newton_schulz` computes the root anew and reads nothing back to the host.
"""

from bo_robust.ops.inverse_root.chord import TOLERANCE, correct_
from bo_robust.ops.inverse_root.naive import exact, newton_schulz, products_needed

__all__ = ["TOLERANCE", "correct_", "exact", "newton_schulz", "products_needed"]
