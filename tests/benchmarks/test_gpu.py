"""The GPU benchmark where there is no GPU: every check and measurement runs at small sizes, and mismatches raise."""

import dataclasses
import json
import sys

import pytest
import torch

from benchmarks import gpu, gpu_algorithms, gpu_common
from benchmarks.gpu_common import Bench, Mismatch, require_close, require_same
from benchmarks.ops.registry import OPS

CPU = torch.device("cpu")


@pytest.fixture
def no_gpu(monkeypatch):
    """As on a machine without CUDA."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)


@pytest.fixture
def substitute(monkeypatch):
    """A bench that measures on the CPU; every op and round takes a millisecond."""

    def milliseconds(self, work, repeats=10):
        work()
        return 1.0

    monkeypatch.setattr(Bench, "milliseconds", milliseconds)
    monkeypatch.setattr(Bench, "full", lambda self, rounds: min(rounds, 15))
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    # No processes: each takes the seconds of an import.
    monkeypatch.setattr(gpu_common, "process_seconds", lambda share, size: gpu_common.stats.seconds(share(1, size)))
    sizes = {"MANY_ARMS": 5000, "ARMS": 40, "TGP_TRIALS": (2, 3), "ATA_TRIALS": 3, "HE_TRIALS": 2, "STARTS": 24}
    sizes |= {"LNSO_STARTS": 1, "SINGLE_ARMS": (50, 60), "ROBUST_READINGS": (20,), "CONDITIONS": 8, "MODEL_READINGS": 6}
    for name, value in sizes.items():
        monkeypatch.setattr(gpu_algorithms, name, value)
    return Bench(CPU, quick=False)


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
    assert {"environment", "device", "quick", "total_s"} <= set(saved)
    assert all(row["value"] is None and row["met"] is None for row in rows)
    assert all(row["detail"]["skipped"].startswith("not measured: no CUDA device") for row in rows)
    names = {row["name"] for row in rows}
    assert {target.name for part in gpu.PARTS.values() for target in part.targets} <= names
    assert all(any(name.startswith(op) for name in names) for op in OPS)
    assert "NOT MEASURED: no CUDA device" in out
    assert "all checks passed" in out


@pytest.mark.parametrize("name", gpu.PARTS)
def test_what_measures_runs_and_reports_its_targets(name, substitute):
    part = gpu_algorithms.PARTS[name]
    part.measure(substitute, part.targets)
    rows = {row["name"]: row for row in substitute.rows}
    if name != "single":  # whose sizes are other ones here
        assert {f"{game}_{row}" for game in part.compared for row, _ in gpu_common.COMPARED} <= set(rows)
    for target in part.targets:
        row = rows[target.name]
        assert row["value"] > 0
        assert row["met"] is not None


@pytest.mark.slow
def test_a_process_per_core_runs_a_part():
    assert 0.0 < gpu_common.process_seconds(gpu_algorithms._part_of_tgp, 5) < 10.0


@pytest.mark.parametrize("name", ["exact", "bbkb", "he"])
def test_a_device_that_computes_something_else_is_refused(name, monkeypatch):
    moved = gpu_algorithms.moved

    def other(kernel, device):
        kernel = moved(kernel, device)
        return dataclasses.replace(kernel, diagonal=1.01 * kernel.diagonal, matrix=1.01 * kernel.matrix)

    monkeypatch.setattr(gpu_algorithms, "moved", other)
    with pytest.raises(Mismatch, match="relative difference"):
        gpu_algorithms.PARTS[name].check(CPU)


def test_comparisons_do_not_let_nan_pass():
    one = torch.ones(3)
    require_close("x", one, one, 0.0)
    with pytest.raises(Mismatch, match="relative difference nan"):
        require_close("x", torch.tensor([1.0, torch.nan, 1.0]), one, 1.0)
    with pytest.raises(Mismatch, match="2 of 3 chosen"):
        require_same("x", torch.tensor([1, 2, 3]), torch.tensor([1, 2, 4]))
