"""V-UCB against what there is: ``python -m benchmarks.value_at_risk [--only NAME] [--results SUMMARY]``.

One JSON object a line; one thread. Acquisitions are optimised on Hartmann-3 (2,1) with |Z| = 100 and 100 observations,
with the same restarts and raw samples, by the classes a robust run plays. ``--only regret`` compares final regrets in
the summary.json of a run of configs/value_at_risk/discrete.yaml.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from botorch.acquisition import AcquisitionFunction
from torch import Tensor

from benchmarks.common import cpu_times, environment, medians, report, report_ratio
from bo_robust.experiments.problems import make_conditions_problem
from bo_robust.experiments.value_at_risk.base import Method, Round
from bo_robust.experiments.value_at_risk.methods import VUCB, MCVaR, RhoKG
from bo_robust.experiments.value_at_risk.play import initial_points
from bo_robust.experiments.value_at_risk.surrogate import Surrogate
from bo_robust.ops.weighted_quantile import weighted_quantile
from bo_robust.random import stream

DATA = 100
# Data sets MC VaR is compared on: what an optimisation costs depends on where its searches happen to end.
STATES = 6
MC_SEARCH: dict[str, Any] = {"restarts": 8, "raw_samples": 128}
# rhoKG^apx takes a minute at these.
KG_SEARCH: dict[str, Any] = {"restarts": 2, "raw_samples": 16, "maxiter": 20}
REPEATS = 3


def state(seed: int) -> Round:
    """Round 91 of Hartmann-3 (2,1): 100 observations at random, hyperparameters fitted."""
    problem = make_conditions_problem("hartmann3_21")
    X = initial_points(problem, DATA, 0, seed)
    noise = torch.from_numpy(stream(0, "noise", seed).standard_normal(DATA))
    Y = problem.f(X) + math.sqrt(problem.noise_var) * noise
    surrogate = Surrogate(torch.cat([problem.x_bounds, problem.z_bounds], -1))
    surrogate.fit(X, Y)
    return Round(problem, surrogate, X, Y, 91)


def acquisition() -> None:
    """One acquisition optimised: V-UCB against MC VaR and against rhoKG^apx."""
    states = [state(seed) for seed in range(STATES)]

    def proposed(method: Method, now: Round) -> Callable[[], None]:
        def work() -> None:
            torch.manual_seed(0)
            method.propose(now)

        return work

    for conditions, target in ((100, ">= 5"), (32, None)):
        methods = (VUCB(**MC_SEARCH), MCVaR(**MC_SEARCH, samples=128, scenarios=conditions))
        times = [medians(REPEATS, *(proposed(m, now) for m in methods)) for now in states]
        ours, theirs = (statistics.fmean(column) for column in zip(*times, strict=True))
        detail: dict[str, Any] = {
            **MC_SEARCH,
            "data": DATA,
            "conditions": conditions,
            "seconds": ours,
            "mc_seconds": theirs,
        }
        detail["each"] = [round(b / a, 2) for a, b in times]
        met = None if target is None else theirs / ours >= 5.0
        report(f"v-ucb against mc-var of {conditions} conditions", theirs / ours, "x", target, met, detail)
    for conditions in (100, 16):
        size = {"fantasies": 4, "samples": 10, "scenarios": conditions}
        rival = optimised(RhoKG(**KG_SEARCH, **size), states[0])
        mine, his = cpu_times(REPEATS, proposed(VUCB(**KG_SEARCH), states[0]), rival)
        detail = {**KG_SEARCH, **size, "data": DATA}
        report_ratio(f"v-ucb against rho-kg-apx of {conditions} conditions", his, mine, 50.0, detail)
    gradients(states[0])


def gradients(now: Round) -> None:
    """One evaluation of 64 designs with its gradient, which is what an optimisation is made of."""
    X = torch.rand(64, 1, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))

    def evaluated(acquisition: AcquisitionFunction) -> Callable[[], Tensor]:
        def work() -> Tensor:
            x = X.clone().requires_grad_(True)
            return torch.autograd.grad(acquisition(x).sum(), x)[0]

        return work

    works = [VUCB().acquisition(now), MCVaR(scenarios=100).acquisition(now), MCVaR(scenarios=32).acquisition(now)]
    ours, *theirs = medians(9, *(evaluated(work) for work in works))
    for conditions, s in zip((100, 32), theirs, strict=True):
        detail = {"seconds": ours, "mc_seconds": s}
        report(
            f"64 designs with gradient, against mc-var of {conditions} conditions", s / ours, "x", None, None, detail
        )


def optimised(method: RhoKG, now: Round) -> Callable[[], None]:
    """One knowledge gradient made and optimised, in slices of two points that fit into the memory."""

    def work() -> None:
        torch.manual_seed(0)
        method.maximised(_InSlices(method.acquisition(now), 2), now.surrogate.bounds)

    return work


class _InSlices(AcquisitionFunction):
    def __init__(self, inner: AcquisitionFunction, size: int) -> None:
        super().__init__(inner.model)
        self.inner, self.size = inner, size

    def forward(self, X: Tensor) -> Tensor:
        return torch.cat([self.inner(part) for part in X.split(self.size)])


def quantile() -> None:
    """Weighted quantile and its gradient, 4096 x 256, against the code one writes first."""
    torch.manual_seed(0)
    values = torch.randn(4096, 256, dtype=torch.float64, requires_grad=True)
    weights = torch.rand(256, dtype=torch.float64)
    weights = weights / weights.sum()

    def ours() -> Tensor:
        return torch.autograd.grad(weighted_quantile(values, weights, 0.1).sum(), values)[0]

    def theirs() -> Tensor:
        ordered, order = values.sort(-1)
        place = (weights[order].cumsum(-1) < 0.1).sum(-1, keepdim=True)
        return torch.autograd.grad(ordered.gather(-1, place).sum(), values)[0]

    assert torch.equal(ours(), theirs())
    ours_s, theirs_s = medians(9, ours, theirs)
    ratio = theirs_s / ours_s
    detail = {"seconds": ours_s, "sort_seconds": theirs_s}
    report("weighted quantile and gradient, 4096 x 256, against sort", ratio, "x", ">= 1.2", ratio >= 1.2, detail)


def regret(path: Path | None) -> None:
    """Final log10 regret of V-UCB Prob against rhoKG^apx, and against MC VaR, on the problems of a run."""
    if path is None:
        raise SystemExit(
            "--only regret needs --results DIR/summary.json of a run of configs/value_at_risk/discrete.yaml"
        )
    panels = json.loads(path.read_text(encoding="utf-8"))["panels"]
    for rival, target in (("RHO-KG-APX", ">= 3"), ("MC-VAR", None)):
        lower, detail = 0, {}
        for panel in panels:
            ours, theirs = (panel["methods"][label]["final"] for label in ("V-UCB-PROB", rival))
            a, b = statistics.fmean(ours), statistics.fmean(theirs)
            lower += a < b
            detail[panel["name"]] = [round(a, 3), round(b, 3)]
        met = None if target is None else lower >= 3
        report(
            f"v-ucb-prob: panels of {len(panels)} with lower final log10 regret than {rival.lower()}",
            lower,
            "panels",
            target,
            met,
            detail,
        )


def main() -> None:
    """Run the benchmarks."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", choices=("quantile", "acquisition", "regret"))
    parser.add_argument("--results", type=Path, help="summary.json of configs/value_at_risk/discrete.yaml")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    report("environment", 0, "none", None, None, environment())
    if arguments.only in (None, "quantile"):
        quantile()
    if arguments.only in (None, "acquisition"):
        acquisition()
    if arguments.only == "regret" or arguments.results is not None:
        regret(arguments.results)


if __name__ == "__main__":
    main()
