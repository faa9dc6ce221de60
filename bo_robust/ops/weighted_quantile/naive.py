"""Plain torch on any device."""

import torch
from torch import Tensor


def kth_index(values: Tensor, k: int) -> Tensor:
    """Index of the k-th smallest value of the last axis (k from 1), ``...`` long."""
    return values.kthvalue(k, -1).indices


def sorted_masses(values: Tensor, masses: Tensor) -> tuple[Tensor, Tensor]:
    """The order of increasing values, and the masses (long, ``w`` or ``... x w``) cumulated in this order."""
    order = torch.argsort(values, dim=-1, stable=True)
    ordered = masses[order] if masses.ndim == 1 else masses.gather(-1, order)
    return order, ordered.cumsum(-1)
