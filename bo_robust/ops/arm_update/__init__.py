"""One round of an exact GP posterior over finite arms.

``naive`` is plain torch and reads nothing back to the host; its docstring has the derivation. ``cpu`` reads the data
where this saves work. ``fused`` is one pass over the rows in Triton, for CUDA.
"""

from collections.abc import Callable, Hashable
from typing import Any

from torch import Tensor

from bo_robust.ops.arm_update import cpu, naive
from bo_robust.ops.arm_update.cpu import Scratch
from bo_robust.ops.arm_update.naive import LONG_BLOCK, SHORT_BLOCK, ArmBuffers, KernelRows, begin_round_
from bo_robust.ops.checked import dispatch

__all__ = ["LONG_BLOCK", "SHORT_BLOCK", "ArmBuffers", "KernelRows", "Scratch", "update_"]

# Shapes of rounds that have been played on the fused path.
_compiled: set[Hashable] = set()


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
        if arms.is_cuda:
            return naive.update_(buffers, arms, rewards, kernel_rows, counts)
        return cpu.update_(buffers, arms, rewards, kernel_rows, scratch, counts)

    def fused_update_(fused: Any) -> Tensor:
        return _all_or_nothing(buffers, lambda: fused.update_(buffers, arms, rewards, kernel_rows, counts), counts)

    return dispatch("arm_update", buffers.mean, fused_update_, plain)


def _all_or_nothing(buffers: ArmBuffers, update: Callable[[], Tensor], counts: Tensor | None) -> Tensor:
    """A round whose last kernel may fail to compile after the first ones have written: it then undoes those.

    Kernels are compiled for shapes. So only the first round of a shape copies what it would have to put back.
    """
    begin_round_(buffers)
    tensors = buffers.mean, buffers.rows, buffers.pending
    shape = buffers.mean.device, buffers.mean.dtype, buffers.dense, counts is None, *(x.shape for x in tensors)
    if shape in _compiled:
        return update()
    first = buffers.counts, buffers.information_gain, buffers.slots, buffers.row_arm, buffers.filled
    copies = [x.clone() for x in first]
    try:
        ok = update()
    except Exception:
        for x, copy in zip(first, copies, strict=True):
            x.copy_(copy)
        raise
    _compiled.add(shape)
    return ok
