"""What the parts of ``python -m benchmarks.gpu`` share: targets, one run's rows, timing, and comparisons."""

from __future__ import annotations

import json
import math
import statistics
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from benchmarks import common, stats

__all__ = ["Bench", "Mismatch", "Target", "cut_off", "require_close", "require_same", "seconds"]


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
