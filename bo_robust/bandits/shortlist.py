"""The few arms that can be the argmax of an upper confidence bound while variances only fall.

Within a batch of BBKB, means stay and variances shrink, so that a bound computed earlier is at least the present one.
The shortlist keeps the arms of largest such bounds, and follows their variances pull by pull. Its first two entries
bound all other arms from above. The first is their largest bound when the list was made; the second grows with the
width at the rate of their largest standard deviation. If the largest bound of all entries belongs to a listed arm, no
other arm can be the argmax. So the choice is exact, at a cost that does not depend on n.

Axes: ``s`` trials, ``n`` arms, ``K`` entries: OUTSIDE for other arms, then the arms listed.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

SHORTLIST_SIZE = 1024  # Arms listed, by default
OUTSIDE = 2  # Entries that stand for all other arms
COSTS = 3  # Columns of :func:`.posteriors.dtc.costs_of`; its last one is the variance at the start of the batch


@dataclass
class Shortlist:
    """The arms of s trials whose bound can be the largest, in ascending order."""

    arms: Tensor  # `s x K` long
    mean: Tensor  # Posterior means, `s x K`; the first is infinite if the trial has no shortlist
    variance: Tensor  # Present posterior variances, `s x K`
    # Costs and features of every arm (:mod:`.posteriors.dtc`), `s x K x (3 + r)` or wider. The variance at the start of
    # the batch is infinite for entries of other arms, so that no batch goes on with them.
    pulls: Tensor

    def lower(self, h: Tensor, t: Tensor) -> None:
        """Lower all variances by a pull, as :func:`.posteriors.dtc.downdate` says it."""
        along = (self.pulls[..., COSTS : COSTS + h.shape[1]] @ h).squeeze(2)
        self.variance.addcmul_(along, along / t.squeeze(2), value=-1.0).clamp_(min=0.0)

    def forget(self, trials: Tensor, rank: int) -> None:
        """Void the shortlists of these ``trials``, because a batch ended; the others hold ``rank`` features."""
        self.mean[trials, 0] = torch.inf
        self.pulls = _wider(self.pulls, COSTS + rank)

    def put(self, trials: Tensor, shortlist: Shortlist) -> None:
        """Replace the shortlists of some trials."""
        self.pulls = _wider(self.pulls, shortlist.pulls.shape[2])
        shortlist.pulls = _wider(shortlist.pulls, self.pulls.shape[2])
        for name, x in vars(self).items():
            x[trials] = getattr(shortlist, name)


def _wider(pulls: Tensor, width: int) -> Tensor:
    return torch.nn.functional.pad(pulls, (0, width - pulls.shape[2])) if pulls.shape[2] < width else pulls


def empty_shortlist(template: Tensor, size: int) -> Shortlist:
    """Void shortlists of ``size`` arms: one per entry of ``template`` (``s``), of its dtype and device."""
    empty = template.new_zeros(len(template), size)
    nothing = torch.full_like(template, torch.inf)
    return shortlist_of(
        empty.long(), empty, empty, empty.unsqueeze(2).expand(-1, -1, COSTS), nothing, template * 0, template
    )


def shortlist_of(
    arms: Tensor, mean: Tensor, variance: Tensor, pulls: Tensor, outside: Tensor, outside_sd: Tensor, width: Tensor
) -> Shortlist:
    """The shortlist of some arms, in ascending order, all ``s x f``; ``pulls`` has their costs and features.

    Of all other arms ``outside`` is the largest bound at ``width``, and ``outside_sd`` the largest standard deviation,
    ``s`` each. Without other arms they are -inf and 0.
    """
    pad = torch.nn.functional.pad
    bounds = torch.stack([outside, outside - width * outside_sd], 1)
    pulls = pad(pulls, (0, 0, OUTSIDE, 0))
    pulls[:, :OUTSIDE, COSTS - 1] = torch.inf
    return Shortlist(
        arms=pad(arms, (OUTSIDE, 0)),
        mean=torch.cat([bounds, mean], 1),
        variance=torch.cat([torch.zeros_like(bounds[:, :1]), outside_sd.square().unsqueeze(1), variance], 1),
        pulls=pulls,
    )


def largest_bounds(mean: Tensor, variance: Tensor, width: Tensor, size: int) -> tuple[Tensor, Tensor, Tensor]:
    """The ``size`` arms of largest mean + width sqrt(variance), in ascending order, ``s x size`` long.

    ``mean`` and ``variance`` are those of every arm, ``s x n``; ``width`` is ``s``. Also returns ``outside`` and
    ``outside_sd`` of :func:`shortlist_of`.
    """
    sd = variance.sqrt()
    bound = torch.addcmul(mean, sd, width.unsqueeze(1))
    n = bound.shape[1]
    if n <= size:
        arms = torch.arange(n, device=bound.device).expand_as(bound)
        return arms, torch.full_like(width, -torch.inf), torch.zeros_like(width)
    values, arms = bound.topk(size + 1, sorted=True)
    arms = arms[:, :-1].sort(dim=1).values
    return arms, values[:, -1], sd.scatter_(1, arms, 0.0).amax(1)  # listed arms do not count
