"""Fits of :class:`RobustGP` and :class:`BKBModel` against BoTorch's and GPyTorch's models."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any

import torch
from botorch.models import SingleTaskGP, SingleTaskVariationalGP
from botorch.models.transforms import Standardize
from gpytorch.kernels import MaternKernel, ScaleKernel
from gpytorch.mlls import VariationalELBO
from torch import Tensor

from benchmarks.common import report
from benchmarks.methods.designs import fitted
from benchmarks.slopes import contaminated_data
from benchmarks.stats import ratios, seconds
from bo_robust import BKBModel, RobustGP

NOISE, INDUCING, BATCH = 0.1, 200, 1024
# Readings, the function they are of, and sets.
CASES = ((20, "branin", 15), (50, "hartmann3", 15), (100, "levy4", 9), (300, "hartmann6", 5), (1000, "hartmann6", 5))
WRONG, LARGE = 0.05, 2000
SIZES = (1_000, 10_000, 100_000)
MOST_EXACT = 1_000  # 10,000 readings take an exact GP some half an hour


def robust() -> None:
    """RobustGP over SingleTaskGP on sets of readings, none or 5 % of them wrong by ten standard deviations."""
    fit(RobustGP, *contaminated_data(20, 0))
    for (n, name, sets), (share, most) in product(CASES, ((0.0, 0.5), (WRONG, 1.0))):
        times: list[list[float]] = []
        for seed in range(sets):
            X, Y = contaminated_data(n, seed, share, name)
            works = (partial(fit, make, X, Y) for make in (RobustGP, SingleTaskGP))
            times.append([seconds(work, time.process_time) for work in works])
        ours, theirs = zip(*times, strict=True)
        label = f"RobustGP over SingleTaskGP, n = {n}, {share:.0%} wrong"
        ratios(ours, theirs).report(label, "times", most=most)
    X, Y = contaminated_data(LARGE, 0, WRONG)
    took = seconds(partial(fit, RobustGP, X, Y), time.process_time)
    report(f"RobustGP, n = {LARGE}, {WRONG:.0%} wrong: fit", took, "s", most=5.0)


def fit(make: Callable[[Tensor, Tensor], Any], X: Tensor, Y: Tensor) -> Any:
    """A model, fitted by its marginal likelihood."""
    return fitted(make(X, Y))


def surface(n: int, seed: int) -> tuple[Tensor, Tensor]:
    """Points ``n x 3`` of the unit cube and readings ``n x 1`` of a smooth function, with noise of sd 0.1."""
    draws = torch.Generator().manual_seed(seed)
    X = torch.rand(n, 3, generator=draws, dtype=torch.float64)
    f = torch.sin(6.0 * X[:, 0]) + torch.cos(5.0 * X[:, 1]) * X[:, 2]
    return X, (f + NOISE * torch.randn(n, generator=draws, dtype=torch.float64)).unsqueeze(1)


def variational(X: Tensor, Y: Tensor) -> Any:
    """BoTorch's variational GP, by Adam on batches: 40 passes over the data, at least 1,000 steps."""
    kernel = ScaleKernel(MaternKernel(2.5, ard_num_dims=3))
    # BoTorch's choice of inducing points forms the n x n covariance, 80 GB for 100,000 readings.
    inducing: Any = INDUCING if len(X) <= 10_000 else X[:INDUCING]
    model = SingleTaskVariationalGP(
        X, Y, inducing_points=inducing, covar_module=kernel, outcome_transform=Standardize(1)
    ).double()
    targets = ((Y - Y.mean()) / Y.std()).squeeze(1)
    loss, draws = VariationalELBO(model.likelihood, model.model, num_data=len(X)), torch.Generator().manual_seed(0)
    optimizer = torch.optim.Adam(model.train().parameters(), lr=0.02)
    for _ in range(max(1000, 40 * math.ceil(len(X) / BATCH))):
        rows = torch.randint(len(X), (min(BATCH, len(X)),), generator=draws)
        optimizer.zero_grad()
        (-loss(model.model(X[rows]), targets[rows])).backward()
        optimizer.step()
    return model.eval()


MODELS: dict[str, tuple[Callable[[Tensor, Tensor], Any], int]] = {
    "SingleTaskGP": (partial(fit, SingleTaskGP), MOST_EXACT),
    "BKBModel": (partial(fit, partial(BKBModel, max_size=INDUCING)), SIZES[-1]),
    "SingleTaskVariationalGP, 200 inducing points": (variational, SIZES[-1]),
}


def large() -> None:
    """Seconds to fit, error and negative log density of new readings, of models of many readings."""
    X_new, Y_new = surface(2000, 1)
    for name, (make, most) in MODELS.items():
        for n in (n for n in SIZES if n <= most):
            X, Y = surface(n, 0)
            began = time.process_time()
            model = make(X, Y)
            took = time.process_time() - began
            with torch.no_grad():
                new = model.posterior(X_new, observation_noise=True)
                mean, variance = new.mean, new.variance
                rmse = float((mean - Y_new).square().mean().sqrt())
                nlpd = float(0.5 * ((mean - Y_new).square() / variance + (2.0 * math.pi * variance).log()).mean())
            report(f"{name}, n = {n:,}: fit", took, "s")
            report(f"{name}, n = {n:,}: RMSE", rmse, "in units of Y, noise 0.1")
            report(f"{name}, n = {n:,}: NLPD", nlpd, "nats a reading")
