"""The GPU benchmark where there is no GPU: every check runs, nothing is said to be measured, a mismatch is refused.

What measures on CUDA is run on a CPU with a stand-in for CUDA's clock: what it makes of a time is tested here.
"""

import dataclasses
import json
import sys

import pytest
import torch

from benchmarks import gpu
from benchmarks.gpu import Bench
from benchmarks.ops.registry import OPS


@pytest.fixture
def no_gpu(monkeypatch):
    """As on a machine without CUDA."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)


@pytest.fixture
def stand_in(monkeypatch):
    """A bench that takes the branches that measure, on inputs of the CPU; every op takes a millisecond."""

    def milliseconds(self, work, repeats=10):
        work()
        return 1.0

    monkeypatch.setattr(Bench, "milliseconds", milliseconds)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: type("P", (), {"L2_cache_size": 1000}))
    return Bench(torch.device("cuda"), quick=False, bandwidth=1e9, rates={torch.float64: 1e12, torch.float32: 1e12})


def on_cpu(name, **changed):
    """An op whose inputs are made on the CPU, measured at its small shape."""
    op = OPS[name]
    make = lambda shape, device, dtype: op.make(shape, "cpu", dtype)  # noqa: E731
    return dataclasses.replace(op, **{"shapes": [op.small], "make": make, "fused": op.naive} | changed)


@pytest.mark.slow
def test_without_cuda_everything_is_checked_and_nothing_measured(no_gpu, device, monkeypatch, tmp_path, capsys):
    if device.type == "cuda":
        pytest.skip("Triton's interpreter has to be chosen before Triton is imported")
    monkeypatch.setattr(sys, "argv", ["gpu", "--quick", "--out", str(tmp_path)])
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    with pytest.raises(SystemExit) as stop:
        gpu.main()
    assert stop.value.code == 0
    out = capsys.readouterr().out
    rows = [json.loads(line) for line in out.splitlines() if line.startswith('{"name"')]
    saved = json.loads((tmp_path / "gpu.json").read_text())
    assert saved["rows"] == rows
    assert {"environment", "doctor", "quick", "total_s"} <= set(saved)
    assert all(row["value"] is None and row["met"] is None for row in rows)
    assert all(row["detail"]["skipped"].startswith("not measured: no CUDA device") for row in rows)
    assert all(any(row["name"].startswith(op) for row in rows) for op in OPS)
    assert "NOT MEASURED: no CUDA device" in out
    assert "all checks passed" in out


def test_ops_report_time_over_floor_and_refuse_mismatches(stand_in, monkeypatch, capsys):
    def broken(inputs):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20 GiB.")

    op, update = on_cpu("fused_rounds"), on_cpu("arm_update_low_rank")
    wrong = on_cpu("fused_rounds", fused=lambda inputs: (*op.naive(inputs)[:2], torch.zeros(8, 2)))
    ops = {"a": op, "b": wrong, "c": on_cpu("fused_rounds", fused=broken), "d": update}
    monkeypatch.setitem(sys.modules, "benchmarks.ops.registry", type("M", (), {"OPS": ops}))
    gpu.ops(stand_in)
    right, _, failed, _, skipped, _, _, share, *_ = stand_in.rows
    # At 1 GB/s the bytes of the op are its floor; it was measured at 1 ms.
    assert right["value"] == pytest.approx(1e6 / op.bytes(op.small, torch.float64))
    assert right["detail"]["floor_by"] == "bytes"
    assert right["detail"]["fused_x_faster"] == 1.0
    assert failed["value"] is None
    assert failed["detail"]["failed"].startswith("Mismatch: fused is ")
    assert skipped["detail"]["skipped"].startswith("not measured: CUDA out of memory")
    assert share["value"] == pytest.approx(update.bytes(update.small, torch.float64) / 1e6)
    assert (share["target"], share["met"]) == (">= 0.8", False)
    assert not stand_in.good
    stand_in.quick = True
    stand_in.report("x", 0.9, "", {}, at_least=0.8)
    assert (stand_in.rows[-1]["target"], stand_in.rows[-1]["met"]) == (">= 0.8 (at full size)", None)
