"""Every op of ``bo_robust/ops`` as data to measure: shapes, inputs, both implementations, and the floor of each.

:data:`benchmarks.ops.registry.OPS` holds the ops; this file says what an :class:`Op` is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch

__all__ = ["Op", "Shape"]

Shape: TypeAlias = dict[str, Any]


@dataclass(frozen=True)
class Op:
    """One op and how to measure it.

    A call may write into its inputs (the arm update does), always at the same cost; results of two implementations are
    comparable on inputs made anew only: use :meth:`verify`.

    Attributes:
        name: Key in the registry.
        shapes: What to measure on a GPU, sizes by their axis letters; the first is the one with a target.
        small: One shape that takes milliseconds on a CPU.
        make: ``(shape, device, dtype)`` to the inputs of both callables; the same numbers at every call.
        naive: Plain torch on any device; returns tensors (one or a tuple).
        fused: The Triton op, CUDA only (or under ``TRITON_INTERPRET=1``); None where there is none. Imports Triton when
            called, not before.
        bytes: ``(shape, dtype)``: fewest bytes to and from device memory, each input read and each output written once.
        flops: ``(shape)``: floating-point operations of the same.
        check: ``(a, b, dtype)``: largest difference of two results as a multiple of what rounding may cause; they agree
            if it is <= 1. NaN where only one of them is NaN.
        matrix_units: Whether the operations are matrix products, so that the ceiling is the GEMM rate.
    """

    name: str
    shapes: list[Shape]
    small: Shape
    make: Callable[[Shape, torch.device | str, torch.dtype], Any]
    naive: Callable[[Any], Any]
    fused: Callable[[Any], Any] | None
    bytes: Callable[[Shape, torch.dtype], float]
    flops: Callable[[Shape], float]
    check: Callable[[Any, Any, torch.dtype], float]
    matrix_units: bool = False

    def verify(self, shape: Shape, device: torch.device | str, dtype: torch.dtype) -> float:
        """:attr:`check` of fused against naive, each on inputs of its own; not to be timed where this is not <= 1."""
        assert self.fused is not None
        expected = self.naive(self.make(shape, device, dtype))
        return self.check(self.fused(self.make(shape, device, dtype)), expected, dtype)
