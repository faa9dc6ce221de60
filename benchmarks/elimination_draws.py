# mypy: ignore-errors
"""Draws of hyperparameters as candidates of elimination by likelihood: ``python -m benchmarks.elimination_draws``.

The worlds are those of ``benchmarks/elimination_wins.py`` (commit 040b3fd), on trials 200 onwards of seed 0: (f) is not
among them, whose sensors have no coordinates to put a lengthscale on. MLE, "likeliest", is over the U that the world
names. Draws know no U: 16 are drawn after the initial design and after 5, 10, 20, 40 and 80 rewards, for points of the
unit box and standardised rewards (over TGP-UCB winsorised at 3 normalised MAD, and in units of the rewards). They are
played by elimination by likelihood, by the likeliest of them, and by their mean bound (ExpectedUCB). Rewards, designs
and widths are the same for all. One JSON line for a world, form and trial; lines that are there are not played again.
"""

import argparse
import dataclasses
import functools
import math
import os
import warnings
from pathlib import Path

import torch
from torch import Tensor

from benchmarks.common import ROOT, environment, report
from benchmarks.grid import Cell, Row, load, play
from benchmarks.stats import differences
from bo_robust.algorithms import HEGPUCB, TGPUCB, VUCB, ArmAlgorithm, ExpectedUCB
from bo_robust.algorithms.he_stable_opt import HEStableOpt
from bo_robust.confidence import BayesianFiniteWidth, Width
from bo_robust.covariance import SquaredExponential
from bo_robust.experiments import files
from bo_robust.experiments.arm_loop import draw_chunk
from bo_robust.experiments.build import build_algorithm, build_problem
from bo_robust.experiments.problems import make_conditions_problem
from bo_robust.experiments.problems.rewards import Gaussian, RareSpikes, StudentT
from bo_robust.functionals import ValueAtRisk, WorstCase
from bo_robust.models.candidate_gps import units
from bo_robust.models.hyperparameter_draws import draw_hyperparameters
from bo_robust.posteriors.arms import ArmKernel
from bo_robust.random import stream
from bo_robust.truncation import TGPTruncation

FIRST, DELTA, ROUNDS, NOISE_VAR, REDRAWN = 200, 0.1, 50, 0.01, (5, 10, 20, 40, 80)
LENGTHSCALES = (0.05, 0.1, 0.2, 0.4, 0.8)
FORMS = ("likeliest", "draws, likelihood", "draws, likeliest", "draws, expected")
PUBLISHED = ("lengthscale", "period", "decomposition", "mean")
NAMES = ("world", "form", "trial")


@dataclasses.dataclass(frozen=True)
class World:
    """One trial on ``n`` arms ``X`` of the unit box: f and regret ``n``, noise and uniforms ``T``, a design ``k``."""

    X: Tensor
    kernels: Tensor  # h x n x n, of the named candidates
    f: Tensor
    regret: Tensor
    noise: Tensor
    uniforms: Tensor
    design: Tensor
    width: Width
    noise_var: float = NOISE_VAR
    prior_means: Tensor | None = None
    base: ArmAlgorithm | None = None
    conditions: int = 1


def drawn(world: World, arms: list[int], rewards: Tensor) -> tuple[ArmKernel, Tensor, Tensor, tuple[float, float]]:
    """Kernels, noise variances and means of draws, and the shift and scale that rewards are to be given in."""
    raw, y = isinstance(world.base, TGPUCB), rewards
    if raw:
        reach = 3.0 * 1.4826 * (y - y.median()).abs().median()
        y = y.clamp(y.median() - reach, y.median() + reach)
    shift, scale = (float(u) for u in units(y))
    lengthscales, noise_var, mean = draw_hyperparameters(world.X[arms], (y - shift) / scale)
    K = torch.stack([(-0.5 * torch.cdist(X, X).square()).exp() for X in (world.X / one for one in lengthscales)])
    means = mean.unsqueeze(1).expand(-1, len(world.X))
    if raw:
        K, noise_var, means, shift, scale = K * scale**2, noise_var * scale**2, shift + scale * means, 0.0, 1.0
    return ArmKernel(K.diagonal(dim1=-2, dim2=-1).clone(), K, world.X), noise_var, means, (shift, scale)


def regret(world: World, form: str) -> float:
    """Mean regret of the rounds that the algorithm chose."""
    draws, rule = form.startswith("draws"), form.split()[-1]
    algorithm: ArmAlgorithm = ExpectedUCB(world.width)
    if rule != "expected" and world.conditions > 1 and world.base is None:
        algorithm = HEStableOpt(world.width, math.sqrt(world.noise_var), DELTA, world.conditions, elimination=rule)
    elif rule != "expected":
        algorithm = HEGPUCB(world.width, math.sqrt(world.noise_var), DELTA, base=world.base, elimination=rule)
    arms, k, T = world.design.tolist(), len(world.design), len(world.noise)
    rewards = world.f[world.design] + world.noise[:k]
    K, state, shift, scale = world.kernels, None, 0.0, 1.0
    for t in range(k, T):
        if state is None or (draws and t in REDRAWN):
            if draws:
                kernel, noise_var, means, (shift, scale) = drawn(world, arms, rewards)
            else:
                kernel = ArmKernel(K.diagonal(dim1=-2, dim2=-1).clone(), K, world.X)
                noise_var, means = torch.full((len(K),), world.noise_var).double(), world.prior_means
            state = algorithm.init(kernel, noise_var, 1, prior_mean=means, rounds=T)
            for i, arm in enumerate(arms):
                observe = algorithm.observe_initial if i < k and rule != "expected" else algorithm.observe
                observe(state, torch.tensor([arm]), (rewards[i : i + 1] - shift) / scale, world.uniforms[i : i + 1])
            if rule == "expected":
                state.posterior.evidence.zero_()  # the draws have seen these rewards
        arm = algorithm.select(state, world.uniforms[t : t + 1]).arms
        reward = world.f[arm] + world.noise[t]
        algorithm.observe(state, arm, (reward - shift) / scale, world.uniforms[t : t + 1])
        arms, rewards = [*arms, int(arm)], torch.cat([rewards, reward])
    return float(world.regret[arms[k:]].mean())


@functools.lru_cache(maxsize=1)
def worlds(trial: int) -> dict[str, World]:
    """All worlds, of one trial."""
    line = torch.linspace(0.0, 1.0, 201, dtype=torch.float64).unsqueeze(1)
    axis, twelve = (torch.linspace(0.0, 1.0, n, dtype=torch.float64) for n in (21, 12))
    square, pairs = torch.cartesian_prod(axis, axis), torch.cartesian_prod(twelve, twelve, twelve)
    rng = stream(0, "problem", trial)
    at = torch.from_numpy(0.6 + 0.35 * rng.random(2))
    bump = (-0.5 * (line - at[:1]).square().sum(1) / 0.05**2).exp()
    bump2 = (-0.5 * (square - at).square().sum(1) / 0.1**2).exp()
    values, vectors = torch.linalg.eigh(SquaredExponential(LENGTHSCALES[trial % 5])(line, line))
    normal = torch.from_numpy(stream(0, "problem", trial).standard_normal(201))
    f = vectors @ (values.clamp(min=0.0).sqrt() * normal)
    small, spiky = Gaussian(NOISE_VAR), RareSpikes(10.0, 0.05, NOISE_VAR)
    tgp = TGPUCB(BayesianFiniteWidth(201, DELTA, scale=5**-0.5), TGPTruncation(2.0, 1.0))

    def made(X, f, noise=small, start=None, base=None, scale=1.0, **more) -> World:  # type: ignore[no-untyped-def]
        allowed = torch.arange(len(X)) if start is None else start.nonzero().squeeze(1)
        return World(
            X,
            torch.stack([SquaredExponential(ell)(X, X) for ell in LENGTHSCALES]),
            f,
            more.pop("regret", f.max() - f),
            scale * torch.from_numpy(noise.draw(stream(0, "reward", trial), ROUNDS + 5)[:, 0]),
            torch.from_numpy(stream(0, "algorithm", trial).random(ROUNDS + 5)),
            allowed[torch.from_numpy(stream(0, "initial", trial).integers(len(allowed), size=5))],
            BayesianFiniteWidth(len(X), DELTA, scale=5**-0.5),
            base=base,
            **more,
        )

    found = {
        "design where f is flat, line": made(line, bump, start=line[:, 0] < 0.4),
        "design where f is flat, square": made(square, bump2, start=square.amax(1) < 0.5),
        "the same line, 5 % spikes, over TGP-UCB": made(line, bump, spiky, line[:, 0] < 0.4, tgp),
        "draws from U": made(line, f),
        "draws from U, design on 1/5 of the line": made(line, f, start=line[:, 0] < 0.2),
        "draws from U, noise 3 x that told": made(line, f, Gaussian(9 * NOISE_VAR)),
        "draws from U, noise 1/3 of that told": made(line, f, Gaussian(NOISE_VAR / 9)),
        "draws from U, 5 % spikes, over TGP-UCB": made(line, f, spiky, base=tgp),
        "draws from U, Student-t 2.1 / 5, over TGP-UCB": made(line, f, StudentT(2.1), base=tgp, scale=0.2),
    }
    hartmann = make_conditions_problem("hartmann3_21")
    p, g = torch.softmax(-0.5 * ((twelve - 0.5) / 0.1) ** 2, 0), hartmann.f(pairs)
    risk = VUCB(BayesianFiniteWidth(len(pairs), DELTA, scale=5**-0.5), 0.1, len(twelve), tuple(p.tolist()))
    for name, functional, base in (
        ("value at risk over V-UCB", ValueAtRisk(0.1), risk),
        ("worst case, StableOpt", WorstCase(), None),
    ):
        value = functional(g.view(-1, 12), p).repeat_interleave(12)
        plain = made(
            pairs, g, Gaussian(hartmann.noise_var), base=base, regret=value.max() - value,
            noise_var=hartmann.noise_var, conditions=12,
        )  # fmt: skip
        for low in (1, 0):
            found[f"{name}, U from {LENGTHSCALES[low]:g}"] = dataclasses.replace(plain, kernels=plain.kernels[low:])
    data = os.environ.get("BO_ROBUST_DATA")
    for name in PUBLISHED:
        for panel in files.load_config(ROOT / "configs" / "unknown_hyperparameters" / f"{name}.yaml").panels:
            problem = build_problem(panel, [trial], data and Path(data), torch.device("cpu"))
            noise, uniforms = draw_chunk(problem, [trial], panel.seed, 0)
            known, T = problem.candidates, panel.horizon
            kernels = problem.kernel.expand(len(known.names), -1, -1) if known.kernels is None else known.kernels
            low, high = problem.arms.amin(0), problem.arms.amax(0)
            design = stream(panel.seed, "initial", trial).integers(problem.num_arms, size=panel.initial or 0)
            for method in panel.methods:
                if method.name == "he-gp-ucb":
                    found[f"{panel.name}, {method.label}"] = World(
                        (problem.arms - low) / (high - low),
                        kernels,
                        problem.f[0],
                        problem.f[0].max() - problem.f[0],
                        noise[:T, 0, 0],
                        uniforms[:T, 0],
                        torch.from_numpy(design),
                        build_algorithm(method, panel, problem).width,
                        problem.noise_var,
                        known.prior_means,
                    )
    return found


def work(cell: Cell) -> Row:
    """One form in one world."""
    name, form, trial = cell
    with torch.inference_mode(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of candidates that are the same
        return {"regret": round(regret(worlds(trial)[name], form), 6)}


def summarise(path: Path) -> None:
    """Every form against MLE: mean regret and paired difference, over that of MLE."""
    rows = {tuple(row[name] for name in NAMES): row["regret"] for row in load(path)}
    ratios: dict[str, dict[str, float]] = {form: {} for form in FORMS[1:]}
    for name in dict.fromkeys(key[0] for key in rows):
        for form in FORMS[1:]:
            trials = [t for w, f, t in rows if (w, f) == (name, form) and (name, FORMS[0], t) in rows]
            if len(trials) < 2:
                continue
            ours, theirs = ([rows[name, f, t] for t in trials] for f in (form, FORMS[0]))
            mle = sum(theirs) / len(theirs)
            mean, low, _ = differences(ours, theirs).mean_interval()
            ratios[form][name] = 1.0 + mean / mle
            detail = {"trials": len(trials), "MLE": round(mle, 4), "half": round((mean - low) / mle, 3)}
            report(f"{name}: {form} over MLE", ratios[form][name], "ratio of regrets", None, None, detail)
    for form, found in ratios.items():
        worse, wins = sum(r > 1.1 for r in found.values()), sum(r <= 0.7 for r in found.values())
        detail = {"worlds": len(found), "better by 30 %": wins}
        report(f"{form}: worlds worse than MLE by more than 10 %", worse, "worlds", "0", not worse, detail)


def main() -> None:
    """Play what is missing, trial by trial, then summarise."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--trials", type=int, default=50)
    parser.add_argument(
        "--pairs", type=int, default=10, help="trials of worlds with conditions and of (c), which are slow"
    )
    parser.add_argument("--out", type=Path, required=True, help="file of the cells")
    parser.add_argument("--summary", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    report("environment", 0, "none", None, None, environment())
    for i in range(0 if options.summary else options.trials):
        for name, world in worlds(FIRST + i).items():
            slow, plain = len(world.X) > 1000, world.base is None and world.conditions == 1
            forms = [f for f in FORMS if plain or not f.endswith("expected")]
            if i < options.pairs or not slow:
                cells = [(name, form, FIRST + i) for form in forms]
                for row in play(cells, NAMES, work, options.out):
                    if "error" in row:
                        report("failed cell", 0.0, "none", None, None, row)
    summarise(options.out)


if __name__ == "__main__":
    main()
