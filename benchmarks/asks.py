"""Whole asks with their fits against BoTorch, Ax and Optuna, and fits of ``BKBModel`` against ``FeatureGP``.

``python -m benchmarks.asks [--sizes 10,103,996] [--repeats 20,20,5] [--fits 1000,5000] [--tools robust ax]``: one
JSON object a line. Times are CPU seconds of one thread: those of a busy machine can be compared. In a repeat every tool
gets the same data, one after the other. Ratios are taken within a repeat; medians, with their interval in ``detail``.

The sizes are such that a study fits all its rewards at that ask. Peers fit at every ask. Optuna and Ax are asked once
before, as they keep something from ask to ask; the second ask is timed.
"""

from __future__ import annotations

import argparse
import json
import logging
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from bo_robust.study import Study
from botorch.acquisition.logei import qLogNoisyExpectedImprovement
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from botorch.optim import optimize_acqf
from gpytorch.mlls import ExactMarginalLogLikelihood
from torch import Tensor

from benchmarks.common import environment, report
from benchmarks.stats import ratios, report_paired, seconds
from bo_robust import BKBModel, FeatureGP, NystromMap

D, NOISE = 4, 0.1
OURS = ("robust", "gp-ucb", "tgp-ucb", "bkb", "he-gp-ucb")
# Seconds that an ask at the largest size may take, and the next one, which fits nothing.
SLOWEST, NEXT = 2.5, {"next_robust": 0.3, "next_he-gp-ucb": 0.5}
FUNCTIONS: tuple[Callable[[Tensor], Tensor], ...] = (
    lambda X: torch.sin(5.0 * X).sum(-1),
    lambda X: 5.0 * (-20.0 * (X - 0.3).square().sum(-1)).exp() + X[:, 0],
    lambda X: torch.sin(12.0 * X[:, 0]) + 0.3 * X[:, 1].square(),
)
Ask = Callable[[], Any]
LAST = 100  # rewards from which on the ask after the next tell needs no fit


def data(n: int, seed: int, d: int = D, noise: float = NOISE) -> tuple[Tensor, Tensor, Tensor]:
    """Points ``n x d``, rewards ``n x 1`` and values of f without noise, of standard deviation 1; f is the seed's."""
    draws = torch.Generator().manual_seed(seed)
    X = torch.rand(n, d, dtype=torch.float64, generator=draws)
    f = FUNCTIONS[seed % len(FUNCTIONS)](X).unsqueeze(-1)
    f = (f - f.mean()) / f.std()
    return X, f + noise * torch.randn(n, 1, dtype=torch.float64, generator=draws), f


def points(X: Tensor) -> list[dict[str, float]]:
    """Points by the names of their parameters."""
    return [{f"x{i}": value for i, value in enumerate(x)} for x in X.tolist()]


def ours(method: str) -> Callable[[Tensor, Tensor, int], Study]:
    """A study that was never asked, so that the ask fits."""

    def prepare(X: Tensor, Y: Tensor, seed: int) -> Study:
        path = Path(tempfile.mkdtemp()) / "study"
        study = Study.create(path, dict.fromkeys(points(X)[0], (0.0, 1.0)), method, seed, num_initial=2)
        for x, y in zip(points(X), Y[:, 0].tolist(), strict=True):
            study.add(x, y)
        return study

    return prepare


def botorch(X: Tensor, Y: Tensor, seed: int) -> Ask:
    """What BoTorch's tutorials do, with a study's restarts and raw samples."""
    bounds = torch.tensor([[0.0], [1.0]], dtype=torch.float64).expand(2, X.shape[-1])

    def ask() -> None:
        torch.manual_seed(seed)
        model = SingleTaskGP(X, Y)
        fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
        optimize_acqf(qLogNoisyExpectedImprovement(model, X), bounds, q=1, num_restarts=8, raw_samples=128)

    return ask


def optuna(X: Tensor, Y: Tensor, seed: int) -> Ask:
    """Optuna's GP sampler, told of noise."""
    import optuna as package

    package.logging.set_verbosity(package.logging.ERROR)
    warnings.filterwarnings("ignore", category=package.exceptions.ExperimentalWarning)
    sampler = package.samplers.GPSampler(seed=seed, n_startup_trials=2)
    study = package.create_study(direction="maximize", sampler=sampler)
    space: dict[str, Any] = {name: package.distributions.FloatDistribution(0.0, 1.0) for name in points(X)[0]}
    told = list(zip(points(X), Y[:, 0].tolist(), strict=True))
    study.add_trials([package.trial.create_trial(params=x, distributions=space, value=value) for x, value in told[:-1]])
    study.tell(study.ask(space), told[-1][1])
    return lambda: study.ask(space)


def ax(X: Tensor, Y: Tensor, seed: int) -> Ask:
    """Ax with its defaults."""
    from ax.api.client import Client
    from ax.api.configs import RangeParameterConfig

    logging.disable(logging.WARNING)  # a line for every trial otherwise
    client = Client(random_seed=seed)
    client.configure_experiment(
        [RangeParameterConfig(name=name, parameter_type="float", bounds=(0.0, 1.0)) for name in points(X)[0]]
    )
    client.configure_optimization(objective="y")
    told = list(zip(points(X), Y[:, 0].tolist(), strict=True))
    for x, value in told[:-1]:
        client.complete_trial(client.attach_trial(parameters={**x}), raw_data={"y": value})
    ((index, _),) = client.get_next_trials(max_trials=1).items()
    client.complete_trial(index, raw_data={"y": told[-1][1]})
    return lambda: client.get_next_trials(max_trials=1)


THEIRS = {"botorch": botorch, "ax": ax, "optuna": optuna}


def asks(n: int, repeats: int, tools: list[str], quiet: bool = False) -> None:
    """The ask at n rewards by these tools; ours also the ask after one more, which need not fit."""
    took: dict[str, list[float]] = {}
    for seed in range(repeats):
        X, Y, _ = data(n, seed)
        for name in filter(tools.__contains__, OURS):
            study = ours(name)(X, Y, seed)
            took.setdefault(name, []).append(seconds(study.ask, time.process_time))
            if n > LAST:
                study.tell(n, float(Y[-1]))
                took.setdefault(f"next_{name}", []).append(seconds(study.ask, time.process_time))
        for name in filter(tools.__contains__, THEIRS):
            took.setdefault(name, []).append(seconds(THEIRS[name](X, Y, seed), time.process_time))
    if quiet:
        return
    for name, times in took.items():
        value = statistics.median(times)
        target = (NEXT | dict.fromkeys(OURS, SLOWEST)).get(name) if n > 500 else None
        met = None if target is None else value <= target
        report(f"ask_{name}_{n}", value, "s", f"<= {target}" if target else None, met, {"n": n, "d": D, "each": times})
    for name in filter(took.__contains__, OURS):
        for peer in filter(took.__contains__, THEIRS):
            most = 1.0 if peer == "optuna" else None
            report_paired(f"ask_{name}_over_{peer}_{n}", ratios(took[name], took[peer]), "ratio", most=most)


def fits(n: int, limit: float, repeats: int = 6, d: int = 3, m: int = 128) -> None:
    """Fit and posterior of ``BKBModel`` against ``FeatureGP`` with m inducing points drawn uniformly."""
    took: dict[str, list[float]] = {"bkb": [], "feature_gp": []}
    errors: dict[str, list[float]] = {"bkb": [], "feature_gp": []}
    for seed in range(repeats):
        X, Y, f = data(n + 1000, seed, d, 0.3)
        given, test = (X[:n], Y[:n]), X[n:]
        for name in took:

            def fit(given: tuple[Tensor, Tensor] = given, test: Tensor = test, name: str = name) -> Tensor:
                model: Any = BKBModel(*given) if name == "bkb" else FeatureGP(*given, NystromMap(given[0][:m]))
                fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
                found: Tensor = model.posterior(test).mean.detach()
                return found

            means: list[Tensor] = []
            clock = time.process_time
            took[name].append(seconds(lambda fit=fit, means=means: means.append(fit()), clock))  # type: ignore[misc]
            errors[name].append(float((means[0] - f[n:]).square().mean().sqrt()))
    value = statistics.median(took["bkb"])
    report(f"bkb_fit_{n}", value, "s", f"<= {limit}", value <= limit, {"n": n, "d": d, "each": took["bkb"]})
    report(f"feature_gp_fit_{n}", statistics.median(took["feature_gp"]), "s", None, None, {"each": took["feature_gp"]})
    for what, of, target in (("seconds", took, None), ("error", errors, 1.05)):
        report_paired(f"bkb_over_feature_gp_{what}_{n}", ratios(of["bkb"], of["feature_gp"]), "ratio", most=target)


def main() -> None:
    """Run the measurements named on the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name, default in (("sizes", "10,103,996"), ("repeats", "20,20,5"), ("fits", "1000,5000")):
        parser.add_argument(f"--{name}", default=default)
    parser.add_argument("--tools", nargs="+", choices=(*OURS, *THEIRS), default=[*OURS, *THEIRS])
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    print(json.dumps({"environment": environment()}), flush=True)
    tools = vars(options).pop("tools")
    numbers = {name: [int(part) for part in text.split(",") if part] for name, text in vars(options).items()}
    asks(10, 1, tools, quiet=True)  # what a first ask loads
    for n, repeats in zip(numbers["sizes"], numbers["repeats"], strict=True):
        asks(n, repeats, tools)
    for n in numbers["fits"]:
        fits(n, 0.7 if n <= 1000 else 4.0)


if __name__ == "__main__":
    main()
