"""Data in which points repeat, as a regression on the distinct points alone.

The c rewards of one point tell the posterior what their mean tells with 1/c of the noise: features and mean weighted by
sqrt(c) give the same normal equations. The scatter about the means matters to the evidence only.
"""

from typing import NamedTuple

import torch
from torch import Tensor


class RepeatedPoints(NamedTuple):
    """The distinct points of the data, as regression data of their own.

    Attributes:
        first: Row in which each distinct point occurs first, ascending.
        root: sqrt(c) of the point's c observations: the weight of its features.
        targets: sqrt(c) times the mean of the point's rewards.
        scatter: Sum of squares of all rewards about the mean of their point.
    """

    first: Tensor
    root: Tensor
    targets: Tensor
    scatter: Tensor


def group_copies(X: Tensor, y: Tensor) -> RepeatedPoints:
    """Group points ``n x d`` and rewards ``n`` by points of equal coordinates."""
    _, label, counts = torch.unique(X, dim=0, return_inverse=True, return_counts=True)
    n, num = X.shape[0], counts.shape[0]
    rows = torch.arange(n, device=X.device)
    # `unique` orders points by coordinates; from here on they are in order of first occurrence.
    first, order = rows.new_full((num,), n).scatter_reduce(0, label, rows, "amin").sort()
    counts = counts.to(y)
    mean = y.new_zeros(num).index_add(0, label, y) / counts
    scatter = (y - mean[label]).square().sum()
    root = counts.sqrt()
    return RepeatedPoints(first, root[order], (root * mean)[order], scatter)
