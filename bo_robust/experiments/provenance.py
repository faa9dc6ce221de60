"""Provenance of a run (versions, code, device, seeds), and whether the run may go on elsewhere."""

import hashlib
import json
import os
import platform
import subprocess
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

import bo_robust
from bo_robust.experiments.config import Run, parse
from bo_robust.experiments.errors import RunError
from bo_robust.experiments.storage import json_digest, write_json
from bo_robust.ops import ops_forced_naive
from bo_robust.specs import quoted

NEEDED = ("config_digest", "device", "data_dir", "checkpoint_seconds", "versions", "used")  # keys of run.json


def world(device: str) -> dict[str, Any]:
    """Everything besides the configuration that bit-identical traces depend on."""
    folder = Path(bo_robust.__file__).resolve().parent
    source = hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):  # the version alone does not tell edited code
        source.update(path.relative_to(folder).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    processor = platform.processor() or platform.machine()
    if device.startswith("cuda"):
        processor = torch.cuda.get_device_name(torch.device(device))
    forced = {"ops": "naive"} if device.startswith("cuda") and ops_forced_naive() else {}
    return forced | {
        "bo_robust": bo_robust.__version__,
        "source": source.hexdigest()[:16],
        "python": platform.python_version(),
        **{name: metadata.version(name) for name in ("torch", "botorch", "gpytorch", "numpy")},
        "processor": processor,
        "threads": torch.get_num_threads(),
    }


def describe_run(
    config: Run, device: str, data_dir: Path | None, checkpoint_seconds: float, used: dict[str, Any]
) -> dict[str, Any]:
    """The content of ``run.json``; ``used`` holds every constant of every panel, by the panel's name."""
    return {
        "config": config.to_dict(),
        "config_digest": config.digest,
        "used": used,
        "device": device,
        "data_dir": None if data_dir is None else str(data_dir.resolve()),
        "checkpoint_seconds": checkpoint_seconds,
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": sys.argv,
        "seeds": {panel.name: panel.seed for panel in config.panels},
        "versions": world(device),
        "platform": platform.platform(),
        "git": _git_revision(),
    }


def write_run(info: dict[str, Any], folder: Path) -> None:
    """Write ``run.json``, with its digest."""
    write_json(info | {"sha256": json_digest(info)}, folder / "run.json")


def read_run(folder: Path) -> tuple[dict[str, Any], Run]:
    """``run.json`` of a result folder, and the configuration in it.

    ``RunError`` is raised when it is missing, damaged, or its configuration was changed after the run began.
    """
    path, anew = folder / "run.json", "start a new run with another --out"
    try:
        info = json.loads(path.read_text(encoding="utf-8"))
        if info["sha256"] != json_digest(info):
            raise RunError(
                f"{path} is damaged, or was changed after the run began: its content does not fit its sha256. Put "
                f"back what was there, or {anew}."
            )
        config = parse(info["config"])
        known = {key: info[key] for key in NEEDED}
        shard = info.get("shard", 1)
        if type(shard) is not int or shard < 1:
            raise ValueError(f"shard must be a number of trials, at least 1, got {quoted(shard)}")
    except OSError as error:
        raise RunError(f"{folder} is not a result folder: cannot read {path} ({error.strerror}).") from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise RunError(f"{path} is damaged ({error}). Put a copy back, or {anew}.") from None
    if config.digest != known["config_digest"]:
        raise RunError(
            f"the configuration in {path} means something else in this version of bo_robust; results would be mixed. "
            f"Go back to the old one, or {anew}."
        )
    return info, config


def check_same_world(info: dict[str, Any], folder: Path) -> None:
    """Raise ``RunError``, naming what changed, where traces might differ from an uninterrupted run."""
    changed = [f"{key} {then} -> {now}" for key, then, now in differences(info["versions"], world(info["device"]))]
    if changed:
        raise RunError(
            f"{folder} was begun with other code or another machine ({'; '.join(changed)}); its traces would not be "
            "those of an uninterrupted run. Go back to the old one, start anew, or accept that with --force."
        )


def differences(wanted: Mapping[str, Any], found: Mapping[str, Any]) -> list[tuple[str, Any, Any]]:
    """Key, wanted and found value of what differs between two worlds; None where one of them lacks the key."""
    keys = [*wanted, *(key for key in found if key not in wanted)]
    return [(key, wanted.get(key), found.get(key)) for key in keys if wanted.get(key) != found.get(key)]


def find_device(name: str) -> torch.device:
    """The torch device of a name, or ``RunError`` if it is unknown or this machine lacks it."""
    try:
        device = torch.device(name)
    except RuntimeError:
        raise RunError(f"unknown device {quoted(name)}; use cpu, cuda or cuda:0.") from None
    if device.type not in ("cpu", "cuda"):
        raise RunError(f"device {quoted(name)} is not supported; use cpu or cuda.")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        found = torch.cuda.device_count()
        raise RunError(
            f"device {quoted(name)} was asked for, but torch {torch.__version__} finds {found} CUDA devices."
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
