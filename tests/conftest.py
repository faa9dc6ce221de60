"""Shared fixtures: the device under test and the golden numbers."""

import json
import os
from pathlib import Path

import pytest
import torch
from botorch.acquisition.multi_objective import logei

from bo_robust.ops import naive_ops
from bo_robust.utils import linalg

ROOT = Path(__file__).resolve().parents[1]
try:
    import joblib  # noqa: F401
    import matplotlib as mpl  # noqa: F401
    import pyarrow  # noqa: F401
except ImportError:  # a machine for GPUs may lack the packages of the extra [benchmarks]
    tests = sorted(Path(__file__).parent.rglob("test_*.py"))
    collect_ignore = [str(path) for path in tests if "benchmarks" in path.read_text()]


def pytest_addoption(parser):
    what = "torch device the device-generic tests run on; 'simulated': CPU tensors that take every path of CUDA"
    parser.addoption("--device", default="cpu", help=what)


def pytest_configure(config):
    torch.set_num_threads(1)
    os.environ.setdefault("MPLBACKEND", "Agg")
    # BoTorch would compile a kernel of qLogNEHVI, for longer than the tests that use it take in Python.
    logei._load_attempted = True
    if config.getoption("--device") == "cpu":  # Triton ops run by its interpreter, if asked before its import
        os.environ.setdefault("TRITON_INTERPRET", "1")
    if config.getoption("--device") == "simulated":
        linalg.simulated = True
        os.environ["BO_ROBUST_OPS"] = "naive"  # the interpreter tests the fused ops


def pytest_collection_modifyitems(config, items):
    """Tests of what only a CPU does are not for the other devices; on CUDA, neither are those that take no device."""
    if config.getoption("--device").startswith("cuda"):
        without = [item for item in items if "device" not in item.fixturenames and "gpu" not in item.fixturenames]
        config.hook.pytest_deselected(items=without)
        items[:] = [item for item in items if item not in set(without)]
    if config.getoption("--device") != "cpu":
        for item in items:
            for mark in item.iter_markers("cpu_only"):
                item.add_marker(pytest.mark.skip(reason=f"only on a CPU: {mark.args[0]}"))


@pytest.fixture(scope="session")
def device(request) -> torch.device:
    name = request.config.getoption("--device")
    return torch.device("cpu" if name == "simulated" else name)


@pytest.fixture
def tkwargs(device) -> dict:
    """Dtype and device of the tensors of a test."""
    return {"dtype": torch.float64, "device": device}


@pytest.fixture
def simulated(monkeypatch):
    """CPU tensors take every path of CUDA, with the plain ops."""
    monkeypatch.setattr(linalg, "simulated", True)
    with naive_ops():
        yield


@pytest.fixture(scope="session")
def golden() -> dict:
    return json.loads((ROOT / "tests" / "golden" / "golden.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The folder of real data sets; tests that need it skip where it is absent."""
    folder = Path(os.environ.get("BO_ROBUST_DATA", ROOT.parent / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"no data folder at {folder} (set BO_ROBUST_DATA)")
    os.environ["BO_ROBUST_DATA"] = str(folder)
    return folder
