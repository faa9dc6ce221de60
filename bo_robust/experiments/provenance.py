"""Provenance of a run: versions, code, device, seeds, and the fingerprint that tells whether it may go on elsewhere."""

import hashlib
import os
import platform
import re
import subprocess
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import torch

import bo_robust
from bo_robust.experiments.config import RunConfig
from bo_robust.experiments.errors import RunError
from bo_robust.ops import ops_forced_naive, triton_is_available
from bo_robust.specs import quoted

LIBRARIES = ("torch", "botorch", "gpytorch", "linear_operator", "numpy", "scipy")
# Variables that make BLAS and numpy take other kernels; ATEN_CPU_CAPABILITY shows in what ATen says itself.
KERNEL_VARIABLES = (
    "MKL_CBWR",
    "MKL_DEBUG_CPU_TYPE",
    "MKL_ENABLE_INSTRUCTIONS",
    "NPY_DISABLE_CPU_FEATURES",
    "OPENBLAS_CORETYPE",
)


def fingerprint(device: str) -> dict[str, Any]:
    """Everything besides the configuration that bit-identical traces depend on: code, versions, machine."""
    folder = Path(bo_robust.__file__).resolve().parent
    source = hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):  # the version alone does not tell edited code
        source.update(path.relative_to(folder).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    of_device = {}
    if device.startswith("cuda"):
        of_device = {"gpu": torch.cuda.get_device_name(torch.device(device))}
        of_device |= {"ops": "naive"} if ops_forced_naive() else {}
        of_device |= {"triton": metadata.version("triton")} if triton_is_available() else {}
    return {
        "bo_robust": bo_robust.__version__,
        "source": source.hexdigest()[:16],
        "python": platform.python_version(),
        **{name: metadata.version(name) for name in LIBRARIES},
        "processor": _processor(),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "blas": _blas(),
        **{name: os.environ[name] for name in KERNEL_VARIABLES if name in os.environ},
        "threads": torch.get_num_threads(),
        **of_device,
    }


def _processor() -> str:
    """The model of the CPU. On Linux ``platform.processor()`` is empty or the architecture only."""
    about: dict[str, str] = {}
    if sys.platform == "linux":
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").split("\n\n")[0].splitlines()
        about = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}
    keys = ("model name", "cpu family", "model", "stepping", "CPU implementer", "CPU part")
    known = [about[key] if key == "model name" else f"{key} {about[key]}" for key in keys if key in about]
    return ", ".join(known) or platform.processor() or platform.machine()


def _blas() -> str:
    config = torch.__config__.show()
    found = re.search(r"Math Kernel Library Version (\S+)", config) or re.search(r"BLAS_INFO=(\w+)", config)
    of_numpy = np.show_config(mode="dicts")["Build Dependencies"]["blas"]
    return f"torch {found[1] if found else 'unknown'}, numpy {of_numpy['name']} {of_numpy.get('version', '')}".strip()


def describe_run(
    config: RunConfig, device: str, data_dir: Path | None, checkpoint_seconds: float, used: dict[str, Any]
) -> dict[str, Any]:
    """The content of ``run.json``; ``used`` holds every constant of every panel, by the panel's name."""
    return {
        "config": config.to_dict(),
        "config_digest": config.digest,
        "used": used,
        "device": device,
        "data_dir": None if data_dir is None else str(data_dir.resolve()),
        "checkpoint_seconds": checkpoint_seconds,
        "started": _now(),
        "command": sys.argv,
        "seeds": {panel.name: panel.seed for panel in config.panels},
        "fingerprint": fingerprint(device),
        "platform": platform.platform(),
        "git": _git_revision(),
    }


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def resumption(info: Mapping[str, Any], rounds: Mapping[str, int]) -> dict[str, Any]:
    """``run.json`` of a run that goes on by force; ``rounds`` are those played so far of every shard that is missing.

    Where the fingerprint changed, the list ``resumed`` gets an entry: when, the new fingerprint, and the rounds.
    """
    here = fingerprint(info["device"])
    if _last_fingerprint(info) == here:
        return dict(info)
    entry = {"when": _now(), "fingerprint": here, "from_round": dict(rounds)}
    return {**info, "resumed": [*info.get("resumed", []), entry]}


def _last_fingerprint(info: Mapping[str, Any]) -> dict[str, Any]:
    """That of the code and machine that played last, by ``run.json``."""
    return [info, *info.get("resumed", [])][-1]["fingerprint"]


def check_same_fingerprint(info: Mapping[str, Any], folder: Path) -> None:
    """Raise ``RunError``, naming what changed, where traces might differ from an uninterrupted run."""
    changed = differences(_last_fingerprint(info), fingerprint(info["device"]))
    if changed:
        raise RunError(
            f"{folder} was begun with other code or another machine ({changed}); its traces would not be "
            "those of an uninterrupted run. Go back to the old one, start anew, or accept that with --force."
        )


def differences(then: Mapping[str, Any], here: Mapping[str, Any]) -> str:
    """What differs between two fingerprints, in words; None stands where one of them lacks the key."""
    keys = [*then, *(key for key in here if key not in then)]
    return "; ".join(f"{key} {then.get(key)} -> {here.get(key)}" for key in keys if then.get(key) != here.get(key))


def find_device(name: str) -> torch.device:
    """The torch device of a name, or ``RunError`` if it is unknown or this machine lacks it."""
    try:
        device = torch.device(name)
    except RuntimeError:
        raise RunError(f"unknown device {quoted(name)}; use cpu, cuda or cuda:0.") from None
    if device.type not in ("cpu", "cuda"):
        raise RunError(f"device {quoted(name)} is not supported; use cpu or cuda.")
    count = torch.cuda.device_count()
    if device.type == "cuda" and (device.index or 0) >= count:
        raise RunError(
            f"device {quoted(name)} was asked for, but torch {torch.__version__} finds {count} CUDA devices."
        )
    return device


def _git_revision() -> str | None:
    root = Path(bo_robust.__file__).resolve().parents[1]
    if not (root / ".git").exists():
        return None
    command = ["git", "-C", os.fspath(root), "describe", "--always", "--dirty"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None
