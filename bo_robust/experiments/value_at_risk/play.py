"""Play one method on one problem over (x, z): fit, recommend, choose (x, z), observe.

All methods of a repetition start from the same points, meet the same noise in the same order, and use the same seeds.
Nothing depends on what ran before.
"""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bo_robust.acquisition import recommend_design
from bo_robust.experiments.config import ValueAtRiskPanelConfig
from bo_robust.experiments.problems.conditions import ConditionsProblem, over_environment, regret
from bo_robust.experiments.value_at_risk.base import Method, Proposal, Round
from bo_robust.experiments.value_at_risk.surrogate import Surrogate
from bo_robust.functionals import ValueAtRisk
from bo_robust.linalg import wait_for
from bo_robust.random import stream


def initial_points(problem: ConditionsProblem, n: int, seed: int, repetition: int) -> Tensor:
    """Draw initial points (x, z), ``n x d``: x uniform on its box, z uniform on the points of a finite Z or on its box.

    z does not follow the distribution of Z, in which about 25 of the paper's 100 points hold the mass. The authors do
    the same.
    """
    draws = torch.from_numpy(stream(seed, "initial", repetition).random((n, problem.dim_x + problem.dim_z)))
    u, v = draws.to(problem.x_bounds).split([problem.dim_x, problem.dim_z], dim=-1)
    x = problem.x_bounds[0] + (problem.x_bounds[1] - problem.x_bounds[0]) * u
    if problem.points is None:
        z = problem.z_bounds[0] + (problem.z_bounds[1] - problem.z_bounds[0]) * v
    else:
        z = problem.points[(v[:, 0] * len(problem.points)).long()]
    return torch.cat([x, z], -1)


def play(
    problem: ConditionsProblem,
    method: Method,
    panel: ValueAtRiskPanelConfig,
    repetition: int,
    watch: Callable[[int], None] = lambda rounds: None,
) -> dict[str, list[Any]]:
    """Play one repetition of one method; call ``watch`` before every round with the number of rounds played.

    Row r, from 0 to ``rounds``, holds what is known after r rounds and what is chosen next. Columns:

    - ``regret``: regret of the recommendation, argmax VaR(mu) over the designs observed so far;
    - ``lower_regret``: regret of argmax VaR(l) over the same designs;
    - ``recommended``: the former design, as a list;
    - ``values``: in the last row, f there over the points of Z (``over_environment``); None before;
    - ``interval``: VaR(u) - VaR(l) at the recommendation;
    - ``certificate``: max_x VaR(u) - VaR(l) at the recommendation, an upper bound on its regret while l <= f <= u. NaN
      for methods that do not find the maximum;
    - ``point``: the point chosen next, as a list; ``y``: the observation there; ``chosen_regret``: the regret of its x;
    - ``bound``: 2 w sigma(x, z) at that point; NaN unless it bounds ``chosen_regret``
      (:attr:`~.base.Method.bounds_regret`);
    - ``seconds``: time to choose the point, without the fit;
    - ``fit_seconds``, ``fit_ok``: time and success of the fit, NaN and True in rounds without one;
    - ``noise_var``: noise variance of the GP.
    """
    n = problem.initial_points if panel.initial_points is None else panel.initial_points
    X = initial_points(problem, n, panel.seed, repetition)
    # All noise of the repetition at once, so that every method meets the same.
    noise = torch.from_numpy(stream(panel.seed, "noise", repetition).standard_normal(n + panel.rounds)).to(X)
    noise = math.sqrt(problem.noise_var) * noise
    Y = problem.f(X) + noise[:n]
    seeds = stream(panel.seed, "method", repetition).integers(2**62, size=panel.rounds + 1).tolist()
    surrogate = Surrogate(torch.cat([problem.x_bounds, problem.z_bounds], -1), method.fitting)
    functional = ValueAtRisk(problem.alpha)
    true_regret = _Regrets(problem)
    rows: dict[str, list[Any]] = {}
    for r in range(panel.rounds + 1):
        watch(r)
        fit_seconds, fit_ok = math.nan, True
        if r % panel.refit_every == 0:
            began = time.perf_counter()
            fit_ok = surrogate.fit(X, Y)
            fit_seconds = time.perf_counter() - began
        now = Round(problem, surrogate, X, Y, r + 1)
        bound = method.bound(now)
        with torch.no_grad():
            best = recommend_design(bound.model, problem.environment, functional, now.designs).x
        row: dict[str, Any] = {
            "round": r,
            "regret": true_regret(best),
            "lower_regret": true_regret(now.designs[bound.certificate(now.designs, 0.0).argmin()]),
            "recommended": best.tolist(),
            "values": None,
            "interval": float(bound.certificate(best)),
            "certificate": math.nan,
            "bound": math.nan,
            "chosen_regret": math.nan,
            "seconds": math.nan,
            "fit_seconds": fit_seconds,
            "fit_ok": fit_ok,
            "noise_var": surrogate.hyperparameters()["noise_var"][0],
            "point": None,
            "y": math.nan,
        }
        last = r == panel.rounds
        if last:
            row["values"] = over_environment(problem, best)[0].tolist()
        if not last or method.certifies:
            chosen, row["seconds"] = _timed(method, now, seeds[r])
            if chosen.max_upper is not None:
                with torch.no_grad():  # the search may have missed what is known
                    known = float(bound(now.designs.unsqueeze(-2)).max())
                row["certificate"] = float(bound.certificate(best, max(chosen.max_upper, known)))
            if not last:
                point = chosen.point.unsqueeze(0)
                y = problem.f(point) + noise[n + r]
                if method.bounds_regret:
                    with torch.no_grad():
                        lower, upper = bound.bounds_of(point, None)
                    row["bound"] = float((upper - lower).max())
                row |= {
                    "chosen_regret": true_regret(chosen.point[: problem.dim_x]),
                    "point": chosen.point.tolist(),
                    "y": float(y),
                }
                X, Y = torch.cat([X, point]), torch.cat([Y, y])
        for key, value in row.items():
            rows.setdefault(key, []).append(value)
    return rows


class _Regrets:
    """True regret of designs, computed once for each."""

    def __init__(self, problem: ConditionsProblem) -> None:
        self.problem = problem
        self.known: dict[tuple[float, ...], float] = {}

    def __call__(self, x: Tensor) -> float:
        key = tuple(x.tolist())
        if key not in self.known:
            self.known[key] = float(regret(self.problem, x))
        return self.known[key]


def _timed(method: Method, now: Round, seed: int) -> tuple[Proposal, float]:
    with _seeded(seed):
        began = time.perf_counter()
        chosen = method.propose(now)
        wait_for(now.X)
        return chosen, time.perf_counter() - began


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Seed the generators of torch and NumPy (used by SciPy's optimisers), and restore them afterwards."""
    state = np.random.get_state()  # noqa: NPY002
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        np.random.seed(seed % 2**32)  # noqa: NPY002
        try:
            yield
        finally:
            np.random.set_state(state)  # noqa: NPY002
