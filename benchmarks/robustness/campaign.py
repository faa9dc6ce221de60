"""One campaign: a problem, a regime, a seed and a method."""

from __future__ import annotations

import functools
import re
import time
import warnings
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from benchmarks.common import environment
from benchmarks.robustness.contamination import REGIMES, draw
from benchmarks.robustness.loops import LOOPS
from benchmarks.robustness.problems import BUDGET, Problem, initial_design, make_problem

__all__ = ["NAMES", "STEP", "campaign", "cells"]

NAMES = ("problem", "regime", "seed", "method")
STEP = 5  # evaluations between two looks at the recommendation
SAID = re.compile(r"RobustGP flags|the others explain")  # outliers are many, or more than the model can tell


def cells(
    problems: Iterable[str], regimes: Iterable[str], seeds: range, methods: Iterable[str], part: int = 0, parts: int = 1
) -> list[tuple[str, str, int, str]]:
    """What to play, seed by seed, then regime by regime, so that an interrupted grid is whole as far as it goes.

    Of several ``parts`` each has all methods of a (problem, regime, seed), since these share work.
    """
    groups = [(problem, regime, seed) for seed in seeds for regime in regimes for problem in problems]
    return [(*group, method) for group in groups[part::parts] for method in methods]


def campaign(cell: tuple[Any, ...], budget: int = BUDGET) -> dict[str, Any]:
    """Play one cell of ``budget`` evaluations, the initial design included.

    Returns:
        ``regret`` of the recommendation at the end, without noise and in sd of f; ``curve``, pairs of evaluations and
        that regret; ``evaluations``; ``again``, how many of them were at a point measured before; ``warned``, the
        evaluations after which the model last said that faults are many, or None; CPU ``seconds``; ``by``, what played.
    """
    name, regime, seed, method = cell
    problem = make_problem(name)
    draws = draw(problem, REGIMES[regime], seed, budget)
    began, warned = time.process_time(), None
    loop = LOOPS[method](problem, seed, draws.outlier)
    X: list[Tensor] = []
    curve: list[tuple[int, float]] = []
    while True:
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            if len(X) < problem.initial:
                x = initial_design(problem, seed)[len(X)]
                loop.start(x, draws.reading(problem, x, len(X)))
            else:
                x = placed(problem, loop.ask())
                loop.tell(draws.reading(problem, x, len(X)))
            X.append(x)
            if len(X) == budget or (len(X) >= problem.initial and len(X) % STEP == 0):
                value = problem.value(placed(problem, loop.recommend()).unsqueeze(0))
                curve.append((len(X), float(f"{max(problem.best - float(value), 0.0):.4g}")))
        warned = len(X) if any(SAID.search(str(warning.message)) for warning in said) else warned
        if len(X) == budget:
            break
    return {
        "regret": curve[-1][1],
        "curve": curve,
        "evaluations": budget,
        "again": len(X) - len({tuple(x.tolist()) for x in X}),
        "warned": warned,
        "seconds": round(time.process_time() - began, 2),
        "by": fingerprint(),
    }


def placed(problem: Problem, x: Tensor) -> Tensor:
    """Where a proposal is measured: at itself, or at the nearest row of a table."""
    if problem.candidates is None:
        return x
    return problem.candidates[(problem.candidates - x).square().sum(-1).argmin()]


@functools.cache
def fingerprint() -> str:
    """Revision, processor and versions."""
    torch.set_num_threads(1)
    now = environment()
    versions = ", ".join(f"{name} {version}" for name, version in now["versions"].items())
    return f"{now['git']}, {now['processor']}, {versions}, {now['date'][:10]}"
