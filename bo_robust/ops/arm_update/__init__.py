"""One round of an exact GP posterior over finite arms.

``naive`` is plain torch and reads nothing back to the host; its docstring has the derivation. ``cpu`` reads the data
where this saves work. ``fused`` is one pass over the rows in Triton, for CUDA.
"""

from torch import Tensor

from bo_robust.linalg import on_cuda
from bo_robust.ops.arm_update import cpu, naive
from bo_robust.ops.arm_update.cpu import Scratch
from bo_robust.ops.arm_update.naive import LONG_BLOCK, SHORT_BLOCK, ArmBuffers, KernelRows
from bo_robust.ops.checked import dispatch

__all__ = ["LONG_BLOCK", "SHORT_BLOCK", "ArmBuffers", "KernelRows", "Scratch", "update_"]


def update_(
    buffers: ArmBuffers,
    arms: Tensor,
    rewards: Tensor,
    kernel_rows: KernelRows,
    scratch: Scratch,
    counts: Tensor | None = None,
) -> Tensor:
    """See :func:`bo_robust.ops.arm_update.naive.update_`. The caller keeps ``scratch`` between rounds (CPU only)."""

    def plain() -> Tensor:
        if on_cuda(arms):
            return naive.update_(buffers, arms, rewards, kernel_rows, counts)
        return cpu.update_(buffers, arms, rewards, kernel_rows, scratch, counts)

    return dispatch(
        "arm_update",
        buffers.mean,
        lambda fused: fused.update_(buffers, arms, rewards, kernel_rows, counts),
        plain,
    )
