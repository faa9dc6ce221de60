"""Branin-Hoo with one decision and one environment variable (Nguyen et al. 2021, sec. 4.1)."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from bo_robust.problems.robust.base import RobustProblem
from bo_robust.problems.robust.environments import unit_environment

__all__ = ["branin"]


def branin(
    *, z: str = "discrete", device: torch.device | str = "cpu", dtype: torch.dtype = torch.float64
) -> RobustProblem:
    """Branin-Hoo (1, 1) on [0, 1]^2, negated and standardised as by Picheny et al. 2013.

    f = -((v - 5.1 u^2 / (4 pi^2) + 5 u / pi - 6)^2 + (10 - 10 / (8 pi)) cos u - 44.81) / 51.95 at (u, v) =
    (15 x - 5, 15 z), of range [-4.88, 1.05].

    Args:
        z: "discrete" or "continuous", see :func:`~.environments.unit_environment`.
        device: Of the problem's tensors.
        dtype: Of the problem's tensors.

    Raises:
        ValueError: on another z.
    """
    return RobustProblem(
        name="branin",
        f=_f,
        x_bounds=torch.tensor([[0.0], [1.0]], device=device, dtype=dtype),
        noise_var=0.01,
        alpha=0.1,
        initial_points=3,
        notes=(
            "Nguyen et al. 2021, sec. 4.1. The paper gives no formula: which input is z and the scale are those of "
            "the authors' published code. Optimum 0.7324785 (discrete), 0.639491 (continuous)."
        ),
        **unit_environment(z, 1, device, dtype),
    )


def _f(X: Tensor) -> Tensor:
    u, v = 15.0 * X[..., 0] - 5.0, 15.0 * X[..., 1]
    bowl = (v - 5.1 / (4.0 * math.pi**2) * u.square() + 5.0 / math.pi * u - 6.0).square()
    return -(bowl + (10.0 - 10.0 / (8.0 * math.pi)) * u.cos() - 44.81) / 51.95
