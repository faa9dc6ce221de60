"""HE-GP-UCB over 16 candidates against runs of GP-UCB, a part of ``benchmarks.speed``.

Both sides keep the same posteriors: HE-GP-UCB in steps of 16 rows a trial (and bounds over U, evidence, tests), GP-UCB
in 16 runs of s rows. Each runs the arms of its own rule. Long lengthscales alone pull few arms, and the engine's cost
grows with their number. So a second comparison is with GP-UCB that chooses, but pulls the arms that HE-GP-UCB chose.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from benchmarks.loop import additive, run_rounds
from benchmarks.stats import LEAST, cpu_times, ratios
from bo_robust.bandits.base import ArmAlgorithm
from bo_robust.bandits.gp_ucb import GPUCB
from bo_robust.bandits.he_gp_ucb import HEGPUCB
from bo_robust.bandits.posteriors.arms import ArmKernel
from bo_robust.bandits.posteriors.candidates import candidate_kernel
from bo_robust.confidence import BayesianFiniteWidth
from bo_robust.confidence.base import EXPLORING
from bo_robust.utils.covariance import Matern, SquaredExponential

NOISE_VAR, ROUNDS, DELTA = 0.01, 500, 0.1
LENGTHSCALES = (0.02, 0.03, 0.05, 0.08, 0.12, 0.2, 0.3, 0.5)


def make_problem(n: int, trials: int) -> tuple[ArmKernel, Tensor, Tensor]:
    """16 candidate kernels over n even points of [0, 1], draws of f from the sixth (``s x n``), noise (``T x s``)."""
    X = torch.linspace(0, 1, n, dtype=torch.float64).unsqueeze(1)
    kernel = candidate_kernel([k for ell in LENGTHSCALES for k in (SquaredExponential(ell), Matern(2.5, ell))], X)
    assert kernel.matrix is not None
    g = torch.Generator().manual_seed(0)
    values, vectors = torch.linalg.eigh(kernel.matrix[5])
    f = torch.randn(trials, n, generator=g, dtype=torch.float64) @ (vectors * values.clamp(min=0.0).sqrt()).mT
    noise = math.sqrt(NOISE_VAR) * torch.randn(ROUNDS, trials, generator=g, dtype=torch.float64)
    return kernel, f, noise


def replayed(algorithm: ArmAlgorithm, kernels: list[ArmKernel], f: Tensor, noise: Tensor, script: Tensor) -> None:
    """Pull the arms of a ``script`` (T x s), whatever is chosen, under each kernel."""
    uniform, reward = torch.zeros_like(f[:, 0]), additive(f, noise)
    with torch.inference_mode():
        for kernel in kernels:
            state = algorithm.init(kernel, NOISE_VAR, len(f), rounds=len(noise))
            for t, arms in enumerate(script):
                algorithm.select(state, uniform)
                algorithm.observe(state, arms, reward(t, arms))


def separate(n: int, trials: int, step: int, target: float) -> None:
    """16 candidates in one run (``step`` trials at a time, so that rows fit the cache) against 16 runs, T = 500."""
    kernel, f, noise = make_problem(n, trials)
    assert kernel.matrix is not None
    width = BayesianFiniteWidth(n, DELTA, scale=EXPLORING)
    ours, theirs = HEGPUCB(width, math.sqrt(NOISE_VAR), DELTA), GPUCB(width)
    singles = [ArmKernel(K.diagonal(), K) for K in kernel.matrix]
    script = torch.empty(0)

    def together() -> None:
        nonlocal script
        pieces = zip(f.split(step), noise.split(step, dim=1), strict=True)
        script = torch.cat([run_rounds(ours, kernel, NOISE_VAR, *piece) for piece in pieces], 1)

    works = (
        together,
        lambda: [run_rounds(theirs, single, NOISE_VAR, f, noise) for single in singles],
        lambda: replayed(theirs, singles, f, noise, script),
    )
    he, own, replay = cpu_times(LEAST, *works)
    detail = {"he_s": he, "trials_at_a_time": step}
    name = f"HE-GP-UCB, 16 candidates, over 16 runs of GP-UCB, n={n}, {trials} trials, T={ROUNDS}"
    ratios(replay, he).report(f"{name}, same arms", detail=detail, least=target)
    ratios(own, he).report(f"{name}, own arms")
