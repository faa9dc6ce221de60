"""The GPU benchmark where there is no GPU: every check runs, nothing is said to be measured, a mismatch is refused.

What measures on CUDA is run on a CPU with stand-ins for CUDA's clocks and at small sizes: that it runs and what it
reports is tested here; its numbers mean nothing and are asserted nowhere.
"""

import json
import sys

import pytest
import torch

from benchmarks import gpu, gpu_algorithms
from benchmarks.gpu_common import Bench, Mismatch, Target
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
    monkeypatch.setattr(Bench, "full", lambda self, rounds: min(rounds, 40))
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    for name, value in (("MANY_ARMS", 5000), ("ARMS", 40), ("TGP_TRIALS", (2, 3)), ("HE_TRIALS", 2)):
        monkeypatch.setattr(gpu_algorithms, name, value)
    monkeypatch.setattr(gpu_algorithms, "STARTS", 24)
    monkeypatch.setattr(gpu_algorithms, "CONDITIONS", 8)
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
    assert [row["name"] for row in substitute.rows] == [target.name for target in part.targets]
    for row, target in zip(substitute.rows, part.targets, strict=True):
        assert row["value"] > 0
        assert row["met"] == target.met(row["value"])
        assert row["target"] == str(target)


def test_a_part_that_breaks_or_disagrees_is_reported_and_the_rest_goes_on(monkeypatch, capsys):
    def disagree(device):
        raise Mismatch("3 of 4 chosen are the same")

    def broken(device):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20 GiB.")

    parts = {
        "a": gpu_algorithms.Part(disagree, None, [Target("a1", "s", 1.0), Target("a2", "s", 1.0)]),
        "b": gpu_algorithms.Part(broken, None, [Target("b", "s", 1.0)]),
        "c": gpu_algorithms.Part(lambda device: None, None, [Target("c", "s", 1.0)]),
    }
    monkeypatch.setattr(gpu, "PARTS", parts)
    bench = Bench(CPU, quick=True)
    gpu.run(bench, list(parts))
    assert [row["detail"].get("failed") for row in bench.rows] == [
        "Mismatch: 3 of 4 chosen are the same",
        "Mismatch: 3 of 4 chosen are the same",
        "OutOfMemoryError: CUDA out of memory. Tried to allocate 20 GiB.",
        None,
    ]
    assert not bench.good
