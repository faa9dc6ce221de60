"""The true value at risk of a problem, its best value over x, and regret."""

import functools
from typing import NamedTuple

import torch
from botorch.utils.transforms import unnormalize
from torch import Tensor
from torch.quasirandom import SobolEngine

from bo_robust.experiments.problems.conditions.base import ConditionsProblem, grid
from bo_robust.ops.weighted_quantile import weighted_quantile
from bo_robust.risk_measures.environments import ContinuousEnvironment

# How many quasi-random points stand for a continuous Z: when a value is reported, and while the search for an optimum
# begins or f is evaluated point by point.
Z_POINTS = 2**14
COARSE_Z_POINTS = 2**10
# Evaluations of f at once.
CHUNK = 2**18
# Points tried around the best so far in each round of the refinement.
TRIES = 16
MAX_ROUNDS = 300


class Optimum(NamedTuple):
    """The best decision found, ``d_x``, and VaR_alpha(f(x, Z)) there."""

    x: Tensor
    value: float


def value_at_risk(problem: ConditionsProblem, X: Tensor, *, z_points: int = Z_POINTS) -> Tensor:
    """The true VaR_alpha(f(x, Z)) = inf{v: P(f(x, Z) <= v) >= alpha} of decisions ``... x d_x``, without gradient.

    The value is exact for a finite Z, by sorting f over its points. A continuous Z is replaced by ``z_points`` Sobol
    points in its box (unscrambled, shifted by half a cell), weighted by its density. A power of two keeps them
    balanced. The error shrinks like 1 / z_points in one dimension, a little slower in two: it is 2e-5 and 1e-4 at the
    optima of Branin and Hartmann-3. For the tolerance at P = alpha see :mod:`bo_robust.ops.weighted_quantile`.
    """
    points, probabilities = _environment(problem, z_points)
    w = len(points)
    flat = X.reshape(-1, problem.dim_x)
    values = []
    with torch.no_grad():
        for x in flat.split(max(1, CHUNK // w)):
            pairs = torch.cat([x.unsqueeze(1).expand(-1, w, -1), points.expand(len(x), -1, -1)], dim=-1)
            values.append(weighted_quantile(problem.f(pairs), probabilities, problem.alpha))
    return torch.cat(values).reshape(X.shape[:-1]) if values else X.new_empty(X.shape[:-1])


@functools.lru_cache(maxsize=64)
def optimum(problem: ConditionsProblem) -> Optimum:
    """The best decision that a grid search and local refinement find.

    The search tries a regular grid of ``search_points`` x and refines the best of them, one start per 512 grid points
    and at least one. A round tries 16 points within a radius of each start. It moves to the best of them if that is
    better, and otherwise halves the radius, until the radius is ``search_tol`` of the box. A continuous Z has 2^10
    points at first. The winner is refined once more with 2^14 points, which also give its value. The search is
    deterministic. Results are cached by identity of the problem while the process lives.

    Any search finds a lower bound on the true maximum, so regret against it can be slightly negative.
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
        tries = x.unsqueeze(1) + (upper - lower) * radii[:, None, None] * steps
        tries = tries.clamp(lower, upper)
        found = value_at_risk(problem, tries, z_points=z_points).max(dim=-1)
        better = found.values > value
        x = torch.where(better.unsqueeze(-1), tries[rows, found.indices], x)
        value = torch.where(better, found.values, value)
        radii = torch.where(better, radii, radii / 2.0)
    return x, value


def regret(problem: ConditionsProblem, X: Tensor) -> Tensor:
    """What X (``... x d_x``) loses against the optimum in VaR_alpha, ``...``."""
    return optimum(problem).value - value_at_risk(problem, X)


def over_environment(problem: ConditionsProblem, x: Tensor) -> tuple[Tensor, Tensor]:
    """f at one decision ``x`` over the points of Z without noise, and their probabilities, ``w`` each; no gradient.

    A continuous Z is replaced by points as in :func:`value_at_risk`.
    """
    points, probabilities = _environment(problem, COARSE_Z_POINTS)
    with torch.no_grad():
        return problem.f(torch.cat([x.expand(len(points), -1), points], dim=-1)), probabilities


def _environment(problem: ConditionsProblem, z_points: int) -> tuple[Tensor, Tensor]:
    """The points that stand for Z, ``w x d_z``, and their probabilities, ``w``."""
    if problem.points is not None and problem.probabilities is not None:
        return problem.points, problem.probabilities
    environment = problem.environment
    assert isinstance(environment, ContinuousEnvironment)
    # An unscrambled sequence begins at 0: half a cell centres the points.
    sobol = SobolEngine(problem.dim_z).draw(z_points, dtype=torch.float64) + 0.5 / z_points
    points = unnormalize(sobol.to(problem.z_bounds), problem.z_bounds)
    log_prob = environment.log_prob(points)
    if log_prob is None:
        raise ValueError(f"the true value at risk of {problem.name!r} needs the log density of its continuous Z.")
    return points, torch.softmax(log_prob, dim=0)
