"""What this machine has: ``bo-robust doctor``.

On a CUDA device every fused op is compared with the plain one; this takes seconds. Optional packages are looked up by
name, not imported.
"""

import os
import warnings
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from bo_robust import ops
from bo_robust.experiments.problems.data import DATA_FILES
from bo_robust.experiments.provenance import fingerprint
from bo_robust.ops.cases import CASES
from bo_robust.ops.checked import check

DTYPES = {"float64": torch.float64, "float32": torch.float32}
OPTIONAL = ("triton", "ax-platform", "optuna", "ray", "Box2D", "scikit-learn", "skfolio")


def examine() -> dict[str, Any]:
    """Everything the command prints, as plain JSON.

    ``versions`` is the fingerprint of a run on the CPU; ``optional`` are versions of packages, None if not installed;
    ``checks`` is the result of :func:`checks` for every CUDA device.
    """
    count = torch.cuda.device_count()
    folder = os.environ.get("BO_ROBUST_DATA")
    present = 0 if folder is None else sum((Path(folder) / file.path).is_file() for file in DATA_FILES.values())
    return {
        "versions": fingerprint("cpu"),
        "cuda": torch.version.cuda,
        "devices": [_device(i) for i in range(count)],
        "data": {"folder": folder, "files": present, "known": len(DATA_FILES)},
        "optional": {name: _version(name) for name in OPTIONAL},
        "checks": {f"cuda:{i}": checks(torch.device("cuda", i)) for i in range(count)},
    }


def checks(device: torch.device) -> dict[str, str | None]:
    """Why each fused op is not used on a CUDA device, by op and dtype; None if it is used."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what fails is in the result
        if not ops.triton_is_available():
            needed = ".".join(map(str, ops.MIN_TRITON))
            return dict.fromkeys(CASES, f"it needs Triton {needed} or newer")
        return {f"{op} {name}": check(op, device, dtype) for op in CASES for name, dtype in DTYPES.items()}


def lines(examined: dict[str, Any]) -> list[tuple[str, str]]:
    """What :func:`examine` gave, as pairs of a name and a text."""
    data = examined["data"]
    rows = [(name, str(version)) for name, version in examined["versions"].items()]
    rows += [(f"{name} (optional)", version or "not installed") for name, version in examined["optional"].items()]
    rows.append(("torch's CUDA", examined["cuda"] or "none: a build for CPUs"))
    rows += [
        (f"cuda:{i}", f"{device['name']}, {device['memory_gib']} GiB, compute capability {device['capability']}")
        for i, device in enumerate(examined["devices"])
    ] or [("CUDA devices", "none: everything runs on the CPU")]
    rows += [
        (f"{op} on {device}", "the same as the plain path, used" if why is None else f"not used: {why}")
        for device, checked in examined["checks"].items()
        for op, why in checked.items()
    ]
    none = "none: set BO_ROBUST_DATA or give --data-dir"
    rows.append(
        ("data folder", f"{data['folder']}, {data['files']} of {data['known']} files" if data["folder"] else none)
    )
    return rows


def _device(index: int) -> dict[str, Any]:
    properties = torch.cuda.get_device_properties(index)
    return {
        "name": properties.name,
        "memory_gib": round(properties.total_memory / 2**30, 1),
        "capability": f"{properties.major}.{properties.minor}",
        "multiprocessors": properties.multi_processor_count,
    }


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
