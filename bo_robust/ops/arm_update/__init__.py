"""One round of an exact GP posterior over finite arms.

``naive`` is PyTorch and reads nothing back to the host; its docstring has the derivation. ``cpu`` reads the data
where this saves work. ``fused`` is one pass over the rows in Triton, for CUDA.
"""

from torch import Tensor

from bo_robust.ops.arm_update import cpu, naive
from bo_robust.ops.arm_update.naive import ArmBuffers, PriorRows
from bo_robust.ops.checked import dispatch
from bo_robust.utils.linalg import on_cuda


def update_(
    buffers: ArmBuffers, arms: Tensor, rewards: Tensor, kernel: PriorRows, counts: Tensor | None = None
) -> Tensor:
    """See :func:`bo_robust.ops.arm_update.naive.update_`."""
    if not on_cuda(arms):
        return cpu.update_(buffers, arms, rewards, kernel, counts)
    given = buffers, arms, rewards.detach(), kernel, counts
    return dispatch("arm_update", buffers.mean, lambda fused: fused.update_(*given), lambda: naive.update_(*given))
