"""Seconds of one suggestion, the fit included, in Optuna, Ax and BoTorch's loop, with and without this package.

In a repeat every tool gets the same data, one after the other. Each is asked once before, as it keeps something from
suggestion to suggestion; the second is timed.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import torch
from botorch.acquisition.logei import qLogNoisyExpectedImprovement as plain
from botorch.models import SingleTaskGP
from botorch.optim import optimize_acqf
from torch import Tensor

from benchmarks.common import ROOT, report
from benchmarks.methods.designs import fitted
from benchmarks.methods.hosts import Ax, Optuna
from benchmarks.stats import cpu_times, ratios, seconds
from bo_robust.acquisition import OnePointLogNoisyExpectedImprovement
from bo_robust.models import RobustGP

D, NOISE, SHARE = 4, 0.1, 0.05
WRONG = 8.0  # standard deviations that wrong readings are off
FUNCTIONS: tuple[Callable[[Tensor], Tensor], ...] = (
    lambda X: torch.sin(5.0 * X).sum(-1),
    lambda X: 5.0 * (-20.0 * (X - 0.3).square().sum(-1)).exp() + X[:, 0],
    lambda X: torch.sin(12.0 * X[:, 0]) + 0.3 * X[:, 1].square(),
)
Work = Callable[[], Any]


def data(n: int, seed: int, d: int = D, wrong: float = 0.0) -> tuple[Tensor, Tensor]:
    """Points ``n x d`` and readings ``n x 1`` of the seed's function, of standard deviation 1; a share is ``wrong``."""
    draws = torch.Generator().manual_seed(seed)
    X = torch.rand(n, d, dtype=torch.float64, generator=draws)
    f = FUNCTIONS[seed % len(FUNCTIONS)](X).unsqueeze(-1)
    Y = (f - f.mean()) / f.std() + NOISE * torch.randn(n, 1, dtype=torch.float64, generator=draws)
    Y[1 : 1 + math.ceil(wrong * n)] += WRONG
    return X, Y


def botorch(X: Tensor, Y: Tensor, seed: int, model: Any = SingleTaskGP, acquisition: Any = plain) -> Work:
    """What BoTorch's tutorials do."""
    bounds = torch.tensor([[0.0], [1.0]], dtype=torch.float64).expand(2, X.shape[-1])

    def ask() -> None:
        torch.manual_seed(seed)
        gp = fitted(model(X, Y))
        optimize_acqf(acquisition(gp, X), bounds, q=1, num_restarts=8, raw_samples=128)

    return ask


def tool(make: Callable[[], Optuna | Ax], X: Tensor, Y: Tensor, seed: int) -> Work:
    """A study or a client with all readings, the last of which is that of its own first suggestion."""
    loop = make().begin(cast(Any, SimpleNamespace(d=X.shape[-1])), seed, np.zeros(0, dtype=bool))
    for x, y in zip(X[:-1], Y[:-1, 0].tolist(), strict=True):
        loop.tell(x, y)
    loop.ask()
    loop.tell(X[-1], float(Y[-1]))
    return loop.ask


TOOLS: dict[str, Callable[[Tensor, Tensor, int], Work]] = {
    "RobustSampler": partial(tool, partial(Optuna, "robust")),
    "optuna": partial(tool, partial(Optuna, "gp", {"n_startup_trials": 2})),
    "ax with RobustGP": partial(tool, partial(Ax, robust=True)),
    "ax": partial(tool, Ax),
    "botorch": botorch,
    "botorch with RobustGP": partial(botorch, model=RobustGP, acquisition=OnePointLogNoisyExpectedImprovement),
}
OURS = {"RobustSampler": ("optuna", "botorch"), "ax with RobustGP": ("ax", "botorch")}
REPEATS = {10: 9, 100: 7, 500: 3}  # by readings
MOST = {10: 1.2, 100: 1.3, 500: 1.0}
BOX = "botorch with RobustGP"
# Pairs of suggestions: dimensions, numbers of readings, both sides (a tool, whether readings are wrong), most.
PAIRS = (
    (2, (30, 100, 200), ("RobustSampler", False), ("optuna", False), 3.0),
    (6, (30, 100, 200), ("RobustSampler", False), ("optuna", False), 1.3),
    (D, (10, 100, 500), ("RobustSampler", True), ("RobustSampler", False), 1.2),
    (D, (60,), (BOX, False), ("botorch", False), 0.67),
    (D, (60,), (BOX, True), ("botorch", True), 0.67),
)


def asks() -> None:
    """One suggestion by every tool at several numbers of readings, and of pairs in other dimensions."""
    for n, repeats in REPEATS.items():
        took: dict[str, list[float]] = {name: [] for name in TOOLS}
        for seed in range(repeats):
            X, Y = data(n, seed)
            for name, prepare in TOOLS.items():
                took[name].append(seconds(prepare(X, Y, seed), time.process_time))
        for name, times in took.items():
            report(f"suggestion of {name}, n = {n}", statistics.median(times), "s, median", {"each": times})
        for name, (own, loop) in OURS.items():
            for other, most in ((own, MOST[n] if own == "optuna" else 1.5), (loop, None)):
                ratios(took[name], took[other]).report(
                    f"suggestion of {name} over {other}, n = {n}", "times", most=most
                )
    for d, sizes, first, second, most in PAIRS:
        for n in sizes:
            pairs = [[_seconds(*side, n, d, seed) for side in (first, second)] for seed in range(5)]
            names = [name + ", 5 % wrong" * wrong for name, wrong in (first, second)]
            paired = ratios(*zip(*pairs, strict=True))
            paired.report(f"suggestion of {' over '.join(names)}, d = {d}, n = {n}", "times", most=most)

    for n in REPEATS:
        X, Y = data(n, 0)
        model, x = fitted(SingleTaskGP(X, Y)), data(8, 1)[0].unsqueeze(1).requires_grad_()
        acqfs = [acquisition(model, X) for acquisition in (plain, OnePointLogNoisyExpectedImprovement)]
        slow, fast = cpu_times(50, *(partial(_slope, acqf, x) for acqf in acqfs))
        ratios(slow, fast).report(f"noisy improvement of 8 designs with its gradient, written out, n = {n}", least=1.5)


def _slope(acqf: Any, x: Tensor) -> Tensor:
    return torch.autograd.grad(acqf(x).sum(), x)[0]


def _seconds(name: str, wrong: bool, n: int, d: int, seed: int) -> float:
    return seconds(TOOLS[name](*data(n, seed, d, SHARE * wrong), seed), time.process_time)


def readme_loop() -> None:
    """README's loop of 20 readings over 343 recipes, and the same with ``SingleTaskGP``."""
    block = (ROOT / "README.md").read_text(encoding="utf-8").split("```python\n", 1)[1].split("\nmodel = fitted", 1)[0]
    ours = "from bo_robust import RobustGP, suggest_replicates\n"
    theirs = "from botorch.models import SingleTaskGP as RobustGP\nsuggest_replicates = lambda *_, **__: None\n"
    assert ours in block
    loops = (compile(code, "README.md", "exec") for code in (block, block.replace(ours, theirs)))
    took = cpu_times(5, *(partial(exec, loop, {}) for loop in loops))
    ratios(*took).report("README's loop with RobustGP over SingleTaskGP", "times", most=1.0)


def two_outcomes() -> None:
    """One suggestion by Optuna's samplers, for two skewed outcomes that conflict."""
    import optuna

    from bo_robust.integrations.optuna import RobustSampler

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    space: Any = {f"x{i}": optuna.distributions.FloatDistribution(0.0, 1.0) for i in range(D)}
    for n in (20, 40, 100):
        took: tuple[list[float], list[float]] = ([], [])
        for seed in range(9):
            X, Y = data(n, seed)
            rows = torch.cat([Y, 1.7 * X.square().sum(-1, keepdim=True)], -1).exp().tolist()
            for times, sampler in zip(took, (RobustSampler, optuna.samplers.GPSampler), strict=True):
                study = optuna.create_study(directions=["maximize", "minimize"], sampler=sampler(seed=seed))
                for x, values in zip(X[:-1].tolist(), rows, strict=False):
                    given = {f"x{i}": value for i, value in enumerate(x)}
                    study.add_trial(optuna.create_trial(params=given, distributions=space, values=values))
                study.tell(study.ask(space), rows[-1])
                times.append(seconds(partial(study.ask, space), time.process_time))
        ratios(*took).report(f"two skewed outcomes, RobustSampler over optuna, n = {n}", "times", most=2.0)
