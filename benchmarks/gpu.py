"""What the GPU does, in one command: ``python -m benchmarks.gpu [--quick] [--only PART ...] [--out DIR]``.

The device and its two ceilings (copy bandwidth, matrix product per dtype); every op of ``benchmarks/ops/registry.py``,
naive on the GPU against fused, and its time over the floor; then the algorithms. Nothing is timed before its results
were checked, and no speed is reported of what failed its check.

One JSON object a line, ``gpu.json`` in the output folder, and a short table last. At most 10 minutes, 2 with
``--quick`` (fewer shapes and rounds, which meet no target). Without CUDA only the checks run, on small shapes, every
line says that nothing was measured, and nothing is written by default; ``--simulate`` runs them on CUDA's path.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from importlib import metadata
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from shutil import which
from typing import Any
from unittest import mock

import torch

from benchmarks import common
from benchmarks.gpu_algorithms import PARTS
from benchmarks.gpu_common import COMPARED, CORES, Bench, Mismatch, Target
from benchmarks.ops.registry import OPS, Op
from bo_robust.utils import linalg

DTYPES = (torch.float64, torch.float32)
# Parts that would begin later, in seconds, are skipped.
LAST_BEGIN = {True: 60.0, False: 420.0}


def ceilings(bench: Bench) -> None:
    """Copy bandwidth and the rate of a matrix product at each dtype, on random data."""
    source, copy = torch.randn(2, 1 << (26 if bench.quick else 28), dtype=torch.float64, device=bench.device)
    ms = bench.milliseconds(partial(copy.copy_, source))
    bench.bandwidth = 16e3 * source.numel() / ms
    bench.report(Target("copy_bandwidth", "TB/s"), bench.bandwidth / 1e12, {"GB": 16e-9 * source.numel()})
    for dtype in DTYPES:
        A, B = torch.randn(2, 8192, 8192, dtype=dtype, device=bench.device)
        ms = bench.milliseconds(partial(torch.matmul, A, B))
        bench.rates[dtype] = 2e3 * 8192**3 / ms
        bench.report(Target(f"matmul_{_short(dtype)}", "TFLOP/s"), bench.rates[dtype] / 1e12, {"n": 8192})


def ops(bench: Bench) -> None:
    """Every op, dtype and shape."""
    for op, dtype in product(OPS.values(), DTYPES):
        shapes = op.shapes[: 1 if bench.quick else None] if bench.device.type == "cuda" else [op.small]
        for shape in shapes:
            name = "_".join([op.name, *(f"{k}{v}" for k, v in shape.items()), _short(dtype)])
            target = Target(name, "x the floor")
            try:
                _op(bench, op, shape, dtype, target)
            except torch.OutOfMemoryError as error:
                bench.skip(target, str(error).splitlines()[0])
            except Exception as error:
                bench.fail(target, error)
            if bench.device.type == "cuda":
                torch.cuda.empty_cache()


def _op(bench: Bench, op: Op, shape: dict[str, Any], dtype: torch.dtype, target: Target) -> None:
    """One op at one shape: the check, then naive and fused times, and that of fused over the floor."""
    if bench.device.type == "cpu" and find_spec("triton") is None:
        bench.skip(target, "no CUDA device (and not checked: no Triton)", checked=False)
        return
    off = op.verify(shape, bench.device, dtype)
    if not off <= 1.0:
        raise Mismatch(f"fused is {off:.3g} times further from naive than rounding allows")
    detail: dict[str, Any] = {"difference_over_allowed": off}
    if bench.device.type == "cpu":
        bench.skip(target, "no CUDA device", checked=True, **detail)
        return
    inputs, needed = op.make(shape, bench.device, dtype), op.bytes(shape, dtype)
    floors = {"bytes": 1e3 * needed / bench.bandwidth, "operations": 1e3 * op.flops(shape) / bench.rates[dtype]}
    bound = max(floors, key=lambda key: floors[key])
    naive_ms, fused_ms = (bench.milliseconds(partial(run, inputs)) for run in (op.naive, op.fused))
    for name, value in op.also:
        with mock.patch(f"bo_robust.ops.{op.name}.fused.{name}", value):
            if op.verify(shape, bench.device, dtype) <= 1.0:
                detail[f"fused_ms, {name} = {value}"] = bench.milliseconds(partial(op.fused, inputs))
    cache = getattr(torch.cuda.get_device_properties(bench.device), "L2_cache_size", 0)
    detail |= {"naive_ms": naive_ms, "fused_ms": fused_ms, "fused_x_faster": naive_ms / fused_ms}
    detail |= {"floor_ms": floors[bound], "floor_by": bound, "TB_s": needed / fused_ms / 1e9}
    bench.report(target, fused_ms / floors[bound], {**detail, "fits_in_cache": needed < cache})
    if op.name == "arm_update_low_rank" and shape == op.shapes[0]:
        share = Target(f"{target.name}_share", "of copy bandwidth", least=0.8)
        bench.report(share, 1e3 * needed / fused_ms / bench.bandwidth, {})


def _short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def run(bench: Bench, only: list[str], save: Callable[[], None] = lambda: None) -> None:
    """The parts named, whatever becomes of one; ``save`` is called after each: a command may be killed at its limit."""
    began, cuda = time.perf_counter(), bench.device.type == "cuda"
    if cuda:
        ceilings(bench)
    if "ops" in only:
        ops(bench)
    for name in (name for name in PARTS if name in only):
        save()
        part, reported = PARTS[name], len(bench.rows)
        late = time.perf_counter() - began > LAST_BEGIN[bench.quick]
        try:
            if not late:
                part.check(bench.device)
                if cuda:
                    torch.cuda.reset_peak_memory_stats()
                    part.measure(bench, part.targets)
                    peak = torch.cuda.max_memory_allocated() / 2**30
                    bench.report(Target(f"{name}_peak_memory", "GiB"), peak, {})
                    torch.cuda.empty_cache()
                    continue
            compared = [Target(f"{game}_{row}", unit) for game in part.compared for row, unit in COMPARED]
            for target in [*part.targets, *compared]:
                bench.skip(target, "out of time" if late else "no CUDA device", checked=not late)
        except Exception as error:
            done = {row["name"] for row in bench.rows[reported:]}
            left = [target for target in part.targets if target.name not in done]
            for target in left or [Target(f"{name}: what follows its targets", "")]:
                bench.fail(target, error)


SHOWN = ["naive_ms", "fused_ms", "floor_ms", "gpu_s", "cpu_1_s", f"cpu_{CORES}_s", "gpu_us_a_round", "gpu_busy"]
SHOWN += ["naive_s", "spread", "rounds_played", "late_us_a_round"]


def show(bench: Bench) -> None:
    """The rows as a short table."""
    for row in bench.rows:
        value, detail = row["value"], row["detail"]
        text = detail.get("failed") or detail.get("skipped") if value is None else f"{value:.4g}"
        verdict = {None: "", True: "yes", False: "NO"}[row["met"]]
        about = " ".join(f"{k} {detail[k]:.3g}" for k in SHOWN if detail.get(k) is not None)
        line = f"{row['name']:52} {text:>8} {row['unit']:12} {row['target'] or '':8} {verdict:3} {about}"
        print(line.rstrip())


def device(cuda: bool) -> dict[str, Any]:
    """The GPU with its driver and memory, and the versions of what runs on it."""
    if not cuda:
        return {"cuda": False}
    about = torch.cuda.get_device_properties(0)
    query = ["nvidia-smi", "--query-gpu=driver_version,clocks.sm,clocks.mem,temperature.gpu", "--format=csv,noheader"]
    found = which(query[0]) and subprocess.run(query, capture_output=True, text=True, check=False).stdout.strip()
    return {
        "cuda": torch.version.cuda,
        "name": about.name,
        "capability": [about.major, about.minor],
        "memory_GiB": round(about.total_memory / 2**30, 1),
        "driver, clocks of the multiprocessors and the memory, temperature": found or None,
        "triton": metadata.version("triton") if find_spec("triton") else None,
    }


def main() -> None:
    """Measure what there is to measure."""
    given = common.options(__doc__, quick=False, simulate=False, only=dict.fromkeys(["ops", *PARTS]), out=Path)
    cuda = torch.cuda.is_available() and not given.simulate
    linalg.simulated = given.simulate
    if not cuda:  # Triton ops are checked by its interpreter, if asked before it is imported
        os.environ["TRITON_INTERPRET"] = "1"
    bench, began = Bench(torch.device("cuda" if cuda else "cpu"), given.quick), time.perf_counter()
    about = {"environment": common.environment(), "device": device(cuda)}
    print(json.dumps(about), flush=True)
    folder = given.out or (common.ROOT / "benchmarks" / "results" / "gpu" if cuda else None)

    def total() -> float:
        return round(time.perf_counter() - began, 1)

    def save() -> None:
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
            text = json.dumps({**about, "quick": given.quick, "rows": bench.rows, "total_s": total()}, indent=1)
            (folder / "gpu.json").write_text(text + "\n", encoding="utf-8")

    run(bench, given.only, save)
    if cuda:
        about["device after"] = device(cuda)
    save()
    show(bench)
    place = torch.cuda.get_device_name() if cuda else "NOT MEASURED: no CUDA device; checks only, on small shapes"
    print(f"{place}; {total()} s; {'all checks passed' if bench.good else 'SOMETHING FAILED, see above'}")
    sys.exit(not bench.good)


if __name__ == "__main__":
    main()
