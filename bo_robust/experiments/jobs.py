"""Jobs of a run on any executor (:class:`bo_robust.executors.Executor`): this process, local processes, Ray, Dask.

A job is plain JSON that names one shard; :func:`play_job` plays it and returns the shard's content. The one process
that holds the run's folder stores the shards, so workers elsewhere need this package and the data sets, but no common
folder. Workers on this machine also save checkpoints in the folder, and go on from them.
"""

import functools
import json
import multiprocessing
import platform
import re
import signal
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping
from concurrent.futures import BrokenExecutor, CancelledError
from pathlib import Path
from typing import Any, TypeVar

import torch
from rich.console import Console

from bo_robust.executors import Executor, Future, WorkerLost
from bo_robust.experiments.arm_loop import ArmRun
from bo_robust.experiments.build import build_problem
from bo_robust.experiments.config import Panel, parse
from bo_robust.experiments.errors import RunError
from bo_robust.experiments.memory import memory_errors
from bo_robust.experiments.problems import Problem
from bo_robust.experiments.provenance import differences, find_device, fingerprint
from bo_robust.experiments.store import Shard, ShardKey, shard_bytes

ATTEMPTS = 3  # workers that may die under a job
POLL = 0.05  # seconds between looks at futures
KEPT = "What was finished is kept, `bo-robust resume` plays the rest."

Key = TypeVar("Key")
# Plays a job given as JSON; returns what went wrong, or "", and the result.
Play = Callable[[str], tuple[str, bytes]]
# Told, while a job is played, which one and how many of its rounds are played.
Watch = Callable[[ShardKey, int], None]

_RANDOM = threading.Lock()  # the threads of a worker share PyTorch's random numbers, which the job seeds


def play_job(text: str, watch: Watch = lambda key, rounds: None) -> tuple[str, bytes]:
    """Play a job in a worker, and return what went wrong (or "") and the content of the shard.

    ``text`` is JSON with the run's ``digest``, the ``key`` of the shard, ``run`` (a configuration with its panel only),
    ``device``, ``data_dir``, ``threads``, the ``fingerprint`` that the worker must have (if any), and ``checkpoint``
    (path and seconds between saves, or None).
    """
    if multiprocessing.parent_process() is not None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to all of a terminal's processes; the parent ends us
    job = json.loads(text)
    torch.set_num_threads(job["threads"])
    try:
        if job["fingerprint"]:
            changed = differences(job["fingerprint"], fingerprint(job["device"]))
            if changed:
                raise RunError(
                    f"a worker has other code or another processor than the run ({changed}), its results "
                    "would not be those of a local run; install the same versions everywhere, or `bo-robust resume "
                    "--force`."
                )
        key = ShardKey(*job["key"])
        return "", shard_bytes(_play_shard(job, key, functools.partial(watch, key)), key, job["digest"])
    except RunError as error:
        if job["checkpoint"] is not None:  # only on this machine
            return str(error), b""
        data = job["data_dir"]
        lacks = data is not None and not Path(data).is_dir()
        hint = f" The data folder must be at the same path on every machine; there is no {data} here." if lacks else ""
        return f"on machine {platform.node()}: {error}{hint}", b""


def play_jobs(
    executor: Executor,
    play: Play,
    jobs: Mapping[Key, tuple[str, dict[str, Any]]],
    arrived: Callable[[Key, bytes], None],
    console: Console,
) -> None:
    """Play jobs as workers become free, repeat those whose worker died, and hand over results as they come.

    A job that fails does not stop the others; the console is told at once. Any other error, or an interrupt, cancels
    what is under way. An executor that says how many ``workers`` it has gets no more jobs than that at once, so that a
    dying worker takes down only jobs under way. ``jobs`` are a name in messages and the content, by key. ``arrived`` is
    called in this thread with key and result.
    """
    waiting, running = deque(jobs), dict[Future, Key]()
    room = getattr(executor, "workers", None) or len(jobs)
    deaths, failed = Counter[Key](), list[str]()
    try:
        while waiting or running:
            while waiting and len(running) < room:
                key = waiting.popleft()
                try:
                    sent = executor.submit(play, json.dumps(jobs[key][1]))
                except BrokenExecutor as error:
                    raise RunError(f"the executor broke ({_line(error)}). {KEPT}") from error
                running[sent] = key
                if sent.done():  # played here and now: its result is stored before the next one begins
                    break
            done = [future for future in running if future.done()]
            for future in done:
                key = running.pop(future)
                try:
                    wrong, result = future.result()
                except (WorkerLost, BrokenExecutor, CancelledError) as error:
                    deaths[key] += 1
                    if deaths[key] < ATTEMPTS:
                        waiting.append(key)
                        continue
                    wrong = f"{ATTEMPTS} workers died under it, the last: {_line(error)}"
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
            if not done:
                time.sleep(POLL)
    finally:
        for future in running:
            future.cancel()
    if failed:
        more = f" ({len(failed) - 1} more failed)" if len(failed) > 1 else ""
        raise RunError(f"{failed[0]}{more}. {KEPT}")


def _line(error: BaseException) -> str:
    """The error's text in one line, cut."""
    return " ".join(str(error).split())[:300]


def _play_shard(job: dict[str, Any], key: ShardKey, watch: Callable[[int], None]) -> Shard:
    panel = parse(job["run"]).panels[0]
    trials = range(key.first, key.stop)
    if not panel.over_arms:
        from bo_robust.experiments.conditions_loop import play_shard  # imports BoTorch's optimisers

        with _RANDOM, torch.random.fork_rng():
            return play_shard(panel, key.method, trials, job["data_dir"], job["device"], watch)
    path, every = job["checkpoint"] or (None, 0.0)
    with memory_errors(panel):
        # The algorithms of a panel share its problem: the same text, the same object.
        shared = panel.model_dump_json(include={"name", "problem", "seed", "dtype", "methods"})
        problem = _problem(shared, trials, job["data_dir"], job["device"])
        run = ArmRun(panel, key.method, problem, trials)
        run.play(None if path is None else Path(path), every, [job["digest"], *key], watch)
        shard = run.shard()
    if path is None:
        _problem.cache_clear()  # a worker elsewhere may lie idle for long
    return shard


@functools.lru_cache(maxsize=1)
def _problem(panel: str, trials: range, data_dir: str | None, device: str) -> Problem:
    """The problem of trials of a panel, given as JSON so that the algorithms of the panel share it."""
    made = Panel.model_validate_json(panel)
    return build_problem(made, trials, None if data_dir is None else Path(data_dir), find_device(device))
