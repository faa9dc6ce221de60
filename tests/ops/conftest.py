"""The Triton ops: compiled on CUDA, otherwise run by Triton's interpreter."""

from importlib import import_module
from importlib.metadata import version

import numpy as np
import pytest
from packaging.version import Version

from bo_robust.utils import linalg


@pytest.fixture(scope="module")
def fused_module(device):
    """Imports ``bo_robust.ops.<name>.fused``; the interpreter must be asked for before the import."""
    if linalg.simulated:
        pytest.skip("a simulated takes the plain ops")
    interpreted = device.type != "cuda"
    with pytest.MonkeyPatch.context() as patches:
        if interpreted:
            patches.setenv("TRITON_INTERPRET", "1")
        pytest.importorskip("triton", reason="triton is not installed")
        if interpreted and Version(version("triton")) < Version("3.7") and Version(np.__version__) >= Version("2.4"):
            pytest.skip("the interpreter of triton < 3.7 fails with numpy >= 2.4 (triton-lang/triton#9171)")
        yield lambda name: import_module(f"bo_robust.ops.{name}.fused")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    """Of a sweep in Triton's interpreter one case is run always, the others with the slow tests; on CUDA all are."""
    if config.getoption("--device") != "cpu":
        return
    sweeps = {}
    for item in items:
        if "fused_module" in getattr(item, "fixturenames", ()) and hasattr(item, "callspec"):
            sweeps.setdefault((item.path, item.originalname), []).append(item)
    for cases in sweeps.values():
        for i, case in enumerate(cases):
            if i != len(cases) // 2:
                case.add_marker(pytest.mark.slow)
