"""Run a configuration into a folder, and resume it after any interruption.

The folder is that of :mod:`bo_robust.experiments.store`; a finished run also has ``traces.parquet``, ``summary.json``
and pictures. A job plays one method of one panel: over arms in all or some trials, over (x, z) in one.
"""

import contextlib
import functools
import os
import shutil
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from bo_robust.executors import Executor, InProcess, LocalProcesses
from bo_robust.experiments import results
from bo_robust.experiments.build import build_algorithm, build_problem, resolved, start_state
from bo_robust.experiments.config import Panel, RunConfig
from bo_robust.experiments.errors import RunError
from bo_robust.experiments.jobs import play_job, play_jobs
from bo_robust.experiments.memory import check_finish, check_states, memory_errors
from bo_robust.experiments.progress_bar import ProgressBar
from bo_robust.experiments.provenance import check_same_fingerprint, describe_run, find_device, fingerprint, resumption
from bo_robust.experiments.store import (
    ShardKey,
    check_free,
    json_bytes,
    keys_of,
    load_checkpoint,
    locked,
    parquet_bytes,
    put_files,
    read_run,
    write_run,
)
from bo_robust.experiments.tables import print_report


def start(
    config: RunConfig,
    folder: Path,
    *,
    device: str = "cpu",
    data_dir: Path | None = None,
    checkpoint_seconds: float = 5.0,
    workers: int = 1,
    executor: Executor | None = None,
    shard: int | None = None,
    console: Console | None = None,
) -> dict[str, Any]:
    """Run a configuration into a new folder, which must be empty or absent, and return its summary.

    Every panel is built for one trial first, so that a mistake in the last one costs nothing. ``data_dir`` is by
    default that of the environment variable BO_ROBUST_DATA. ``workers`` are processes on this machine that play jobs
    side by side, to the same traces. An ``executor`` plays jobs in place of this process and its workers. ``shard`` is
    the number of trials per job in runs over arms, by default all; with another number the last bits may differ.

    Raises:
        RunError: when the folder holds something, the device or data is missing, a panel cannot be built or is too
            large for the memory, writing fails, or as in :func:`resume`.
    """
    check_free(folder)
    if shard is not None and shard < 1:
        raise RunError(f"--shard must be at least 1 trial, got {shard}.")
    if shard is not None and not config.over_arms:
        raise RunError("runs of the conditions loop are played trial by trial; leave out --shard.")
    if workers > 1 and executor is not None:
        raise RunError("an executor has no local processes besides; leave out --workers.")
    if not checkpoint_seconds >= 0:
        raise RunError(f"--checkpoint-seconds must be >= 0, got {checkpoint_seconds}.")
    if data_dir is None and os.environ.get("BO_ROBUST_DATA"):
        data_dir = Path(os.environ["BO_ROBUST_DATA"])
    place = find_device(device)
    check_finish(config.panels)
    used = {panel.name: _settings_used(panel, data_dir, place, shard) for panel in config.panels}
    info = describe_run(config, device, data_dir, checkpoint_seconds, used)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(f"cannot write {folder}: {error.strerror}; choose another --out.") from None
    with locked(folder):
        check_free(folder)  # another process may have been faster
        write_run(info | ({} if shard is None else {"shard": shard}), folder)
        return _go_on(folder, None, False, workers, executor, console)


def resume(
    folder: Path,
    *,
    data_dir: Path | None = None,
    force: bool = False,
    workers: int = 1,
    executor: Executor | None = None,
    console: Console | None = None,
) -> dict[str, Any]:
    """Go on with the run in ``folder``; a finished one is only summarised again.

    Stored shards are kept. Jobs under way on this machine go on from their last checkpoint, those elsewhere are played
    again. The traces end bit-identical to those of an uninterrupted run. ``data_dir`` is needed if the data sets moved.
    With ``force`` the run goes on although code, versions or machine changed; ``run.json`` then records both, and from
    which round. Other arguments are those of :func:`start`.

    Raises:
        RunError: when the folder is no run, another process is running it, its configuration was changed, code or
            machine changed (without ``force``), or a job cannot be played.
    """
    read_run(folder)  # raises before anything is written
    with locked(folder):
        return _go_on(folder, data_dir, force, workers, executor, console)


def finish(folder: Path, *, console: Console | None = None) -> dict[str, Any]:
    """Join the shards, write ``traces.parquet`` and ``summary.json``, print the report, draw the pictures.

    ``RunError`` is raised when shards are missing or damaged.
    """
    from bo_robust.experiments import figures  # matplotlib takes a second to import

    run = results.load(folder)
    console = console or Console()
    files = {"summary.json": json_bytes(run.summary), "traces.parquet": parquet_bytes(run.traces)}
    print_report(run.summary, console)
    for name, draw in figures.pictures(run).items():
        try:
            files[name] = draw()
        except (ValueError, RuntimeError) as error:
            console.print(f"Warning: {name} could not be drawn ({error}).", style="yellow", markup=False)
    put_files(folder, files)
    console.print(f"Results in {folder}: {', '.join(files)}", markup=False, soft_wrap=True)
    return run.summary


def _go_on(
    folder: Path,
    data_dir: Path | None,
    force: bool,
    workers: int,
    executor: Executor | None,
    console: Console | None,
) -> dict[str, Any]:
    """Play what is missing, in a folder that this process holds, and finish."""
    info, config = read_run(folder)  # under the lock: another process may have changed it before
    find_device(info["device"])
    if workers > 1 and executor is not None:
        raise RunError("an executor has no local processes besides; leave out --workers.")
    console = console or Console()
    todo = [key for key in keys_of(config.panels, info.get("shard")) if not key.path(folder).exists()]
    if todo and not force:
        check_same_fingerprint(info, folder)
    with ProgressBar(config.panels, todo, console) as bar:
        if todo and force:
            info = resumption(info, {key.name: _rounds_played(folder, key) for key in todo})
            write_run(info, folder)
        if todo:
            data = data_dir or (None if info["data_dir"] is None else Path(info["data_dir"]))
            _play(folder, info, config, todo, data, force, workers, executor, bar)
        shutil.rmtree(folder / "checkpoints", ignore_errors=True)
    return finish(folder, console=console)


def _rounds_played(folder: Path, key: ShardKey) -> int:
    """Rounds that the checkpoint of a job has; 0 without one."""
    saved = load_checkpoint(key.checkpoint(folder))
    return 0 if saved is None else int(saved[1]["round"])


def _settings_used(panel: Panel, data: Path | None, device: torch.device, shard: int | None) -> dict[str, Any]:
    """Everything a panel uses, with every constant filled in. Errors are those of building it."""
    if not panel.over_arms:
        from bo_robust.experiments.conditions_loop import settings_used  # imports BoTorch's optimisers

        return settings_used(panel, data, device)
    problem = build_problem(panel, range(1), data, device)
    noise_var = panel.noise_var or problem.noise_var
    algorithms = {a.label: build_algorithm(a, panel, problem) for a in panel.methods}
    with memory_errors(panel):
        for algorithm in algorithms.values():
            check_states(panel, start_state(algorithm, problem, noise_var, 1), shard)
    used = {"noise_var": noise_var, "methods": {label: resolved(a) for label, a in algorithms.items()}}
    if shard is not None:  # notes tell of all trials, and no shard has them all
        used["notes"] = build_problem(panel, range(panel.trials), data, torch.device("cpu")).notes
    return used


def _play(
    folder: Path,
    info: dict[str, Any],
    config: RunConfig,
    todo: list[ShardKey],
    data: Path | None,
    force: bool,
    workers: int,
    executor: Executor | None,
    bar: ProgressBar,
) -> None:
    local = executor is None
    shared = {
        "digest": info["config_digest"],
        "device": info["device"],
        "data_dir": None if data is None else str(data.resolve()),
        "threads": torch.get_num_threads(),
        # Workers on this machine have its code; after --force others may differ.
        "fingerprint": {} if force or local else fingerprint(info["device"]),
    }
    jobs = {}
    for key in todo:
        panel = config.panels[key.panel]
        label = panel.methods[key.method].label
        which = f"trials {key.first} to {key.stop - 1}" if key.stop - key.first > 1 else f"trial {key.first}"
        name = f"{label!r} of panel {panel.name!r}, {which}"
        checkpoint = [str(key.checkpoint(folder)), info["checkpoint_seconds"]] if local else None
        alone = config.with_panels((panel,)).to_dict()  # all that a worker needs of the configuration
        jobs[key] = (name, shared | {"key": list(key), "run": alone, "checkpoint": checkpoint})

    def arrived(key: ShardKey, content: bytes) -> None:
        put_files(folder, {key.name: content})
        key.checkpoint(folder).unlink(missing_ok=True)
        bar.stored(key)

    with contextlib.ExitStack() as stack:
        play: Any = play_job
        if executor is None and workers > 1 and len(todo) > 1:
            executor = LocalProcesses(workers, torch.get_num_threads())
            stack.callback(executor.shutdown, wait=False)
        elif executor is None:
            executor = InProcess()
            play = functools.partial(play_job, watch=bar.played)
        play_jobs(executor, play, jobs, arrived, bar.console)
