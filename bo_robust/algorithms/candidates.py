"""The arms that can be the argmax of an upper confidence bound while variances only fall.

Within a batch of BBKB means stay and variances shrink, so an arm's bound at the start of it, or last computed, is an
upper bound of the present one. The arms of largest such bounds are kept as candidates, with one number for all others:
as long as the refreshed bound of the best candidate is above it, no other arm can be the argmax, and the choice is
exact at a cost that does not depend on n.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from bo_robust.features.leverage import padded
from bo_robust.linalg import row_argmax

__all__ = ["CANDIDATES", "Candidates", "check_batch_constant", "choose", "none_yet", "of_bounds"]

# Arms kept as candidates of a batch, by default.
CANDIDATES = 1024


@dataclass
class Candidates:
    """The candidates of s trials.

    Attributes:
        arms: In ascending order, ``s x K`` long.
        mean: ``s x K``.
        variance: Last computed, ``s x K``.
        outside: Largest bound of any other arm, at ``width``, ``s``; -inf where there is none.
        outside_sd: Largest standard deviation of any other arm, ``s``.
        width: ``s``.
    """

    arms: Tensor
    mean: Tensor
    variance: Tensor
    outside: Tensor
    outside_sd: Tensor
    width: Tensor

    def threshold(self, width: Tensor) -> Tensor:
        """No arm but the candidates has a bound above this at ``width`` (``s``)."""
        return self.outside + (width - self.width).clamp(min=0.0) * self.outside_sd

    def forget(self, trials: Tensor) -> None:
        """A batch of these ``trials`` ended: their candidates are no longer any."""
        self.outside[trials] = torch.inf

    @property
    def valid(self) -> Tensor:
        """Which trials have candidates, ``s`` bool."""
        return self.outside < torch.inf

    def of(self, trials: Tensor) -> Candidates:
        """Those of some trials, copied."""
        return Candidates(**{name: x[trials] for name, x in vars(self).items()})

    def put(self, trials: Tensor, candidates: Candidates) -> None:
        """Replace those of some trials."""
        for name, x in vars(self).items():
            x[trials] = getattr(candidates, name)


def check_batch_constant(c: float) -> None:
    """Raise ``ValueError`` unless BBKB's c, the sum of variances a batch may spend, is a finite number >= 0."""
    if not 0.0 <= c < math.inf:
        raise ValueError(f"batch_constant must be a finite number >= 0, got {c!r}.")


def none_yet(like: Tensor, most: int) -> Candidates:
    """Room for ``most`` candidates of every trial of ``like`` (``s``)."""
    room, zero = like.new_zeros(len(like), most), torch.zeros_like(like)
    return Candidates(room.long(), room, room.clone(), torch.full_like(like, torch.inf), zero, zero.clone())


def of_bounds(mean: Tensor, variance: Tensor, width: Tensor, most: int) -> Candidates:
    """The ``most`` arms of largest mean + width sqrt(variance), of all arms of some trials (``s x n`` each, ``s``)."""
    sd = variance.sqrt()
    bound = torch.addcmul(mean, sd, width.unsqueeze(1))
    n = bound.shape[1]
    if n <= most:
        arms = torch.arange(n, device=bound.device).expand_as(bound)
        outside, outside_sd = torch.full_like(width, -torch.inf), torch.zeros_like(width)
    else:
        values, arms = bound.topk(most + 1, sorted=True)
        outside, arms = values[:, -1], arms[:, :-1].sort(dim=1).values
        outside_sd = sd.scatter_(1, arms, 0.0).amax(1)
    return Candidates(arms, mean.gather(1, arms), variance.gather(1, arms), outside, outside_sd, width)


def choose(
    candidates: Candidates, width: Tensor, variance_of: Callable[[Tensor], Tensor]
) -> tuple[Tensor, Tensor, Tensor]:
    """The candidate of largest bound, first of equals, with variances brought up to date where they matter.

    Args:
        candidates: Their variances are changed in place.
        width: ``s``.
        variance_of: Present variances of ``s x f`` arms.

    Returns:
        Its place among the candidates (``s``, long), its bound, and whether no other arm can reach it (``s`` bool).
    """

    def refresh(places: Tensor) -> Tensor:
        known = candidates.variance.gather(1, places)
        variance = torch.minimum(variance_of(candidates.arms.gather(1, places)), known)
        candidates.variance.scatter_(1, places, variance)
        return torch.addcmul(candidates.mean.gather(1, places), variance.sqrt(), width.unsqueeze(1))

    bound = torch.addcmul(candidates.mean, candidates.variance.sqrt(), width.unsqueeze(1))
    best = refresh(row_argmax(bound).unsqueeze(1))
    places, mask = padded(bound >= best)  # the refreshed one among them: its bound did not rise
    bounds = torch.where(mask, refresh(places), -torch.inf)
    first = row_argmax(bounds).unsqueeze(1)
    best = bounds.gather(1, first).squeeze(1)
    return places.gather(1, first).squeeze(1), best, best > candidates.threshold(width)
