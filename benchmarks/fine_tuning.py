"""Whether the worst users are served better: ``python -m benchmarks.fine_tuning [--part design|play|summary]``.

The problem is ``fine_tuning``. An evaluation is one training run of x for one of 64 users, with luck of its own. After
20 random ones and 30 chosen ones a method recommends an x that it tried. What counts is the accuracy of that x, mean
over the worst 10 % of 128 other users, and over 4 training runs of each. Every repetition has its own split, network
and users, the same for all methods.

``play`` appends one JSON line for each method and repetition; lines that are there are not played again. ``design``
is what the problem was made by, on seeds from 1000: a sweep for the x best on average and in the tail, and how far the
tails of those lie apart that are within 0.03 of the best on average.
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
import numpy as np
import torch
from botorch.acquisition import qLogNoisyExpectedImprovement
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from botorch.models.transforms import Normalize
from botorch.sampling import SobolQMCNormalSampler
from gpytorch.mlls import ExactMarginalLogLikelihood
from torch import Tensor
from torch.quasirandom import SobolEngine

from benchmarks.common import environment, report
from bo_robust.acquisition import recommend_design
from bo_robust.experiments.comparisons import mean_interval
from bo_robust.experiments.problems import make_conditions_problem
from bo_robust.experiments.problems.conditions import ConditionsProblem
from bo_robust.experiments.problems.conditions.fine_tuning import users
from bo_robust.experiments.value_at_risk.base import Method, Round
from bo_robust.experiments.value_at_risk.methods import VUCB, MCVaR, Random
from bo_robust.experiments.value_at_risk.play import initial_points
from bo_robust.experiments.value_at_risk.surrogate import Fitting, Surrogate
from bo_robust.functionals import CVaR, Functional, Mean, ValueAtRisk

ROUNDS, REFIT_EVERY = 30, 3
HELD_OUT, HELD_OUT_RUNS = 128, 4
# Numbers of training runs: those of f come first, then one for every evaluation, then those of held-out users.
FIRST_EVALUATION, FIRST_HELD_OUT = 100, 10_000
DESIGNS, NEAR = 64, 0.03
TAIL, MEAN = CVaR(0.1), Mean()
AIMS: dict[str, Functional] = {"value at risk": ValueAtRisk(0.1), "tail mean": TAIL, "mean": MEAN}


@dataclass(frozen=True, kw_only=True)
class Aimed(VUCB):
    """The upper bound of any functional, with BoTorch's priors and width 2; only the functional differs."""

    aim: Functional = TAIL
    width: float = 2.0
    prior: bool = True

    def functional(self, alpha: float) -> Functional:  # type: ignore[override]
        return self.aim


@dataclass(frozen=True, kw_only=True)
class _Alike(Method):
    """Fitted as :class:`Aimed` is."""

    @property
    def fitting(self) -> Fitting:
        return Fitting(prior=True)


@dataclass(frozen=True, kw_only=True)
class RandomSearch(_Alike, Random):
    """Random x and users; the same GP recommends."""


@dataclass(frozen=True, kw_only=True)
class BoTorch(_Alike, MCVaR):
    """BoTorch's own route to the value at risk; a user drawn at random."""


@dataclass(frozen=True, kw_only=True)
class Unseen(MCVaR):
    """Noisy expected improvement of the mean as one tunes it: a GP over x alone, a user drawn at random."""

    def model_of(self, now: Round) -> SingleTaskGP:
        transform = Normalize(now.problem.dim_x, bounds=now.problem.x_bounds)
        model = SingleTaskGP(now.designs, now.Y.unsqueeze(-1), input_transform=transform)
        fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
        return model

    def acquisition(self, now: Round) -> qLogNoisyExpectedImprovement:
        sampler = SobolQMCNormalSampler(torch.Size([self.samples]))
        return qLogNoisyExpectedImprovement(self.model_of(now), now.designs, sampler, prune_baseline=True)


SEARCH: dict[str, Any] = {"restarts": 2, "raw_samples": 32, "maxiter": 50}
METHODS: dict[str, Method] = {
    **{name: Aimed(aim=aim, **SEARCH) for name, aim in AIMS.items()},
    "mean, users unseen": Unseen(samples=64, **SEARCH),
    "random": RandomSearch(),
    "BoTorch": BoTorch(samples=64, **SEARCH),
}
# Label, whose data, by which aim the design is picked.
ENTRIES = {
    "value at risk": ("value at risk", "value at risk"),
    "mean of the worst 10 %": ("tail mean", "tail mean"),
    "mean": ("mean", "mean"),
    "mean, users unseen": ("mean, users unseen", "mean"),
    "random search": ("random", "value at risk"),
    "a random x": ("random", "none"),
    "BoTorch's value at risk": ("BoTorch", "value at risk"),
    "data for the mean, x by value at risk": ("mean", "value at risk"),
}
OURS, LEAST = "value at risk", 20
REACH = f"value at risk better, 95 % interval apart, {LEAST} repetitions"
RIVALS = ("mean", "mean, users unseen", "random search", "a random x")


@cache
def problem_of(seed: int, device: str) -> ConditionsProblem:
    return make_conditions_problem("fine_tuning", seed=seed, device=device)


def held_out(problem: ConditionsProblem, seed: int, X: Tensor) -> Tensor:
    """Accuracy of designs ``k x 3`` for held-out users, mean over training runs, ``k x 128``."""
    z = users(HELD_OUT, seed, X, "held out")
    rows = torch.cat([X[:, None].expand(-1, len(z), -1), z.expand(len(X), -1, -1)], -1).flatten(0, 1)
    every = (FIRST_HELD_OUT + torch.arange(HELD_OUT_RUNS)).repeat(len(rows))
    scores = problem.f.scores(rows.repeat_interleave(HELD_OUT_RUNS, 0), every)  # type: ignore[attr-defined]
    return scores.reshape(len(X), len(z), HELD_OUT_RUNS).mean(-1)


def played(method: Method, seed: int, device: str, rounds: int) -> tuple[ConditionsProblem, Round]:
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


def recommended(method: Method, now: Round, aim: str) -> Tensor:
    """The design ``3`` of largest posterior mean of an aim among those tried; "none": the first, which was random."""
    if aim == "none":
        return now.designs[0]
    if isinstance(method, Unseen):
        return now.designs[method.model_of(now).posterior(now.designs).mean.argmax()]
    with torch.no_grad():
        model = now.surrogate.model(now.X, now.Y)
        return recommend_design(model, now.problem.environment, AIMS[aim], now.designs).x


def play(methods: list[str], seeds: range, out: Path, device: str, rounds: int = ROUNDS) -> None:
    """Play what is missing."""
    known = {(r["method"], r["seed"]) for r in read(out)}
    for seed in seeds:
        for name in methods:
            if (name, seed) in known:
                continue
            began = time.process_time()
            problem, now = played(METHODS[name], seed, device, rounds)
            aims = [aim for whose, aim in ENTRIES.values() if whose == name]
            found = {aim: recommended(METHODS[name], now, aim) for aim in aims}
            scores = held_out(problem, seed, torch.stack(list(found.values())))
            line: dict[str, Any] = {"method": name, "seed": seed, "rounds": rounds, "x": {}, "tail": {}, "mean": {}}
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
        near = TAIL(known[MEAN(known) >= MEAN(known).max() - NEAR])
        detail["near the best on average"] = {"designs": len(near), "tail": [float(near.min()), float(near.max())]}
        gap = detail["tail mean"]["tail"] - detail["mean"]["tail"]
        report(
            f"design, seed {seed}: held-out tail, x best in the tail less x best on average",
            gap,
            "",
            None,
            None,
            detail,
        )


def read(path: Path) -> list[dict[str, Any]]:
    """The lines so far."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


def summarise(path: Path) -> None:
    """Print scores and paired differences, value at risk less the others; draw the differences in the tail."""
    lines = {(line["method"], line["seed"]): line for line in read(path)}
    scores = {
        label: {seed: (line["tail"][aim], line["mean"][aim]) for (name, seed), line in lines.items() if name == method}
        for label, (method, aim) in ENTRIES.items()
    }
    figure, ax = plt.subplots(figsize=(9, 3.6), layout="constrained")
    for y, (label, theirs) in enumerate(scores.items()):
        seeds = sorted(set(theirs) & set(scores[OURS]))
        if not seeds:
            continue
        table = np.array([[scores[OURS][seed], theirs[seed]] for seed in seeds])
        detail: dict[str, Any] = {"repetitions": len(seeds)}
        for i, what in enumerate(("tail", "mean")):
            mean, low, high = mean_interval(table[:, 0, i] - table[:, 1, i], 0.95)
            detail[what] = {
                "score": round(float(table[:, 1, i].mean()), 4),
                "value at risk less this": [round(float(v), 4) for v in (mean, low, high)],
            }
        better = bool(detail["tail"]["value at risk less this"][1] > 0.0 and len(seeds) >= LEAST)
        target, met = (REACH, better) if label in RIVALS else (None, None)
        report(f"held-out worst 10 %: {label}", detail["tail"]["score"], "accuracy", target, met, detail)
        if label != OURS:
            gaps = table[:, 0, 0] - table[:, 1, 0]
            mean, low, high = mean_interval(gaps, 0.95)
            ax.plot(gaps, np.full(len(gaps), y), "o", color="C0", alpha=0.3, markersize=4)
            ax.errorbar(mean, y, xerr=high - mean, fmt="D", color="C3", markersize=5, capsize=4)
    ax.axvline(0.0, color="black", linewidth=0.8)
    ax.set_yticks(range(1, len(scores)), list(scores)[1:])
    ax.invert_yaxis()
    ax.set(xlabel="held-out accuracy in the worst 10 %: value at risk less the method named; right: better")
    ax.grid(axis="x", alpha=0.3)
    figure.savefig(path.with_suffix(".png"), dpi=110)


def main() -> None:
    """Play, search or summarise."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--part", choices=("design", "play", "summary"), default="play")
    parser.add_argument("--methods", help="labels, separated by ';'; default all")
    parser.add_argument("--first", type=int, default=0, help="the first repetition")
    parser.add_argument("--repetitions", type=int, default=20, help="one more than the last repetition")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/value_at_risk"), help="a folder")
    parser.add_argument("--smoke", action="store_true", help="one repetition of two rounds, and 4 designs")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # of searches that stop at a kink, and of jitter
    lines = arguments.out / ("fine_tuning_smoke.jsonl" if arguments.smoke else "fine_tuning.jsonl")
    report("environment", 0, "none", None, None, environment())
    seeds = range(arguments.first, arguments.first + 1 if arguments.smoke else arguments.repetitions)
    if arguments.part == "design":
        design(seeds, arguments.device, 4 if arguments.smoke else DESIGNS)
        return
    if arguments.part == "play":
        methods = arguments.methods.split(";") if arguments.methods else list(METHODS)
        play(methods, seeds, lines, arguments.device, 2 if arguments.smoke else ROUNDS)
    summarise(lines)


if __name__ == "__main__":
    main()
