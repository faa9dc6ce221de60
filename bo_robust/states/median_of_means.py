"""Median of means in feature space, over n arms: a robust mean without a truncation level.

Ray Chowdhury & Gopalan 2019 name it as future work (section 7). The rewards of every arm are dealt out in turn to g
groups; group j estimates the sums of ridge regression, r_ij = sum_a u_ia c_a ybar_aj with ybar_aj its mean reward of
arm a, without bias; r_i is the median of r_i1 .. r_ig, and the mean is Y^T B^T r (:mod:`bo_robust.states.whitening`).
A group that has no reward of an arm yet takes the arm's mean of all. With one group it is ridge regression.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from bo_robust.states import whitening
from bo_robust.states.arms import check_pulls
from bo_robust.states.whitening import FeatureTable, Whitening
from bo_robust.validation import check_count, check_finite

__all__ = ["MedianPosterior", "init", "observe"]


@dataclass
class MedianPosterior:
    """Ridge regression on features of n arms with medians of group sums; :func:`observe` updates it in place.

    Attributes:
        whitening: Whitened features and pull counts.
        sums: Sum of the rewards per arm and group, ``s x n x g``.
        pulls: Their number, ``s x n x g``.
        mean: Robust mean of every arm, ``s x n``.
        variance: sigma^2 of every arm, ``s x n``.
        information_gain: 1/2 log det(I + K / lambda) of the rewards so far, ``s``.
    """

    whitening: Whitening
    sums: Tensor
    pulls: Tensor
    mean: Tensor
    variance: Tensor
    information_gain: Tensor

    @property
    def counts(self) -> Tensor:
        """Rewards taken in per arm, ``s x n``."""
        return self.whitening.counts

    @property
    def noise_var(self) -> Tensor:
        """lambda, ``s``."""
        return self.whitening.noise_var


def init(table: FeatureTable, noise_var: Tensor, groups: int, root: str = "symmetric") -> MedianPosterior:
    """No rewards yet.

    Args:
        table: Features of the arms.
        noise_var: lambda > 0, ``s``.
        groups: g, odd. The mean stays within what the good groups say while fewer than g / 2 groups hold a bad reward:
            fewer than g / 2 bad rewards over all arms (at several arms they may sit in several groups), each at an
            arm of g pulls or more (below that its mean stands in for the groups without a reward).
        root: "symmetric" or "cholesky".

    Raises:
        ValueError: if ``groups`` is even or below 1, on an unknown root, or features that are not finite.
    """
    check_count(1, groups=groups)
    if groups % 2 == 0:
        raise ValueError(f"groups must be odd, so that the median is one of them; got {groups}.")
    check_finite("the features of the arms", table.coordinates)
    white = whitening.init(table, noise_var, root)
    variance = white.variance(white.norms())
    empty = variance.new_zeros(*variance.shape, groups)
    mean, gain = torch.zeros_like(variance), torch.zeros_like(noise_var)
    return MedianPosterior(white, empty, empty.clone(), mean, variance, gain)


def observe(posterior: MedianPosterior, arms: Tensor, rewards: Tensor) -> Tensor:
    """Take in one reward per trial (``s``) of ``arms`` (``s``, long), in place; returns ``ok``, ``s`` bool.

    Raises:
        ValueError: if shapes, dtypes or devices do not fit.
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
    return ok
