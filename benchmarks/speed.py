"""Speed in two modes, one JSON object a line: ``python -m benchmarks.speed asks`` and ``... pairs --against PATH``.

``asks [--sizes 10,100,500] [--repeats 9,7,3] [--tools ...] [--quick]``: seconds of a whole suggestion, fit included, by
``RobustSampler`` and by Ax with ``generation_strategy()``, against the defaults of Optuna and Ax and a BoTorch loop. In
a repeat every tool gets the same data, one after the other. Each is asked once before, as it keeps something from
suggestion to suggestion; the second is timed.

``pairs --against PATH [--only NAME ...] [--pairs 9]``: this checkout against another one that has this module. Two
processes live at once, one in each checkout, and run every work in turns, so that a machine that slows down slows both.
Reported are ratios of CPU seconds, the other checkout's over ours.

Times are CPU seconds of one thread; ratios are taken within a repeat and reported as medians with their interval.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from botorch.acquisition.logei import qLogNoisyExpectedImprovement
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from botorch.optim import optimize_acqf
from gpytorch.mlls import ExactMarginalLogLikelihood
from torch import Tensor

from benchmarks.arm_engine import gp_problem
from benchmarks.bkb import NOISE_VAR, linear_world, run, world
from benchmarks.common import ROOT, environment, report
from benchmarks.elimination import world as candidates_world
from benchmarks.loop import run_rounds
from benchmarks.stats import ratios, report_paired, report_ratio, seconds
from bo_robust.bandits import BBKB, BKB, GPUCB, HEGPUCB
from bo_robust.confidence import BayesianFiniteWidth, ConstantWidth, FiniteWidth
from bo_robust.confidence.base import EXPLORING

D, NOISE = 4, 0.1
FUNCTIONS: tuple[Callable[[Tensor], Tensor], ...] = (
    lambda X: torch.sin(5.0 * X).sum(-1),
    lambda X: 5.0 * (-20.0 * (X - 0.3).square().sum(-1)).exp() + X[:, 0],
    lambda X: torch.sin(12.0 * X[:, 0]) + 0.3 * X[:, 1].square(),
)
Work = Callable[[], Any]


def data(n: int, seed: int) -> tuple[Tensor, Tensor]:
    """Points ``n x d`` and readings ``n x 1`` of the seed's function, whose values have standard deviation 1."""
    draws = torch.Generator().manual_seed(seed)
    X = torch.rand(n, D, dtype=torch.float64, generator=draws)
    f = FUNCTIONS[seed % len(FUNCTIONS)](X).unsqueeze(-1)
    return X, (f - f.mean()) / f.std() + NOISE * torch.randn(n, 1, dtype=torch.float64, generator=draws)


def readings(X: Tensor, Y: Tensor) -> list[tuple[dict[str, float], float]]:
    """Points by the names of their parameters, each with its reading."""
    return [
        ({f"x{i}": value for i, value in enumerate(x)}, y) for x, y in zip(X.tolist(), Y[:, 0].tolist(), strict=True)
    ]


def botorch(X: Tensor, Y: Tensor, seed: int) -> Work:
    """What BoTorch's tutorials do."""
    bounds = torch.tensor([[0.0], [1.0]], dtype=torch.float64).expand(2, D)

    def ask() -> None:
        torch.manual_seed(seed)
        model = SingleTaskGP(X, Y)
        fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
        optimize_acqf(qLogNoisyExpectedImprovement(model, X), bounds, q=1, num_restarts=8, raw_samples=128)

    return ask


def optuna(ours: bool) -> Callable[[Tensor, Tensor, int], Work]:
    """A study of Optuna, with ``RobustSampler`` or with Optuna's own GP sampler."""

    def prepare(X: Tensor, Y: Tensor, seed: int) -> Work:
        import optuna as package

        from bo_robust.integrations.optuna import RobustSampler

        package.logging.set_verbosity(package.logging.ERROR)
        sampler = RobustSampler(seed=seed) if ours else package.samplers.GPSampler(seed=seed, n_startup_trials=2)
        study = package.create_study(direction="maximize", sampler=sampler)
        rows = readings(X, Y)
        space: dict[str, Any] = {name: package.distributions.FloatDistribution(0.0, 1.0) for name in rows[0][0]}
        made = package.trial.create_trial
        study.add_trials([made(params=x, distributions=space, value=value) for x, value in rows[:-1]])
        study.tell(study.ask(space), rows[-1][1])
        return lambda: study.ask(space)

    return prepare


def ax(ours: bool) -> Callable[[Tensor, Tensor, int], Work]:
    """A client of Ax, with ``generation_strategy()`` or with Ax's default."""

    def prepare(X: Tensor, Y: Tensor, seed: int) -> Work:
        from ax.api.client import Client
        from ax.api.configs import RangeParameterConfig

        from bo_robust.integrations.ax import generation_strategy

        logging.disable(logging.WARNING)  # a line for every trial otherwise
        client, rows = Client(random_seed=seed), readings(X, Y)
        client.configure_experiment(
            [RangeParameterConfig(name=name, parameter_type="float", bounds=(0.0, 1.0)) for name in rows[0][0]]
        )
        client.configure_optimization(objective="y")
        if ours:
            client.set_generation_strategy(generation_strategy())
        for x, value in rows[:-1]:
            client.complete_trial(client.attach_trial(parameters={**x}), raw_data={"y": value})
        ((index, _),) = client.get_next_trials(max_trials=1).items()
        client.complete_trial(index, raw_data={"y": rows[-1][1]})
        return lambda: client.get_next_trials(max_trials=1)

    return prepare


TOOLS: dict[str, Callable[[Tensor, Tensor, int], Work]] = {
    "RobustSampler": optuna(ours=True),
    "optuna": optuna(ours=False),
    "ax with RobustGP": ax(ours=True),
    "ax": ax(ours=False),
    "botorch": botorch,
}
OURS = {"RobustSampler": ("optuna", "botorch"), "ax with RobustGP": ("ax", "botorch")}


def asks(n: int, repeats: int, tools: list[str]) -> None:
    """One suggestion at n readings by these tools."""
    took: dict[str, list[float]] = {name: [] for name in tools}
    for seed in range(repeats):
        X, Y = data(n, seed)
        for name in tools:
            took[name].append(seconds(TOOLS[name](X, Y, seed), time.process_time))
    for name, times in took.items():
        report(f"ask of {name}, n = {n}", statistics.median(times), "s", None, None, {"n": n, "d": D, "each": times})
    for name, baselines in OURS.items():
        for peer in baselines:
            if {name, peer} <= set(tools):
                report_paired(f"ask of {name} over {peer}, n = {n}", ratios(took[name], took[peer]), "ratio")


def arms(n: int, trials: int, rounds: int) -> Work:
    """GP-UCB."""
    kernel, _, f, noise = gp_problem(n, 5, 0.5, trials, rounds, NOISE_VAR)
    return lambda: run_rounds(GPUCB(ConstantWidth(2.0)), kernel, NOISE_VAR, f, noise)


def many_arms(n: int, d: int, rounds: int) -> Work:
    """GP-UCB over a covariance function."""
    kernel, f = world(n, d, 0.1, 0)
    return lambda: run(GPUCB(FiniteWidth(n, 0.1, scale=EXPLORING)), kernel, f, rounds, 0)


def dictionary(batches: bool, rounds: int) -> Work:
    """BKB, or BBKB with C = 2, over the linear kernel."""
    kernel, f, noise_var = linear_world(1000, 5, 0)
    width = FiniteWidth(1000, 0.1, scale=EXPLORING)
    algorithm = BBKB(width, 1.0, noise_var) if batches else BKB(width, 1.0)
    return lambda: run(algorithm, kernel, f, rounds, 0, noise_var)


def smooth_dictionary(n: int, rounds: int) -> Work:
    """BBKB over a squared exponential, whose dictionaries have some hundred points."""
    kernel, f = world(n, 5, 0.5, 0)
    algorithm = BBKB(FiniteWidth(n, 0.1, scale=EXPLORING), 5.0, 0.3)
    return lambda: run(algorithm, kernel, f, rounds, 0)


def elimination(n: int, trials: int, form: str) -> Work:
    """HE-GP-UCB over 16 candidates."""
    kernel, f, noise = candidates_world(n, trials, torch.device("cpu"))
    algorithm = HEGPUCB(BayesianFiniteWidth(n, 0.1, scale=EXPLORING), 0.1, 0.1, elimination=form)
    return lambda: run_rounds(algorithm, kernel, NOISE_VAR, f, noise[:150])


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
    command = [sys.executable, "-m", "benchmarks.speed", "worker", name]
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
    """Run the mode named on the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    modes = parser.add_subparsers(dest="mode", required=True)
    of_asks, of_pairs = modes.add_parser("asks"), modes.add_parser("pairs")
    of_asks.add_argument("--sizes", default="10,100,500")
    of_asks.add_argument("--repeats", default="9,7,3")
    of_asks.add_argument("--tools", nargs="+", choices=TOOLS, default=list(TOOLS))
    of_asks.add_argument("--quick", action="store_true", help="one suggestion of each tool at 10 readings")
    of_pairs.add_argument("--against", type=Path, default=ROOT, help="the other checkout; by default this one")
    of_pairs.add_argument("--only", choices=WORKS, nargs="+", default=list(WORKS))
    of_pairs.add_argument("--pairs", type=int, default=9)
    modes.add_parser("worker").add_argument("name", choices=WORKS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    if options.mode == "worker":
        worker(options.name)
        return
    print(json.dumps({"environment": environment()}), flush=True)
    if options.mode == "pairs":
        for name in options.only:
            theirs, mine = paired(name, options.against.resolve(), options.pairs)
            detail = {"min": min(ratios(theirs, mine).values), "max": max(ratios(theirs, mine).values)}
            report_ratio(name, theirs, mine, detail=detail)
        return
    sizes, repeats = ([int(part) for part in text.split(",")] for text in (options.sizes, options.repeats))
    if options.quick:
        sizes, repeats = [10], [1]
    for n, count in zip(sizes, repeats, strict=True):
        asks(n, count, options.tools)


if __name__ == "__main__":
    main()
