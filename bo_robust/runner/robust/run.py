"""Run a robust configuration into a folder, and resume it after any interruption.

Folder: ``run.json``, ``parts/`` (one file per finished repetition of a method), then ``traces.parquet``,
``summary.json`` and a picture per panel.
"""

from __future__ import annotations

import functools
import json
import os
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import torch
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from bo_robust.problems.robust import RobustProblem, optimum, over_environment
from bo_robust.runner.checkpoint import write_bytes, write_json
from bo_robust.runner.dispatch import answer, common, play_jobs
from bo_robust.runner.errors import RunError
from bo_robust.runner.guards import check_free, locked
from bo_robust.runner.provenance import check_same_world, describe_run, find_device
from bo_robust.runner.results import write_frame
from bo_robust.runner.robust import results
from bo_robust.runner.robust.config import RobustPanelConfig, RobustRunConfig, build_problem
from bo_robust.runner.robust.play import play
from bo_robust.runner.robust.report import print_report
from bo_robust.study.executors import Executor

__all__ = ["finish", "play_repetition", "read_run", "resume", "start"]

_RANDOM = threading.Lock()  # PyTorch's stream of random numbers is that of all threads of a worker


def start(
    config: RobustRunConfig,
    folder: Path,
    *,
    device: str = "cpu",
    data_dir: Path | None = None,
    executor: Executor | None = None,
    console: Console | None = None,
) -> dict[str, Any]:
    """Run a configuration into a new folder and return its summary.

    Every problem is built first, so that a mistake in the last one costs nothing. Repetitions are played by the
    ``executor``, if there is one, to the same regrets (:mod:`bo_robust.runner.dispatch`).

    Raises:
        RunError: when the folder holds something already, the device or data is not there, or a problem cannot be
            built.
    """
    check_free(folder)
    if data_dir is None and os.environ.get("BO_ROBUST_DATA"):
        data_dir = Path(os.environ["BO_ROBUST_DATA"])
    place = find_device(device)
    used = {}
    for panel in config.panels:
        problem = build_problem(panel, data_dir, place)
        methods = {m.label: {"class": type(m.build()).__name__, **vars(m.build())} for m in panel.methods}
        used[panel.name] = {"noise_var": problem.noise_var, "alpha": problem.alpha, "methods": methods}
    # A robust configuration has the name, panels and digest that are asked of one.
    info = describe_run(cast(Any, config), device, data_dir, 0.0, used)
    write_json(info, folder / "run.json")
    return resume(folder, executor=executor, console=console)


def resume(
    folder: Path,
    *,
    data_dir: Path | None = None,
    force: bool = False,
    executor: Executor | None = None,
    console: Console | None = None,
) -> dict[str, Any]:
    """Go on with the run in ``folder``: repetitions that are not there are played; regrets end as if uninterrupted.

    Args:
        folder: A result folder.
        data_dir: Folder of data sets, if it moved.
        force: Go on although code, versions or machine changed; recorded in ``run.json``.
        executor: Plays repetitions in place of this process.
        console: Where to print.

    Raises:
        RunError: when the folder is no robust run, another process is running it, its configuration was changed,
            code or machine changed (without ``force``), or a repetition cannot be played.
    """
    info, config = read_run(folder)
    device = find_device(info["device"])
    data = data_dir or (None if info["data_dir"] is None else Path(info["data_dir"]))
    console = console or Console()
    todo = [
        (i, k, j)
        for i, panel in enumerate(config.panels)
        for k in range(panel.repetitions)
        for j in range(len(panel.methods))
        if not results.part_path(folder, i, j, k).exists()
    ]
    if todo and not force:
        check_same_world(info, folder)
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=16),
        TextColumn("{task.completed}/{task.total} rounds"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with locked(folder), Progress(*columns, console=console) as progress:
        if todo and force:
            write_json(info | {"resumed_elsewhere": True}, folder / "run.json")
        task = progress.add_task("", total=sum(config.panels[i].rounds for i, _, _ in todo), visible=bool(todo))
        for i in sorted({i for i, _, _ in todo}):
            panel = config.panels[i]
            problem = build_problem(panel, data, device)
            progress.update(task, description=f"{panel.name} · searching its optimum")
            best = optimum(problem)
            facts = {"notes": problem.notes, "alpha": problem.alpha, "x": best.x.tolist(), "value": best.value}
            values, probabilities = over_environment(problem, best.x)
            facts |= {"values": values.tolist(), "probabilities": probabilities.tolist()}
            write_json(facts, results.facts_path(folder, i))
            for k, j in [(k, j) for p, k, j in todo if p == i and executor is None]:
                method = panel.methods[j]
                progress.update(task, description=f"{panel.name} · {method.label} · {k + 1}/{panel.repetitions}")
                write_bytes(_played(problem, panel, j, k), results.part_path(folder, i, j, k))
                progress.update(task, advance=panel.rounds)
        if executor is not None:
            _play_on(executor, folder, info, config, todo, data, force, progress, task)
    return finish(folder, console=console)


def finish(folder: Path, *, console: Console | None = None) -> dict[str, Any]:
    """Join the parts, write ``traces.parquet`` and ``summary.json``, print the report, draw the pictures.

    Raises:
        RunError: when parts are missing or damaged.
    """
    from bo_robust.runner.robust import plot  # matplotlib takes a second to import

    _, config = read_run(folder)
    traces, facts = results.load_parts(folder, config)
    summary = results.summarise(config, traces, facts)
    write_frame(traces, folder / "traces.parquet")
    write_json(summary, folder / "summary.json")
    console = console or Console()
    print_report(summary, console)
    written = ["summary.json", "traces.parquet"]
    for i, panel in enumerate(config.panels):
        name = plot.picture_name(i, panel)
        plot.plot_panel(panel, traces, folder / name)
        written.append(name)
    console.print(f"Results in {folder}: {', '.join(written)}", markup=False, soft_wrap=True)
    return summary


def _played(problem: RobustProblem, panel: RobustPanelConfig, j: int, repetition: int) -> bytes:
    """The part of one repetition of method ``j``."""
    method = panel.methods[j]
    with torch.random.fork_rng():
        rows = play(problem, method.build(), panel, repetition)
    return results.part_bytes(rows, panel.name, method.label, repetition)


def _play_on(
    executor: Executor,
    folder: Path,
    info: dict[str, Any],
    config: RobustRunConfig,
    todo: Sequence[tuple[int, int, int]],
    data: Path | None,
    force: bool,
    progress: Progress,
    task: TaskID,
) -> None:
    """Have repetitions played, and store them as they come."""
    shared = common(info["device"], data, force)
    jobs = {}
    for i, k, j in todo:
        panel = config.panels[i]
        name = f"{panel.methods[j].label!r} of panel {panel.name!r}, repetition {k + 1}"
        plain = json.dumps(RobustRunConfig(config.name, (panel,)).to_dict())  # all that a worker needs of it
        jobs[i, k, j] = (name, shared | {"config": plain, "method": j, "repetition": k})

    def arrived(key: tuple[int, int, int], content: bytes) -> None:
        i, k, j = key
        write_bytes(content, results.part_path(folder, i, j, k))
        panel = config.panels[i]
        progress.update(task, description=f"{panel.name} · {panel.methods[j].label}", advance=panel.rounds)

    play_jobs(executor, play_repetition, jobs, arrived, progress.console)


def play_repetition(text: str) -> tuple[str, bytes]:
    """What a worker does: play the repetition of a job (:func:`bo_robust.runner.dispatch.answer`)."""
    return answer(text, _play_repetition)


def _play_repetition(job: dict[str, Any]) -> bytes:
    with _RANDOM:
        panel, problem = _ready(job["config"], job["data_dir"], job["device"])
        return _played(problem, panel, job["method"], job["repetition"])


@functools.lru_cache(maxsize=4)
def _ready(config: str, data_dir: str | None, device: str) -> tuple[RobustPanelConfig, RobustProblem]:
    """The panel of jobs and its problem, whose optimum a worker searches once."""
    panel = RobustRunConfig.from_dict(json.loads(config)).panels[0]
    return panel, build_problem(panel, None if data_dir is None else Path(data_dir), find_device(device))


def read_run(folder: Path) -> tuple[dict[str, Any], RobustRunConfig]:
    """``run.json`` and the configuration in it.

    Raises:
        RunError: when the folder is no robust run, or its configuration was changed.
    """
    path = folder / "run.json"
    try:
        info = json.loads(path.read_text(encoding="utf-8"))
        config = RobustRunConfig.from_dict(info["config"])
        known = {key: info[key] for key in ("config_digest", "device", "data_dir", "versions")}
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
