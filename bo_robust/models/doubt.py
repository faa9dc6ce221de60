"""Doubt about readings that may be finds, as a part of the prior of f."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from bo_robust.models.finds import Find


class Doubt(Kernel):
    """The covariance sum_j P_j B_j of finds that are not believed; see :mod:`bo_robust.models.finds` for B.

    A find of probability P and size a at its centre deviates from what is believed by a^2 P in the mean square: so
    much variance f has there. Its prior mean is 0, so the mean of the posterior does not follow the reading, but an
    acquisition goes and looks. What is read there, and nearby, before too, conditions the find like the rest of f.
    """

    centres: Tensor
    radii: Tensor
    variances: Tensor
    low: Tensor
    sides: Tensor

    def __init__(self, X: Tensor) -> None:
        """No doubt yet about points ``n x d``, as the kernel of f sees them."""
        super().__init__()
        self.set(X, (), 1.0)

    def set(self, X: Tensor, finds: Sequence[Find], scale: float) -> None:
        """Doubt about these finds among points ``n x d``; deviations are divided by ``scale``."""
        low, sides, rows = X.amin(0), X.amax(0) - X.amin(0), [find.row for find in finds]
        values = {
            "low": low,
            "sides": torch.where(sides > 0.0, sides, torch.inf),  # a column that is constant does not count
            "centres": X[rows],
            "radii": X.new_tensor([find.radius for find in finds]),
            "variances": X.new_tensor([find.probability * (find.deviation / scale) ** 2 for find in finds]),
        }
        for name, value in values.items():
            self.register_buffer(name, value.detach().clone(), persistent=False)

    def __bool__(self) -> bool:
        return len(self.radii) > 0

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **params: Any) -> Tensor:
        """Covariances ``... x n x m`` of points ``... x n x d`` and ``... x m x d``; ``... x n`` if ``diag``."""
        first, second = ((x - self.low) / self.sides for x in (x1, x2))
        centres = (self.centres - self.low) / self.sides
        apart = (first - second if diag else first.unsqueeze(-2) - second.unsqueeze(-3)).square().sum(-1)
        total = torch.zeros_like(apart)
        for radius in self.radii.unique():  # few, while finds may be a hundred
            here, rate = self.radii == radius, -0.5 / radius**2
            one, other = (
                ((x.unsqueeze(-2) - centres[here]).square().sum(-1) * rate).exp() for x in (first, second)
            )  # ... x n x k, ... x m x k
            weighted = self.variances[here] * one
            total = total + (rate * apart).exp() * ((weighted * other).sum(-1) if diag else weighted @ other.mT)
        return total
