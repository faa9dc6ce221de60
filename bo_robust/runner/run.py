"""Run a configuration into a folder, and resume it after any interruption.

Folder: ``run.json`` (configuration, versions, git revision, device, seeds), ``parts/`` (finished algorithms),
``checkpoint.safetensors`` (the one under way), then ``traces.parquet``, ``summary.json``, ``regret.png``.
"""

from __future__ import annotations

import json
import platform
import subprocess
import sys
import time
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from safetensors.torch import save_file

import bo_robust
from bo_robust.algorithms import State
from bo_robust.problems import Problem
from bo_robust.runner import results
from bo_robust.runner.build import build_algorithm, build_kernel, build_problem
from bo_robust.runner.checkpoint import load_checkpoint, save_checkpoint, write_atomic
from bo_robust.runner.config import PanelConfig, RunConfig
from bo_robust.runner.errors import RunError
from bo_robust.runner.loop import Traces, play
from bo_robust.runner.report import print_report
from bo_robust.states.snapshots import restore_, snapshot

__all__ = ["finish", "resume", "start"]

CHECKPOINT = "checkpoint.safetensors"
# The next checkpoint waits at least this many times as long as the last one took to write.
CHECKPOINT_PAUSE = 20.0


def start(
    config: RunConfig,
    folder: Path,
    *,
    device: str = "cpu",
    data_dir: Path | None = None,
    checkpoint_seconds: float = 5.0,
    console: Console | None = None,
) -> dict[str, Any]:
    """Run a configuration into a new folder and return its summary.

    Raises:
        RunError: when the folder holds something already, the device or data is not there, or writing fails.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise RunError(
            f"{folder} exists already; choose another --out, or go on with `bo-robust resume {folder}` if it is a "
            "run that was interrupted."
        )
    _device(device)
    info = {
        "config": config.to_dict(),
        "config_digest": config.digest,
        "device": device,
        "data_dir": None if data_dir is None else str(data_dir.resolve()),
        "checkpoint_seconds": checkpoint_seconds,
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": sys.argv,
        "seeds": {panel.name: panel.seed for panel in config.panels},
        "versions": {
            "bo_robust": bo_robust.__version__,
            "python": platform.python_version(),
            **{name: metadata.version(name) for name in ("torch", "botorch", "gpytorch", "numpy")},
        },
        "machine": {
            "platform": platform.platform(),
            "processor": _processor(device),
            "threads": torch.get_num_threads(),
        },
        "git": _git_revision(),
    }
    write_atomic(folder / "run.json", lambda p: _dump(info, p))
    return resume(folder, console=console)


def resume(folder: Path, *, console: Console | None = None) -> dict[str, Any]:
    """Go on with the run in ``folder`` from its last checkpoint; a finished one is only summarised again.

    Raises:
        RunError: when the folder is no run, its configuration was changed, or the checkpoint is damaged.
    """
    info, config = read_run(folder)
    device = _device(info["device"])
    data_dir = None if info["data_dir"] is None else Path(info["data_dir"])
    console = console or Console()
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=16),
        TaskProgressColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console) as progress:
        for i, panel in enumerate(config.panels):
            todo = [j for j in range(len(panel.algorithms)) if not results.part_path(folder, i, j).exists()]
            if todo:
                problem = build_problem(panel, range(panel.trials), data_dir, device)
                for j in todo:
                    _play_one(folder, info, panel, i, j, problem, progress)
    return finish(folder, console=console)


def finish(folder: Path, *, console: Console | None = None) -> dict[str, Any]:
    """Join the parts, write ``traces.parquet``, ``summary.json`` and the pictures, and print the report.

    Raises:
        RunError: when parts are missing.
    """
    from bo_robust.runner import plot

    _, config = read_run(folder)
    for i, panel in enumerate(config.panels):
        for j, algorithm in enumerate(panel.algorithms):
            if not results.part_path(folder, i, j).exists():
                raise RunError(
                    f"{folder} has no results of {algorithm.label} in panel {panel.name!r} yet; `bo-robust resume "
                    f"{folder}` finishes the run."
                )
    traces = results.load_traces(folder)
    facts = {panel.name: _facts(folder, i, panel) for i, panel in enumerate(config.panels)}
    summary = results.summarise(config, traces, facts)
    results.write_frame(traces, folder / "traces.parquet")
    write_atomic(folder / "summary.json", lambda p: _dump(summary, p))
    plot.plot_regret(config, traces, folder / "regret.png")
    plot.plot_intervals(config, folder, folder / "intervals.png")
    console = console or Console()
    print_report(summary, console)
    console.print(f"Results in {folder}: summary.json, traces.parquet, regret.png", markup=False)
    return summary


def read_run(folder: Path) -> tuple[dict[str, Any], RunConfig]:
    """``run.json`` of a result folder and the configuration in it.

    Raises:
        RunError: when it is missing, damaged, or was changed after the run began.
    """
    path = folder / "run.json"
    try:
        info = json.loads(path.read_text(encoding="utf-8"))
        config = RunConfig.from_dict(info["config"])
    except OSError as error:
        raise RunError(f"{folder} is not a result folder: cannot read {path} ({error.strerror}).") from None
    except (ValueError, KeyError) as error:
        raise RunError(f"{path} is damaged ({error}).") from None
    if config.digest != info["config_digest"]:
        raise RunError(
            f"the configuration in {path} was changed after the run began; results would be mixed. Undo the change, or "
            "start a new run with another --out."
        )
    return info, config


def _play_one(
    folder: Path,
    info: dict[str, Any],
    panel: PanelConfig,
    i: int,
    j: int,
    problem: Problem,
    progress: Progress,
) -> None:
    """Play one algorithm, from its checkpoint if there is one, and write its part."""
    algorithm_config = panel.algorithms[j]
    algorithm = build_algorithm(algorithm_config, panel, problem)
    noise_var = panel.noise_var or problem.noise_var
    trials = range(panel.trials)
    traces = Traces.empty(panel.horizon, panel.trials, problem.f.device, problem.f.dtype)
    state = algorithm.init(build_kernel(problem), noise_var, panel.trials, rounds=panel.horizon)
    checkpoint = folder / CHECKPOINT
    spent = 0.0
    key = [info["config_digest"], i, j]
    if checkpoint.exists():
        tensors, meta = load_checkpoint(checkpoint)
        if meta["key"] == key:
            restore_(
                state.posterior,
                {k.removeprefix("state."): v for k, v in tensors.items() if k.startswith("state.")},
                meta["state"],
            )
            state.round = traces.rounds = meta["round"]
            for name, target in traces.tensors().items():
                target[: traces.rounds] = tensors[f"trace.{name}"].to(target.device)
            spent = meta["seconds"]
    task = progress.add_task(
        f"{panel.name} · {algorithm_config.label}", total=panel.horizon, completed=traces.rounds, rate=""
    )
    began, first = time.perf_counter(), traces.rounds
    next_save = began + info["checkpoint_seconds"]

    def after_block(state: State, traces: Traces) -> None:
        nonlocal next_save
        now = time.perf_counter()
        rate = (traces.rounds - first) * panel.trials / max(now - began, 1e-9)  # of all trials
        progress.update(task, completed=traces.rounds, rate=f"{rate:,.0f} rounds/s")
        if now >= next_save and traces.rounds < panel.horizon:
            tensors, numbers = snapshot(state.posterior)
            tensors = {f"state.{k}": v for k, v in tensors.items()}
            tensors |= {f"trace.{k}": v[: traces.rounds] for k, v in traces.tensors().items()}
            meta = {"key": key, "round": traces.rounds, "state": numbers, "seconds": spent + now - began}
            save_checkpoint(checkpoint, tensors, meta)
            took = time.perf_counter() - now
            next_save = now + took + max(info["checkpoint_seconds"], CHECKPOINT_PAUSE * took)

    play(algorithm, problem, trials, panel.seed, noise_var, traces, state, after_block)
    seconds = spent + time.perf_counter() - began
    part = results.part_path(folder, i, j)
    posterior = state.posterior
    truncation = getattr(algorithm, "truncation", None)
    # Of the trial that ended with the lowest coverage, for the picture of the intervals.
    shown = int(traces.coverage[-1].nan_to_num().argmin())
    final = {
        "mean": posterior.mean[shown].cpu().clone(),
        "sigma": posterior.variance[shown].sqrt().cpu(),
        "f": problem.f[shown].cpu().clone(),
        "width": traces.width[-1, shown : shown + 1].cpu().clone(),
        "coverage": traces.coverage[-1, shown : shown + 1].cpu().clone(),
    }
    facts = {
        "seconds": seconds,
        "level": None if truncation is None else truncation(panel.horizon),
        "notes": problem.notes,
        "arm_names": list(problem.arm_names),
    }
    write_atomic(part.with_suffix(".safetensors"), lambda p: save_file(final, p))
    write_atomic(part.with_suffix(".json"), lambda p: _dump(facts, p))
    # The part itself last: its presence says that this algorithm is finished.
    results.write_frame(results.traces_frame(traces, problem, panel.name, algorithm_config.label, trials), part)
    checkpoint.unlink(missing_ok=True)


def _facts(folder: Path, i: int, panel: PanelConfig) -> dict[str, Any]:
    """What :func:`results.summarise` needs besides the traces."""
    facts: dict[str, Any] = {"seconds": {}, "level": {}}
    for j, algorithm in enumerate(panel.algorithms):
        one = json.loads(results.part_path(folder, i, j).with_suffix(".json").read_text(encoding="utf-8"))
        facts["seconds"][algorithm.label] = one["seconds"]
        facts["level"][algorithm.label] = one["level"]
        facts |= {"notes": one["notes"], "arm_names": one["arm_names"]}
    return facts


def _device(name: str) -> torch.device:
    try:
        device = torch.device(name)
    except RuntimeError:
        raise RunError(f"unknown device {name!r}; use cpu, cuda or cuda:0.") from None
    if device.type == "cuda" and not torch.cuda.is_available():
        raise RunError(f"device {name!r} was asked for, but torch {torch.__version__} finds no CUDA device; use cpu.")
    if device.type not in ("cpu", "cuda"):
        raise RunError(f"device {name!r} is not supported; use cpu or cuda.")
    return device


def _processor(device: str) -> str:
    if device.startswith("cuda"):
        return torch.cuda.get_device_name(torch.device(device))
    return platform.processor() or platform.machine()


def _git_revision() -> str | None:
    root = Path(bo_robust.__file__).resolve().parents[1]
    if not (root / ".git").exists():
        return None
    try:
        run = subprocess.run(
            ["git", "-C", str(root), "describe", "--always", "--dirty"],
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return run.stdout.strip()


def _dump(data: dict[str, Any], path: Path) -> None:
    path.write_text(json.dumps(data, indent=2) + "\n", encoding="utf-8")
