"""Rules of recommendation at the value at risk: ``python -m benchmarks.recommendation_rules --folders FOLDER``.

A folder holds a finished run of ``python configs/value_at_risk/discrete.py`` (or another of its kind). ``jumps``
counts, in rounds 31 to 60 of all of them, how often the regret of the recommended design changes by half a decade, with
new hyperparameters and without. ``rules`` takes one folder, and the ``--seed`` of its panels. Each trial is seen again
at rounds 51, 54, 57 and 60, with the data that its method had gathered and the hyperparameters fitted to them, and each
rule recommends a design:

- mean, queried: argmax of VaR(mu) over the designs queried so far, the paper's rule;
- lower, queried: argmax of VaR(mu - w sigma) over them;
- mean, box: argmax of VaR(mu) over the whole box;
- lower, box: argmax of VaR(mu - w sigma) over it.

Their lines are log10 regret, mean over trials and rounds, and its paired difference from the paper's rule over trials.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from botorch.optim import optimize_acqf
from torch import Tensor

from benchmarks.common import options, report, report_environment
from benchmarks.loops.conditions import initial_pairs
from benchmarks.methods.conditions import PAPER_WIDTH
from benchmarks.methods.shared_gp import SharedGP
from benchmarks.problems.conditions.base import ConditionsProblem, OverConditions, regret
from benchmarks.problems.conditions.synthetic import Branin, GoldsteinPrice, Hartmann3OneTwo, Hartmann3TwoOne
from benchmarks.statistics import log_regret, mean_interval
from bo_robust.acquisition import ValueAtRiskUCB
from bo_robust.utils.random import stream

ROUNDS, REFIT = (51, 54, 57, 60), 3  # hyperparameters are fitted in every third round, and in the last
PROBLEMS: dict[str, OverConditions] = {
    "Branin-Hoo (1,1)": Branin(),
    "Goldstein-Price (1,1)": GoldsteinPrice(),
    "Hartmann-3 (1,2)": Hartmann3OneTwo(),
    "Hartmann-3 (2,1)": Hartmann3TwoOne(),
}
RULES: dict[str, tuple[bool, bool]] = {  # lower bound instead of mean; box instead of queried designs
    "mean, queried": (False, False),
    "lower, queried": (True, False),
    "mean, box": (False, True),
    "lower, box": (True, True),
}


def trials_of(folder: Path) -> Iterator[pd.DataFrame]:
    """The trace of each trial of each method."""
    frame = pd.read_parquet(folder / "traces.parquet")
    for _, rows in frame.groupby(["panel", "method", "trial"], observed=True):
        yield rows.sort_values("round")


def recommend(problem: ConditionsProblem, X: Tensor, Y: Tensor, t: int) -> dict[str, Tensor]:
    """The design that each rule recommends."""
    gp = SharedGP(torch.cat([problem.x_bounds, problem.z_bounds], -1))
    gp.fit(X, Y)
    model, designs = gp.model(X, Y), X[:, : problem.dim_x]
    # The upper bound of width -w is the lower bound of width w.
    acqf = ValueAtRiskUCB(model, problem.environment, problem.alpha, 0.0, t=t)
    found = {}
    for name, (lower, box) in RULES.items():
        acqf.width = X.new_tensor(-PAPER_WIDTH(t) if lower else 0.0)
        value: Callable[[Tensor], Tensor] = acqf
        with torch.no_grad():
            best = designs[value(designs.unsqueeze(-2)).argmax()]
        if box:
            start = best.expand(1, 1, -1)
            searched, _ = optimize_acqf(acqf, problem.x_bounds, 1, num_restarts=4, raw_samples=64)
            polished, _ = optimize_acqf(acqf, problem.x_bounds, 1, num_restarts=1, batch_initial_conditions=start)
            found_in_box = torch.cat([searched, polished])
            with torch.no_grad():
                best = found_in_box[value(found_in_box.unsqueeze(-2)).argmax()]
        found[name] = best
    return found


def jumps(folders: Sequence[Path]) -> None:
    """A line for each problem and method: the share of rounds in which log10 regret changes by half or more."""
    jumped: dict[tuple[str, str], dict[bool, list[bool]]] = {}
    for folder in folders:
        for trace in trials_of(folder):
            changes = pd.Series(log_regret(trace["regret"]), index=trace["round"]).diff().abs() >= 0.5
            found = jumped.setdefault((trace["panel"].iloc[0], trace["method"].iloc[0]), {True: [], False: []})
            for r in range(31, 61):
                found[r % REFIT == 0].append(bool(changes[r]))
    for (name, method), found in jumped.items():
        shares = {word: round(float(np.mean(found[anew])), 4) for anew, word in ((True, "fitted"), (False, "others"))}
        share = float(np.mean([*found[True], *found[False]]))
        report(f"{name}, {method}: jumps", share, "share of rounds", shares | {"trials": len(found[True]) // 10})


def rules(folder: Path, seed: int) -> None:
    """A line for each problem, method and rule."""
    values: dict[tuple[str, str], list[list[float]]] = {}
    problems = {name: problem.make("cpu") for name, problem in PROBLEMS.items()}
    for trace in trials_of(folder):
        name, method, trial = (trace[key].iloc[0] for key in ("panel", "method", "trial"))
        if name not in problems:
            continue
        problem = problems[name]
        n, horizon = problem.initial, len(trace) - 1
        first = initial_pairs(problem, n, seed, trial)
        noise = torch.from_numpy(stream(seed, "noise", trial).standard_normal(n + horizon)).to(first)[:n]
        X = torch.cat([first, torch.tensor(np.stack(trace["point"].iloc[:-1].tolist()), dtype=first.dtype)])
        Y = torch.cat(
            [problem.f(first) + math.sqrt(problem.noise_var) * noise, torch.tensor(trace["y"].iloc[:-1].to_numpy())]
        )
        by_rule: dict[str, list[float]] = {rule: [] for rule in RULES}
        for r in ROUNDS:
            for rule, x in recommend(problem, X[: n + r], Y[: n + r], r + 1).items():
                by_rule[rule].append(float(log_regret(float(regret(problem, x)))))
        values.setdefault((name, method), []).append([float(np.mean(by_rule[rule])) for rule in RULES])
    for (name, method), rows in values.items():
        table = np.array(rows)
        for i, rule in enumerate(RULES):
            detail: dict[str, Any] = {"trials": len(table)}
            if i and len(table) > 1:
                gap, low, high = (round(float(x), 3) for x in mean_interval(table[:, i] - table[:, 0], 0.95))
                detail |= {"against mean, queried": gap, "interval": [low, high]}
            report(f"{name}, {method}, {rule}", float(table[:, i].mean()), "log10 regret", detail)


def main(arguments: Sequence[str] | None = None) -> None:
    given = options(__doc__, ("jumps", "rules"), arguments, folders=["results/discrete"], seed=0)
    report_environment()
    if "rules" in given.parts or not given.parts:
        rules(Path(given.folders[0]), given.seed)
    if "jumps" in given.parts or not given.parts:
        jumps([Path(folder) for folder in given.folders])


if __name__ == "__main__":
    main()
