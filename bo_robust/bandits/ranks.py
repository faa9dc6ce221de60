"""Several processes that choose together: every rank offers its best arm, and all learn which is the best of all.

An offer is a row of float64 numbers: the upper confidence bound, the threshold, the arm's number in the stream, and its
location. No arm that the rank did not look at has a larger bound than the threshold.
"""

from collections.abc import Callable

import torch
import torch.distributed
from torch import Tensor


def no_offer(dim: int, template: Tensor) -> Tensor:
    """The row of a rank that has no arm to offer, ``3 + dim`` numbers on the device of ``template``."""
    row = template.new_zeros(3 + dim, dtype=torch.float64)
    row[:2] = -torch.inf
    return row


def best_of_ranks(
    offer: Callable[[], Tensor], dim: int, template: Tensor, group: torch.distributed.ProcessGroup | None
) -> Tensor:
    """The offer of largest bound of all ranks (ties go to the first arm), with the largest threshold of any rank.

    If ``offer``, which computes that of this rank, fails on one rank, all ranks fail. ``dim`` is d, ``template`` is a
    tensor on the device to communicate from, and ``group`` is None for a single process.

    Raises:
        ValueError: if no rank has an arm.
        RuntimeError: if another rank failed or cannot be reached.
    """
    try:
        row = offer()
    except Exception:
        if group is not None:  # the others wait for this rank
            gathered(None, 3 + dim, template, group)
        raise
    rows = gathered(row, 3 + dim, template, group)
    best = rows[rows[:, 0] == rows[:, 0].max()]
    best = best[best[:, 2].argmin()].clone()
    best[1] = rows[:, 1].max()
    # An infinite threshold is no lack of arms: some rank has no shortlist and has to pass over its arms first.
    if best[0] == -torch.inf and best[1] < torch.inf:
        raise ValueError("there are no arms to choose from.")
    return best


def gathered(row: Tensor | None, width: int, template: Tensor, group: torch.distributed.ProcessGroup | None) -> Tensor:
    """The rows of all ranks, ``ranks x width`` float64; without a group the one row of this process.

    A rank that failed hands in None, and every other rank then raises ``RuntimeError``. So does a rank that cannot
    reach the others.
    """
    # The first number of what is sent says whether this rank failed; the row follows.
    mine = torch.full((width + 1,), torch.nan, dtype=torch.float64, device=template.device)
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
    """The ``values`` of the first rank, on every rank; ``RuntimeError`` if the first rank cannot be reached."""
    if group is not None:
        # broadcast writes to its argument.
        values = values.clone()
        _together(lambda: torch.distributed.broadcast(values, group_src=0, group=group), group)
    return values


def _together(work: Callable[[], object], group: torch.distributed.ProcessGroup) -> None:
    try:
        work()
    except RuntimeError as error:
        raise RuntimeError(
            f"rank {group.rank()} of {group.size()} stops: another rank ended or did not answer within the timeout of "
            f"the process group. Restart all ranks, from a saved state. ({error})"
        ) from error
