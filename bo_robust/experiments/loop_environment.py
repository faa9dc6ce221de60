"""Run one method on one problem over (x, z): fit, recommend, choose (x, z), observe.

All methods of a trial start from the same points, get the same noise in the same order, and use the same seeds.
Nothing depends on what ran before.
"""

import functools
import math
import time
from typing import Any

import torch
from botorch.utils.transforms import unnormalize
from torch import Tensor

from bo_robust.acquisition import recommend_design
from bo_robust.experiments.conditions.methods import ConditionsMethod, Round
from bo_robust.experiments.conditions.shared_gp import SharedGP
from bo_robust.experiments.config import Panel
from bo_robust.experiments.problems.conditions.base import ConditionsProblem, optimum, regret
from bo_robust.risk_measures.functionals import ValueAtRisk
from bo_robust.utils.linalg import wait_for
from bo_robust.utils.random import stream


def initial_pairs(problem: ConditionsProblem, n: int, seed: int, trial: int) -> Tensor:
    """Draw initial points (x, z), ``n x d``: x uniform on its box, z uniform on the points of a finite Z or on its box.

    z does not follow the distribution of Z, in which about 25 of the paper's 100 points hold the mass. The authors do
    the same.
    """
    draws = torch.from_numpy(stream(seed, "initial", trial).random((n, problem.dim_x + problem.dim_z)))
    u, v = draws.to(problem.x_bounds).split([problem.dim_x, problem.dim_z], dim=-1)
    points = problem.points
    z = unnormalize(v, problem.z_bounds) if points is None else points[(v[:, 0] * len(points)).long()]
    return torch.cat([unnormalize(u, problem.x_bounds), z], -1)


def run_trial(problem: ConditionsProblem, method: ConditionsMethod, panel: Panel, trial: int) -> dict[str, list[Any]]:
    """Run one trial of one method.

    Row r, from 0 to ``horizon``, holds what is known after r rounds and what is chosen next. Columns:

    - ``recommended``: argmax VaR(mu) over the designs observed so far, as a list; ``regret``: its regret;
    - ``interval``: VaR(u) - VaR(l) there; ``regret_bound``: max_x VaR(u) - VaR(l) there, an upper bound on its regret
      while l <= f <= u, NaN for methods that do not find the maximum;
    - ``point``: the point chosen next, as a list; ``y``: the observation there;
    - ``seconds``: time to choose the point, without the fit;
    - ``fit_ok``: whether the fit succeeded, True in rounds without one.
    """
    n = problem.initial if panel.initial is None else panel.initial
    X = initial_pairs(problem, n, panel.seed, trial)
    # All noise of the trial at once, so that every method meets the same.
    noise = torch.from_numpy(stream(panel.seed, "noise", trial).standard_normal(n + panel.horizon)).to(X)
    noise = math.sqrt(problem.noise_var) * noise
    Y = problem.f(X) + noise[:n]
    seeds = stream(panel.seed, "method", trial).integers(2**62, size=panel.horizon + 1).tolist()
    gp = SharedGP(torch.cat([problem.x_bounds, problem.z_bounds], -1))

    @functools.cache
    def regret_of(x: tuple[float, ...]) -> float:
        return float(regret(problem, problem.x_bounds.new_tensor(x)))

    rows: list[dict[str, Any]] = []
    for r in range(panel.horizon + 1):
        last, fit_ok = r == panel.horizon, r % panel.refit_every != 0 or gp.fit(X, Y)
        now = Round(problem, gp, X, Y, r + 1)
        bound = method.bound(now)
        with torch.no_grad():
            best = recommend_design(bound.model, problem.environment, ValueAtRisk(problem.alpha), now.designs).x
        row: dict[str, Any] = {
            "round": r,
            "regret": regret_of((*best.tolist(),)),
            "recommended": best.tolist(),
            "interval": float(bound.regret_bound(best)),
            **dict.fromkeys(("regret_bound", "seconds", "y"), math.nan),
            "point": None,
            "fit_ok": fit_ok,
        }
        if not last or method.bounds_regret:
            with torch.random.fork_rng():
                torch.manual_seed(seeds[r])
                began = time.perf_counter()
                chosen = method.propose(now)
                wait_for(X)
                row["seconds"] = time.perf_counter() - began
        if method.bounds_regret:
            with torch.no_grad():  # the search may have missed what is known
                known = float(bound(now.designs.unsqueeze(-2)).max())
                highest = max(float(bound(chosen[: problem.dim_x].unsqueeze(0))), known)
            row["regret_bound"] = float(bound.regret_bound(best, highest))
        if not last:
            y = problem.f(chosen.unsqueeze(0)) + noise[n + r]
            row |= {"point": chosen.tolist(), "y": float(y)}
            X, Y = torch.cat([X, chosen.unsqueeze(0)]), torch.cat([Y, y])
        rows.append(row)
    return {key: [row[key] for row in rows] for key in rows[0]}


def metadata(problem: ConditionsProblem) -> dict[str, Any]:
    """What a summary says of the problem beside its notes."""
    best = optimum(problem)
    return {"optimum": {"x": best.x.tolist(), "value": best.value}}


def settings_used(panel: Panel, problem: ConditionsProblem, device: torch.device) -> dict[str, Any]:
    return {"noise_var": problem.noise_var, "alpha": problem.alpha}
