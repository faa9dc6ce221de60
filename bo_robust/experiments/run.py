"""Run a configuration into a folder; the same call again runs what is missing.

A finished run leaves ``traces.parquet``, ``summary.json`` and one picture a panel. Until then the folder has a file for
every finished job (:mod:`bo_robust.experiments.jobs`). Jobs run in this process, or in the workers of joblib.
"""

import hashlib
import json
import shutil
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import BrokenExecutor
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from joblib import Parallel, delayed, parallel_config
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from bo_robust.experiments.build import fastest_device, find_device
from bo_robust.experiments.config import Panel, RunConfig
from bo_robust.experiments.errors import RunError
from bo_robust.experiments.jobs import FOLDER, Job, Setting, about, jobs_of, read, run_job, write
from bo_robust.experiments.machine import code, environment
from bo_robust.experiments.problems.data import data_folder
from bo_robust.experiments.report import print_report
from bo_robust.experiments.summary import summarize
from bo_robust.utils.specs import nearest, quoted

BACKENDS = ("loky", "ray", "dask")
OTHER_RUN = (
    "{} holds results of another configuration, --device or --trials-per-job; choose another --out, or delete that "
    "folder."
)


def start(
    config: RunConfig,
    folder: Path,
    *,
    device: str = "auto",
    data_dir: Path | None = None,
    workers: int | None = None,
    backend: str = "loky",
    trials_per_job: int | None = None,
    console: Console | None = None,
) -> dict[str, Any]:
    """Run a configuration into a folder, and return its summary; a finished run is only reported again.

    Every panel is built for one trial first, so that a mistake in the last one costs nothing. A run that was stopped in
    any way goes on with the jobs that are missing, to the same traces. ``folder`` must be new, empty, or of the same
    run; the other options are those of ``bo-robust run``. ``RunError`` is raised when the folder holds something else,
    the device or data is missing, a panel cannot be built, a job cannot be run, a worker dies, or writing fails.
    """
    console = console or Console()
    _check_size(trials_per_job, config.panels[0].runner.by_trial)
    data_dir = (folder_of_data := data_folder(data_dir)) and folder_of_data.resolve()
    if device == "auto":
        device = fastest_device(config.panels, data_dir)
        if torch.cuda.is_available():
            console.print(f"Runs on {device}, the faster for so many arms and trials; --device chooses.")
    of_device = find_device(device)
    identity = json.dumps([config.model_dump(mode="json"), device, trials_per_job], sort_keys=True)
    digest = hashlib.sha256(identity.encode()).hexdigest()[:16]
    if (before := _summary_there(folder, digest)) is not None:
        _report_again(before, folder, console)
        return before
    used = {
        panel.name: panel.runner.settings_used(panel, data_dir, of_device, trials_per_job) for panel in config.panels
    }
    setting = Setting(folder.resolve(), digest, device, data_dir, torch.get_num_threads(), code())
    joblib_options, lost = _backend(backend, setting)
    claim(folder, digest)
    _summary_there(folder, digest)  # of a run that ended meanwhile
    jobs = jobs_of(config.panels, trials_per_job)
    found = {job: of for job in jobs if (of := about(job.path(folder))) is not None and of.get("job") == list(job)}
    todo = [job for job in jobs if job not in found]
    _warn_of_other_code([of.get("code") for of in found.values()], folder, console)
    there = f", {len(found)} of them finished before" if found else ""
    console.print(f"Results go to {folder}: {len(jobs)} jobs{there}.", markup=False, soft_wrap=True)
    n_jobs = workers or (1 if backend == "loky" else -1)
    with (
        _progress([job.path(folder) for job in jobs], console),
        parallel_config(backend, n_jobs=n_jobs, **joblib_options),
    ):
        _run_jobs(todo, config.panels, setting, lost)
    of_run = {"digest": digest, "code": setting.code, "settings": used, **environment(device)}
    return _finish(config, folder, jobs, of_run, console)


def _summary_there(folder: Path, digest: str) -> dict[str, Any] | None:
    """The summary of a finished run; ``RunError`` unless the folder is new, empty, or of the run with this digest."""
    summary = folder / "summary.json"
    try:
        found: dict[str, Any] | None = json.loads(summary.read_text(encoding="utf-8")) if summary.exists() else None
        jobs = [about(path) for path in (folder / FOLDER).glob("*.parquet")]
        foreign = folder.exists() and found is None and not jobs and any(p.name != FOLDER for p in folder.iterdir())
    except (OSError, ValueError) as error:
        raise RunError(f"{folder} cannot be used ({error}); choose another --out.") from None
    if foreign:
        raise RunError(f"{folder} holds other files; choose another --out.")
    digests = {of["digest"] for of in jobs if of is not None}
    if found is not None:
        digests.add(found.get("digest") if isinstance(found, dict) else None)
    if not digests <= {digest}:
        raise RunError(OTHER_RUN.format(folder))
    return found


def _check_size(trials_per_job: int | None, by_trial: bool) -> None:
    if trials_per_job is not None and (trials_per_job < 1 or by_trial):
        hint = "left out in this loop, which runs trial by trial" if by_trial else "at least 1"
        raise RunError(f"--trials-per-job must be {hint}, got {trials_per_job}.")


def _report_again(before: dict[str, Any], folder: Path, console: Console) -> None:
    """Print the report of a finished run."""
    shutil.rmtree(folder / FOLDER, ignore_errors=True)
    console.print(f"{folder} holds this run, finished; it is only reported.", markup=False, soft_wrap=True)
    _warn_of_other_code([before.get("code")], folder, console)
    print_report(before, console)


def _warn_of_other_code(codes: Sequence[str | None], folder: Path, console: Console) -> None:
    """Say that results are of other code than the present; local changes to a revision are not told apart."""
    if others := {other for other in codes if other is not None} - {code()}:
        text = (
            f"Warning: {folder} has results of bo_robust {', '.join(sorted(others))}, and this is {code()}; delete it"
        )
        console.print(f"{text} to run all anew.", style="yellow", markup=False, soft_wrap=True)


def claim(folder: Path, digest: str) -> None:
    """Take a folder for the run of this digest; ``RunError`` if a run of another digest has just done so."""
    path = folder / FOLDER / "digest"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with open(path, "x", encoding="ascii") as file:
                file.write(digest)
            return
        except FileExistsError:
            first = path.read_text(encoding="ascii")
            if not first:  # the other run is about to write it
                time.sleep(1.0)
                first = path.read_text(encoding="ascii")
    except OSError as error:
        raise RunError(f"{folder} cannot be used ({error}); choose another --out.") from None
    if first != digest:
        raise RunError(OTHER_RUN.format(folder))


def _run_jobs(todo: Sequence[Job], panels: Sequence[Panel], setting: Setting, lost: type[Exception]) -> None:
    """Run jobs by joblib as it is configured; ``RunError`` after the error ``lost``, with which a worker dies."""
    try:
        # Results are in files. Ray's backend returns nothing before the end, and has no generator of results.
        Parallel(batch_size=1)(delayed(run_job)(job, panels[job.panel], setting) for job in todo)
    except lost as error:
        reason = str(error).split("\n")[0].split(". ")[0]
        raise RunError(f"a worker died ({reason}); run the same command again, finished jobs are kept.") from None


def _backend(name: str, setting: Setting) -> tuple[dict[str, Any], type[Exception]]:
    """Options of a backend of joblib, and the error where its worker dies; ``RunError`` if it is not installed."""
    if name == "loky":
        return {"inner_max_num_threads": setting.threads}, BrokenExecutor
    try:
        if name == "ray":
            from ray.exceptions import RayError
            from ray.util.joblib import register_ray

            register_ray()
            gpus = float(setting.device.startswith("cuda"))
            return {"ray_remote_args": {"num_cpus": setting.threads, "num_gpus": gpus}}, RayError
        if name == "dask":
            from distributed import Client, KilledWorker

            Client()  # joins the cluster of DASK_SCHEDULER_ADDRESS, or starts one on this machine
            return {}, KilledWorker
    except ImportError as error:
        package = {"ray": "ray", "dask": "distributed"}[name]
        raise RunError(f"--backend {name} needs a package that is missing ({error}): pip install {package}.") from None
    raise RunError(f"unknown --backend {quoted(name)}; {nearest(name, BACKENDS)}")


@contextmanager
def _progress(paths: Sequence[Path], console: Console) -> Iterator[None]:
    """Count the files of jobs meanwhile: by a bar on a terminal, and by a line a minute elsewhere."""
    ended, watched = threading.Event(), console.is_terminal
    columns = (TextColumn("jobs"), BarColumn(bar_width=24), MofNCompleteColumn(), TimeElapsedColumn())

    def watch() -> None:
        with Progress(*columns, console=console, disable=not watched) as bar:
            task, stop = bar.add_task("", total=len(paths)), False
            while not stop:
                stop = ended.wait(0.5 if watched else 60.0)
                finished = sum(path.exists() for path in paths)
                bar.update(task, completed=finished)
                if not (stop or watched):
                    console.print(f"{datetime.now():%H:%M}: {finished} of {len(paths)} jobs are finished.")

    watching = threading.Thread(target=watch, daemon=True)
    watching.start()
    try:
        yield
    finally:
        ended.set()
        watching.join()


def _finish(
    config: RunConfig, folder: Path, jobs: Sequence[Job], of_run: dict[str, Any], console: Console
) -> dict[str, Any]:
    """Join what the jobs left, write the results, print the tables, and delete the files of the jobs."""
    from bo_robust.experiments.plots import draw_panel, file_name  # matplotlib takes a second to import

    frames: list[pd.DataFrame] = []
    of_methods: dict[str, dict[str, dict[str, Any]]] = {}
    for i, panel in enumerate(config.panels):
        of_methods[panel.name] = {}
        notes = {key: of for key, of in of_run["settings"][panel.name].items() if key == "notes"}
        for j, label in enumerate(panel.labels):
            left = [read(job.path(folder)) for job in jobs if (job.panel, job.method) == (i, j)]
            frames += [frame for frame, _ in left]
            of_methods[panel.name][label] = panel.runner.join([of for _, of in left]) | notes
    traces = pd.concat(frames, ignore_index=True).astype({"panel": "category", "method": "category"})
    summary = summarize(config, traces, of_methods) | of_run | {"config": config.model_dump(mode="json")}
    files = {"traces.parquet": traces.to_parquet(compression="zstd")}
    for i, panel in enumerate(config.panels):
        name = file_name(i, panel.name)
        try:
            files[name] = draw_panel(panel, traces[traces["panel"] == panel.name])
        except (ValueError, RuntimeError) as error:
            console.print(f"Warning: {name} could not be drawn ({error}).", style="yellow", markup=False)
    # The summary last: where it is, the run is finished.
    files["summary.json"] = (json.dumps(summary, indent=2, allow_nan=False) + "\n").encode()
    for name, content in files.items():
        write(folder / name, content, folder)
    shutil.rmtree(folder / FOLDER, ignore_errors=True)
    print_report(summary, console)  # after all is written: whoever reads it may stop reading, as `head` does
    console.print(f"Results in {folder}: {', '.join(files)}", markup=False, soft_wrap=True)
    return summary
