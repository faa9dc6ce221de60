"""BKB, BBKB and mini-GP-UCB against what they are to replace: ``python -m benchmarks.bkb [--only NAME ...]``.

One JSON object a line; one BLAS thread; ratios within one process run, the same rewards for all. The width is the
practical one for all (Srinivas et al., Theorem 1, w^2 / 5).
"""

from __future__ import annotations

import argparse
import functools
import importlib
import math
import resource
import statistics
import sys
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

from benchmarks.common import ROOT, environment, report, report_ratio
from benchmarks.plain_bkb import Kernel, plain_bbkb
from bo_robust.algorithms import ArmAlgorithm
from bo_robust.algorithms.bbkb import BBKB
from bo_robust.algorithms.bkb import BKB
from bo_robust.algorithms.gp_ucb import GPUCB
from bo_robust.algorithms.mini_gp_ucb import MiniGPUCB
from bo_robust.confidence import FiniteWidth
from bo_robust.covariance import SquaredExponential
from bo_robust.posteriors.arms import ArmKernel
from bo_robust.random import spread, stream

NOISE_VAR = 0.01
# Folder of the authors' code, if it is to be compared.
AUTHORS: str | None = None


def world(n: int, d: int, lengthscale: float, seed: int) -> tuple[ArmKernel, Tensor]:
    """Arms uniform in [0, 1]^d and f, a sum of 30 random bumps scaled to [0, 1]."""
    rng = stream(seed, "problem", 0)
    arms = torch.from_numpy(rng.random((n, d)))
    centres, weights = torch.from_numpy(rng.random((30, d))), torch.from_numpy(rng.standard_normal(30))
    k = SquaredExponential(lengthscale)
    f = torch.cat([k(block, centres) @ weights for block in arms.split(65_536)])
    f = (f - f.min()) / (f.max() - f.min())
    return ArmKernel.from_covariance(k, arms), f


def rewards_of(seed: int, rounds: int, noise_var: float) -> tuple[Tensor, Tensor]:
    """Noise and uniform draws of every round."""
    rng = stream(seed, "reward", 0)
    noise = torch.from_numpy(math.sqrt(noise_var) * rng.standard_normal(rounds))
    return noise, torch.from_numpy(rng.random(rounds))


def play(
    algorithm: ArmAlgorithm, kernel: ArmKernel, f: Tensor, rounds: int, seed: int, noise_var: float = NOISE_VAR
) -> tuple[float, float, list[int]]:
    """CPU seconds, cumulative regret, arms."""
    noise, uniforms = rewards_of(seed, rounds, noise_var)
    picks = []
    began = time.process_time()
    state = algorithm.init(kernel, noise_var, 1, rounds=rounds)
    for eta, uniform in zip(noise.split(1), uniforms.split(1), strict=True):
        arms = algorithm.select(state, uniform).arms
        algorithm.observe(state, arms, f.take(arms) + eta, uniform)
        picks.append(int(arms))
    took = time.process_time() - began
    return took, float((f.max() - f[picks]).sum()), picks


World = tuple[ArmKernel, Tensor, float]


def linear_world(n: int, d: int, seed: int) -> World:
    """Kernel, f and noise variance of the authors' example: standard normal arms, a linear f, 1 % of its range."""
    rng = stream(seed, "problem", 1)
    arms = torch.from_numpy(rng.standard_normal((n, d)))
    f = arms @ torch.from_numpy(rng.standard_normal(d))
    return ArmKernel.from_matrix(arms @ arms.T, arms), f, 0.01 * float(f.max() - f.min())


def against_plain(
    name: str, make: Callable[[float], BKB | BBKB], worlds: list[World], covariance: Kernel, rounds: int, target: float
) -> list[float]:
    """Report an algorithm, made for a noise variance, against plain NumPy; a world per repetition. Its CPU seconds."""
    times: list[list[float]] = [[], []]
    same, regrets = [], []
    for seed, (kernel, f, noise_var) in enumerate([worlds[0], *worlds], start=-1):  # the first time is a warm-up
        assert kernel.arms is not None
        ours, n = make(noise_var), kernel.num_arms
        noise, uniforms = rewards_of(max(seed, 0), rounds, noise_var)
        draws, first = spread(uniforms, n).numpy(), min(int(uniforms[0] * n), n - 1)
        tables = kernel.arms.numpy(), covariance, kernel.diagonal.numpy(), f.numpy(), noise.numpy()
        c = getattr(ours, "batch_constant", 0.0)
        width = functools.cache(lambda t, w=ours.width: float(w(t)))
        began = time.process_time()
        theirs = plain_bbkb(*tables, first, draws, width, ours.oversampling, noise_var, c)
        middle = time.process_time()
        _, regret, picks = play(ours, kernel, f, rounds, max(seed, 0), noise_var)
        both = middle - began, time.process_time() - middle
        if seed >= 0:
            same.append(sum(a == b for a, b in zip(theirs, picks, strict=True)))
            regrets.append(round(regret, 2))
            for column, took in zip(times, both, strict=True):
                column.append(took)
    us = [round(1e6 * statistics.median(column) / rounds, 1) for column in times]
    detail = {"plain_us_per_round": us[0], "ours_us_per_round": us[1], "same_picks": same, "regret": regrets}
    report_ratio(name, times[0], times[1], target, detail)
    return times[1]


def linear() -> None:
    """A linear kernel, d = 5, n = 1000, T = 1000, C = 2: the setting of the authors' example, against plain NumPy."""
    n, rounds = 1000, 1000
    width, worlds = FiniteWidth(n, 0.1, scale=5**-0.5), [linear_world(n, 5, seed) for seed in range(5)]
    makers: dict[str, tuple[float, Callable[[float], BKB | BBKB]]] = {
        "BKB": (1.5, lambda _: BKB(width, 1.0)),
        "BBKB, C = 2": (1.0, lambda noise_var: BBKB(width, 1.0, noise_var)),
    }
    ours = {
        name: against_plain(f"{name}, linear kernel, over plain NumPy", make, worlds, np_linear, rounds, target)
        for name, (target, make) in makers.items()
    }
    if AUTHORS is not None:
        for (name, times), kind in zip(ours.items(), ("BKB", "Batch_BKB"), strict=True):
            theirs = [authors(kind, world, rounds) for world in worlds]
            report_ratio(f"{name}, linear kernel, over the authors' code", theirs, times, makers[name][0])


def np_linear(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The linear kernel."""
    product: np.ndarray = a @ b.T
    return product


def authors(kind: str, world: World, rounds: int) -> float:
    """CPU seconds of the code that the authors published (github.com/luigicarratino/batch-bkb), by their example."""
    from sklearn.gaussian_process.kernels import PairwiseKernel

    sys.path.insert(0, str(AUTHORS))
    kernel, f, noise_var = world
    assert kernel.arms is not None
    arms, values, draws = kernel.arms.numpy(), f.numpy(), np.random.RandomState(0)

    def reward(chosen: Any) -> np.ndarray:
        got: np.ndarray = values[chosen] + math.sqrt(noise_var) * draws.randn(len(chosen))
        return got

    settings = {"lam": noise_var, "noise_variance": noise_var, "fnorm": 1.0, "delta": 0.5, "qbar": 1}
    batch = {"ratio_threshold": 2.0} if kind == "Batch_BKB" else {}
    theirs = getattr(importlib.import_module("bkb_lib"), kind)(dot=PairwiseKernel(metric="linear"), **settings, **batch)
    theirs.initialize(arms, [0, 1], reward([0, 1]))
    began, t = time.process_time(), 0
    while t < rounds:
        chosen = theirs.predict()[0][: rounds - t]
        theirs.update(chosen, reward(chosen), draws)
        t += len(chosen)
    return time.process_time() - began


def small() -> None:
    """n = 1000, d = 5, T = 1000, squared exponential: against plain NumPy."""
    n, rounds, q = 1000, 1000, 5.0
    width = FiniteWidth(n, 0.1, scale=5**-0.5)
    worlds = [(*world(n, 5, 0.5, seed), NOISE_VAR) for seed in range(5)]

    def covariance(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        squares = (a * a).sum(1)[:, None] + (b * b).sum(1) - 2.0 * a @ b.T
        k: np.ndarray = np.exp(-0.5 / 0.5**2 * squares)
        return k

    against_plain("BKB, n=1000, over plain NumPy", lambda _: BKB(width, q), worlds, covariance, rounds, 1.5)
    # other dictionaries, and so other picks
    against_plain("BKB persistent, n=1000, over plain NumPy", lambda _: BKB(width, q, "persistent"), worlds, covariance,
                  rounds, 1.5)  # fmt: skip


def rough() -> None:
    """n = 20,640, d = 8, where nearly every pull is of a new arm and no dictionary saves: BBKB against exact GP-UCB."""
    n, horizon = 20_640, 1000
    width = FiniteWidth(n, 0.1, scale=5**-0.5)
    for rounds in (300, horizon):
        exact, ours, distinct = [], [], []
        for seed in range(5):
            kernel, f = world(n, 8, 0.5, seed)
            exact.append(play(GPUCB(width), kernel, f, rounds, seed)[0])
            took, _, picks = play(BBKB(width, 5.0, 0.05), kernel, f, rounds, seed)
            ours.append(took)
            distinct.append(len(set(picks)))
        ratios = [a / b for a, b in zip(ours, exact, strict=True)]
        value = statistics.median(ratios)
        detail = {"min": min(ratios), "max": max(ratios), "repeats": 5, "distinct_arms": distinct, "exact_s": exact}
        report(f"BBKB over exact GP-UCB, rough f, n={n}, T={rounds}", value, "times the time, paired median", "<= 1.5",
               value <= 1.5, detail)  # fmt: skip


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
    report_large(seconds, regret)


def report_large(seconds: dict[str, list[float]], regret: dict[str, list[float]]) -> None:
    """The faster of the algorithms whose regret is at most 1.3 x; speed and regret are medians of paired ratios."""
    others = [name for name in seconds if name != "exact"]

    def paired(table: dict[str, list[float]], name: str) -> list[float]:
        return [a / b for a, b in zip(table[name], table["exact"], strict=True)]

    speeds = {name: statistics.median(1.0 / x for x in paired(seconds, name)) for name in others}
    regrets = {name: statistics.median(paired(regret, name)) for name in others}
    good = [name for name in others if regrets[name] <= 1.3]
    best = max(good or others, key=speeds.__getitem__)
    times, losses = [1.0 / x for x in paired(seconds, best)], paired(regret, best)
    detail = {
        "algorithm": best,
        "min": min(times),
        "max": max(times),
        "repeats": len(times),
        "regret_ratio": regrets[best],
        "regret_ratio_min_max": [min(losses), max(losses)],
        "speeds": speeds,
        "regrets": regrets,
        "seconds": seconds,
        "regret": regret,
    }
    report(
        "n=1e5, T=5000: the faster of mini-GP-UCB and BBKB with regret <= 1.3 x, over the exact engine",
        speeds[best],
        "times faster, paired median",
        ">= 10 with paired median regret <= 1.3 x",
        bool(good) and speeds[best] >= 10.0,
        detail,
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
        "linear": linear,
        "small": small,
        "rough": rough,
        "large": large,
        "slope": slope,
        "million": million,
        "long": long,
    }
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    # `long` is the same as `million` for five times the rounds, by hand
    default = [name for name in works if name != "long"]
    parser.add_argument("--only", choices=works, nargs="+", default=default)
    parser.add_argument("--authors", help="folder of a clone of luigicarratino/batch-bkb, to be compared in `linear`")
    torch.set_num_threads(1)
    arguments = parser.parse_args()
    global AUTHORS
    AUTHORS = arguments.authors
    report("environment", 0, "none", None, None, environment())
    for name in arguments.only:
        with torch.no_grad():
            works[name]()


if __name__ == "__main__":
    main()
