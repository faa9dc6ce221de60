"""Fourier features of a sum of covariances over groups of dimensions: many dimensions, few of them interacting."""

from dataclasses import dataclass

import torch
from torch import Tensor

from bo_robust.features.box import BoxFeatures
from bo_robust.features.fourier import FourierFeatures


@dataclass(frozen=True)
class AdditiveFourierFeatures:
    """Features of k(x, x') = sum_g k_g(x_g, x'_g), where x_g are the coordinates of group g (Mutny & Krause 2018).

    phi(x) concatenates the features of the blocks, so their number adds up instead of multiplying. k(x, x) is the sum
    of the blocks' output scales: give each of G blocks 1 / G for k(x, x) = 1.

    Args:
        blocks: :class:`~bo_robust.features.FourierFeatures` or :class:`~bo_robust.features.MaternFourierFeatures` of
            every group.
        groups: The columns of X that each block takes, in the order of its dimensions. Groups may share columns and
            need not cover all.

    Raises:
        ValueError: if there is no block, not one group per block, or a group is not of as many distinct columns >= 0 as
            its block has dimensions.
    """

    blocks: tuple[BoxFeatures, ...]
    groups: tuple[tuple[int, ...], ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "blocks", tuple(self.blocks))
        object.__setattr__(self, "groups", tuple(map(tuple, self.groups)))
        if not self.blocks or len(self.blocks) != len(self.groups):
            raise ValueError(f"give one group per block, at least one, got {len(self.blocks)} and {len(self.groups)}.")
        for block, group in zip(self.blocks, self.groups, strict=True):
            if not group or len(set(group)) != len(group) or min(group) < 0:
                raise ValueError(f"a group must hold distinct columns >= 0, at least one, got {group}.")
            if len(group) != block.dim:
                raise ValueError(f"group {group} has {len(group)} column(s), its block {block.dim} dimension(s).")

    @property
    def num_frequencies(self) -> int:
        """Sum of the blocks' frequencies, the m of the paper's truncation level and width."""
        return sum(block.num_frequencies for block in self.blocks)

    @property
    def num_features(self) -> int:
        """Length p of phi(x)."""
        return sum(block.num_features for block in self.blocks)

    def __call__(self, X: Tensor) -> Tensor:
        """phi, ``... x n x p``, of points ``... x n x d``; ``ValueError`` if a block refuses its columns or X lacks
        one.
        """
        last = max(map(max, self.groups))
        if X.ndim < 2 or X.shape[-1] <= last:
            raise ValueError(f"X must be ... x n x d with d > {last}, the last column of groups, got {tuple(X.shape)}.")
        parts = zip(self.blocks, self.groups, strict=True)
        return torch.cat([block(X[..., list(group)]) for block, group in parts], dim=-1)

    def error_bound(self) -> float:
        """Sum of the blocks' ``error_bound()``; ``ValueError`` if a block has none
        (only squared exponentials have one).
        """
        total = 0.0
        for block in self.blocks:
            if not isinstance(block, FourierFeatures):
                raise ValueError(f"{type(block).__name__} has no error bound; use sup_error, which is measured.")
            total += block.error_bound()
        return total

    def sup_error(self, grid: int = 201) -> float:
        """Sum of the errors that the blocks measure with ``grid``, which is at least the error of the sum."""
        return sum(block.sup_error(grid) for block in self.blocks)
