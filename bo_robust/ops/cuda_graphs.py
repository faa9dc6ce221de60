"""CUDA graphs: work that is the same each time, on the same memory, is recorded once and launched as one.

Where that cannot be, it runs as it would without, and a warning says why, once.
"""

from __future__ import annotations

import gc
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import TypeAlias

import torch

from bo_robust.ops import ops_forced_naive, reason_of

Work: TypeAlias = Callable[[], None]
Capture: TypeAlias = Callable[[torch.device, Work], Work]
"""Record some work, without running it, and return its replay."""

SAFE_TORCH = (2, 12)  # an older one is left capturing by a capture that fails (pytorch/pytorch#180395)


_one_at_a_time = threading.Lock()


@cache
def _stream(device: torch.device) -> torch.cuda.Stream:
    """The stream of a device's captures. PyTorch has one for all devices, which captures on that of the first."""
    return torch.cuda.Stream(device)


def cuda_graph(device: torch.device, work: Work) -> Work:
    """Capture ``work`` on a CUDA device; ``RuntimeError`` if it waits for the device, or memory is short.

    ``AssertionError`` if the graph is empty, since the work then ran at once.
    """
    graph = torch.cuda.CUDAGraph(keep_graph=True)  # for the count
    with _one_at_a_time, torch.cuda.device(device), _no_collection():
        stream = torch.cuda.current_stream()
        try:
            # What other threads do on the device does not end this capture.
            with torch.cuda.graph(graph, stream=_stream(device), capture_error_mode="thread_local"):
                work()
        finally:  # a capture that fails does not give the stream back
            torch.cuda.set_stream(stream)
        if _num_nodes(graph) == 0:
            raise AssertionError(f"a CUDA graph of {device} is empty; set BO_ROBUST_OPS=naive, and report this line.")
        graph.instantiate()
    return graph.replay


def _num_nodes(graph: torch.cuda.CUDAGraph) -> int | None:
    """How many operations a graph has; None without NVIDIA's bindings, which torch for CUDA brings along from 2.12."""
    try:
        from cuda.bindings import runtime
    except ImportError:
        return None
    count: int = runtime.cudaGraphGetNodes(graph.raw_cuda_graph(), numNodes=0)[-1]
    return count


@contextmanager
def _no_collection() -> Iterator[None]:
    """Collect no garbage: what it finds may unload a kernel, which no capture allows."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def can_capture(what: str, device: torch.device) -> bool:
    """Whether the device has graphs, and torch survives captures that fail. ``BO_ROBUST_OPS=naive`` turns them off."""
    if device.type != "cuda" or ops_forced_naive():
        return False
    major, minor = torch.__version__.split(".")[:2]
    if (int(major), int(minor)) < SAFE_TORCH:
        warn_once(what, f"torch is {torch.__version__}, older than {'.'.join(map(str, SAFE_TORCH))}")
        return False
    return True


@cache
def warn_once(what: str, reason: str) -> None:
    """Warn that something runs without a graph."""
    warnings.warn(f"{what} are not captured, but run one by one: {reason}.", stacklevel=3)


class Repeated:
    """Work that is the same on the same memory at every call; on CUDA the second call captures it.

    ``capture`` is :func:`cuda_graph` by default, where :func:`can_capture` says so.
    """

    def __init__(self, what: str, work: Work, device: torch.device, capture: Capture | None = None) -> None:
        self._what, self._work, self._device, self._calls = what, work, device, 0
        self._capture = cuda_graph if capture is None and can_capture(what, device) else capture

    def __call__(self) -> None:
        """Do the work."""
        self._calls += 1
        if self._calls == 2 and self._capture is not None:
            try:
                self._work = self._capture(self._device, self._work)
            except RuntimeError as error:
                warn_once(self._what, reason_of(error))
        self._work()
