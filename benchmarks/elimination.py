"""Elimination against a fit, and how often the true candidate stays: ``python -m benchmarks.elimination``.

:func:`wins` plays elimination by likelihood and by errors against the maximum likelihood fit over the same candidates
(MLE: "likeliest"), with one width, f and noise: in every shipped configuration of HE-GP-UCB and HE-StableOpt, and in
settings made here, for conditions under which a fit may fail, or has no reason to. The rule was chosen on seeds 101 to
105 of some of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib import import_module
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from benchmarks.common import options, report, report_environment
from benchmarks.loop import additive, rounds
from benchmarks.loops.arms import run_rounds as run_problem
from benchmarks.loops.arms import start_state
from benchmarks.loops.traces import Traces
from benchmarks.problems.base import CandidatePriors, Problem, Trials
from benchmarks.problems.rewards import Gaussian
from benchmarks.problems.synthetic import even_points, square_root
from benchmarks.statistics import mean_interval
from bo_robust.bandits.elimination_algorithm import EliminationAlgorithm
from bo_robust.bandits.he_gp_ucb import HEGPUCB
from bo_robust.bandits.posteriors.candidates import candidate_kernel
from bo_robust.confidence import BayesianFiniteWidth
from bo_robust.confidence.base import EXPLORING
from bo_robust.utils.covariance import SquaredExponential

CONFIGURATIONS = ("lengthscale", "period", "decomposition", "mean", "temperature", "ball", "conditions")
NOISE_VAR, DELTA, TRIALS = 0.01, 0.1, 50
WIDE = (0.05, 0.1, 0.2, 0.4, 0.8)


def survival() -> None:
    """500 runs of 100 rounds on 100 arms, f from a candidate of {SE} x {.02, .05, .1, .2, .5}, the theorem's width."""
    n, trials, horizon, scales = 100, 500, 100, (0.02, 0.05, 0.1, 0.2, 0.5)
    X = torch.linspace(0, 1, n, dtype=torch.float64).unsqueeze(1)
    kernel = candidate_kernel([SquaredExponential(ell) for ell in scales], X)
    assert kernel.matrix is not None
    g = torch.Generator().manual_seed(1)
    true = torch.randint(len(scales), (trials,), generator=g)
    values, vectors = torch.linalg.eigh(kernel.matrix)
    roots = vectors * values.clamp(min=0.0).sqrt().unsqueeze(1)
    f = torch.einsum("snm,sm->sn", roots[true], torch.randn(trials, n, generator=g, dtype=torch.float64))
    noise = math.sqrt(NOISE_VAR) * torch.randn(horizon, trials, generator=g, dtype=torch.float64)
    own = torch.nn.functional.one_hot(true, len(scales)).bool()
    for form, scale, target in (("errors", 1.0, 0.9), ("errors", EXPLORING, None), ("likelihood", EXPLORING, 0.9)):
        width, kept = BayesianFiniteWidth(n, DELTA, scale=scale), torch.ones_like(own[:, 0])
        algorithm = HEGPUCB(width, math.sqrt(NOISE_VAR), DELTA, elimination=form)
        with torch.inference_mode():
            state = algorithm.init(kernel, NOISE_VAR, trials, rounds=horizon)
            for _ in rounds(algorithm, state, additive(f, noise), torch.zeros_like(noise)):
                kept &= state.posterior.active[own]
        wrong_removed = 1.0 - float(state.posterior.active[~own].double().mean())
        report(
            f"share of {trials} runs in which the true one stays active, by {form}, w = {scale:.3g} of the theorem's",
            float(kept.double().mean()),
            "share",
            {"wrong_removed": round(wrong_removed, 3), "rounds": horizon},
            least=target,
        )


class Setting(NamedTuple):
    """Trials of a problem and the algorithm that eliminates there."""

    seed: int
    name: str
    problem: Problem
    algorithm: EliminationAlgorithm
    horizon: int
    initial: int


def settings(seed: int) -> Iterator[Setting]:
    """Every algorithm that eliminates in the shipped configurations, then the settings made here."""
    for name in CONFIGURATIONS:
        for panel in import_module(f"configs.unknown_hyperparameters.{name}").PANELS:
            panel, cpu = replace(panel, seed=seed), torch.device("cpu")
            problem = panel.built(range(TRIALS), cpu)
            for label, algorithm in panel.made(cpu).methods.items():
                if isinstance(algorithm, EliminationAlgorithm):
                    yield Setting(seed, f"{panel.name}, {label}", problem, algorithm, panel.rounds, panel.initial or 0)
    line = even_points(201)
    square = torch.cartesian_prod(even_points(21)[:, 0], even_points(21)[:, 0])
    yield made("design where f is flat, line", seed, line, bumps(0.05), line[:, 0] < 0.4)
    yield made("design where f is flat, square", seed, square, bumps(0.1), square.amax(1) < 0.5)
    yield made("draws from U", seed, line, draws)
    yield made("draws from U, design on 1/5 of the line", seed, line, draws, line[:, 0] < 0.2)
    yield made("draws from U, noise 3 x the assumed", seed, line, draws, noise_var=9.0 * NOISE_VAR)
    yield made("draws from U, noise 1/3 of the assumed", seed, line, draws, noise_var=NOISE_VAR / 9.0)


def made(
    name: str,
    seed: int,
    X: Tensor,
    draw: Callable[[Trials, Tensor], Tensor],
    start: Tensor | None = None,
    noise_var: float = NOISE_VAR,
) -> Setting:
    """Five points of a design, among ``start`` (bool), then 50 rounds; U is SE kernels of five lengthscales."""
    allowed = torch.ones(len(X), dtype=torch.bool) if start is None else start
    X = torch.cat([X[allowed], X[~allowed]])
    candidates = CandidatePriors.of_lengthscales(WIDE, lambda ell: SquaredExponential(ell)(X, X))
    assert candidates.kernels is not None
    problem = Problem(
        name,
        draw(Trials(range(TRIALS), seed), X),
        candidates.kernels[0],
        Gaussian(noise_var),
        NOISE_VAR,
        arms=X,
        candidates=candidates,
        design_arms=int(allowed.sum()),
    )
    width = BayesianFiniteWidth(len(X), DELTA, scale=EXPLORING)
    return Setting(seed, name, problem, HEGPUCB(width, math.sqrt(NOISE_VAR), DELTA), 55, 5)


def bumps(sd: float) -> Callable[[Trials, Tensor], Tensor]:
    """A Gaussian bump of height 1 in every trial, its center uniform on the upper .6 to .95 of each axis."""

    def draw(trials: Trials, X: Tensor) -> Tensor:
        centers = torch.stack([0.6 + 0.35 * torch.from_numpy(rng.random(X.shape[1])) for rng in trials.streams()])
        return (-0.5 * torch.cdist(centers, X).square() / sd**2).exp()

    return draw


def draws(trials: Trials, X: Tensor) -> Tensor:
    """f from each candidate in turn."""
    roots = [square_root(SquaredExponential(ell)(X, X).numpy()) for ell in WIDE]
    normal = (rng.standard_normal(len(X)) for rng in trials.streams())
    return torch.from_numpy(np.stack([roots[i % len(roots)] @ z for i, z in enumerate(normal)]))


def average_regret(setting: Setting, form: str) -> np.ndarray:
    """Average regret of the rounds that an algorithm with this form of elimination chose, one a trial."""
    problem, algorithm = setting.problem, replace(setting.algorithm, elimination=form)
    traces, rows = Traces(setting.horizon, problem), range(problem.trials)
    state = start_state(algorithm, problem, setting.horizon)
    run_problem(algorithm, problem, rows, setting.seed, traces, state, setting.initial)
    chosen = problem.value.gather(1, traces["arm"][setting.initial :].long().mT)
    return (problem.optimum.unsqueeze(1) - chosen).mean(1).numpy()


def wins(seed: int) -> None:
    """Two lines a setting, then in how many elimination by likelihood is better by 30 %, and worse by 10 %."""
    better, worse = [], []
    for setting in settings(seed):
        regrets = {form: average_regret(setting, form) for form in ("likeliest", "likelihood", "errors")}
        means = {form: float(regret.mean()) for form, regret in regrets.items()}
        mle = means["likeliest"]
        difference, low, high = (
            float(x) for x in mean_interval((regrets["likelihood"] - regrets["likeliest"]) / mle, 0.95)
        )
        detail = {form: round(mean, 4) for form, mean in means.items()} | {"seeds": setting.problem.trials}
        report(f"{setting.name}: likelihood over MLE", 1.0 + difference, "ratio", detail)
        report(f"{setting.name}: errors over MLE", means["errors"] / mle, "ratio")
        interval = {"95 %": [round(low, 4), round(high, 4)]}
        report(f"{setting.name}: difference", difference, "of MLE's regret", interval)
        better += [setting.name] if difference <= -0.3 else []
        worse += [setting.name] if difference > 0.1 else []
    report("settings in which it is better than MLE by 30 % or more", len(better), "settings", {"they": better})
    report("settings in which it is worse than MLE by more than 10 %", len(worse), "settings", {"they": worse})


if __name__ == "__main__":
    given = options(__doc__, ("wins", "survival"), seed=0)
    report_environment()
    if "wins" in given.parts or not given.parts:
        wins(given.seed)
    if "survival" in given.parts or not given.parts:
        survival()
