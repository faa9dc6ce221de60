"""Which of many pending designs an acquisition function has to know."""

from __future__ import annotations

import torch
from botorch.acquisition import AcquisitionFunction
from torch import Tensor

MOST_PENDING = 50
MOST_PENDING_OF_BOUNDS = 200
AT_ONCE = 10  # designs added before the others are compared again
BLOCK = 256  # designs evaluated at once, which bounds the memory


def foremost_pending(
    acqf: AcquisitionFunction, X_pending: Tensor, most: int = MOST_PENDING, designs: Tensor | None = None
) -> Tensor:
    """Return the rows of the pending designs that an acquisition function has to know, ``k`` with k <= ``most``.

    Noisy improvement samples f at all pending designs with every candidate, which takes seconds and gigabytes from
    some hundreds on. A pending design matters where the next one would be chosen: so these are the designs of the
    largest acquisition values, ten at a time, each time given those before. They become its ``X_pending``.

    Args:
        acqf: Acquisition function of one design, such as ``qLogNoisyExpectedImprovement``.
        X_pending: ``m x d`` designs under way.
        most: Largest number of rows. An upper confidence bound needs more of them than noisy improvement, as it is
            large wherever little is known.
        designs: ``m x d'`` what the acquisition function is evaluated at, if it is not ``X_pending``.
    """
    designs = X_pending if designs is None else designs
    rows, left = X_pending.new_empty(0, dtype=torch.long), torch.arange(len(X_pending), device=X_pending.device)
    while len(left) and len(rows) < most:
        acqf.set_X_pending(X_pending[rows] if len(rows) else None)
        with torch.no_grad():
            value = torch.cat([acqf(X) for X in designs[left].unsqueeze(-2).split(BLOCK)])
        order = value.argsort(descending=True, stable=True)
        taken = min(AT_ONCE, most - len(rows))
        rows, left = torch.cat([rows, left[order[:taken]]]), left[order[taken:]]
    acqf.set_X_pending(X_pending[rows] if len(rows) else None)
    return rows
