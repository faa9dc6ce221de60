"""The inner loops. Those that pay have a ``fused`` path in Triton beside the ``naive`` one in PyTorch (any device).

A CUDA tensor takes the fused path if Triton is available and the path agrees with the naive one on a small case, which
:mod:`bo_robust.ops.checked` finds out before its first call. The ``fused`` modules are imported only then, and by tests
under ``TRITON_INTERPRET=1``. The environment variable ``BO_ROBUST_OPS=naive`` forces the naive path, and so does

>>> with naive_ops():
...     run(...)
"""

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache

from torch import Tensor

from bo_robust.utils.linalg import on_cuda

MIN_TRITON = (3, 6)

_naive: ContextVar[bool] = ContextVar("bo_robust_naive_ops", default=False)


@contextmanager
def naive_ops() -> Iterator[None]:
    """Run every op of this thread in PyTorch, on CUDA too: to compare, or to rule out the fused ops."""
    token = _naive.set(True)
    try:
        yield
    finally:
        _naive.reset(token)


def use_fused(x: Tensor) -> bool:
    """Whether an op on ``x`` takes its Triton path: ``x`` is on CUDA, and Triton is available and not ruled out."""
    return on_cuda(x) and not _naive.get() and not ops_forced_naive() and triton_is_available()


@cache
def ops_forced_naive() -> bool:
    """Whether the environment variable ``BO_ROBUST_OPS=naive`` asks for PyTorch alone. It is read once."""
    return os.environ.get("BO_ROBUST_OPS") == "naive"


@cache
def triton_is_available() -> bool:
    """Whether Triton is installed and at least :data:`MIN_TRITON`. Warns once if it is older."""
    try:
        import triton
    except ImportError:
        return False
    major, minor = triton.__version__.split(".")[:2]
    if (int(major), int(minor)) >= MIN_TRITON:
        return True
    needed = ".".join(map(str, MIN_TRITON))
    warnings.warn(f"Triton {triton.__version__} is older than {needed}: ops run in PyTorch.", stacklevel=2)
    return False


def reason_of(error: Exception) -> str:
    """Type and first line of an error."""
    return f"{type(error).__name__}: {str(error).strip()}".splitlines()[0].rstrip(" .:")
