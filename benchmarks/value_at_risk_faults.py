"""Value at risk with faulty readings: ``python -m benchmarks.value_at_risk_faults [--repetitions N] [--summary]``.

A study with ``v-ucb`` and no setting reads f 40 times. 2 of the readings (5 %) are wrong by 10 standard deviations of f
to the bad side, by 10 to the good side or by 3 to the bad side, at random times. "plain" is the same study with a model
that believes every reading: ``SingleTaskGP``.
Regret is that of what the study recommends after every fifth reading. One JSON line for each run is appended to
``--out``; lines that are there are not played again.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import math
import tempfile
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from bo_robust.study import Study

from benchmarks.common import environment, report
from benchmarks.grid import Cell, Row, fill, load
from benchmarks.stats import differences
from bo_robust.experiments.problems import make_conditions_problem
from bo_robust.experiments.problems.conditions import ConditionsProblem, regret
from bo_robust.methods import METHODS, VUCBMethod
from bo_robust.random import stream

READINGS, FAULTY, EVERY = 40, 2, 5
FLOOR = 1e-3  # of regret, as on the rest of the page
PROBLEMS, MODELS = ("branin", "goldstein_price"), ("plain", "robust")
FAULTS = {"clean": 0.0, "faults": -10.0, "good side": 10.0, "3 sd": -3.0}  # by how many standard deviations of f
NAMES = ("problem", "faults", "method", "repetition")
problem_of = functools.cache(make_conditions_problem)


class Plain(VUCBMethod):
    """A fault is so improbable that ``RobustGP`` believes every reading, and is then ``SingleTaskGP``."""

    def model_options(self, known: Mapping[str, Any]) -> dict[str, Any]:
        return super().model_options(known) | {"outlier_density": 1e-300}


def play_study(
    problem: ConditionsProblem, error: np.ndarray, seed: int, judged: Callable[[int], bool]
) -> tuple[list[float], set[int]]:
    """Play a study with ``v-ucb`` and no setting, whose readings are f plus the ``error`` of each.

    Returns the regret of what it recommends after every number of readings that is ``judged``, and the numbers, from 0,
    of the readings that it sets aside at the end. A continuous Z is the points of its environment.
    """
    names = [f"x{i}" for i in range(problem.dim_x)]
    z, p = problem.environment.z, problem.environment.probabilities
    points = [{f"z{i}": value for i, value in enumerate(row)} for row in z.tolist()]
    options: dict[str, Any] = {"risk_level": problem.alpha, "num_initial": problem.initial}
    options["environment"] = {"points": points} | ({} if p is None else {"probabilities": p.tolist()})
    box = {name: (low, high) for name, low, high in zip(names, *problem.x_bounds.tolist(), strict=True)}
    losses = []
    with (
        tempfile.TemporaryDirectory() as folder,
        Study.create(Path(folder, "run.study"), box, "v-ucb", seed=seed, **options) as study,
    ):
        for i, wrong_by in enumerate(error):
            (trial,) = study.ask()
            study.tell(
                trial.id, float(problem.f(z.new_tensor([trial.x[name] for name in (*names, *points[0])]))) + wrong_by
            )
            if judged(i + 1):
                found = study.recommend().x
                losses.append(float(regret(problem, z.new_tensor([found[name] for name in names]))))
        return losses, {trial.id for trial, _ in study.set_aside()}


def work(cell: Cell) -> Row:
    """One study: the regret of its recommendations, and how many faults and true readings it set aside."""
    name, faults, method, repetition = cell
    problem, draws = problem_of(name), stream(0, f"value at risk, {name}", repetition)  # the same for all compared
    error = math.sqrt(problem.noise_var) * draws.standard_normal(READINGS)
    wrong = draws.permutation(READINGS)[:FAULTY] if FAULTS[faults] else np.empty(0, int)
    designs = torch.linspace(0, 1, 64, dtype=torch.float64).unsqueeze(-1)  # both problems are over [0, 1]
    error[wrong] += FAULTS[faults] * float(problem.f(problem.environment.points(designs)).std())
    with patch.dict(METHODS, {"v-ucb": Plain} if method == "plain" else {}):
        losses, aside = play_study(problem, error, repetition, lambda n: n % EVERY == 0)
    found = len(aside & set(wrong.tolist()))
    return {"regret": [round(x, 6) for x in losses], "faults_set_aside": found, "set_aside": len(aside) - found}


def compared(a: Sequence[Sequence[float]], b: Sequence[Sequence[float]]) -> dict[str, Any]:
    """log10 regret of a less that of b, pair by pair, over the curve and at the end: mean and half of its interval."""
    curves = [np.log10(np.maximum(regrets, FLOOR)) for regrets in (a, b)]
    detail: dict[str, Any] = {"pairs": len(a)}
    for name, value in (("end", lambda c: c[:, -1]), ("curve", lambda c: c.mean(1))):
        mean, low, _ = differences(*(value(curve).tolist() for curve in curves)).mean_interval()
        detail[name] = [round(mean, 3), round(mean - low, 3)]
    return detail


def summarise(path: Path) -> None:
    """Print paired differences of log10 regret over the curve and at the end, one JSON object each."""
    rows = {tuple(row[name] for name in NAMES): row for row in load(path)}
    for problems, (a, b) in itertools.product(
        (PROBLEMS, *((p,) for p in PROBLEMS)),
        (
            *(((f, "plain"), ("clean", "plain")) for f in FAULTS if FAULTS[f]),
            *(((f, "robust"), (f, "plain")) for f in FAULTS),
        ),
    ):
        keys = [(p, r) for p, *of, r in rows if tuple(of) == a and p in problems and (p, *b, r) in rows]
        if len(keys) < 2:
            continue
        detail = compared(*([rows[p, *of, r]["regret"] for p, r in keys] for of in (a, b)))
        detail |= {of: sum(rows[p, *a, r][of] for p, r in keys) for of in ("faults_set_aside", "set_aside")}
        label = f"{' and '.join(problems)}: {', '.join(a)} less {', '.join(b)}"
        report(label, detail["curve"][0], "log10 regret", None, None, detail)


def main() -> None:
    """Play what is missing, then summarise."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--repetitions", type=int, default=8)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/value_at_risk/fault_loops.jsonl"))
    parser.add_argument("--summary", action="store_true", help="of the lines so far; nothing is played")
    parser.add_argument("--quick", action="store_true", help="one problem once, kept nowhere")
    arguments = parser.parse_args()
    report("environment", 0, "none", None, None, environment())
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # of rewards set aside, and of jitter
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "cells.jsonl") if arguments.quick else arguments.out
        if not arguments.summary:
            repetitions, problems = (
                (range(1), PROBLEMS[:1]) if arguments.quick else (range(arguments.repetitions), PROBLEMS)
            )
            cells = itertools.product(repetitions, problems, FAULTS, MODELS)
            fill([(*cell, repetition) for repetition, *cell in cells], NAMES, work, out)
        summarise(out)


if __name__ == "__main__":
    main()
