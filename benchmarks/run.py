"""Run a configuration into a folder: ``python configs/NAME.py [options]``. The same command again runs what is missing.

A configuration makes a list of panels and ends in ``main(PANELS)``. A job runs one method of a panel: in all trials
over arms, whose algebra is batched, and in one trial elsewhere. It leaves one file in the folder's ``jobs``, named by
what it depends on (:mod:`benchmarks.keys`) and moved into place when it is complete. So a run that was stopped goes on,
and a method that was edited runs anew while the others stay. A finished run also has ``traces.parquet``,
``summary.json`` and a picture of each panel.
"""

from __future__ import annotations

import argparse
import json
import os
import runpy
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, cast

import pandas as pd
import torch

from benchmarks import keys
from benchmarks.common import environment
from benchmarks.panel import Panel
from benchmarks.pictures import draw_panel, file_name
from benchmarks.report import print_report, summarize
from bo_robust.utils.linalg import device_named

BACKENDS = ("loky", "ray", "dask")
_ALONE = threading.Lock()  # threads of one worker, as Dask may have, share PyTorch's random numbers and settings


class Job(NamedTuple):
    """Some trials of one method of a panel."""

    panel: Panel
    label: str
    trials: range
    device: str
    file: Path  # absolute; every worker must see its folder
    configuration: str | None = None  # the file that a worker reads first, for what it adds to tables

    def run(self) -> None:
        """Write the file: traces in long format, and metadata in their ``attrs``."""
        with _ALONE:
            if self.configuration is not None:
                _read(self.configuration)
            torch.set_num_threads(1)  # small batched algebra is fastest on one
            frame, metadata = self.panel.run(self.label, self.trials, torch.device(self.device))
        frame.attrs.update(metadata)
        write(self.file, frame.to_parquet(compression="zstd"))


@cache
def _read(configuration: str) -> None:
    """Run a configuration's definitions in a process that has not run them yet, once."""
    if getattr(sys.modules["__main__"], "__file__", None) != configuration:
        runpy.run_path(configuration, run_name="configuration")


def main(panels: Sequence[Panel], arguments: Sequence[str] | None = None) -> None:
    """Run the panels of a configuration as the command line says, into ``results/`` and its name by default."""
    file, doc = Path(sys.argv[0]).resolve(), sys.modules["__main__"].__doc__
    name = file.stem if file.parent.name == "configs" else f"{file.parent.name}-{file.stem}"
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, help="of every panel")
    parser.add_argument("--rounds", type=int, help="of every panel")
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="panels, methods, or both")
    parser.add_argument("--device", default="cpu", help="cpu, cuda or cuda:N, over arms and conditions")
    parser.add_argument("--jobs", type=int, help="processes side by side; by default one, or all of a cluster")
    parser.add_argument("--backend", choices=BACKENDS, default="loky", help="ray and dask are for several machines")
    parser.add_argument("--out", type=Path, default=Path("results") / name, help="the folder (default: %(default)s)")
    parser.add_argument("--data-dir", type=Path, help="the folder of data sets (default: that of BO_ROBUST_DATA)")
    given = parser.parse_args(arguments)
    if given.data_dir is not None:
        os.environ["BO_ROBUST_DATA"] = str(given.data_dir.resolve())  # which workers get, too
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sizes = {key: size for key in ("trials", "rounds") if (size := getattr(given, key)) is not None}
    try:
        chosen = only([replace(panel, **sizes) for panel in panels], given.only)
    except ValueError as error:
        parser.error(str(error))
    try:
        run(chosen, given.out, device=given.device, jobs=given.jobs, backend=given.backend)
    except KeyboardInterrupt:
        parser.exit(130, "interrupted; the same command again runs what is missing.\n")
    except (ValueError, TypeError, OSError, ImportError) as error:  # a wrong setting; data or a package is missing
        parser.exit(2, f"{error}\n")


def only(panels: Sequence[Panel], names: Sequence[str]) -> list[Panel]:
    """The panels and methods of these names; all panels, or methods, where none is named. ``ValueError`` if unknown."""
    known = {panel.name for panel in panels} | {label for panel in panels for label in panel.labels}
    if unknown := set(names) - known:
        raise ValueError(f"there is no panel or method {sorted(unknown)}; there are {', '.join(sorted(known))}.")
    chosen = [panel for panel in panels if panel.name in names] or panels
    labels = [label for label in names if any(label in panel.labels for panel in chosen)]
    return [_with_methods(panel, labels or panel.labels) for panel in chosen if {*labels} <= {*panel.labels}]


def _with_methods(panel: Panel, labels: Sequence[str]) -> Panel:
    methods = {label: method for label, method in panel.methods.items() if label in labels}
    return replace(panel, methods=methods, compare=[pair for pair in panel.compare if {*pair} <= {*methods}])


def run(
    panels: Sequence[Panel], folder: Path, *, device: str = "cpu", jobs: int | None = None, backend: str = "loky"
) -> dict[str, Any]:
    """Run panels into a folder, print the report, and return the summary.

    The problem of every panel is made first, so that a mistake in the last one costs nothing. Traces do not depend on
    ``jobs``, the number of processes, nor on the ``backend``.
    """
    if len({panel.name for panel in panels}) < len(panels):
        raise ValueError("panels need different names.")
    torch.set_num_threads(1)
    made = [panel.made(device_named(device)) for panel in panels]
    todo = jobs_of(made, folder, device)
    missing = [job for job in todo if not job.file.exists()]
    there = f", {len(todo) - len(missing)} of them finished before" if len(missing) < len(todo) else ""
    print(f"Results go to {folder}: {len(todo)} jobs{there}, on {device}.", file=sys.stderr, flush=True)
    with _progress([job.file for job in todo]):
        _run_jobs(missing, jobs, backend)
    summary, files = _finish(made, todo, device)
    for name, content in files.items():
        write(folder / name, content)
    print_report(made, summary)  # after all is written: whoever reads it may stop reading, as `head` does
    print(f"Results in {folder}: {', '.join(files)}", file=sys.stderr)
    return summary


def jobs_of(panels: Sequence[Panel], folder: Path, device: str) -> list[Job]:
    """The jobs of panels that are made, in the order they are run; of "cuda" the GPUs that there are take turns."""
    found, program = [], sys.modules["__main__"]
    configuration = getattr(program, "__file__", None) if hasattr(program, "PANELS") else None
    for panel in panels:
        for part in panel.parts():
            for turn, label in enumerate(panel.labels):
                of = f"cuda:{(turn + part[0]) % torch.cuda.device_count()}" if device == "cuda" else device
                kind = device_named(of).type
                try:
                    key = keys.digest([panel.key(label, part), kind, keys.code()])
                except TypeError as error:
                    raise TypeError(f"{label!r} of panel {panel.name!r}: {error}") from None
                one = replace(panel, methods={label: panel.methods[label]}, compare=())
                file = folder.resolve() / "jobs" / f"{key}.parquet"
                found.append(Job(one, label, part, of, file, configuration))
    return found


def _run_jobs(jobs: Sequence[Job], workers: int | None, backend: str) -> None:
    """Run jobs by joblib. Results are in files, as Ray's backend returns nothing before the end."""
    from joblib import Parallel, delayed, parallel_config

    options: dict[str, Any] = {}
    if backend == "loky":
        options = {"inner_max_num_threads": 1}
    elif backend == "ray":
        from ray.util.joblib import register_ray

        register_ray()
        gpus = float(any(job.device.startswith("cuda") for job in jobs))
        options = {"ray_remote_args": {"num_cpus": 1, "num_gpus": gpus}}
    else:
        from distributed import Client

        Client()  # joins the cluster of DASK_SCHEDULER_ADDRESS, or starts one on this machine
    n_jobs = workers or (1 if backend == "loky" else -1)
    with parallel_config(backend, n_jobs=n_jobs, **options):
        Parallel(batch_size=1)(delayed(job.run)() for job in jobs)


@contextmanager
def _progress(files: Sequence[Path]) -> Iterator[None]:
    """Count the files of jobs meanwhile: every second in one line on a terminal, and in a line a minute elsewhere."""
    ended, watched = threading.Event(), sys.stderr.isatty()

    def watch() -> None:
        while not ended.wait(1.0 if watched else 60.0):
            text = f"{time.strftime('%H:%M:%S')}: {sum(file.exists() for file in files)} of {len(files)} jobs finished"
            print(text, end="\r" if watched else "\n", file=sys.stderr, flush=True)

    watching = threading.Thread(target=watch, daemon=True)
    watching.start()
    try:
        yield
    finally:
        ended.set()
        watching.join()


def _finish(panels: Sequence[Panel], jobs: Sequence[Job], device: str) -> tuple[dict[str, Any], dict[str, bytes]]:
    """The summary, and the files of a finished run by name, from what the jobs left."""
    frames, summaries, pictures, settings = [], [], {}, {}
    left = iter(jobs)
    for i, panel in enumerate(panels):
        by_label: dict[str, list[pd.DataFrame]] = {label: [] for label in panel.labels}
        for job in (next(left) for _ in range(len(panel.parts()) * len(panel.labels))):
            by_label[job.label].append(pd.read_parquet(job.file))
        metadata = {label: _metadata([cast(Any, frame.attrs) for frame in of]) for label, of in by_label.items()}
        rows = {label: _joined(of) for label, of in by_label.items()}
        for label, frame in rows.items():
            frame.insert(0, "method", label)
            frame.insert(0, "panel", panel.name)
        frames += list(rows.values())
        summaries.append(summarize(panel, rows, metadata))
        settings[panel.name] = {"problem": repr(panel.problem), "initial": panel.initial, "seed": panel.seed} | {
            "methods": {label: repr(method) for label, method in panel.methods.items()}
        }
        pictures[file_name(i, panel.name)] = draw_panel(panel, pd.concat(frames[-len(rows) :], ignore_index=True))
    traces = _joined(frames).astype({"panel": "category", "method": "category"})
    summary = {"panels": summaries, "settings": settings, "device": device, "environment": environment()}
    content = (json.dumps(summary, indent=2, allow_nan=False) + "\n").encode()
    return summary, {"traces.parquet": traces.to_parquet(compression="zstd"), **pictures, "summary.json": content}


def _metadata(jobs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Metadata of all jobs of a method: those of the first, and the sum of the seconds."""
    return jobs[0] | {"seconds": sum(of["seconds"] for of in jobs)}


def _joined(frames: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """One frame of the rows of all."""
    for frame in frames:
        frame.attrs = {}  # pandas compares them
    return pd.concat(frames, ignore_index=True)


def write(path: Path, content: bytes) -> None:
    """Write a file under a temporary name, flush it to disk and move it into place."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with open(temporary, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)  # it was moved
