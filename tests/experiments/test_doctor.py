"""`bo-robust doctor` says what is there and what is used, with and without a GPU and Triton."""

import io
import json
from importlib import metadata
from types import SimpleNamespace

import pytest
import torch
from rich.console import Console
from typer.testing import CliRunner

from bo_robust.experiments import doctor
from bo_robust.experiments.cli import app
from bo_robust.ops import checked


def shown(found):
    out = io.StringIO()
    doctor.show(found, Console(file=out, width=160))
    return out.getvalue()


def test_the_command_prints_one_json_object_or_two_tables():
    done = CliRunner().invoke(app, ["doctor", "--json"])
    assert done.exit_code == 0
    found = json.loads(done.stdout)
    assert found["versions"]["torch"] == torch.__version__
    assert found["cuda"] == torch.version.cuda
    assert len(found["devices"]) == torch.cuda.device_count()
    assert found["threads"]["torch"] == torch.get_num_threads()
    assert set(found["optional"]) == {"ax", "optuna", "ray", "Box2D", "sklearn", "skfolio"}
    table = CliRunner().invoke(app, ["doctor"])
    assert table.exit_code == 0
    for words in (torch.__version__, "dtc_scores", "half precision is refused"):
        assert words in table.stdout


def test_without_triton_no_op_is_fused(monkeypatch):
    known = doctor.find_spec
    monkeypatch.setattr(doctor, "find_spec", lambda name: None if name == "triton" else known(name))
    monkeypatch.setattr(doctor.ops, "triton_is_available", lambda: False)
    found = doctor.examine()
    assert found["versions"]["triton"] == "not installed"
    assert {op["cuda"] for op in found["ops"].values()} == {"naive"}
    assert found["ops"]["arm_update"]["cpu"] == "cpu"
    assert "not installed" in shown(found)


def test_a_triton_that_is_too_old_is_said_to_be(monkeypatch):
    monkeypatch.setattr(doctor, "_version", lambda module, names: "3.1.0")
    monkeypatch.setattr(doctor.ops, "triton_is_available", lambda: False)
    found = doctor.examine()
    needed = ".".join(map(str, doctor.ops.MIN_TRITON))
    assert found["versions"]["triton"] == f"3.1.0 (not used: {needed} or newer is needed)"
    assert {op["cuda"] for op in found["ops"].values()} == {"naive"}


def test_implementations_are_read_off_the_files(tmp_path):
    for op, files in {"a": ["naive", "cpu"], "b": ["naive", "fused"], "c": ["naive"]}.items():
        (tmp_path / op).mkdir()
        for name in ("__init__", *files):
            (tmp_path / op / f"{name}.py").touch()
    assert doctor.implementations(tmp_path, fused=True) == {
        "a": {"cpu": "cpu", "cuda": "naive"},
        "b": {"cpu": "naive", "cuda": "fused"},
        "c": {"cpu": "naive", "cuda": "naive"},
    }
    assert doctor.implementations(tmp_path, fused=False)["b"]["cuda"] == "naive"


@pytest.mark.parametrize(("capability", "hint"), [((9, 0), "1/2 of float32"), ((8, 9), "1/32 of float32 or less")])
def test_a_device_is_described(monkeypatch, capability, hint):
    properties = SimpleNamespace(
        name="NVIDIA H200",
        major=capability[0],
        minor=capability[1],
        total_memory=139 * 2**30,
        multi_processor_count=132,
    )
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: properties)
    found = doctor.examine()
    assert found["devices"] == [
        {
            "name": "NVIDIA H200",
            "memory_gib": 139.0,
            "capability": f"{capability[0]}.{capability[1]}",
            "multiprocessors": 132,
            "float64": hint,
        }
    ]
    text = shown(found)
    assert f"NVIDIA H200, 139.0 GiB, compute capability {capability[0]}.{capability[1]}; float64 at {hint}" in text
    assert "everything runs on the CPU" not in text


def test_what_was_checked_on_a_device_is_printed(monkeypatch):
    why = {("arm_update", torch.float32): "CompilationError: at 3:4", ("dtc_scores", torch.float64): None}
    monkeypatch.setattr(doctor, "CASES", ["arm_update", "dtc_scores"])
    monkeypatch.setattr(doctor, "check", lambda op, device, dtype: why.get((op, dtype)))
    device = torch.device("cuda", 1)
    found = doctor.checks(device, fused=True)
    assert found == {
        "arm_update float64": None,
        "arm_update float32": "CompilationError: at 3:4",
        "dtc_scores float64": None,
        "dtc_scores float32": None,
    }
    assert doctor.checks(device, fused=False) == {}
    text = shown(doctor.examine() | {"checks": {"cuda:1": found}})
    assert "checked on cuda:1" in text
    for words in ("not used: CompilationError: at 3:4", "the same, used"):
        assert words in text


def test_a_check_that_fails_on_a_device_does_not_end_the_doctor(monkeypatch):
    """This machine may have no CUDA, or torch no support of it: every check fails with its own error."""
    if torch.cuda.is_available():
        pytest.skip("the checks pass")
    monkeypatch.setattr(checked, "_found", {})
    found = doctor.checks(torch.device("cuda", 0), fused=True)
    assert len(found) == 6
    assert all(found.values())


def test_the_data_folder_is_looked_into(monkeypatch, tmp_path):
    monkeypatch.setenv("BO_ROBUST_DATA", str(tmp_path))
    first = next(iter(doctor.DATA_FILES.values()))
    (tmp_path / first.path).parent.mkdir(parents=True)
    (tmp_path / first.path).touch()
    found = doctor.examine()
    assert found["data"] == {"folder": str(tmp_path), "files": 1, "known": len(doctor.DATA_FILES)}
    assert f"1 of {len(doctor.DATA_FILES)} files" in shown(found)
    monkeypatch.delenv("BO_ROBUST_DATA")
    assert "set BO_ROBUST_DATA or give --data-dir" in shown(doctor.examine())


def test_a_package_without_a_distribution_has_no_version(monkeypatch):
    def nothing(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(doctor.metadata, "version", nothing)
    assert doctor.examine()["versions"]["numpy"] == "version unknown"
