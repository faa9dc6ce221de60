"""Where a run comes from: versions, code, device, seeds; and whether it may go on elsewhere."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import subprocess
import sys
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

import bo_robust
from bo_robust.ops import ops_forced_naive
from bo_robust.runner.config import RunConfig
from bo_robust.runner.errors import RunError

__all__ = ["check_same_world", "describe_run", "find_device", "read_run", "world"]


def world(device: str) -> dict[str, Any]:
    """What bit-identical traces depend on besides the configuration."""
    folder = Path(bo_robust.__file__).resolve().parent
    source = hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):
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
    config: RunConfig, device: str, data_dir: Path | None, checkpoint_seconds: float, used: dict[str, Any]
) -> dict[str, Any]:
    """The content of ``run.json``; ``used`` are the schedules with every constant filled in, per panel and label."""
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


def read_run(folder: Path) -> tuple[dict[str, Any], RunConfig]:
    """``run.json`` of a result folder and the configuration in it.

    Raises:
        RunError: when it is missing, damaged, or its configuration was changed after the run began.
    """
    path = folder / "run.json"
    try:
        info = json.loads(path.read_text(encoding="utf-8"))
        config = RunConfig.from_dict(info["config"])
        known = {key: info[key] for key in ("config_digest", "device", "data_dir", "checkpoint_seconds", "versions")}
    except OSError as error:
        raise RunError(f"{folder} is not a result folder: cannot read {path} ({error.strerror}).") from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise RunError(f"{path} is damaged ({error}).") from None
    if config.digest != known["config_digest"]:
        raise RunError(
            f"the configuration in {path} was changed after the run began; results would be mixed. Undo the change, or "
            "start a new run with another --out."
        )
    return info, config


def check_same_world(info: dict[str, Any], folder: Path) -> None:
    """Refuse to go on where traces might differ from an uninterrupted run.

    Raises:
        RunError: naming what changed since the run began.
    """
    now, then = world(info["device"]), info["versions"]
    changed = [f"{key} {then.get(key)} -> {now[key]}" for key in now if then.get(key) != now[key]]
    if changed:
        raise RunError(
            f"{folder} was begun with other code or another machine ({'; '.join(changed)}); its traces would not be "
            "those of an uninterrupted run. Go back to the old one, start anew, or accept that with --force."
        )


def find_device(name: str) -> torch.device:
    """The torch device of a name.

    Raises:
        RunError: when it is unknown or not there.
    """
    try:
        device = torch.device(name)
    except RuntimeError:
        raise RunError(f"unknown device {name!r}; use cpu, cuda or cuda:0.") from None
    if device.type not in ("cpu", "cuda"):
        raise RunError(f"device {name!r} is not supported; use cpu or cuda.")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        found = torch.cuda.device_count()
        raise RunError(f"device {name!r} was asked for, but torch {torch.__version__} finds {found} CUDA devices.")
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
