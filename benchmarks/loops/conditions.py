"""The loop over pairs (x, z): fit, recommend, choose (x, z), observe; and what is shown of it.

All methods of a trial start from the same points, get the same noise in the same order, and use the same seeds.
Nothing depends on what ran before.
"""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import pandas as pd
import torch
from botorch.utils.transforms import unnormalize
from gpytorch.settings import cholesky_max_tries
from torch import Tensor

from benchmarks.methods.conditions import ConditionsMethod, Round
from benchmarks.methods.shared_gp import SharedGP
from benchmarks.panel import Metadata, Summary, TrialPanel, shared
from benchmarks.pictures import LOG_TITLE, band, looks_of, values_of
from benchmarks.problems.conditions.base import ConditionsProblem, optimum, regret
from benchmarks.statistics import CONFIDENCE, log_mean, log_regret
from bo_robust.acquisition import recommend_design
from bo_robust.risk_measures.functionals import ValueAtRisk
from bo_robust.utils.random import stream

if TYPE_CHECKING:
    from matplotlib.axes import Axes

REFIT_EVERY = 3  # rounds between fits of the hyperparameters


@dataclass(frozen=True)
class ConditionsPanel(TrialPanel):
    """Methods that choose a design and a condition. The initial points are before the first round."""

    columns: ClassVar[Mapping[str, tuple[str, str]]] = {
        "log10 regret": ("log10_regret", "{:.2f}"),
        "median regret": ("median_regret", "{:.3g}"),
        "regret bound": ("regret_bound", "{:.3g}"),
        "held": ("regret_bound_held", "{:.0%}"),
        "sec.": ("seconds", "{:.3g}"),
    }
    legend = (
        "log10 regret: VaR(f) at its best less VaR(f) at the recommendation argmax VaR(mu), after the last round, mean "
        "and 70 % confidence interval of the mean over trials. regret bound: max_x VaR(u) - VaR(l) at the "
        "recommendation, median; held: share of all rounds in which no regret exceeded it. sec.: median per "
        "acquisition, without the fit."
    )

    def built(self, device: torch.device) -> ConditionsProblem:
        made: ConditionsProblem = shared(lambda: self.problem.make(device), self.problem, str(device))
        return made

    def made(self, device: torch.device) -> Self:
        if self.initial == 0:
            raise ValueError(f"initial of panel {self.name!r} must be at least 1 point.")
        self.built(device)
        return self

    def run_trial(self, problem: ConditionsProblem, method: ConditionsMethod, trial: int) -> dict[str, list[Any]]:
        """Run one trial of one method.

        Row r, from 0 to ``rounds``, holds what is known after r rounds and what is chosen next. Columns:

        - ``recommended``: argmax VaR(mu) over the designs observed so far, as a list; ``regret``: its regret;
        - ``interval``: VaR(u) - VaR(l) there; ``regret_bound``: max_x VaR(u) - VaR(l) there, an upper bound on its
          regret while l <= f <= u, NaN for methods that do not find the maximum;
        - ``point``: the point chosen next, as a list; ``y``: the observation there;
        - ``seconds``: time to choose the point, without the fit;
        - ``fit_ok``: whether the fit succeeded, True in rounds without one.
        """
        n = problem.initial if self.initial is None else self.initial
        X = initial_pairs(problem, n, self.seed, trial)
        # All noise of the trial at once, so that every method meets the same.
        noise = torch.from_numpy(stream(self.seed, "noise", trial).standard_normal(n + self.rounds)).to(X)
        noise = math.sqrt(problem.noise_var) * noise
        Y = problem.f(X) + noise[:n]
        seeds = stream(self.seed, "method", trial).integers(2**62, size=self.rounds + 1).tolist()
        gp = SharedGP(torch.cat([problem.x_bounds, problem.z_bounds], -1))

        @functools.cache
        def regret_of(x: tuple[float, ...]) -> float:
            return float(regret(problem, problem.x_bounds.new_tensor(x)))

        rows: list[dict[str, Any]] = []
        for r in range(self.rounds + 1):
            last, fit_ok = r == self.rounds, r % REFIT_EVERY != 0 or gp.fit(X, Y)
            # A fit may end where points that repeat leave no factor by GPyTorch's three tries.
            with cholesky_max_tries(8):
                row, chosen = _row(method, Round(problem, gp, X, Y, r + 1), seeds[r], last)
            row |= {"regret": regret_of((*row["recommended"],)), "fit_ok": fit_ok}
            if not last:
                y = problem.f(chosen.unsqueeze(0)) + noise[n + r]
                row |= {"point": chosen.tolist(), "y": float(y)}
                X, Y = torch.cat([X, chosen.unsqueeze(0)]), torch.cat([Y, y])
            rows.append({"round": r, **row})
        columns = ("round", "regret", "recommended", "interval", "regret_bound", "seconds", "y", "point", "fit_ok")
        return {key: [row[key] for row in rows] for key in columns}

    def metadata(self, problem: ConditionsProblem) -> dict[str, Any]:
        best = optimum(problem)
        return {"notes": problem.notes, "optimum": {"x": best.x.tolist(), "value": best.value}}

    def summary(self, rows: Mapping[str, pd.DataFrame], metadata: Metadata) -> Summary:
        """Numbers after the last round: ``final`` is the log10 regret of every trial.

        ``seconds`` and ``regret_bound`` are medians; ``regret_bound_held`` is the share of rounds in which the bound
        held, None where a method has none.
        """
        methods: dict[str, Any] = {}
        for label, frame in rows.items():
            final, bound = frame.groupby("trial", sort=True)[["regret", "regret_bound"]].nth(-1).T.to_numpy()
            bounds = bool(frame["regret_bound"].notna().any())
            methods[label] = {
                **log_mean(final),
                "median_regret": float(np.median(final)),
                "final": log_regret(final).tolist(),
                "seconds": float(frame["seconds"].median()),
                "regret_bound": float(np.median(bound)) if bounds else None,
                "regret_bound_held": float((frame["regret_bound"] >= frame["regret"]).mean()) if bounds else None,
                "failed_fits": int((~frame["fit_ok"]).sum()),
            }
        measures = {"log10_regret": {label: np.array(numbers["final"]) for label, numbers in methods.items()}}
        return Summary(methods, measures, {"optimum": metadata[self.labels[0]]["optimum"]})

    def draw(self, traces: pd.DataFrame, axes: Sequence[Axes]) -> None:
        """log10 regret with the confidence interval of its mean; regret bounds beside the regret that they bound."""
        axes[0].set_title(LOG_TITLE)
        axes[1].set_title("medians: regret bound (solid), regret (dashed)")
        axes[1].set_yscale("log")
        of_regret, bounds = (
            values_of(traces, self.labels, self.trials, column) for column in ("regret", "regret_bound")
        )
        for label, look in looks_of(self.labels).items():
            of_log = log_regret(of_regret[label])
            band(axes[0], np.arange(of_log.shape[1]), of_log, label, look, CONFIDENCE)
            if not np.isnan(bounds[label]).all():  # methods that do not bound the regret have none in any round
                axes[1].plot(np.median(bounds[label], 0), color=look["color"])
                axes[1].plot(10.0 ** np.median(of_log, 0), color=look["color"], linestyle="--")

    def lines(self, summary: Mapping[str, Any]) -> list[str]:
        failed = {label: method["failed_fits"] for label, method in summary["methods"].items() if method["failed_fits"]}
        return [f"{label}: {n} fits failed; the last hyperparameters were kept." for label, n in failed.items()]


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


def _row(method: ConditionsMethod, now: Round, seed: int, last: bool) -> tuple[dict[str, Any], Tensor]:
    """What is known before a round is run, and the point chosen; after the ``last`` one only for the regret bound."""
    problem, bound = now.problem, method.bound(now)
    with torch.no_grad():
        best = recommend_design(bound.model, problem.environment, ValueAtRisk(problem.alpha), now.designs).x
    row: dict[str, Any] = dict.fromkeys(("regret_bound", "seconds", "y"), math.nan)
    row |= {"recommended": best.tolist(), "interval": float(bound.regret_bound(best)), "point": None}
    chosen = now.X[0]
    if not last or method.bounds_regret:
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            began = time.perf_counter()
            chosen = method.propose(now)
            if now.X.is_cuda:  # its kernels run on after the call
                torch.cuda.synchronize(now.X.device)
            row["seconds"] = time.perf_counter() - began
    if method.bounds_regret:
        with torch.no_grad():  # the search may have missed an observed design
            observed = float(bound(now.designs.unsqueeze(-2)).max())
            highest = max(float(bound(chosen[: problem.dim_x].unsqueeze(0))), observed)
        row["regret_bound"] = float(bound.regret_bound(best, highest))
    return row, chosen
