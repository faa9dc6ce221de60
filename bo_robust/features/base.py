"""What every feature map offers."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor

__all__ = ["Features"]


class Features(Protocol):
    """A feature map x -> phi(x) with phi(x) . phi(x') near k(x, x')."""

    @property
    def num_features(self) -> int:
        """p, the length of phi(x)."""

    def __call__(self, X: Tensor) -> Tensor:
        """phi of points ``... x n x d``, ``... x n x p``, of the dtype and on the device of X."""
