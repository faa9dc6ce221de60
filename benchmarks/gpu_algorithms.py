"""The algorithms of ``python -m benchmarks.gpu``: how each is checked on any device, and measured on CUDA."""

from __future__ import annotations

import os
import statistics
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from benchmarks import arm_engine, bkb, elimination, stats
from benchmarks.gpu_common import CORES, Bench, Target, cpu_seconds, cut_off, require_close, require_same, seconds
from benchmarks.loop import additive, noise_and_uniforms, rounds, run_rounds
from benchmarks.stats import LEAST, wall_times
from bo_robust.bandits import ATAGPUCB, BBKB, GPUCB, HEGPUCB, TGPUCB, ArmAlgorithm, State
from bo_robust.bandits.posteriors.arms import ArmKernel
from bo_robust.bandits.posteriors.candidates import candidate_kernel
from bo_robust.confidence import BayesianFiniteWidth, ConstantWidth, FiniteWidth
from bo_robust.confidence.base import EXPLORING
from bo_robust.confidence.truncation import ATAFourierTruncation, TGPTruncation
from bo_robust.features import FourierFeatures
from bo_robust.ops import naive_ops
from bo_robust.ops.fused_rounds import fused_rounds
from bo_robust.utils.covariance import Matern, SquaredExponential
from bo_robust.utils.random import spread

__all__ = ["PARTS", "Part"]

# Sizes of what is measured.
MANY_ARMS = 1_000_000
ARMS = 1000
TGP_TRIALS = (20, 128)
HE_TRIALS = 64
STARTS, CONDITIONS = 4096, 256
ATA_ARMS, ATA_TRIALS, ATA_ROUNDS = 100, 20, 20_000
SINGLE_ARMS = (1000, 4000, 16_000, 64_000)
ROBUST_READINGS = (100, 500, 1000)
FEATURES = FourierFeatures(0.2, 32, ((0.0, 1.0),))
LEVEL = ATAFourierTruncation(4.0, 1.0, 0.1, ATA_ROUNDS, 32)
# What runs longer than this is cut off, and its target not met.
CUT_SECONDS = {True: 8.0, False: 15.0}


def moved(kernel: ArmKernel, device: torch.device, dtype: torch.dtype = torch.float64) -> ArmKernel:
    """The kernel with its tensors on a device."""
    matrix, arms = (None if x is None else x.to(device, dtype) for x in (kernel.matrix, kernel.arms))
    return ArmKernel(kernel.diagonal.to(device, dtype), matrix, kernel.covariance, arms)


def check_exact(device: torch.device) -> None:
    """The engine against NumPy's cached factor; on CUDA fused against naive ops too."""
    kernel, _, f, noise = arm_engine.gp_problem(300, 2, 0.3, 1, 60, 0.01)
    width = ConstantWidth(2.0)
    assert kernel.matrix is not None
    theirs = arm_engine.numpy_loop(kernel.matrix.numpy(), f[0].numpy(), noise[:, 0].numpy(), 0.01, width)
    workload = GPUCB(width), moved(kernel, device), 0.01, f.to(device), noise.to(device)
    ours = run_rounds(*workload)
    require_same("exact GP-UCB against NumPy", ours[:, 0], torch.from_numpy(theirs))
    with naive_ops():
        require_same("exact GP-UCB, fused against naive", ours, run_rounds(*workload))


def _million(n: int, horizon: int, dtype: torch.dtype, device: torch.device) -> Callable[[], Tensor]:
    """Picks of GP-UCB on n points of the unit cube, noise-free rewards, as ``benchmarks.arm_engine``."""
    generator = torch.Generator(device).manual_seed(0)
    X = torch.rand(n, 6, generator=generator, dtype=torch.float64, device=device)
    f = (torch.sin(3.0 * X.sum(1)) + X[:, 0]).unsqueeze(0).to(dtype)
    kernel, zeros = ArmKernel.from_covariance(Matern(2.5, 0.5), X.to(dtype)), f.new_zeros(horizon, 1)
    return lambda: run_rounds(GPUCB(ConstantWidth(2.0)), kernel, 0.01, f, zeros)


def _append(results: list[Tensor], work: Callable[[], Tensor]) -> None:
    results.append(work())


def measure_exact(bench: Bench, targets: list[Target]) -> None:
    """n = 10^6, d = 6, Matern-2.5."""
    n, horizon = MANY_ARMS, bench.full(1000)
    for target, dtype in zip(targets, (torch.float32, torch.float64), strict=True):
        _million(n, min(100, horizon), dtype, bench.device)()
        chosen: list[Tensor] = []
        work = partial(_append, chosen, _million(n, horizon, dtype, bench.device))
        took, detail = bench.seconds(work)
        with naive_ops():
            naive_s = seconds(work)
        detail |= {"rounds": horizon, "naive_s": naive_s, "distinct_arms": len(chosen[0].unique())}
        # One bound that ties within rounding sends the runs apart: counted, not required.
        bench.report(target, took, {**detail, "same_picks_as_naive": int((chosen[0] == chosen[-1]).sum())})
    bench.compare("gp_ucb_n1e6_d6_float64", lambda place, T: _million(n, T, torch.float64, place), bench.full(50))


class Problem(NamedTuple):
    """Arms of [0, 1] with a kernel as a matrix, and rewards f (``s x n``) drawn from it."""

    kernel: ArmKernel
    f: Tensor
    noise_var: float

    @property
    def matrix(self) -> Tensor:
        """The covariances, ``n x n``."""
        assert self.kernel.matrix is not None
        return self.kernel.matrix


def _problem_of(n: int, trials: int, noise_var: float, device: torch.device) -> Problem:
    """n even points, SE kernel of lengthscale 0.2."""
    kernel, X, f, _ = arm_engine.gp_problem(n, 1, 0.2, trials, 1, noise_var, grid=True)
    on_device = moved(kernel, device)
    assert on_device.matrix is not None
    return Problem(ArmKernel(on_device.diagonal, on_device.matrix, arms=X.to(device)), f.to(device), noise_var)


def _tgp(trials: int, horizon: int, device: torch.device) -> tuple[TGPUCB, Problem, Tensor]:
    noise = torch.from_numpy(np.random.default_rng(0).standard_t(3, (horizon, trials)))
    algorithm = TGPUCB(FiniteWidth(ATA_ARMS, 0.1, scale=EXPLORING), TGPTruncation(4.0, 1.0))
    return algorithm, _problem_of(ATA_ARMS, trials, 1.0, device), noise


def _tables(algorithm: TGPUCB, problem: Problem, noise: Tensor) -> tuple[Tensor, ...]:
    """What :func:`fused_rounds` takes."""
    f, rounds = problem.f, range(1, len(noise) + 1)
    covariance = problem.matrix.expand(len(f), *problem.matrix.shape[-2:])
    widths = f.new_tensor([[float(algorithm.width(t))] for t in rounds]).expand(len(noise), len(f))
    levels = f.new_tensor([float(algorithm.truncation(t)) for t in rounds])
    lam = f.new_full((len(f),), problem.noise_var)
    return covariance, torch.zeros_like(f), f, lam, noise.to(f), widths, levels


def _eager(algorithm: ArmAlgorithm, problem: Problem, noise: Tensor) -> Tensor:
    """The arms of all rounds (``T x s``), run one by one."""
    kernel = ArmKernel(problem.matrix.diagonal(dim1=-2, dim2=-1), problem.matrix)
    return run_rounds(algorithm, kernel, problem.noise_var, problem.f, noise.to(problem.f))


def check_tgp(device: torch.device) -> None:
    """The whole run in one call against round after round."""
    given = _tgp(3, 110, device)
    require_same("TGP-UCB in one call against rounds", fused_rounds(*_tables(*given)).arms, _eager(*given))


def measure_tgp(bench: Bench, targets: list[Target]) -> None:
    """The paper's 20,000 rounds of 100 arms, noise drawn beforehand, in one call."""
    horizon = bench.full(20_000)
    for target, trials in zip(targets, TGP_TRIALS, strict=True):
        tables = _tables(*_tgp(trials, horizon, bench.device))
        fused_rounds(*tables[:4], *(x[:8] for x in tables[4:]))
        took, detail = bench.seconds(lambda given=tables: fused_rounds(*given))  # type: ignore[misc]
        bench.report(target, took, {**detail, "rounds": horizon})

    def workload(device: torch.device, rounds: int) -> Callable[[], Tensor]:
        return partial(_eager, *_tgp(TGP_TRIALS[0], rounds, device))

    bench.compare("tgp_ucb_20x100_round_by_round", workload, bench.full(500))


def _ata(device: torch.device) -> tuple[Problem, Callable[[int], None], State, list[Tensor], list[Tensor]]:
    """ATA-QFF: the problem, a round, the state, and the arms and rewards so far."""
    problem = _problem_of(ATA_ARMS, ATA_TRIALS, 1.0, device)
    algorithm = ATAGPUCB(FiniteWidth(ATA_ARMS, 0.1, scale=EXPLORING), LEVEL, FEATURES, root="symmetric")
    state = algorithm.init(problem.kernel, problem.noise_var, ATA_TRIALS)
    noise = torch.from_numpy(np.random.default_rng(0).standard_t(3, (ATA_ROUNDS, ATA_TRIALS))).to(device)
    arms: list[Tensor] = []
    rewards: list[Tensor] = []
    workload = rounds(algorithm, state, additive(problem.f, noise), torch.zeros_like(noise))

    def step(t: int) -> None:
        for kept, new in zip((arms, rewards), next(workload), strict=True):
            kept.append(new)

    return problem, step, state, arms, rewards


def as_written(Phi: Tensor, V: Tensor, past: Tensor, y: Tensor, level: float) -> tuple[Tensor, Tensor]:
    """Mean and variance of all arms by Algorithm 2: features ``n x p``, V, features of past arms ``t x p``, rewards."""
    values, vectors = torch.linalg.eigh(V)
    root = (vectors * values.rsqrt()) @ vectors.mT
    U, Y = root @ past.mT, root @ Phi.mT
    Uy = U * y
    r = torch.where(Uy.abs() <= level, Uy, 0.0).sum(1)
    return r @ Y, Y.square().sum(0)


def check_ata(device: torch.device) -> None:
    """Mean and variance after 40 rounds against Algorithm 2 as written."""
    problem, step, state, arms, rewards = _ata(device)
    with torch.no_grad():
        for t in range(40):
            step(t)
        assert problem.kernel.arms is not None
        Phi = FEATURES(problem.kernel.arms)
        for i in range(2):
            past, y = Phi[torch.stack(arms)[:, i]], torch.stack(rewards)[:, i]
            V = past.mT @ past + problem.noise_var * torch.eye(Phi.shape[1], dtype=Phi.dtype, device=device)
            mean, variance = as_written(Phi, V, past, y, LEVEL(40))
            require_close("ATA-QFF, mean", state.posterior.mean[i], mean, 1e-6)
            require_close("ATA-QFF, variance", state.posterior.variance[i], problem.noise_var * variance, 1e-6)


def measure_ata(bench: Bench, targets: list[Target]) -> None:
    """20 trials x 20,000 rounds, 32 frequencies (64 features)."""
    _, step, _, _, _ = _ata(bench.device)
    with torch.no_grad():
        for t in range(20):
            step(t)
        horizon = bench.full(ATA_ROUNDS)
        took, run = cut_off(step, horizon, CUT_SECONDS[bench.quick])
    bench.report(targets[0], took, {"rounds_played": run, "of": horizon}, whole=run == horizon)
    bench.compare("ata_qff_20x100_m64", lambda place, T: partial(_play, _ata(place)[1], T), bench.full(200))


def _play(step: Callable[[int], None], rounds: int) -> None:
    """The next rounds of a workload."""
    with torch.no_grad():
        for t in range(rounds):
            step(t)


def check_bbkb(device: torch.device) -> None:
    """BBKB whose batches are single rounds against BKB as its paper writes it."""
    n, horizon, q = 300, 60, 5.0
    width = FiniteWidth(n, 0.1, scale=EXPLORING)
    kernel, f = bkb.make_problem(n, 2, 0.2, 0)
    assert kernel.arms is not None
    noise, uniforms = noise_and_uniforms(0, horizon, bkb.NOISE_VAR)
    eta, u = noise.squeeze(1), uniforms.squeeze(1)
    first, draws = min(int(u[0] * n), n - 1), spread(u, n).numpy()
    theirs = bkb.numpy_bbkb(
        kernel.arms.numpy(), lambda a, b: SquaredExponential(0.2)(torch.from_numpy(a), torch.from_numpy(b)).numpy(),
        kernel.diagonal.numpy(), f.numpy(), eta.numpy(), first, draws, lambda t: float(width(t)), q, bkb.NOISE_VAR, 0.0,
    )  # fmt: skip
    workload = moved(kernel, device), bkb.NOISE_VAR, f.unsqueeze(0).to(device), noise.to(device), uniforms.to(device)
    require_same("BBKB against BKB as written", run_rounds(BBKB(width, q, 0.0), *workload)[:, 0], torch.tensor(theirs))


def _bbkb(rounds_: int, device: torch.device) -> Callable[[int], None]:
    """A round of BBKB on n = 10^6 points of 6 dimensions."""
    n = MANY_ARMS
    kernel, f = bkb.make_problem(n, 6, 0.5, 0)
    kernel, f = moved(kernel, device), f.to(device).unsqueeze(0)
    noise, uniforms = (table.to(device) for table in noise_and_uniforms(0, rounds_, bkb.NOISE_VAR))
    algorithm = BBKB(FiniteWidth(n, 0.1, scale=EXPLORING), 5.0, 4.0)
    state = algorithm.init(kernel, bkb.NOISE_VAR, 1, rounds=rounds_)
    workload = rounds(algorithm, state, additive(f, noise), uniforms)
    return lambda t: (next(workload), None)[1]


def measure_bbkb(bench: Bench, targets: list[Target]) -> None:
    """n = 10^6, d = 6, 10,000 rounds of BBKB, and the first 100 on both devices."""
    horizon, few = bench.full(10_000), bench.full(100)
    _play(_bbkb(5, bench.device), 5)
    with torch.no_grad():
        took, run = cut_off(_bbkb(horizon, bench.device), horizon, CUT_SECONDS[bench.quick])
    bench.report(targets[0], took, {"rounds_played": run, "of": horizon}, whole=run == horizon)
    bench.compare("bbkb_n1e6", lambda place, T: lambda: _play(_bbkb(T, place), T), few)


def check_he(device: torch.device) -> None:
    """HE-GP-UCB with a single candidate is GP-UCB."""
    X = torch.linspace(0, 1, 80, dtype=torch.float64, device=device).unsqueeze(1)
    kernel = candidate_kernel([SquaredExponential(0.1)], X)
    assert kernel.matrix is not None
    generator = torch.Generator().manual_seed(0)
    f = torch.sin(9.0 * X[:, 0]).expand(2, -1).contiguous()
    noise = 0.1 * torch.randn(40, 2, generator=generator, dtype=torch.float64).to(device)
    width = BayesianFiniteWidth(80, 0.1, scale=EXPLORING)
    single = ArmKernel(kernel.matrix[0].diagonal(), kernel.matrix[0])
    ours = run_rounds(HEGPUCB(width, 0.1, 0.1), kernel, 0.01, f, noise)
    theirs = run_rounds(GPUCB(width), single, 0.01, f, noise)
    require_same("HE-GP-UCB of one candidate", ours, theirs)


def measure_he(bench: Bench, targets: list[Target]) -> None:
    """|U| = 16, s = 64, n = 1000, T = 500."""
    n, horizon = ARMS, bench.full(elimination.ROUNDS)
    kernel, f, noise = elimination.make_problem(n, HE_TRIALS, bench.device)
    algorithm = HEGPUCB(BayesianFiniteWidth(n, elimination.DELTA, scale=EXPLORING), 0.1, elimination.DELTA)
    run_rounds(algorithm, kernel, elimination.NOISE_VAR, f, noise[:40])
    work = partial(run_rounds, algorithm, kernel, elimination.NOISE_VAR, f, noise[:horizon])
    took, detail = bench.seconds(work)
    with naive_ops():
        naive_took = seconds(work)
    bench.report(targets[0], took, {**detail, "rounds": horizon, "naive_s": naive_took})

    def workload(device: torch.device, rounds: int) -> Callable[[], Tensor]:
        kernel, f, noise = elimination.make_problem(n, HE_TRIALS, device)
        return partial(run_rounds, algorithm, kernel, elimination.NOISE_VAR, f, noise[:rounds])

    bench.compare("he_gp_ucb_U16_s64_n1000", workload, bench.full(50))


def _v_ucb(
    starts: int, conditions: int, device: torch.device
) -> tuple[Callable[[], tuple[Tensor, Tensor]], Any, Tensor]:
    """Value and gradient at some starts, the acquisition, the starts; 100 observations, two columns of x, one of z."""
    from botorch.models import SingleTaskGP

    from bo_robust.acquisition import ValueAtRiskUCB
    from bo_robust.risk_measures.environments import FiniteEnvironment

    generator = torch.Generator().manual_seed(0)
    XZ = torch.rand(100, 3, generator=generator, dtype=torch.float64).to(device)
    Y = torch.sin(5.0 * XZ.sum(1, keepdim=True))
    Z = torch.linspace(0, 1, conditions, dtype=torch.float64, device=device).unsqueeze(1)
    X = torch.rand(starts, 1, 2, generator=generator, dtype=torch.float64).to(device)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of data that is not standardised
        model = SingleTaskGP(XZ, Y, torch.full_like(Y, 0.01), outcome_transform=None)
    acquisition = ValueAtRiskUCB(model.eval(), FiniteEnvironment(Z), 0.1, 2.0)

    def work() -> tuple[Tensor, Tensor]:
        x = X.clone().requires_grad_(True)
        value = acquisition(x)
        return value.detach(), torch.autograd.grad(value.sum(), x)[0]

    return work, acquisition, X


def check_v_ucb(device: torch.device) -> None:
    """Value and gradient against sorted bounds of BoTorch's posterior."""
    work, acquisition, X = _v_ucb(8, 16, device)
    value, gradient = work()
    x = X.clone().requires_grad_(True)
    points = acquisition.environment.points(x.squeeze(1))
    posterior = acquisition.model.posterior(points)
    upper = (posterior.mean + 2.0 * posterior.variance.sqrt()).squeeze(-1)
    theirs = upper.sort(-1).values[:, 1]  # the lowest value whose 16ths reach 0.1
    require_close("V-UCB, value", value, theirs, 1e-6)
    require_close("V-UCB, gradient", gradient, torch.autograd.grad(theirs.sum(), x)[0], 1e-5)


def measure_v_ucb(bench: Bench, targets: list[Target]) -> None:
    """4096 starts x 256 conditions, against the CPU of this machine with a thread per core."""
    starts = STARTS // 8 if bench.quick else STARTS
    on_gpu, on_cpu = (_v_ucb(starts, CONDITIONS, place)[0] for place in (bench.device, torch.device("cpu")))
    threads, cores = torch.get_num_threads(), len(os.sched_getaffinity(0))
    torch.set_num_threads(cores)
    try:
        for what, ours, theirs in zip(("value", "gradient"), on_gpu(), on_cpu(), strict=True):
            require_close(f"V-UCB on the GPU against the CPU, {what}", ours, theirs, 1e-6)
        cpu_s = statistics.median(wall_times(LEAST, on_cpu)[0])
    finally:
        torch.set_num_threads(threads)
    gpu_ms = bench.milliseconds(on_gpu)
    detail = {"gpu_ms": gpu_ms, "cpu_ms": 1e3 * cpu_s, "cores": cores, "starts": starts}
    bench.report(targets[0], 1e3 * cpu_s / gpu_ms, detail)


def _single(n: int, rounds: int, device: torch.device) -> tuple[GPUCB, Problem, Tensor, Tensor]:
    """One trial on n even points of [0, 1], as ``benchmarks.arm_engine``: algorithm, problem, noise, locations."""
    kernel, X, f, noise = arm_engine.gp_problem(n, 1, 0.2, 1, rounds, 0.025, grid=True)
    problem = Problem(moved(kernel, device), f.to(device), 0.025)
    return GPUCB(FiniteWidth(n, 0.1, scale=EXPLORING)), problem, noise, X.to(device)


def check_botorch(device: torch.device) -> None:
    """The same arms as BoTorch's loop on 60 arms."""
    _against_botorch(60, 15, device)


def _against_botorch(n: int, rounds: int, device: torch.device) -> tuple[float, float]:
    """Seconds of BoTorch's loop and of ours, both round by round."""
    algorithm, problem, noise, X = _single(n, rounds, device)
    ours = theirs = torch.empty(0)

    def our_loop() -> None:
        nonlocal ours
        ours = _eager(algorithm, problem, noise)

    def their_loop() -> None:
        nonlocal theirs
        width = algorithm.width
        assert isinstance(width, FiniteWidth)
        theirs = arm_engine.botorch_loop(X, problem.f[0], noise.to(device), 0.2, 0.025, width)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        their_s = stats.seconds(their_loop)
    our_s = stats.seconds(our_loop)
    require_same("GP-UCB against BoTorch's loop", ours[:, 0], theirs)
    return their_s, our_s


def measure_botorch(bench: Bench, targets: list[Target]) -> None:
    """n = 1000, T = 400, everything of both on the GPU."""
    rounds = bench.full(400)
    _against_botorch(ARMS, 3, bench.device)  # compiles and loads
    theirs, ours = _against_botorch(ARMS, rounds, bench.device)
    bench.report(targets[0], theirs / ours, {"botorch_s": theirs, "ours_s": ours, "rounds": rounds})


def measure_single(bench: Bench, targets: list[Target]) -> None:
    """One trial of GP-UCB: from how many arms a GPU is faster than a CPU."""
    for n in SINGLE_ARMS:

        def workload(device: torch.device, rounds: int, n: int = n) -> Callable[[], Tensor]:
            generator = torch.Generator().manual_seed(0)
            X = torch.rand(n, 3, generator=generator, dtype=torch.float64)
            f, noise = torch.sin(5.0 * X.sum(1)).unsqueeze(0), torch.zeros(rounds, 1, dtype=torch.float64)
            kernel = ArmKernel.from_covariance(Matern(2.5, 0.5), X.to(device))
            return partial(run_rounds, GPUCB(ConstantWidth(2.0)), kernel, 0.01, f.to(device), noise.to(device))

        bench.compare(f"gp_ucb_single_n{n}", workload, bench.full(200))


def check_robust_gp(device: torch.device) -> None:
    """The outliers that are flagged are the CPU's, and so is the posterior."""
    ours, theirs = (_robust_gp(40, place)() for place in (device, torch.device("cpu")))
    require_same("RobustGP's inliers", ours.inlier_mask, theirs.inlier_mask)
    X = torch.rand(5, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    require_close("RobustGP's mean", ours.posterior(X.to(device)).mean, theirs.posterior(X).mean, 1e-3)


def _robust_gp(n: int, device: torch.device) -> Callable[[], Any]:
    """Fits a RobustGP to n readings, one in ten of them wrong."""
    from botorch.fit import fit_gpytorch_mll
    from gpytorch.mlls import ExactMarginalLogLikelihood

    from bo_robust.models import RobustGP

    generator = torch.Generator().manual_seed(0)
    X = torch.rand(n, 3, generator=generator, dtype=torch.float64)
    Y = torch.sin(5.0 * X.sum(1, keepdim=True)) + 0.1 * torch.randn(n, 1, generator=generator, dtype=torch.float64)
    Y[::10] += 8.0

    def fit() -> Any:
        model = RobustGP(X.to(device), Y.to(device))
        fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
        return model

    return fit


def measure_robust_gp(bench: Bench, targets: list[Target]) -> None:
    """A fit of RobustGP with 100 to 1,000 readings, on the GPU and on the CPU."""
    for n in ROBUST_READINGS:
        on_gpu, on_cpu = _robust_gp(n, bench.device), _robust_gp(n, torch.device("cpu"))
        on_gpu()
        gpu_s, detail = bench.seconds(on_gpu, 3 if n < 500 else 1)
        by_threads = {f"cpu_{threads}_s": cpu_seconds(on_cpu, threads) for threads in (1, CORES)}
        detail |= {"gpu_s": gpu_s, **by_threads}
        bench.report(Target(f"robust_gp_fit_n{n}_cpu_over_gpu", "x"), min(by_threads.values()) / gpu_s, detail)


@dataclass(frozen=True)
class Part:
    """An algorithm: what is checked on any device, what is measured on CUDA, what is to be reached, and
    the workloads of which the CPU's time over the GPU's is a row, and a round's launches another."""

    check: Callable[[torch.device], None]
    measure: Callable[[Bench, list[Target]], None]
    targets: list[Target]
    compared: tuple[str, ...] = ()


PARTS = {
    "exact": Part(
        check_exact,
        measure_exact,
        [Target("gp_ucb_n1e6_d6_T1000_float32", "s", 1.0), Target("gp_ucb_n1e6_d6_T1000_float64", "s", 2.0)],
        ("gp_ucb_n1e6_d6_float64",),
    ),
    "tgp": Part(
        check_tgp,
        measure_tgp,
        [Target("tgp_ucb_20x20000x100", "s", 0.2), Target("tgp_ucb_128x20000x100", "s", 0.2)],
        ("tgp_ucb_20x100_round_by_round",),
    ),
    "ata": Part(check_ata, measure_ata, [Target("ata_qff_20x20000_m64", "s", 20.0)], ("ata_qff_20x100_m64",)),
    "bbkb": Part(check_bbkb, measure_bbkb, [Target("bbkb_n1e6_T10000", "s", 20.0)], ("bbkb_n1e6",)),
    "he": Part(check_he, measure_he, [Target("he_gp_ucb_U16_s64_n1000_T500", "s", 2.0)], ("he_gp_ucb_U16_s64_n1000",)),
    "v_ucb": Part(
        check_v_ucb, measure_v_ucb, [Target("v_ucb_4096x256_gradient_gpu_over_cpu", "x faster", 20.0, at_least=True)]
    ),
    "botorch": Part(
        check_botorch, measure_botorch, [Target("gp_ucb_over_botorch_n1000_T400", "x faster", 200.0, at_least=True)]
    ),
    "single": Part(check_exact, measure_single, [], tuple(f"gp_ucb_single_n{n}" for n in SINGLE_ARMS)),
    "robust_gp": Part(check_robust_gp, measure_robust_gp, []),
}
