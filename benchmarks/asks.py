"""Seconds of one suggestion, the fit included, in Optuna, Ax and BoTorch's loop, with and without this package.

In a repeat every tool gets the same data, one after the other. Each is asked once before, as it keeps something from
suggestion to suggestion; the second is timed.
"""

from __future__ import annotations

import logging
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from botorch.acquisition.logei import qLogNoisyExpectedImprovement
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from botorch.optim import optimize_acqf
from gpytorch.mlls import ExactMarginalLogLikelihood
from torch import Tensor

from benchmarks.common import report
from benchmarks.stats import ratios, report_paired, seconds

D, NOISE = 4, 0.1
FUNCTIONS: tuple[Callable[[Tensor], Tensor], ...] = (
    lambda X: torch.sin(5.0 * X).sum(-1),
    lambda X: 5.0 * (-20.0 * (X - 0.3).square().sum(-1)).exp() + X[:, 0],
    lambda X: torch.sin(12.0 * X[:, 0]) + 0.3 * X[:, 1].square(),
)
Work = Callable[[], Any]


def data(n: int, seed: int) -> tuple[Tensor, Tensor]:
    """Points ``n x d`` and readings ``n x 1`` of the seed's function, whose values have standard deviation 1."""
    draws = torch.Generator().manual_seed(seed)
    X = torch.rand(n, D, dtype=torch.float64, generator=draws)
    f = FUNCTIONS[seed % len(FUNCTIONS)](X).unsqueeze(-1)
    return X, (f - f.mean()) / f.std() + NOISE * torch.randn(n, 1, dtype=torch.float64, generator=draws)


def readings(X: Tensor, Y: Tensor) -> list[tuple[dict[str, float], float]]:
    """Points by the names of their parameters, each with its reading."""
    return [
        ({f"x{i}": value for i, value in enumerate(x)}, y) for x, y in zip(X.tolist(), Y[:, 0].tolist(), strict=True)
    ]


def botorch(X: Tensor, Y: Tensor, seed: int) -> Work:
    """What BoTorch's tutorials do."""
    bounds = torch.tensor([[0.0], [1.0]], dtype=torch.float64).expand(2, D)

    def ask() -> None:
        torch.manual_seed(seed)
        model = SingleTaskGP(X, Y)
        fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
        optimize_acqf(qLogNoisyExpectedImprovement(model, X), bounds, q=1, num_restarts=8, raw_samples=128)

    return ask


def optuna(ours: bool) -> Callable[[Tensor, Tensor, int], Work]:
    """A study of Optuna, with ``RobustSampler`` or with Optuna's own GP sampler."""

    def prepare(X: Tensor, Y: Tensor, seed: int) -> Work:
        import optuna as package

        from bo_robust.integrations.optuna import RobustSampler

        package.logging.set_verbosity(package.logging.ERROR)
        sampler = RobustSampler(seed=seed) if ours else package.samplers.GPSampler(seed=seed, n_startup_trials=2)
        study = package.create_study(direction="maximize", sampler=sampler)
        rows = readings(X, Y)
        space: dict[str, Any] = {name: package.distributions.FloatDistribution(0.0, 1.0) for name in rows[0][0]}
        made = package.trial.create_trial
        study.add_trials([made(params=x, distributions=space, value=value) for x, value in rows[:-1]])
        study.tell(study.ask(space), rows[-1][1])
        return lambda: study.ask(space)

    return prepare


def ax(ours: bool) -> Callable[[Tensor, Tensor, int], Work]:
    """A client of Ax, with ``generation_strategy()`` or with Ax's default."""

    def prepare(X: Tensor, Y: Tensor, seed: int) -> Work:
        from ax.api.client import Client
        from ax.api.configs import RangeParameterConfig

        from bo_robust.integrations.ax import generation_strategy

        logging.disable(logging.WARNING)  # a line for every trial otherwise
        client, rows = Client(random_seed=seed), readings(X, Y)
        client.configure_experiment(
            [RangeParameterConfig(name=name, parameter_type="float", bounds=(0.0, 1.0)) for name in rows[0][0]]
        )
        client.configure_optimization(objective="y")
        if ours:
            client.set_generation_strategy(generation_strategy())
        for x, value in rows[:-1]:
            client.complete_trial(client.attach_trial(parameters={**x}), raw_data={"y": value})
        ((index, _),) = client.get_next_trials(max_trials=1).items()
        client.complete_trial(index, raw_data={"y": rows[-1][1]})
        return lambda: client.get_next_trials(max_trials=1)

    return prepare


TOOLS: dict[str, Callable[[Tensor, Tensor, int], Work]] = {
    "RobustSampler": optuna(ours=True),
    "optuna": optuna(ours=False),
    "ax with RobustGP": ax(ours=True),
    "ax": ax(ours=False),
    "botorch": botorch,
}
OURS = {"RobustSampler": ("optuna", "botorch"), "ax with RobustGP": ("ax", "botorch")}
REPEATS = {10: 9, 100: 7, 500: 3}  # by readings


def asks() -> None:
    """One suggestion by every tool, at several numbers of readings; ours at most 1.5 times as long as the default."""
    for n, repeats in REPEATS.items():
        took: dict[str, list[float]] = {name: [] for name in TOOLS}
        for seed in range(repeats):
            X, Y = data(n, seed)
            for name, prepare in TOOLS.items():
                took[name].append(seconds(prepare(X, Y, seed), time.process_time))
        for name, times in took.items():
            report(f"suggestion of {name}, n = {n}", statistics.median(times), "s, median", None, None, {"each": times})
        for name, (own, loop) in OURS.items():
            report_paired(f"suggestion of {name} over {own}, n = {n}", ratios(took[name], took[own]), "times", most=1.5)
            report_paired(f"suggestion of {name} over {loop}, n = {n}", ratios(took[name], took[loop]), "times")
