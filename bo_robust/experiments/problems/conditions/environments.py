"""The distributions of Z in the problems of Nguyen et al. 2021, App. I."""

from typing import Any

import torch
from torch import Tensor
from torch.distributions import Normal

from bo_robust.risk_measures.environments import ContinuousEnvironment, FiniteEnvironment
from bo_robust.utils.input_checks import quoted


def grid(lower: float, upper: float, side: int, dim: int, device: torch.device | str) -> Tensor:
    """A regular grid on [lower, upper]^dim, ends included, ``side^dim x dim``. The last axis runs fastest."""
    axis = torch.linspace(lower, upper, side, device=device, dtype=torch.float64)
    return torch.cartesian_prod(*[axis] * dim).reshape(-1, dim)


def bell(points: Tensor, centre: float, scale: float | Tensor) -> FiniteEnvironment:
    """P(z) proportional to exp(-||(z - centre) / scale||^2) on points ``w x d_z``. ``scale`` is a number or ``d_z``."""
    return FiniteEnvironment(points, torch.softmax(-((points - centre) / scale).square().sum(-1), dim=0))


def unit_environment(kind: str, dim: int, device: torch.device | str) -> dict[str, Any]:
    """Describe Z on [0, 1]^dim, dim 1 or 2, by the fields of a :class:`~.base.ConditionsProblem` (the paper's App. I).

    "discrete" is a regular grid with ends, 100 points for dim 1 and 8 x 8 for dim 2, with P(z) proportional to
    exp(-||z - 0.5||^2 / 0.1^2). "continuous" is N(0.5, 0.125^2) cut at 2 sd, so on [0.25, 0.75]^dim. Another ``kind``
    raises ``ValueError``.
    """
    if kind == "discrete":
        points = grid(0.0, 1.0, 100 if dim == 1 else 8, dim, device)
        box = torch.tensor([[0.0], [1.0]], device=device, dtype=torch.float64).repeat(1, dim)
        return {"environment": bell(points, 0.5, 0.1), "z_bounds": box}
    if kind == "continuous":
        box = torch.tensor([[0.25], [0.75]], device=device, dtype=torch.float64).repeat(1, dim)
        return {"environment": ContinuousEnvironment(box, Normal(box.new_tensor(0.5), 0.125)), "z_bounds": box}
    raise ValueError(f"z must be 'discrete' or 'continuous', got {quoted(kind)}.")
