"""Value at risk with wrong readings: ``python -m benchmarks.value_at_risk_outliers [--repetitions N]``, about an hour.

A loop of ``ValueAtRiskUCB`` reads f 40 times, over a ``SingleTaskGP`` ("plain") or a ``RobustGP`` ("robust"). 2 of the
readings (5 %) are wrong by 10 standard deviations of f to the bad side, by 10 to the good side or by 3 to the bad side,
at random times. Regret is that of ``recommend_design`` after every fifth reading.
"""

from __future__ import annotations

import functools
import itertools
import math
from typing import Any

import numpy as np
import torch
from botorch.models import SingleTaskGP
from botorch.models.transforms import Normalize
from botorch.optim import optimize_acqf

from benchmarks.common import options, report, report_environment
from benchmarks.stats import differences
from bo_robust import RobustGP, ValueAtRiskUCB
from bo_robust.acquisition import recommend_design
from bo_robust.experiments.botorch_methods import fitted
from bo_robust.experiments.problems import make_conditions_problem
from bo_robust.experiments.problems.conditions.base import regret
from bo_robust.utils.random import stream

READINGS, OUTLIERS, EVERY, WIDTH = 40, 2, 5, 2.0
FLOOR = 1e-3  # of regret, as on the page of results
PROBLEMS, MODELS = ("branin", "goldstein_price"), {"plain": SingleTaskGP, "robust": RobustGP}
SHIFTS = {"clean": 0.0, "bad side": -10.0, "good side": 10.0, "3 sd": -3.0}  # in standard deviations of f
problem_of = functools.cache(make_conditions_problem)


def loop(name: str, outliers: str, method: str, repetition: int) -> dict[str, Any]:
    """The regret of the recommendations, and how many wrong and right readings were flagged."""
    problem, draws = problem_of(name), stream(0, f"value at risk, {name}", repetition)  # the same for all compared
    error = math.sqrt(problem.noise_var) * draws.standard_normal(READINGS)
    wrong = draws.permutation(READINGS)[:OUTLIERS] if SHIFTS[outliers] else np.empty(0, int)
    designs = torch.linspace(0, 1, 64, dtype=torch.float64).unsqueeze(-1)  # both problems are over [0, 1]
    error[wrong] += SHIFTS[outliers] * float(problem.f(problem.environment.points(designs)).std())
    z, box = problem.environment.z, torch.cat([problem.x_bounds, problem.z_bounds], -1)
    low, high = problem.x_bounds
    start = low + (high - low) * torch.from_numpy(draws.random((problem.initial, len(low))))
    XZ = torch.cat([start, z[torch.from_numpy(draws.integers(len(z), size=problem.initial))]], -1)
    regrets: list[float] = []
    torch.manual_seed(repetition)
    while True:
        Y = problem.f(XZ).unsqueeze(-1) + torch.from_numpy(error[: len(XZ)]).unsqueeze(-1)
        # Points are given in the units of the problem.
        model = fitted(MODELS[method](XZ, Y, input_transform=Normalize(XZ.shape[-1], bounds=box)))
        if len(XZ) % EVERY == 0:
            found = recommend_design(model, problem.environment, problem.alpha, XZ[:, : len(low)])
            regrets.append(round(float(regret(problem, found.x)), 6))
        if len(XZ) == READINGS:
            break
        acquisition = ValueAtRiskUCB(model, problem.environment, problem.alpha, width=WIDTH)
        x, _ = optimize_acqf(acquisition, problem.x_bounds, q=1, num_restarts=4, raw_samples=64)
        XZ = torch.cat([XZ, acquisition.select_condition(x).point])
    flagged = ~model.inlier_mask if isinstance(model, RobustGP) else torch.zeros(READINGS, dtype=torch.bool)
    found_wrong = int(flagged[wrong].sum())
    return {"regret": regrets, "wrong_flagged": found_wrong, "right_flagged": int(flagged.sum()) - found_wrong}


def main() -> None:
    """Run all loops, and report paired differences of log10 regret, over the curve and at the end."""
    given = options(__doc__, repetitions=8, problems=dict.fromkeys(PROBLEMS))
    report_environment()
    keys = list(itertools.product(given.problems, range(given.repetitions)))
    rows = {(o, m): [loop(problem, o, m, r) for problem, r in keys] for o in SHIFTS for m in MODELS}
    pairs = [((o, "plain"), ("clean", "plain")) for o in SHIFTS if SHIFTS[o]]
    pairs += [((o, "robust"), (o, "plain")) for o in SHIFTS]
    for a, b in pairs:
        ours, theirs = (np.log10(np.maximum([row["regret"] for row in rows[of]], FLOOR)) for of in (a, b))
        detail: dict[str, Any] = {"pairs": len(keys)}
        for part, columns in (("end", slice(-1, None)), ("curve", slice(None))):
            means = (curves[:, columns].mean(1).tolist() for curves in (ours, theirs))
            mean, low, high = differences(*means).mean_interval()
            detail[part] = {"mean": round(mean, 3), "95 %": [round(low, 3), round(high, 3)]}
        detail |= {of: sum(row[of] for row in rows[a]) for of in ("wrong_flagged", "right_flagged")}
        report(f"{', '.join(a)} less {', '.join(b)}", detail["curve"]["mean"], "log10 regret", detail)


if __name__ == "__main__":
    main()
