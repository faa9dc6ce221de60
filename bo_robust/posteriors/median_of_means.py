"""Median of means in feature space, over n arms: a robust mean without a truncation level.

Ray Chowdhury & Gopalan 2019 name it as future work (section 7). The rewards of every arm are dealt out in turn to g
groups. Group j estimates the sums of ridge regression without bias, r_ij = sum_a u_ia c_a ybar_aj, where ybar_aj is its
mean reward of arm a. A group that has no reward of an arm yet takes the arm's mean over all groups. r_i is the median
of r_i1 .. r_ig, and the mean is Y^T B^T r (``whitening``). With one group it is ridge regression.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from bo_robust.linalg import all_numbers
from bo_robust.posteriors import whitening
from bo_robust.posteriors.arms import check_pulls
from bo_robust.posteriors.whitening import FeatureTable, WhitenedPosterior
from bo_robust.validation import check_count


@dataclass
class MedianPosterior(WhitenedPosterior):
    """Ridge regression on features of n arms with medians of group sums; :func:`observe` updates it in place."""

    sums: Tensor  # Sum of the rewards per arm and group, `s x n x g`
    pulls: Tensor  # Number of rewards per arm and group, `s x n x g`


def init(table: FeatureTable, noise_var: Tensor, groups: int, root: str = "symmetric") -> MedianPosterior:
    """The posterior of no rewards; other arguments and errors are those of :func:`bo_robust.posteriors.truncated.init`.

    ``groups`` is g, odd, otherwise ``ValueError``. The mean stays within what the good groups say while fewer than
    g / 2 groups hold a bad reward. That allows fewer than g / 2 bad rewards over all arms (at several arms they may sit
    in several groups), each at an arm of g pulls or more: with fewer, the arm's mean stands in for the groups without a
    reward.
    """
    check_count(1, groups=groups)
    if groups % 2 == 0:
        raise ValueError(f"groups must be odd, so that the median is one of them; got {groups}.")
    start = whitening.prior(table, noise_var, root)
    none = start[1].new_zeros(*start[1].shape, groups)
    return MedianPosterior(*start, sums=none, pulls=none.clone())


def observe(posterior: MedianPosterior, arms: Tensor, rewards: Tensor) -> Tensor:
    """Take in one reward per trial (``s``) of ``arms`` (``s``, long), in place; returns which were taken in, ``s``
    bool.
    """
    check_pulls(posterior.information_gain, arms, rewards)
    white = posterior.whitening
    trials = torch.arange(arms.shape[0], device=arms.device)
    ok = rewards.isfinite()
    group = white.counts[trials, arms].long() % posterior.sums.shape[2]
    posterior.sums[trials, arms, group] += torch.where(ok, rewards, 0.0)
    posterior.pulls[trials, arms, group] += ok.to(rewards)
    posterior.information_gain += 0.5 * torch.log1p(posterior.variance[trials, arms] / white.noise_var) * ok
    whitening.count(white, arms, ok)
    whitening.update(white, arms, ok)
    overall = posterior.sums.sum(2, keepdim=True) / white.counts.clamp(min=1.0).unsqueeze(2)
    means = torch.where(posterior.pulls > 0, posterior.sums / posterior.pulls.clamp(min=1.0), overall)
    estimates = white.directions(white.white @ (means * white.counts.unsqueeze(2)))
    estimates = estimates.nan_to_num(torch.inf, torch.inf, -torch.inf)  # a group that overflowed is one bad group
    posterior.variance = white.variance(white.norms())
    posterior.mean = (white.in_coordinates(estimates.median(2).values).unsqueeze(1) @ white.white).squeeze(1)
    return ok & all_numbers(posterior.mean, posterior.variance)
