"""Rewards of every arm in sorted lists: a binary search gives the sum of the rewards below any threshold.

ATA-GP-UCB truncates all past rewards anew each round. For direction i and arm a with weight u = u_ia, it needs the sum
of the rewards of the arm with |u y| <= b_t. Rewards sorted by |y| with prefix sums give it in O(log).

Few rewards need to be kept. The rows of U = R Phi^T have norm at most 1 for every root R of V^{-1}, and an arm pulled c
times has c equal entries in each, so |u_ia| <= 1 / sqrt(c). A reward with |y| <= b_t sqrt(c) is therefore below every
threshold, and stays so while no level is below b_t. Such a reward is SETTLED: added to a plain sum and forgotten. Where
levels may fall, with a dictionary that grows, b_t is a floor of the levels to come.

At the level of Lemma 1, at most L = log(2 m T / delta) rewards per arm are left on average, whatever t is: by Markov's
inequality a share v / (b sqrt(c))^{1+alpha} of c rewards exceeds b sqrt(c), which is c^{(1-alpha)/2}
L / t^{(1-alpha)/2} <= L rewards. So a round costs the same at t = 20,000 as at t = 500. With a level far too small for
the rewards the lists grow, still correct.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

# Entries of every list at first, a power of two; doubled when one may be full.
FIRST_CAPACITY = 16
# A reward counts as settled this little below its threshold: u is known to about 1e-6 only.
SETTLED_MARGIN = 1.0 - 1e-5


@dataclass
class RewardLists:
    """Sums and sorted lists of rewards, of n arms in s trials; :func:`insert` updates them in place.

    C is the capacity of the lists.
    """

    counts: Tensor  # Number of rewards, `s x n`
    settled: Tensor  # Sum of the settled rewards, `s x n`
    total: Tensor  # `settled` plus all listed rewards, `s x n`
    largest: Tensor  # Largest |reward| listed, `s x n`; zero where the list is empty
    size: Tensor  # Length of the list, `s x n` long
    values: Tensor  # Listed rewards by ascending |reward|, `s x n x C`, +inf beyond the list
    spare: int = FIRST_CAPACITY - 1  # Rounds until the lengths must be looked at
    floor: float = 0.0  # of all levels from the last round on

    def truncated_sums(self, weights: Tensor, level: Tensor, clip: bool, pairs: tuple[Tensor, Tensor]) -> Tensor:
        """Sums of u y 1{|u y| <= b} over the rewards of f pairs (trial, arm), ``f x p``.

        Settled rewards are included. ``weights`` has p weights u per pair, ``f x p``; ``level`` is b > 0, ``f``;
        ``pairs`` are trials and arms, ``f`` long each. With ``clip``, every reward beyond the level adds b sign(u y).
        """
        values, size = self.values[pairs], self.size[pairs]
        magnitude, prefix = _prefix(values, size)
        level = level.unsqueeze(1)
        kept = _count_kept(weights.abs(), magnitude, level)
        sums = (prefix.gather(1, kept) + self.settled[pairs].unsqueeze(1)) * weights
        if clip:
            signs = _prefix(values.sign(), size)[1]
            most = level.clamp(max=torch.finfo(sums.dtype).max)  # an infinite level times nothing is nothing
            sums += most * weights.sign() * (signs[:, -1:] - signs.gather(1, kept))
        return sums


def init(like: Tensor) -> RewardLists:
    """No rewards of s trials and n arms, in the shape, dtype and device of ``like`` (``s x n``)."""
    zeros = torch.zeros_like(like)
    return RewardLists(
        counts=zeros,
        settled=zeros.clone(),
        total=zeros.clone(),
        largest=zeros.clone(),
        size=zeros.long(),
        values=like.new_full((*like.shape, FIRST_CAPACITY), torch.inf),
    )


def insert(lists: RewardLists, arms: Tensor, rewards: Tensor, ok: Tensor, floor: float) -> None:
    """Add one reward per trial, in place, and settle what no truncation can touch any more.

    ``arms`` and ``rewards`` are ``s``. Only trials that are ``ok`` (``s`` bool) change; their rewards are finite.
    No level from this round on is below the ``floor`` > 0. Raises ``ValueError`` if it falls: what is settled could
    then be needed again.
    """
    if floor < lists.floor:
        raise ValueError(
            f"the truncation level fell from {lists.floor:.6g} to {floor:.6g}; ATA needs levels that never fall with t."
        )
    lists.floor = floor
    if lists.spare == 0:
        _make_room(lists)
    lists.spare -= 1
    trials = torch.arange(arms.shape[0], device=arms.device)
    value = torch.where(ok, rewards, 0.0)
    lists.counts[trials, arms] += ok.to(value)
    old, size = lists.values[trials, arms], lists.size[trials, arms]

    place = (old.abs() <= value.abs().unsqueeze(1)).sum(1, keepdim=True)  # after its equals
    slots = torch.arange(old.shape[1], device=old.device)
    # The last slot is always +inf, see _make_room: the shift loses nothing.
    shifted = torch.where(slots < place, old, old.roll(1, 1))
    new = torch.where(slots == place, value.unsqueeze(1), shifted)
    new, size = torch.where(ok.unsqueeze(1), new, old), size + ok

    magnitude, prefix = _prefix(new, size)
    threshold = floor * lists.counts[trials, arms].sqrt() * SETTLED_MARGIN
    done = torch.minimum((magnitude <= threshold.unsqueeze(1)).sum(1), size)
    settled = lists.settled[trials, arms] + prefix.gather(1, done.unsqueeze(1)).squeeze(1)
    from_slot = slots + done.unsqueeze(1)
    rest = new.gather(1, from_slot.clamp(max=old.shape[1] - 1))
    rest = torch.where(from_slot < size.unsqueeze(1), rest, torch.inf)
    size = size - done

    magnitude, prefix = _prefix(rest, size)
    last = (size - 1).clamp(min=0).unsqueeze(1)
    lists.settled[trials, arms] = settled
    lists.total[trials, arms] = settled + prefix[:, -1]
    lists.largest[trials, arms] = torch.where(size > 0, magnitude.gather(1, last).squeeze(1), 0.0)
    lists.values[trials, arms] = rest
    lists.size[trials, arms] = size


def _count_kept(weights: Tensor, magnitude: Tensor, level: Tensor) -> Tensor:
    """How many of the ascending magnitudes (``f x C``, C a power of two, the last +inf) have w |y| <= b, ``f x p``.

    The binary search compares the rounded product itself, which rises with |y|. So it is exact where |u y| meets b.
    """
    low = torch.zeros_like(weights, dtype=torch.long)
    step = magnitude.shape[1] // 2
    while step:
        fits = magnitude.gather(1, low + (step - 1)).mul_(weights) <= level
        low.add_(fits, alpha=step)
        step //= 2
    return low


def _prefix(values: Tensor, size: Tensor) -> tuple[Tensor, Tensor]:
    """|values| and the sums of the first 0, 1, ..., C of them (``f x (C + 1)``)."""
    listed = torch.arange(values.shape[1], device=values.device) < size.unsqueeze(1)
    sums = torch.cumsum(torch.where(listed, values, 0.0), 1)
    return values.abs(), torch.cat([torch.zeros_like(sums[:, :1]), sums], 1)


def _make_room(lists: RewardLists) -> None:
    """Double the lists when the longest is more than half full, and set the number of rounds until the next look.

    One slot stays empty: its +inf ends every search.
    """
    capacity = lists.values.shape[2]
    longest = int(lists.size.max())
    if 2 * longest > capacity:
        more = torch.full_like(lists.values, torch.inf)
        lists.values = torch.cat([lists.values, more], 2)
        capacity *= 2
    lists.spare = capacity - 1 - longest
