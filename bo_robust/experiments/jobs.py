"""A job runs one method of one panel in some trials, and writes what it leaves into one file of the result folder.

By default a job has all trials over arms, and one trial in the other loops. Batched algebra may round differently for
another number of trials: traces are bit-identical only to those of runs with as many trials a job.

A file is parquet: traces in long format, and everything else in their ``attrs``. It appears under its name when it is
complete, so that progress is a count of files, wherever the jobs run.
"""

import functools
import json
import multiprocessing
import os
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import torch

from bo_robust.experiments.build import find_device, memory_errors, shared_problem
from bo_robust.experiments.config import Panel
from bo_robust.experiments.errors import RunError

FOLDER = "jobs"  # within the result folder, while a run is unfinished

_ALONE = threading.Lock()  # threads of one worker, as Dask may have, share PyTorch's random numbers and settings


class Job(NamedTuple):
    """Trials ``first`` to ``stop - 1`` of one method of one panel, both by number."""

    panel: int
    method: int
    first: int
    stop: int

    def path(self, folder: Path) -> Path:
        return folder / FOLDER / "{:02d}-{:02d}-{:06d}-{:06d}.parquet".format(*self)


class Setting(NamedTuple):
    """What the jobs of a run have in common. Every worker must see ``folder``, and ``data_dir`` if data are read."""

    folder: Path  # the result folder, absolute
    digest: str  # of the configuration, and of what else results depend on
    device: str
    data_dir: Path | None
    threads: int  # of PyTorch on a CPU
    code: str  # the version and revision of this package


def jobs_of(panels: Iterable[Panel], size: int | None) -> list[Job]:
    """The jobs of all panels, in the order they are run: of ``size`` trials each, None for all, over arms."""
    jobs = []
    for i, panel in enumerate(panels):
        step = 1 if panel.runner.by_trial else (size or panel.trials)
        for first in range(0, panel.trials, step):
            jobs += [Job(i, j, first, min(panel.trials, first + step)) for j in range(len(panel.methods))]
    return jobs


def run_job(job: Job, panel: Panel, setting: Setting) -> None:
    """Run a job and write its file; ``RunError`` names a job that cannot be run."""
    _exit_with_parent()
    try:
        with _ALONE:
            torch.set_num_threads(setting.threads)
            frame, metadata = _run(job, panel, setting)
    except RunError as error:
        raise RunError(f"{panel.methods[job.method].label!r} of panel {panel.name!r}: {error}") from None
    frame.attrs = {"digest": setting.digest, "code": setting.code, "job": list(job), "metadata": metadata}
    write(job.path(setting.folder), frame.to_parquet(compression="zstd"), setting.folder)


@functools.cache
def _exit_with_parent() -> None:
    """Let a process that was started for jobs exit when its parent dies, however it dies."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)  # not sys.exit, which would end this thread only

    if multiprocessing.parent_process() is not None:
        threading.Thread(target=watch, daemon=True).start()


def _run(job: Job, panel: Panel, setting: Setting) -> tuple[pd.DataFrame, dict[str, Any]]:
    """The traces of a job, and its metadata: ``seconds``, the ``notes`` of the problem, and others of the loop."""
    trials = range(job.first, job.stop)
    with memory_errors(panel):
        parts = range(1) if panel.runner.by_trial else trials
        problem = shared_problem(panel, parts, setting.data_dir, _device(job, setting.device))
        frame, metadata = panel.runner.run(panel, job.method, problem, trials)
    frame.insert(0, "method", panel.labels[job.method])
    frame.insert(0, "panel", panel.name)
    return frame, {"notes": problem.notes, **metadata}


def _device(job: Job, name: str) -> torch.device:
    """The device of a name; of "cuda" the GPUs that there are in turn."""
    device, turn = find_device(name), job.method + job.first // (job.stop - job.first)
    return torch.device(name, turn % torch.cuda.device_count()) if name == "cuda" else device


def about(path: Path) -> dict[str, Any] | None:
    """What a job's file says of itself: ``digest``, ``job`` and ``metadata``; None if there is no complete one."""
    try:
        attributes: dict[str, Any] = json.loads(pq.read_schema(path).metadata[b"PANDAS_ATTRS"])
    except (OSError, pa.ArrowException, KeyError, TypeError, ValueError):
        return None
    return attributes


def read(path: Path) -> tuple[pd.DataFrame, dict[str, Any]]:
    """The traces and metadata that a job left; ``RunError`` if its file is missing or damaged."""
    try:
        frame = pd.read_parquet(path)
        metadata, frame.attrs = frame.attrs["metadata"], {}
    except (OSError, pa.ArrowException, KeyError, TypeError, ValueError):
        raise RunError(f"{path} is missing or damaged; delete it, and the same command runs it again.") from None
    return frame, metadata


def write(path: Path, content: bytes, folder: Path) -> None:
    """Write a file of a result folder under a temporary name, flush it to disk and move it into place.

    ``RunError`` is raised when the disk is full or the folder cannot be written; ``path`` keeps its old content.
    """
    temporary = folder / FOLDER / f".{path.name}.{os.getpid()}.part"
    try:
        temporary.parent.mkdir(parents=True, exist_ok=True)
        with open(temporary, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        raise RunError(f"cannot write {path}: {error.strerror or error}; what was written before is kept.") from None
    finally:
        with suppress(OSError):  # it was moved
            temporary.unlink()
