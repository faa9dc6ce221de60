"""BKB, BBKB and mini-GP-UCB against what they are to replace: ``python -m benchmarks.bkb [--only NAME ...]``.

One JSON object a line; one BLAS thread; ratios within one process run, the same rewards for all. The width is the
practical one for all (Srinivas et al., Theorem 1, w^2 / 5).
"""

from __future__ import annotations

import argparse
import math
import resource
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import torch
from torch import Tensor

from benchmarks.common import ROOT, environment, report
from bo_robust.algorithms import ArmAlgorithm
from bo_robust.algorithms.bbkb import BBKB
from bo_robust.algorithms.bkb import BKB
from bo_robust.algorithms.gp_ucb import GPUCB
from bo_robust.algorithms.mini_gp_ucb import MiniGPUCB
from bo_robust.confidence import FiniteWidth
from bo_robust.covariance import SquaredExponential
from bo_robust.features.leverage import draw_dictionary, keep_probability
from bo_robust.posteriors.arms import ArmKernel
from bo_robust.random import spread, stream

NOISE_VAR = 0.01


def world(n: int, d: int, lengthscale: float, seed: int) -> tuple[ArmKernel, Tensor]:
    """Arms uniform in [0, 1]^d and f, a sum of 30 random bumps scaled to [0, 1]."""
    rng = stream(seed, "problem", 0)
    arms = torch.from_numpy(rng.random((n, d)))
    centres, weights = torch.from_numpy(rng.random((30, d))), torch.from_numpy(rng.standard_normal(30))
    k = SquaredExponential(lengthscale)
    f = torch.cat([k(block, centres) @ weights for block in arms.split(65_536)])
    f = (f - f.min()) / (f.max() - f.min())
    return ArmKernel.from_covariance(k, arms), f


def play(
    algorithm: ArmAlgorithm, kernel: ArmKernel, f: Tensor, rounds: int, seed: int
) -> tuple[float, float, list[int]]:
    """Seconds (rewards not counted), cumulative regret, arms."""
    rng = stream(seed, "reward", 0)
    noise, uniforms = torch.from_numpy(0.1 * rng.standard_normal(rounds)), torch.from_numpy(rng.random(rounds))
    best, regret, picks = float(f.max()), 0.0, []
    began = time.perf_counter()
    state = algorithm.init(kernel, NOISE_VAR, 1, rounds=rounds)
    for t in range(rounds):
        arms = algorithm.select(state, uniforms[t : t + 1]).arms
        value = f[arms]
        algorithm.observe(state, arms, value + noise[t], uniforms[t : t + 1])
        regret += best - float(value)
        picks.append(int(arms))
    return time.perf_counter() - began, regret, picks


def direct_bkb(
    kernel: ArmKernel, f: Tensor, rounds: int, seed: int, width: FiniteWidth, q: float
) -> tuple[float, float, list[int]]:
    """BKB as the paper writes it: symmetric root, everything rebuilt each round. Results as :func:`play`."""
    K, n = kernel.matrix, kernel.num_arms
    assert K is not None
    rng = stream(seed, "reward", 0)
    noise, uniforms = torch.from_numpy(0.1 * rng.standard_normal(rounds)), torch.from_numpy(rng.random(rounds))
    counts, sums = torch.zeros(n, dtype=torch.float64), torch.zeros(n, dtype=torch.float64)
    mean, variance = torch.zeros(n, dtype=torch.float64), K.diagonal().clone()
    best, regret, picks = float(f.max()), 0.0, []
    began = time.perf_counter()
    for t in range(rounds):
        arm = int((mean + width(t + 1) * variance.sqrt()).argmax()) if t else min(int(uniforms[t] * n), n - 1)
        counts[arm] += 1
        sums[arm] += f[arm] + noise[t]
        regret += best - float(f[arm])
        picks.append(arm)
        p = keep_probability(variance.unsqueeze(0) / NOISE_VAR, q, counts.unsqueeze(0))
        S = draw_dictionary(p, spread(uniforms[t : t + 1], n))[0].nonzero().squeeze(1)
        values, vectors = torch.linalg.eigh(K[S][:, S])
        kept = values > 1e-12 * values[-1]
        root = (vectors[:, kept] * values[kept].rsqrt()) @ vectors[:, kept].mT
        z = K[:, S] @ root
        gram = z.mT @ (counts.unsqueeze(1) * z)
        V = gram + NOISE_VAR * torch.eye(len(S), dtype=torch.float64)
        mean = z @ torch.linalg.solve(V, z.mT @ sums)
        variance = (K.diagonal() - (z * torch.linalg.solve(V, gram @ z.mT).mT).sum(1)).clamp(min=0.0)
    return time.perf_counter() - began, regret, picks


def small() -> None:
    """n = 1000, T = 1000: against the direct implementation."""
    n, rounds, q = 1000, 1000, 5.0
    width = FiniteWidth(n, 0.1, scale=5**-0.5)
    kernel, f = world(n, 5, 0.5, 0)
    runs: dict[str, Callable[[], tuple[float, float, list[int]]]] = {
        "direct": lambda: direct_bkb(kernel, f, rounds, 0, width, q),
        "fresh": lambda: play(BKB(width, q), kernel, f, rounds, 0),
        "persistent": lambda: play(BKB(width, q, "persistent"), kernel, f, rounds, 0),
        "exact": lambda: play(GPUCB(width), kernel, f, rounds, 0),
    }
    results = {name: [run() for _ in range(1 if name == "direct" else 3)] for name, run in runs.items()}
    seconds = {name: statistics.median(r[0] for r in result) for name, result in results.items()}
    regret = {name: result[0][1] for name, result in results.items()}
    same = sum(a == b for a, b in zip(results["direct"][0][2], results["fresh"][0][2], strict=True))
    detail = {"seconds": seconds, "regret": regret, "same_picks_fresh_direct": same}
    for name, target in (("fresh", 4.0), ("persistent", 15.0)):
        ratio = seconds["direct"] / seconds[name]
        report(
            f"BKB {name}, n=1000, T=1000, over the direct implementation",
            ratio,
            "times faster",
            f">= {target:g}",
            ratio >= target,
            detail,
        )


def large() -> None:
    """n = 10^5, T = 5000: mini-GP-UCB and BBKB against the exact engine; C and c were chosen on seeds 0 to 4."""
    n, rounds = 100_000, 5000
    width = FiniteWidth(n, 0.1, scale=5**-0.5)
    algorithms: dict[str, ArmAlgorithm] = {
        "exact": GPUCB(width),
        "mini-GP-UCB": MiniGPUCB(width, 1.7),
        "BBKB": BBKB(width, 5.0, 0.3),
    }
    seconds: dict[str, list[float]] = {name: [] for name in algorithms}
    regret: dict[str, list[float]] = {name: [] for name in algorithms}
    for seed in range(5, 10):
        kernel, f = world(n, 2, 0.1, seed)
        for name, algorithm in algorithms.items():
            took, lost, _ = play(algorithm, kernel, f, rounds, seed)
            seconds[name].append(took)
            regret[name].append(lost)
    detail = {"seconds": seconds, "regret": regret}
    middle = {name: statistics.median(v) for name, v in regret.items()}
    ratios = {
        name: statistics.median(a / b for a, b in zip(seconds["exact"], seconds[name], strict=True))
        for name in algorithms
        if name != "exact"
    }
    good = {name: ratio for name, ratio in ratios.items() if middle[name] <= 1.3 * middle["exact"]}
    best = max(good.values(), default=math.nan)
    report(
        "n=1e5, T=5000: the faster of mini-GP-UCB and BBKB with regret <= 1.3 x, over the exact engine",
        best,
        "times faster",
        ">= 10",
        best >= 10.0,
        {"ratios": ratios, "median_regret": middle, **detail},
    )


def slope() -> None:
    """BBKB's total time against T at n = 10^5."""
    n = 100_000
    width = FiniteWidth(n, 0.1, scale=5**-0.5)
    kernel, f = world(n, 2, 0.1, 0)
    marks = (1000, 2000, 4000, 8000)
    taken = [play(BBKB(width, 5.0, 0.3), kernel, f, T, 0)[0] for T in marks]
    value = float(np.polyfit(np.log(marks), np.log(taken), 1)[0])
    report(
        "BBKB, n=1e5: total time against T",
        value,
        "log-log slope",
        "<= 1.3",
        value <= 1.3,
        dict(zip(map(str, marks), taken, strict=True)),
    )


def million(rounds: int = 2000) -> dict[str, Any]:
    """n = 10^6, d = 6: memory, rounds a second, and |S_t| against its bound along the run."""
    n, q, epsilon = 1_000_000, 5.0, 0.5
    kernel, f = world(n, 6, 0.5, 0)
    algorithm = BBKB(FiniteWidth(n, 0.1, scale=5**-0.5), q, 4.0)
    rng = stream(0, "reward", 0)
    noise, uniforms = torch.from_numpy(0.1 * rng.standard_normal(rounds)), torch.from_numpy(rng.random(rounds))
    state = algorithm.init(kernel, NOISE_VAR, 1)
    best, regret, unique, along = float(f.max()), 0.0, set(), {}
    marks = sorted({int(x) for x in np.geomspace(10, rounds, 12)})
    began = time.perf_counter()
    for t in range(rounds):
        arms = algorithm.select(state, uniforms[t : t + 1]).arms
        value = f[arms]
        algorithm.observe(state, arms, value + noise[t], uniforms[t : t + 1])
        regret += best - float(value)
        unique.add(int(arms))
        if t + 1 in marks:
            d_eff = float(state.posterior.effective_dimension)
            # Theorem 1: |S| <= 3 (1 + kappa^2 / lambda) alpha q d_eff, alpha = (1 + epsilon) / (1 - epsilon)
            bound = 3.0 * (1.0 + 1.0 / NOISE_VAR) * (1.0 + epsilon) / (1.0 - epsilon) * q * d_eff
            along[t + 1] = {
                "dictionary": int(state.posterior.size),
                "estimated_d_eff": round(d_eff, 1),
                "bound": round(bound),
                "average_regret": round(regret / (t + 1), 4),
                "seconds": round(time.perf_counter() - began, 1),
            }
    took, peak = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    detail = {
        "rounds_per_second": rounds / took,
        "average_regret_of_a_random_arm": best - float(f.mean()),
        "unique_arms": len(unique),
        "along": along,
    }
    report(f"BBKB, n=1e6, d=6, T={rounds}: peak memory", peak, "GiB", "<= 4", peak <= 4.0, detail)
    return detail


def long() -> None:
    """The same for five times the rounds, and ``benchmarks/results/bkb/million_10000.png``."""
    draw(million(10_000), ROOT / "benchmarks" / "results" / "bkb" / "million_10000.png")


def draw(detail: dict[str, Any], path: Path) -> None:
    """|S_t| against its bound, and average regret, along a run of :func:`million`."""
    along, rounds = list(detail["along"].values()), [int(t) for t in detail["along"]]
    figure, (sizes, regrets) = plt.subplots(1, 2, figsize=(8.5, 3.2))
    names = (("dictionary", "|S|"), ("estimated_d_eff", "d_eff, estimated"), ("bound", "bound on |S|"))
    for (key, label), style in zip(names, ("-", "-", "--"), strict=True):
        sizes.loglog(rounds, [row[key] for row in along], style, marker="o", markersize=3, label=label)
    regrets.semilogx(rounds, [row["average_regret"] for row in along], marker="o", markersize=3, label="BBKB")
    regrets.axhline(detail["average_regret_of_a_random_arm"], linestyle="--", color="gray", label="random arms")
    sizes.set(xlabel="rounds")
    regrets.set(xlabel="rounds", ylabel="average regret", ylim=(0.0, None))
    for axis in (sizes, regrets):
        axis.legend(frameon=False, fontsize=8)
    figure.suptitle("BBKB, one million arms, d = 6", fontsize=10)
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def main() -> None:
    """All measurements, or those named."""
    works: dict[str, Callable[[], object]] = {
        "small": small,
        "large": large,
        "slope": slope,
        "million": million,
        "long": long,
    }
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    # `long` is the same as `million` for five times the rounds, by hand
    default = [name for name in works if name != "long"]
    parser.add_argument("--only", choices=works, nargs="+", default=default)
    torch.set_num_threads(1)
    arguments = parser.parse_args()
    report("environment", 0, "none", None, None, environment())
    for name in arguments.only:
        with torch.no_grad():
            works[name]()


if __name__ == "__main__":
    main()
