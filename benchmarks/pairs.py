"""This checkout against another one: ``python -m benchmarks.pairs --against PATH [--only NAME ...] [--pairs 9]``.

Two processes live at once, one on each checkout, and play every work in turns. So a machine that slows down slows both.
Reported are ratios of CPU seconds, the other checkout's over ours; nothing is to be slower by more than 5 %.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch

from benchmarks.arm_engine import gp_problem
from benchmarks.asks import data, ours
from benchmarks.bkb import NOISE_VAR, linear_world, played, world
from benchmarks.common import ROOT, environment, report
from benchmarks.elimination import world as candidates_world
from benchmarks.loop import play
from benchmarks.stats import ratios, report_ratio, seconds
from bo_robust.algorithms import GPUCB, HEGPUCB
from bo_robust.algorithms.bbkb import BBKB
from bo_robust.algorithms.bkb import BKB
from bo_robust.confidence import BayesianFiniteWidth, ConstantWidth, FiniteWidth
from bo_robust.confidence.base import EXPLORING

Work = Callable[[], object]


def arms(n: int, trials: int, rounds: int) -> Work:
    """GP-UCB."""
    kernel, _, f, noise = gp_problem(n, 5, 0.5, trials, rounds, NOISE_VAR)
    return lambda: play(GPUCB(ConstantWidth(2.0)), kernel, NOISE_VAR, f, noise)


def many_arms(n: int, d: int, rounds: int) -> Work:
    """GP-UCB over a covariance function."""
    kernel, f = world(n, d, 0.1, 0)
    return lambda: played(GPUCB(FiniteWidth(n, 0.1, scale=EXPLORING)), kernel, f, rounds, 0)


def dictionary(batches: bool, rounds: int) -> Work:
    """BKB, or BBKB with C = 2, over the linear kernel."""
    kernel, f, noise_var = linear_world(1000, 5, 0)
    width = FiniteWidth(1000, 0.1, scale=EXPLORING)
    algorithm = BBKB(width, 1.0, noise_var) if batches else BKB(width, 1.0)
    return lambda: played(algorithm, kernel, f, rounds, 0, noise_var)


def smooth_dictionary(n: int, rounds: int) -> Work:
    """BBKB over a squared exponential, whose dictionaries have some hundred points."""
    kernel, f = world(n, 5, 0.5, 0)
    algorithm = BBKB(FiniteWidth(n, 0.1, scale=EXPLORING), 5.0, 0.3)
    return lambda: played(algorithm, kernel, f, rounds, 0)


def elimination(n: int, trials: int, form: str) -> Work:
    """HE-GP-UCB over 16 candidates."""
    kernel, f, noise = candidates_world(n, trials, torch.device("cpu"))
    algorithm = HEGPUCB(BayesianFiniteWidth(n, 0.1, scale=EXPLORING), 0.1, 0.1, elimination=form)
    return lambda: play(algorithm, kernel, NOISE_VAR, f, noise[:150])


def next_ask(method: str) -> Work:
    """The ask after one more tell, at 996 rewards: it fits nothing."""
    X, Y, _ = data(996, 0)
    study, asked = ours(method)(X, Y, 0), []
    asked += study.ask()

    def ask() -> None:
        study.tell(asked[-1].id, 0.3)
        asked.extend(study.ask())

    return ask


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
    "HE-GP-UCB, n=100, 8 trials": lambda: elimination(100, 8, "errors"),
    "HE-GP-UCB, n=1000, 2 trials": lambda: elimination(1000, 2, "errors"),
    "MLE-GP-UCB, n=1000, 2 trials": lambda: elimination(1000, 2, "likeliest"),
    "next ask of he-gp-ucb": lambda: next_ask("he-gp-ucb"),
    "next ask of gp-ucb": lambda: next_ask("gp-ucb"),
}


def worker(name: str) -> None:
    """Play the work once for each line read, and print its CPU seconds."""
    torch.set_num_threads(1)
    with torch.no_grad() if "ask" not in name else torch.enable_grad():
        work = WORKS[name]()
        for _ in sys.stdin:
            print(seconds(work, time.process_time), flush=True)


def paired(name: str, theirs: Path, pairs: int) -> tuple[list[float], list[float]]:
    """CPU seconds of the other checkout and of ours."""
    command = [sys.executable, "-P", __file__, "--worker", name]
    each = {}
    for root in (theirs, ROOT):
        path = os.environ | {"PYTHONPATH": str(root)}
        each[root] = subprocess.Popen(
            command, cwd=root, env=path, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
    took: dict[Path, list[float]] = {theirs: [], ROOT: []}
    for i in range(pairs + 1):  # the first is a warm-up
        for root in list(each) if i % 2 else list(each)[::-1]:
            stdin, stdout = each[root].stdin, each[root].stdout
            assert stdin is not None
            assert stdout is not None
            print(file=stdin, flush=True)
            took[root].append(float(stdout.readline()))
    for process in each.values():
        process.communicate()
    return took[theirs][1:], took[ROOT][1:]


def main() -> None:
    """All works, or those named."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--against", type=Path, default=ROOT, help="the other checkout; by default this one")
    parser.add_argument("--only", choices=WORKS, nargs="+", default=list(WORKS))
    parser.add_argument("--pairs", type=int, default=9)
    parser.add_argument("--worker", choices=WORKS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        worker(options.worker)
        return
    report("environment", 0, "none", None, None, environment())
    for name in options.only:
        theirs, mine = paired(name, options.against, options.pairs)
        detail = {"min": min(ratios(theirs, mine).values), "max": max(ratios(theirs, mine).values)}
        report_ratio(name, theirs, mine, 0.95, detail)


if __name__ == "__main__":
    main()
