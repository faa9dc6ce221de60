"""Loops over positive, skewed objectives: ``python -m benchmarks.skewed_loops``, 25 minutes of one core.

Eight functions, most of them exponentials of known ones, on 1,024 Sobol candidates; 12 d readings with a noise of 5 %,
the first 2 d + 2 at random, then BoTorch's logarithmic noisy expected improvement. In the regime "factor" one reading
in ten is ten times too large or too small, in "sd" it is off by ten standard deviations of f. ``RobustGP`` asks for
second readings by ``suggest_replicates``, which count as readings, and recommends by ``predict``. Both models see the
same candidates, first readings and errors. The regret is that of the recommendation, in standard deviations of f over
the candidates; its logarithm is floored at .01. Intervals are of 95 %, over pairs.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import torch
from botorch.acquisition.logei import qLogNoisyExpectedImprovement
from botorch.models import SingleTaskGP
from botorch.optim import optimize_acqf_discrete
from botorch.test_functions import Ackley, Branin, Hartmann, Levy, Rosenbrock
from torch import Tensor

from benchmarks.common import options, report, report_environment
from benchmarks.stats import Paired
from bo_robust import RobustGP, suggest_replicates
from bo_robust.experiments.botorch_methods import fitted

CANDIDATES = 1024
FLOOR = 0.01
REGIMES = {"clean": 0.0, "factor": 0.1, "sd": 0.1}  # share of wrong readings


def exponential(f: Tensor, scale: float = 1.5) -> Tensor:
    """exp(scale f), f standardized over the candidates."""
    return (scale * (f - f.mean()) / f.std()).exp()


def minimum_of(function: Any) -> Callable[[Tensor], Tensor]:
    """The exponential of minus a function of BoTorch, on the unit cube."""
    low, high = function.bounds.double()
    return lambda U: exponential(-function(low + (high - low) * U))


def goldstein_price(U: Tensor) -> Tensor:
    """1e4 over the function, plus 1."""
    x, y = (4.0 * U - 2.0).unbind(-1)
    one = 1 + (x + y + 1) ** 2 * (19 - 14 * x + 3 * x**2 - 14 * y + 6 * x * y + 3 * y**2)
    other = 30 + (2 * x - 3 * y) ** 2 * (18 - 32 * x + 12 * x**2 + 48 * y - 36 * x * y + 27 * y**2)
    return 1e4 / (one * other) + 1.0


def reaction(U: Tensor) -> Tensor:
    """A yield by temperature, time and catalyst."""
    T, time, catalyst = 50.0 + 60.0 * U[:, 0], 1.0 + 7.0 * U[:, 1], 0.5 + 2.0 * U[:, 2]
    off = ((T - 82.0) / 22.0) ** 2 + ((time - 5.0) / 3.5) ** 2 + ((catalyst - 1.4) / 1.2) ** 2
    return 85.0 * (-off).exp()


def michalewicz(U: Tensor) -> Tensor:
    x = math.pi * U
    return exponential((x.sin() * (torch.tensor([1.0, 2.0]) * x**2 / math.pi).sin() ** 10).sum(-1), 0.75)


FUNCTIONS: dict[str, tuple[int, Callable[[Tensor], Tensor]]] = {
    "Branin": (2, minimum_of(Branin())),
    "Hartmann-3": (3, minimum_of(Hartmann(3))),
    "Ackley-2": (2, minimum_of(Ackley(2))),
    "Levy-2": (2, minimum_of(Levy(2))),
    "Rosenbrock-2": (2, minimum_of(Rosenbrock(2))),
    "Michalewicz-2": (2, michalewicz),
    "1 / Goldstein-Price": (2, goldstein_price),
    "reaction": (3, reaction),
}


def loop(name: str, regime: str, seed: int, robust: bool) -> float:
    """The regret of the recommendation of one loop."""
    d, function = FUNCTIONS[name]
    candidates = torch.quasirandom.SobolEngine(d, scramble=True, seed=seed).draw(CANDIDATES, dtype=torch.float64)
    f, n = function(candidates), 12 * d
    rng = np.random.default_rng([seed, 1])
    wrong, sign, noise = rng.random(n) < REGIMES[regime], rng.choice([-1.0, 1.0], n), rng.standard_normal(n)

    def read(row: int, t: int) -> float:
        y = float(f[row]) * math.exp(0.05 * noise[t])
        if wrong[t]:
            y = y * 10.0 ** sign[t] if regime == "factor" else y + 10.0 * float(f.std()) * sign[t]
        return y

    rows = rng.permutation(CANDIDATES)[: 2 * d + 2].tolist()
    readings = [read(row, t) for t, row in enumerate(rows)]
    torch.manual_seed(seed)
    while True:
        X, Y = candidates[rows], torch.tensor(readings, dtype=torch.float64).unsqueeze(-1)
        model: Any = fitted((RobustGP if robust else SingleTaskGP)(X, Y))
        if len(rows) == n:
            break
        x = suggest_replicates(model, candidates=candidates)
        if x is None:
            x, _ = optimize_acqf_discrete(qLogNoisyExpectedImprovement(model, X), q=1, choices=candidates)
        rows.append(int((candidates == x).all(-1).nonzero()[0]))
        readings.append(read(rows[-1], len(rows) - 1))
    if robust:
        mean = model.predict(X).mean.where(model.recommendable(), -math.inf)
    else:
        mean = model.posterior(X).mean.squeeze(-1)
    return float((f.max() - f[rows[int(mean.argmax())]]) / f.std())


def main() -> None:
    """Report the difference of regrets to ``SingleTaskGP``, by regime, with the means by function."""
    given = options(__doc__, regimes=REGIMES, seeds=8, first=0)
    report_environment()
    for regime in given.regimes:
        pairs: dict[str, list[tuple[float, float]]] = {name: [] for name in FUNCTIONS}
        for seed, name in product(range(given.first, given.first + given.seeds), FUNCTIONS):
            pairs[name].append((loop(name, regime, seed, True), loop(name, regime, seed, False)))
        every = np.array([pair for found in pairs.values() for pair in found])
        means = {name: np.mean(found, 0).round(3).tolist() for name, found in pairs.items()}
        log, clean = np.log10(np.maximum(every, FLOOR)), regime == "clean"
        for what, unit, values, most in (
            ("regret", "sd of f", every, 0.1 if clean else None),
            ("log10 regret", "log10", log, None if clean else 0.0),
        ):
            mean, *ends = Paired(tuple(values[:, 0] - values[:, 1])).mean_interval()
            detail: dict[str, Any] = {"interval": [round(x, 3) for x in ends], "pairs": len(values)}
            detail["mean regrets of RobustGP and SingleTaskGP"] = means
            report(f"{regime}: {what} less that of SingleTaskGP", mean, unit, detail, most=most)


if __name__ == "__main__":
    main()
