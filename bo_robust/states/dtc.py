"""Sparse posterior over n arms through a dictionary of arms, for BKB and BBKB: deterministic training conditional.

Calandriello, Carratino, Lazaric, Valko, Rosasco 2019, section 3. With D the dictionary, z(x) = R k_D(x), R^T R = K_D^+
(:mod:`bo_robust.features.nystrom`), counts c_a and reward sums s_a per arm: V = sum_a c_a z_a z_a^T + lambda I = L L^T,
mean z(x)^T V^{-1} sum_a s_a z_a, and variance k(x, x) - ||z(x)||^2 + lambda z(x)^T V^{-1} z(x), which does not starve
far from the dictionary. This package's variance is that of f; the papers' sigma~^2 is it over lambda.

All arms are scored in blocks, from k_D(x) alone: with F = L^{-1} R, lambda z^T V^{-1} z = lambda ||F k_D(x)||^2 and the
mean is k_D(x) . weights. One more reward under the same dictionary is a rank-one update of F, as
L_new^{-1} R = chol(I + u u^T)^{-1} F with u = F k_D(x_t) (see :mod:`bo_robust.states.whitening`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from bo_robust.features.leverage import padded
from bo_robust.features.nystrom import dictionary_root
from bo_robust.ops.dtc_scores import Dictionary, dtc_scores, scores_of_columns
from bo_robust.states.arms import ArmKernel, check_pulls, noise_of_trials
from bo_robust.states.whitening import update_cholesky_

__all__ = ["DTCPosterior", "count", "downdate", "init", "observe", "rebuild", "variance_of"]

# Entries of k_D(x) evaluated at once when all arms are scored.
BLOCK_ENTRIES = 1 << 18


@dataclass
class DTCPosterior:
    """What is known about n arms in s trials; the functions of this file update it in place.

    Attributes:
        kernel: The prior covariance.
        noise_var: lambda, ``s``.
        counts: Rewards taken in per arm, ``s x n``.
        sums: Their sums, ``s x n``.
        mean: Of every arm, ``s x n``.
        variance: Of f at every arm, ``s x n`` (the papers' sigma~^2 times lambda).
        information_gain: Sum of 1/2 log(1 + variance / lambda) at the arms as they were pulled, ``s``.
        points: Arms of the dictionary that are linearly independent, ``s x r`` long.
        root: R, ``s x r x r``; rows and columns beyond a trial's rank are zero.
        factor: F = L^{-1} R, ``s x r x r``.
        weights: R^T V^{-1} sum_a s_a z_a, ``s x r``.
        size: Arms in the dictionary, dependent ones included, ``s`` long (the papers' |S| counts copies too).
    """

    kernel: ArmKernel
    noise_var: Tensor
    counts: Tensor
    sums: Tensor
    mean: Tensor
    variance: Tensor
    information_gain: Tensor
    points: Tensor
    root: Tensor
    factor: Tensor
    weights: Tensor
    size: Tensor

    @property
    def effective_dimension(self) -> Tensor:
        """sum_s sigma~^2(x_s) over all pulls so far, ``s``: estimates d_eff = tr K (K + lambda I)^{-1}."""
        return (self.counts * self.variance).sum(1) / self.noise_var


def init(kernel: ArmKernel, noise_var: float | Tensor, trials: int = 1) -> DTCPosterior:
    """The prior, with an empty dictionary; errors as :func:`bo_robust.states.arms.init`."""
    noise = noise_of_trials(kernel, noise_var, trials)
    variance = kernel.diagonal.expand(trials, kernel.num_arms).clone()
    empty = noise.new_zeros(trials, 0)
    return DTCPosterior(
        kernel=kernel,
        noise_var=noise,
        counts=torch.zeros_like(variance),
        sums=torch.zeros_like(variance),
        mean=torch.zeros_like(variance),
        variance=variance,
        information_gain=torch.zeros_like(noise),
        points=empty.long(),
        root=empty.unsqueeze(2),
        factor=empty.unsqueeze(2),
        weights=empty,
        size=empty.sum(1).long(),
    )


def count(posterior: DTCPosterior, arms: Tensor, rewards: Tensor) -> Tensor:
    """Note one reward per trial (``s``) of ``arms`` (``s``, long); mean and variance stay as they are.

    Returns:
        ``ok`` (``s`` bool), False where the reward is NaN or infinite: a failed pull, not noted.

    Raises:
        ValueError: if shapes, dtypes or devices do not fit.
    """
    check_pulls(posterior.noise_var, arms, rewards)
    trials = torch.arange(arms.shape[0], device=arms.device)
    ok = rewards.isfinite()
    posterior.information_gain += 0.5 * torch.log1p(posterior.variance[trials, arms] / posterior.noise_var) * ok
    posterior.counts[trials, arms] += ok.to(rewards)
    posterior.sums[trials, arms] += torch.where(ok, rewards, 0.0)
    return ok


def rebuild(posterior: DTCPosterior, keep: Tensor, trials: Tensor | None = None) -> None:
    """New dictionaries: mean and variance of all arms from counts and sums, O(n r^2) in place.

    Args:
        posterior: To update.
        keep: Arms of each new dictionary, ``t x n`` bool for t trials; none may be empty.
        trials: Which trials, ``t`` long; all when None.

    Raises:
        ValueError: if a dictionary is empty.
    """
    chosen = torch.arange(posterior.counts.shape[0], device=keep.device) if trials is None else trials
    kernel, noise = posterior.kernel, posterior.noise_var[chosen]
    arms, mask = padded(keep)
    root = dictionary_root(kernel.between(arms, arms, chosen), mask)
    points, R = arms.gather(1, root.order), root.inverse
    pulled, is_pulled = padded(posterior.counts[chosen] > 0)
    Z = kernel.between(pulled, points, chosen) @ R.mT
    V = Z.mT @ ((posterior.counts[chosen].gather(1, pulled) * is_pulled).unsqueeze(2) * Z)
    V.diagonal(dim1=1, dim2=2).add_(noise.unsqueeze(1))
    L = torch.linalg.cholesky_ex(V)[0]
    F = torch.linalg.solve_triangular(L, R, upper=False)
    b = Z.mT @ (posterior.sums[chosen].gather(1, pulled) * is_pulled).unsqueeze(2)
    weights = (F.mT @ torch.linalg.solve_triangular(L, b, upper=False)).squeeze(2)
    _score(posterior, chosen, points, R, F, weights)
    posterior.size[chosen] = mask.sum(1)
    _store(posterior, chosen, points, R, F, weights)


def observe(posterior: DTCPosterior, arms: Tensor, rewards: Tensor) -> Tensor:
    """Take in one reward per trial under the present dictionary, O(n r) in place; otherwise as :func:`count`."""
    ok = count(posterior, arms, rewards)
    before = posterior.mean.gather(1, arms.unsqueeze(1)).squeeze(1)
    surprise = torch.where(ok, rewards - before, 0.0)
    gain, norm = downdate(posterior, arms, ok)
    step = gain / (1.0 + norm).unsqueeze(1)
    posterior.weights += step * surprise.unsqueeze(1)
    for block, k in _blocks(posterior.kernel, posterior.points):
        along = (gain.unsqueeze(1) @ k).squeeze(1)
        posterior.mean[:, block] += along * (surprise / (1.0 + norm)).unsqueeze(1)
        posterior.variance[:, block] -= along.square_() * (posterior.noise_var / (1.0 + norm)).unsqueeze(1)
    posterior.variance.clamp_(min=0.0)
    return ok


def downdate(posterior: DTCPosterior, arms: Tensor, ok: Tensor) -> tuple[Tensor, Tensor]:
    """The factor after one more pull of ``arms`` (``s``) where ``ok``, in place; what is stored per arm stays.

    Returns:
        F^T u and ||u||^2 of the factor before, u = F k_D(x_t): z(x)^T V^{-1} z(x_t) = k_D(x) . F^T u. ``s x r``, ``s``.
    """
    trials = torch.arange(arms.shape[0], device=arms.device)
    k = posterior.kernel.between(arms.unsqueeze(1), posterior.points, trials).squeeze(1)
    u = (posterior.factor @ k.unsqueeze(2)).squeeze(2) * ok.unsqueeze(1)
    gain = (u.unsqueeze(1) @ posterior.factor).squeeze(1)
    update_cholesky_(posterior.factor, u)
    return gain, u.square().sum(1)


def variance_of(posterior: DTCPosterior, arms: Tensor, trials: Tensor) -> Tensor:
    """Variance of some arms (``t x f``) of some ``trials`` (``t`` long) with the present factor, ``t x f``."""
    k = posterior.kernel.between(arms, posterior.points[trials], trials)
    explained = (k @ posterior.root[trials].mT).square().sum(2)
    left = (k @ posterior.factor[trials].mT).square().sum(2) * posterior.noise_var[trials].unsqueeze(1)
    diagonal = posterior.kernel.diagonal
    diagonal = diagonal[arms] if diagonal.ndim == 1 else diagonal[trials.unsqueeze(1), arms]
    return (diagonal - explained).clamp_(min=0.0) + left


def _score(posterior: DTCPosterior, trials: Tensor, points: Tensor, R: Tensor, F: Tensor, weights: Tensor) -> None:
    """Mean and variance of all arms of some trials."""
    kernel, noise = posterior.kernel, posterior.noise_var[trials]
    if kernel.matrix is None:
        assert kernel.arms is not None
        assert kernel.covariance is not None
        dictionary = Dictionary(kernel.arms[points], R, F, weights)
        scores = dtc_scores(kernel.arms, dictionary, kernel.covariance, noise)
        posterior.mean[trials], posterior.variance[trials] = scores.mean, scores.variance
        return
    dictionary = Dictionary(R.new_empty(*points.shape, 0), R, F, weights)
    prior = kernel.diagonal.expand(posterior.counts.shape)[trials]
    for block, k in _blocks(kernel, points, trials):
        scores = scores_of_columns(k.mT, dictionary, prior[:, block], noise)
        posterior.mean[trials, block], posterior.variance[trials, block] = scores.mean, scores.variance


def _blocks(kernel: ArmKernel, points: Tensor, trials: Tensor | None = None) -> Iterator[tuple[slice, Tensor]]:
    """k_D(x) of all arms, block by block: the arms as a slice, and ``s x r x B``."""
    s, r = points.shape
    length = max(1, BLOCK_ENTRIES // max(1, s * r))
    for start in range(0, kernel.num_arms, length):
        block = slice(start, min(start + length, kernel.num_arms))
        yield block, kernel.block(points, block, trials)


def _store(posterior: DTCPosterior, trials: Tensor, points: Tensor, R: Tensor, F: Tensor, weights: Tensor) -> None:
    """Put the dictionaries of some trials in, padding what is shorter."""
    s, r = posterior.points.shape
    if len(trials) == s:
        posterior.points, posterior.root, posterior.factor, posterior.weights = points, R, F, weights
        return
    width = points.shape[1]
    if width > r:
        more = width - r
        posterior.points = torch.nn.functional.pad(posterior.points, (0, more))
        posterior.root = torch.nn.functional.pad(posterior.root, (0, more, 0, more))
        posterior.factor = torch.nn.functional.pad(posterior.factor, (0, more, 0, more))
        posterior.weights = torch.nn.functional.pad(posterior.weights, (0, more))
    for whole, part in ((posterior.points, points), (posterior.weights, weights)):
        whole[trials] = 0
        whole[trials, :width] = part
    for whole, part in ((posterior.root, R), (posterior.factor, F)):
        whole[trials] = 0.0
        whole[trials, :width, :width] = part
