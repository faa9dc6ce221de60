"""Numbers as they are stored, with all their bits, and their comparison."""

import hashlib
import math
import os
from typing import Any

import botorch
import gpytorch
import numpy
import scipy.linalg
import torch

RTOL = 1e-9  # of the statistics of a model, where a processor rounds otherwise
SINGLE = 1e-2  # of those in single precision
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
    """What the last bits depend on: versions, and how the processor rounds."""
    versions = {package.__name__: str(package.__version__) for package in PACKAGES}
    alone = os.environ.get("OMP_NUM_THREADS") == "1"  # without it an optimizer lets libraries have several threads
    return {"rounding": _rounding() if alone else "that of several threads", **versions}


def _rounding() -> str:
    """A hash of results of kernels that differ between processors, whose names do not tell them apart."""
    generator = torch.Generator().manual_seed(0)
    found = hashlib.sha256()
    for n in (3, 20, 70):
        A = torch.randn(n, n, generator=generator, dtype=torch.float64)
        K = A @ A.T + n * torch.eye(n, dtype=torch.float64)
        root = torch.linalg.cholesky(K)
        found.update(numpy.stack([K, root, torch.cdist(A, K), A.exp(), A.sin(), A.log1p().nan_to_num()]).tobytes())
        array = A.numpy()
        inverse = scipy.linalg.lapack.dpotri(scipy.linalg.lapack.dpotrf(K.numpy(), lower=True)[0], lower=True)[0]
        found.update(numpy.stack([array @ array.T, inverse, numpy.exp(array), numpy.sin(array)]).tobytes())
    return found.hexdigest()[:16]


def differences(stored: Any, found: Any, tolerance: float, where: str = "") -> list[str]:
    """Where two records differ by more than a tolerance, or by a bit if that is 0."""
    if isinstance(stored, dict) and isinstance(found, dict) and stored.keys() == found.keys():
        return [line for key in stored for line in differences(stored[key], found[key], tolerance, f"{where}/{key}")]
    if isinstance(stored, list) and isinstance(found, list) and len(stored) == len(found):
        pairs = enumerate(zip(stored, found, strict=True))
        return [line for i, pair in pairs for line in differences(*pair, tolerance, f"{where}[{i}]")]
    if stored == found or (tolerance and _close(stored, found, tolerance)):
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
