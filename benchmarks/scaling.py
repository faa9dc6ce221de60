"""When is which method the right one? ``python -m benchmarks.scaling [--only arms models] [--results FOLDER]``.

``arms``: seconds of a round as rounds go by, for n = 10^3, 10^4, 10^5 arms: exact GP-UCB, BKB, BBKB, mini-GP-UCB, with
cumulative regret. ``models``: seconds to fit and predict, and how well, as observations grow: SingleTaskGP, BKBModel,
and BoTorch's variational GP. One BLAS thread; JSON lines, and pictures in ``benchmarks/results/bkb``.
"""

from __future__ import annotations

import argparse
import math
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import matplotlib
import torch
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP, SingleTaskVariationalGP
from botorch.models.model import Model
from botorch.models.transforms import Standardize
from gpytorch.kernels import MaternKernel, ScaleKernel
from gpytorch.mlls import ExactMarginalLogLikelihood, VariationalELBO
from torch import Tensor

from benchmarks.bkb import NOISE_VAR, world
from benchmarks.common import ROOT, environment, report
from benchmarks.loop import additive, noise_and_uniforms, rounds
from bo_robust.algorithms import BBKB, BKB, GPUCB, ArmAlgorithm, MiniGPUCB
from bo_robust.confidence import FiniteWidth
from bo_robust.models import BKBModel

matplotlib.use("Agg")
import matplotlib.pyplot as plt

SIZES, ROUNDS, MARKS = (1_000, 10_000, 100_000), 8000, (250, 500, 1000, 2000, 4000, 8000)
# A run is cut short once it has taken this long; rounds beyond are not shown.
SECONDS = 60.0


def timed(algorithm: ArmAlgorithm, n: int) -> dict[int, tuple[float, float]]:
    """Seconds and cumulative regret after as many rounds as marked."""
    kernel, f = world(n, 2, 0.1, 0)
    noise, uniforms = noise_and_uniforms(0, ROUNDS, NOISE_VAR)
    best, regret, out = float(f.max()), 0.0, {}
    state, began = algorithm.init(kernel, NOISE_VAR, 1), time.perf_counter()
    for t, (arms, _) in enumerate(rounds(algorithm, state, additive(f.unsqueeze(0), noise), uniforms), start=1):
        regret += best - float(f[arms])
        if t in MARKS:
            out[t] = (time.perf_counter() - began, regret)
            if out[t][0] > SECONDS / 2:  # the next mark is twice as far
                break
    return out


def arms(results: Path) -> None:
    """Time of a round against t and n."""
    figure, axes = plt.subplots(1, len(SIZES), figsize=(4.0 * len(SIZES), 3.4), sharey=True)
    for axis, n in zip(axes, SIZES, strict=True):
        width = FiniteWidth(n, 0.1, scale=5**-0.5)
        algorithms: dict[str, ArmAlgorithm] = {
            "exact GP-UCB": GPUCB(width),
            "BKB, fresh": BKB(width, 5.0),
            "BKB, persistent": BKB(width, 5.0, "persistent"),
            "BBKB": BBKB(width, 5.0, 0.3),
            "mini-GP-UCB": MiniGPUCB(width, math.sqrt(2.0)),
        }
        for name, algorithm in algorithms.items():
            runs = timed(algorithm, n)
            marks = sorted(runs)
            detail = {str(t): [round(x, 3) for x in runs[t]] for t in marks}
            last = marks[-1]
            report(f"n={n:g}, {name}: a round", 1e3 * runs[last][0] / last, "ms, mean", None, None, {"at": detail})
            axis.loglog(marks, [1e3 * runs[t][0] / t for t in marks], marker="o", markersize=3, label=name)
        axis.set(title=f"{n:,} arms", xlabel="rounds T")
        axis.set_xticks(MARKS, [str(t) for t in MARKS])
        axis.minorticks_off()
    axes[0].set_ylabel("ms a round, mean over the run")
    axes[0].legend(frameon=False, fontsize=8)
    figure.tight_layout()
    figure.savefig(results / "scaling_arms.png", dpi=110)


def data(n: int) -> tuple[Tensor, Tensor]:
    """Points of the unit cube in three dimensions and noisy values of a smooth function."""
    g = torch.Generator().manual_seed(n)
    X = torch.rand(n, 3, generator=g, dtype=torch.float64)
    f = torch.sin(6.0 * X[:, 0]) + torch.cos(5.0 * X[:, 1]) * X[:, 2]
    return X, (f + 0.1 * torch.randn(n, generator=g, dtype=torch.float64)).unsqueeze(1)


Predictor: TypeAlias = Callable[[Tensor], Tensor]


def mean_of(model: Model, x: Tensor) -> Tensor:
    """Posterior mean."""
    mean = model.posterior(x).mean  # type: ignore[attr-defined]
    assert isinstance(mean, Tensor)
    return mean


def exact(X: Tensor, Y: Tensor) -> Predictor:
    """BoTorch's own."""
    model = SingleTaskGP(X, Y)
    fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
    return lambda x: mean_of(model, x)


def sparse(X: Tensor, Y: Tensor) -> Predictor:
    """Ours: DTC evidence over a drawn dictionary."""
    model = BKBModel(X, Y, max_size=200, outcome_transform=Standardize(1))
    fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
    return lambda x: mean_of(model, x)


def variational(X: Tensor, Y: Tensor) -> Predictor:
    """BoTorch's SVGP, 200 inducing points, by Adam on batches of 1024 for 40 epochs, at least 400 steps."""
    mean, sd = Y.mean(), Y.std()
    model = SingleTaskVariationalGP(
        X, (Y - mean) / sd, inducing_points=200, covar_module=ScaleKernel(MaternKernel(2.5, ard_num_dims=3))
    ).double()
    mll = VariationalELBO(model.likelihood, model.model, num_data=len(X))
    model.train()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    steps = max(400, 40 * math.ceil(len(X) / 1024))
    g = torch.Generator().manual_seed(0)
    for _ in range(steps):
        rows = torch.randint(len(X), (min(1024, len(X)),), generator=g)
        optimizer.zero_grad()
        loss = -mll(model.model(X[rows]), ((Y[rows] - mean) / sd).squeeze(1))
        loss.backward()
        optimizer.step()
    model.eval()

    return lambda x: mean_of(model, x) * sd + mean


def models(results: Path) -> None:
    """Fit and predict against the number of observations."""
    X_test, Y_test = data(2001)
    makers: dict[str, tuple[Callable[[Tensor, Tensor], Predictor], int]] = {
        "SingleTaskGP": (exact, 2000),
        "BKBModel, m <= 200": (sparse, 20_000),
        "SVGP, m = 200": (variational, 20_000),
    }
    sizes = (250, 500, 1000, 2000, 4000, 20_000)
    figure, axes = plt.subplots(1, 2, figsize=(8.5, 3.4))
    for name, (make, most) in makers.items():
        rows = []
        for n in (n for n in sizes if n <= most):
            X, Y = data(n)
            began = time.perf_counter()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                predict = make(X, Y)
                fitted = time.perf_counter() - began
                with torch.no_grad():
                    error = float((predict(X_test) - Y_test).square().mean().sqrt())
            rows.append((n, fitted, time.perf_counter() - began - fitted, error))
        detail = {str(n): {"fit_s": round(a, 3), "predict_s": round(b, 3), "rmse": round(e, 4)} for n, a, b, e in rows}
        report(f"{name}: fit at n={rows[-1][0]}", rows[-1][1], "s", None, None, {"at": detail, "noise_sd": 0.1})
        axes[0].loglog([r[0] for r in rows], [r[1] for r in rows], marker="o", markersize=3, label=name)
        axes[1].semilogx([r[0] for r in rows], [r[3] for r in rows], marker="o", markersize=3, label=name)
    axes[0].set(xlabel="observations", ylabel="seconds to fit")
    axes[1].set(xlabel="observations", ylabel="RMSE of noisy values (noise: 0.1)")
    for axis in axes:
        axis.set_xticks(sizes, [f"{n:,}" for n in sizes])
        axis.minorticks_off()
    axes[0].legend(frameon=False, fontsize=8)
    figure.tight_layout()
    figure.savefig(results / "scaling_models.png", dpi=110)


def main() -> None:
    """Both, or the one named."""
    works = {"arms": arms, "models": models}
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=works, nargs="+", default=list(works))
    parser.add_argument("--results", type=Path, default=ROOT / "benchmarks" / "results" / "bkb")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    arguments.results.mkdir(parents=True, exist_ok=True)
    report("environment", 0, "none", None, None, environment())
    for name in arguments.only:
        with torch.inference_mode(name == "arms"):
            works[name](arguments.results)


if __name__ == "__main__":
    main()
