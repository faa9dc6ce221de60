"""Loops in a box with and without variance inflation: ``python -m benchmarks.box_loops``, 2 hours of one core.

Eight functions in the unit box, 14 d readings with a noise of 2 % of their standard deviation, the first 2 d + 2 at
random, then BoTorch's logarithmic noisy expected improvement by ``optimize_acqf``. In the regime "wrong" one reading in
ten is off by 5 to 10 standard deviations. All variants see the same first readings, noise and errors; their second
readings count. The regret is that of the recommendation, in standard deviations of f; its logarithm is floored at .01.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import torch
from botorch.acquisition.logei import qLogNoisyExpectedImprovement
from botorch.models import SingleTaskGP
from botorch.optim import optimize_acqf
from botorch.test_functions import Ackley, Branin, Hartmann, Levy
from torch import Tensor

from benchmarks.common import options, report_environment
from bo_robust import RobustGP, suggest_replicates
from bo_robust.experiments.botorch_methods import fitted

FLOOR = 0.01
REGIMES = {"clean": 0.0, "wrong": 0.1}  # share of wrong readings
VARIANTS: dict[str, tuple[bool | None, bool | None]] = {  # `maximize` of the model, and `held_only`; None: none is read
    "inflation, held only": (True, True),
    "no inflation, held only": (None, True),
    "no inflation, all flagged good ones": (None, False),
}


def minimum_of(function: Any) -> Callable[[Tensor], Tensor]:
    """Minus a function of BoTorch, on the unit cube."""
    low, high = function.bounds.double()
    return lambda U: -function(low + (high - low) * U)


def bump(U: Tensor, center: tuple[float, ...], sd: float) -> Tensor:
    return (-(U - torch.tensor(center)).square().sum(-1) / (2.0 * sd**2)).exp()


def peak(sd: float) -> Callable[[Tensor], Tensor]:
    """A narrow peak on a weak wave."""
    return lambda U: bump(U, (0.63, 0.37), sd) + 0.1 * (5.0 * U).sin().sum(-1)


def four_bumps(U: Tensor) -> Tensor:
    centers = ((0.2, 0.3), (0.75, 0.8), (0.35, 0.8), (0.8, 0.25))
    return sum((h * bump(U, c, 0.12) for h, c in zip((1.0, 0.8, 0.6, 0.5), centers, strict=True)), torch.zeros(()))


def michalewicz(U: Tensor) -> Tensor:
    x = math.pi * U
    return (x.sin() * (torch.tensor([1.0, 2.0]) * x**2 / math.pi).sin() ** 10).sum(-1)


FUNCTIONS: dict[str, tuple[int, Callable[[Tensor], Tensor]]] = {
    "peak of .07": (2, peak(0.07)),
    "peak of .1": (2, peak(0.1)),
    "four bumps": (2, four_bumps),
    "Michalewicz-2": (2, michalewicz),
    "Branin": (2, minimum_of(Branin())),
    "Hartmann-3": (3, minimum_of(Hartmann(3))),
    "Ackley-2": (2, minimum_of(Ackley(2))),
    "Levy-2": (2, minimum_of(Levy(2))),
}


def loop(name: str, regime: str, seed: int, variant: str | None) -> float:
    """The regret of the recommendation of one loop; ``variant`` None is ``SingleTaskGP``."""
    d, function = FUNCTIONS[name]
    grid = function(torch.quasirandom.SobolEngine(d, scramble=True, seed=0).draw(1 << 15, dtype=torch.float64))
    sd, n = float(grid.std()), 14 * d
    rng = np.random.default_rng([seed, 2])
    wrong, noise = rng.random(n) < REGIMES[regime], 0.02 * rng.standard_normal(n)
    errors = torch.from_numpy(noise + wrong * rng.choice([-1.0, 1.0], n) * rng.uniform(5.0, 10.0, n)) * sd
    X = torch.from_numpy(rng.random((2 * d + 2, d)))
    box = torch.tensor([[0.0], [1.0]], dtype=torch.float64).expand(2, d)
    maximize, held_only = VARIANTS[variant] if variant else (None, None)
    torch.manual_seed(seed)
    while True:
        Y = (function(X) + errors[: len(X)]).unsqueeze(-1)
        model: Any = fitted(RobustGP(X, Y, maximize=maximize) if variant else SingleTaskGP(X, Y))
        if len(X) == n:
            break
        x = None
        if held_only is not None:
            x = suggest_replicates(model, maximize=True, held_only=held_only)
        if x is None:
            acquisition = qLogNoisyExpectedImprovement(model, X)
            x, _ = optimize_acqf(acquisition, box, q=1, num_restarts=4, raw_samples=64)
        X = torch.cat([X, x])
    if variant:
        mean = model.predict(X, maximize=True).mean.where(model.recommendable(maximize=True), -math.inf)
    else:
        mean = model.posterior(X).mean.squeeze(-1)
    best = max(float(grid.max()), float(function(X).max()))
    return (best - float(function(X[mean.argmax()]))) / sd


def main() -> None:
    """Print one JSON object a loop."""
    given = options(__doc__, regimes=REGIMES, seeds=6, first=0)
    report_environment()
    for seed, name, regime in product(range(given.first, given.first + given.seeds), FUNCTIONS, given.regimes):
        regrets = {variant: round(loop(name, regime, seed, variant), 5) for variant in VARIANTS}
        print(json.dumps({"function": name, "regime": regime, "seed": seed, "regret": regrets}), flush=True)


if __name__ == "__main__":
    main()
