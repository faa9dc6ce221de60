"""What a problem over (x, z) is: f(x, z), the decision x, the condition z and the distribution of z.

The problems are those of Nguyen, Dai, Low & Jaillet 2021 (V-UCB), sec. 4 and App. I. Axes: ``n``
points, ``w`` points of Z, ``d_x`` and ``d_z`` dimensions of x and z. An input of f is x followed by z.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from bo_robust.risk_measures.environments import ContinuousEnvironment, FiniteEnvironment


class OverConditions(ABC):
    """Base of the kinds of problems over (x, z), as :class:`bo_robust.experiments.problems.base.OverArms`."""

    @abstractmethod
    def make(self, device: torch.device | str) -> ConditionsProblem:
        """Make the problem; errors are those of :func:`bo_robust.experiments.problems.make_conditions_problem`."""


@dataclass(frozen=True, eq=False)
class ConditionsProblem:
    """Maximise VaR_alpha(f(x, Z)) over x, with Z finite or continuous.

    VaR_alpha is the LOWER quantile inf{v: P(f <= v) >= alpha}: a small alpha is averse to risk. BoTorch's
    ``VaR(alpha)`` counts from the other tail.
    """

    name: str
    # The noiseless objective, to be maximised: `... x (d_x + d_z)` to `...`.
    f: Callable[[Tensor], Tensor] = field(repr=False)
    environment: FiniteEnvironment | ContinuousEnvironment = field(repr=False)  # The distribution of Z
    x_bounds: Tensor  # Box of x, `2 x d_x`, lower row first
    z_bounds: Tensor  # Box that holds every z, `2 x d_z`
    noise_var: float  # Variance of the Gaussian noise on observations of f
    alpha: float  # Level of the value at risk, in (0, 1)
    initial: int  # Number of random observations (x, z) at the start of a run
    search_points: int = 2048  # About how many x :func:`~.optimum.optimum` tries first, on a grid; few where f is slow
    search_tol: float = 1e-7  # Fraction of the box of x at which :func:`~.optimum.optimum` stops
    notes: str = field(default="", repr=False)  # The source, the units, and what is ours and not the paper's

    @property
    def dim_x(self) -> int:
        """Number of decision variables, d_x."""
        return self.x_bounds.shape[1]

    @property
    def dim_z(self) -> int:
        """Number of environment variables, d_z."""
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


def bell(points: Tensor, centre: float, scale: float | Tensor) -> FiniteEnvironment:
    """P(z) proportional to exp(-||(z - centre) / scale||^2) on points ``w x d_z``. ``scale`` is a number or ``d_z``."""
    return FiniteEnvironment(points, torch.softmax(-((points - centre) / scale).square().sum(-1), dim=0))
