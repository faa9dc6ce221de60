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
from bo_robust.experiments.conditions.base import ConditionsMethod, Round
from bo_robust.experiments.conditions.shared_gp import SharedGP
from bo_robust.experiments.config import Panel
from bo_robust.experiments.problems.conditions.base import ConditionsProblem
from bo_robust.experiments.problems.conditions.optimum import optimum, over_environment, regret
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

    - ``regret``: regret of the recommendation, argmax VaR(mu) over the designs observed so far;
    - ``lower_regret``: regret of argmax VaR(l) over the same designs;
    - ``recommended``: the former design, as a list;
    - ``values``: in the last row, f there over the points of Z (``over_environment``); None before;
    - ``interval``: VaR(u) - VaR(l) at the recommendation;
    - ``regret_bound``: max_x VaR(u) - VaR(l) at the recommendation, an upper bound on its regret while l <= f <= u. NaN
      for methods that do not find the maximum;
    - ``point``: the point chosen next, as a list; ``y``: the observation there; ``chosen_regret``: the regret of its x;
    - ``bound``: 2 w sigma(x, z) at that point; NaN unless it bounds ``chosen_regret``
      (:class:`~.conditions.base.ConditionsMethod`);
    - ``seconds``: time to choose the point, without the fit;
    - ``fit_seconds``, ``fit_ok``: time and success of the fit, NaN and True in rounds without one;
    - ``noise_var``: noise variance of the GP.
    """
    n = problem.initial if panel.initial is None else panel.initial
    X = initial_pairs(problem, n, panel.seed, trial)
    # All noise of the trial at once, so that every method meets the same.
    noise = torch.from_numpy(stream(panel.seed, "noise", trial).standard_normal(n + panel.horizon)).to(X)
    noise = math.sqrt(problem.noise_var) * noise
    Y = problem.f(X) + noise[:n]
    seeds = stream(panel.seed, "method", trial).integers(2**62, size=panel.horizon + 1).tolist()
    gp = SharedGP(torch.cat([problem.x_bounds, problem.z_bounds], -1))
    functional = ValueAtRisk(problem.alpha)

    @functools.cache
    def regret_of(x: tuple[float, ...]) -> float:
        return float(regret(problem, problem.x_bounds.new_tensor(x)))

    rows: dict[str, list[Any]] = {}
    for r in range(panel.horizon + 1):
        fit_seconds, fit_ok = math.nan, True
        if r % panel.refit_every == 0:
            began = time.perf_counter()
            fit_ok = gp.fit(X, Y)
            fit_seconds = time.perf_counter() - began
        now = Round(problem, gp, X, Y, r + 1)
        bound = method.bound(now)
        with torch.no_grad():
            best = recommend_design(bound.model, problem.environment, functional, now.designs).x
        row: dict[str, Any] = {
            "round": r,
            "regret": regret_of((*best.tolist(),)),
            "lower_regret": regret_of((*now.designs[bound.regret_bound(now.designs, 0.0).argmin()].tolist(),)),
            "recommended": best.tolist(),
            "values": None,
            "interval": float(bound.regret_bound(best)),
            "regret_bound": math.nan,
            "bound": math.nan,
            "chosen_regret": math.nan,
            "seconds": math.nan,
            "fit_seconds": fit_seconds,
            "fit_ok": fit_ok,
            "noise_var": float(gp.likelihood.noise.detach()),
            "point": None,
            "y": math.nan,
        }
        last = r == panel.horizon
        if last:
            row["values"] = over_environment(problem, best)[0].tolist()
        if not last or method.bounds_regret:
            chosen, row["seconds"] = _timed(method, now, seeds[r])
            x = chosen[: problem.dim_x]
            if method.bounds_regret:
                with torch.no_grad():  # the search may have missed what is known
                    known = float(bound(now.designs.unsqueeze(-2)).max())
                    highest = max(float(bound(x.unsqueeze(0))), known)
                    lower, upper = bound.bounds_of(chosen.unsqueeze(0), None)
                row["regret_bound"] = float(bound.regret_bound(best, highest))
            if not last:
                y = problem.f(chosen.unsqueeze(0)) + noise[n + r]
                if method.bounds_regret:
                    row["bound"] = float((upper - lower).max())
                row |= {"chosen_regret": regret_of((*x.tolist(),)), "point": chosen.tolist(), "y": float(y)}
                X, Y = torch.cat([X, chosen.unsqueeze(0)]), torch.cat([Y, y])
        for key, value in row.items():
            rows.setdefault(key, []).append(value)
    return rows


def metadata(problem: ConditionsProblem) -> dict[str, Any]:
    """What a summary says of the problem: ``alpha``, and its optimum ``x`` and ``value``."""
    best = optimum(problem)
    return {"alpha": problem.alpha, "x": best.x.tolist(), "value": best.value}


def settings_used(panel: Panel, problem: ConditionsProblem, device: torch.device) -> dict[str, Any]:
    """What a panel takes from its problem."""
    return {"noise_var": problem.noise_var, "alpha": problem.alpha}


def _timed(method: ConditionsMethod, now: Round, seed: int) -> tuple[Tensor, float]:
    """What the method proposes, and its seconds; torch's generator is seeded, and restored afterwards."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        began = time.perf_counter()
        chosen = method.propose(now)
        wait_for(now.X)
        return chosen, time.perf_counter() - began
