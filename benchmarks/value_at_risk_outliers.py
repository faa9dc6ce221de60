"""Value at risk with wrong readings: ``python -m benchmarks.value_at_risk_outliers [--repetitions N] [--summary]``.

A loop of ``ValueAtRiskUCB`` reads f 40 times, over a ``SingleTaskGP`` ("plain") or a ``RobustGP`` ("robust"). 2 of the
readings (5 %) are wrong by 10 standard deviations of f to the bad side, by 10 to the good side or by 3 to the bad side,
at random times. Regret is that of ``recommend_design`` after every fifth reading. One JSON line for each run is
appended to ``--out``; lines that are there are not run again.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import math
import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from botorch.models.transforms import Normalize
from botorch.optim import optimize_acqf
from gpytorch.mlls import ExactMarginalLogLikelihood
from torch import Tensor

from benchmarks.common import ROOT, report, report_environment
from benchmarks.grid import Cell, Row, fill, load
from benchmarks.stats import differences
from bo_robust import RobustGP, ValueAtRiskUCB
from bo_robust.acquisition import recommend_design
from bo_robust.experiments.problems import make_conditions_problem
from bo_robust.experiments.problems.conditions.optimum import regret
from bo_robust.utils.random import stream

READINGS, OUTLIERS, EVERY, WIDTH = 40, 2, 5, 2.0
FLOOR = 1e-3  # of regret, as on the page of results
PROBLEMS, MODELS = ("branin", "goldstein_price"), {"plain": SingleTaskGP, "robust": RobustGP}
SHIFTS = {"clean": 0.0, "bad side": -10.0, "good side": 10.0, "3 sd": -3.0}  # in standard deviations of f
NAMES = ("problem", "outliers", "method", "repetition")
RESULTS = ROOT / "benchmarks" / "results" / "value_at_risk" / "outliers.jsonl"
problem_of = functools.cache(make_conditions_problem)


def fitted(model: type[SingleTaskGP], XZ: Tensor, Y: Tensor, box: Tensor) -> Any:
    """A model of the points, which are given in the units of the problem."""
    made = model(XZ, Y, input_transform=Normalize(XZ.shape[-1], bounds=box))
    fit_gpytorch_mll(ExactMarginalLogLikelihood(made.likelihood, made))
    return made


def work(cell: Cell) -> Row:
    """One loop: the regret of its recommendations, and how many wrong and right readings it flagged."""
    name, outliers, method, repetition = cell
    problem, draws = problem_of(name), stream(0, f"value at risk, {name}", repetition)  # the same for all compared
    error = math.sqrt(problem.noise_var) * draws.standard_normal(READINGS)
    wrong = draws.permutation(READINGS)[:OUTLIERS] if SHIFTS[outliers] else np.empty(0, int)
    designs = torch.linspace(0, 1, 64, dtype=torch.float64).unsqueeze(-1)  # both problems are over [0, 1]
    error[wrong] += SHIFTS[outliers] * float(problem.f(problem.environment.points(designs)).std())
    z, box = problem.environment.z, torch.cat([problem.x_bounds, problem.z_bounds], -1)
    low, high = problem.x_bounds
    start = low + (high - low) * torch.from_numpy(draws.random((problem.initial, len(low))))
    XZ = torch.cat([start, z[torch.from_numpy(draws.integers(len(z), size=problem.initial))]], -1)
    regrets, flagged = [], set[int]()
    torch.manual_seed(repetition)
    while True:
        Y = problem.f(XZ).unsqueeze(-1) + torch.from_numpy(error[: len(XZ)]).unsqueeze(-1)
        model = fitted(MODELS[method], XZ, Y, box)
        if len(XZ) % EVERY == 0:
            found = recommend_design(model, problem.environment, problem.alpha, XZ[:, : len(low)])
            regrets.append(round(float(regret(problem, found.x)), 6))
        if len(XZ) == READINGS:
            break
        acquisition = ValueAtRiskUCB(model, problem.environment, problem.alpha, width=WIDTH)
        x, _ = optimize_acqf(acquisition, problem.x_bounds, q=1, num_restarts=4, raw_samples=64)
        XZ = torch.cat([XZ, acquisition.select_condition(x).point])
    if isinstance(model, RobustGP):
        flagged = set((~model.inlier_mask).nonzero()[:, 0].tolist())
    right = len(flagged - set(wrong.tolist()))
    return {"regret": regrets, "wrong_flagged": len(flagged) - right, "right_flagged": right}


def summarise(path: Path) -> None:
    """Print paired differences of log10 regret, over the curve and at the end, one JSON object each."""
    rows = {tuple(row[name] for name in NAMES): row for row in load(path)}
    pairs = [((o, "plain"), ("clean", "plain")) for o in SHIFTS if SHIFTS[o]]
    pairs += [((o, "robust"), (o, "plain")) for o in SHIFTS]
    for a, b in pairs:
        keys = [(p, r) for p, *of, r in rows if tuple(of) == a and (p, *b, r) in rows]
        if not keys:
            continue
        ours, theirs = (np.log10(np.maximum([rows[p, *of, r]["regret"] for p, r in keys], FLOOR)) for of in (a, b))
        detail: dict[str, Any] = {"pairs": len(keys)}
        for part, columns in (("end", slice(-1, None)), ("curve", slice(None))):
            means = (curves[:, columns].mean(1).tolist() for curves in (ours, theirs))
            mean, low, high = differences(*means).mean_interval()
            detail[part] = {"mean": round(mean, 3), "95 %": [round(low, 3), round(high, 3)]}
        detail |= {of: sum(rows[p, *a, r][of] for p, r in keys) for of in ("wrong_flagged", "right_flagged")}
        report(f"{', '.join(a)} less {', '.join(b)}", detail["curve"]["mean"], "log10 regret", None, None, detail)


def main() -> None:
    """Run what is missing, then summarise."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--repetitions", type=int, default=8)
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--summary", action="store_true", help="of the lines so far; nothing is run")
    parser.add_argument("--quick", action="store_true", help="one problem once, kept nowhere")
    arguments = parser.parse_args()
    report_environment()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # of flagged outliers, and of jitter
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "cells.jsonl") if arguments.quick else arguments.out
        if not arguments.summary:
            repetitions, problems = (1, PROBLEMS[:1]) if arguments.quick else (arguments.repetitions, PROBLEMS)
            cells = itertools.product(range(repetitions), problems, SHIFTS, MODELS)
            fill([(*cell, repetition) for repetition, *cell in cells], NAMES, work, out)
        summarise(out)


if __name__ == "__main__":
    main()
