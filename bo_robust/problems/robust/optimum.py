"""The true value at risk of a problem, its best value over x, and regret."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.quasirandom import SobolEngine

from bo_robust.ops.weighted_quantile import weighted_quantile
from bo_robust.problems.robust.base import RobustProblem
from bo_robust.problems.robust.environments import grid
from bo_robust.validation import check_count

__all__ = ["Optimum", "optimum", "over_environment", "regret", "value_at_risk"]

# Quasi-random points a continuous Z is replaced by: when a value is reported; while an optimum is first looked for, and
# when f is told point by point.
Z_POINTS = 2**14
COARSE_Z_POINTS = 2**10
# Evaluations of f at once.
CHUNK = 2**18
# Points tried around the best so far in each round of the refinement.
TRIES = 16
MAX_ROUNDS = 300


@dataclass(frozen=True, eq=False)
class Optimum:
    """The best decision found.

    Attributes:
        x: Where, ``d_x``.
        value: VaR_alpha(f(x, Z)) there.
        z_points: How many points stood for a continuous Z; None where Z is finite and the value exact.
    """

    x: Tensor = field(repr=False)
    value: float
    z_points: int | None = None


def value_at_risk(problem: RobustProblem, X: Tensor, *, z_points: int = Z_POINTS) -> Tensor:
    """The true VaR_alpha(f(x, Z)) = inf{v: P(f(x, Z) <= v) >= alpha}, the lower quantile.

    Exact for a finite Z, by sorting f over its points. A continuous Z is replaced by ``z_points`` Sobol points in its
    box (unscrambled, shifted by half a cell), weighted by its density: the error shrinks like 1 / z_points in one
    dimension, a little slower in two. Tolerance at P = alpha: :mod:`bo_robust.ops.weighted_quantile`.

    Args:
        problem: The problem.
        X: Decisions, ``... x d_x``, on the device and in the dtype of the problem.
        z_points: For a continuous Z; a power of two keeps the points balanced.

    Returns:
        ``...``. No gradient.

    Raises:
        ValueError: if X does not fit the problem or lies outside its box, or z_points is not a whole number >= 1.
    """
    check_count(1, z_points=z_points)
    lower, upper = problem.x_bounds
    if X.ndim == 0 or X.shape[-1] != problem.dim_x or X.dtype != lower.dtype or X.device != lower.device:
        raise ValueError(
            f"X must be ... x {problem.dim_x} {lower.dtype} on {lower.device} for problem {problem.name!r}, "
            f"got {tuple(X.shape)} {X.dtype} on {X.device}."
        )
    if not bool((X.clamp(lower, upper) == X).all()):
        raise ValueError(f"X leaves the box of problem {problem.name!r}, {problem.x_bounds.tolist()}, or is NaN.")
    points, probabilities = _environment(problem, z_points)
    w = len(points)
    flat = X.reshape(-1, problem.dim_x)
    parts = []
    with torch.no_grad():
        for x in flat.split(max(1, CHUNK // w)):
            pairs = torch.cat([x.unsqueeze(1).expand(-1, w, -1), points.expand(len(x), -1, -1)], dim=-1)
            parts.append(weighted_quantile(problem.f(pairs), probabilities, problem.alpha))
    return torch.cat(parts).reshape(X.shape[:-1]) if parts else X.new_empty(X.shape[:-1])


@functools.lru_cache(maxsize=64)
def optimum(problem: RobustProblem) -> Optimum:
    """The best decision: a regular grid of ``search_points`` x, then random local refinement from the best of them.

    One start per 512 grid points, at least one. A round tries 16 points around each start within a radius, moves to
    the best if it is better, and else halves the radius, until it is ``search_tol`` of the box. Deterministic. A
    continuous Z is searched with 2^10 points first; the winner is refined once more, and its value given, with 2^14.
    Kept for as long as the process lives, by identity of the problem.

    A lower bound on the true maximum, as any search is: regret against it can be slightly negative.
    """
    lower, upper = problem.x_bounds
    d = problem.dim_x
    side = max(2, round(problem.search_points ** (1.0 / d)))
    candidates = lower + (upper - lower) * grid(0.0, 1.0, side, d, device=lower.device, dtype=lower.dtype)
    values = value_at_risk(problem, candidates, z_points=COARSE_Z_POINTS)
    starts = values.topk(min(len(values), max(1, problem.search_points // 512))).indices
    x, value = _refined(problem, candidates[starts], 1.0 / (side - 1), COARSE_Z_POINTS)
    best = value.argmax()
    x, value = x[best : best + 1], value[best : best + 1]
    if problem.points is None:
        x, value = _refined(problem, x, 4.0 / COARSE_Z_POINTS, Z_POINTS)
    return Optimum(x[0], float(value[0]), Z_POINTS if problem.points is None else None)


def _refined(problem: RobustProblem, x: Tensor, radius: float, z_points: int) -> tuple[Tensor, Tensor]:
    """``k x d_x`` starts moved uphill, and their values ``k``; the radius is in units of the box."""
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


def regret(problem: RobustProblem, X: Tensor) -> Tensor:
    """VaR_alpha at the optimum less VaR_alpha at X (``... x d_x``), ``...``; errors as :func:`value_at_risk`."""
    return optimum(problem).value - value_at_risk(problem, X)


def over_environment(problem: RobustProblem, x: Tensor, *, z_points: int = COARSE_Z_POINTS) -> tuple[Tensor, Tensor]:
    """f at one decision over the points of Z, without noise, and their probabilities.

    Args:
        problem: The problem.
        x: The decision, ``d_x``, on the device and in the dtype of the problem.
        z_points: For a continuous Z, as in :func:`value_at_risk`.

    Returns:
        f ``w`` and probabilities ``w``, in the order of the points. No gradient.
    """
    points, probabilities = _environment(problem, z_points)
    with torch.no_grad():
        return problem.f(torch.cat([x.expand(len(points), -1), points], dim=-1)), probabilities


def _environment(problem: RobustProblem, z_points: int) -> tuple[Tensor, Tensor]:
    """Points ``w x d_z`` and probabilities ``w`` that stand for Z."""
    if problem.points is not None and problem.probabilities is not None:
        return problem.points, problem.probabilities
    lower, upper = problem.z_bounds
    sobol = SobolEngine(problem.dim_z).draw(z_points, dtype=lower.dtype) + 0.5 / z_points
    points = lower + (upper - lower) * sobol.to(lower.device)
    log_prob = problem.log_prob(points) if problem.log_prob is not None else None
    if log_prob is None:
        raise ValueError(f"the true value at risk of {problem.name!r} needs the log density of its continuous Z.")
    return points, torch.softmax(log_prob, dim=0)
