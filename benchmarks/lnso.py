"""LNSO (``bo_robust.acquisition.lnso``): starts batched or one by one, and against the exact quantile of fixed points.

``python -m benchmarks.lnso [--device cuda]``; one JSON object a line, one thread, about three minutes on a CPU.
Bounds are u = mu + w sigma of a GP fitted to 30 noisy observations of a problem with continuous Z, w of the paper; and
for many conditions, Hartmann-6 as (1, 5): x its fifth input, 200 nearly exact observations, so that the best x is
inside the box.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from botorch.optim import optimize_acqf
from botorch.test_functions import Hartmann
from gpytorch.mlls import ExactMarginalLogLikelihood
from torch import Tensor
from torch.distributions import Normal

from benchmarks.common import environment, report
from benchmarks.stats import LEAST, cpu_times, differences, ratios, report_paired, report_ratio
from bo_robust.acquisition import lnso
from bo_robust.acquisition.value_at_risk import ValueAtRiskUCB
from bo_robust.confidence import FiniteWidth
from bo_robust.environments import ContinuousEnvironment
from bo_robust.experiments.problems import make_conditions_problem

ALPHA = 0.1
# Observations and their noise variance, by problem.
DATA = {"branin": (30, 0.01), "goldstein_price": (30, 0.01), "hartmann6": (200, 1e-4)}
WIDTH = FiniteWidth(num_arms=1, delta=0.1)
STARTS = 64
# Few steps, the same for both, and the paper's minibatches (50 x 10).
STEPS = {"rounds": 2, "fit_steps": 10, "ascent_steps": 10}
QUERY_STARTS = 8
QUERY_SEEDS = range(LEAST)
FIXED, REFERENCE, GRID = 256, 4096, 251


def acquisition(name: str, seed: int, device: torch.device, num_points: int = FIXED) -> ValueAtRiskUCB:
    """V-UCB of the next round on a problem, Z as ``num_points`` fixed points; x and z in unit boxes or within."""
    f, environment_ = problem(name, device, num_points)
    low, high = environment_.bounds
    n, noise_var = DATA[name]
    draws = torch.rand(n, 1 + len(low), generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    noise = torch.randn(n, generator=torch.Generator().manual_seed(seed + 1), dtype=torch.float64)
    X = draws.to(device)
    X[:, 1:] = low + (high - low) * X[:, 1:]
    Y = (f(X) + noise_var**0.5 * noise.to(device)).unsqueeze(-1)
    model = SingleTaskGP(X, Y)
    fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
    return ValueAtRiskUCB(model.eval(), environment_, ALPHA, WIDTH)


def problem(
    name: str, device: torch.device, num_points: int
) -> tuple[Callable[[Tensor], Tensor], ContinuousEnvironment]:
    """f over (x, z) with one x in [0, 1], and N(0.5, 0.125^2) cut at 2 sd for every coordinate of z."""
    if name == "hartmann6":
        hartmann = Hartmann(6, negate=True).to(device, torch.float64)
        f, d_z = (lambda X: hartmann(X[:, [1, 2, 3, 4, 0, 5]])), 5
    else:
        f, d_z = make_conditions_problem(name, z="continuous", device=device).f, 1
    box = torch.tensor([[0.25], [0.75]], dtype=torch.float64, device=device).repeat(1, d_z)
    return f, ContinuousEnvironment(box, Normal(box.new_tensor(0.5), 0.125), num_points=num_points)


def batched_against_sequential(device: torch.device, dtype: torch.dtype, target: float) -> None:
    """The same networks and steps for 64 starts at once and one after the other."""
    bound, environment_ = upper_bound(device, dtype)
    box = torch.tensor([[0.0], [1.0]], dtype=dtype, device=device)
    starts = torch.linspace(0.0, 1.0, STARTS, dtype=dtype, device=device).unsqueeze(-1)

    def batched() -> Tensor:
        return lnso.climb(bound, environment_, box, starts, ALPHA, **STEPS)

    def sequential() -> Tensor:
        one = [lnso.climb(bound, environment_, box, x[None], ALPHA, **STEPS) for x in starts]
        return torch.cat(one)

    together, alone = cpu_times(LEAST, batched, sequential)
    detail = {
        "problem": "branin (1, 1), continuous Z, GP of 30 points",
        "settings": {**STEPS, "num_x": 50, "num_z": 10, "hidden": [lnso.HIDDEN] * 2},
        "batched_s": statistics.median(together),
        "differ_by": float((batched() - sequential()).abs().max()),
        "limit": "what 64 starts cost in arithmetic: 32,000 posterior moments and 64 networks a step",
    }
    name = f"LNSO, {STARTS} starts batched against {STARTS} sequential runs, {str(dtype).removeprefix('torch.')}"
    report_ratio(name, alone, together, target, detail)


def upper_bound(device: torch.device, dtype: torch.dtype) -> tuple[lnso.Bound, ContinuousEnvironment]:
    """u of the first round on branin and its Z. The GP is fitted in float64 whatever the ``dtype``."""
    acqf = acquisition("branin", 0, device)
    assert isinstance(acqf.environment, ContinuousEnvironment)
    box = acqf.environment.bounds.to(dtype)
    environment_ = ContinuousEnvironment(box, Normal(box.new_tensor(0.5), 0.125), num_points=FIXED)
    moved = ValueAtRiskUCB(acqf.model.to(dtype), environment_, ALPHA, WIDTH)
    return (lambda points: moved.bounds_of(points, None, lnso.BLOCK)[1]), environment_


def query(name: str, device: torch.device) -> None:
    """One maximisation of VaR(u(x, Z)) each way; regret in units of f against a grid of x and 4096 points of Z."""
    box = torch.tensor([[0.0], [1.0]], dtype=torch.float64, device=device)
    rows: dict[str, dict[str, list[float]]] = {way: {"seconds": [], "regret": []} for way in ("LNSO", "exact quantile")}
    ranges = []
    for seed in QUERY_SEEDS:
        acqf = acquisition(name, seed, device)
        _, fine = problem(name, device, REFERENCE)
        reference = ValueAtRiskUCB(acqf.model, fine, ALPHA, acqf.width.item())

        def exact(acqf: ValueAtRiskUCB = acqf, seed: int = seed) -> Tensor:
            torch.manual_seed(seed)
            return optimize_acqf(acqf, box, q=1, num_restarts=8, raw_samples=128)[0]

        def local(acqf: ValueAtRiskUCB = acqf, seed: int = seed) -> Tensor:
            return lnso.optimize_lnso(acqf, box, QUERY_STARTS, seed=seed)[0]

        found = {}
        for way, work in (("LNSO", local), ("exact quantile", exact)):
            began = time.perf_counter()
            found[way] = work()
            if device.type == "cuda":
                torch.cuda.synchronize()
            rows[way]["seconds"].append(time.perf_counter() - began)
        with torch.no_grad():
            grid = torch.linspace(0.0, 1.0, GRID, dtype=torch.float64, device=device).view(-1, 1, 1)
            candidates = torch.cat([grid, *(x.view(1, 1, 1) for x in found.values())])
            values = torch.cat([reference(part) for part in candidates.split(16)])
        ranges.append(float(values.max() - values.min()))
        for i, way in enumerate(found):
            rows[way]["regret"].append(float(values.max() - values[GRID + i]))
    detail = {
        "observations": DATA[name][0],
        "range_of_VaR(u)_over_x": ranges,
        "LNSO_settings": {"num_starts": QUERY_STARTS, "rounds": 10, "fit_steps": 200, "ascent_steps": 40},
        "exact_settings": {"points_of_Z": FIXED, "num_restarts": 8, "raw_samples": 128},
    }
    dims = "(1, 5)" if name == "hartmann6" else "(1, 1)"
    for what, paired in (("seconds", ratios), ("regret", differences)):
        compared = paired(rows["LNSO"][what], rows["exact quantile"][what])
        unit = "ratio" if what == "seconds" else "units of f"
        title = f"LNSO against exact quantile over {FIXED} fixed points, {name} {dims}: {what} of a query"
        report_paired(title, compared, unit, detail=detail | {way: row[what] for way, row in rows.items()})


def main() -> None:
    """Both comparisons."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--quick", action="store_true", help="only the starts, without the queries")
    options = parser.parse_args()
    device = torch.device(options.device)
    torch.set_num_threads(1)
    report("environment", 0, "none", None, None, environment())
    batched_against_sequential(device, torch.float64, 7.0)
    batched_against_sequential(device, torch.float32, 11.0)
    if options.quick:
        return
    for name in ("branin", "goldstein_price", "hartmann6"):
        query(name, device)


if __name__ == "__main__":
    main()
