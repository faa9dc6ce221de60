"""The algorithms of ``python -m benchmarks.gpu``: how each is checked on any device, and measured on CUDA."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import torch
from botorch.models import SingleTaskGP
from torch import Tensor

from benchmarks import arm_engine, bkb, candidate_engine, stats
from benchmarks.gpu_common import CORES, Bench, Target, cpu_path, require_close, require_same, threads
from benchmarks.loop import additive, blocks, noise_and_uniforms, rounds, run_rounds
from benchmarks.stats import LEAST
from bo_robust.acquisition import ValueAtRiskUCB, optimize_lnso
from bo_robust.bandits import ATAGPUCB, BBKB, BKB, GPUCB, HEGPUCB, TGPUCB, VUCB
from bo_robust.bandits.posteriors.arms import ArmKernel
from bo_robust.confidence import BayesianFiniteWidth, ConstantWidth, FiniteWidth
from bo_robust.confidence.base import EXPLORING
from bo_robust.confidence.truncation import ATAFourierTruncation, TGPTruncation
from bo_robust.features import FourierFeatures
from bo_robust.models import BKBModel, CandidateEnsemble, candidate_grid, exact_moments, marginal_moments
from bo_robust.ops import naive_ops
from bo_robust.proposals.suggest import suggest
from bo_robust.risk_measures.environments import ContinuousEnvironment, Environment, FiniteEnvironment
from bo_robust.utils.covariance import Matern

__all__ = ["PARTS", "Part"]

# Sizes of what is measured.
MANY_ARMS = 1_000_000
ARMS = 1000
TGP_TRIALS = (20, 128)
HE_TRIALS = 64
STARTS, CONDITIONS = 4096, 256
LNSO_STARTS = 8
ATA_ARMS, ATA_TRIALS, ATA_ROUNDS = 100, 20, 20_000
SINGLE_ARMS = (1000, 4000, 16_000, 64_000)
ROBUST_READINGS = (100, 500, 1000)
MODEL_READINGS = 200  # of an ensemble and of a suggestion; fifty times as many of BKBModel
CPU_BLOCKS = (CORES << 17, 1 << 26)  # of ``exact_moments``: as large for every thread of a CPU as for one
FEATURES = FourierFeatures(0.2, 32, ((0.0, 1.0),))
LEVEL = ATAFourierTruncation(4.0, 1.0, 0.1, ATA_ROUNDS, 32)


def moved(kernel: ArmKernel, device: torch.device) -> ArmKernel:
    """The kernel with its tensors on a device."""
    matrix, arms = (None if x is None else x.to(device) for x in (kernel.matrix, kernel.arms))
    return ArmKernel(kernel.diagonal.to(device), matrix, kernel.covariance, arms)


def _require_same_posterior(
    what: str, algorithm: Any, kernel: ArmKernel, noise_var: float, f: Tensor, noise: Tensor, device: torch.device
) -> None:
    """Run all rounds on a device, give the CPU its arms and rewards, and compare the posteriors at the end.

    That of the CPU is compared in tests with independent implementations. Arms are not compared: bounds may tie within
    rounding.
    """
    uniforms = torch.rand(noise.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    with torch.inference_mode():
        tables = f.to(device), noise.to(device)
        state = algorithm.init(moved(kernel, device), noise_var, len(f), rounds=len(noise))
        ran = list(rounds(algorithm, state, additive(*tables), uniforms.to(device)))
        with cpu_path():
            theirs = algorithm.init(kernel, noise_var, len(f), rounds=len(noise))
            for (arms, rewards), uniform in zip(ran, uniforms, strict=True):
                algorithm.select(theirs, uniform)
                algorithm.observe(theirs, arms.cpu(), rewards.cpu(), uniform)
    for name in ("mean", "variance"):
        ours, cpu = (getattr(of.posterior, name) for of in (state, theirs))
        require_close(f"{what}, {name}", ours, cpu, 1e-6)


def check_exact(device: torch.device) -> None:
    """The posterior of the engine against the CPU's, and its arms by fused against those by naive ops."""
    kernel, _, f, noise = arm_engine.gp_problem(300, 2, 0.3, 1, 60, 0.01)
    algorithm = GPUCB(ConstantWidth(2.0))
    _require_same_posterior("exact GP-UCB", algorithm, kernel, 0.01, f, noise, device)
    workload = algorithm, moved(kernel, device), 0.01, f.to(device), noise.to(device)
    ours = run_rounds(*workload)
    with naive_ops():
        require_same("exact GP-UCB, fused against naive", ours, run_rounds(*workload))


def _million(n: int, horizon: int, dtype: torch.dtype, device: torch.device) -> Callable[[], Tensor]:
    """Picks of GP-UCB on n points, noise-free rewards."""
    kernel, f = arm_engine.many_arms(n, dtype, device)
    return partial(run_rounds, GPUCB(ConstantWidth(2.0)), kernel, 0.01, f, f.new_zeros(horizon, 1))


def measure_exact(bench: Bench, targets: list[Target]) -> None:
    """n = 10^6, d = 6, Matern-2.5."""
    n, horizon = MANY_ARMS, bench.full(1000)
    for target, dtype in zip(targets, (torch.float32, torch.float64), strict=True):
        _million(n, min(100, horizon), dtype, bench.device)()
        chosen: list[Tensor] = []
        work = _million(n, horizon, dtype, bench.device)
        took, detail = bench.seconds(lambda work=work, chosen=chosen: chosen.append(work()))  # type: ignore[misc]
        with naive_ops():
            naive_s, _ = bench.seconds(lambda work=work, chosen=chosen: chosen.append(work()), 1)  # type: ignore[misc]
        detail |= {"rounds": horizon, "naive_s": naive_s, "distinct_arms": len(chosen[0].unique())}
        # One bound that ties within rounding sends the runs apart: counted, not required.
        bench.report(target, took, {**detail, "same_picks_as_naive": int((chosen[0] == chosen[-1]).sum())})
    for dtype in (torch.float64, torch.float32):

        def workload(device: torch.device, rounds: int, dtype: torch.dtype = dtype) -> Callable[[], Tensor]:
            return _million(n, rounds, dtype, device)

        bench.compare(f"gp_ucb_n1e6_d6_{str(dtype)[6:]}", workload, bench.full(50))


def _grid(n: int, trials: int, noise_var: float, device: torch.device) -> tuple[ArmKernel, Tensor]:
    """n even points of [0, 1] under an SE kernel of lengthscale 0.2, and rewards f (``s x n``) drawn from it."""
    kernel, _, f, _ = arm_engine.gp_problem(n, 1, 0.2, trials, 1, noise_var, grid=True)
    return moved(kernel, device), f.to(device)


def _heavy_noise(horizon: int, trials: int) -> Tensor:
    return torch.from_numpy(np.random.default_rng(0).standard_t(3, (horizon, trials)))


Run = tuple[TGPUCB, ArmKernel, float, Tensor, Tensor]  # what :func:`run_rounds` takes


def _tgp(trials: int, horizon: int, device: torch.device) -> Run:
    kernel, f = _grid(ATA_ARMS, trials, 1.0, device)
    algorithm = TGPUCB(FiniteWidth(ATA_ARMS, 0.1, scale=EXPLORING), TGPTruncation(4.0, 1.0))
    return algorithm, kernel, 1.0, f, _heavy_noise(horizon, trials).to(device)


def check_tgp(device: torch.device) -> None:
    """The posterior after 110 rounds against the CPU's, and blocks of rounds against single ones."""
    given = algorithm, kernel, noise_var, f, noise = _tgp(3, 110, device)
    on_cpu = _tgp(3, 110, torch.device("cpu"))
    _require_same_posterior("TGP-UCB", *on_cpu, device)
    state = algorithm.init(kernel, noise_var, len(f), rounds=len(noise))
    single = [one.arms for one in rounds(algorithm, state, additive(f, noise), torch.zeros_like(noise))]
    require_same("TGP-UCB in blocks against rounds", run_rounds(*given), torch.stack(single))


def measure_tgp(bench: Bench, targets: list[Target]) -> None:
    """The paper's 20,000 rounds of 100 arms, noise drawn beforehand."""
    horizon = bench.full(20_000)
    for target, trials in zip(targets, TGP_TRIALS, strict=True):
        run_rounds(*_tgp(trials, min(100, horizon), bench.device))
        took, detail = bench.seconds(partial(run_rounds, *_tgp(trials, horizon, bench.device)))
        bench.report(target, took, {**detail, "rounds": horizon})

    def workload(device: torch.device, rounds: int) -> Callable[[], Tensor]:
        return partial(run_rounds, *_tgp(TGP_TRIALS[0], rounds, device))

    bench.compare("tgp_ucb_20x100", workload, bench.full(500), _part_of_tgp)


def _part_of_tgp(parts: int, horizon: int) -> Callable[[], Tensor]:
    return partial(run_rounds, *_tgp(math.ceil(TGP_TRIALS[0] / parts), horizon, torch.device("cpu")))


ATA = ATAGPUCB(FiniteWidth(ATA_ARMS, 0.1, scale=EXPLORING), LEVEL, FEATURES, root="symmetric")


def _ata(trials: int, horizon: int, device: torch.device) -> tuple[Any, ...]:
    """ATA-QFF, as :func:`run_rounds` takes it."""
    kernel, f = _grid(ATA_ARMS, trials, 1.0, device)
    return ATA, kernel, 1.0, f, _heavy_noise(horizon, trials).to(device)


def _part_of_ata(parts: int, horizon: int) -> Callable[[], Tensor]:
    return partial(run_rounds, *_ata(math.ceil(ATA_TRIALS / parts), horizon, torch.device("cpu")))


def check_ata(device: torch.device) -> None:
    """The posterior after 40 rounds against the CPU's."""
    kernel, f = _grid(ATA_ARMS, ATA_TRIALS, 1.0, torch.device("cpu"))
    _require_same_posterior("ATA-QFF", ATA, kernel, 1.0, f, _heavy_noise(40, ATA_TRIALS), device)


def measure_ata(bench: Bench, targets: list[Target]) -> None:
    """20 trials x 20,000 rounds, 32 frequencies (64 features)."""
    horizon = bench.full(ATA_ROUNDS)
    run_rounds(*_ata(ATA_TRIALS, 20, bench.device))
    bench.cut_off(targets[0], blocks(*_ata(ATA_TRIALS, horizon, bench.device)), horizon)

    def workload(device: torch.device, rounds: int) -> Callable[[], Tensor]:
        return partial(run_rounds, *_ata(ATA_TRIALS, rounds, device))

    bench.compare("ata_qff_20x100_m64", workload, bench.full(200), _part_of_ata)


def check_bbkb(device: torch.device) -> None:
    """The posterior of 60 rounds against the CPU's."""
    kernel, f = bkb.make_problem(300, 2, 0.2, 0)
    noise, _ = noise_and_uniforms(0, 60, bkb.NOISE_VAR)
    algorithm = BBKB(FiniteWidth(300, 0.1, scale=EXPLORING), 5.0, 0.3)
    _require_same_posterior("BBKB", algorithm, kernel, bkb.NOISE_VAR, f.unsqueeze(0), noise, device)


def _bbkb(horizon: int, device: torch.device) -> tuple[Any, ...]:
    """BBKB on n = 10^6 points of 6 dimensions, as :func:`run_rounds` takes it."""
    n = MANY_ARMS
    kernel, f = bkb.make_problem(n, 6, 0.5, 0)
    kernel, f = moved(kernel, device), f.to(device).unsqueeze(0)
    noise, uniforms = (table.to(device) for table in noise_and_uniforms(0, horizon, bkb.NOISE_VAR))
    return BBKB(FiniteWidth(n, 0.1, scale=EXPLORING), 5.0, 4.0), kernel, bkb.NOISE_VAR, f, noise, uniforms


def measure_bbkb(bench: Bench, targets: list[Target]) -> None:
    """n = 10^6, d = 6, 10,000 rounds of BBKB, and the first 100 on both devices."""
    horizon = bench.full(10_000)
    run_rounds(*_bbkb(5, bench.device))
    bench.cut_off(targets[0], blocks(*_bbkb(horizon, bench.device)), horizon)
    bench.compare("bbkb_n1e6", lambda place, T: partial(run_rounds, *_bbkb(T, place)), bench.full(100))


def check_he(device: torch.device) -> None:
    """The posteriors of 16 candidates after 40 rounds against the CPU's."""
    kernel, f, noise = candidate_engine.make_problem(80, 2)
    algorithm = HEGPUCB(BayesianFiniteWidth(80, 0.1, scale=EXPLORING), 0.1, 0.1)
    _require_same_posterior("HE-GP-UCB", algorithm, kernel, candidate_engine.NOISE_VAR, f, noise[:40], device)


def _he(device: torch.device, horizon: int, trials: int | None = None) -> Callable[[], Tensor]:
    """|U| = 16, s = 64, n = 1000."""
    width = BayesianFiniteWidth(ARMS, candidate_engine.DELTA, scale=EXPLORING)
    kernel, f, noise = candidate_engine.make_problem(ARMS, HE_TRIALS if trials is None else trials)
    given = moved(kernel, device), candidate_engine.NOISE_VAR, f.to(device), noise[:horizon].to(device)
    return partial(run_rounds, HEGPUCB(width, 0.1, candidate_engine.DELTA), *given)


def _part_of_he(parts: int, horizon: int) -> Callable[[], Tensor]:
    return _he(torch.device("cpu"), horizon, math.ceil(HE_TRIALS / parts))


def measure_he(bench: Bench, targets: list[Target]) -> None:
    """500 rounds, by fused and by naive ops, and 50 on both devices."""
    horizon = bench.full(candidate_engine.ROUNDS)
    _he(bench.device, 40)()
    work = _he(bench.device, horizon)
    took, detail = bench.seconds(work)
    with naive_ops():
        naive_s, _ = bench.seconds(work, 1)
    bench.report(targets[0], took, {**detail, "rounds": horizon, "naive_s": naive_s})
    bench.compare("he_gp_ucb_U16_s64_n1000", _he, bench.full(50), _part_of_he)


def _acquisition(environment: Environment, device: torch.device) -> ValueAtRiskUCB:
    """V-UCB after 100 observations, two columns of x, one of z."""
    XZ = torch.rand(100, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64).to(device)
    Y = torch.sin(5.0 * XZ.sum(1, keepdim=True))
    model = SingleTaskGP(XZ, Y, torch.full_like(Y, 0.01), outcome_transform=None)
    return ValueAtRiskUCB(model.eval(), environment, 0.1, 2.0)


def _v_ucb(starts: int, conditions: int, device: torch.device) -> Callable[[], tuple[Tensor, Tensor]]:
    """Value and gradient at some starts."""
    Z = torch.linspace(0, 1, conditions, dtype=torch.float64, device=device).unsqueeze(1)
    X = torch.rand(starts, 1, 2, generator=torch.Generator().manual_seed(1), dtype=torch.float64).to(device)
    acquisition = _acquisition(FiniteEnvironment(Z), device)

    def work() -> tuple[Tensor, Tensor]:
        x = X.clone().requires_grad_(True)
        value = acquisition(x)
        return value.detach(), torch.autograd.grad(value.sum(), x)[0]

    return work


def _v_ucb_arms(device: torch.device, horizon: int, trials: int | None = None) -> Callable[[], Tensor]:
    """V-UCB over 1,000 pairs of 100 designs and 10 conditions, in 20 trials."""
    trials = TGP_TRIALS[0] if trials is None else trials
    kernel, f = _grid(ARMS, trials, 0.1, device)
    noise = torch.zeros(horizon, trials, dtype=torch.float64, device=device)
    return partial(run_rounds, VUCB(FiniteWidth(ARMS, 0.1), 0.3, 10), kernel, 0.1, f, noise)


def _part_of_v_ucb_arms(parts: int, horizon: int) -> Callable[[], Tensor]:
    return _v_ucb_arms(torch.device("cpu"), horizon, math.ceil(TGP_TRIALS[0] / parts))


def _lnso(device: torch.device, starts: int) -> Callable[[], tuple[Tensor, Tensor]]:
    """LNSO from some starts, after 100 observations; its draws are those of the device."""
    low, high = box = torch.tensor([[0.0], [1.0]], dtype=torch.float64, device=device)
    uniform = torch.distributions.Uniform(low, high, validate_args=False)
    acquisition = _acquisition(ContinuousEnvironment(box, uniform), device)
    return partial(optimize_lnso, acquisition, box.expand(2, 2), starts, rounds=4, fit_steps=60)


def _require_close(on_gpu: tuple[Tensor, Tensor], on_cpu: tuple[Tensor, Tensor]) -> None:
    for what, ours, theirs in zip(("value", "gradient"), on_gpu, on_cpu, strict=True):
        require_close(f"V-UCB against the CPU, {what}", ours, theirs, 1e-6)


def check_v_ucb(device: torch.device) -> None:
    """Value and gradient against the CPU's, which tests compare with sorted bounds of BoTorch's posterior."""
    ours = _v_ucb(8, 16, device)()
    _, value = _lnso(device, 3)()
    with cpu_path():
        _require_close(ours, _v_ucb(8, 16, torch.device("cpu"))())
        _, cpu_value = _lnso(torch.device("cpu"), 3)()
    # Other draws, other ways up: the values agree as far as 4,096 draws tell them.
    require_close("LNSO's value", value, cpu_value, 0.05)
    kernel, f = _grid(60, 3, 0.1, torch.device("cpu"))
    _require_same_posterior("V-UCB", VUCB(FiniteWidth(60, 0.1), 0.3, 10), kernel, 0.1, f, torch.zeros(40, 3), device)


def measure_v_ucb(bench: Bench, targets: list[Target]) -> None:
    """4096 starts x 256 conditions, against the CPU of this machine with a thread per core."""
    starts = STARTS // 8 if bench.quick else STARTS
    on_gpu, on_cpu = (_v_ucb(starts, CONDITIONS, place) for place in (bench.device, torch.device("cpu")))
    with threads(), mock.patch.object(exact_moments, "BLOCK_ENTRIES", CPU_BLOCKS):
        _require_close(on_gpu(), on_cpu())
        cpu_s = statistics.median(stats.seconds(on_cpu) for _ in range(LEAST))
    gpu_ms = bench.milliseconds(on_gpu)
    detail = {"gpu_ms": gpu_ms, "cpu_ms": 1e3 * cpu_s, "starts": starts}
    bench.report(targets[0], 1e3 * cpu_s / gpu_ms, detail)
    bench.compare("v_ucb_20x1000", _v_ucb_arms, bench.full(200), _part_of_v_ucb_arms)
    bench.over_cpu("lnso", _lnso, LNSO_STARTS)


def check_botorch(device: torch.device) -> None:
    """The same arms as BoTorch's loop on 60 arms."""
    _against_botorch(60, 15, device)


def _against_botorch(n: int, horizon: int, device: torch.device) -> tuple[float, float]:
    """Seconds of BoTorch's loop and of ours, both round by round, on n even points of [0, 1]."""
    kernel, X, f, noise = arm_engine.gp_problem(n, 1, 0.2, 1, horizon, 0.025, grid=True)
    kernel, X, f, noise = moved(kernel, device), X.to(device), f.to(device), noise.to(device)
    width, chosen = FiniteWidth(n, 0.1, scale=EXPLORING), list[Tensor]()
    their_s = stats.seconds(lambda: chosen.append(arm_engine.botorch_loop(X, f[0], noise, 0.2, 0.025, width)))
    our_s = stats.seconds(lambda: chosen.append(run_rounds(GPUCB(width), kernel, 0.025, f, noise)[:, 0]))
    require_same("GP-UCB against BoTorch's loop", *chosen)
    return their_s, our_s


def measure_botorch(bench: Bench, targets: list[Target]) -> None:
    """n = 1000, T = 400: ours on the GPU, BoTorch's loop on the better device."""
    horizon = bench.full(400)
    _against_botorch(ARMS, 3, bench.device)  # compiles and loads
    theirs, ours = _against_botorch(ARMS, horizon, bench.device)
    on_cpu, _ = _against_botorch(ARMS, horizon, torch.device("cpu"))
    detail = {"botorch_s": theirs, "botorch_cpu_s": on_cpu, "ours_s": ours, "rounds": horizon}
    bench.report(targets[0], min(theirs, on_cpu) / ours, detail)


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
    ours = _robust_gp(device, 40)()
    with cpu_path():
        theirs = _robust_gp(torch.device("cpu"), 40)()
    require_same("RobustGP's inliers", ours.inlier_mask, theirs.inlier_mask)
    X = torch.rand(5, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    require_close("RobustGP's mean", ours.posterior(X.to(device)).mean, theirs.posterior(X).mean, 1e-3)


def _robust_gp(device: torch.device, n: int) -> Callable[[], Any]:
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
        bench.over_cpu(f"robust_gp_fit_n{n}", _robust_gp, n, 3 if n < 500 else 1)


def _readings(n: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Points of the unit cube and readings of a smooth function."""
    X = torch.rand(n, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return X.to(device), torch.sin(5.0 * X.sum(1, keepdim=True)).to(device)


def _ensemble(device: torch.device, n: int) -> Callable[[], Any]:
    """Makes eight candidates and predicts as many points."""
    X, Y = _readings(n, device)
    candidates = candidate_grid(lengthscale=(0.1, 0.8), noise_var=0.01, num=8)
    return lambda: marginal_moments(CandidateEnsemble(X, Y, candidates), X.unsqueeze(-2))


def _bkb_model(device: torch.device, n: int) -> Callable[[], Any]:
    """Draws a dictionary and predicts a tenth of the points."""
    X, Y = _readings(n, device)
    return lambda: marginal_moments(BKBModel(X, Y), X[::10].unsqueeze(-2))


def _suggestion(device: torch.device, n: int) -> Callable[[], Any]:
    """Suggests one design after n readings."""
    X, Y = (x.cpu() for x in _readings(n, device))
    return lambda: suggest(X, Y, bounds=[[0.0] * 3, [1.0] * 3], device=str(device)).X


def _bkb(device: torch.device, horizon: int) -> Callable[[], Any]:
    """Rounds of BKB over 2,000 arms."""
    kernel, f = bkb.make_problem(2 * ARMS, 2, 0.2, 0)
    algorithm = BKB(FiniteWidth(2 * ARMS, 0.1, scale=EXPLORING), 5.0)
    given = moved(kernel, device), bkb.NOISE_VAR, f.unsqueeze(0).to(device)
    return partial(run_rounds, algorithm, *given, torch.zeros(horizon, 1, dtype=torch.float64, device=device))


def check_models(device: torch.device) -> None:
    """Moments against the CPU's."""
    for make in (_ensemble, _bkb_model):
        with cpu_path():
            theirs = make(torch.device("cpu"), 60)()
        for ours, cpu in zip(make(device, 60)(), theirs, strict=True):
            require_close(make.__name__, ours, cpu, 1e-6)


def measure_models(bench: Bench, targets: list[Target]) -> None:
    """What else takes a device."""
    bench.over_cpu("candidate_ensemble", _ensemble, MODEL_READINGS)
    bench.over_cpu("bkb_model", _bkb_model, 50 * MODEL_READINGS)
    bench.over_cpu("suggest", _suggestion, MODEL_READINGS)
    bench.compare("bkb_n2000", _bkb, bench.full(200))


class Part(NamedTuple):
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
        ("gp_ucb_n1e6_d6_float64", "gp_ucb_n1e6_d6_float32"),
    ),
    "tgp": Part(
        check_tgp,
        measure_tgp,
        [Target("tgp_ucb_20x20000x100", "s", 0.2), Target("tgp_ucb_128x20000x100", "s", 0.2)],
        ("tgp_ucb_20x100",),
    ),
    "ata": Part(check_ata, measure_ata, [Target("ata_qff_20x20000_m64", "s", 20.0)], ("ata_qff_20x100_m64",)),
    "bbkb": Part(check_bbkb, measure_bbkb, [Target("bbkb_n1e6_T10000", "s", 20.0)], ("bbkb_n1e6",)),
    "he": Part(check_he, measure_he, [Target("he_gp_ucb_U16_s64_n1000_T500", "s", 2.0)], ("he_gp_ucb_U16_s64_n1000",)),
    "v_ucb": Part(
        check_v_ucb,
        measure_v_ucb,
        [Target("v_ucb_4096x256_gradient_gpu_over_cpu", "x faster", least=20.0)],
        ("v_ucb_20x1000",),
    ),
    "botorch": Part(
        check_botorch, measure_botorch, [Target("gp_ucb_over_botorch_n1000_T400", "x faster", least=200.0)]
    ),
    "single": Part(check_exact, measure_single, [], tuple(f"gp_ucb_single_n{n}" for n in SINGLE_ARMS)),
    "robust_gp": Part(check_robust_gp, measure_robust_gp, []),
    "models": Part(check_models, measure_models, [], ("bkb_n2000",)),
}
