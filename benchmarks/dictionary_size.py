"""How large BKB's dictionaries are, and how far its variances are off: ``python -m benchmarks.dictionary_size``.

Theorem 1 of Calandriello et al. 2019: with q >= 6 alpha log(4 T / delta) / epsilon^2, alpha = (1 + epsilon) /
(1 - epsilon), in 1 - delta of the runs |S_t| <= 3 (1 + kappa^2 / lambda) alpha q d_eff and sigma^2 / alpha <=
sigma~^2 <= alpha sigma^2 at all rounds and arms; d_eff = tr K (K + lambda I)^-1 of the points pulled. One run of BKB
for every q on the same rewards (n = 1000 arms of [0, 1]^5, Gaussian kernel of l = 0.5, lambda = noise variance = 0.01,
T = 1000), with the practical width of benchmarks/bkb.py; one run of exact GP-UCB for its regret. The paper counts
copies of a point in |S_t|, we keep arms: both are reported.

Prints one JSON object a line.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass

import torch
from torch import Tensor

from benchmarks.common import environment, report
from benchmarks.loop import rounds
from bo_robust.algorithms.base import uniform_arms
from bo_robust.algorithms.bkb import BKB
from bo_robust.algorithms.gp_ucb import GPUCB
from bo_robust.confidence import FiniteWidth
from bo_robust.confidence.base import EXPLORING
from bo_robust.experiments.problems import Problem, make_problem
from bo_robust.features.leverage import theory_oversampling
from bo_robust.posteriors import arms as arm_states
from bo_robust.posteriors.arms import ArmKernel
from bo_robust.random import stream

NUM_ARMS, DIM, LENGTHSCALE, HORIZON = 1000, 5, 0.5, 1000
DELTA, EPSILON = 0.1, 0.5
ALPHA = (1.0 + EPSILON) / (1.0 - EPSILON)
PRACTICAL = (1.0, 2.0, 5.0)
CHECKPOINTS = 24


@dataclass(frozen=True)
class Checkpoint:
    """After t rounds.

    Attributes:
        t: Rounds.
        size: Arms in the dictionary.
        copies: Copies of points the paper's draw would keep on average: sum of min(1, q sigma~^2) over all pulls.
        pulled: Distinct arms pulled.
        d_eff: Effective dimension of the points pulled, from the exact posterior.
        high: Largest sigma~^2 / sigma^2 of an arm.
        low: Smallest.
        high_pulled: Largest among arms pulled.
    """

    t: int
    size: int
    copies: float
    pulled: int
    d_eff: float
    high: float
    low: float
    high_pulled: float


@dataclass(frozen=True)
class Run:
    """One run: its checkpoints, over all rounds the extreme ratios and how often they were within alpha, its regret."""

    q: float
    checkpoints: list[Checkpoint]
    high: float
    low: float
    within: float
    regret: float


def play(problem: Problem, kernel: ArmKernel, q: float, seed: int) -> Run:
    """BKB with oversampling q; the exact posterior of the same pulls beside it."""
    noise_var, f = problem.noise_var, problem.f
    draws = torch.from_numpy(problem.rewards.draw(stream(seed, "reward", 0), HORIZON))
    uniforms = torch.from_numpy(stream(seed, "algorithm", 0).random(HORIZON))
    algorithm = BKB(FiniteWidth(problem.num_arms, DELTA, scale=EXPLORING), q)
    state, exact = algorithm.init(kernel, noise_var), arm_states.init(kernel, noise_var, rounds=HORIZON)
    marks = set(torch.logspace(0.0, 3.0, CHECKPOINTS).round().int().tolist())
    seen, high, low, within, regret = [], 1.0, 1.0, 0, 0.0
    sparse, before = state.posterior, torch.empty(0)

    def reward(t: int, arms: Tensor) -> Tensor:
        nonlocal before
        before = sparse.variance.clone()
        return problem.rewards(f, arms, draws[t : t + 1])

    for t, (arms, rewards) in enumerate(rounds(algorithm, state, reward, uniforms.unsqueeze(1)), start=1):
        arm_states.observe(exact, arms, rewards)
        regret += float(problem.optimum - f[0, arms])
        ratio = sparse.variance / exact.variance
        largest, smallest = float(ratio.max()), float(ratio.min())
        high, low = max(high, largest), min(low, smallest)
        within += largest <= ALPHA and smallest >= 1.0 / ALPHA
        if t in marks:
            seen.append(
                Checkpoint(
                    t,
                    int(sparse.size),
                    float((exact.counts * (q * before / noise_var).clamp(max=1.0)).sum()),
                    int((exact.counts > 0).sum()),
                    float((exact.counts * exact.variance).sum() / noise_var),
                    largest,
                    smallest,
                    float(ratio[exact.counts > 0].max()),
                )
            )
    return Run(q, seen, high, low, within / HORIZON, regret)


def exact_regret(problem: Problem, kernel: ArmKernel, seed: int) -> float:
    """Cumulative regret of exact GP-UCB on the same rewards, from the same first arm."""
    draws = torch.from_numpy(problem.rewards.draw(stream(seed, "reward", 0), HORIZON))
    first = uniform_arms(torch.from_numpy(stream(seed, "algorithm", 0).random(1)), problem.num_arms)
    algorithm = GPUCB(FiniteWidth(problem.num_arms, DELTA, scale=EXPLORING))
    state = algorithm.init(kernel, problem.noise_var, rounds=HORIZON)
    algorithm.observe(state, first, problem.rewards(problem.f, first, draws[:1]))
    zeros = torch.zeros(HORIZON - 1, 1, dtype=torch.float64)
    later = rounds(algorithm, state, lambda t, arms: problem.rewards(problem.f, arms, draws[t + 1 : t + 2]), zeros)
    pulled = torch.cat([first, *(one.arms for one in later)])
    return float((problem.optimum - problem.f[0, pulled]).sum())


def bound(checkpoint: Checkpoint, q: float, noise_var: float) -> float:
    """The theorem's, with kappa = 1 and the alpha of EPSILON."""
    return 3.0 * (1.0 + 1.0 / noise_var) * ALPHA * q * checkpoint.d_eff


def verdict(run: Run, noise_var: float, exact: float, theory: bool) -> None:
    """Two lines: |S_t| against d_eff and the bound, and the sandwich."""
    last = run.checkpoints[-1]
    name = f"BKB, q = {run.q:.4g}{f' (theory, epsilon = {EPSILON:g})' if theory else ''}"
    share = max(c.size / bound(c, run.q, noise_var) for c in run.checkpoints)
    detail = {
        "t": [c.t for c in run.checkpoints],
        "size": [c.size for c in run.checkpoints],
        "copies_expected": [round(c.copies, 1) for c in run.checkpoints],
        "distinct_pulled": [c.pulled for c in run.checkpoints],
        "d_eff": [round(c.d_eff, 2) for c in run.checkpoints],
        "bound_at_T": round(bound(last, run.q, noise_var)),
        "bound_says_less_than_t_anywhere": any(bound(c, run.q, noise_var) < c.t for c in run.checkpoints),
        "regret": round(run.regret, 1),
        "regret_exact_gp_ucb": round(exact, 1),
    }
    report(f"{name}: |S_T| / d_eff", last.size / last.d_eff, "ratio", None, None, detail)
    report(f"{name}: largest |S_t| / bound", share, "ratio", "<= 1" if theory else None, share <= 1 if theory else None)
    worst = max(run.high, 1.0 / run.low)
    report(
        f"{name}: sigma~^2 against sigma^2, worst of all rounds and arms",
        worst,
        "factor",
        f"<= {ALPHA:g}" if theory else None,
        worst <= ALPHA if theory else None,
        {
            "largest": float(f"{run.high:.4g}"),
            "smallest": float(f"{run.low:.4g}"),
            "share_of_rounds_within_alpha": round(run.within, 3),
            "at_checkpoints_largest": [float(f"{c.high:.4g}") for c in run.checkpoints],
            "at_checkpoints_smallest": [float(f"{c.low:.4g}") for c in run.checkpoints],
            "at_checkpoints_largest_of_pulled": [float(f"{c.high_pulled:.4g}") for c in run.checkpoints],
        },
    )


def main() -> None:
    """All q on one problem."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    print(json.dumps({"environment": environment()}), flush=True)
    problem = make_problem("many_arms", [0], arguments.seed, num_arms=NUM_ARMS, dim=DIM, lengthscale=LENGTHSCALE)
    assert problem.arms is not None
    assert not isinstance(problem.kernel, torch.Tensor)
    kernel = ArmKernel.from_covariance(problem.kernel, problem.arms)
    theory = theory_oversampling(HORIZON, DELTA, EPSILON)
    runs = []
    with torch.inference_mode():
        exact = exact_regret(problem, kernel, arguments.seed)
        for q in (*PRACTICAL, theory):
            runs.append(play(problem, kernel, q, arguments.seed))
    for run in runs:
        verdict(run, problem.noise_var, exact, theory=run.q == theory)


if __name__ == "__main__":
    main()
