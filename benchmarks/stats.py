"""One statistic for speed and quality alike: the median over pairs that share data, noise and machine.

It counts from :data:`LEAST` pairs on. Its interval is that of ranks, which supposes nothing of the values: it covers
in at least 93.75 %, and for five pairs it is their range.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from scipy import stats as distributions

from benchmarks.common import report

__all__ = ["Paired", "copy_bandwidth", "cpu_times", "differences", "ratios", "report_paired", "report_ratio"]

LEAST, MISSED = 5, 0.0625


@dataclass(frozen=True)
class Paired:
    """Values of pairs: differences or ratios."""

    values: tuple[float, ...]

    @property
    def median(self) -> float:
        """NaN without pairs."""
        return statistics.median(self.values) if self.values else math.nan

    @property
    def interval(self) -> tuple[float, float]:
        """Of the median; infinite for fewer than :data:`LEAST` pairs."""
        ordered, n = sorted(self.values), len(self.values)
        if n < LEAST:
            return -math.inf, math.inf
        below = 0
        for k in range(n // 2 + 1):  # that the median is under the k-th smallest: all but k pairs lie above it
            below += math.comb(n, k)
            if 2 * below > MISSED * 2**n:
                return ordered[k - 1], ordered[n - k]
        raise AssertionError("half of the outcomes are more than the share missed")

    def mean_interval(self) -> tuple[float, float, float]:
        """Mean with its 95 % Student-t interval; all equal for one pair."""
        mean, n = statistics.fmean(self.values), len(self.values)
        reach = 0.0
        if n > 1:
            reach = float(distributions.t.ppf(0.975, n - 1)) * statistics.stdev(self.values) / math.sqrt(n)
        return mean, mean - reach, mean + reach

    def detail(self) -> dict[str, Any]:
        """For a report."""
        rounded = [float(f"{end:.4g}") if math.isfinite(end) else None for end in self.interval]
        return {"interval": rounded, "pairs": len(self.values)}

    def met(self, least: float = -math.inf, most: float = math.inf) -> bool | None:
        """Whether the median is within; None for fewer than :data:`LEAST` pairs."""
        return least <= self.median <= most if len(self.values) >= LEAST else None


def ratios(a: Sequence[float], b: Sequence[float]) -> Paired:
    """a over b."""
    return Paired(tuple(x / y for x, y in zip(a, b, strict=True)))


def differences(a: Sequence[float], b: Sequence[float]) -> Paired:
    """a less b."""
    return Paired(tuple(float(x - y) for x, y in zip(a, b, strict=True)))


def report_paired(
    name: str,
    paired: Paired,
    unit: str,
    least: float | None = None,
    most: float | None = None,
    detail: dict[str, Any] | None = None,
    also: bool = True,
) -> None:
    """Report the median and its interval, and whether it meets a target and ``also`` holds."""
    bounds = [f"{sign} {bound:g}" for sign, bound in ((">=", least), ("<=", most)) if bound is not None]
    met = paired.met(-math.inf if least is None else least, math.inf if most is None else most) if bounds else None
    met = None if met is None else met and also
    report(
        name, paired.median, f"{unit}, paired median", ", ".join(bounds) or None, met, paired.detail() | (detail or {})
    )


def report_ratio(
    name: str,
    theirs: Sequence[float],
    ours: Sequence[float],
    target: float | None = None,
    detail: dict[str, Any] | None = None,
    also: bool = True,
) -> None:
    """Report how many times faster ours was."""
    report_paired(name, ratios(theirs, ours), "times faster", least=target, detail=detail, also=also)


def seconds(work: Callable[[], Any], clock: Callable[[], float] = time.perf_counter) -> float:
    """Wall time of one call, or that of another clock."""
    began = clock()
    work()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return clock() - began


def wall_times(
    repeats: int, *works: Callable[[], Any], clock: Callable[[], float] = time.perf_counter
) -> list[list[float]]:
    """Wall seconds of several alternatives, interleaved, after one warm-up each: one list per alternative."""
    for work in works:
        work()
    times = [[seconds(work, clock) for work in works] for _ in range(repeats)]
    return [list(column) for column in zip(*times, strict=True)]


def cpu_times(repeats: int, *works: Callable[[], Any]) -> list[list[float]]:
    """The same in CPU seconds, which a busy machine changes less."""
    return wall_times(repeats, *works, clock=time.process_time)


def copy_bandwidth(device: str = "cpu", size: int = 1 << 25) -> float:
    """Bytes per second (read plus written) of copying ``size`` doubles, the best of five."""
    source = torch.ones(size, dtype=torch.float64, device=device)
    target = torch.zeros_like(source)
    times = (cpu_times if device == "cpu" else wall_times)(5, lambda: target.copy_(source))[0]
    return 16.0 * size / min(times)
