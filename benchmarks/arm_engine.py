"""GP-UCB and TGP-UCB over arms against what a user would write, and the time of an import.

Every comparison runs the same rewards. Where the alternative computes the same posterior, the arms chosen are compared
before a ratio is reported.
"""

from __future__ import annotations

import functools
import math
import os
import resource
import statistics
import subprocess
import sys
import tempfile

import numpy as np
import torch
from torch import Tensor

from benchmarks.common import report
from benchmarks.loop import additive, rounds, run_rounds, timed
from benchmarks.stats import LEAST, copy_bandwidth, cpu_times, ratios
from bo_robust.bandits import GPUCB
from bo_robust.bandits.posteriors.arms import ArmKernel
from bo_robust.confidence import ConstantWidth, FiniteWidth
from bo_robust.confidence.base import EXPLORING
from bo_robust.utils.covariance import Matern, SquaredExponential


def gp_problem(
    n: int, d: int, lengthscale: float, trials: int, rounds: int, noise_var: float, grid: bool = False
) -> tuple[ArmKernel, Tensor, Tensor, Tensor]:
    """Locations, kernel, draws of f (s x n) and a noise table (T x s)."""
    g = torch.Generator().manual_seed(0)
    X = torch.rand(n, d, generator=g, dtype=torch.float64)
    if grid:
        X = torch.linspace(0, 1, n, dtype=torch.float64).unsqueeze(1)
    kernel = ArmKernel.from_covariance(SquaredExponential(lengthscale), X)
    assert kernel.matrix is not None
    values, vectors = torch.linalg.eigh(kernel.matrix)
    root = vectors * values.clamp(min=0.0).sqrt()
    f = torch.randn(trials, n, generator=g, dtype=torch.float64) @ root.T
    noise = math.sqrt(noise_var) * torch.randn(rounds, trials, generator=g, dtype=torch.float64)
    return kernel, X, f, noise


def botorch_loop(
    X: Tensor, f: Tensor, noise: Tensor, lengthscale: float, noise_var: float, width: FiniteWidth
) -> Tensor:
    """What a BoTorch user writes: a fixed-hyperparameter SingleTaskGP, UCB and optimize_acqf_discrete each round."""
    from botorch.acquisition import UpperConfidenceBound
    from botorch.models import SingleTaskGP
    from botorch.optim import optimize_acqf_discrete
    from gpytorch.kernels import RBFKernel
    from gpytorch.means import ZeroMean

    covariance = RBFKernel().to(X)
    covariance.lengthscale = torch.tensor(lengthscale, dtype=X.dtype)
    chosen = [0]  # before any reward all bounds are equal: the first arm
    for t in range(1, noise.shape[0]):
        arms = torch.tensor(chosen)
        Y = (f[arms] + noise[:t, 0]).unsqueeze(1)
        model = SingleTaskGP(
            X[arms],
            Y,
            torch.full_like(Y, noise_var),
            covar_module=covariance,
            mean_module=ZeroMean(),
            outcome_transform=None,
        )
        acquisition = UpperConfidenceBound(model.eval(), beta=torch.tensor(float(width(t + 1)) ** 2, dtype=X.dtype))
        choice, _ = optimize_acqf_discrete(acquisition, q=1, choices=X)
        chosen.append(int((X - choice).abs().sum(1).argmin()))
    return torch.tensor(chosen)


def numpy_loop(K: np.ndarray, f: np.ndarray, noise: np.ndarray, noise_var: float, width: ConstantWidth) -> np.ndarray:
    """The honest baseline: a cached factor, one row of V = L^-1 K a round, in NumPy."""
    T, n = len(noise), len(f)
    V, mean, variance = np.empty((T, n)), np.zeros(n), K.diagonal().copy()
    chosen = np.empty(T, dtype=np.int64)
    for t in range(T):
        a = int(np.argmax(mean + width.value * np.sqrt(np.maximum(variance, 0.0))))
        chosen[t] = a
        scale = 1.0 / math.sqrt(noise_var + max(variance[a], 0.0))
        V[t] = (K[a] - V[:t, a] @ V[:t]) * scale
        mean += V[t] * ((f[a] + noise[t] - mean[a]) * scale)
        variance -= V[t] * V[t]
    return chosen


def against_botorch() -> None:
    """Srinivas' synthetic problem, one trial, same arms chosen."""
    horizon = 400
    kernel, X, f, noise = gp_problem(1000, 1, 0.2, 1, horizon, 0.025, grid=True)
    width = FiniteWidth(1000, 0.1, scale=EXPLORING)
    theirs = functools.partial(botorch_loop, X, f[0], noise, 0.2, 0.025, width)
    ours = functools.partial(run_rounds, GPUCB(width), kernel, 0.025, f, noise)
    same = int((ours()[:, 0] == theirs()).sum())
    botorch_s, ours_s = cpu_times(LEAST, theirs, ours)
    detail = {"botorch_s": botorch_s, "ours_s": ours_s, "same_picks": f"{same}/{horizon}"}
    name = f"GP-UCB over a BoTorch loop, T={horizon}"
    ratios(botorch_s, ours_s).report(name, detail=detail, least=150.0, valid=same == horizon)


def against_numpy() -> None:
    """n=1000: the cached-factor loop against one trial after T rounds (d=1 and 5), and against 64 trials (d=5)."""
    noise_var, width = 0.01, ConstantWidth(2.0)
    algorithm = GPUCB(width)
    for d, lengthscale in ((1, 0.2), (5, 0.5)):
        kernel, _, f, noise = gp_problem(1000, d, lengthscale, 64, 1000, noise_var)
        assert kernel.matrix is not None
        K, f0, one = kernel.matrix.numpy(), f[0].numpy(), f[:1].contiguous()
        for horizon, target in ((50, None), (200, None), (400, None), (1000, 1.6)):
            some = noise[:horizon, :1].contiguous()
            loop = functools.partial(numpy_loop, K, f0, some[:, 0].numpy(), noise_var, width)
            ours = functools.partial(run_rounds, algorithm, kernel, noise_var, one, some)
            chosen = ours()[:, 0]
            same = int((torch.from_numpy(loop()) == chosen).sum())
            theirs, mine = cpu_times(15, loop, ours)
            us = [round(1e6 * statistics.median(times) / horizon, 1) for times in (theirs, mine)]
            detail = {"numpy_us_per_round": us[0], "ours_us_per_round": us[1], "same_picks": f"{same}/{horizon}",
                      "distinct_arms": len(chosen.unique())}  # fmt: skip
            name = f"GP-UCB over a NumPy loop, one trial, d={d}, T={horizon}"
            ratios(theirs, mine).report(name, detail=detail, least=target, valid=same == horizon)
    theirs, mine, batch = cpu_times(5, loop, ours, lambda: run_rounds(algorithm, kernel, noise_var, f, noise))
    each = [seconds / 64 for seconds in batch]
    ratios(theirs, each).report("GP-UCB over a NumPy loop, each of 64 trials, d=5, T=1000", least=3.0)
    ratios(mine, each).report("GP-UCB, each of 64 trials over one trial, d=5, T=1000")


def many_arms(
    n: int, dtype: torch.dtype = torch.float64, device: torch.device | str = "cpu"
) -> tuple[ArmKernel, Tensor]:
    """n points of the unit cube of 6 dimensions under Matern-2.5, and f (``1 x n``)."""
    generator = torch.Generator(device).manual_seed(0)
    X = torch.rand(n, 6, generator=generator, dtype=torch.float64, device=device)
    f = (torch.sin(3.0 * X.sum(1)) + X[:, 0]).unsqueeze(0).to(dtype)
    return ArmKernel.from_covariance(Matern(2.5, 0.5), X.to(dtype)), f


def million_arms() -> None:
    """n = 10^6, T = 200, one trial."""
    n, d, horizon = 1_000_000, 6, 200
    kernel, f = many_arms(n)
    algorithm, zeros = GPUCB(ConstantWidth(2.0)), f.new_zeros(horizon, 1)
    rates, copies = [], []
    for _ in range(LEAST):
        copies.append(copy_bandwidth() / 1e9)
        with torch.inference_mode():
            state = algorithm.init(kernel, 0.01, 1, rounds=horizon)
            buffers, before, moved, took = state.posterior, 0, 0, 0.0
            for seconds, _ in timed(rounds(algorithm, state, additive(f, zeros), zeros)):
                new, before = buffers.num_rows - before, buffers.num_rows
                # Read: rows known at the block start, pending rows; locations for a new row. Read and written: mean,
                # variance. Read again by select: both. Written: the new prior row and the new pending row.
                read = int(buffers.block_filled[0]) + buffers.num_pending - 1
                moved += 8 * n * (read + new * (d + 1) + 4 + 2 + 1)
                took += seconds
        detail = {"distinct_arms": buffers.num_rows, "GB_per_round": round(moved / horizon / 1e9, 3)}
        del state, buffers
        rates.append(moved / took / 1e9)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    report("GP-UCB, a million arms, T=200: peak memory", peak, "GiB", {"process": "alone, imports included"}, most=4.0)
    detail |= {"achieved_GB_s": rates, "copy_GB_s": copies}
    name = "GP-UCB, a million arms, T=200: bandwidth"
    ratios(rates, copies).report(name, "of copy bandwidth", detail, least=0.75)


IMPORT = """
import gc, time
import botorch
{first}
gc.collect()  # the collection BoTorch's objects are due is theirs, not ours
gc.freeze()
began = time.process_time()
{then}
print(time.process_time() - began)
"""


def import_time() -> None:
    """What bo_robust adds to `import botorch`, and what its classes add to the BoTorch modules they use.

    In CPU milliseconds, with the bytecode that an installation or a first import leaves. Without it, as where
    PYTHONDONTWRITEBYTECODE is set, Python compiles every file anew.
    """
    first = "import botorch.models, botorch.acquisition.input_constructors"
    names = ("__version__", "RobustGP", "GPUCB, TruncatedGP")
    package, model, acquisition = (f"from bo_robust import {name}" for name in names)
    with tempfile.TemporaryDirectory() as folder:
        kept = {"PYTHONPYCACHEPREFIX": folder, "PYTHONDONTWRITEBYTECODE": ""}
        lost = {"PYTHONPYCACHEPREFIX": f"{folder}/nothing", "PYTHONDONTWRITEBYTECODE": "1"}
        goals = ((package, 50.0, kept), (model, 50.0, kept), (acquisition, 50.0, kept), (acquisition, None, lost))
        for then, most, kind in goals:
            command = [sys.executable, "-c", IMPORT.format(first=first, then=then)]
            times = []
            for _ in range(8):  # the first writes the bytecode
                done = subprocess.run(command, capture_output=True, text=True, check=True, env=os.environ | kind)
                times.append(1e3 * float(done.stdout))
            after = {"after": f"import botorch; {first}", "min": min(times[1:]), "max": max(times[1:])}
            title = then if kind is kept else f"{then}, without bytecode"
            report(title, statistics.median(times[1:]), "ms", after, most=most)
