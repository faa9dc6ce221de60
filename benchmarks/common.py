"""What every benchmark shares: its options, and its reports, one JSON object a line."""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import warnings
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from benchmarks.keys import LIBRARIES, ROOT

__all__ = ["ROOT", "environment", "options", "report", "report_environment"]


def options(
    doc: str | None, positional: Collection[str] = (), arguments: Sequence[str] | None = None, **defaults: Any
) -> argparse.Namespace:
    """Read the arguments of a command, use one thread, and show no warnings.

    An option is given by its default: False for a flag, a type for one without a default, a list or tuple for any
    number of values, and a mapping for some of its keys, which are all by default. ``positional`` are names of parts,
    which are given without a flag.
    """
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    if positional:
        parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(positional))
    for name, default in defaults.items():
        if default is False:
            parser.add_argument(f"--{name}", action="store_true")
        elif isinstance(default, type):
            parser.add_argument(f"--{name}", type=default)
        elif isinstance(default, list | tuple | Mapping):
            values = list(default)
            choices = values if isinstance(default, Mapping) else None
            parser.add_argument(f"--{name}", nargs="*", type=type(values[0]), default=values, choices=choices)
        else:
            parser.add_argument(f"--{name}", type=type(default), default=default)
    given = parser.parse_args(arguments)
    if positional and (unknown := set(given.parts) - set(positional)):
        parser.error(f"unknown parts: {', '.join(sorted(unknown))}; there are {', '.join(positional)}")
    return given


def report(
    name: str,
    value: float | None,
    unit: str,
    detail: Mapping[str, Any] | None = None,
    *,
    least: float | None = None,
    most: float | None = None,
    judged: bool = True,
    valid: bool = True,
) -> dict[str, Any]:
    """Print one result and return it.

    Args:
        name: What was measured.
        value: None if it was not.
        unit: Of the value.
        detail: More about it.
        least: The target, if the value is to be at least that.
        most: The target, if it is to be at most that.
        judged: Whether to say if the target is met.
        valid: False if the value meets no target, whatever it is.
    """
    bounds = [f"{sign} {bound:g}" for sign, bound in ((">=", least), ("<=", most)) if bound is not None]
    met = None
    if bounds and judged and value is not None:
        met = bool(valid and (least is None or value >= least) and (most is None or value <= most))
    row = {
        "name": name,
        "value": None if value is None else float(f"{value:.4g}"),
        "unit": unit,
        "target": ", ".join(bounds) or None,
        "met": met,
        "detail": dict(detail or {}),
    }
    print(json.dumps(row), flush=True)
    return row


def report_environment(**more: Any) -> None:
    """Print the first line of a file of results: :func:`environment`, and ``more``."""
    print(json.dumps({"environment": environment() | more}), flush=True)


def environment() -> dict[str, Any]:
    """Machine, versions, date and command of this run."""
    return {
        "command": " ".join(["python", "-m", *_module(), *sys.argv[1:]]),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": platform.platform(),
        "processor": processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "cuda": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "versions": {name: metadata.version(name) for name in LIBRARIES},
        "git": commit(),
    }


def _module() -> list[str]:
    spec = sys.modules["__main__"].__spec__
    return [spec.name.removesuffix(".__main__")] if spec else [sys.argv[0]]


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
