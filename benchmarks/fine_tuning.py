"""Whether the worst users are served better: ``python -m benchmarks.fine_tuning [--summary]``.

The problem is ``fine_tuning``. An evaluation is one training run of x for one of 64 users, with luck of its own. After
20 random ones and 30 chosen ones a method recommends an x that it tried. What counts is the accuracy of that x, mean
over the worst 10 % of 128 other users, and over 4 training runs of each. Every repetition has its own split, network
and users, the same for all methods.

One JSON line for each method and repetition is appended; lines that are there are not played again.
"""

from __future__ import annotations

import argparse
import statistics
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
from botorch.sampling import SobolQMCNormalSampler
from gpytorch.mlls import ExactMarginalLogLikelihood
from torch import Tensor

from benchmarks.common import environment, report
from benchmarks.grid import Cell, Row, fill, load
from benchmarks.stats import differences
from bo_robust.acquisition import recommend_design
from bo_robust.experiments.conditions.base import ConditionsMethod, Round
from bo_robust.experiments.conditions.methods import VUCB, MCVaR, Random
from bo_robust.experiments.conditions.shared_gp import INSIDE, LENGTHSCALE, MIN_NOISE_VAR, SharedGP, maximised
from bo_robust.experiments.conditions_loop import initial_pairs
from bo_robust.experiments.problems import make_conditions_problem
from bo_robust.experiments.problems.conditions import ConditionsProblem
from bo_robust.experiments.problems.conditions.fine_tuning import users
from bo_robust.functionals import CVaR, Functional, Mean, ValueAtRisk

ROUNDS, REFIT_EVERY = 30, 3
HELD_OUT, HELD_OUT_RUNS = 128, 4
# Numbers of training runs: those of f come first, then one for every evaluation, then those of held-out users.
FIRST_EVALUATION, FIRST_HELD_OUT = 100, 10_000
TAIL, MEAN = CVaR(0.1), Mean()
AIMS: dict[str, Functional] = {"value at risk": ValueAtRisk(0.1), "tail mean": TAIL, "mean": MEAN}


@dataclass(frozen=True, kw_only=True)
class Aimed(VUCB):
    """The upper bound of any functional, with width 2; only the functional differs."""

    aim: Functional = TAIL
    width: float = 2.0

    def functional(self, alpha: float) -> Functional:  # type: ignore[override]
        return self.aim


class PriorGP(SharedGP):
    """Fitted under the priors of BoTorch's ``SingleTaskGP``, on standardised observations."""

    def _fit(self, X: Tensor, Y: Tensor) -> bool:
        shift, scale = Y.mean(), Y.std().clamp_min(0.1) if len(Y) > 1 else Y.new_tensor(1.0)
        transform = Normalize(self.bounds.shape[-1], bounds=self.bounds)
        unit = SingleTaskGP(X, ((Y - shift) / scale).unsqueeze(-1), outcome_transform=None, input_transform=transform)
        unit.covar_module.lengthscale = LENGTHSCALE
        fitted = maximised(unit)
        constant, noise_var = unit.mean_module.constant.detach(), unit.likelihood.noise.detach()
        noise_var = (scale.square() * noise_var).clamp_min(INSIDE * MIN_NOISE_VAR)
        self._set(shift + scale * constant, scale.square(), noise_var, unit.covar_module.lengthscale.detach())
        return fitted


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
METHODS: dict[str, ConditionsMethod] = {
    **{name: Aimed(aim=aim, **SEARCH) for name, aim in AIMS.items()},
    "mean, users unseen": Unseen(samples=64, **SEARCH),
    "random": Random(),  # the same GP recommends
    "BoTorch": MCVaR(samples=64, **SEARCH),  # BoTorch's own route; a user drawn at random
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


def played(method: ConditionsMethod, seed: int, device: str, rounds: int) -> tuple[ConditionsProblem, Round]:
    """The problem of a seed, and what a method knows of it after its last round."""
    problem = problem_of(seed, device)
    n = problem.initial
    X = initial_pairs(problem, n, seed, 0)
    luck = FIRST_EVALUATION + torch.arange(n + rounds)
    Y = problem.f.scores(X, luck[:n])  # type: ignore[attr-defined]
    surrogate = PriorGP(torch.cat([problem.x_bounds, problem.z_bounds], -1))
    for r in range(rounds):
        if r % REFIT_EVERY == 0:
            surrogate.fit(X, Y)
        torch.manual_seed(1000 * seed + r)
        point = method.propose(Round(problem, surrogate, X, Y, r + 1)).point.unsqueeze(0)
        X, Y = torch.cat([X, point]), torch.cat([Y, problem.f.scores(point, luck[n + r : n + r + 1])])  # type: ignore[attr-defined]
    surrogate.fit(X, Y)
    return problem, Round(problem, surrogate, X, Y, rounds + 1)


def recommended(method: ConditionsMethod, now: Round, aim: str) -> Tensor:
    """The design ``3`` of largest posterior mean of an aim among those tried; "none": the first, which was random."""
    if aim == "none":
        return now.designs[0]
    if isinstance(method, Unseen):
        return now.designs[method.model_of(now).posterior(now.designs).mean.argmax()]
    with torch.no_grad():
        model = now.gp.model(now.X, now.Y)
        return recommend_design(model, now.problem.environment, AIMS[aim], now.designs).x


def play(methods: list[str], seeds: range, out: Path, device: str, rounds: int = ROUNDS) -> None:
    """Play what is missing."""

    def work(cell: Cell) -> Row:
        name, seed = cell
        began = time.process_time()
        problem, now = played(METHODS[name], seed, device, rounds)
        aims = [aim for whose, aim in ENTRIES.values() if whose == name]
        found = {aim: recommended(METHODS[name], now, aim) for aim in aims}
        scores = held_out(problem, seed, torch.stack(list(found.values())))
        row: Row = {"rounds": rounds, "x": {}, "tail": {}, "mean": {}}
        for (aim, x), score in zip(found.items(), scores, strict=True):
            row["x"][aim] = [round(v, 4) for v in x.tolist()]
            row["tail"][aim], row["mean"][aim] = (round(float(F(score)), 5) for F in (TAIL, MEAN))
        return row | {"seconds": round(time.process_time() - began, 2)}

    fill(((name, seed) for seed in seeds for name in methods), ("method", "seed"), work, out)


def summarise(path: Path) -> None:
    """Print scores and paired differences, value at risk less the others; draw the differences in the tail."""
    lines = {(line["method"], line["seed"]): line for line in load(path)}
    scores = {
        label: {seed: (line["tail"][aim], line["mean"][aim]) for (name, seed), line in lines.items() if name == method}
        for label, (method, aim) in ENTRIES.items()
    }
    figure, ax = plt.subplots(figsize=(9, 3.6), layout="constrained")
    for y, (label, theirs) in enumerate(scores.items()):
        seeds = sorted(set(theirs) & set(scores[OURS]))
        if not seeds:
            continue
        detail: dict[str, Any] = {"repetitions": len(seeds)}
        gaps = {}
        for i, what in enumerate(("tail", "mean")):
            ours, other = ([of[seed][i] for seed in seeds] for of in (scores[OURS], theirs))
            gaps[what] = differences(ours, other)
            detail[what] = {
                "score": round(statistics.fmean(other), 4),
                "value at risk less this": [round(v, 4) for v in gaps[what].mean_interval()],
            }
        better = bool(detail["tail"]["value at risk less this"][1] > 0.0 and len(seeds) >= LEAST)
        target, met = (REACH, better) if label in RIVALS else (None, None)
        report(f"held-out worst 10 %: {label}", detail["tail"]["score"], "accuracy", target, met, detail)
        if label != OURS:
            mean, _, high = gaps["tail"].mean_interval()
            ax.plot(gaps["tail"].values, [y] * len(seeds), "o", color="C0", alpha=0.3, markersize=4)
            ax.errorbar(mean, y, xerr=high - mean, fmt="D", color="C3", markersize=5, capsize=4)
    ax.axvline(0.0, color="black", linewidth=0.8)
    ax.set_yticks(range(1, len(scores)), list(scores)[1:])
    ax.invert_yaxis()
    ax.set(xlabel="held-out accuracy in the worst 10 %: value at risk less the method named; right: better")
    ax.grid(axis="x", alpha=0.3)
    figure.savefig(path.with_suffix(".png"), dpi=110)


def main() -> None:
    """Play, and summarise."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--summary", action="store_true", help="of the lines so far; nothing is played")
    parser.add_argument("--methods", help="labels, separated by ';'; default all")
    parser.add_argument("--first", type=int, default=0, help="the first repetition")
    parser.add_argument("--repetitions", type=int, default=20, help="one more than the last repetition")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/value_at_risk"), help="a folder")
    parser.add_argument("--quick", action="store_true", help="one repetition of two rounds")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # of searches that stop at a kink, and of jitter
    lines = arguments.out / ("fine_tuning_quick.jsonl" if arguments.quick else "fine_tuning.jsonl")
    report("environment", 0, "none", None, None, environment())
    seeds = range(arguments.first, arguments.first + 1 if arguments.quick else arguments.repetitions)
    if not arguments.summary:
        methods = arguments.methods.split(";") if arguments.methods else list(METHODS)
        play(methods, seeds, lines, arguments.device, 2 if arguments.quick else ROUNDS)
    summarise(lines)


if __name__ == "__main__":
    main()
