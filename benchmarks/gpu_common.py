"""What the parts of ``python -m benchmarks.gpu`` share: targets, one run's rows, timing, and comparisons."""

from __future__ import annotations

import json
import math
import os
import statistics
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from benchmarks import common, stats

__all__ = [
    "COMPARED", "CORES", "Bench", "Mismatch", "Target", "cpu_seconds", "cut_off", "launches", "require_close",
    "require_same", "seconds",
]  # fmt: skip

# The rows of a workload that CPU and GPU run, and their units.
COMPARED = (("cpu_over_gpu", "x, the better CPU"), ("launches", "a round"))
CORES = len(os.sched_getaffinity(0))


class Mismatch(Exception):
    """Two ways to compute the same do not agree: nothing is timed."""


@dataclass(frozen=True)
class Target:
    """A number to reach on an H200-class GPU; ``limit`` None: reported without one."""

    name: str
    unit: str
    limit: float | None = None
    at_least: bool = False

    def __str__(self) -> str:
        return f"{'>=' if self.at_least else '<='} {self.limit:g}"

    def met(self, value: float) -> bool:
        """Whether a value reaches it."""
        assert self.limit is not None
        return value >= self.limit if self.at_least else value <= self.limit


@dataclass
class Bench:
    """One run: its device, its rows, whether nothing failed, and the ceilings (bytes and operations a second)."""

    device: torch.device
    quick: bool
    rows: list[dict[str, Any]] = field(default_factory=list)
    good: bool = True
    bandwidth: float = math.nan
    rates: dict[torch.dtype, float] = field(default_factory=dict)

    def report(self, target: Target, value: float | None, detail: dict[str, Any], whole: bool = True) -> None:
        """One row. ``value`` None: not measured; ``whole`` False: cut off, the target is not met whatever the value."""
        text = None if target.limit is None else str(target) + (" (at full size)" if self.quick else "")
        met = None if value is None or target.limit is None or self.quick else whole and target.met(value)
        row = {"name": target.name, "value": value, "unit": target.unit, "target": text, "met": met, "detail": detail}
        if value is None:
            print(json.dumps(row), flush=True)
        else:
            common.report(target.name, value, target.unit, text, met, detail)
        self.rows.append(row)

    def skip(self, target: Target, reason: str, **detail: Any) -> None:
        """A row of what was not measured."""
        self.report(target, None, {"skipped": f"not measured: {reason}", **detail})

    def fail(self, target: Target, error: Exception) -> None:
        """A row of what failed its check or broke; the run goes on."""
        self.good = False
        if not isinstance(error, Mismatch):
            traceback.print_exception(error)
        text = str(error).strip() or "no message"
        self.report(target, None, {"failed": f"{type(error).__name__}: {text.splitlines()[0]}"})

    def full(self, rounds: int) -> int:
        """Rounds to play: a tenth of them in a quick run."""
        return rounds // 10 if self.quick else rounds

    def seconds(self, work: Callable[[], Any], runs: int = 3) -> tuple[float, dict[str, Any]]:
        """Median wall time of some runs, and their number and spread: the slowest less the fastest, over the median."""
        times = [seconds(work) for _ in range(runs)]
        median = statistics.median(times)
        return median, {"runs": runs, "spread": (max(times) - min(times)) / median}

    def compare(self, name: str, workload: Callable[[torch.device, int], Callable[[], Any]], rounds: int) -> None:
        """Two rows about a workload of some rounds: the CPU's time over the GPU's, and what a round launches."""
        on_gpu, on_cpu = workload(self.device, rounds), workload(torch.device("cpu"), rounds)
        on_gpu()
        gpu_s, detail = self.seconds(on_gpu)
        by_threads = {f"cpu_{threads}_s": cpu_seconds(on_cpu, threads) for threads in (1, CORES)}
        detail |= {"gpu_s": gpu_s, **by_threads, "rounds": rounds}
        self.report(Target(f"{name}_{COMPARED[0][0]}", COMPARED[0][1]), min(by_threads.values()) / gpu_s, detail)
        kernels, busy_s, wall_s = launches(on_gpu)
        detail = {"gpu_us_a_round": 1e6 * busy_s / rounds, "gpu_busy": busy_s / gpu_s, "profiled_s": wall_s}
        self.report(Target(f"{name}_{COMPARED[1][0]}", COMPARED[1][1]), kernels / rounds, detail)

    def milliseconds(self, work: Callable[[], Any], repeats: int = 10) -> float:
        """Median of CUDA events around calls of ``work``, after two calls that warm up."""
        for _ in range(2):
            work()
        times = []
        for _ in range(repeats):
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            work()
            end.record()
            end.synchronize()
            times.append(begin.elapsed_time(end))
        return statistics.median(times)


def seconds(work: Callable[[], Any]) -> float:
    """Wall time of one call, the device idle before and after it."""
    torch.cuda.synchronize()
    return stats.seconds(work)


def cpu_seconds(work: Callable[[], Any], threads: int) -> float:
    """Wall time of one call with some threads of BLAS."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        return stats.seconds(work)
    finally:
        torch.set_num_threads(before)


def launches(work: Callable[[], Any]) -> tuple[int, float, float]:
    """Kernels and copies that a call launches, the seconds that the GPU is busy with them, and the call's own."""
    activity = torch.profiler.ProfilerActivity
    kind = activity.CUDA if torch.cuda.is_available() else activity.CPU
    with torch.profiler.profile(activities=[kind], acc_events=True) as profile:
        took = seconds(work)
    events = [event for event in profile.events() if event.device_type == torch.autograd.DeviceType.CUDA]
    return len(events), 1e-6 * sum(event.device_time for event in events), took


def cut_off(step: Callable[[int], None], rounds: int, most: float) -> tuple[float, int]:
    """Seconds of ``step`` for t = 0 .. rounds - 1, and the rounds run before ``most`` seconds were over."""
    torch.cuda.synchronize()
    began = time.perf_counter()
    for t in range(rounds):
        step(t)
        if t % 64 == 63:
            torch.cuda.synchronize()
            if time.perf_counter() - began > most:
                break
    torch.cuda.synchronize()
    return time.perf_counter() - began, t + 1


def require_same(what: str, a: Tensor, b: Tensor) -> None:
    """Raise :class:`Mismatch` unless two tables of chosen are equal."""
    same = int((a.cpu() == b.cpu()).sum())
    if a.shape != b.shape or same < a.numel():
        raise Mismatch(f"{what}: {same} of {a.numel()} chosen are the same")


def require_close(what: str, a: Tensor, b: Tensor, tolerance: float) -> None:
    """Raise :class:`Mismatch` unless ||a - b|| <= tolerance ||b||; NaN never passes."""
    a, b = a.detach().double().cpu(), b.detach().double().cpu()
    error = float((a - b).norm() / b.norm())
    if not error <= tolerance:
        raise Mismatch(f"{what}: relative difference {error:.3g}, allowed {tolerance:g}")
