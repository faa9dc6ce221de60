"""Shared fixtures: the device under test and the golden numbers."""

import json
import os
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).resolve().parents[1]


def pytest_addoption(parser):
    parser.addoption("--device", default="cpu", help="torch device the device-generic tests run on")


def pytest_configure(config):
    torch.set_num_threads(1)
    os.environ.setdefault("MPLBACKEND", "Agg")
    if config.getoption("--device") == "cpu":  # Triton ops run by its interpreter, if told so before its import
        os.environ.setdefault("TRITON_INTERPRET", "1")


@pytest.fixture(scope="session")
def device(request) -> torch.device:
    return torch.device(request.config.getoption("--device"))


@pytest.fixture
def tkwargs(device) -> dict:
    """Dtype and device of the tensors of a test."""
    return {"dtype": torch.float64, "device": device}


@pytest.fixture(scope="session")
def golden() -> dict:
    return json.loads((ROOT / "tests" / "golden" / "golden.json").read_text())


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The folder of real data sets; tests that need it skip where it is absent."""
    folder = Path(os.environ.get("BO_ROBUST_DATA", ROOT.parent / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"no data folder at {folder} (set BO_ROBUST_DATA)")
    return folder
