"""Pieces of a run on any executor (:class:`bo_robust.study.executors.Executor`): local, Ray, Dask.

A piece is a job, plain JSON that names what is to be played, and a function that plays it and returns bytes. Workers
need this package and the data sets, no folder in common: what they return is stored by the one process that holds the
run's folder.
"""

from __future__ import annotations

import json
import platform
import re
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping
from concurrent.futures import BrokenExecutor, CancelledError
from pathlib import Path
from typing import Any, TypeVar

import torch
from rich.console import Console

from bo_robust.runner.errors import RunError
from bo_robust.runner.provenance import world
from bo_robust.study.executors import Executor, Future, WorkerLost

__all__ = ["ATTEMPTS", "Play", "answer", "common", "play_jobs"]

ATTEMPTS = 3  # workers that may die under a job
POLL = 0.05  # seconds between looks at futures

Key = TypeVar("Key")
# Plays a job given as JSON; returns what went wrong, or "", and the result. A function of a module.
Play = Callable[[str], tuple[str, bytes]]


def common(device: str, data_dir: Path | None, force: bool) -> dict[str, Any]:
    """What all jobs of a run tell their workers.

    Args:
        device: Of the run.
        data_dir: Folder of data sets, the same on every machine.
        force: Accept workers of other versions.
    """
    return {
        "device": device,
        "data_dir": None if data_dir is None else str(data_dir.resolve()),
        "threads": torch.get_num_threads(),
        "versions": {} if force else world(device),
    }


def answer(text: str, play: Callable[[dict[str, Any]], bytes]) -> tuple[str, bytes]:
    """The worker's side: play a job, if code and machine are the run's.

    Args:
        text: The job: JSON of :func:`common` and of what ``play`` needs.
        play: Plays it.

    Returns:
        What went wrong, or "", and what ``play`` returned.
    """
    job = json.loads(text)
    here = f"on machine {platform.node()}"
    torch.set_num_threads(job["threads"])
    try:
        expected = job["versions"]
        found = world(job["device"]) if expected else {}
        other = [f"{key} {found.get(key)} for {wanted}" for key, wanted in expected.items() if found.get(key) != wanted]
        if other:
            raise RunError(
                f"a worker has other code or another processor than the run ({'; '.join(other)}), its results would "
                "not be those of a local run; install the same versions everywhere, or `bo-robust resume --force`."
            )
        return "", play(job)
    except RunError as error:
        data = job["data_dir"]
        lacks = data is not None and not Path(data).is_dir()
        hint = f" The data folder must be at the same path on every machine; there is no {data} here." if lacks else ""
        return f"{here}: {error}{hint}", b""


def play_jobs(
    executor: Executor,
    play: Play,
    jobs: Mapping[Key, tuple[str, dict[str, Any]]],
    arrived: Callable[[Key, bytes], None],
    console: Console,
) -> None:
    """Play jobs where there is room, those whose worker died again, and hand over results as they come.

    A job that fails does not stop the others; on any other error, or an interrupt, what is under way is dropped.

    Args:
        executor: Where to play.
        play: Plays one.
        jobs: By key: its name in messages, and the job.
        arrived: Called in this thread with key and result.
        console: Told at once what failed.

    Raises:
        RunError: at the end, naming the job, when one could not be played or :data:`ATTEMPTS` workers died under it.
    """
    waiting, running = deque(jobs), dict[Future, Key]()
    deaths, failed = Counter[Key](), list[str]()
    looked = 0.0
    try:
        while waiting or running:
            if waiting:
                key = waiting.popleft()
                try:
                    sent = executor.submit(play, json.dumps(jobs[key][1]))
                except BrokenExecutor as error:
                    raise RunError(
                        f"the executor broke ({' '.join(str(error).split())[:300]}). What was finished is kept, "
                        "`bo-robust resume` plays the rest."
                    ) from error
                running[sent] = key
                if waiting and time.monotonic() - looked < POLL and not sent.done():  # done: played here and now
                    continue
            done = [future for future in running if future.done()]
            looked = time.monotonic()
            for future in done:
                key = running.pop(future)
                try:
                    wrong, result = future.result()
                except (WorkerLost, BrokenExecutor, CancelledError) as error:
                    deaths[key] += 1
                    if deaths[key] < ATTEMPTS:
                        waiting.append(key)
                        continue
                    wrong = f"{ATTEMPTS} workers died under it, the last: {' '.join(str(error).split())[:300]}"
                except Exception as error:
                    lacking = re.search("No module named [^\\s]+", str(error))  # Ray's error is one of its own
                    if lacking is None:
                        raise
                    wrong = f"a worker cannot import the code ({lacking[0]}); install bo_robust on every machine"
                if wrong:
                    failed.append(f"{jobs[key][0]}: {wrong}")
                    console.print(f"Warning: {failed[-1]}", style="yellow", markup=False, soft_wrap=True)
                else:
                    arrived(key, result)
            if not waiting and not done:
                time.sleep(POLL)
    finally:
        for future in running:
            future.cancel()
    if failed:
        more = f" ({len(failed) - 1} more failed)" if len(failed) > 1 else ""
        raise RunError(f"{failed[0]}{more}. What was finished is kept, `bo-robust resume` plays the rest.")
