"""BoTorch loops on a continuous problem with outliers: ``python -m benchmarks.continuous [--seeds N] [--rounds T]``.

f on [0, 1]^2 is two bumps and two pits, f(x) = 1.5 k(x, (.75, .7)) + k(x, (.2, .3)) - k(x, (.25, .8)) - k(x, (.75, .2))
with k the unit RBF kernel of lengthscale 0.25: range [-0.79, 1.29], standard deviation 0.58, second best local maximum
0.84. So the "fixed" hyperparameters, that kernel, zero mean and noise variance 0.25, are exactly right but for the
tails. Three noises whose inliers have a standard deviation of about 0.5: symmetric Pareto of tail index 1.5 (infinite
variance, median absolute value that of N(0, 0.25)), spikes of +-30 at probability 1/25 on top of N(0, 0.25), and
N(0, 0.25) alone. Per seed all methods share 8 scrambled Sobol points, the noise of every round (``stream(seed,
"reward", 0)``) and the random numbers of the search. All play GP-UCB at one width: Srinivas et al. 2010, Theorem 1, for
2,000 arms, w^2 / 5, the practical width of the other benchmarks.

Levels by one rule, at the theorems' constants: alpha and v = max|f|^(1+alpha) + E|noise|^(1+alpha) from the noise law
(alpha 0.4 at index 1.5, otherwise 1), delta 0.1, horizon the number of rewards. Nothing is tuned to a panel.

"fixed" methods keep the hyperparameters above; the others fit them every 5 rounds (``RelevancePursuit`` every 10).
Simple regret is that of the model's own recommendation after the last round, the argmax of its posterior mean over
2,000 Sobol points (of which the best has regret 0.0004). Slow methods play the first few seeds only (``FEWER_SEEDS``);
comparisons are over the seeds both played. Writes ``benchmarks/results/continuous.json`` and ``.png``; about 25 minutes
on one core.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import torch
from botorch.models import SingleTaskGP
from botorch.models.model import Model
from botorch.optim import optimize_acqf
from gpytorch.kernels import RBFKernel
from gpytorch.means import ZeroMean
from scipy.stats import wilcoxon
from torch import Tensor
from torch.quasirandom import SobolEngine

from benchmarks.baselines import FittedGP, Refitted, RelevancePursuitGP, StudentTGP
from benchmarks.common import ROOT, environment, report
from bo_robust import GPUCB
from bo_robust.confidence import FiniteWidth
from bo_robust.covariance import SquaredExponential
from bo_robust.experiments.problems.rewards import Gaussian, NoiseModel, RareSpikes, SymmetricPareto
from bo_robust.models import FeatureGP, FourierMap, NystromMap, TruncatedFeatureGP, TruncatedGP, marginal_moments
from bo_robust.random import stream
from bo_robust.truncation import ATAFourierTruncation, ATANystromTruncation, TGPTruncation, truncate

Modeller = Callable[[Tensor, Tensor], Model]

INITIAL, CANDIDATES, NODES = 8, 2000, 12
LENGTHSCALE, NOISE_VAR, DELTA = 0.25, 0.25, 0.1
CENTRES = torch.tensor([[0.75, 0.7], [0.2, 0.3], [0.25, 0.8], [0.75, 0.2]], dtype=torch.float64)
HEIGHTS = torch.tensor([1.5, 1.0, -1.0, -1.0], dtype=torch.float64)
MAX_F = 1.2875230281  # also of |f|
WIDTH = FiniteWidth(CANDIDATES, DELTA, scale=5**-0.5)
NOISES: dict[str, NoiseModel] = {
    "Pareto 1.5": SymmetricPareto(1.5, 0.5 * 0.67449 / (2 ** (1 / 1.5) - 1)),
    "spikes": RareSpikes(30.0, 1 / 25, NOISE_VAR),
    "Gaussian": Gaussian(NOISE_VAR),
}
BASELINE, OURS, CONTROL = "SingleTaskGP", "TruncatedFeatureGP zero, fixed", "SingleTaskGP, fixed"
FEWER_SEEDS = {"RelevancePursuit": 6}


def objective(X: Tensor) -> Tensor:
    """f at ``n x 2`` points of the unit square, ``n``."""
    return SquaredExponential(LENGTHSCALE)(X, CENTRES) @ HEIGHTS


def kernel() -> RBFKernel:
    """The kernel f is made of."""
    rbf = RBFKernel().double()
    rbf.lengthscale = LENGTHSCALE
    return rbf


def fixed_gp(X: Tensor, Y: Tensor) -> Model:
    """``SingleTaskGP`` at the fixed hyperparameters."""
    return SingleTaskGP(X, Y, torch.full_like(Y, NOISE_VAR), None, kernel(), ZeroMean(), outcome_transform=None)


def methods(noise: NoiseModel, rounds: int) -> dict[str, Callable[[], Modeller]]:
    """What is compared: a name and a factory of functions from all data to a model."""
    alpha, horizon = noise.default_alpha, INITIAL + rounds
    v = noise.moment_bound(alpha, MAX_F)
    tgp = TGPTruncation(v, alpha)
    fourier = ATAFourierTruncation(v, alpha, DELTA, horizon, NODES**2)
    nystrom = ATANystromTruncation(v, alpha, DELTA, horizon, horizon)

    def tgp_clip(X: Tensor, Y: Tensor) -> Model:
        levels = tgp(torch.arange(1, len(Y) + 1, dtype=Y.dtype)).unsqueeze(-1)
        return fixed_gp(X, truncate(Y, levels, "clip"))

    def tgp_zero(X: Tensor, Y: Tensor, **modules: Any) -> Model:
        return TruncatedGP(X, Y, tgp, **modules)

    def ata_fourier(X: Tensor, Y: Tensor, **options: Any) -> Model:
        return TruncatedFeatureGP(X, Y, FourierMap(NODES), fourier, **options)

    def ata_nystrom(X: Tensor, Y: Tensor, **options: Any) -> Model:
        return TruncatedFeatureGP(X, Y, NystromMap(X), nystrom, **options)

    def fixed(build: Callable[..., Model], **options: Any) -> Callable[[], Modeller]:
        return lambda: lambda X, Y: build(X, Y, covar_module=kernel(), noise_var=NOISE_VAR, **options)

    return {
        BASELINE: FittedGP,
        CONTROL: lambda: fixed_gp,
        "Winsorize, Ax's default": lambda: FittedGP(winsorise="ax"),
        "Winsorize, both sides": lambda: FittedGP(winsorise="two-sided"),
        "TruncatedGP zero, fixed": fixed(tgp_zero),
        "TruncatedGP clip, fixed": lambda: tgp_clip,
        "TruncatedGP zero": lambda: Refitted(tgp_zero),
        "FeatureGP, fixed": fixed(lambda X, Y, **options: FeatureGP(X, Y, FourierMap(NODES), **options)),
        OURS: fixed(ata_fourier),
        "TruncatedFeatureGP clip, fixed": fixed(ata_fourier, rule="clip"),
        "TruncatedFeatureGP zero, Nystrom, fixed": fixed(ata_nystrom),
        "TruncatedFeatureGP zero, Nystrom": lambda: Refitted(ata_nystrom),
        "RelevancePursuit": lambda: RelevancePursuitGP(refit_every=10),
        "Student-t": StudentTGP,
    }


def play(
    modeller: Modeller,
    noise: NoiseModel,
    seed: int,
    rounds: int,
    num_restarts: int = 4,
    raw_samples: int = 64,
    maxiter: int = 50,
) -> dict[str, float]:
    """One loop: simple regret of the recommendation, average regret of the points played, CPU seconds a round."""
    torch.manual_seed(seed)
    bounds = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=torch.float64)
    eta = torch.from_numpy(noise.draw(stream(seed, "reward", 0), INITIAL + rounds))
    X = SobolEngine(2, scramble=True, seed=seed).draw(INITIAL, dtype=torch.float64)
    Y = objective(X).unsqueeze(-1) + eta[:INITIAL]
    began = time.process_time()
    for t in range(INITIAL, INITIAL + rounds):
        x, _ = optimize_acqf(
            GPUCB(modeller(X, Y), WIDTH, t=t + 1),
            bounds,
            q=1,
            num_restarts=num_restarts,
            raw_samples=raw_samples,
            options={"maxiter": maxiter, "seed": 1000 * seed + t},
        )
        X, Y = torch.cat([X, x]), torch.cat([Y, objective(x).unsqueeze(-1) + eta[t]])
    seconds = (time.process_time() - began) / rounds
    points = SobolEngine(2).draw(CANDIDATES, dtype=torch.float64)
    model = modeller(X, Y)
    with torch.no_grad():
        mean = marginal_moments(model, points.unsqueeze(-2))[0]
    return {
        "simple_regret": MAX_F - float(objective(points)[mean.argmax()]),
        "average_regret": MAX_F - float(objective(X[INITIAL:]).mean()),
        "seconds": seconds,
    }


def compare(ours: list[float], theirs: list[float]) -> dict[str, Any]:
    """Paired by seed: wins, losses and the two-sided p-value of Wilcoxon's signed-rank test."""
    difference = np.round(np.subtract(*zip(*zip(ours, theirs, strict=False), strict=True)), 9)
    p = float(wilcoxon(difference).pvalue) if difference.any() else 1.0
    return {
        "wins": int((difference < 0).sum()),
        "losses": int((difference > 0).sum()),
        "p": float(f"{p:.2g}"),
    }


def quartiles(values: list[float]) -> list[float]:
    """Lower quartile, median, upper quartile."""
    return [round(float(q), 4) for q in np.quantile(values, [0.25, 0.5, 0.75])]


def panel(name: str, seeds: int, rounds: int) -> dict[str, Any]:
    """Every method under one noise; prints a line each."""
    table: dict[str, Any] = {}
    for method, factory in methods(NOISES[name], rounds).items():
        played = min(seeds, FEWER_SEEDS.get(method, seeds))
        runs = [play(factory(), NOISES[name], seed, rounds) for seed in range(played)]
        values = {key: [round(run[key], 5) for run in runs] for key in ("simple_regret", "average_regret")}
        entry: dict[str, Any] = {
            "seeds": played,
            "simple_regret": quartiles(values["simple_regret"]),
            "average_regret": quartiles(values["average_regret"]),
            "seconds_per_round": round(float(np.median([run["seconds"] for run in runs])), 4),
        }
        for label, other in (("SingleTaskGP", BASELINE), ("SingleTaskGP, fixed", CONTROL)):
            if other in table and other != method:
                theirs = table[other]["per_seed"]
                entry[f"against {label}"] = {key: compare(values[key], theirs[key]) for key in values}
        asked = method == OURS and name == "Pareto 1.5"
        met = entry["simple_regret"][1] < table[BASELINE]["simple_regret"][1] if asked else None
        target = "below SingleTaskGP" if asked else None
        report(f"{name}: {method}", entry["simple_regret"][1], "median simple regret", target, met, entry)
        table[method] = entry | {"per_seed": values}
    return table


def draw(panels: dict[str, Any], path: Path) -> None:
    """Median and quartiles of the simple regret of every method, a column a noise."""
    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(1, len(panels), sharey=True, figsize=(11, 4.2), layout="constrained")
    for axis, (name, table) in zip(axes, panels.items(), strict=True):
        low, middle, high = np.array([entry["simple_regret"] for entry in table.values()]).T
        rows = np.arange(len(table))
        axis.errorbar(middle, rows, xerr=[middle - low, high - middle], fmt="o", color="k", ecolor="0.6", ms=4)
        axis.set(title=name, xlabel="simple regret: median, quartiles", xlim=(0, None))
        axis.set_yticks(rows, [f"{method} ({entry['seeds']})" for method, entry in table.items()])
        axis.grid(axis="x", alpha=0.3)
    axes[0].invert_yaxis()
    figure.savefig(path, dpi=110)


def main() -> None:
    """Play everything and write the results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=30, help="after the 8 starting points; a multiple of 10")
    parser.add_argument("--results", type=Path, default=ROOT / "benchmarks" / "results")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # unstandardised rewards, the search stopped at maxiter
    began = time.process_time()
    panels = {name: panel(name, arguments.seeds, arguments.rounds) for name in NOISES}
    kept = {
        "environment": environment(),
        "seeds": arguments.seeds,
        "rounds": arguments.rounds,
        "cpu_seconds": round(time.process_time() - began),
        "panels": panels,
    }
    arguments.results.mkdir(parents=True, exist_ok=True)
    (arguments.results / "continuous.json").write_text(json.dumps(kept, indent=None, ensure_ascii=False) + "\n")
    draw(panels, arguments.results / "continuous.png")


if __name__ == "__main__":
    main()
