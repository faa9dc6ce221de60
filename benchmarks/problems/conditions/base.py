"""What a problem over (x, z) is: f(x, z), the decision x, the condition z and the distribution of z; its optimum.

The problems are those of Nguyen et al. 2021 (V-UCB), sec. 4 and App. I. Axes: ``n`` points, ``w`` points of Z, ``d_x``
and ``d_z`` dimensions of x and z. An input of f is x followed by z.
"""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from botorch.utils.transforms import unnormalize
from torch import Tensor
from torch.quasirandom import SobolEngine

from bo_robust.risk_measures.environments import ContinuousEnvironment, FiniteEnvironment
from bo_robust.risk_measures.functionals import ValueAtRisk

# How many quasi-random points stand for a continuous Z: when a value is reported, and while the search begins.
Z_POINTS, COARSE_Z_POINTS = 2**14, 2**10
CHUNK = 2**18  # evaluations of f at once
TRIES = 16  # points around the best so far in each round of the refinement
MAX_ROUNDS = 300


class OverConditions(ABC):
    """Base of the kinds of problems over (x, z), as :class:`benchmarks.problems.base.OverArms`."""

    @abstractmethod
    def make(self, device: torch.device | str) -> ConditionsProblem:
        """Make the problem, its tensors on ``device`` in float64; errors are as those of problems over arms."""


@dataclass(frozen=True, eq=False, repr=False)
class ConditionsProblem:
    """Maximize VaR_alpha(f(x, Z)) over x, with Z finite or continuous.

    VaR_alpha is the LOWER quantile inf{v: P(f <= v) >= alpha}; BoTorch's ``VaR`` counts from the other tail.
    """

    name: str
    f: Callable[[Tensor], Tensor]  # The noiseless objective, to be maximized: `... x (d_x + d_z)` to `...`
    environment: FiniteEnvironment | ContinuousEnvironment  # The distribution of Z
    x_bounds: Tensor  # Box of x, `2 x d_x`, lower row first
    z_bounds: Tensor  # Box that holds every z, `2 x d_z`
    noise_var: float  # Variance of the Gaussian noise on observations of f
    alpha: float  # Level of the value at risk, in (0, 1)
    initial: int  # Number of random observations (x, z) at the start of a run
    search_points: int = 2048  # About how many x :func:`optimum` tries first, on a grid; few where f is slow
    search_tol: float = 1e-7  # Fraction of the box of x at which :func:`optimum` stops
    notes: str = ""  # The source, the units, and what is ours and not the paper's

    @property
    def dim_x(self) -> int:
        return self.x_bounds.shape[1]

    @property
    def dim_z(self) -> int:
        return self.z_bounds.shape[1]

    @property
    def points(self) -> Tensor | None:
        """The points of a finite Z, ``w x d_z``. None where Z is continuous."""
        return self.environment.z if isinstance(self.environment, FiniteEnvironment) else None

    @property
    def probabilities(self) -> Tensor | None:
        """Probabilities of the points of a finite Z, ``w``. None where Z is continuous."""
        if not isinstance(self.environment, FiniteEnvironment):
            return None
        p, w = self.environment.probabilities, len(self.environment.z)
        return torch.full_like(self.environment.z[:, 0], 1.0 / w) if p is None else p


def grid(lower: float, upper: float, side: int, dim: int, device: torch.device | str) -> Tensor:
    """A regular grid on [lower, upper]^dim, ends included, ``side^dim x dim``. The last axis runs fastest."""
    axis = torch.linspace(lower, upper, side, device=device, dtype=torch.float64)
    return torch.cartesian_prod(*[axis] * dim).reshape(-1, dim)


def bell(points: Tensor, center: float, scale: float | Tensor) -> FiniteEnvironment:
    """P(z) proportional to exp(-||(z - center) / scale||^2) on points ``w x d_z``."""
    return FiniteEnvironment(points, torch.softmax(-((points - center) / scale).square().sum(-1), dim=0))


class Optimum(NamedTuple):
    """The best decision found, ``d_x``, and VaR_alpha(f(x, Z)) there."""

    x: Tensor
    value: float


def value_at_risk(problem: ConditionsProblem, X: Tensor, *, z_points: int = Z_POINTS) -> Tensor:
    """The true VaR_alpha(f(x, Z)) = inf{v: P(f(x, Z) <= v) >= alpha} of decisions ``... x d_x``, without gradient.

    The value is exact for a finite Z. A continuous Z is replaced by ``z_points`` Sobol points in its box, weighted by
    its density: the error is 2e-5 and 1e-4 at the optima of Branin and Hartmann-3. A power of two keeps them balanced.
    """
    points, probabilities = _environment(problem, z_points)
    w = len(points)
    values = []
    with torch.no_grad():
        for x in X.reshape(-1, problem.dim_x).split(max(1, CHUNK // w)):
            pairs = torch.cat([x.unsqueeze(1).expand(-1, w, -1), points.expand(len(x), -1, -1)], dim=-1)
            values.append(ValueAtRisk(problem.alpha)(problem.f(pairs), probabilities))
    return torch.cat(values).reshape(X.shape[:-1])


@functools.lru_cache(maxsize=64)
def optimum(problem: ConditionsProblem) -> Optimum:
    """The best decision that a grid search and local refinement find.

    The search tries a regular grid of ``search_points`` x and refines the best of them, one start per 512 grid points
    and at least one. A round tries 16 points within a radius of each start. It moves to the best of them if that is
    better, and otherwise halves the radius, until the radius is ``search_tol`` of the box. With a continuous Z the
    winner is refined once more with more of its points. The search is deterministic, and cached by identity of the
    problem. It finds a lower bound on the true maximum, so regret against it can be slightly negative.
    """
    side = max(2, round(problem.search_points ** (1.0 / problem.dim_x)))
    candidates = unnormalize(grid(0.0, 1.0, side, problem.dim_x, problem.x_bounds.device), problem.x_bounds)
    values = value_at_risk(problem, candidates, z_points=COARSE_Z_POINTS)
    starts = values.topk(min(len(values), max(1, problem.search_points // 512))).indices
    x, value = _refined(problem, candidates[starts], 1.0 / (side - 1), COARSE_Z_POINTS)
    best = value.argmax()
    x, value = x[best : best + 1], value[best : best + 1]
    if problem.points is None:
        x, value = _refined(problem, x, 4.0 / COARSE_Z_POINTS, Z_POINTS)
    return Optimum(x[0], float(value[0]))


def _refined(problem: ConditionsProblem, x: Tensor, radius: float, z_points: int) -> tuple[Tensor, Tensor]:
    """Move starts uphill; return them, ``k x d_x``, and their values, ``k``. The radius is in units of the box."""
    lower, upper = problem.x_bounds
    value = value_at_risk(problem, x, z_points=z_points)
    radii = torch.full_like(value, radius)
    directions = SobolEngine(problem.dim_x, scramble=True, seed=0)
    rows = torch.arange(len(x), device=x.device)
    for _ in range(MAX_ROUNDS):
        if bool((radii <= problem.search_tol).all()):
            break
        steps = (2.0 * directions.draw(TRIES, dtype=x.dtype) - 1.0).to(x.device)
        tries = (x.unsqueeze(1) + (upper - lower) * radii[:, None, None] * steps).clamp(lower, upper)
        found = value_at_risk(problem, tries, z_points=z_points).max(dim=-1)
        better = found.values > value
        x = torch.where(better.unsqueeze(-1), tries[rows, found.indices], x)
        value = torch.where(better, found.values, value)
        radii = torch.where(better, radii, radii / 2.0)
    return x, value


def regret(problem: ConditionsProblem, X: Tensor) -> Tensor:
    """What X (``... x d_x``) loses against the optimum in VaR_alpha, ``...``."""
    return optimum(problem).value - value_at_risk(problem, X)


def _environment(problem: ConditionsProblem, z_points: int) -> tuple[Tensor, Tensor]:
    """The points that stand for Z, ``w x d_z``, and their probabilities, ``w``."""
    if problem.points is not None and problem.probabilities is not None:
        return problem.points, problem.probabilities
    environment = problem.environment
    assert isinstance(environment, ContinuousEnvironment)
    # An unscrambled sequence begins at 0: half a cell centers the points.
    sobol = SobolEngine(problem.dim_z).draw(z_points, dtype=torch.float64) + 0.5 / z_points
    points = unnormalize(sobol.to(problem.z_bounds), problem.z_bounds)
    log_prob = environment.log_prob(points)
    if log_prob is None:
        raise ValueError(f"the true value at risk of {problem.name!r} needs the log density of its continuous Z.")
    return points, torch.softmax(log_prob, dim=0)
