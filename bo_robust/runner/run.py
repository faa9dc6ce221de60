"""Run a configuration into a folder, and resume it after any interruption.

Folder: ``run.json`` (configuration, constants used, versions, git revision, device, seeds), ``parts/`` (finished
algorithms), ``checkpoint.safetensors`` (the one under way; of several processes each has its own, numbered as its
part) or ``blocks/`` (finished trials of those under way, on an executor), then ``traces.parquet``, ``summary.json``,
pictures.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TaskProgressColumn, TextColumn, TimeRemainingColumn

from bo_robust.algorithms import State
from bo_robust.problems import Problem
from bo_robust.runner import results
from bo_robust.runner.blocks import play_blocks
from bo_robust.runner.build import build_algorithm, build_problem, resolved, start_state
from bo_robust.runner.checkpoint import load_checkpoint, save_checkpoint, write_json
from bo_robust.runner.config import PanelConfig, RunConfig
from bo_robust.runner.errors import RunError
from bo_robust.runner.guards import check_free, check_memory, locked, memory_errors
from bo_robust.runner.loop import Traces
from bo_robust.runner.parts import Game, write_part
from bo_robust.runner.provenance import check_same_world, describe_run, find_device, read_run
from bo_robust.runner.report import print_report
from bo_robust.states.snapshots import restore_, snapshot
from bo_robust.study.executors import Executor, InProcess

__all__ = ["finish", "play_part", "resume", "start"]

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
    workers: int = 1,
    executor: Executor | None = None,
    block: int | None = None,
    console: Console | None = None,
) -> dict[str, Any]:
    """Run a configuration into a new folder and return its summary.

    Every panel is built for one trial first, so that a mistake in the last one costs nothing. With several ``workers``
    algorithms are played in as many processes at a time (:mod:`bo_robust.runner.parallel`), with an ``executor``
    where it has room (:mod:`bo_robust.runner.blocks`), to the same traces. With ``block`` so many trials are played at
    once, with or without an executor; the last bits of results may then differ.

    Raises:
        RunError: when the folder holds something already, the device or data is not there, a panel cannot be built or
            is too large for the memory, or writing fails.
    """
    check_free(folder)
    if block is not None and block < 1:
        raise RunError(f"--block must be at least 1 trial, got {block}.")
    _check_workers(workers, executor, block)
    if not checkpoint_seconds >= 0:
        raise RunError(f"--checkpoint-seconds must be >= 0, got {checkpoint_seconds}.")
    if data_dir is None and os.environ.get("BO_ROBUST_DATA"):
        data_dir = Path(os.environ["BO_ROBUST_DATA"])
    place = find_device(device)
    used: dict[str, Any] = {}
    for panel in config.panels:
        check_memory(panel)
        problem = build_problem(panel, range(1), data_dir, place)
        noise_var = panel.noise_var or problem.noise_var
        algorithms = {a.label: build_algorithm(a, panel, problem) for a in panel.algorithms}
        with memory_errors(panel):
            for algorithm in algorithms.values():
                start_state(algorithm, problem, noise_var, 1)
        settings = {label: resolved(algorithm) for label, algorithm in algorithms.items()}
        used[panel.name] = {"noise_var": noise_var, "algorithms": settings}
    info = describe_run(config, device, data_dir, checkpoint_seconds, used)
    write_json(info | ({} if block is None else {"block": block}), folder / "run.json")
    return resume(folder, workers=workers, executor=executor, console=console)


def resume(
    folder: Path,
    *,
    data_dir: Path | None = None,
    force: bool = False,
    workers: int = 1,
    executor: Executor | None = None,
    console: Console | None = None,
) -> dict[str, Any]:
    """Go on with the run in ``folder`` from its last checkpoint; a finished one is only summarised again.

    Args:
        folder: A result folder.
        data_dir: Folder of data sets, if it moved.
        force: Go on although code, versions or machine changed; recorded in ``run.json``.
        workers: Processes that play algorithms, at a time.
        executor: Plays algorithms, or blocks of their trials, in place of this process.
        console: Where to print.

    Raises:
        RunError: when the folder is no run, another process is running it, its configuration was changed, code or
            machine changed (without ``force``), the checkpoint is damaged, or a block cannot be played.
    """
    info, config = read_run(folder)
    device = find_device(info["device"])
    data = data_dir or (None if info["data_dir"] is None else Path(info["data_dir"]))
    console = console or Console()
    _check_workers(workers, executor, info.get("block"))
    if executor is None and info.get("block"):
        executor = InProcess()
    todo = [
        (i, j)
        for i, panel in enumerate(config.panels)
        for j in range(len(panel.algorithms))
        if not results.part_path(folder, i, j).exists()
    ]
    if todo and not force:
        check_same_world(info, folder)
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=16),
        TaskProgressColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(),
    )
    with locked(folder), Progress(*columns, console=console) as progress:
        if todo and force:
            write_json(info | {"resumed_elsewhere": True}, folder / "run.json")
        total = sum(config.panels[i].horizon * config.panels[i].trials for i, _ in todo)
        task = progress.add_task("", total=total, rate="", visible=bool(todo))
        if executor is not None:
            play_blocks(folder, info, config, todo, data, executor, force, progress, task)
        elif workers > 1 and len(todo) > 1:
            _play_side_by_side(folder, config, todo, data, workers, progress, task)
        else:
            _play_in_turn(folder, info, config, todo, data, device, progress, task)
        for left in folder.glob("checkpoint*.safetensors"):  # of a process that died when its part was written
            left.unlink()
        shutil.rmtree(folder / "blocks", ignore_errors=True)  # of a run that went on without executor
    return finish(folder, console=console)


def finish(folder: Path, *, console: Console | None = None) -> dict[str, Any]:
    """Join the parts, write ``traces.parquet`` and ``summary.json``, print the report, draw the pictures.

    Raises:
        RunError: when parts are missing or damaged.
    """
    from bo_robust.runner import plot, timeline  # matplotlib takes a second to import

    _, config = read_run(folder)
    traces, facts = results.load_parts(folder, config)
    summary = results.summarise(config, traces, facts)
    results.write_frame(traces, folder / "traces.parquet")
    write_json(summary, folder / "summary.json")
    console = console or Console()
    print_report(summary, console)
    written = ["summary.json", "traces.parquet"]
    pictures = {
        "regret.png": plot.plot_regret,
        "intervals.png": plot.plot_intervals,
        "eliminations.png": timeline.plot_eliminations,
    }
    for name, draw in pictures.items():
        try:
            if draw(config, folder, traces, folder / name):
                written.append(name)
        except (ValueError, RuntimeError) as error:
            console.print(f"Warning: {name} could not be drawn ({error}).", style="yellow", markup=False)
    console.print(f"Results in {folder}: {', '.join(written)}", markup=False, soft_wrap=True)
    return summary


def _check_workers(workers: int, executor: Executor | None, block: int | None) -> None:
    if workers > 1 and (executor is not None or block is not None):
        raise RunError("an executor and runs in blocks have no local processes besides; leave out --workers.")


def _play_in_turn(
    folder: Path,
    info: dict[str, Any],
    config: RunConfig,
    todo: Sequence[tuple[int, int]],
    data: Path | None,
    device: torch.device,
    progress: Progress,
    task: TaskID,
) -> None:
    for i, panel in enumerate(config.panels):
        mine = [j for k, j in todo if k == i]
        if mine:
            problem = build_problem(panel, range(panel.trials), data, device)
            for j in mine:
                if _checkpoint_of(folder, i, j).exists():
                    os.replace(_checkpoint_of(folder, i, j), folder / CHECKPOINT)
                with memory_errors(panel):
                    _play_one(folder, info, panel, i, j, problem, folder / CHECKPOINT, progress, task)


def _play_side_by_side(
    folder: Path,
    config: RunConfig,
    todo: Sequence[tuple[int, int]],
    data: Path | None,
    workers: int,
    progress: Progress,
    task: TaskID,
) -> None:
    from bo_robust.runner.parallel import play_parts

    def finished(i: int, j: int) -> None:
        panel = config.panels[i]
        said = f"{panel.name} · {panel.algorithms[j].label}"
        progress.update(task, description=said, advance=panel.horizon * panel.trials)

    if (folder / CHECKPOINT).exists():  # of a run in turn: it belongs to one of the parts
        _, i, j = load_checkpoint(folder / CHECKPOINT)[1]["key"]
        os.replace(folder / CHECKPOINT, _checkpoint_of(folder, i, j))
    play_parts(folder, todo, data, workers, finished)


def play_part(folder: Path, i: int, j: int, data_dir: Path | None = None) -> None:
    """Play algorithm ``j`` of panel ``i``, from its own checkpoint if there is one, and write its part.

    The folder is to be held (:func:`locked`) by the process on whose behalf this is.

    Raises:
        RunError: as :func:`resume`.
    """
    info, config = read_run(folder)
    panel = config.panels[i]
    with memory_errors(panel), Progress(disable=True) as progress:
        problem = build_problem(panel, range(panel.trials), data_dir, find_device(info["device"]))
        checkpoint, task = _checkpoint_of(folder, i, j), progress.add_task("")
        _play_one(folder, info, panel, i, j, problem, checkpoint, progress, task)


def _checkpoint_of(folder: Path, i: int, j: int) -> Path:
    """Where a process that plays one part only saves its checkpoints."""
    return folder / f"checkpoint-{i:02d}-{j:02d}.safetensors"


def _play_one(
    folder: Path,
    info: dict[str, Any],
    panel: PanelConfig,
    i: int,
    j: int,
    problem: Problem,
    checkpoint: Path,
    progress: Progress,
    task: TaskID,
) -> None:
    """Play one algorithm, from its checkpoint if there is one, and write its part."""
    game = Game(panel, j, problem, range(panel.trials))
    traces, key = game.traces, [info["config_digest"], i, j]
    spent = _restore(checkpoint, key, game.state, traces) if checkpoint.exists() else 0.0
    progress.update(task, description=f"{panel.name} · {game.label}", advance=traces.rounds * panel.trials)
    began, first, shown = time.perf_counter(), traces.rounds, traces.rounds
    next_save = began + info["checkpoint_seconds"]

    def after_block(state: State, traces: Traces) -> None:
        nonlocal next_save, shown
        now = time.perf_counter()
        rate = (traces.rounds - first) * panel.trials / max(now - began, 1e-9)  # of all trials
        progress.update(task, advance=(traces.rounds - shown) * panel.trials, rate=f"{rate:,.0f} rounds/s")
        shown = traces.rounds
        if now >= next_save and traces.rounds < panel.horizon:
            tensors, numbers = snapshot(state)
            tensors = {f"state.{k}": v for k, v in tensors.items()}
            tensors |= {f"trace.{k}": v[: traces.rounds] for k, v in traces.tensors().items()}
            meta = {"key": key, "round": traces.rounds, "state": numbers, "seconds": spent + now - began}
            save_checkpoint(checkpoint, tensors, meta)
            took = time.perf_counter() - now
            next_save = now + took + max(info["checkpoint_seconds"], CHECKPOINT_PAUSE * took)

    game.play(after_block)
    write_part(results.part_path(folder, i, j), game.part(spent + time.perf_counter() - began))
    checkpoint.unlink(missing_ok=True)


def _restore(checkpoint: Path, key: list[Any], state: State, traces: Traces) -> float:
    """Put a checkpoint into fresh state and traces, if it is that of ``key``; the seconds already spent."""
    tensors, meta = load_checkpoint(checkpoint)
    try:
        if meta["key"] != key:
            return 0.0
        saved = {k.removeprefix("state."): v for k, v in tensors.items() if k.startswith("state.")}
        restore_(state, saved, meta["state"])
        state.round = traces.rounds = meta["round"]
        for name, target in traces.tensors().items():
            target[: traces.rounds] = tensors[f"trace.{name}"].to(target.device)
        return float(meta["seconds"])
    except (KeyError, RuntimeError, TypeError, ValueError) as error:
        raise RunError(
            f"the checkpoint {checkpoint} does not fit this run ({error}). Delete it and resume again: finished "
            "algorithms are kept, only the one under way starts anew."
        ) from None
