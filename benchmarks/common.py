"""How every benchmark reports: one JSON object a line, ratios taken within one process run."""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

__all__ = ["copy_bandwidth", "cpu_times", "environment", "medians", "report", "report_ratio", "seconds"]

ROOT = Path(__file__).resolve().parents[1]


def report(
    name: str,
    value: float,
    unit: str,
    target: str | None,
    met: bool | None,
    detail: dict[str, Any] | None = None,
) -> None:
    """Print one result; ``met`` is None where no target was set."""
    row = {
        "name": name,
        "value": float(f"{value:.4g}"),
        "unit": unit,
        "target": target,
        "met": met,
        "detail": detail or {},
    }
    print(json.dumps(row), flush=True)


def environment() -> dict[str, Any]:
    """Machine, versions, date and command of this run."""
    git = subprocess.run(
        ["git", "-C", str(ROOT), "describe", "--always", "--dirty"],
        capture_output=True,
        text=True,
        check=False,
    )
    return {
        "command": " ".join(["python", "-m", *_module(), *sys.argv[1:]]),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": platform.platform(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "cuda": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "versions": {name: metadata.version(name) for name in ("torch", "botorch", "gpytorch", "numpy")},
        "git": git.stdout.strip() or None,
    }


def _module() -> list[str]:
    spec = sys.modules["__main__"].__spec__
    return [spec.name.removesuffix(".__main__")] if spec else [sys.argv[0]]


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor()


def seconds(work: Callable[[], Any]) -> float:
    """Wall time of one call."""
    began = time.perf_counter()
    work()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter() - began


def medians(repeats: int, *works: Callable[[], Any]) -> list[float]:
    """Median wall times of several alternatives, interleaved, after one warm-up each."""
    for work in works:
        work()
    times = [[seconds(work) for work in works] for _ in range(repeats)]
    return [statistics.median(column) for column in zip(*times, strict=True)]


def cpu_times(repeats: int, *works: Callable[[], Any]) -> list[list[float]]:
    """CPU seconds of several alternatives, interleaved, after one warm-up each: one list per alternative."""
    for work in works:
        work()
    times: list[list[float]] = [[] for _ in works]
    for _ in range(repeats):
        for mine, work in zip(times, works, strict=True):
            began = time.process_time()
            work()
            mine.append(time.process_time() - began)
    return times


def report_ratio(
    name: str,
    theirs: list[float],
    ours: list[float],
    target: float,
    detail: dict[str, Any] | None = None,
    met_if: bool = True,
) -> None:
    """Report how many times faster ours was: the median of paired ratios, which meets or misses, and their range."""
    ratios = [a / b for a, b in zip(theirs, ours, strict=True)]
    value = statistics.median(ratios)
    spread = {"min": round(min(ratios), 3), "max": round(max(ratios), 3), "repeats": len(ratios)}
    met = value >= target and met_if
    report(name, value, "times faster, paired median", f">= {target:g}", met, spread | (detail or {}))


def copy_bandwidth(device: str = "cpu", size: int = 1 << 25) -> float:
    """Bytes per second (read plus written) of copying ``size`` doubles, the best of five."""
    source = torch.ones(size, dtype=torch.float64, device=device)
    target = torch.zeros_like(source)
    target.copy_(source)
    times = (
        cpu_times(5, lambda: target.copy_(source))[0]
        if device == "cpu"
        else [seconds(lambda: target.copy_(source)) for _ in range(5)]
    )
    return 16.0 * size / min(times)
