"""How fast the package is on one CPU thread: ``python -m benchmarks.speed [PART ...]``, the whole table by default.

One JSON object a line. Times are CPU seconds of one thread; ratios are taken within a repeat and reported as medians
with their interval. Every part runs in a process of its own, because one measures peak memory.

``--against PATH [--only NAME ...] [--pairs 9]`` compares this checkout with another one that has this module. Two
processes live at once, one in each checkout, and run every work in turns, so that a machine that slows down slows both.
Reported are ratios of CPU seconds, the other checkout's over ours.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from benchmarks import arm_engine, bkb, elimination, fits
from benchmarks.arm_engine import gp_problem
from benchmarks.asks import TOOLS, asks, data
from benchmarks.bkb import linear_problem, make_problem, run
from benchmarks.common import ROOT, report_environment
from benchmarks.loop import run_rounds
from benchmarks.stats import ratios, report_ratio, seconds
from bo_robust.bandits import BBKB, BKB, GPUCB, HEGPUCB
from bo_robust.confidence import BayesianFiniteWidth, ConstantWidth, FiniteWidth
from bo_robust.confidence.base import EXPLORING

Work = Callable[[], Any]
PARTS: dict[str, Work] = {
    "imports": arm_engine.import_time,
    "numpy": arm_engine.against_numpy,
    "botorch": lambda: arm_engine.against_botorch(400, 150.0),
    "truncation": arm_engine.tgp_stream,
    "million": arm_engine.million_arms,
    "linear": bkb.linear,
    "dictionaries": lambda: bkb.small(300),
    "many_arms": lambda: bkb.large(1000),
    "candidates": lambda: elimination.separate(100, 8, 8, 4.0),
    "candidates_1000": lambda: elimination.separate(1000, 4, 2, 1.0),
    "robust": fits.robust,
    "readings": fits.large,
    "asks": asks,
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
    kernel, f, noise = elimination.make_problem(n, trials)
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
    command = [sys.executable, "-m", "benchmarks.speed", "--worker", name]
    each = []
    for root in (theirs, ROOT):
        path = os.environ | {"PYTHONPATH": str(root)}
        process = subprocess.Popen(
            command, cwd=root, env=path, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        each.append(process)
    took: tuple[list[float], list[float]] = ([], [])
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
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--against", type=Path, help="another checkout")
    parser.add_argument("--only", choices=WORKS, nargs="+", default=list(WORKS), help="what the checkouts run")
    parser.add_argument("--pairs", type=int, default=9)
    parser.add_argument("--worker", choices=WORKS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if unknown := set(options.parts) - set(PARTS):
        parser.error(f"unknown parts: {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    if options.worker:
        worker(options.worker)
    elif options.against:
        report_environment()
        for name in options.only:
            theirs, mine = paired(name, options.against.resolve(), options.pairs)
            detail = {"min": min(ratios(theirs, mine).values), "max": max(ratios(theirs, mine).values)}
            report_ratio(name, theirs, mine, detail=detail)
    elif len(options.parts) == 1:
        PARTS[options.parts[0]]()
    else:
        report_environment()
        for name in options.parts or PARTS:
            subprocess.run([sys.executable, "-m", "benchmarks.speed", name], check=True)


if __name__ == "__main__":
    main()
