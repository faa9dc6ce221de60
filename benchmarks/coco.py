"""COCO bbob-noisy, the ten functions of seldom Cauchy noise: ``python -m benchmarks.coco [--out FOLDER] [options]``.

Independent benchmark: problems, noise and the count of targets are COCO's (``pip install coco-experiment cocopp six
optuna``). Equal budgets of 20 d evaluations for TGP-UCB (``bo_robust.integrations.optuna``; by its defaults, and
``TUNED``) and GP-UCB, BoTorch's default loop (``SingleTaskGP``, log noisy expected improvement, fitted every round),
the same loop with ``RobustGP`` and ``suggest_replicates``, and Optuna's GP sampler; the first 2 d points of BoTorch's
loops are Sobol's, the samplers choose their own. A run counts the targets f - f_opt <= 10^(2, 1.8, ..., -8) that an
evaluated point reaches without noise. One JSON object a line; the folder ``exdata`` in ``FOLDER`` is COCO's own
record, for ``python -m cocopp``. ``--methods`` runs some, in processes of their own if you like; once BoTorch's,
Optuna's and one of ours are in ``FOLDER``, they are compared; without a name none is run, those there are compared.
"""

from __future__ import annotations

import math
import os
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import torch
from botorch.acquisition.logei import qLogNoisyExpectedImprovement
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from botorch.optim import optimize_acqf
from gpytorch.mlls import ExactMarginalLogLikelihood
from torch import Tensor

from benchmarks.common import options, report, report_environment
from benchmarks.stats import differences
from bo_robust import RobustGP, suggest_replicates
from bo_robust.integrations.optuna import RobustSampler

# f103, f106, ..., f130.
CAUCHY = tuple(range(103, 131, 3))
TARGETS = 10.0 ** np.arange(2.0, -8.1, -0.2)
# Chosen among some ten by the targets hit on instances 21 to 26, which are not run here: little exploration, and a
# level as low as rewards of standard deviation one allow, to which what is beyond it is moved.
TUNED: dict[str, Any] = {"moment_bound": 4.0, "rule": "clip", "width": {"kind": "constant", "value": 1.0}}
OURS = ("TGP-UCB", "TGP-UCB tuned", "RobustGP")
THEIRS = ("BoTorch default", "Optuna GP")
RECORD = Path("exdata")  # COCO's, in the folder given


def botorch_loop(f: Any, budget: int, seed: int, robust: bool = False) -> None:
    """What BoTorch's tutorials do, or that with ``RobustGP`` and ``suggest_replicates``."""
    d, lower, upper = f.dimension, f.lower_bounds, f.upper_bounds
    torch.manual_seed(seed)
    bounds = torch.tensor([[0.0] * d, [1.0] * d], dtype=torch.float64)

    def value(x: Tensor) -> float:
        return -float(f(lower + (upper - lower) * x.numpy()))

    X = torch.quasirandom.SobolEngine(d, scramble=True, seed=seed).draw(2 * d, dtype=torch.float64)
    Y = torch.tensor([[value(x)] for x in X], dtype=torch.float64)
    for _ in range(budget - 2 * d):
        model: SingleTaskGP = RobustGP(X, Y) if robust else SingleTaskGP(X, Y)
        try:
            fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
            x = suggest_replicates(model) if robust else None
            if x is None:
                acquisition = qLogNoisyExpectedImprovement(model, X, prune_baseline=True)
                x, _ = optimize_acqf(acquisition, bounds, q=1, num_restarts=4, raw_samples=64)
        except Exception:  # a fit that ends nowhere: a random point, as a user would
            x = torch.rand(1, d, dtype=torch.float64)
        X, Y = torch.cat([X, x]), torch.cat([Y, Y.new_tensor([[value(x[0])]])])


def optuna_loop(f: Any, budget: int, seed: int, make: Callable[..., Any]) -> None:
    """A study with a sampler."""

    def objective(trial: optuna.Trial) -> float:
        bounds = zip(f.lower_bounds, f.upper_bounds, strict=True)
        return float(f(np.array([trial.suggest_float(f"x{i}", low, high) for i, (low, high) in enumerate(bounds)])))

    optuna.create_study(sampler=make(seed=seed)).optimize(objective, n_trials=budget)


METHODS: dict[str, Callable[[Any, int, int], None]] = {
    "TGP-UCB": partial(optuna_loop, make=partial(RobustSampler, "tgp-ucb")),
    "TGP-UCB tuned": partial(optuna_loop, make=partial(RobustSampler, "tgp-ucb", **TUNED)),
    "RobustGP": partial(botorch_loop, robust=True),
    "GP-UCB": partial(optuna_loop, make=partial(RobustSampler, "gp-ucb")),
    "BoTorch default": botorch_loop,
    "Optuna GP": partial(optuna_loop, make=optuna.samplers.GPSampler),
}


def targets_hit(folder: Path) -> dict[tuple[int, int], list[int]]:
    """Targets hit in each run, by function and dimension, as cocopp reads COCO's record."""
    import cocopp

    found = {}
    for data in cocopp.load(str(folder)):
        table = np.asarray(data.evals)  # a row a target: its value, and the evaluations each run took (NaN: never)
        runs = []
        for column in range(1, table.shape[1]):
            reached = table[np.isfinite(table[:, column]), 0]
            best = reached.min() if len(reached) else math.inf
            runs.append(int((best * (1.0 - 1e-9) <= TARGETS).sum()))
        found[data.funcId, data.dim] = runs
    return found


def label(name: str) -> str:
    """Of a method, in COCO's record."""
    return name.replace(" ", "-")


def run(name: str, given: Any) -> None:
    """One method on all problems."""
    import cocoex

    functions = ",".join(str(f - 100) for f in given.functions)
    dimensions = ",".join(map(str, given.dimensions))
    suite = cocoex.Suite(
        "bbob-noisy", f"instances: 1-{given.instances}", f"dimensions: {dimensions} function_indices: {functions}"
    )
    if (RECORD / label(name)).exists():
        raise SystemExit(f"{given.out / RECORD / label(name)} exists: give another --out, or remove it.")
    observer = cocoex.Observer("bbob-noisy", f"result_folder: {label(name)} algorithm_name: {label(name)}")
    began, evaluations = time.perf_counter(), 0
    for problem in suite:
        problem.observe_with(observer)
        METHODS[name](problem, 20 * problem.dimension, problem.index)
        evaluations += problem.evaluations
    seconds = (time.perf_counter() - began) / evaluations
    report(f"{name}: time of an evaluation", seconds, "s", {"dimensions": given.dimensions})


def main() -> None:
    """Run the methods, count, compare."""
    given = options(
        __doc__,
        out=Path("results/coco"),
        dimensions=(2, 5),
        instances=15,
        functions=CAUCHY,
        methods=METHODS,
    )
    given.out.mkdir(parents=True, exist_ok=True)
    os.chdir(given.out)  # where COCO writes its folder exdata
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    report_environment()
    for name in given.methods:
        run(name, given)
    hits = {name: targets_hit(RECORD / label(name)) for name in METHODS if (RECORD / label(name)).exists()}
    asked = [(function, d) for function in given.functions for d in given.dimensions]
    whole = [name for name in hits if all(len(hits[name].get(at, [])) >= given.instances for at in asked)]
    ours_run = [name for name in OURS if name in whole]
    if not ours_run or not set(THEIRS) <= set(whole):
        return  # other processes run the rest
    for function, d in asked:
        for name in hits:
            if runs := hits[name].get((function, d)):
                report(f"f{function} d={d}: {name}", statistics.fmean(runs), "of 51 targets", {"runs": runs})
    least = 7 if len(given.functions) == len(CAUCHY) and given.instances == 15 else None
    for d in given.dimensions:
        means = {m: {f: statistics.fmean(hits[m][f, d]) for f in given.functions} for m in (*ours_run, *THEIRS)}
        detail = {"functions": len(given.functions), "instances": given.instances}
        detail["mean targets"] = {m: round(statistics.fmean(of.values()), 2) for m, of in means.items()}
        for ours in ours_run:
            better = sum(means[ours][f] > max(means[m][f] for m in THEIRS) for f in given.functions)
            name = f"d={d}: functions on which {ours} hits more targets than both"
            report(name, better, "functions", detail, least=least)
            for other in THEIRS:
                mine, theirs = ([hit for f in given.functions for hit in hits[m][f, d]] for m in (ours, other))
                more = differences(mine, theirs)
                mean, low, _ = more.mean_interval()
                about = {"pairs": len(mine), "95 % +-": round(mean - low, 2), "median": more.median}
                report(f"d={d}: targets that {ours} hits more than {other}, mean of pairs", mean, "targets", about)


if __name__ == "__main__":
    main()
