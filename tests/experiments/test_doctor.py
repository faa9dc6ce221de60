"""`bo-robust doctor` says which versions and devices are there, and which fused ops are used."""

import json
from types import SimpleNamespace

import pytest
import torch
from typer.testing import CliRunner

from bo_robust.experiments import doctor
from bo_robust.experiments.cli import app
from bo_robust.ops import checked


def test_the_command_prints_one_json_object_or_lines():
    done = CliRunner().invoke(app, ["doctor", "--json"])
    assert done.exit_code == 0
    examined = json.loads(done.stdout)
    assert examined["versions"]["torch"] == torch.__version__
    assert examined["cuda"] == torch.version.cuda
    assert len(examined["devices"]) == torch.cuda.device_count()
    printed = CliRunner().invoke(app, ["doctor"])
    assert printed.exit_code == 0
    rows = [line.split(maxsplit=1) for line in printed.stdout.splitlines()]
    assert ["torch", torch.__version__] in rows
    assert len(rows) == len(doctor.lines(examined))


def test_a_device_and_what_was_checked_on_it(monkeypatch):
    properties = SimpleNamespace(
        name="NVIDIA H200", major=9, minor=0, total_memory=139 * 2**30, multi_processor_count=132
    )
    why = {("arm_update", torch.float32): "CompilationError: at 3:4"}
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: properties)
    monkeypatch.setattr(doctor, "CASES", ["arm_update"])
    monkeypatch.setattr(doctor.ops, "triton_is_available", lambda: True)
    monkeypatch.setattr(doctor, "check", lambda op, device, dtype: why.get((op, dtype)))
    examined = doctor.examine()
    (device,) = examined["devices"]
    assert device == {"name": "NVIDIA H200", "memory_gib": 139.0, "capability": "9.0", "multiprocessors": 132}
    rows = dict(doctor.lines(examined))
    assert rows["cuda:0"] == "NVIDIA H200, 139.0 GiB, compute capability 9.0"
    assert rows["arm_update float64 on cuda:0"].endswith("used")
    assert rows["arm_update float32 on cuda:0"] == "not used: CompilationError: at 3:4"
    monkeypatch.setattr(doctor.ops, "triton_is_available", lambda: False)
    assert "Triton 3.6" in doctor.checks(torch.device("cuda", 0))["arm_update"]


def test_a_check_that_fails_on_a_device_does_not_end_the_doctor(monkeypatch):
    """This machine may have no CUDA, or torch no support of it: every check fails with its own error."""
    if torch.cuda.is_available():
        pytest.skip("the checks pass")
    monkeypatch.setattr(checked, "_found", {})
    monkeypatch.setattr(doctor.ops, "triton_is_available", lambda: True)
    reasons = doctor.checks(torch.device("cuda", 0))
    assert len(reasons) == 2 * len(doctor.CASES)
    assert all(reasons.values())


def test_the_data_folder_and_packages_are_looked_for(monkeypatch, tmp_path):
    monkeypatch.setattr(doctor, "OPTIONAL", ("no-such-package",))
    monkeypatch.setenv("BO_ROBUST_DATA", str(tmp_path))
    first = next(iter(doctor.DATA_FILES.values()))
    (tmp_path / first.path).parent.mkdir(parents=True)
    (tmp_path / first.path).touch()
    rows = dict(doctor.lines(doctor.examine()))
    assert rows["data folder"] == f"{tmp_path}, 1 of {len(doctor.DATA_FILES)} files"
    assert rows["no-such-package (optional)"] == "not installed"
    monkeypatch.delenv("BO_ROBUST_DATA")
    assert "set BO_ROBUST_DATA or give --data-dir" in dict(doctor.lines(doctor.examine()))["data folder"]
