"""Robust methods composed: ``python -m benchmarks.compositions [PART ...] [--repetitions N]``, an hour for 20 pairs.

Some of the readings are wrong, by 10 standard deviations of f to the bad side.

- ``value_at_risk``: V-UCB, 40 readings of which 2 are wrong, over a ``SingleTaskGP`` or a ``RobustGP``. log10 regret of
  ``recommend_design``, mean of every fifth reading.
- ``unknown_kernel``: 30 readings of which 2 are wrong, of a GP sample whose lengthscale is one of four.
  ``EliminationUCB`` over an ensemble of all readings, or of the inliers of a ``RobustGP``; ``GPUCB`` over that
  ``RobustGP``. Regret in standard deviations of f.
- ``many``: 2,000 readings of which 100 are wrong. ``BKBModel`` of all, or of the inliers that ``RobustGP`` finds in
  four blocks of 500 neighbors; ``TruncatedFeatureGP`` of all. RMSE at new points, in standard deviations of f.

Each part runs without wrong readings as well. Compared are pairs of equal f, noise and seeds.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from botorch.models import SingleTaskGP
from botorch.models.transforms import Normalize, Standardize
from botorch.optim import optimize_acqf
from botorch.test_functions import Hartmann
from gpytorch.kernels import RBFKernel
from torch import Tensor

from benchmarks.common import options, report, report_environment
from benchmarks.stats import differences
from bo_robust import GPUCB, BKBModel, CandidateEnsemble, NystromMap, RobustGP, TruncatedFeatureGP, ValueAtRiskUCB
from bo_robust.acquisition import EliminationUCB, eliminate, recommend_design
from bo_robust.confidence import ConstantWidth
from bo_robust.confidence.reward_moments import propose_constants
from bo_robust.confidence.truncation import ATANystromTruncation
from bo_robust.experiments.botorch_methods import fitted
from bo_robust.experiments.problems import make_conditions_problem
from bo_robust.experiments.problems.conditions.base import regret
from bo_robust.models import candidate_grid
from bo_robust.utils.random import stream

SHIFT = -10.0  # of a wrong reading, in standard deviations of f
FLOOR = 1e-3  # in logarithms, regrets of the value at risk below count as this much
WIDTH = 2.0
RISKS = ("branin", "goldstein_price")
LENGTHSCALES = (0.05, 0.1, 0.2, 0.4)
problem_of = functools.cache(make_conditions_problem)


def errors(draws: np.random.Generator, n: int, wrong: int, noise: float, shift: float) -> Tensor:
    """Noise ``n x 1``, and the shift at ``wrong`` of the readings."""
    error = noise * draws.standard_normal((n, 1))
    error[draws.permutation(n)[:wrong]] += shift
    return torch.from_numpy(error)


def value_at_risk(method: str, wrong: bool, repetition: int) -> float:
    """Mean log10 regret of the recommendations."""
    n, name = 40, RISKS[repetition % len(RISKS)]
    problem, draws = problem_of(name), stream(0, f"value at risk, {name}", repetition)
    designs = torch.linspace(0, 1, 64, dtype=torch.float64).unsqueeze(-1)  # both problems are over [0, 1]
    spread = float(problem.f(problem.environment.points(designs)).std())
    error = errors(draws, n, 2, math.sqrt(problem.noise_var), SHIFT * spread * wrong)
    z, box = problem.environment.z, torch.cat([problem.x_bounds, problem.z_bounds], -1)
    start = torch.from_numpy(draws.random((problem.initial, 1)))
    XZ = torch.cat([start, z[torch.from_numpy(draws.integers(len(z), size=problem.initial))]], -1)
    kind, found = {"SingleTaskGP": SingleTaskGP, "RobustGP": RobustGP}[method], []
    while True:
        Y = problem.f(XZ).unsqueeze(-1) + error[: len(XZ)]
        # Points are given in the units of the problem.
        model = fitted(kind(XZ, Y, input_transform=Normalize(XZ.shape[-1], bounds=box)))
        if len(XZ) % 5 == 0:
            best = recommend_design(model, problem.environment, problem.alpha, XZ[:, :1]).x
            found.append(math.log10(max(float(regret(problem, best)), FLOOR)))
        if len(XZ) == n:
            return float(np.mean(found))
        acquisition = ValueAtRiskUCB(model, problem.environment, problem.alpha, width=WIDTH)
        x, _ = optimize_acqf(acquisition, problem.x_bounds, q=1, num_restarts=4, raw_samples=64)
        XZ = torch.cat([XZ, acquisition.select_condition(x).point])


def unknown_kernel(method: str, wrong: bool, repetition: int) -> float:
    """Regret of the arm of largest posterior mean after the last reading."""
    n, draws = 30, stream(0, "unknown kernel", repetition)
    arms = torch.linspace(0, 1, 201, dtype=torch.float64).unsqueeze(-1)
    kernel = RBFKernel().double()
    kernel.lengthscale = LENGTHSCALES[repetition % len(LENGTHSCALES)]
    root = torch.linalg.cholesky(kernel(arms).to_dense().detach() + 1e-8 * torch.eye(len(arms), dtype=arms.dtype))
    f = root @ torch.from_numpy(draws.standard_normal((len(arms), 1)))
    f = (f - f.mean()) / f.std()
    error = errors(draws, n, 2, 0.1, SHIFT * wrong)
    priors = [prior for ell in LENGTHSCALES for prior in candidate_grid(lengthscale=ell, noise_var=0.01)]
    chosen = draws.permutation(len(arms))[:3].tolist()
    while True:
        X, Y = arms[chosen], f[chosen] + error[: len(chosen)]
        model: Any = None
        if method != "all":
            model = fitted(RobustGP(X, Y))
        if method != "RobustGP":
            inlier = slice(None) if model is None else model.inlier_mask
            model = CandidateEnsemble(X[inlier], Y[inlier], priors, outcome_transform=Standardize(m=1))
        if len(chosen) == n:
            return float(f.max() - f[model.posterior(arms).mean.argmax()])
        if method == "RobustGP":
            acquisition: Any = GPUCB(model, ConstantWidth(WIDTH))
        else:
            acquisition = EliminationUCB(model, eliminate(model, "likelihood"))
        with torch.no_grad():
            chosen.append(int(acquisition(arms.unsqueeze(-2)).argmax()))


def many(method: str, wrong: bool, repetition: int) -> float:
    """RMSE of the posterior mean at 1,000 new points."""
    n, draws, f = 2000, stream(0, "many", repetition), Hartmann(dim=3, negate=True)
    X, new = (torch.from_numpy(draws.random((k, 3))) for k in (n, 1000))
    spread = float(f(new).std())
    Y = f(X).unsqueeze(-1) + errors(draws, n, n // 20, 0.1 * spread, SHIFT * spread * wrong)
    model: Any
    if method == "TruncatedFeatureGP":
        found = propose_constants(Y.flatten())
        Y = (Y - found.center) / found.scale
        level = ATANystromTruncation(found.moment_bound, found.alpha, delta=0.1, horizon=n, num_features=200)
        model = fitted(TruncatedFeatureGP(X, Y, NystromMap(size=200), level, noise_var=found.noise_var))
        mean = found.center + found.scale * model.posterior(new).mean
    else:
        inlier = torch.ones(n, dtype=torch.bool)
        if method == "inliers":
            for rows in neighbors(X, 500):
                inlier[rows] = fitted(RobustGP(X[rows], Y[rows])).inlier_mask
        mean = fitted(BKBModel(X[inlier], Y[inlier])).posterior(new).mean
    return float((mean.flatten() - f(new)).square().mean().sqrt() / spread)


def neighbors(X: Tensor, size: int) -> list[Tensor]:
    """Rows in blocks of at most ``size``, by halving at the median of the widest coordinate."""

    def halved(rows: Tensor) -> list[Tensor]:
        if len(rows) <= size:
            return [rows]
        widest = (X[rows].amax(0) - X[rows].amin(0)).argmax()
        ordered, half = rows[X[rows, widest].argsort()], len(rows) // 2
        return halved(ordered[:half]) + halved(ordered[half:])

    return halved(torch.arange(len(X)))


# By part: what is measured, its unit, and pairs of methods.
PARTS: dict[str, tuple[Callable[[str, bool, int], float], str, list[tuple[str, str]]]] = {
    "value_at_risk": (value_at_risk, "log10 regret", [("RobustGP", "SingleTaskGP")]),
    "unknown_kernel": (unknown_kernel, "regret", [("inliers", "all"), ("inliers", "RobustGP")]),
    "many": (many, "RMSE", [("inliers", "all"), ("inliers", "TruncatedFeatureGP")]),
}


def main() -> None:
    """Run the parts, and report paired differences."""
    given = options(__doc__, PARTS, repetitions=20)
    report_environment()
    for part in given.parts or PARTS:
        measure, unit, pairs = PARTS[part]
        for wrong in (True, False):
            values: dict[str, list[float]] = {}
            for method in dict.fromkeys(method for pair in pairs for method in pair):
                values[method] = []
                for repetition in range(given.repetitions):
                    torch.manual_seed(repetition)
                    values[method].append(measure(method, wrong, repetition))
            for ours, theirs in pairs:
                mean, low, high = differences(values[ours], values[theirs]).mean_interval()
                detail = {"95 %": [round(low, 3), round(high, 3)], "pairs": given.repetitions}
                detail |= {method: round(float(np.mean(values[method])), 4) for method in (ours, theirs)}
                words = "wrong readings" if wrong else "clean"
                report(f"{part}, {words}: {ours} less {theirs}", round(mean, 4), unit, detail)


if __name__ == "__main__":
    main()
