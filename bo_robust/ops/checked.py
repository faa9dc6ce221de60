"""Which path an op takes, and the check before its first fused call.

Triton compiles for the device it meets, so that a fused path may fail there and nowhere else. Every fused path is
therefore compared with the naive one on random cases (:mod:`bo_robust.ops.cases`), once per process, device and dtype.
On a difference, a compile error or a failed launch the op runs in PyTorch, with one warning.

A kernel that reads or writes outside its memory ends CUDA for the whole process. The warning then names the op, and
``BO_ROBUST_OPS=naive`` is the way around it.
"""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType
from typing import Any, TypeVar

import torch
from torch import Tensor

from bo_robust.ops import reason_of, use_fused

Result = TypeVar("Result")

# Why the fused path of an op is not used, by op, device and dtype; None if it is.
_found: dict[tuple[str, torch.device, torch.dtype], str | None] = {}


def dispatch(op: str, x: Tensor, fused: Callable[[Any], Result], naive: Callable[[], Result]) -> Result:
    """Run ``op``, the name of a folder, on the path that device and dtype of ``x`` decide.

    ``fused`` calls the fused path, given its module, which leaves nothing half done if it raises.
    """
    if not use_fused(x):
        return naive()
    key = op, x.device, x.dtype
    if check(*key) is None:
        try:
            return fused(import_module(f"bo_robust.ops.{op}.fused"))
        except (ValueError, torch.OutOfMemoryError):  # mistakes of the caller; the naive path needs as much memory
            raise
        except Exception as error:
            result = naive()  # which raises too if the fault is not that of the path
            _fail(key, reason_of(error))
            return result
    return naive()


def check(op: str, device: torch.device, dtype: torch.dtype) -> str | None:
    """Why the fused path of an op is not used on a device, in a few words; None if it is. A failure warns once."""
    key = op, device, dtype
    if key not in _found:
        _found[key] = why = _difference(*key)
        if why is not None:
            _fail(key, why)
    return _found[key]


@contextmanager
def _strict_modes_off() -> Iterator[None]:
    """Allow reading back, which is meant here, and products whose sums have no fixed order."""
    mode = torch.cuda.get_sync_debug_mode() if torch.cuda.is_available() else None
    deterministic = torch.get_deterministic_debug_mode()
    try:
        torch.set_deterministic_debug_mode("default")
        if mode is not None:
            torch.cuda.set_sync_debug_mode("default")
        yield
    finally:
        torch.set_deterministic_debug_mode(deterministic)
        if mode is not None:
            torch.cuda.set_sync_debug_mode(mode)


@_strict_modes_off()
def _difference(op: str, device: torch.device, dtype: torch.dtype) -> str | None:
    try:
        cases = import_module("bo_robust.ops.cases")
        template = torch.empty(0, dtype=dtype, device=device)
        if not agree(op, cases.CASES[op], template):
            return "its results differ from those of the naive path"
    except Exception as error:
        return reason_of(error)
    return None


def agree(op: str, case: Callable[[ModuleType, Tensor], tuple[Tensor, ...]], template: Tensor) -> bool:
    """Whether the fused path of an op gives what the naive one does on a case of :mod:`bo_robust.ops.cases`."""
    with torch.no_grad():
        naive, fused = (case(import_module(f"bo_robust.ops.{op}.{path}"), template) for path in ("naive", "fused"))
    return all(_close(a, b) for a, b in zip(fused, naive, strict=True))


def _close(a: Tensor, b: Tensor) -> bool:
    """Equal to half of the digits, relative to the largest entry; whole numbers exactly. NaN is equal to nothing."""
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    if not a.is_floating_point():
        return torch.equal(a, b)
    return bool(((a - b).abs() <= torch.finfo(a.dtype).eps ** 0.5 * b.abs().amax()).all())


def _fail(key: tuple[str, torch.device, torch.dtype], why: str) -> None:
    op, device, dtype = key
    _found[key] = why
    warnings.warn(
        f"The fused path of {op} fails on {device} in {dtype}: {why}. The op runs in PyTorch. "
        f"Please report this line with the output of `python -m torch.utils.collect_env`.",
        RuntimeWarning,
        stacklevel=3,
    )
