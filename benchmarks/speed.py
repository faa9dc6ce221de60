"""How fast the package is on one CPU thread: ``python -m benchmarks.speed [PART ...]``, the whole table by default.

One JSON object a line. Times are CPU seconds of one thread; ratios are taken within a repeat and reported as medians
with their interval. Every part runs in a process of its own, because one measures peak memory.

``--against PATH [--only NAME ...] [--pairs 9]`` compares this checkout with another one that has this module. Two
processes live at once, one in each checkout, and run every work in turns, so that a machine that slows down slows both.
Reported are ratios of CPU seconds, the other checkout's over ours.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from subprocess import PIPE
from typing import Any

import torch

from benchmarks import arm_engine, bkb, candidate_engine, fits
from benchmarks.arm_engine import gp_problem
from benchmarks.asks import TOOLS, asks, data, readme_loop, two_outcomes
from benchmarks.bkb import linear_problem, make_problem, run
from benchmarks.common import ROOT, options, report_environment
from benchmarks.loop import run_rounds
from benchmarks.stats import ratios, seconds
from bo_robust.bandits import BBKB, BKB, GPUCB, HEGPUCB
from bo_robust.confidence import BayesianFiniteWidth, ConstantWidth, FiniteWidth
from bo_robust.confidence.base import EXPLORING

Work = Callable[[], Any]
PARTS: dict[str, Work] = {
    "imports": arm_engine.import_time,
    "numpy": arm_engine.against_numpy,
    "botorch": arm_engine.against_botorch,
    "million": arm_engine.million_arms,
    "linear": bkb.linear,
    "dictionaries": bkb.small,
    "dictionaries_exact": bkb.against_exact,
    "many_arms": bkb.large,
    "candidates": lambda: candidate_engine.separate(100, 8, 8, 4.0),
    "candidates_1000": lambda: candidate_engine.separate(1000, 4, 2, 0.85),
    "robust": fits.robust,
    "readings": fits.large,
    "asks": asks,
    "readme": readme_loop,
    "two_outcomes": two_outcomes,
}


def arms(n: int, trials: int, rounds: int) -> Work:
    """GP-UCB."""
    kernel, _, f, noise = gp_problem(n, 5, 0.5, trials, rounds, bkb.NOISE_VAR)
    return lambda: run_rounds(GPUCB(ConstantWidth(2.0)), kernel, bkb.NOISE_VAR, f, noise)


def many_arms(n: int, d: int, rounds: int) -> Work:
    """GP-UCB over a covariance function."""
    kernel, f = make_problem(n, d, 0.1, 0)
    return lambda: run(GPUCB(FiniteWidth(n, 0.1, scale=EXPLORING)), kernel, f, rounds, 0)


def dictionary(batches: bool, rounds: int) -> Work:
    """BKB, or BBKB with C = 2, over the linear kernel."""
    kernel, f, noise_var = linear_problem(1000, 5, 0)
    width = FiniteWidth(1000, 0.1, scale=EXPLORING)
    algorithm = BBKB(width, 1.0, noise_var) if batches else BKB(width, 1.0)
    return lambda: run(algorithm, kernel, f, rounds, 0, noise_var)


def smooth_dictionary(n: int, rounds: int) -> Work:
    """BBKB over a squared exponential, whose dictionaries have some hundred points."""
    kernel, f = make_problem(n, 5, 0.5, 0)
    algorithm = BBKB(FiniteWidth(n, 0.1, scale=EXPLORING), 5.0, 0.3)
    return lambda: run(algorithm, kernel, f, rounds, 0)


def candidates(n: int, trials: int, form: str) -> Work:
    """HE-GP-UCB over 16 candidates."""
    kernel, f, noise = candidate_engine.make_problem(n, trials)
    algorithm = HEGPUCB(BayesianFiniteWidth(n, 0.1, scale=EXPLORING), 0.1, 0.1, elimination=form)
    return lambda: run_rounds(algorithm, kernel, bkb.NOISE_VAR, f, noise[:150])


WORKS: dict[str, Callable[[], Work]] = {
    "1 trial, n=1000, T=50": lambda: arms(1000, 1, 50),
    "1 trial, n=1000, T=200": lambda: arms(1000, 1, 200),
    "1 trial, n=1000, T=1000": lambda: arms(1000, 1, 1000),
    "2 trials, n=1000, T=200": lambda: arms(1000, 2, 200),
    "64 trials, n=1000, T=100": lambda: arms(1000, 64, 100),
    "1 trial, n=100, T=200": lambda: arms(100, 1, 200),
    "8 trials, n=100, T=200": lambda: arms(100, 8, 200),
    "64 trials, n=100, T=200": lambda: arms(100, 64, 200),
    "1 trial, n=1e5, T=200": lambda: many_arms(100_000, 2, 200),
    "1 trial, n=1e6, T=30": lambda: many_arms(1_000_000, 6, 30),
    "BKB, linear kernel, T=200": lambda: dictionary(False, 200),
    "BBKB, linear kernel, T=300": lambda: dictionary(True, 300),
    "BBKB, smooth kernel, n=1000, T=100": lambda: smooth_dictionary(1000, 100),
    "BBKB, smooth kernel, n=4000, T=100": lambda: smooth_dictionary(4000, 100),
    "HE-GP-UCB, n=100, 8 trials": lambda: candidates(100, 8, "errors"),
    "HE-GP-UCB, n=1000, 2 trials": lambda: candidates(1000, 2, "errors"),
    "MLE-GP-UCB, n=1000, 2 trials": lambda: candidates(1000, 2, "likeliest"),
    "ask of RobustSampler, n=100": lambda: TOOLS["RobustSampler"](*data(100, 0), 0),
    "ask of RobustSampler, n=500": lambda: TOOLS["RobustSampler"](*data(500, 0), 0),
}


def worker(name: str) -> None:
    """Run the work once for each line read, and print its CPU seconds."""
    with torch.no_grad() if "ask" not in name else torch.enable_grad():
        work = WORKS[name]()
        for _ in sys.stdin:
            print(seconds(work, time.process_time), flush=True)


def paired(name: str, theirs: Path, pairs: int) -> tuple[list[float], list[float]]:
    """CPU seconds of the other checkout and of ours."""
    took: tuple[list[float], list[float]] = ([], [])
    each = []
    for root in (theirs, ROOT):
        command, path = [sys.executable, "-m", "benchmarks.speed", "--worker", name], {"PYTHONPATH": str(root)}
        each.append(subprocess.Popen(command, cwd=root, env=os.environ | path, text=True, stdin=PIPE, stdout=PIPE))
    for i in range(pairs + 1):  # the first is a warm-up
        for side in (0, 1) if i % 2 else (1, 0):
            stdin, stdout = each[side].stdin, each[side].stdout
            assert stdin is not None
            assert stdout is not None
            print(file=stdin, flush=True)
            took[side].append(float(stdout.readline()))
    for process in each:
        process.communicate()
    return took[0][1:], took[1][1:]


def main() -> None:
    """Run the parts named, or compare two checkouts."""
    given = options(__doc__, PARTS, against=Path, only=WORKS, pairs=9, worker=str)
    if given.worker:
        worker(given.worker)
    elif given.against:
        report_environment()
        for name in given.only:
            theirs, mine = paired(name, given.against.resolve(), given.pairs)
            each = ratios(theirs, mine)
            each.report(name, detail={"min": min(each.values), "max": max(each.values)})
    elif len(given.parts) == 1:
        PARTS[given.parts[0]]()
    else:
        report_environment()
        for name in given.parts or PARTS:
            subprocess.run([sys.executable, "-m", "benchmarks.speed", name], check=True)


if __name__ == "__main__":
    main()
