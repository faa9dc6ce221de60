"""Problems over designs: test functions over the unit cube and tables of observations, all maximized.

Rewards are in standard deviations of f: over the cube, or over the rows of a table.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from botorch.test_functions import Ackley, Branin, Hartmann, Levy, Michalewicz, Rosenbrock
from botorch.utils.transforms import unnormalize
from torch import Tensor
from torch.quasirandom import SobolEngine

from benchmarks.problems.data import verified
from bo_robust.tables.cells import TableError
from bo_robust.tables.columns import Column, ColumnOptions
from bo_robust.tables.kinds import column_of
from bo_robust.tables.table import Table, read_table
from bo_robust.utils.input_checks import check_positive, quoted
from bo_robust.utils.random import stream
from bo_robust.utils.specs import nearest

SOBOL_POINTS = 1 << 14  # for mean and standard deviation of f over the cube


@dataclass(frozen=True, eq=False)
class DesignProblem:
    """Maximize f over the unit cube, or over some of its points."""

    name: str  # random numbers depend on it
    d: int
    candidates: Tensor | None  # the points that can be measured, ``m x d``; None: all of the cube
    value: Callable[[Tensor], Tensor]  # f at points ``n x d``, ``n``: no noise, centered, in its standard deviations
    best: float  # the largest f
    # An observation at a point ``d`` from a uniform and a normal number
    observe: Callable[[Tensor, float, float], float]
    notes: str  # what the problem is, shown with the results
    center: float = 0.0  # the mean of f; models observe ``center`` + observation, positive if f is

    def initial_design(self, n: int, seed: int) -> Tensor:
        """The first ``n`` points, ``n x d``: Sobol's, or rows of the table."""
        if self.candidates is None:
            return SobolEngine(self.d, scramble=True, seed=seed).draw(n, dtype=torch.float64)
        rows = stream(seed, f"robustness design {self.name}", 0).permutation(len(self.candidates))
        return self.candidates[torch.from_numpy(rows[:n])]

    def nearest(self, x: Tensor) -> Tensor:
        """Where a proposal ``d`` is measured: at itself, or at the nearest row of a table."""
        if self.candidates is None:
            return x
        return self.candidates[(self.candidates - x).square().sum(-1).argmin()]


class Bumps:
    """A sum of Gaussian bumps over the unit cube, with the interface of BoTorch's test functions."""

    def __init__(self, sd: float, centers: list[tuple[float, ...]], heights: list[float]) -> None:
        self._sd, self._heights = sd, torch.tensor(heights, dtype=torch.float64)
        self._centers = torch.tensor(centers, dtype=torch.float64)
        self.dim = len(centers[0])
        self.bounds = torch.tensor([[0.0], [1.0]]).expand(2, self.dim)
        self.optimizers = self._centers[:1]  # the first is the highest, and the others are far away
        self.optimal_value = float(self(self.optimizers))

    def __call__(self, X: Tensor) -> Tensor:
        square = (X.double().unsqueeze(-2) - self._centers).square().sum(-1)
        return (-0.5 * square / self._sd**2).exp() @ self._heights


class Needle(Bumps):
    """One bump in the middle of a round plateau of half its height."""

    def __call__(self, X: Tensor) -> Tensor:
        distance = (X.double() - self._centers[0]).norm(dim=-1)
        plateau: Tensor = 0.5 * ((0.35 - distance) / 0.03).sigmoid()
        return super().__call__(X) + plateau


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
# Laboratory campaigns, and whether a large observation is good.
LAB = {"alkox": True, "suzuki": True, "fullerenes": True, "photo_wf3": False, "benzylation": False}


@dataclass(frozen=True)
class Function:
    """A test function over its box, most of them BoTorch's, with Gaussian noise."""

    function: str  # A name in `FUNCTIONS`
    noise_sd: float = 0.1  # In standard deviations of f

    def make(self) -> DesignProblem:
        name, noise_sd = self.function, self.noise_sd
        if name not in FUNCTIONS:
            raise ValueError(f"unknown function {quoted(name)}; {nearest(name, FUNCTIONS)}")
        check_positive(noise_sd=noise_sd)
        f: Any = FUNCTIONS[name]()
        bounds: Tensor = f.bounds.double()

        def scaled(y: Tensor) -> Tensor:
            return -torch.log1p(-y) if name == "rosenbrock2" else y  # its valley, not its walls

        sample = SobolEngine(f.dim, scramble=True, seed=0).draw(SOBOL_POINTS, dtype=torch.float64)
        of_sample = scaled(f(unnormalize(sample, bounds)))
        center, scale = of_sample.mean(), of_sample.std()

        def value(X: Tensor) -> Tensor:
            return (scaled(f(unnormalize(X, bounds))) - center) / scale

        def observe(x: Tensor, uniform: float, normal: float) -> float:
            return float(value(x.unsqueeze(0)) + noise_sd * normal)

        best = float((scaled(torch.as_tensor(f.optimal_value, dtype=torch.float64)) - center) / scale)
        notes = f"{name} over the unit cube, in its standard deviations; noise of {noise_sd:g}."
        return DesignProblem(name, f.dim, None, value, best, observe, notes)


@dataclass(frozen=True)
class Laboratory:
    """A laboratory's table, as measured: suzuki is in the repository, the others in the data folder."""

    table: str = "suzuki"  # A name in `LAB`

    def make(self) -> DesignProblem:
        if self.table not in LAB:
            raise ValueError(f"unknown table {quoted(self.table)}; {nearest(self.table, LAB)}")
        table = read_table(verified(self.table))
        return _problem_of_table(self.table, table, table.names[-1], LAB[self.table])


@dataclass(frozen=True)
class OwnTable:
    """Your own table, a CSV file: one row is one experiment, and equal designs are replicates."""

    file: Path  # From the working directory
    target: str  # The column of observations; all other columns are parameters, numbers or categories
    maximize: bool = True

    def make(self) -> DesignProblem:
        table = read_table(self.file)
        if self.target not in table.names:
            raise TableError(f"{table.path} has no column {quoted(self.target)}; {nearest(self.target, table.names)}")
        return _problem_of_table(self.file.stem, table, self.target, self.maximize)


def _problem_of_table(name: str, table: Table, target: str, maximize: bool) -> DesignProblem:
    """Designs are the distinct rows of parameters; an observation is that of one of the rows with this design."""
    columns = [column_of(column, [table], ColumnOptions()) for column in table.names if column != target]
    observations = column_of(target, [table], ColumnOptions())
    if not observations.ordered:
        raise TableError(f"{table.path}: column {target!r} holds no numbers.")
    encoded = np.concatenate([_encoded(column, table) for column in columns], 1)
    points, design = np.unique(encoded, axis=0, return_inverse=True)
    if len(points) < 2:
        raise TableError(f"{table.path} has {len(points)} designs; there is nothing to choose from.")
    low, high = points.min(0), points.max(0)
    candidates = torch.from_numpy((points - low) / np.where(high > low, high - low, 1.0))
    signed = np.array(observations.codes(table)) * (1.0 if maximize else -1.0)
    groups = [signed[design.reshape(-1) == i] for i in range(len(points))]
    means = np.array([group.mean() for group in groups])
    center, scale = means.mean(), means.std(ddof=1)
    if not scale > 0.0:
        raise TableError(f"{table.path}: all designs have the same {target}.")
    values = torch.from_numpy((means - center) / scale)

    def place(X: Tensor) -> Tensor:
        return (X.unsqueeze(-2) - candidates).square().sum(-1).argmin(-1)

    def observe(x: Tensor, uniform: float, normal: float) -> float:
        replicates = groups[int(place(x.unsqueeze(0)))]
        return float((replicates[int(uniform * len(replicates))] - center) / scale)

    notes = f"{table.path.name}: {len(points)} designs; one standard deviation of {target} is {scale:.3g}."
    best, d = float(values.max()), candidates.shape[-1]
    return DesignProblem(name, d, candidates, lambda X: values[place(X)], best, observe, notes, float(center / scale))


def _encoded(column: Column, table: Table) -> np.ndarray:
    """A column of numbers, ``n x 1``, or one column for each category."""
    numbers = np.array(column.codes(table))[:, None]
    return numbers if column.ordered else (numbers == np.array(column.grid)).astype(float)
