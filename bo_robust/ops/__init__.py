"""The inner loops. Every op has a ``naive`` path in plain torch, any device, and most a ``fused`` one in Triton.

A tensor on CUDA takes the fused path where Triton is there; :func:`naive_ops` makes it take the plain one:

>>> with naive_ops():
...     run(...)

On a command line the environment variable ``BO_ROBUST_OPS=naive`` does the same.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache

from torch import Tensor

__all__ = ["MIN_TRITON", "naive_ops", "ops_forced_naive", "triton_is_available", "use_fused"]

MIN_TRITON = (3, 6)

_naive: ContextVar[bool] = ContextVar("bo_robust_naive_ops", default=False)


@contextmanager
def naive_ops() -> Iterator[None]:
    """Within it every op of this thread is plain torch, on CUDA too: to compare, or to rule the fused ops out."""
    token = _naive.set(True)
    try:
        yield
    finally:
        _naive.reset(token)


def use_fused(x: Tensor) -> bool:
    """Whether an op on ``x`` takes its Triton path: ``x`` is on CUDA, Triton is there, and not :func:`naive_ops`."""
    return x.is_cuda and not _naive.get() and not ops_forced_naive() and triton_is_available()


def ops_forced_naive() -> bool:
    """Whether the environment asks for plain torch, ``BO_ROBUST_OPS=naive``; for command lines."""
    return os.environ.get("BO_ROBUST_OPS") == "naive"


@cache
def triton_is_available() -> bool:
    """Whether Triton is installed and not older than :data:`MIN_TRITON`; warns once when it is older."""
    try:
        import triton
    except ImportError:
        return False
    major, minor = triton.__version__.split(".")[:2]
    if (int(major), int(minor)) >= MIN_TRITON:
        return True
    needed = ".".join(map(str, MIN_TRITON))
    warnings.warn(f"Triton {triton.__version__} is older than {needed}: ops run in plain torch.", stacklevel=2)
    return False
