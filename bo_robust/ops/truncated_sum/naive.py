"""The truncated sums in plain torch on any device, in chunks of c observations.

The products u_{i tau} y_tau take one matrix product and a few elementwise passes. Over all observations at once every
pass would read ``p x t`` numbers from memory. A chunk stays in the cache and needs O(s p c) memory.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

# Observations of a chunk on the CPU. Measured time is flat from 256 to 1024 (p = 32 to 512, 1 to 64 trials).
CPU_CHUNK = 512
# Products of a chunk on CUDA: 1 GiB in float64, because every chunk costs a handful of launches.
CUDA_CHUNK_PRODUCTS = 1 << 27


@torch.no_grad()
def truncated_sum(root: Tensor, features: Tensor, rewards: Tensor, level: float | Tensor) -> Tensor:
    """See :func:`bo_robust.ops.truncated_sum.truncated_sum`."""
    out = torch.zeros_like(root[..., 0])
    for products, truncated in _chunks(root, features, rewards, level):
        out += products.masked_fill_(truncated, 0.0).sum(-1)
    return out


@torch.no_grad()
def truncated_count(root: Tensor, features: Tensor, rewards: Tensor, level: float | Tensor) -> Tensor:
    """See :func:`bo_robust.ops.truncated_sum.truncated_count`."""
    out = torch.zeros_like(root[..., 0, 0], dtype=torch.int64)
    for _, truncated in _chunks(root, features, rewards, level):
        out += truncated.sum((-2, -1))
    return out


@torch.no_grad()
def truncated_sum_direct(root: Tensor, features: Tensor, rewards: Tensor, level: float | Tensor) -> Tensor:
    """:func:`truncated_sum` by its definition, with all ``... x p x t`` products in memory; for tests."""
    products = root @ features.mT * rewards.unsqueeze(-2)
    truncated = products.abs() > level_tensor(level, root)[..., None, None]
    return torch.where(truncated, 0.0, products).sum(-1)


def level_tensor(level: float | Tensor, root: Tensor) -> Tensor:
    """The level as a tensor of the dtype of ``root``, ``...`` or without axes."""
    if isinstance(level, Tensor):
        return level.to(root.dtype)
    return torch.full((), level, dtype=root.dtype, device=root.device)


def _chunks(root: Tensor, features: Tensor, rewards: Tensor, level: float | Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """For each chunk the products, ``... x p x c``, and whether each is truncated."""
    bound = level_tensor(level, root)[..., None, None]
    chunk = max(1, CUDA_CHUNK_PRODUCTS // max(1, root.shape[:-1].numel())) if root.is_cuda else CPU_CHUNK
    for start in range(0, rewards.shape[-1], chunk):
        rows = slice(start, start + chunk)
        products = root @ features[..., rows, :].mT
        products *= rewards[..., None, rows]
        yield products, products.abs() > bound
