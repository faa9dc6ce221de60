"""What results may depend on besides a configuration: versions, machine, commit, and the date."""

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
from benchmarks.keys import LIBRARIES, ROOT


def environment(device: str) -> dict[str, Any]:
    """The environment of a run on a device."""
    versions = {"bo_robust": bo_robust.__version__, "python": platform.python_version()}
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": sys.argv,
        "commit": commit(),
        "versions": versions | {name: metadata.version(name) for name in LIBRARIES},
        "machine": {
            "platform": platform.platform(),
            "processor": processor(),
            "cpu_capability": torch.backends.cpu.get_cpu_capability(),
            "threads": torch.get_num_threads(),
            "device": torch.cuda.get_device_name(torch.device(device)) if device.startswith("cuda") else device,
        },
    }


def processor() -> str:
    """The model of the CPU. On Linux ``platform.processor()`` is empty or the architecture only."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines() if cpuinfo.exists() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.processor() or platform.machine()


def commit() -> str | None:
    """The revision of the checkout; None outside one."""
    if not (ROOT / ".git").exists():
        return None
    command = ["git", "-C", os.fspath(ROOT), "describe", "--always", "--dirty"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None
