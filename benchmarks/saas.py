"""HE-GP-UCB against BoTorch's MAP ensemble of SAAS priors: ``python -m benchmarks.saas [--seeds N] [--rounds T]``.

Experiments (a) and (c) of Ziomek et al. 2024 on their continuous domains, by the BoTorch faces: ``CandidateEnsemble``
and ``EliminationUCB`` with the candidates of configs/unknown_hyperparameters and w = 2, and
``EnsembleMapSaasSingleTaskGP``, fitted anew every round, with ``UpperConfidenceBound``, beta = w^2. The same initial
points (3 and 5) and noise. One JSON object a line: mean regret over the rounds, and regret of the best point queried
(f, not its reward).
"""

from __future__ import annotations

import argparse
import math
import time
import warnings
from collections.abc import Callable

import torch
from botorch.acquisition import UpperConfidenceBound
from botorch.fit import fit_gpytorch_mll
from botorch.models.map_saas import EnsembleMapSaasSingleTaskGP
from botorch.optim import optimize_acqf
from gpytorch.mlls import ExactMarginalLogLikelihood
from torch import Tensor

from benchmarks.common import environment, report
from bo_robust.acquisition import EliminationUCB
from bo_robust.confidence import ConstantWidth
from bo_robust.models import CandidateEnsemble, candidate
from bo_robust.random import stream

NOISE, DELTA, WIDTH = 0.1, 0.1, 2.0
Objective = Callable[[Tensor], Tensor]


def bump(x: Tensor) -> Tensor:
    """Experiment (a): 0.6 x + N(x; 0.2, 0.08) / 8."""
    x = x[..., 0]
    return 0.6 * x + torch.exp(-0.5 * ((x - 0.2) / 0.08) ** 2) / (8 * 0.08 * math.sqrt(2 * math.pi))


def groups(x: Tensor) -> Tensor:
    """Experiment (c): a correlated hill at (.8, .8) and two axis-parallel ridges at .3, x3 without effect."""
    a, b = x[..., 0] - 0.8, x[..., 1] - 0.8
    hill = torch.exp(-(a * a - 1.5 * a * b + b * b) / (2 * 0.02 * (1 - 0.75**2)))
    hill = hill / (2 * math.pi * 0.02 * math.sqrt(1 - 0.75**2))
    ridges = sum(torch.exp(-((x[..., i] - 0.3) ** 2) / 0.02) for i in (0, 1)) / (2 * math.pi * 0.1)
    return (hill + 2.5 * ridges) / 3.5


DECOMPOSITIONS = ([[0], [1], [2]], [[0, 1], [2]], [[0], [1, 2]], [[1], [0, 2]])
PROBLEMS: dict[str, tuple[Objective, int, int, list[dict]]] = {
    "(a) lengthscale": (bump, 1, 3, [{"kernel": "rbf", "lengthscale": ell} for ell in (0.3, 0.4, 0.5, 0.7, 1.0)]),
    "(c) decomposition": (
        groups,
        3,
        5,
        [{"kernel": "rbf", "lengthscale": 0.1, "groups": g} for g in DECOMPOSITIONS],
    ),
}


def elimination(X: Tensor, Y: Tensor, bounds: Tensor, settings: list[dict], initial: int) -> Tensor:
    """The next point of HE-GP-UCB; the test is replayed from the data."""
    U = [candidate(**prior, noise_var=NOISE**2) for prior in settings]
    model = CandidateEnsemble(X, Y, U, ConstantWidth(WIDTH), NOISE, DELTA, num_initial=initial)
    return optimize_acqf(EliminationUCB(model), bounds, q=1, num_restarts=4, raw_samples=64)[0]


def saas(X: Tensor, Y: Tensor, bounds: Tensor, settings: list[dict], initial: int) -> Tensor:
    """The next point of UCB on the MAP ensemble, noise variance known."""
    model = EnsembleMapSaasSingleTaskGP(X, Y, torch.full_like(Y, NOISE**2))
    fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
    acquisition = UpperConfidenceBound(model, beta=WIDTH**2)
    return optimize_acqf(acquisition, bounds, q=1, num_restarts=4, raw_samples=64)[0]


def main() -> None:
    """Play both methods on both problems."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=50)
    options = parser.parse_args()
    torch.set_num_threads(1)
    report("environment", 0, "none", None, None, environment())
    for name, (f, d, initial, settings) in PROBLEMS.items():
        bounds = torch.stack([torch.zeros(d, dtype=torch.float64), torch.ones(d, dtype=torch.float64)])
        grid = torch.rand(200_000, d, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
        best = float(f(grid).max()) if d > 1 else float(f(torch.linspace(0, 1, 20_001).double().unsqueeze(1)).max())
        for method in (elimination, saas):
            average, simple, began = [], [], time.perf_counter()
            for seed in range(options.seeds):
                start = torch.from_numpy(stream(0, "initial", seed).random((initial, d)))
                noise = torch.from_numpy(stream(0, "noise", seed).standard_normal(initial + options.rounds)) * NOISE
                torch.manual_seed(seed)
                X, Y = start, (f(start) + noise[:initial]).unsqueeze(1)
                for t in range(options.rounds):
                    with warnings.catch_warnings():
                        warnings.simplefilter("ignore")
                        x = method(X, Y, bounds, settings, initial)
                    X, Y = torch.cat([X, x]), torch.cat([Y, (f(x) + noise[initial + t]).unsqueeze(1)])
                regret = (best - f(X)).clamp_min(0.0)
                average.append(float(regret[initial:].mean()))
                simple.append(float(regret.min()))
            numbers = torch.tensor([average, simple])
            error = numbers.std(1) / math.sqrt(options.seeds) if options.seeds > 1 else torch.zeros(2)
            detail = {
                "average_error": round(float(error[0]), 4),
                "best_queried": [round(float(numbers[1].mean()), 4), round(float(error[1]), 4)],
                "seeds": options.seeds,
                "rounds": options.rounds,
                "seconds_per_round": round((time.perf_counter() - began) / options.seeds / options.rounds, 3),
            }
            label = "HE-GP-UCB" if method is elimination else "MAP SAAS ensemble, UCB"
            report(f"{name}: average regret of {label}", float(numbers[0].mean()), "units of f", None, None, detail)


if __name__ == "__main__":
    main()
