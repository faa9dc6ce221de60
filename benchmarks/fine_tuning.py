"""Whether the worst users are served better: ``python -m benchmarks.fine_tuning [--part design|play|summary|smoke]``.

The problem is ``fine_tuning``. An evaluation is one training run of x for one of 64 users, with luck of its own. After
20 random ones and 40 chosen ones a method recommends an x that it tried. What counts is the accuracy of that x, mean
over the worst 10 % of 128 other users, and over 4 training runs of each. Every repetition has its own split, network
and users, the same for all methods.

``play`` appends one JSON line for each method and repetition; lines that are there are not played again. ``design``
is what the problem was made by, on seeds from 1000: a random sweep for the x best on average and the x best in the
tail.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import torch
from botorch.acquisition import qLogNoisyExpectedImprovement
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from botorch.models.transforms import Normalize
from gpytorch.mlls import ExactMarginalLogLikelihood
from torch import Tensor
from torch.quasirandom import SobolEngine

from benchmarks.common import environment, report
from bo_robust.acquisition import recommend
from bo_robust.experiments.comparisons import mean_interval
from bo_robust.experiments.problems.value_at_risk import ValueAtRiskProblem, make
from bo_robust.experiments.problems.value_at_risk.fine_tuning import users
from bo_robust.experiments.value_at_risk.base import Method, Round
from bo_robust.experiments.value_at_risk.methods import VUCB, MCVaR, Random
from bo_robust.experiments.value_at_risk.play import initial_points
from bo_robust.experiments.value_at_risk.surrogate import Fitting, Surrogate
from bo_robust.functionals import CVaR, Functional, Mean, ValueAtRisk

ROUNDS, REFIT_EVERY = 40, 3
HELD_OUT, HELD_OUT_RUNS = 128, 4
# Numbers of training runs: those of f come first, then one for every evaluation, then those of held-out users.
FIRST_EVALUATION, FIRST_HELD_OUT = 100, 10_000
DESIGN_SEED, DESIGNS = 1000, 96
TAIL, MEAN = CVaR(0.1), Mean()
AIMS: dict[str, Functional] = {"value at risk": ValueAtRisk(0.1), "tail mean": TAIL, "mean": MEAN}


@dataclass(frozen=True, kw_only=True)
class Aimed(VUCB):
    """The upper bound of any functional, with BoTorch's priors and width 2; only the functional differs."""

    aim: Functional = TAIL
    prior: bool = True

    def functional(self, alpha: float) -> Functional:  # type: ignore[override]
        return self.aim


@dataclass(frozen=True, kw_only=True)
class RandomSearch(Random):
    """Random x and users; the same GP recommends."""

    @property
    def fitting(self) -> Fitting:
        return Fitting(prior=True)


@dataclass(frozen=True, kw_only=True)
class Unseen(MCVaR):
    """Noisy expected improvement of the mean as one tunes it: a GP over x alone, a user drawn at random."""

    def model_of(self, now: Round) -> SingleTaskGP:
        transform = Normalize(now.problem.dim_x, bounds=now.problem.x_bounds)
        model = SingleTaskGP(now.designs, now.Y.unsqueeze(-1), input_transform=transform)
        fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
        return model

    def acquisition(self, now: Round) -> qLogNoisyExpectedImprovement:  # type: ignore[override]
        return qLogNoisyExpectedImprovement(self.model_of(now), X_baseline=now.designs, prune_baseline=True)


METHODS: dict[str, Method] = {
    **{name: Aimed(aim=aim) for name, aim in AIMS.items()},
    "mean, users unseen": Unseen(),
    "random": RandomSearch(),
}


@cache
def problem_of(seed: int, device: str) -> ValueAtRiskProblem:
    return make("fine_tuning", seed=seed, device=device)


def held_out(problem: ValueAtRiskProblem, seed: int, X: Tensor) -> Tensor:
    """Accuracy of designs ``k x 3`` for held-out users, mean over training runs, ``k x 128``."""
    z = users(HELD_OUT, seed, X, "held out")
    rows = torch.cat([X[:, None].expand(-1, len(z), -1), z.expand(len(X), -1, -1)], -1).flatten(0, 1)
    every = (FIRST_HELD_OUT + torch.arange(HELD_OUT_RUNS)).repeat(len(rows))
    scores = problem.f.scores(rows.repeat_interleave(HELD_OUT_RUNS, 0), every)  # type: ignore[attr-defined]
    return scores.reshape(len(X), len(z), HELD_OUT_RUNS).mean(-1)


def played(method: Method, seed: int, device: str, rounds: int) -> tuple[ValueAtRiskProblem, Round]:
    """The problem of a seed, and what a method knows of it after its last round."""
    problem = problem_of(seed, device)
    n = problem.initial_points
    X = initial_points(problem, n, seed, 0)
    luck = FIRST_EVALUATION + torch.arange(n + rounds)
    Y = problem.f.scores(X, luck[:n])  # type: ignore[attr-defined]
    surrogate = Surrogate(torch.cat([problem.x_bounds, problem.z_bounds], -1), method.fitting)
    for r in range(rounds):
        if r % REFIT_EVERY == 0:
            surrogate.fit(X, Y)
        torch.manual_seed(1000 * seed + r)
        point = method.propose(Round(problem, surrogate, X, Y, r + 1)).point.unsqueeze(0)
        X, Y = torch.cat([X, point]), torch.cat([Y, problem.f.scores(point, luck[n + r : n + r + 1])])  # type: ignore[attr-defined]
    surrogate.fit(X, Y)
    return problem, Round(problem, surrogate, X, Y, rounds + 1)


def recommended(method: Method, now: Round) -> dict[str, Tensor]:
    """The design of largest posterior mean among those tried, for the aim of the method or, if it has none, for each."""
    if isinstance(method, Unseen):
        values = method.model_of(now).posterior(now.designs).mean.squeeze(-1)
        return {"mean": now.designs[values.argmax()]}
    model = now.surrogate.model(now.X, now.Y)
    with torch.no_grad():
        return {name: recommend(model, now.problem.environment, aim, now.designs).x for name, aim in AIMS.items()}


def play(methods: list[str], seeds: range, out: Path, device: str, rounds: int = ROUNDS) -> None:
    """Play what is missing."""
    known = {(r["method"], r["seed"]) for r in read(out)}
    for seed in seeds:
        for name in methods:
            if (name, seed) in known:
                continue
            began = time.process_time()
            problem, now = played(METHODS[name], seed, device, rounds)
            found = recommended(METHODS[name], now)
            if name == "random":  # what one gets without any tuning
                found["none"] = now.designs[0]
            scores = held_out(problem, seed, torch.stack(list(found.values())))
            line = {"method": name, "seed": seed, "rounds": rounds, "x": {}, "tail": {}, "mean": {}}
            for (aim, x), score in zip(found.items(), scores, strict=True):
                line["x"][aim] = [round(v, 4) for v in x.tolist()]
                line["tail"][aim], line["mean"][aim] = (round(float(F(score)), 5) for F in (TAIL, MEAN))
            line["seconds"] = round(time.process_time() - began, 2)
            with out.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")


def design(seeds: range, device: str, designs: int = DESIGNS) -> None:
    """Find the x best for the mean and for the tail on the users, by f; judge both on held-out users."""
    for seed in seeds:
        problem = problem_of(seed, device)
        lower, upper = problem.x_bounds
        X = lower + (upper - lower) * SobolEngine(3, scramble=True, seed=seed).draw(designs).to(lower)
        known = problem.f(problem.environment.points(X))
        best = {name: int(aim(known).argmax()) for name, aim in AIMS.items()}
        scores = held_out(problem, seed, X[list(best.values())])
        detail: dict[str, Any] = {
            name: {"x": X[i].tolist(), "tail": float(TAIL(score)), "mean": float(MEAN(score))}
            for (name, i), score in zip(best.items(), scores, strict=True)
        }
        detail["random"] = {"tail": float(TAIL(known).mean()), "mean": float(known.mean())}
        gap = detail["tail mean"]["tail"] - detail["mean"]["tail"]
        report(f"design, seed {seed}: held-out tail, x best in the tail less x best on average", gap, "", None, None, detail)


def read(path: Path) -> list[dict[str, Any]]:
    """The lines so far."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []
