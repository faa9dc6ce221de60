"""What this machine has and what would be used on it: ``bo-robust doctor``.

On a CUDA device every fused op is compared with the plain one; this takes seconds.
Optional packages are looked up by name, not imported.
"""

import os
import platform
import warnings
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

import bo_robust
from bo_robust import ops
from bo_robust.experiments.problems.data import DATA_FILES
from bo_robust.ops.cases import CASES
from bo_robust.ops.checked import check

DTYPES = (torch.float64, torch.float32)
NOT_INSTALLED = "not installed"
# Compute capabilities whose double precision runs at half the rate of single; the others have 1/32 or 1/64 of it.
FAST_FLOAT64 = {(6, 0), (7, 0), (8, 0), (9, 0), (10, 0)}
# Names of the distributions that install a module.
OPTIONAL = {
    "ax": ("ax-platform",),
    "optuna": ("optuna",),
    "ray": ("ray",),
    "Box2D": ("Box2D", "box2d-py", "box2d"),
    "sklearn": ("scikit-learn",),
    "skfolio": ("skfolio",),
}


def examine() -> dict[str, Any]:
    """Everything the command prints, as plain JSON.

    Among the keys, ``cuda`` is the CUDA that torch was built for, ``ops`` the result of :func:`implementations`, and
    ``checks`` that of :func:`checks` for every CUDA device.
    """
    count = torch.cuda.device_count()
    core = ("torch", "botorch", "gpytorch", "numpy")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a Triton that is too old warns; the entry below says it too
        fused = ops.triton_is_available()
    triton = _version("triton", ("triton",))
    if triton != NOT_INSTALLED and not fused:
        triton += f" (not used: {'.'.join(map(str, ops.MIN_TRITON))} or newer is needed)"
    return {
        "versions": {
            "bo_robust": bo_robust.__version__,
            "python": platform.python_version(),
            **{name: _version(name, (name,)) for name in core},
            "triton": triton,
        },
        "cuda": torch.version.cuda,
        "devices": [_device(i) for i in range(count)],
        "dtypes": [str(dtype).removeprefix("torch.") for dtype in DTYPES],
        "threads": {
            # Cores this process may use; macOS and Windows only know all cores.
            "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
            "torch": torch.get_num_threads(),
            "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS"),
        },
        "data": _data(os.environ.get("BO_ROBUST_DATA")),
        "optional": {module: _version(module, names) for module, names in OPTIONAL.items()},
        "ops": implementations(Path(ops.__path__[0]), fused),
        "checks": {f"cuda:{i}": checks(torch.device("cuda", i), fused) for i in range(count)},
    }


def checks(device: torch.device, fused: bool) -> dict[str, str | None]:
    """Why each fast path is not used on a CUDA device, None if it is; ``fused`` says if Triton can be used."""
    found: dict[str, str | None] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what fails is an entry
        for op in CASES if fused else ():
            for dtype in DTYPES:
                found[f"{op} {str(dtype).removeprefix('torch.')}"] = check(op, device, dtype)
    return found


def implementations(folder: Path, fused: bool) -> dict[str, dict[str, str]]:
    """What tensors on a CPU and on CUDA take of every op in ``folder``; ``fused`` says if Triton can be used."""
    chosen = {}
    for op in sorted(path.parent for path in folder.glob("*/__init__.py")):
        files = {path.stem for path in op.glob("*.py")}
        chosen[op.name] = {
            "cpu": "cpu" if "cpu" in files else "naive",
            "cuda": "fused" if "fused" in files and fused else "naive",
        }
    return chosen


def show(found: dict[str, Any], console: Console) -> None:
    """Print what :func:`examine` found as tables."""
    table = Table(title="bo-robust doctor", show_header=False)
    for name, version in found["versions"].items():
        table.add_row(name, version)
    table.add_row("torch's CUDA", found["cuda"] or "none: a build for CPUs")
    for i, device in enumerate(found["devices"]):
        about = f"{device['name']}, {device['memory_gib']} GiB, compute capability {device['capability']}"
        table.add_row(f"cuda:{i}", f"{about}; float64 at {device['float64']}")
    if not found["devices"]:
        table.add_row("CUDA devices", "none: everything runs on the CPU")
    table.add_row("dtypes", f"{', '.join(found['dtypes'])} (half precision is refused)")
    threads = found["threads"]
    omp = threads["OMP_NUM_THREADS"] or "not set"
    table.add_row(
        "threads", f"torch {threads['torch']} of {threads['cores']} cores, OMP_NUM_THREADS {omp}; runs take --threads 1"
    )
    data = found["data"]
    none = "none: set BO_ROBUST_DATA or give --data-dir"
    table.add_row(
        "data folder", f"{data['folder']}, {data['files']} of {data['known']} files" if data["folder"] else none
    )
    for name, version in found["optional"].items():
        table.add_row(f"{name} (optional)", version)
    console.print(table)
    used = Table("op", "on the CPU", "on CUDA", title="paths of every op")
    for name, chosen in found["ops"].items():
        used.add_row(name, chosen["cpu"], chosen["cuda"])
    console.print(used)
    for device, checked in found["checks"].items():
        outcome = Table("fast path", "compared with the plain one", title=f"checked on {device}")
        for name, why in checked.items():
            outcome.add_row(name, "the same, used" if why is None else f"not used: {why}")
        console.print(outcome)


def _device(index: int) -> dict[str, Any]:
    properties = torch.cuda.get_device_properties(index)
    capability = (properties.major, properties.minor)
    return {
        "name": properties.name,
        "memory_gib": round(properties.total_memory / 2**30, 1),
        "capability": f"{capability[0]}.{capability[1]}",
        "multiprocessors": properties.multi_processor_count,
        "float64": "1/2 of float32" if capability in FAST_FLOAT64 else "1/32 of float32 or less",
    }


def _data(folder: str | None) -> dict[str, Any]:
    there = 0 if folder is None else sum((Path(folder) / file.path).is_file() for file in DATA_FILES.values())
    return {"folder": folder, "files": there, "known": len(DATA_FILES)}


def _version(module: str, distributions: tuple[str, ...]) -> str:
    """Version of the first distribution found; a module without a distribution was installed by hand."""
    if find_spec(module) is None:
        return NOT_INSTALLED
    for name in distributions:
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return "version unknown"
