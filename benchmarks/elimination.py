"""HE-GP-UCB over 16 candidates: how often the true one stays active, ``python -m benchmarks.elimination``, and speed.

:func:`separate`, a part of ``benchmarks.speed``, compares 16 candidates in one run with 16 separate runs of GP-UCB.
Both sides keep the same posteriors: HE-GP-UCB in steps of 16 rows a trial (and bounds over U, evidence, tests), GP-UCB
in 16 runs of s rows. Each runs the arms of its own rule. Long lengthscales alone pull few arms, and the engine's cost
grows with their number. So a second comparison is with GP-UCB that chooses, but pulls the arms that HE-GP-UCB chose.
"""

from __future__ import annotations

import argparse
import math
import warnings

import torch
from torch import Tensor

from benchmarks.common import report, report_environment
from benchmarks.loop import additive, rounds, run_rounds
from benchmarks.stats import LEAST, cpu_times, report_ratio
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


def make_problem(n: int, trials: int, device: torch.device | str = "cpu") -> tuple[ArmKernel, Tensor, Tensor]:
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


def replayed(
    algorithm: ArmAlgorithm, kernel: ArmKernel, f: Tensor, noise: Tensor, script: Tensor | None = None
) -> Tensor:
    """Arms chosen, T x s. With a ``script`` (T x s) its arms are pulled, whatever is chosen."""
    if script is None:
        return run_rounds(algorithm, kernel, NOISE_VAR, f, noise)
    with torch.inference_mode():
        uniform = torch.zeros_like(f[:, 0])
        state = algorithm.init(kernel, NOISE_VAR, len(f), rounds=len(noise))
        reward = additive(f, noise)
        for t, arms in enumerate(script):
            algorithm.select(state, uniform)
            algorithm.observe(state, arms, reward(t, arms))
    return script


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
        script = torch.cat([replayed(ours, kernel, *piece) for piece in pieces], 1)

    works = (
        together,
        lambda: [replayed(theirs, single, f, noise) for single in singles],
        lambda: [replayed(theirs, single, f, noise, script) for single in singles],
    )
    he, own, replay = cpu_times(LEAST, *works)
    detail = {"he_s": he, "trials_at_a_time": step}
    name = f"HE-GP-UCB, 16 candidates, over 16 runs of GP-UCB, n={n}, {trials} trials, T={ROUNDS}"
    report_ratio(f"{name}, same arms", replay, he, target, detail)
    report_ratio(f"{name}, own arms", own, he)


def survival(device: torch.device) -> None:
    """500 runs of 100 rounds on 100 arms, f from a candidate of {SE} x {.02, .05, .1, .2, .5}, the theorem's width."""
    n, trials, horizon, scales = 100, 500, 100, (0.02, 0.05, 0.1, 0.2, 0.5)
    X = torch.linspace(0, 1, n, dtype=torch.float64).unsqueeze(1)
    kernel = candidate_kernel([SquaredExponential(ell) for ell in scales], X)
    assert kernel.matrix is not None
    g = torch.Generator().manual_seed(1)
    true = torch.randint(len(scales), (trials,), generator=g)
    values, vectors = torch.linalg.eigh(kernel.matrix)
    roots = vectors * values.clamp(min=0.0).sqrt().unsqueeze(1)
    f = torch.einsum("snm,sm->sn", roots[true], torch.randn(trials, n, generator=g, dtype=torch.float64)).to(device)
    noise = math.sqrt(NOISE_VAR) * torch.randn(horizon, trials, generator=g, dtype=torch.float64).to(device)
    moved = ArmKernel(kernel.diagonal.to(device), kernel.matrix.to(device), arms=X.to(device))
    own = torch.nn.functional.one_hot(true, len(scales)).bool().to(device)
    for form, scale, met in (("errors", 1.0, True), ("errors", EXPLORING, False), ("likelihood", EXPLORING, True)):
        width, kept = BayesianFiniteWidth(n, DELTA, scale=scale), torch.ones_like(own[:, 0])
        algorithm = HEGPUCB(width, math.sqrt(NOISE_VAR), DELTA, elimination=form)
        with torch.inference_mode(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            state = algorithm.init(moved, NOISE_VAR, trials, rounds=horizon)
            for _ in rounds(algorithm, state, additive(f, noise), torch.zeros_like(noise)):
                kept &= state.posterior.active[own]
        active = state.posterior.active
        shorter = torch.tensor(scales, device=device) < torch.tensor(scales, device=device)[true.to(device)].unsqueeze(
            1
        )
        longer = ~shorter & ~own
        rate = float(kept.double().mean())
        report(
            f"share of {trials} runs in which the true one stays active, by {form}, w = {scale:.3g} of the theorem's",
            rate,
            "share",
            ">= 0.9" if met else None,
            rate >= 1.0 - DELTA if met else None,
            {
                "wrong_removed": round(1.0 - float(active[~own].double().mean()), 3),
                "wrong_smoother_removed": round(1.0 - float(active[longer].double().mean()), 3),
                "wrong_rougher_removed": round(1.0 - float(active[shorter].double().mean()), 3),
                "rounds": horizon,
            },
        )


def main() -> None:
    """Survival on a device."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", default="cpu", help="torch device")
    options = parser.parse_args()
    torch.set_num_threads(1)
    report_environment()
    survival(torch.device(options.device))


if __name__ == "__main__":
    main()
