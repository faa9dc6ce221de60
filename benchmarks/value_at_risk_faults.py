"""Value at risk from data as they come: ``python -m benchmarks.value_at_risk_faults [--repetitions N] [--summary]``.

Conditions are observed, not chosen: they are drawn from Z. 40 readings are of 40 designs, or 10 designs are read under
4 conditions each. 2 of the 40 readings (5 %) are faulty, off by some standard deviations of f. A GP is fitted once, and
the best of 256 designs by its value at risk is recommended. Its regret is against the best of the 256. Models:

- plain: BoTorch's ``SingleTaskGP``;
- robust: ``RobustGP``;
- robust, read again: every reading set aside that is alone at its point is read once more, and the model fitted anew.

On "cliff", ours, f falls by 3 where x > 0.5 and z > 0.85, which is 15 % of the conditions: a bad tail that is no fault.
One JSON line for each cell is appended to ``--out``; lines that are there are not played again.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import itertools
import math
import os
import tempfile
import warnings
from pathlib import Path
from typing import Any

import torch
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from botorch.models.transforms.input import Normalize
from gpytorch.mlls import ExactMarginalLogLikelihood
from torch import Tensor

from benchmarks.common import environment, report
from benchmarks.grid import Cell, Row, fill, load
from benchmarks.stats import differences
from bo_robust import RobustGP
from bo_robust.acquisition import recommend_design
from bo_robust.environments import FiniteEnvironment
from bo_robust.experiments.problems import make_conditions_problem
from bo_robust.experiments.problems.conditions import ConditionsProblem
from bo_robust.functionals import ValueAtRisk
from bo_robust.random import stream

READINGS, FAULTY, DESIGNS = 40, 2, 256
FLOOR = 1e-3  # of regret, as in benchmarks.value_at_risk_settings
PROBLEMS = ("branin", "hartmann3_21", "recipe suzuki", "recipe fullerenes", "cliff")
LAYOUTS = {"40 designs": 1, "10 designs x 4": 4}  # readings of a design
FAULTS = {"clean": 0.0, "bad, 3 sd": -3.0, "bad, 10 sd": -10.0, "good, 10 sd": 10.0}
MODELS = ("plain", "robust", "robust, read again")
NAMES = ("problem", "layout", "faults", "method", "repetition")


def cliff(X: Tensor) -> Tensor:
    """A hill at x = 0.7 that a rare condition takes away, and a lower one at x = 0.2."""
    x, z = X[..., 0], X[..., 1]
    hills = 0.7 * torch.exp(-30.0 * (x - 0.2).square()) + torch.exp(-30.0 * (x - 0.7).square())
    return hills + 0.2 * z - 3.0 * torch.sigmoid(60.0 * (x - 0.5)) * torch.sigmoid(60.0 * (z - 0.85))


@functools.cache
def problem_of(name: str) -> ConditionsProblem:
    """The problem of a name."""
    kind, *campaign = name.split()
    if kind != "cliff":
        options: dict[str, Any] = (
            {"data_dir": os.environ.get("BO_ROBUST_DATA"), "campaign": campaign[0]} if campaign else {}
        )
        return make_conditions_problem(kind, **options)
    z = torch.linspace(0, 1, 41, dtype=torch.float64).unsqueeze(-1)
    return dataclasses.replace(problem_of("branin"), name="cliff", f=cliff, environment=FiniteEnvironment(z))


def fitted(kind: type[SingleTaskGP], X: Tensor, Y: Tensor, problem: ConditionsProblem) -> Any:
    """A model of points ``n x d`` and readings ``n``, fitted."""
    box = torch.cat([problem.x_bounds, problem.z_bounds], -1)
    model = kind(X, Y.unsqueeze(-1), input_transform=Normalize(X.shape[-1], bounds=box))
    fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
    return model


def work(cell: Cell) -> Row:
    """One model on one data set: the regret of what it recommends."""
    name, layout, faults, method, repetition = cell
    problem, each = problem_of(name), LAYOUTS[layout]
    low, high = problem.x_bounds
    engine = torch.quasirandom.SobolEngine(problem.dim_x, scramble=True, seed=repetition)
    designs = low + (high - low) * engine.draw(DESIGNS, dtype=torch.float64)
    draws = stream(0, f"value at risk, {name}", repetition)  # the same for all that is compared
    chosen = torch.from_numpy(draws.permutation(DESIGNS)[: READINGS // each]).repeat_interleave(each)
    p = problem.probabilities
    assert p is not None  # all are finite
    z = problem.environment.z[torch.from_numpy(draws.choice(len(p), READINGS, p=p.numpy()))]
    X = torch.cat([designs[chosen], z], -1)
    noise = math.sqrt(problem.noise_var) * torch.from_numpy(draws.standard_normal(2 * READINGS))
    wrong = torch.from_numpy(draws.permutation(READINGS)[:FAULTY])
    everywhere = problem.f(problem.environment.points(designs))  # 256 x w
    Y = problem.f(X) + noise[:READINGS]
    Y[wrong] += FAULTS[faults] * everywhere.std()
    model = fitted(SingleTaskGP if method == "plain" else RobustGP, X, Y, problem)
    again = 0
    if method == "robust, read again":
        rows = (~model.believed & ~model.twins().any(1)).nonzero().squeeze(-1)
        again = len(rows)
        if again:
            readings = problem.f(X[rows]) + noise[READINGS : READINGS + again]
            model = fitted(RobustGP, torch.cat([X, X[rows]]), torch.cat([Y, readings]), problem)
    functional = ValueAtRisk(problem.alpha)
    values = functional(everywhere, p)
    found = recommend_design(model, problem.environment, functional, designs)
    aside = ~model.believed[:READINGS] if isinstance(model, RobustGP) else torch.zeros(READINGS, dtype=torch.bool)
    return {
        "regret": float(values.max() - values[found.index]),
        "faults_set_aside": int(aside[wrong].sum()) if FAULTS[faults] else 0,
        "set_aside": int(aside.sum()),
        "read_again": again,
    }


def summarise(path: Path) -> None:
    """Print paired differences of log10 regret, and what was set aside, one JSON object each."""
    rows = {tuple(row[name] for name in NAMES): row for row in load(path)}

    def compared(on: str, a: tuple[str, str, str], b: tuple[str, str, str]) -> None:
        """Layout, faults and model: a less b."""
        problems = PROBLEMS[-1:] if on == "cliff" else PROBLEMS[:-1]
        label = f"{on}: {', '.join(a)} less {', '.join(x for x, other in zip(b, a, strict=True) if x != other)}"
        keys = [(c[0], c[4]) for c in rows if c[1:4] == a and c[0] in problems and (c[0], *b, c[4]) in rows]
        if a == b or len(keys) < 2:
            return
        ends = [[math.log10(max(rows[p, *of, r]["regret"], FLOOR)) for p, r in keys] for of in (a, b)]
        mean, low, _ = differences(*ends).mean_interval()
        mine = [rows[p, *a, r] for p, r in keys]
        detail = {"pairs": len(keys), "difference": [round(mean, 3), round(mean - low, 3)]}
        detail["log10_regret"] = [round(sum(end) / len(end), 3) for end in ends]
        wrong = FAULTY * len(keys) * (a[1] != "clean")
        faults = sum(row["faults_set_aside"] for row in mine)
        detail |= {"faults_set_aside": round(faults / wrong, 3) if wrong else None}
        true = sum(row["set_aside"] for row in mine) - faults
        detail |= {"true_readings_set_aside": round(true / (READINGS * len(keys) - wrong), 4)}
        detail |= {"read_again": round(sum(row["read_again"] for row in mine) / len(keys), 2)}
        report(label, mean, "log10 regret", None, None, detail)

    few, many = LAYOUTS
    for on in ("smooth and bumpy", "cliff"):
        for layout, faults in itertools.product(LAYOUTS, FAULTS):
            compared(on, (layout, faults, "plain"), (layout, "clean", "plain"))
            for method in MODELS[1:]:
                compared(on, (layout, faults, method), (layout, faults, "plain"))
        for method in MODELS[:2]:
            compared(on, (many, "clean", method), (few, "clean", method))


def main() -> None:
    """Play what is missing, then summarise."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--repetitions", type=int, default=20)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/value_at_risk/faults.jsonl"))
    parser.add_argument("--summary", action="store_true", help="of the lines so far; nothing is played")
    parser.add_argument("--quick", action="store_true", help="one data set of one problem, kept nowhere")
    arguments = parser.parse_args()
    report("environment", 0, "none", None, None, environment())
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # of many rewards set aside
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "faults.jsonl") if arguments.quick else arguments.out
        if not arguments.summary:
            problems = ("cliff",) if arguments.quick else PROBLEMS
            repetitions = range(2 if arguments.quick else arguments.repetitions)
            cells = itertools.product(repetitions, problems, LAYOUTS, FAULTS, MODELS)
            fill([(*cell, repetition) for repetition, *cell in cells], NAMES, work, out)
        summarise(out)


if __name__ == "__main__":
    main()
