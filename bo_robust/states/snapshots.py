"""Save an :class:`~bo_robust.states.arms.ArmPosterior` as plain tensors and go on from it, bit for bit.

Only what is in use is saved. Prior covariance rows are not: they are evaluated again from the kernel. (A GPyTorch
kernel too large to tabulate may round differently when evaluated for one arm or for several; then the continuation
agrees to rounding only.)
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from bo_robust.states.arms import ArmPosterior, zeros_like_shape

__all__ = ["restore_", "snapshot"]

WHOLE = ("mean", "variance", "counts", "information_gain", "slots", "filled", "block_filled", "root_ready")


def snapshot(posterior: ArmPosterior) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors (views of the state: save or clone them before the next round) and JSON-able numbers.

    The scratch is forgotten, so that the state goes on exactly as its restored copy does.
    """
    posterior.scratch.clear()
    b = posterior.buffers
    m = b.num_rows
    tensors = {name: getattr(b, name) for name in WHOLE}
    tensors["pending"] = b.pending[:, : b.num_pending]
    if b.dense:
        tensors["rows"] = b.rows
    else:
        tensors |= {
            "row_arm": b.row_arm[:, :m],
            "row_counts": b.row_counts[:, :m],
            "root": b.root[:, :m, :m],
        }
    numbers = {
        "num_pending": b.num_pending,
        "num_rows": m,
        "row_budget": posterior.row_budget,
        "row_capacity": b.rows.shape[1],
        "block": b.pending.shape[1],
    }
    return tensors, numbers


def restore_(posterior: ArmPosterior, tensors: dict[str, Tensor], numbers: dict[str, Any]) -> None:
    """Put a snapshot into a posterior fresh from :func:`bo_robust.states.arms.init` with the same arguments."""
    b = posterior.buffers
    trials, n = b.mean.shape
    m, capacity = numbers["num_rows"], numbers["row_capacity"]
    for name in WHOLE:
        getattr(b, name).copy_(tensors[name])
    b.pending = zeros_like_shape((trials, numbers["block"], n), b.mean)
    b.pending[:, : numbers["num_pending"]] = tensors["pending"].to(b.mean)
    if b.dense:
        b.rows.copy_(tensors["rows"])
    else:
        b.rows = zeros_like_shape((trials, capacity, n), b.mean)
        b.row_counts = zeros_like_shape((trials, capacity), b.mean)
        b.root = zeros_like_shape((trials, capacity, capacity), b.mean)
        b.row_arm = torch.zeros(trials, capacity, dtype=torch.long, device=b.mean.device)
        b.row_arm[:, :m] = tensors["row_arm"].to(b.row_arm)
        b.row_counts[:, :m] = tensors["row_counts"].to(b.mean)
        b.root[:, :m, :m] = tensors["root"].to(b.mean)
        for i, filled in enumerate(b.filled.tolist()):
            trial = torch.tensor([i], device=b.mean.device)
            for j in range(filled):
                b.rows[i, j] = posterior.kernel.rows(b.row_arm[i, j : j + 1], trial)[0]
    b.num_pending, b.num_rows, posterior.row_budget = numbers["num_pending"], m, numbers["row_budget"]
    posterior.scratch.clear()
