"""Several processes that choose together: every rank hands in its best arm, and all learn of the best of all."""

from __future__ import annotations

import torch
import torch.distributed
from torch import Tensor

__all__ = ["from_first", "gathered"]


def gathered(row: Tensor | None, width: int, like: Tensor, group: torch.distributed.ProcessGroup | None) -> Tensor:
    """A row of ``width`` numbers of every rank, ``ranks x width``; of this process alone without a group.

    Args:
        row: Of this rank, float64; None if it failed.
        width: Its length.
        like: A tensor on the device to communicate from.
        group: Of ``torch.distributed``; None for a single process.

    Raises:
        RuntimeError: on every rank, if any failed or cannot be reached.
    """
    mine = torch.full((width + 1,), torch.nan, dtype=torch.float64, device=like.device)
    mine[0] = float(row is None)
    if row is not None:
        mine[1:] = row
    if group is None:
        return mine[1:].unsqueeze(0)
    everyone = [torch.empty_like(mine) for _ in range(group.size())]
    _together(lambda: torch.distributed.all_gather(everyone, mine, group=group), group)
    table = torch.stack(everyone)
    failed = table[:, 0].nonzero().squeeze(1).tolist()
    if failed and row is not None:
        raise RuntimeError(f"rank {group.rank()} stops: rank(s) {failed} failed, see their error. Restart all ranks.")
    return table[:, 1:]


def from_first(values: Tensor, group: torch.distributed.ProcessGroup | None) -> Tensor:
    """``values`` of the first rank, on every rank.

    Raises:
        RuntimeError: if the first rank cannot be reached.
    """
    if group is not None:
        values = values.clone()
        _together(lambda: torch.distributed.broadcast(values, group_src=0, group=group), group)
    return values


def _together(work, group: torch.distributed.ProcessGroup) -> None:  # type: ignore[no-untyped-def]
    try:
        work()
    except RuntimeError as error:
        raise RuntimeError(
            f"rank {group.rank()} of {group.size()} stops: another rank ended or did not answer within the timeout of "
            f"the process group. Restart all ranks, from a saved state. ({error})"
        ) from error
