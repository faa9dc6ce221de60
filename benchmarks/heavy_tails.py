"""ATA-GP-UCB against the direct implementation: ``python -m benchmarks.heavy_tails [--only NAME]``.

One JSON object a line; one BLAS thread; n = 100 arms, 32 frequencies (64 features), 20 trials, Student-t(3) noise. The
direct implementation does per trial and round what Algorithm 2 says: a root of V, the 64 x t matrix U, a mask, a sum;
it is given V and the features of past arms ready made.
"""

from __future__ import annotations

import argparse
import copy
import itertools
import statistics
import time
from collections.abc import Iterator

import torch
from torch import Tensor

from benchmarks.common import ROOT, environment, report
from benchmarks.loop import Round, rounds, timed
from benchmarks.stats import LEAST, ratios, report_paired
from bo_robust.algorithms import ATAGPUCB
from bo_robust.algorithms.base import State
from bo_robust.confidence import FiniteWidth
from bo_robust.confidence.base import EXPLORING
from bo_robust.experiments.arm_loop import play
from bo_robust.experiments.build import build_algorithm, build_kernel
from bo_robust.experiments.config import Panel
from bo_robust.experiments.files import load_config
from bo_robust.experiments.problems import Problem, make_problem
from bo_robust.experiments.traces import Traces
from bo_robust.features import FourierFeatures
from bo_robust.random import stream
from bo_robust.truncation import ATAFourierTruncation

TRIALS, ROUNDS, ARMS = 20, 20_000, 100
NOISE_VAR = 1.0
FEATURES = FourierFeatures(0.2, 32, ((0.0, 1.0),))
LEVEL = ATAFourierTruncation(4.0, 1.0, 0.1, ROUNDS, 32)
DIRECT_AT = (2_000, 10_000, 20_000)


def algorithm(root: str) -> ATAGPUCB:
    """ATA-QFF at the practical width."""
    return ATAGPUCB(FiniteWidth(ARMS, 0.1, scale=EXPLORING), LEVEL, FEATURES, root=root)


def problem() -> Problem:
    """Figure 1 (a)."""
    return make_problem("rkhs_function", range(TRIALS), 0, noise={"kind": "student_t", "df": 3})


def start(root: str) -> tuple[State, Iterator[Round]]:
    """A state and its rounds."""
    world, ours = problem(), algorithm(root)
    draws = [torch.from_numpy(world.rewards.draw(stream(0, "reward", i), ROUNDS)) for i in range(TRIALS)]
    table = torch.stack(draws, 1)
    state = ours.init(build_kernel(world), NOISE_VAR, TRIALS)
    uniforms = torch.zeros(ROUNDS, TRIALS, dtype=torch.float64)
    return state, rounds(ours, state, lambda t, arms: world.rewards(world.f, arms, table[t]), uniforms)


def direct(Phi: Tensor, V: Tensor, past: Tensor, y: Tensor, level: float, root: str) -> tuple[Tensor, Tensor]:
    """Mean and variance of all arms by Algorithm 2: features ``n x p``, V, features of past arms ``t x p``, rewards."""
    if root == "symmetric":
        values, vectors = torch.linalg.eigh(V)
        R = (vectors * values.rsqrt()) @ vectors.mT
        U, Y = R @ past.mT, R @ Phi.mT
    else:
        L = torch.linalg.cholesky(V)
        U = torch.linalg.solve_triangular(L, past.mT, upper=False)
        Y = torch.linalg.solve_triangular(L, Phi.mT, upper=False)
    Uy = U.mul_(y)
    r = torch.where(Uy.abs() <= level, Uy, 0.0).sum(1)
    return r @ Y, NOISE_VAR * Y.square().sum(0)


def alternate(root: str, *states: State) -> list[list[float]]:
    """CPU seconds of windows of 60 rounds from each state, taken in turns: t(3) noise alone."""
    ours, rng = algorithm(root), stream(1, "reward", 0)
    noise = torch.from_numpy(rng.standard_t(3, (LEAST, 60, TRIALS)))
    times: list[list[float]] = [[] for _ in states]
    for window in noise:
        for state, column in zip(states, times, strict=True):
            played = rounds(ours, state, lambda t, _, window=window: window[t], torch.zeros_like(window))  # type: ignore[misc]
            column.append(sum(took for took, _ in timed(played)))
    return times


def bench(root: str, target: float) -> None:
    """Speed over 20,000 rounds, flatness, and accuracy, for one root."""
    world = problem()
    assert world.arms is not None
    Phi = FEATURES(world.arms)
    pulled, rewards = torch.zeros(ROUNDS, TRIALS, dtype=torch.long), torch.zeros(ROUNDS, TRIALS, dtype=torch.float64)
    seconds, direct_seconds, errors, listed = [], {}, {}, {}
    early: State | None = None
    state, played = start(root)
    for t, (taken, one) in enumerate(timed(played), start=1):
        if t == 500:
            early = copy.deepcopy(state)
        pulled[t - 1], rewards[t - 1] = one.arms, one.rewards
        seconds.append(taken)
        if t not in (500, *DIRECT_AT):
            continue
        posterior, worst, times = state.posterior, 0.0, []
        for i in range(3):
            past = Phi[pulled[:t, i]]
            counts = posterior.counts[i].unsqueeze(1)  # V from counts: 20,000 outer products sum to 1e-10 of rounding
            V = Phi.mT @ (counts * Phi) + NOISE_VAR * torch.eye(Phi.shape[1], dtype=Phi.dtype)
            began = time.process_time()
            mean, variance = direct(Phi, V, past, rewards[:t, i], LEVEL(t), root)
            times.append(time.process_time() - began)
            worst = max(
                worst,
                float((posterior.mean[i] - mean).abs().max() / mean.abs().max()),
                float((posterior.variance[i] / variance - 1.0).abs().max()),
            )
        errors[t], direct_seconds[t] = worst, statistics.median(times)
        listed[t] = int(posterior.lists.size.max())
    assert early is not None
    first, last = alternate(root, early, state)
    name = f"ATA-QFF {root}: round 20,000 over round 500"
    report_paired(name, ratios(last, first), "ratio", most=1.3, detail={"longest_reward_list": listed})
    # Trapezoids through the measurements, ours by the rounds just before each, so that a machine that slows down
    # slows both; the direct one starts from a round that costs nothing at t = 0.
    marks = [(0, 0.0), *((t, direct_seconds[t]) for t in DIRECT_AT)]
    whole = TRIALS * sum((b - a) * (x + y) / 2 for (a, x), (b, y) in itertools.pairwise(marks))
    local = [(t, statistics.median(seconds[max(t - 400, 0) : t])) for t in (500, *DIRECT_AT)]
    ours = 500 * local[0][1] + sum((b - a) * (x + y) / 2 for (a, x), (b, y) in itertools.pairwise(local))
    ratio = whole / ours
    report(
        f"ATA-QFF {root}: 20 x 20,000 rounds over the direct implementation",
        ratio,
        "times faster",
        f">= {target:g}",
        ratio >= target,
        {"ours_s": ours, "direct_s": whole, "direct_round_s": direct_seconds, "ours_cpu_s": sum(seconds)},
    )
    limit = 1e-6 if root == "symmetric" else 1e-10
    worst = max(errors.values())
    report(
        f"ATA-QFF {root}: mean and variance against the direct implementation",
        worst,
        "largest relative difference",
        f"<= {limit:g}",
        worst <= limit,
        {"at": errors},
    )


def panel_a() -> None:
    """TGP-UCB, ATA-QFF and ATA-Nystrom on Figure 1 (a) at full size."""
    panel = load_config(ROOT / "configs" / "heavy_tails" / "student_t.yaml").panels[0]
    assert isinstance(panel, Panel)
    world = problem()
    taken = {}
    for label in ("TGP-UCB", "ATA-QFF", "ATA-Nystrom"):
        config = next(a for a in panel.methods if a.label == label)
        traces = Traces(panel.horizon, TRIALS, torch.device("cpu"), torch.float64)
        began = time.perf_counter()
        play(build_algorithm(config, panel, world), world, range(TRIALS), panel.seed, NOISE_VAR, traces)
        taken[label] = time.perf_counter() - began
    whole = sum(taken.values())
    report("Figure 1 (a), three algorithms, 20 x 20,000 rounds", whole, "s", "<= 180", whole <= 180, taken)


def main() -> None:
    """All measurements, or one."""
    works = {
        "symmetric": lambda: bench("symmetric", 40.0),
        "cholesky": lambda: bench("cholesky", 100.0),
        "panel_a": panel_a,
    }
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=works)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    report("environment", 0, "none", None, None, environment())
    for name, work in works.items():
        if arguments.only in (None, name):
            with torch.no_grad():
                work()


if __name__ == "__main__":
    main()
