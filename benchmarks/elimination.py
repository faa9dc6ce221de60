"""HE-GP-UCB against |U| separate runs of GP-UCB: ``python -m benchmarks.elimination [--only NAME] [--device DEVICE]``.

One JSON object a line; one BLAS thread; ratios within one process run, the same f and noise for all. Both sides keep
the same posteriors, |U| = 16 kernels and s trials: HE-GP-UCB in steps of 16 rows a trial (and bounds over U, evidence,
tests), GP-UCB in 16 runs of s rows. Each plays the arms of its own rule; as long lengthscales alone pull few arms and
the engine's cost grows with their number, ``replay`` is GP-UCB choosing, but pulling the arms HE-GP-UCB chose.
"""

from __future__ import annotations

import argparse
import json
import math
import time

import torch
from torch import Tensor

from benchmarks.common import environment, medians, report, seconds
from bo_robust.algorithms.base import ArmAlgorithm
from bo_robust.algorithms.gp_ucb import GPUCB
from bo_robust.algorithms.he_gp_ucb import HEGPUCB
from bo_robust.covariance import Matern, SquaredExponential
from bo_robust.schedules import BayesianFiniteWidth
from bo_robust.states.arms import ArmKernel
from bo_robust.states.hypotheses import candidate_kernel

NOISE_VAR, ROUNDS, DELTA = 0.01, 500, 0.1
LENGTHSCALES = (0.02, 0.03, 0.05, 0.08, 0.12, 0.2, 0.3, 0.5)


def world(n: int, trials: int, device: torch.device) -> tuple[ArmKernel, Tensor, Tensor]:
    """16 candidate kernels over n even points of [0, 1], draws of f from the sixth (``s x n``), noise (``T x s``)."""
    X = torch.linspace(0, 1, n, dtype=torch.float64).unsqueeze(1)
    kernel = candidate_kernel([k for ell in LENGTHSCALES for k in (SquaredExponential(ell), Matern(2.5, ell))], X)
    assert kernel.matrix is not None
    g = torch.Generator().manual_seed(0)
    values, vectors = torch.linalg.eigh(kernel.matrix[5])
    f = torch.randn(trials, n, generator=g, dtype=torch.float64) @ (vectors * values.clamp(min=0.0).sqrt()).mT
    noise = math.sqrt(NOISE_VAR) * torch.randn(ROUNDS, trials, generator=g, dtype=torch.float64)
    moved = ArmKernel(kernel.diagonal.to(device), kernel.matrix.to(device), arms=X.to(device))
    return moved, f.to(device), noise.to(device)


def play(algorithm: ArmAlgorithm, kernel: ArmKernel, f: Tensor, noise: Tensor, script: Tensor | None = None) -> Tensor:
    """All rounds of a noise table; picks T x s. With a ``script`` (T x s) its arms are pulled, whatever is chosen."""
    picks = torch.empty_like(noise, dtype=torch.long)
    with torch.inference_mode():
        uniform = torch.zeros_like(f[:, 0])
        state = algorithm.init(kernel, NOISE_VAR, len(f), rounds=len(noise))
        for t, eta in enumerate(noise.unbind(0)):
            arms = algorithm.select(state, uniform).arms
            picks[t] = arms if script is None else script[t]
            algorithm.observe(state, picks[t], f.gather(1, picks[t].unsqueeze(1)).squeeze(1) + eta)
    return picks


def separate(n: int, trials: int, step: int, target: float, repeats: int, device: torch.device) -> None:
    """16 hypotheses in one run (``step`` trials at a time) against 16 runs of one, T = 500."""
    kernel, f, noise = world(n, trials, device)
    assert kernel.matrix is not None
    width = BayesianFiniteWidth(n, DELTA, scale=5**-0.5)
    ours, theirs = HEGPUCB(width, math.sqrt(NOISE_VAR), DELTA), GPUCB(width)
    singles = [ArmKernel(K.diagonal(), K) for K in kernel.matrix]
    script = torch.empty(0)

    def together() -> None:
        nonlocal script
        pieces = zip(f.split(step), noise.split(step, dim=1), strict=True)
        script = torch.cat([play(ours, kernel, *piece) for piece in pieces], 1)

    works = (
        together,
        lambda: [play(theirs, single, f, noise) for single in singles],
        lambda: [play(theirs, single, f, noise, script) for single in singles],
    )
    he, own, replay = medians(repeats, *works) if repeats > 1 else [seconds(work) for work in works]
    report(
        f"HE-GP-UCB |U|=16 over 16 runs of GP-UCB, n={n}, s={trials}, T={ROUNDS}",
        own / he,
        "times faster",
        f">= {target:g}",
        own / he >= target,
        {
            "he_s": round(he, 3),
            "own_s": round(own, 3),
            "replay_s": round(replay, 3),
            "replay_ratio": round(replay / he, 2),
            "trials_at_a_time": step,
            "device": str(device),
        },
    )


# n, s, trials of HE-GP-UCB at a time (few, where their rows must stay in the cache), target, repeats
PARTS = {"overhead": (100, 8, 8, 4.0, 5), "arithmetic": (1000, 32, 4, 1.0, 1)}


def main() -> None:
    """Run the parts asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=sorted(PARTS), help="run one part")
    parser.add_argument("--device", default="cpu", help="torch device")
    options = parser.parse_args()
    torch.set_num_threads(1)
    device = torch.device(options.device)
    print(json.dumps({"environment": environment()}), flush=True)
    began = time.perf_counter()
    for name in [options.only] if options.only else PARTS:
        n, trials, step, target, repeats = PARTS[name]
        separate(n, trials, step if device.type == "cpu" else trials, target, repeats, device)
    print(json.dumps({"total_s": round(time.perf_counter() - began, 1)}), flush=True)


if __name__ == "__main__":
    main()
