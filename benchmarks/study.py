"""Studies: what SIGKILL takes back, durable tells a second, and the first ask after opening.

``python -m benchmarks.study [--kills 200] [--skip-speed]``: one JSON object a line. Writers are forked, so that a kill
costs no import of PyTorch; the file is made in ``--dir`` (default the system's temporary folder): rates are
those of its disk.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import random
import signal
import tempfile
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from bo_robust.study import Study, StudyDamaged, Trial

from benchmarks.common import environment, report
from bo_robust.random import stream

SPACE = {"x": (0.0, 1.0)}
SETTINGS: dict[str, Any] = {
    "method": "tgp-ucb",
    "lengthscale": 0.2,
    "outputscale": 1.0,
    "noise_var": 1.0,
    "restarts": 2,
    "raw_samples": 16,
}


def reward(trial: Trial) -> float:
    """Heavy-tailed, and the same whenever the trial is evaluated."""
    noise = float(stream(7, "noise", trial.id).standard_t(1.5))
    return math.sin(6.0 * trial.x["x"]) + 0.3 * noise


def step(study: Study) -> list[tuple[int, float]]:
    """Ask what is open or the next one to three trials, and tell them in one commit."""
    study.release()
    status = study.status()
    trials = study.ask(status.open or 1 + status.asked % 3)
    results = [(trial.id, reward(trial)) for trial in trials]
    if len(results) == 1:
        study.tell(*results[0])
    else:
        study.tell_many(results)
    return results


def killed_writer(path: Path, after: float, least: int = 0) -> dict[int, float]:
    """What a writer had been told was on disk, by trial, when it was killed.

    Args:
        path: Of the study.
        after: Seconds until it is killed, from when the study is open and ``least`` tells were acknowledged.
        least: Tells.
    """
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(read)
            study = Study.open(path)
            os.write(write, b"open\n")
            while True:
                for trial, value in step(study):
                    os.write(write, f"{trial} {value!r}\n".encode())
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)
    os.close(write)
    with os.fdopen(read) as lines:
        first = lines.readline()
        early = [lines.readline() for _ in range(least)]
        time.sleep(after)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        rows = [line.split() for line in [*early, *lines.read().splitlines()] if line]
    assert first == "open\n", "the writer did not open the study"
    assert all(early), "the writer ended before it was killed; it printed why"
    return {int(trial): float(value) for trial, value in rows}


def kills(
    count: int,
    folder: Path,
    longest: float = 0.6,
    seed: int = 0,
    least: Sequence[int] = (0,),
    settings: dict[str, Any] = SETTINGS,
) -> dict[str, int]:
    """Kill writers of one study, then play the same without kills; what differs.

    Args:
        count: Writers to kill.
        folder: Where the studies are made.
        longest: Seconds; a writer is killed at a random moment up to then.
        seed: Of those moments.
        least: Tells that the writers wait for before that time begins, in turn: a busy machine may acknowledge none
            in it.
        settings: Of the study.

    Returns:
        Tells acknowledged and lost, corrupt stores, trials and those whose x is not the uninterrupted run's.
    """
    moments = random.Random(seed)
    path, found = folder / "killed.study", {"acknowledged": 0, "lost": 0, "corrupt": 0}
    acknowledged: dict[int, float] = {}
    Study.create(path, SPACE, **settings).close()
    with Study.create(folder / "warm.study", SPACE, **settings) as warm:  # what a first round loads, forks have then
        while len(warm.results()) < 8:
            step(warm)
    for i in range(count):
        acknowledged |= killed_writer(path, moments.uniform(0.0, longest), least[i % len(least)])
        try:
            with Study.open(path) as study:
                kept = {trial.id: value for trial, value in study.results()}
        except StudyDamaged:
            found["corrupt"] += 1
            break
        found["lost"] += sum(kept.get(trial) != value for trial, value in acknowledged.items())
    found["acknowledged"] = len(acknowledged)
    with Study.open(path) as study, Study.create(folder / "whole.study", SPACE, **settings) as whole:
        step(study)  # the next ask
        told = study.results()
        while len(whole.results()) < len(told):
            step(whole)
        found["trials"] = len(told)
        found["mismatches"] = sum(a != b for a, b in zip(told, whole.results(), strict=True))
    return found


def commits(folder: Path) -> None:
    """Durable tells a second, one by one and in batches."""
    with Study.create(folder / "commits.study", SPACE, num_initial=100_000, **SETTINGS) as study:
        for batch, count in ((1, 500), (10, 2000), (100, 10_000)):
            trials = study.ask(count)
            results = [(trial.id, 0.5) for trial in trials]
            batches = [results[i : i + batch] for i in range(0, count, batch)]
            began = time.perf_counter()
            for together in batches:
                study.tell_many(together)
            took = time.perf_counter() - began
            met = count / took >= 2000.0
            report(f"tells_per_second_{batch}_a_commit", count / took, "1/s", ">= 2000", met)
    file = os.open(folder / "raw", os.O_RDWR | os.O_CREAT)
    os.write(file, bytes(4096 * 300))
    os.fsync(file)
    began = time.perf_counter()
    for i in range(300):
        os.pwrite(file, bytes(4096), 4096 * i)
        os.fdatasync(file)
    took = time.perf_counter() - began
    os.close(file)
    report("fdatasync_per_second", 300 / took, "1/s", None, None, {"note": "what the disk does without SQLite"})


def reopened(folder: Path, n: int = 1000, dim: int = 4) -> None:
    """The first ask of a process that opens a study: it fits the hyperparameters that an ask before had fitted."""
    path, names = folder / "reopened.study", [f"x{i}" for i in range(dim)]
    X = torch.rand(n, dim, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    with Study.create(path, dict.fromkeys(names, (0.0, 1.0)), "tgp-ucb") as study:
        for x, y in zip(X.tolist(), torch.sin(5.0 * X).sum(-1).tolist(), strict=True):
            study.add(dict(zip(names, x, strict=True)), y)
        began = time.perf_counter()
        study.ask()
        fitting = time.perf_counter() - began
    began = time.perf_counter()
    with Study.open(path) as study:
        study.ask()
        took = time.perf_counter() - began
    detail = {"n": n, "d": dim, "the_ask_that_fitted": round(fitting, 2)}
    report("first_ask_after_reopening", took, "s", None, None, detail)


def main() -> None:
    """Run the measurements named on the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--skip-speed", action="store_true")
    parser.add_argument("--dir", default=None)
    options = parser.parse_args()
    print(json.dumps({"environment": environment()}), flush=True)
    with tempfile.TemporaryDirectory(dir=options.dir) as name, contextlib.chdir(name):
        folder = Path(name)
        if options.kills:
            found = kills(options.kills, folder)
            for key, name in (
                ("lost", "lost_tells"),
                ("corrupt", "corrupt_stores"),
                ("mismatches", "next_ask_mismatches"),
            ):
                report(name, found[key], "count", "0", found[key] == 0, {"kills": options.kills} | found)
        if not options.skip_speed:
            commits(folder)
            reopened(folder)


if __name__ == "__main__":
    main()
