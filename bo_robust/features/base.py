"""What every feature map offers."""

from typing import Protocol

from torch import Tensor


class Features(Protocol):
    """A feature map x -> phi(x) with phi(x) . phi(x') near k(x, x')."""

    @property
    def num_features(self) -> int:
        """Length p of phi(x)."""

    def __call__(self, X: Tensor) -> Tensor:
        """phi, ``... x n x p``, of points ``... x n x d``, of the dtype and on the device of X."""
