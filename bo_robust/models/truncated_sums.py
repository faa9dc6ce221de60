"""Sums of rewards truncated in every direction of feature space: the inner step of ATA-GP-UCB on continuous x.

Ray Chowdhury & Gopalan 2019, Algorithm 2. With R a root of the inverse (R^T R = V^-1), phi_tau the features of
observation tau and u_tau = R phi_tau,

    out_i = sum_tau u_{i tau} y_tau 1{|u_{i tau} y_tau| <= b}.

Every past reward is truncated at the current level, separately in each direction i. So all ``p x t`` products are
formed again in every round, and none is kept. A product equal to the level is kept, and one that overflows is truncated
at every finite level. NaN rewards give NaN sums.

Everywhere ``root`` is R, ``... x p x p``, ``features`` are Phi, ``... x t x p``, ``rewards`` are y, ``... x t``, and
``level`` is b >= 0.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from bo_robust.truncation import truncate

CHUNK = 512  # rewards at a time: a chunk of the products stays in the cache


@torch.no_grad()
def truncated_sum(root: Tensor, features: Tensor, rewards: Tensor, level: float, rule: str = "zero") -> Tensor:
    """The sums above, ``... x p``, or by another rule of :func:`bo_robust.truncation.truncate`."""
    total = torch.zeros_like(root[..., 0])
    for products in _products(root, features, rewards):
        total += truncate(products, level, rule).sum(-1)
    return total


@torch.no_grad()
def truncated_count(root: Tensor, features: Tensor, rewards: Tensor, level: float) -> Tensor:
    """Count the products beyond the level, ``...`` int64."""
    count = torch.zeros_like(root[..., 0, 0], dtype=torch.int64)
    for products in _products(root, features, rewards):
        count += (products.abs() > level).sum((-2, -1))
    return count


def _products(root: Tensor, features: Tensor, rewards: Tensor) -> Iterator[Tensor]:
    """u_{i tau} y_tau, ``... x p x c``, for every chunk of c rewards."""
    for start in range(0, rewards.shape[-1], CHUNK):
        rows = slice(start, start + CHUNK)
        products = root @ features[..., rows, :].mT
        products *= rewards[..., None, rows]
        yield products
