"""Elimination over V-UCB: ``python -m benchmarks.elimination_value_at_risk [--out FOLDER]``.

Hartmann-3 (2,1) on a grid of 16 x 16 designs and 20 conditions, alpha = 0.1, noise variance 0.01: the lengthscale of an
SE kernel is not known, U = {0.2, 0.4, 0.8, 1.6}, or with 0.05 and 0.1 as well. Compared on the same noise: HE-GP-UCB
over V-UCB, V-UCB with each lengthscale told, and random pairs; all widths are w^2 / 5. Regret is that of the value at
risk of the recommended design, and of the designs played. One JSON object a line, last a picture.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import torch
from torch import Tensor

from benchmarks.common import environment, report
from bo_robust.algorithms import VUCB, ArmAlgorithm
from bo_robust.algorithms.elimination_algorithm import eliminations
from bo_robust.algorithms.he_gp_ucb import HEGPUCB
from bo_robust.algorithms.v_ucb import recommended_design
from bo_robust.confidence import BayesianFiniteWidth
from bo_robust.covariance import SquaredExponential
from bo_robust.experiments.problems.value_at_risk import make
from bo_robust.functionals import ValueAtRisk
from bo_robust.posteriors.arms import ArmKernel
from bo_robust.posteriors.candidates import candidate_kernel
from bo_robust.random import stream

LENGTHSCALES = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6)
SIDE, CONDITIONS, INITIAL, ROUNDS, TRIALS, DELTA = 16, 20, 5, 150, 20, 0.1


def world() -> tuple[Tensor, Tensor, tuple[float, ...], float]:
    """Pairs (``n x 3``), f of them, probabilities of the conditions, and the noise variance."""
    problem = make("hartmann3_21")
    z = torch.linspace(0.0, 1.0, CONDITIONS, dtype=torch.float64)
    p = torch.exp(-0.5 * ((z - 0.5) / 0.1) ** 2)
    axis = torch.linspace(0.0, 1.0, SIDE, dtype=torch.float64)
    pairs = torch.cartesian_prod(axis, axis, z)
    return pairs, problem.f(pairs), tuple((p / p.sum()).tolist()), problem.noise_var


def play(
    algorithm: ArmAlgorithm | None, kernel: ArmKernel, f: Tensor, p: tuple[float, ...], noise_var: float
) -> tuple[Tensor, Tensor, list[dict]]:
    """Designs recommended and played, ``T x s``, and the record of eliminations; None plays random pairs."""
    n, sd = len(f), math.sqrt(noise_var)
    noise = torch.stack(
        [torch.from_numpy(stream(0, "noise", i).standard_normal(ROUNDS + INITIAL)) for i in range(TRIALS)], 1
    )
    draws = torch.stack([torch.from_numpy(stream(0, "pairs", i).random(ROUNDS + INITIAL)) for i in range(TRIALS)], 1)
    rule = algorithm if algorithm is not None else VUCB(BayesianFiniteWidth(n, DELTA), 0.1, CONDITIONS, p)
    state = rule.init(kernel, noise_var, TRIALS, rounds=ROUNDS + INITIAL)
    best, played = [], []
    with torch.inference_mode():
        for t, (eta, u) in enumerate(zip(noise, draws, strict=True)):
            at_random = (u * n).long()
            arms = at_random if t < INITIAL or algorithm is None else rule.select(state, u).arms
            act = rule.observe_initial if t < INITIAL else rule.observe
            act(state, arms, f[arms] + sd * eta, u)
            played.append(arms // CONDITIONS)
            best.append(recommended_design(state.posterior, ValueAtRisk(0.1), CONDITIONS, p))
    record = eliminations(state) if isinstance(rule, HEGPUCB) else []
    return torch.stack(best), torch.stack(played), record


def main() -> None:
    """Play all methods, print a line each, draw the picture."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path(), help="folder of the picture")
    out = parser.parse_args().out
    torch.set_num_threads(1)
    report("environment", 0, "none", None, None, environment())
    pairs, f, p, noise_var = world()
    risk = ValueAtRisk(0.1)(f.view(-1, CONDITIONS), torch.tensor(p, dtype=torch.float64))
    width = BayesianFiniteWidth(len(f), DELTA, scale=5**-0.5)
    base = VUCB(width, 0.1, CONDITIONS, p)
    kernels = [SquaredExponential(ell) for ell in LENGTHSCALES]
    single = {
        f"V-UCB, lengthscale {ell:g}": ArmKernel.from_covariance(k, pairs)
        for ell, k in zip(LENGTHSCALES, kernels, strict=True)
    }
    he = HEGPUCB(width, math.sqrt(noise_var), DELTA, base=base)
    runs: dict[str, tuple[ArmAlgorithm | None, ArmKernel]] = {
        "HE over V-UCB, U from 0.2": (he, candidate_kernel(kernels[2:], pairs)),
        "HE over V-UCB, U from 0.05": (he, candidate_kernel(kernels, pairs)),
    }
    runs |= {name: (base, kernel) for name, kernel in single.items()}
    runs["random pairs"] = (None, single["V-UCB, lengthscale 0.2"])
    figure, axes = plt.subplots(1, 2, figsize=(11, 4.2), layout="constrained")
    record: list[dict] = []
    for i, (name, (algorithm, kernel)) in enumerate(runs.items()):
        began = time.perf_counter()
        best, played, killed = play(algorithm, kernel, f, p, noise_var)
        elapsed = time.perf_counter() - began
        record = killed if i == 0 else record
        regret = risk.max() - risk[best]
        mean, error = regret.mean(1), regret.std(1) / math.sqrt(TRIALS)
        axes[0].plot(mean, label=name, color=f"C{i}", linewidth=2.5 if i == 0 else 1.2)
        axes[0].fill_between(range(len(mean)), mean - error, mean + error, color=f"C{i}", alpha=0.15, linewidth=0)
        cumulative = (risk.max() - risk[played]).sum(0)
        detail = {
            "cumulative": [round(float(cumulative.mean()), 2), round(float(cumulative.std()) / math.sqrt(TRIALS), 2)],
            "error": float(error[-1]),
            "trials": TRIALS,
            "rounds": ROUNDS,
            "initial": INITIAL,
            "seconds": round(elapsed, 1),
        }
        if isinstance(algorithm, HEGPUCB):
            names = LENGTHSCALES[-len(kernel.diagonal) :]
            dead = [sum(r["hypothesis"] == u and r["eliminated"] for r in killed) for u in range(len(names))]
            detail["trials_that_eliminated"] = dict(zip(map(str, names), dead, strict=True))
        report(f"{name}: final regret of the value at risk", float(mean[-1]), "units of f", None, None, detail)
    axes[0].set(xlabel="round", ylabel="regret of VaR(0.1), recommended design", yscale="log")
    axes[0].legend(fontsize=8)
    axes[0].grid(alpha=0.3)
    for r in record:
        axes[1].plot(
            r["round"], r["hypothesis"], "o", color="C0", alpha=0.4, markersize=3 + 3 * (r["left"] / r["right"] - 1)
        )
    axes[1].set(xlabel="round eliminated (a dot a trial)", xlim=(0, ROUNDS + INITIAL), ylabel="lengthscale")
    axes[1].set_yticks(range(4), [f"{ell:g}" for ell in LENGTHSCALES[2:]])
    axes[1].grid(alpha=0.3)
    out.mkdir(parents=True, exist_ok=True)
    figure.savefig(out / "value_at_risk.png", dpi=110)
    print(json.dumps({"picture": str(out / "value_at_risk.png")}), flush=True)


if __name__ == "__main__":
    main()
