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
from scipy.stats import binom, t

from benchmarks.common import report

__all__ = ["Paired", "copy_bandwidth", "cpu_times", "differences", "ratios", "seconds"]

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
        # The smallest number that B(n, 1/2) exceeds with a probability of at most 1 - MISSED / 2.
        k = int(binom.ppf(MISSED / 2 + 1e-9, n, 0.5))
        return ordered[k - 1], ordered[n - k]

    def mean_interval(self) -> tuple[float, float, float]:
        """Mean with its 95 % Student-t interval; all equal for one pair."""
        mean, n = statistics.fmean(self.values), len(self.values)
        reach = 0.0
        if n > 1:
            reach = float(t.ppf(0.975, n - 1)) * statistics.stdev(self.values) / math.sqrt(n)
        return mean, mean - reach, mean + reach

    def report(
        self, name: str, unit: str = "times faster", detail: dict[str, Any] | None = None, **target: Any
    ) -> None:
        """Report the median and its interval; ``target`` is that of :func:`benchmarks.common.report`."""
        rounded = [float(f"{end:.4g}") if math.isfinite(end) else None for end in self.interval]
        about = {"interval": rounded, "pairs": len(self.values)} | (detail or {})
        judged = len(self.values) >= LEAST
        report(name, self.median, f"{unit}, paired median", about, judged=judged, **target)


def ratios(a: Sequence[float], b: Sequence[float]) -> Paired:
    """a over b."""
    return Paired(tuple(x / y for x, y in zip(a, b, strict=True)))


def differences(a: Sequence[float], b: Sequence[float]) -> Paired:
    """a less b."""
    return Paired(tuple(float(x - y) for x, y in zip(a, b, strict=True)))


def seconds(work: Callable[[], Any], clock: Callable[[], float] = time.perf_counter) -> float:
    """Wall time of one call, or that of another clock."""
    began = clock()
    work()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return clock() - began


def cpu_times(repeats: int, *works: Callable[[], Any]) -> list[list[float]]:
    """CPU seconds of several alternatives, interleaved, after one warm-up each: one list per alternative."""
    for work in works:
        work()
    times = [[seconds(work, time.process_time) for work in works] for _ in range(repeats)]
    return [list(column) for column in zip(*times, strict=True)]


def copy_bandwidth(size: int = 1 << 25) -> float:
    """Bytes per second (read plus written) of copying ``size`` doubles, the best of five."""
    source, target = torch.ones(size, dtype=torch.float64), torch.zeros(size, dtype=torch.float64)
    (times,) = cpu_times(5, lambda: target.copy_(source))
    return 16.0 * size / min(times)
