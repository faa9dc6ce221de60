"""What the parts of ``python -m benchmarks.gpu`` share: targets, one run's rows, timing, and comparisons."""

from __future__ import annotations

import math
import multiprocessing
import os
import statistics
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from threadpoolctl import threadpool_limits
from torch import Tensor

from benchmarks import common, stats
from bo_robust.utils import linalg

__all__ = ["COMPARED", "CORES", "Bench", "Mismatch", "Target", "cpu_path", "require_close", "require_same", "threads"]

# The rows of a workload that CPU and GPU run, and their units.
COMPARED = (("cpu_over_gpu", "x, the CPU"), ("launches", "a round"))
CORES = len(os.sched_getaffinity(0))
PROCESS_SECONDS = 120.0  # after which processes count as lost
CUT_SECONDS = {True: 8.0, False: 15.0}  # of a quick run or another; what runs longer is cut off
Workload = Callable[[torch.device, int], Callable[[], Any]]  # of a device and a size, such as rounds
Share = Callable[[int, int], Callable[[], Any]]  # of a number of parts and a size: one part of the trials, on the CPU


class Mismatch(Exception):
    """Two ways to compute the same do not agree: nothing is timed."""


class Target(NamedTuple):
    """A number to reach on an H200-class GPU; without limits it is only reported."""

    name: str
    unit: str
    most: float | None = None
    least: float | None = None


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
        name, unit, most, least = target
        judged = not self.quick  # targets are about the full size
        self.rows.append(common.report(name, value, unit, detail, most=most, least=least, judged=judged, valid=whole))

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
        """Rounds to run: a tenth of them in a quick run."""
        return rounds // 10 if self.quick else rounds

    def seconds(self, work: Callable[[], Any], runs: int = 3) -> tuple[float, dict[str, Any]]:
        """Median wall time of some runs, and their number and spread: the slowest less the fastest, over the median."""
        times = [seconds(work) for _ in range(runs)]
        median = statistics.median(times)
        return median, {"runs": runs, "spread": (max(times) - min(times)) / median}

    def cut_off(self, target: Target, run: Iterator[Tensor], rounds: int) -> None:
        """A row, the seconds of some rounds of a run, which yields the arms of one or more (``K x s``).

        What takes too long is cut off, and its target not met. ``late_us_a_round`` is that of the last half.
        """
        torch.cuda.synchronize()
        marks, count = [(0, time.perf_counter())], 0
        with torch.inference_mode():
            for arms in run:
                count += len(arms)
                if count >= marks[-1][0] + 64 or count >= rounds:
                    torch.cuda.synchronize()
                    marks.append((count, time.perf_counter()))
                    if marks[-1][1] - marks[0][1] > CUT_SECONDS[self.quick] or count >= rounds:
                        break
        (played, end), (half, then) = marks[-1], marks[len(marks) // 2 - 1]
        late = 1e6 * (end - then) / (played - half)
        detail = {"rounds_played": played, "of": rounds, "late_us_a_round": late}
        self.report(target, end - marks[0][1], detail, whole=played >= rounds)

    def over_cpu(
        self, name: str, workload: Workload, size: int, runs: int = 3, share: Share | None = None
    ) -> tuple[Callable[[], Any], float]:
        """A row, the CPU's time of a workload over the GPU's; what ran on the GPU, and its seconds.

        Both are warm and run in turns. The CPU runs with one thread and with one per core, of BLAS and torch: most of
        its path is NumPy, of which one thread does the rest. Where trials are independent, ``share`` makes some of
        them, and a process per core runs them, too.
        """
        on_gpu, on_cpu = workload(self.device, size), workload(torch.device("cpu"), size)
        on_gpu()
        on_cpu()
        times: dict[str, list[float]] = {}
        for _ in range(runs):
            times.setdefault("gpu_s", []).append(seconds(on_gpu))
            for count in (1, CORES):
                with threads(count):
                    times.setdefault(f"cpu_{count}_s", []).append(stats.seconds(on_cpu))
        if share is not None:
            times[f"cpu_{CORES}_processes_s"] = [process_seconds(share, size)]
        medians = {key: statistics.median(found) for key, found in times.items()}
        gpu_s, detail = medians["gpu_s"], {"runs": runs, "size": size, **medians}
        cpu_s = min(took for key, took in medians.items() if key != "gpu_s")
        self.report(Target(f"{name}_{COMPARED[0][0]}", COMPARED[0][1]), cpu_s / gpu_s, detail)
        return on_gpu, gpu_s

    def compare(self, name: str, workload: Workload, rounds: int, share: Share | None = None) -> None:
        """Two rows about a workload of some rounds: the CPU's time over the GPU's, and what a round launches."""
        on_gpu, gpu_s = self.over_cpu(name, workload, rounds, share=share)
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


def process_seconds(share: Share, size: int) -> float:
    """Seconds of the slowest of as many processes as cores, which begin together, warm, with one thread each."""
    spawn = multiprocessing.get_context("spawn")
    ready = spawn.Barrier(CORES)
    with spawn.Pool(CORES, _wait_at, (ready,)) as pool:
        given = [(share, CORES, size)] * CORES
        return max(pool.starmap_async(_seconds_of, given, chunksize=1).get(PROCESS_SECONDS))


def _wait_at(barrier: Any) -> None:
    global _ready
    _ready = barrier
    torch.set_num_threads(1)


def _seconds_of(share: Share, parts: int, size: int) -> float:
    with threads(1):
        work = share(parts, size)
        work()
        _ready.wait(PROCESS_SECONDS)
        return stats.seconds(work)


_ready: Any = None  # a process's barrier


@contextmanager
def threads(count: int = CORES) -> Iterator[None]:
    """Some threads of torch, and of the BLAS that NumPy has."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        with threadpool_limits(count, user_api="blas"):
            yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def cpu_path() -> Iterator[None]:
    """The CPU's own path, where that of CUDA is simulated."""
    before, linalg.simulated = linalg.simulated, False
    try:
        yield
    finally:
        linalg.simulated = before


def launches(work: Callable[[], Any]) -> tuple[int, float, float]:
    """Kernels and copies that a call launches, the seconds that the GPU is busy with them, and the call's own."""
    activity = torch.profiler.ProfilerActivity
    kind = activity.CUDA if torch.cuda.is_available() else activity.CPU
    with torch.profiler.profile(activities=[kind], acc_events=True) as profile:
        took = seconds(work)
    events = [event for event in profile.events() if event.device_type == torch.autograd.DeviceType.CUDA]
    return len(events), 1e-6 * sum(event.device_time for event in events), took


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
