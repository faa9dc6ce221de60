"""BKB, BBKB and mini-GP-UCB against NumPy and the exact engine, the same rewards for all.

The width is the practical one for all (Srinivas et al., Theorem 1, w^2 / 5).
"""

from __future__ import annotations

import functools
import statistics
import time
from collections import defaultdict
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from benchmarks.common import report
from benchmarks.loop import noise_and_uniforms, run_rounds
from benchmarks.numpy_bkb import Kernel, numpy_bbkb
from benchmarks.stats import ratios
from bo_robust.bandits import ArmAlgorithm
from bo_robust.bandits.bbkb import BBKB
from bo_robust.bandits.bkb import BKB
from bo_robust.bandits.gp_ucb import GPUCB
from bo_robust.bandits.mini_gp_ucb import MiniGPUCB
from bo_robust.bandits.posteriors.arms import ArmKernel
from bo_robust.confidence import FiniteWidth
from bo_robust.confidence.base import EXPLORING
from bo_robust.utils.covariance import SquaredExponential
from bo_robust.utils.random import spread, stream

NOISE_VAR = 0.01


def make_problem(n: int, d: int, lengthscale: float, seed: int) -> tuple[ArmKernel, Tensor]:
    """Arms uniform in [0, 1]^d and f, a sum of 30 random bumps scaled to [0, 1]."""
    rng = stream(seed, "problem", 0)
    arms = torch.from_numpy(rng.random((n, d)))
    centers, weights = torch.from_numpy(rng.random((30, d))), torch.from_numpy(rng.standard_normal(30))
    k = SquaredExponential(lengthscale)
    f = torch.cat([k(block, centers) @ weights for block in arms.split(65_536)])
    f = (f - f.min()) / (f.max() - f.min())
    return ArmKernel.from_covariance(k, arms), f


def run(
    algorithm: ArmAlgorithm, kernel: ArmKernel, f: Tensor, horizon: int, seed: int, noise_var: float = NOISE_VAR
) -> tuple[float, float, list[int]]:
    """CPU seconds, cumulative regret, arms."""
    noise, uniforms = noise_and_uniforms(seed, horizon, noise_var)
    began = time.process_time()
    picks = run_rounds(algorithm, kernel, noise_var, f.unsqueeze(0), noise, uniforms).squeeze(1)
    took = time.process_time() - began
    return took, float((f.max() - f[picks]).sum()), picks.tolist()


Problem = tuple[ArmKernel, Tensor, float]


def linear_problem(n: int, d: int, seed: int) -> Problem:
    """Kernel, f and noise variance of the authors' example: standard normal arms, a linear f, 1 % of its range."""
    rng = stream(seed, "problem", 1)
    arms = torch.from_numpy(rng.standard_normal((n, d)))
    f = arms @ torch.from_numpy(rng.standard_normal(d))
    return ArmKernel.from_matrix(arms @ arms.T, arms), f, 0.01 * float(f.max() - f.min())


def against_numpy(
    name: str,
    make: Callable[[float], BKB | BBKB],
    problems: list[Problem],
    covariance: Kernel,
    horizon: int,
    target: float,
) -> None:
    """Report an algorithm, made for a noise variance, against NumPy; a problem per repetition."""
    runs = []
    for seed, (kernel, f, noise_var) in enumerate([problems[0], *problems], start=-1):  # the first time is a warm-up
        assert kernel.arms is not None
        ours, n = make(noise_var), kernel.num_arms
        noise, uniforms = (table.squeeze(1) for table in noise_and_uniforms(max(seed, 0), horizon, noise_var))
        draws, first = spread(uniforms, n).numpy(), min(int(uniforms[0] * n), n - 1)
        tables = kernel.arms.numpy(), covariance, kernel.diagonal.numpy(), f.numpy(), noise.numpy()
        c = getattr(ours, "batch_constant", 0.0)
        width = functools.cache(lambda t, w=ours.width: float(w(t)))
        began = time.process_time()
        theirs = numpy_bbkb(*tables, first, draws, width, ours.oversampling, noise_var, c)
        middle = time.process_time()
        took, regret, picks = run(ours, kernel, f, horizon, max(seed, 0), noise_var)
        exact, _, _ = run(GPUCB(ours.width), kernel, f, horizon, max(seed, 0), noise_var)
        same = sum(a == b for a, b in zip(theirs, picks, strict=True))
        runs.append((middle - began, took, exact, same, round(regret, 2)))
    their_s, our_s, exact_s, *counts = (list(column) for column in zip(*runs[1:], strict=True))
    names = ("numpy_us_per_round", "ours_us_per_round", "exact_us_per_round", "same_picks", "regret")
    us = [round(1e6 * statistics.median(column) / horizon, 1) for column in (their_s, our_s, exact_s)]
    detail = dict(zip(names, (*us, *counts), strict=True))
    ratios(their_s, our_s).report(name, detail=detail, least=target)


def linear() -> None:
    """A linear kernel, d = 5, n = 1000, T = 1000, C = 2: the setting of the authors' example, against NumPy."""
    width, problems = FiniteWidth(1000, 0.1, scale=EXPLORING), [linear_problem(1000, 5, seed) for seed in range(5)]
    against_numpy("BKB, linear kernel, over NumPy", lambda _: BKB(width, 1.0), problems, np_linear, 1000, 0.5)
    against_numpy(
        "BBKB, C = 2, linear kernel, over NumPy", lambda var: BBKB(width, 1.0, var), problems, np_linear, 1000, 0.45
    )


def np_linear(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The linear kernel."""
    product: np.ndarray = a @ b.T
    return product


def np_squared_exponential(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The squared exponential kernel of lengthscale 0.5."""
    squares = (a * a).sum(1)[:, None] + (b * b).sum(1) - 2.0 * a @ b.T
    k: np.ndarray = np.exp(-0.5 / 0.5**2 * squares)
    return k


def small() -> None:
    """n = 1000, d = 5, squared exponential, T = 300: against NumPy, whose dictionaries are not the persistent ones."""
    width = FiniteWidth(1000, 0.1, scale=EXPLORING)
    problems = [(*make_problem(1000, 5, 0.5, seed), NOISE_VAR) for seed in range(5)]
    given = problems, np_squared_exponential, 300, 1.5
    against_numpy("BKB, n=1000, over NumPy", lambda _: BKB(width, 5.0), *given)
    against_numpy("BKB persistent, n=1000, over NumPy", lambda _: BKB(width, 5.0, "persistent"), *given)


def against_exact() -> None:
    """From which n and T a dictionary pays (d = 2, one seed; the first run of a size is a warm-up)."""
    for n, horizon in ((1000, 300), (1000, 1500), (10_000, 300), (10_000, 1500), (100_000, 1000), (300_000, 1000)):
        (kernel, f), width = make_problem(n, 2, 0.1, 0), FiniteWidth(n, 0.1, scale=EXPLORING)
        run(BBKB(width, 5.0, 0.3), kernel, f, 30, 0)
        exact_s, regret, arms = run(GPUCB(width), kernel, f, horizon, 0)
        for name, algorithm in (("BBKB", BBKB(width, 5.0, 0.3)), ("BKB", BKB(width, 5.0))):
            if name == "BBKB" or n * horizon <= 3_000_000:
                seconds, lost, _ = run(algorithm, kernel, f, horizon, 0)
                detail = {"seconds": seconds, "exact_s": exact_s, "regret_ratio": lost / regret}
                detail["MiB_of_exact_rows"] = len(set(arms)) * n * 8 / 2**20
                report(f"{name} over exact GP-UCB, n={n}, T={horizon}", exact_s / seconds, "times faster", detail)


def large() -> None:
    """n = 10^5, T = 1000: mini-GP-UCB and BBKB against the exact engine; C and c were chosen on seeds 0 to 4."""
    n, horizon = 100_000, 1000
    width = FiniteWidth(n, 0.1, scale=EXPLORING)
    algorithms: dict[str, ArmAlgorithm] = {
        "exact": GPUCB(width),
        "mini-GP-UCB": MiniGPUCB(width, 1.7),
        "BBKB": BBKB(width, 5.0, 0.3),
    }
    seconds, regret = defaultdict[str, list[float]](list), defaultdict[str, list[float]](list)
    for seed in range(5, 10):
        kernel, f = make_problem(n, 2, 0.1, seed)
        for name, algorithm in algorithms.items():
            took, lost, _ = run(algorithm, kernel, f, horizon, seed)
            seconds[name].append(took)
            regret[name].append(lost)
    for name in ("mini-GP-UCB", "BBKB"):
        more = ratios(regret[name], regret["exact"])
        detail = {"regret_ratio": more.median, "regret_interval": more.interval, "seconds": seconds[name]}
        title = f"n=1e5, T={horizon}: {name} over the exact engine, with regret <= 1.3 x"
        ratios(seconds["exact"], seconds[name]).report(title, detail=detail)
