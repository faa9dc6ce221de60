"""Numbers as they are stored, with all their bits, and their comparison."""

import math
import platform
from pathlib import Path
from typing import Any

import botorch
import gpytorch
import numpy
import scipy
import torch

RTOL = 1e-9  # of the statistics of a model
FOUND = 1e-4  # of rounds, where one optimizer after another rounds otherwise on another machine
PACKAGES = (torch, botorch, gpytorch, scipy, numpy)


def numbers(value: Any) -> Any:
    """A value as JSON has it, floating-point numbers as hexadecimal strings."""
    if isinstance(value, torch.Tensor | numpy.ndarray | numpy.generic):
        value = value.tolist()
    if isinstance(value, float):
        return value.hex()
    if isinstance(value, dict):
        return {str(key): numbers(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [numbers(one) for one in value]
    return value


def place() -> dict[str, str]:
    """What the last bits depend on."""
    file = Path("/proc/cpuinfo")
    lines = file.read_text().splitlines() if file.exists() else []
    models = {line.partition(":")[2].strip() for line in lines if line.startswith("model name")}
    versions = {package.__name__: str(package.__version__) for package in PACKAGES}
    return {"processor": ", ".join(sorted(models)) or platform.processor(), **versions}


def differences(stored: Any, found: Any, exact: bool, where: str) -> list[str]:
    """Where two records of the scenario ``where`` differ: by a bit if ``exact``, otherwise beyond the tolerances."""
    if isinstance(stored, dict) and isinstance(found, dict) and stored.keys() == found.keys():
        return [line for key in stored for line in differences(stored[key], found[key], exact, f"{where}/{key}")]
    if isinstance(stored, list) and isinstance(found, list) and len(stored) == len(found):
        pairs = enumerate(zip(stored, found, strict=True))
        return [line for i, pair in pairs for line in differences(*pair, exact, f"{where}[{i}]")]
    if stored == found or (not exact and _close(stored, found, RTOL if where.startswith("statistics") else FOUND)):
        return []
    return [f"{where}: {_shown(stored)} is now {_shown(found)}"]


def _number(value: Any) -> float | None:
    try:
        return float.fromhex(value) if isinstance(value, str) else None
    except ValueError:
        return None


def _shown(value: Any) -> Any:
    return value if _number(value) is None else f"{_number(value)!r}"


def _close(stored: Any, found: Any, tolerance: float) -> bool:
    one, other = _number(stored), _number(found)
    return one is not None and other is not None and math.isclose(one, other, rel_tol=tolerance, abs_tol=tolerance)
