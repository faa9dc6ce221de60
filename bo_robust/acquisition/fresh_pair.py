"""A random pair of design and condition in place of one that repeats an observation, in every second round.

V-UCB repeats pairs. A repeated pair teaches a fit of the hyperparameters little, so a length-scale that is too long
stays, and the loop is stuck. The rule is ours; what it gains stands in ``docs/results/papers.md``.
"""

import torch
from torch import Tensor

from bo_robust.risk_measures.environments import Environment
from bo_robust.utils.input_checks import check_bounds, check_tensor

REPEATED = 0.005  # of the box: a pair within it of an observed one repeats it


def is_due(count: int) -> bool:
    """Whether the next of ``count`` observations may be a random one: every second may."""
    return count % 2 == 0


def repeats(point: Tensor, observed: Tensor, low: Tensor, high: Tensor) -> bool:
    """Whether every column of a pair, ``d``, is within 0.5 % of the box of that of one ``observed``, ``n x d``.

    The box is from ``low`` to ``high``, ``d``.
    """
    away = (observed - point).abs()
    return bool((away <= REPEATED * (high - low)).all(-1).any())


def fresh_pair(
    point: Tensor, observed: Tensor, bounds: Tensor, environment: Environment, generator: torch.Generator | None = None
) -> Tensor:
    """The pair to observe: ``point``, or a random one if that repeats an observation and their number is even.

    Args:
        point: The pair that V-UCB chose, ``1 x d``, such as ``acqf.select_condition(x).point``.
        observed: The pairs observed and pending so far, ``n x d``.
        bounds: Lower and upper corner of the designs, ``2 x d_x``. A random design is uniform in it.
        environment: Of the acquisition function. A random condition is one of its points, by their probabilities.
        generator: Of random numbers, on the CPU; None: PyTorch's global one.

    Returns:
        ``1 x d``.

    Raises:
        ValueError: if shapes do not fit.
    """
    check_bounds(bounds)
    check_tensor("point", point)
    check_tensor("observed", observed)
    d = bounds.shape[-1] + environment.appended
    if point.shape != (1, d) or observed.ndim != 2 or observed.shape[-1] != d:
        shapes = f"got {tuple(point.shape)} and {tuple(observed.shape)}"
        raise ValueError(f"point must be 1 x {d} and observed n x {d}, as bounds and environment have it; {shapes}.")
    # Conditions have no box: their extent is that of all there are.
    low, high = bounds
    if environment.appended:
        z = torch.cat([environment.points(bounds[:1]).flatten(0, -2), observed, point])[:, bounds.shape[-1] :]
        low, high = torch.cat([low, z.amin(0)]), torch.cat([high, z.amax(0)])
    if not (is_due(len(observed)) and repeats(point[0], observed, low, high)):
        return point
    uniform = torch.rand(1, bounds.shape[-1], generator=generator, dtype=bounds.dtype).to(bounds)
    return under_drawn_condition(bounds[0] + (bounds[1] - bounds[0]) * uniform, environment, generator)


def under_drawn_condition(x: Tensor, environment: Environment, generator: torch.Generator | None = None) -> Tensor:
    """A design, ``1 x d_x``, under a condition drawn by its probability: ``1 x d``."""
    (points,), p = environment.points(x), environment.probabilities
    weights = torch.ones(len(points)) if p is None else p.cpu()
    return points[torch.multinomial(weights, 1, generator=generator).to(points.device)]
