"""The few arms that can be the argmax of an upper confidence bound while variances only fall.

Within a batch of BBKB, means stay and variances shrink. So a bound that was computed earlier in the batch is at least
the present one. The shortlist keeps the arms of largest such bounds, and one number, the largest bound of all others.
As long as the refreshed bound of the best arm listed is above that number, no other arm can be the argmax. The choice
is exact, at a cost that does not depend on n.

Axes: ``s`` trials, ``n`` arms, ``K`` arms listed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from bo_robust.features.leverage import padded
from bo_robust.utils.linalg import row_argmax

SHORTLIST_SIZE = 1024
"""Arms listed, by default."""


@dataclass
class Shortlist:
    """The arms of s trials whose bound can be the largest."""

    arms: Tensor  # In ascending order, `s x K` long
    mean: Tensor  # Posterior means, `s x K`
    variance: Tensor  # Posterior variances when last computed, `s x K`
    # Largest bound of any other arm, at `width`, `s`; -inf if every arm is listed, inf if the trial has no shortlist
    outside: Tensor
    outside_sd: Tensor  # Largest standard deviation of any other arm, `s`
    width: Tensor  # Confidence width that `outside` was computed with, `s`

    def threshold(self, width: Tensor) -> Tensor:
        """A number that no unlisted arm's bound exceeds at ``width`` (``s``), ``s``."""
        return self.outside + (width - self.width).clamp(min=0.0) * self.outside_sd

    def best(self, width: Tensor) -> tuple[Tensor, Tensor]:
        """The arm of largest bound by the variances as they are, and whether that is above every unlisted arm's."""
        bound, place = torch.addcmul(self.mean, self.variance.sqrt(), width.unsqueeze(1)).max(1, keepdim=True)
        return self.arms.gather(1, place).squeeze(1), bound.squeeze(1) > self.threshold(width)

    def forget(self, trials: Tensor) -> None:
        """Void the shortlists of these ``trials``, because a batch ended."""
        self.outside[trials] = torch.inf

    @property
    def valid(self) -> Tensor:
        """Whether a trial has a shortlist, ``s`` bool."""
        return self.outside < torch.inf

    def take(self, trials: Tensor) -> Shortlist:
        """Copy the shortlists of some trials."""
        return Shortlist(**{name: x[trials] for name, x in vars(self).items()})

    def put(self, trials: Tensor, shortlist: Shortlist) -> None:
        """Replace the shortlists of some trials."""
        for name, x in vars(self).items():
            x[trials] = getattr(shortlist, name)


def check_batch_constant(c: float) -> None:
    """Raise ``ValueError`` unless BBKB's c, the sum of variances a batch may spend, is a finite number >= 0."""
    if not 0.0 <= c < math.inf:
        raise ValueError(f"batch_constant must be a finite number >= 0, got {c!r}.")


def empty_shortlist(like: Tensor, size: int) -> Shortlist:
    """Void shortlists of ``size`` arms: one per entry of ``like`` (``s``), of its dtype and device."""
    empty, zero = like.new_zeros(len(like), size), torch.zeros_like(like)
    return Shortlist(empty.long(), empty, empty.clone(), torch.full_like(like, torch.inf), zero, zero.clone())


def largest_bounds(mean: Tensor, variance: Tensor, width: Tensor, size: int) -> Shortlist:
    """The shortlist of the ``size`` arms of largest mean + width sqrt(variance).

    ``mean`` and ``variance`` are those of every arm, ``s x n``; ``width`` is ``s``.
    """
    sd = variance.sqrt()
    bound = torch.addcmul(mean, sd, width.unsqueeze(1))
    n = bound.shape[1]
    if n <= size:
        arms = torch.arange(n, device=bound.device).expand_as(bound)
        outside, outside_sd = torch.full_like(width, -torch.inf), torch.zeros_like(width)
    else:
        values, arms = bound.topk(size + 1, sorted=True)
        outside, arms = values[:, -1], arms[:, :-1].sort(dim=1).values
        # Listed arms do not count.
        outside_sd = sd.scatter_(1, arms, 0.0).amax(1)
    return Shortlist(arms, mean.gather(1, arms), variance.gather(1, arms), outside, outside_sd, width)


def best_of(
    shortlist: Shortlist, width: Tensor, variance_of: Callable[[Tensor], Tensor]
) -> tuple[Tensor, Tensor, Tensor]:
    """The listed arm of largest bound, ties to the first, after an update of the variances that matter, in place.

    ``variance_of`` computes the present variances of arms ``s x f``; ``width`` is ``s``.

    Returns:
        The arm's place in the shortlist (``s`` long), its bound (``s``), and whether that is above the bound of every
        arm outside (``s`` bool).
    """

    def refresh(places: Tensor) -> Tensor:
        known = shortlist.variance.gather(1, places)
        variance = torch.minimum(variance_of(shortlist.arms.gather(1, places)), known)
        shortlist.variance.scatter_(1, places, variance)
        return torch.addcmul(shortlist.mean.gather(1, places), variance.sqrt(), width.unsqueeze(1))

    bound = torch.addcmul(shortlist.mean, shortlist.variance.sqrt(), width.unsqueeze(1))
    best = refresh(row_argmax(bound).unsqueeze(1))
    places, mask = padded(bound >= best)  # the refreshed arm is among them: its bound did not rise
    bounds = torch.where(mask, refresh(places), -torch.inf)
    first = row_argmax(bounds).unsqueeze(1)
    best = bounds.gather(1, first).squeeze(1)
    return places.gather(1, first).squeeze(1), best, best > shortlist.threshold(width)
