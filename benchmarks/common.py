"""How every benchmark reports: one JSON object a line."""

from __future__ import annotations

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

__all__ = ["ROOT", "environment", "report", "report_environment"]

ROOT = Path(__file__).resolve().parents[1]


def report(
    name: str,
    value: float,
    unit: str,
    target: str | None,
    met: bool | None,
    detail: dict[str, Any] | None = None,
) -> None:
    """Print one result; ``met`` is None where no target was set."""
    row = {
        "name": name,
        "value": float(f"{value:.4g}"),
        "unit": unit,
        "target": target,
        "met": met,
        "detail": detail or {},
    }
    print(json.dumps(row), flush=True)


def report_environment(**more: Any) -> None:
    """Print the first line of a file of results: :func:`environment`, and ``more``."""
    print(json.dumps({"environment": environment() | more}), flush=True)


def environment() -> dict[str, Any]:
    """Machine, versions, date and command of this run."""
    git = subprocess.run(
        ["git", "-C", str(ROOT), "describe", "--always", "--dirty"],
        capture_output=True,
        text=True,
        check=False,
    )
    return {
        "command": " ".join(["python", "-m", *_module(), *sys.argv[1:]]),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": platform.platform(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "cuda": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "versions": {name: metadata.version(name) for name in ("torch", "botorch", "gpytorch", "numpy")},
        "git": git.stdout.strip() or None,
    }


def _module() -> list[str]:
    spec = sys.modules["__main__"].__spec__
    return [spec.name.removesuffix(".__main__")] if spec else [sys.argv[0]]


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor()
