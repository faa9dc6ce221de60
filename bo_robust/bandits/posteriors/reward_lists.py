"""Rewards of every arm in sorted lists: a binary search gives the sum of the rewards below any threshold.

ATA-GP-UCB truncates all past rewards anew each round. For direction i and arm a with weight u = u_ia, it needs the sum
of the rewards of the arm with |u y| <= b_t. Rewards sorted by |y| with prefix sums give it in O(log).

Few rewards need to be kept. The rows of U = R Phi^T have norm at most 1 for every root R of V^{-1}, and an arm pulled c
times has c equal entries in each, so |u_ia| <= 1 / sqrt(c). A reward with |y| <= b_t sqrt(c) is therefore below every
threshold, and stays so while no level is below b_t. Such a reward is SETTLED: added to a plain sum and forgotten. Where
levels may fall, with a dictionary that grows, b_t is a floor of the levels to come.

At the level of Lemma 1, at most L = log(2 m T / delta) rewards per arm are left on average, whatever t is: by Markov's
inequality at most a share v / (b sqrt(c))^{1+alpha} of c rewards exceeds b sqrt(c), that is
c^{(1-alpha)/2} L / t^{(1-alpha)/2} <= L rewards. So a round costs the same at t = 20,000 as at t = 500. With a level
far too small for the rewards the lists grow, still correct.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from bo_robust.confidence.base import Number
from bo_robust.confidence.truncation import RULES

FIRST_CAPACITY = 16  # Entries of every list at first; doubled when one may be full
# A reward counts as settled this little below its threshold: u is rounded.
SETTLED_MARGIN = 1.0 - 1e-5


@dataclass
class RewardLists:
    """Sums and sorted lists of rewards, of n arms in s trials; :func:`insert` updates them in place.

    C is the capacity of the lists.
    """

    # Of every arm the sum of its settled rewards, then zeros, then the listed rewards by ascending |reward|,
    # `s x n x (1 + C)`: cumulative sums are those of the smallest. A zero is an empty slot, as zero settles at once.
    table: Tensor
    spare: int = FIRST_CAPACITY  # Rounds until the lengths must be looked at
    floor: float = 0.0  # of all levels from the last round on

    @property
    def values(self) -> Tensor:
        """Listed rewards by ascending |reward|, behind zeros, ``s x n x C``."""
        return self.table[:, :, 1:]

    @property
    def size(self) -> Tensor:
        """Length of the list, ``s x n`` long."""
        return self.values.count_nonzero(2)

    @property
    def total(self) -> Tensor:
        """Sum of all rewards, ``s x n``."""
        return self.table.sum(2)

    @property
    def largest(self) -> Tensor:
        """Largest |reward| listed, ``s x n``; zero where the list is empty."""
        return self.table[:, :, -1].abs()

    def truncated_sums(
        self, weights: Tensor, level: Tensor, rule: str, pairs: tuple[Tensor, Tensor] | None = None
    ) -> Tensor:
        """Sums of the truncated u y over the rewards of f pairs (trial, arm), ``f x p``.

        Settled rewards are included. ``weights`` has p weights u per pair, ``f x p``; ``level`` is b > 0, ``f``;
        ``pairs`` are trials and arms, ``f`` long each. Without them all arms are meant: f is ``s x n``, and ``level``
        broadcasts with that. By its ``rule`` (:data:`~bo_robust.confidence.truncation.RULES`) every reward with
        |u y| > b adds c b sign(u y).
        """
        table = self.table if pairs is None else self.table[pairs]
        level = level.unsqueeze(-1)
        # How many have |y| <= b / |u|, by binary search. Where u is zero that is infinite, and empty slots count too.
        bounds = (level / weights.abs()).contiguous()
        kept = torch.searchsorted(table[..., 1:].abs(), bounds, right=True)
        sums = table.cumsum(-1).gather(-1, kept).mul_(weights)
        if share := RULES[rule]:
            signs = table.sign().cumsum_(-1)
            most = share * level.clamp(max=torch.finfo(sums.dtype).max)  # an infinite level times nothing is nothing
            sums += most * weights.sign() * (signs[..., -1:] - signs.gather(-1, kept))
        return sums


def init(template: Tensor) -> RewardLists:
    """No rewards of s trials and n arms, in the shape, dtype and device of ``template`` (``s x n``)."""
    return RewardLists(template.new_zeros(*template.shape, 1 + FIRST_CAPACITY))


def raise_floor(lists: RewardLists, floor: float) -> float:
    """Say that no level from now on is below ``floor`` > 0, and return it.

    Raises ``ValueError`` if it falls: what is settled could then be needed again.
    """
    if floor < lists.floor:
        raise ValueError(
            f"the truncation level fell from {lists.floor:.6g} to {floor:.6g}; ATA needs levels that never fall with t."
        )
    lists.floor = floor
    return floor


def insert(lists: RewardLists, arms: Tensor, rewards: Tensor, counts: Tensor, floor: Number) -> None:
    """Add one reward per trial, in place, and settle what no truncation can touch any more.

    ``arms`` and ``rewards`` are ``s``, finite; a reward of zero changes no sum, as a failed pull must not. ``counts``
    are those of the arms, ``s``, this reward included. ``floor`` is that of :func:`raise_floor`, or ``s`` times it.
    """
    if lists.spare == 0:
        make_room(lists)
    lists.spare -= 1
    at = arms.view(-1, 1, 1).expand(-1, 1, lists.table.shape[2])
    row = lists.table.gather(1, at).squeeze(1)
    row[:, 1] = rewards  # an empty slot, see make_room
    size = row.abs()
    size[:, :1].fill_(-1.0)  # the settled sum stays first
    size, order = size.sort(1)
    row = row.gather(1, order)
    threshold = counts.sqrt().mul_(floor * SETTLED_MARGIN).unsqueeze(1)
    settled = row * (size <= threshold)
    row -= settled
    torch.sum(settled, 1, out=row[:, 0])
    lists.table.scatter_(1, at, row.unsqueeze(1))


def make_room(lists: RewardLists, rounds: int = 1) -> None:
    """See that the lists have room for so many more rewards, in place; looking at their lengths waits for a GPU.

    They double when the longest is more than half full.
    """
    capacity = lists.values.shape[2]
    longest = int(lists.size.max())
    while 2 * longest > capacity or capacity - longest < rounds:
        lists.table = torch.cat([lists.table[:, :, :1], torch.zeros_like(lists.values), lists.values], 2)
        capacity *= 2
    lists.spare = capacity - longest
