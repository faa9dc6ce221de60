"""What is optimised: test functions over the unit cube and tables of real readings, all maximised, in sd of f."""

from __future__ import annotations

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

from bo_robust.utils.random import stream

__all__ = [
    "BUDGET",
    "FUNCTIONS",
    "LAB",
    "PEAKS",
    "PROBLEMS",
    "SETTINGS",
    "Problem",
    "initial_design",
    "make_problem",
]

NOISE = 0.1  # its standard deviation, in sd of f
BUDGET = 40  # evaluations, the initial design included
SOBOL_POINTS = 1 << 14


class Bumps:
    """A sum of Gaussian bumps over the unit cube, with the interface of BoTorch's test functions."""

    def __init__(self, sd: float, centres: list[tuple[float, ...]], heights: list[float]) -> None:
        self._sd, self._heights = sd, torch.tensor(heights, dtype=torch.float64)
        self._centres = torch.tensor(centres, dtype=torch.float64)
        self.dim = len(centres[0])
        self.bounds = torch.tensor([[0.0], [1.0]]).expand(2, self.dim)
        self.optimizers = self._centres[:1]  # the first is the highest, and the others are far away
        self.optimal_value = float(self(self.optimizers))

    def __call__(self, X: Tensor) -> Tensor:
        square = (X.double().unsqueeze(-2) - self._centres).square().sum(-1)
        return (-0.5 * square / self._sd**2).exp() @ self._heights


class Needle(Bumps):
    """One bump in the middle of a round plateau of half its height."""

    def __call__(self, X: Tensor) -> Tensor:
        distance = (X.double() - self._centres[0]).norm(dim=-1)
        plateau: Tensor = 0.5 * ((0.35 - distance) / 0.03).sigmoid()
        return super().__call__(X) + plateau


# In the order in which a grid plays them.
FUNCTIONS: dict[str, Callable[[], Any]] = {
    "bump2": lambda: Bumps(0.07, [(0.37, 0.62)], [1.0]),
    "ackley2": lambda: Ackley(2, negate=True),
    "hartmann3": lambda: Hartmann(3, negate=True),
    "bumps4": lambda: Bumps(0.1, [(0.3, 0.7), (0.75, 0.8), (0.2, 0.2), (0.8, 0.25)], [1.0, 0.8, 0.7, 0.6]),
    "levy2": lambda: Levy(2, negate=True),
    "michalewicz2": lambda: Michalewicz(2, negate=True),
    "rosenbrock2": lambda: Rosenbrock(2, negate=True),
    "needle2": lambda: Needle(0.07, [(0.45, 0.55)], [1.0]),
    "bump3": lambda: Bumps(0.15, [(0.37, 0.62, 0.55)], [1.0]),
    "hartmann6": lambda: Hartmann(6, negate=True),
    "michalewicz5": lambda: Michalewicz(5, negate=True),
    "branin": lambda: Branin(negate=True),
    "levy4": lambda: Levy(4, negate=True),
    "bump1": lambda: Bumps(0.07, [(0.62,)], [1.0]),
}
SETTINGS = ("branin", "levy4", "bump1")  # settings are chosen on these, so that they are not reported
PEAKS = ("bump2", "bumps4", "michalewicz2", "needle2", "bump3")  # they first show as one reading far above all others
MICHALEWICZ5 = (2.202906, 1.570796, 1.284992, 1.923058, 1.720470)  # where BoTorch's best value is; it has none
# Whether a large reading is good.
LAB = {"alkox": True, "suzuki": True, "fullerenes": True, "photo_wf3": False, "benzylation": False}
PROBLEMS = (*FUNCTIONS, *LAB)


@dataclass(frozen=True)
class Problem:
    """A problem over the unit cube or over some of its points.

    Attributes:
        name: In ``PROBLEMS``.
        d: Inputs.
        candidates: The points that can be measured, ``m x d``; None: all of the cube.
        value: f at points ``n x d``, ``n``: without noise, centred, in its standard deviations.
        best: The largest f.
        read: One reading at a point ``d`` from a uniform and a normal random number, before any contamination.
        optimisers: Where f is ``best``, ``k x d``.
    """

    name: str
    d: int
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
    if name in FUNCTIONS:
        return _function(name)
    folder = os.environ.get("BO_ROBUST_DATA")
    if folder is None:
        raise SystemExit("set BO_ROBUST_DATA to the folder of data sets, or leave the tables out (--problems).")
    return _table(name, pd.read_csv(Path(folder) / "lab" / f"{name}.csv"), LAB[name])


def _function(name: str) -> Problem:
    f: Any = FUNCTIONS[name]()
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

    return Problem(name, d, None, value, best, read, optimisers)


def _table(name: str, table: pd.DataFrame, maximise: bool) -> Problem:
    """Rows are experiments: conditions, then the reading; equal conditions are replicates."""
    conditions, reading = list(table.columns[:-1]), table.columns[-1]
    signed = table[reading] if maximise else -table[reading]
    groups = [part.to_numpy() for _, part in signed.groupby([table[c] for c in conditions], sort=True)]
    points = table[conditions].drop_duplicates().sort_values(conditions).to_numpy(float)
    low, high = points.min(0), points.max(0)
    candidates = torch.from_numpy((points - low) / (high - low))
    means = np.array([part.mean() for part in groups])
    centre, scale = means.mean(), means.std(ddof=1)
    values = torch.from_numpy((means - centre) / scale)

    def place(X: Tensor) -> Tensor:
        return torch.cdist(X, candidates).argmin(-1)

    def read(x: Tensor, uniform: float, normal: float) -> float:
        replicates = groups[int(place(x.unsqueeze(0)))]
        return float((replicates[int(uniform * len(replicates))] - centre) / scale)

    best = candidates[values.argmax()].unsqueeze(0)
    d = len(conditions)
    return Problem(name, d, candidates, lambda X: values[place(X)], float(values.max()), read, best)


def initial_design(problem: Problem, seed: int) -> Tensor:
    """The points that every method starts from, ``initial x d``: Sobol's, or rows of the table."""
    if problem.candidates is None:
        return SobolEngine(problem.d, scramble=True, seed=seed).draw(problem.initial, dtype=torch.float64)
    rows = stream(seed, f"robustness design {problem.name}", 0).permutation(len(problem.candidates))
    return problem.candidates[torch.from_numpy(rows[: problem.initial])]
