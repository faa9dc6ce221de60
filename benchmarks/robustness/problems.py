"""What is optimised: test functions over the unit cube and tables of real readings, all maximised, in sd of f."""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from botorch.test_functions import Ackley, Branin, Hartmann, Levy, Michalewicz, Rosenbrock
from botorch.utils.transforms import unnormalize
from torch import Tensor
from torch.quasirandom import SobolEngine

from benchmarks.common import ROOT
from bo_robust.random import stream

__all__ = [
    "FUNCTIONS",
    "LAB",
    "PEAKS",
    "PROBLEMS",
    "TUNING",
    "Problem",
    "diverging",
    "initial_design",
    "make_problem",
]

NOISE = 0.1  # its standard deviation, in sd of f
TABLE_BUDGET = 60
SOBOL_POINTS = 1 << 14
# A region of this share of the cube where every run diverges, to this many sd below f's mean.
DIVERGED_SHARE, DIVERGED_DEPTH = 0.2, 10.0

FUNCTIONS = {
    "branin": lambda: Branin(negate=True),
    "hartmann3": lambda: Hartmann(3, negate=True),
    "hartmann6": lambda: Hartmann(6, negate=True),
    "ackley2": lambda: Ackley(2, negate=True),
    "levy2": lambda: Levy(2, negate=True),
    "levy4": lambda: Levy(4, negate=True),
    "rosenbrock2": lambda: Rosenbrock(2, negate=True),
    "michalewicz5": lambda: Michalewicz(5, negate=True),
}
MICHALEWICZ5 = (2.202906, 1.570796, 1.284992, 1.923058, 1.720470)  # where BoTorch's best value is; it has none


class Bumps:
    """A sum of Gaussian bumps over the unit square, with the interface of BoTorch's test functions."""

    dim = 2
    bounds = torch.tensor([[0.0, 0.0], [1.0, 1.0]])

    def __init__(self, sd: float, centres: list[tuple[float, float]], heights: list[float]) -> None:
        self._sd, self._heights = sd, torch.tensor(heights, dtype=torch.float64)
        self._centres = torch.tensor(centres, dtype=torch.float64)
        self.optimizers = self._centres[:1]  # the first is the highest, and the others are far away
        self.optimal_value = float(self(self.optimizers))

    def __call__(self, X: Tensor) -> Tensor:
        square = (X.double().unsqueeze(-2) - self._centres).square().sum(-1)
        return (-0.5 * square / self._sd**2).exp() @ self._heights


# Clean narrow peaks first show as one reading far above all others.
PEAKS: dict[str, Callable[[], Any]] = {
    "bump07": lambda: Bumps(0.07, [(0.37, 0.62)], [1.0]),
    "bump10": lambda: Bumps(0.1, [(0.62, 0.37)], [1.0]),
    "bumps4": lambda: Bumps(0.1, [(0.3, 0.7), (0.75, 0.8), (0.2, 0.2), (0.8, 0.25)], [1.0, 0.8, 0.7, 0.6]),
    "michalewicz2": lambda: Michalewicz(2, negate=True),
}
# Whether a large reading is good.
LAB = {"alkox": True, "suzuki": True, "fullerenes": True, "photo_wf3": False, "benzylation": False}
# Errors of small networks, 256 settings by 4 seeds, infinite where training diverged: tables kept beside the results.
TUNING = ("tuning_abalone", "tuning_friedman")
PROBLEMS = (*FUNCTIONS, *PEAKS, *LAB, *TUNING)


@dataclass(frozen=True)
class Problem:
    """A problem over the unit cube or over some of its points.

    Attributes:
        name: In ``PROBLEMS``.
        d: Inputs.
        budget: Evaluations, the initial design included.
        candidates: The points that can be measured, ``m x d``; None: all of the cube.
        value: f at points ``n x d``, ``n``: without noise, centred, in its standard deviations.
        best: The largest f.
        read: One reading at a point ``d`` from a uniform and a normal random number, before any contamination.
        optimisers: Where f is ``best``, ``k x d``.
    """

    name: str
    d: int
    budget: int
    candidates: Tensor | None
    value: Callable[[Tensor], Tensor]
    best: float
    read: Callable[[Tensor, float, float], float]
    optimisers: Tensor

    @property
    def initial(self) -> int:
        """Points of the initial design."""
        return 2 * self.d + 2


@functools.cache
def make_problem(name: str) -> Problem:
    """The problem of a name in ``PROBLEMS``."""
    if name in FUNCTIONS or name in PEAKS:
        return _function(name)
    if name in LAB:
        folder = os.environ.get("BO_ROBUST_DATA")
        if folder is None:
            raise SystemExit("set BO_ROBUST_DATA to the folder of data sets, or leave the tables out (--problems).")
        return _table(name, pd.read_csv(Path(folder) / "lab" / f"{name}.csv"), LAB[name])
    table = pd.read_csv(ROOT / "benchmarks" / "results" / "robustness" / f"{name}.csv")
    return _table(name, table, False)


def _function(name: str) -> Problem:
    f: Any = (FUNCTIONS | PEAKS)[name]()
    d = f.dim
    bounds: Tensor = f.bounds.double()

    def raw(X: Tensor) -> Tensor:
        y = f(unnormalize(X, bounds))
        return -torch.log1p(-y) if name == "rosenbrock2" else y  # its valley, not its walls

    sample = raw(SobolEngine(d, scramble=True, seed=0).draw(SOBOL_POINTS, dtype=torch.float64))
    centre, scale = sample.mean(), sample.std()

    def value(X: Tensor) -> Tensor:
        return (raw(X) - centre) / scale

    found = torch.tensor([MICHALEWICZ5[:d]]) if name.startswith("michalewicz") else f.optimizers
    optimisers = (found.double() - bounds[0]) / (bounds[1] - bounds[0])
    top = torch.as_tensor(f.optimal_value, dtype=torch.float64)
    best = float(((-torch.log1p(-top) if name == "rosenbrock2" else top) - centre) / scale)

    def read(x: Tensor, uniform: float, normal: float) -> float:
        return float(value(x.unsqueeze(0))) + NOISE * normal

    return Problem(name, d, 20 * d, None, value, best, read, optimisers)


def _table(name: str, table: pd.DataFrame, maximise: bool) -> Problem:
    """Rows are experiments: conditions, then the reading; equal conditions are replicates.

    Non-finite readings are runs that diverged: they are read as the worst that any finite one was, and sd is that of
    the others.
    """
    conditions, reading = list(table.columns[:-1]), table.columns[-1]
    signed = table[reading] if maximise else -table[reading]
    failed = ~np.isfinite(signed)
    signed = signed.mask(failed, signed[~failed].min())
    groups = [part.to_numpy() for _, part in signed.groupby([table[c] for c in conditions], sort=True)]
    clean = [not part.any() for _, part in failed.groupby([table[c] for c in conditions], sort=True)]
    points = table[conditions].drop_duplicates().sort_values(conditions).to_numpy(float)
    low, high = points.min(0), points.max(0)
    candidates = torch.from_numpy((points - low) / (high - low))
    means = np.array([part.mean() for part in groups])
    centre, scale = means[clean].mean(), means[clean].std(ddof=1)
    values = torch.from_numpy((means - centre) / scale)

    def place(X: Tensor) -> Tensor:
        return torch.cdist(X, candidates).argmin(-1)

    def read(x: Tensor, uniform: float, normal: float) -> float:
        replicates = groups[int(place(x.unsqueeze(0)))]
        return float((replicates[int(uniform * len(replicates))] - centre) / scale)

    best = candidates[values.argmax()].unsqueeze(0)
    d = len(conditions)
    return Problem(name, d, TABLE_BUDGET, candidates, lambda X: values[place(X)], float(values.max()), read, best)


def initial_design(problem: Problem, seed: int) -> Tensor:
    """The points that every method starts from, ``initial x d``: Sobol's, or rows of the table."""
    if problem.candidates is None:
        return SobolEngine(problem.d, scramble=True, seed=seed).draw(problem.initial, dtype=torch.float64)
    rows = stream(seed, f"robustness design {problem.name}", 0).permutation(len(problem.candidates))
    return problem.candidates[torch.from_numpy(rows[: problem.initial])]


def diverging(problem: Problem, seed: int) -> Problem:
    """The problem with a region, a corner cut off by a random plane, where f is truly and exactly terrible.

    No optimiser lies in the region. Its readings have no noise: they are a cluster of equal values.
    """
    assert problem.candidates is None
    draws = stream(seed, f"robustness diverged {problem.name}", 0)
    sample = SobolEngine(problem.d, scramble=True, seed=0).draw(4096, dtype=torch.float64)
    while True:
        normal = torch.from_numpy(draws.standard_normal(problem.d))
        offset = torch.quantile(sample @ normal, 1.0 - DIVERGED_SHARE)
        if not (problem.optimisers @ normal >= offset).any():
            break

    def value(X: Tensor) -> Tensor:
        return torch.where(X @ normal >= offset, -DIVERGED_DEPTH, problem.value(X))

    def read(x: Tensor, uniform: float, gaussian: float) -> float:
        return -DIVERGED_DEPTH if float(x @ normal) >= offset else problem.read(x, uniform, gaussian)

    return dataclasses.replace(problem, value=value, read=read)
