"""Plain torch, any device: sort with indices, gather the masses, add them up."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["kth_index", "sorted_masses"]


def kth_index(values: Tensor, k: int) -> Tensor:
    """Where the k-th smallest of the last axis is (k from 1), long, ``...``."""
    return values.kthvalue(k, -1).indices


def sorted_masses(values: Tensor, masses: Tensor) -> tuple[Tensor, Tensor]:
    """The order of increasing values, and the cumulative masses (whole numbers, ``w`` or ``... x w``) in it."""
    order = torch.argsort(values, dim=-1, stable=True)
    ordered = masses[order] if masses.ndim == 1 else masses.gather(-1, order)
    return order, ordered.cumsum(-1)
