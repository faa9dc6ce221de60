"""What a round of BKB takes beside matrix products, at sizes that do not depend on numbers of the device.

A dictionary has R slots and fills as many as it has points. ``naive`` is PyTorch, ``fused`` one Triton program a trial.
"""

from typing import Any

from torch import Tensor

from bo_robust.ops.checked import dispatch
from bo_robust.ops.dtc_round import naive


def draw_(slots: int, oversampling: float, *given: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """See :func:`bo_robust.ops.dtc_round.naive.draw_`."""
    how: Any = slots, oversampling, *given
    return dispatch("dtc_round", given[4], lambda fused: fused.draw_(*how), lambda: naive.draw_(*how))


def inverse_root(C: Tensor, size: Tensor, pivoting: bool) -> Tensor:
    """See :func:`bo_robust.ops.dtc_round.naive.inverse_root`."""
    given = C, size, pivoting
    return dispatch("dtc_round", C, lambda fused: fused.inverse_root(*given), lambda: naive.inverse_root(*given))
