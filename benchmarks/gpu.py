"""What the fused ops do on a GPU, in one command: ``python -m benchmarks.gpu [--quick] [--out DIR]``.

The device and its two ceilings (copy bandwidth, matrix product per dtype); then every op of
``benchmarks/ops/registry.py``, naive on the GPU against fused, and its time over the floor. Nothing is timed before its
results were checked, and no speed is reported of what failed its check.

One JSON object a line, ``gpu.json`` in the output folder, and a short table last. With ``--quick`` fewer shapes, which
meet no target. Without CUDA only the checks run, on small shapes, and every line says that nothing was measured.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from benchmarks import common
from benchmarks.ops import Op
from bo_robust.experiments import doctor

DTYPES = (torch.float64, torch.float32)
LEAST_SHARE = 0.8  # of the copy bandwidth, that the first shape of the arm update is to reach


class Mismatch(Exception):
    """Fused and naive results do not agree: nothing is timed."""


@dataclass
class Bench:
    """One run: its device, its rows, whether nothing failed, and the ceilings (bytes and operations a second)."""

    device: torch.device
    quick: bool
    rows: list[dict[str, Any]] = field(default_factory=list)
    good: bool = True
    bandwidth: float = math.nan
    rates: dict[torch.dtype, float] = field(default_factory=dict)

    def report(
        self, name: str, value: float | None, unit: str, detail: dict[str, Any], at_least: float | None = None
    ) -> None:
        """One row. ``value`` None: not measured; ``at_least``: the target at full size."""
        text = None if at_least is None else f">= {at_least:g}" + (" (at full size)" if self.quick else "")
        met = None if value is None or at_least is None or self.quick else value >= at_least
        self.rows.append({"name": name, "value": value, "unit": unit, "target": text, "met": met, "detail": detail})
        print(json.dumps(self.rows[-1]), flush=True)

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


def ceilings(bench: Bench) -> None:
    """Copy bandwidth and the rate of a matrix product at each dtype, on random data."""
    source, copy = torch.randn(2, 1 << (26 if bench.quick else 28), dtype=torch.float64, device=bench.device)
    ms = bench.milliseconds(partial(copy.copy_, source))
    bench.bandwidth = 16e3 * source.numel() / ms
    bench.report("copy_bandwidth", bench.bandwidth / 1e12, "TB/s", {"GB": 16e-9 * source.numel()})
    for dtype in DTYPES:
        A, B = torch.randn(2, 8192, 8192, dtype=dtype, device=bench.device)
        ms = bench.milliseconds(partial(torch.matmul, A, B))
        bench.rates[dtype] = 2e3 * 8192**3 / ms
        bench.report(f"matmul_{_short(dtype)}", bench.rates[dtype] / 1e12, "TFLOP/s", {"n": 8192})


def ops(bench: Bench) -> None:
    """Every op, dtype and shape, whatever becomes of one."""
    from benchmarks.ops.registry import OPS

    for op in OPS.values():
        for dtype in DTYPES:
            shapes = op.shapes[: 1 if bench.quick else None] if bench.device.type == "cuda" else [op.small]
            for shape in shapes:
                name = "_".join([op.name, *(f"{k}{v}" for k, v in shape.items()), _short(dtype)])
                try:
                    _op(bench, op, shape, dtype, name)
                except torch.OutOfMemoryError as error:
                    _not_measured(bench, name, {"skipped": f"not measured: {str(error).splitlines()[0]}"})
                except Exception as error:
                    bench.good = False
                    if not isinstance(error, Mismatch):
                        traceback.print_exception(error)
                    _not_measured(bench, name, {"failed": f"{type(error).__name__}: {error}"})
                if bench.device.type == "cuda":
                    torch.cuda.empty_cache()


def _op(bench: Bench, op: Op, shape: dict[str, Any], dtype: torch.dtype, name: str) -> None:
    """One op at one shape: the check, then naive and fused times, and the better one over the floor."""
    detail: dict[str, Any] = {}
    fused = op.fused
    if fused is not None:
        if bench.device.type == "cpu" and find_spec("triton") is None:
            _not_measured(bench, name, {"skipped": "not measured: no CUDA device (and not checked: no Triton)"})
            return
        off = op.verify(shape, bench.device, dtype)
        if not off <= 1.0:
            raise Mismatch(f"fused is {off:.3g} times further from naive than rounding allows")
        detail["difference_over_allowed"] = off
    if bench.device.type == "cpu":
        _not_measured(bench, name, {"skipped": "not measured: no CUDA device", **detail})
        return
    inputs, needed = op.make(shape, bench.device, dtype), op.bytes(shape, dtype)
    floors = {"bytes": 1e3 * needed / bench.bandwidth, "operations": 1e3 * op.flops(shape) / bench.rates[dtype]}
    bound = max(floors, key=lambda key: floors[key])
    best_ms = detail["naive_ms"] = bench.milliseconds(lambda: op.naive(inputs))
    if fused is not None:
        best_ms = detail["fused_ms"] = bench.milliseconds(lambda: fused(inputs))
        detail["fused_x_faster"] = detail["naive_ms"] / best_ms
    cache = getattr(torch.cuda.get_device_properties(bench.device), "L2_cache_size", 0)
    detail |= {"floor_ms": floors[bound], "floor_by": bound, "TB_s": needed / best_ms / 1e9}
    bench.report(name, best_ms / floors[bound], "x the floor", {**detail, "fits_in_cache": needed < cache})
    if op.name == "arm_update_low_rank" and shape == op.shapes[0]:
        share = 1e3 * needed / best_ms / bench.bandwidth
        bench.report(f"{name}_share", share, "of copy bandwidth", {}, at_least=LEAST_SHARE)


def _not_measured(bench: Bench, name: str, reason: dict[str, Any]) -> None:
    bench.report(name, None, "x the floor", reason)


def _short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def show(bench: Bench, console: Console) -> None:
    """The rows as a short table."""
    table = Table("name", "value", "unit", "target", "met", title="benchmarks.gpu")
    for row in bench.rows:
        value, met = row["value"], row["met"]
        text = row["detail"].get("failed") or row["detail"].get("skipped") if value is None else f"{value:.4g}"
        table.add_row(row["name"], text, row["unit"], row["target"] or "", {None: "", True: "yes", False: "NO"}[met])
    console.print(table)


def main() -> None:
    """Measure what there is to measure."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer shapes, which meet no target")
    parser.add_argument("--out", type=Path, help="folder of gpu.json; without CUDA nothing is written by default")
    arguments = parser.parse_args()
    cuda = torch.cuda.is_available()
    if not cuda:  # Triton ops are checked by its interpreter, if told so before it is imported
        os.environ["TRITON_INTERPRET"] = "1"
    torch.set_num_threads(1)
    bench, began = Bench(torch.device("cuda" if cuda else "cpu"), arguments.quick), time.perf_counter()
    try:
        environment = common.environment()
    except FileNotFoundError:  # no git
        environment = {}
    about = {"environment": environment, "doctor": doctor.examine()}
    print(json.dumps(about), flush=True)
    if cuda:
        ceilings(bench)
    ops(bench)
    total = round(time.perf_counter() - began, 1)
    folder = arguments.out or (common.ROOT / "benchmarks" / "results" / "gpu" if cuda else None)
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        text = json.dumps({**about, "quick": arguments.quick, "rows": bench.rows, "total_s": total}, indent=1)
        (folder / "gpu.json").write_text(text + "\n", encoding="utf-8")
    show(bench, Console(width=None if sys.stdout.isatty() else 140))
    place = torch.cuda.get_device_name() if cuda else "NOT MEASURED: no CUDA device; checks only, on small shapes"
    print(f"{place}; {total} s; {'all checks passed' if bench.good else 'SOMETHING FAILED, see above'}")
    sys.exit(not bench.good)


if __name__ == "__main__":
    main()
