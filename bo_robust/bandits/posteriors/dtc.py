"""Sparse posterior over n arms through a dictionary, for BKB and BBKB: deterministic training conditional (DTC).

Source: Calandriello, Carratino, Lazaric, Valko, Rosasco 2019, section 3. Let D be the dictionary, z(x) = R k_D(x) with
R^T R = K_D^+ (:mod:`bo_robust.features.nystrom`), and c_a and s_a the count and the sum of the rewards of arm a. Let
V = sum_a c_a z_a z_a^T + lambda I = L L^T.

- The mean is z(x)^T V^{-1} sum_a s_a z_a.
- The variance is k(x, x) - ||z(x)||^2 + lambda z(x)^T V^{-1} z(x), which does not starve far from the dictionary. This
  is the variance of f; the papers' sigma~^2 is this variance over lambda.

All arms are scored in blocks, from k_D(x) alone: with F = L^{-1} R, lambda z^T V^{-1} z = lambda ||F k_D(x)||^2, and
the mean is k_D(x) . weights. Where few rewards came and few points of the dictionary changed, :func:`redraw` applies
these changes one by one (:mod:`bo_robust.bandits.posteriors.dtc_changes`), at O(n r) each for all arms. Otherwise
:func:`rebuild` starts anew, O(n r^2).
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from bo_robust.bandits.posteriors import dtc_changes, dtc_cpu
from bo_robust.bandits.posteriors.arm_kernel import ArmKernel, noise_of_trials
from bo_robust.bandits.posteriors.arms import check_pulls, within
from bo_robust.bandits.posteriors.dtc_changes import Factors
from bo_robust.bandits.posteriors.slots import Slotted
from bo_robust.features.leverage import padded
from bo_robust.features.nystrom import dictionary_root, rounding_share
from bo_robust.ops.dtc_scores import dtc_scores
from bo_robust.ops.dtc_scores.naive import (
    CHUNK_ENTRIES,
    Columns,
    Dictionary,
    Scores,
    columns_of,
    scores_of_columns,
    steps_of_columns,
)
from bo_robust.utils.linalg import are_few, entries_at_once, on_cuda

# A change is: rewards of one arm, a point in, or a point out. The factors of r points are changed up to r /
# POINTS_PER_CHANGE times at once, beyond that rebuilt (measured: benchmarks/bkb.py); and rebuilt after MAX_CHANGES in
# all, as rounding adds up. Where :mod:`.dtc_cpu` rebuilds, that takes no longer than a change if n r^2 < LEAST_WORK.
POINTS_PER_CHANGE, MAX_CHANGES, LEAST_WORK = 6, 512, 2e6


@dataclass
class DTCPosterior(Slotted):
    """What is known about n arms in s trials; the functions of this file update it in place."""

    kernel: ArmKernel  # The prior covariance
    noise_var: Tensor  # lambda, `s`
    totals: Tensor  # Sum and number of the rewards per arm, `2 x s x n`
    learnt: Tensor  # The part of `totals` that mean, variance and factors include, `2 x s x n`
    mean: Tensor  # Mean of f at every arm, `s x n`
    variance: Tensor  # Variance of f at every arm, `s x n` (the papers' sigma~^2 times lambda)
    # Sums over the pulls, `s x 2`: of 1/2 log(1 + variance / lambda), and of the variance since it last changed
    pulled: Tensor
    dictionary: Tensor  # Which arms are in the dictionary, `s x n` bool
    # Linearly independent arms of the dictionary, one per slot, `s x r` long; an empty slot holds any arm
    points: Tensor
    # R, `s x r x r`, lower triangular but by :mod:`.slots`; rows and columns of empty slots are zero
    root: Tensor
    factor: Tensor  # F = L^{-1} R up to a rotation from the left, `s x r x r`
    weights: Tensor  # R^T V^{-1} sum_a s_a z_a, `s x r`
    changes: Tensor  # Number of changes since the factors were last built from scratch, `s` long
    rounding: Tensor  # eps times the largest k(x, x) over lambda, `s`
    # A of lambda z^T F^T A F z, which the last term of the variance becomes by the pulls noted by :func:`downdate`,
    # `s x r x r`; None, the identity, without such pulls
    ahead: Tensor | None = None

    @property
    def sums(self) -> Tensor:
        """Sum of the rewards per arm, ``s x n``."""
        return self.totals[0]

    @property
    def counts(self) -> Tensor:
        """Number of rewards per arm, ``s x n``."""
        return self.totals[1]

    @property
    def information_gain(self) -> Tensor:
        """Sum of 1/2 log(1 + variance / lambda) at the arms as they were pulled, ``s``."""
        return self.pulled[:, 0]

    @property
    def spent(self) -> Tensor:
        """Sum of the variances of the arms pulled since mean and variance last changed, ``s``."""
        return self.pulled[:, 1]

    @property
    def size(self) -> Tensor:
        """Number of arms in the dictionary, ``s`` long (the papers' |S| counts copies too)."""
        return self.dictionary.sum(1)

    @property
    def effective_dimension(self) -> Tensor:
        """Sum of sigma~^2(x_s) over all learnt rewards, ``s``, an estimate of d_eff = tr K (K + lambda I)^{-1}."""
        return (self.learnt[1] * self.variance).sum(1) / self.noise_var


def init(kernel: ArmKernel, noise_var: float | Tensor, trials: int = 1) -> DTCPosterior:
    """The prior, with an empty dictionary; errors are those of :func:`bo_robust.bandits.posteriors.arms.init`."""
    noise = noise_of_trials(kernel, noise_var, trials)
    variance = kernel.diagonal.expand(trials, kernel.num_arms).clone()
    empty, totals = noise.new_zeros(trials, 0), noise.new_zeros(2, *variance.shape)
    return DTCPosterior(
        kernel=kernel,
        noise_var=noise,
        totals=totals,
        learnt=totals.clone(),
        mean=torch.zeros_like(variance),
        variance=variance,
        pulled=noise.new_zeros(trials, 2),
        dictionary=torch.zeros_like(variance, dtype=torch.bool),
        points=empty.long(),
        root=noise.new_zeros(trials, 0, 0),
        factor=noise.new_zeros(trials, 0, 0),
        weights=empty,
        changes=torch.zeros_like(noise, dtype=torch.long),
        rounding=rounding_of(variance.amax(1), noise),
    )


def rounding_of(prior: Tensor, noise_var: Tensor) -> Tensor:
    """eps k(x, x) / lambda, ``s``, of the largest prior variance k(x, x)."""
    return torch.finfo(noise_var.dtype).eps * prior / noise_var


def count(posterior: DTCPosterior, arms: Tensor, rewards: Tensor) -> Tensor:
    """Note one reward per trial (``s``) of ``arms`` (``s``, long); mean and variance stay as they are.

    Returns whether the reward was noted, ``s`` bool: a NaN or infinite reward is a failed pull. Raises ``ValueError``
    if shapes, dtypes or devices do not fit, or an arm is out of range; on CUDA its reward is a failed pull.
    """
    check_pulls(posterior.noise_var, arms, rewards)
    arms, rewards = within(arms, rewards, posterior.counts.shape[1])
    p = posterior
    if are_few(arms):
        return dtc_cpu.count(p.totals, p.pulled, p.variance, p.noise_var, arms, rewards)
    return note(p, arms, rewards, costs_of(p, arms.unsqueeze(1)).squeeze(1))[0]


def costs_of(posterior: DTCPosterior, arms: Tensor, trials: Tensor | None = None) -> Tensor:
    """What :func:`note` adds per pull of ``arms`` (``t x f``) in some ``trials`` (``t``; None: all), ``t x f x 3``.

    One pull, the information gained and the variance.
    """
    some = slice(None) if trials is None else trials
    variance = posterior.variance[some].gather(1, arms)
    gain = torch.log1p(variance / posterior.noise_var[some].unsqueeze(1)).mul_(0.5)
    return torch.stack([torch.ones_like(gain), gain, variance], 2)


def note(posterior: DTCPosterior, arms: Tensor, rewards: Tensor, pull: Tensor) -> tuple[Tensor, Tensor]:
    """:func:`count` without its checks, where ``pull`` has the :func:`costs_of` these arms, ``s x 3`` or longer.

    Also returns the rest of ``pull``, zero where no reward was noted.
    """
    finite = torch.nan_to_num(rewards, 0.0, 0.0, 0.0)
    ok = finite == rewards
    row = torch.cat([finite.unsqueeze(1), pull], 1).mul_(ok.unsqueeze(1))
    posterior.totals.scatter_add_(2, arms.expand(2, -1).unsqueeze(2), row[:, :2].mT.unsqueeze(2))
    posterior.pulled += row[:, 2:4]
    return ok, row[:, 4:]


def rebuild(posterior: DTCPosterior, keep: Tensor, trials: Tensor | None = None) -> None:
    """Observe all rewards under new dictionaries, from scratch, O(n r^2); in place.

    ``keep`` has the arms of each new dictionary, ``t x n`` bool, and ``trials`` (``t`` long) says which trials these
    are; None: all.
    """
    index = index_of(posterior, trials)
    posterior.changes[index], kernel = 0, posterior.kernel
    if kernel.matrix is not None and are_few(keep):
        numbers, p = range(len(keep)) if isinstance(index, slice) else index.tolist(), posterior
        _store(p, index, keep, *dtc_cpu.rebuild_(kernel, p.noise_var, p.totals, keep, numbers, [p.mean, p.variance]))
        return
    chosen = torch.arange(len(posterior.counts), device=keep.device)[index]
    noise = posterior.noise_var[chosen]
    arms, mask = padded(keep)
    root = dictionary_root(kernel.between(arms, arms, chosen), mask)
    points, R = arms.gather(1, root.order), root.inverse
    pulled, is_pulled = padded(posterior.counts[chosen] > 0)
    Z = kernel.between(pulled, points, chosen) @ R.mT
    V = Z.mT @ ((posterior.counts[chosen].gather(1, pulled) * is_pulled).unsqueeze(2) * Z)
    V.diagonal(dim1=1, dim2=2).add_(noise.unsqueeze(1))
    # V >= lambda I, so this succeeds; asking whether it did would wait for a GPU.
    L = torch.linalg.cholesky_ex(V)[0]
    F = torch.linalg.solve_triangular(L, R, upper=False)
    b = Z.mT @ (posterior.sums[chosen].gather(1, pulled) * is_pulled).unsqueeze(2)
    weights = (F.mT @ torch.linalg.solve_triangular(L, b, upper=False)).squeeze(2)
    if kernel.matrix is None:
        covariance, of_arms = kernel.function
        scores = dtc_scores(of_arms, Dictionary(of_arms[points], R, F, weights), covariance, noise)
    else:
        columns = _columns_of_matrix(kernel, points, chosen)
        scores = scores_of_columns(kernel.num_arms, Dictionary(points, R, F, weights), noise, columns)
    posterior.mean[chosen], posterior.variance[chosen] = scores.mean, scores.variance
    _store(posterior, index, keep, points, R, F, weights)


def redraw(posterior: DTCPosterior, keep: Tensor, trials: Tensor | None = None) -> None:
    """As :func:`rebuild`, but by changes of the factors where that is less work.

    On one thread :class:`.BKB` is 2.2 to 2.5 times as fast for it, over 4,096 and 10,000 arms of a Matérn kernel.
    """
    p = posterior
    # On CUDA a rebuild takes less than a millisecond, and changes wait for the device once a point. Of so few points
    # no change is less work.
    n, r = p.kernel.num_arms, p.points.shape[1]
    soon_rebuilt = p.kernel.matrix is not None and are_few(keep) and n * r * r < LEAST_WORK
    if on_cuda(p.mean) or r < POINTS_PER_CHANGE or soon_rebuilt:
        rebuild(p, keep, trials)
        return
    chosen = index_of(p, trials)
    everyone = torch.arange(len(p.counts), device=keep.device)[chosen]
    moved = (keep != p.dictionary[chosen]).sum(1)
    changes = moved + (p.counts[chosen] != p.learnt[1, chosen]).sum(1)
    inverse_pivots = p.root.diagonal(dim1=1, dim2=2)[chosen].square()
    few = (changes * POINTS_PER_CHANGE <= (inverse_pivots > 0.0).sum(1)) & keep.any(1)
    few &= p.changes[chosen] + changes <= MAX_CHANGES
    few &= p.rounding[chosen] <= dtc_changes.SAFE_ROUNDING
    if any_moved := bool(moved.any()):
        inverse_shares = inverse_pivots * p.kernel.diagonal_of(p.points[chosen], everyone)
        few &= (moved == 0) | ~(inverse_shares > 1.0 / dtc_changes.SAFE_SHARE).any(1)
    total = p.changes[chosen] + changes
    p.changes[chosen] = MAX_CHANGES  # should a change be interrupted, everything is rebuilt
    if few.all():
        few = ~_change(p, keep, chosen, any_moved)
    elif few.any():
        few = few.masked_scatter(few, ~_change(p, keep[few], everyone[few], any_moved))
    p.changes[chosen] = total
    if not few.all():
        rebuild(p, keep[~few], everyone[~few])


def _change(posterior: DTCPosterior, keep: Tensor, chosen: slice | Tensor, moved: bool) -> Tensor:
    """:func:`redraw` by changes; returns which trials must be rebuilt nevertheless, ``t`` bool."""
    kernel, p = posterior.kernel, posterior
    trials = torch.arange(len(p.counts), device=keep.device)[chosen]
    factors = Factors(
        p.noise_var[chosen], trials, p.points[chosen], p.root[chosen], p.factor[chosen], p.weights[chosen]
    )
    counts, sums = p.counts[chosen], p.sums[chosen]
    new_sums, new_counts = (p.totals - p.learnt)[:, chosen]
    arms, is_new = padded(new_counts > 0)
    dtc_changes.learn(factors, kernel, arms, new_counts.gather(1, arms) * is_new, new_sums.gather(1, arms) * is_new)
    short = torch.zeros_like(keep[:, 0])
    if moved:
        gone = factors.active & ~keep.gather(1, factors.points)
        dtc_changes.remove_points(factors, gone)
        present = torch.zeros_like(keep, dtype=torch.uint8).scatter_add_(1, factors.points, factors.active.byte()) > 0
        spanned = rounding_share(keep.sum(1), counts.dtype)
        short = dtc_changes.add_points(factors, kernel, keep & ~present, counts, sums, spanned)
    if kernel.matrix is None:
        covariance, of_arms = kernel.function
        columns = columns_of(of_arms, of_arms[factors.points], covariance)
    else:
        columns = _columns_of_matrix(kernel, factors.points, factors.trials)
    mean, variance = steps_of_columns(kernel.num_arms, columns, factors.steps())
    p.mean[chosen] += mean
    p.variance[chosen] = variance.add_(p.variance[chosen]).clamp_(min=0.0)
    if moved and factors.points.shape[1] > int(factors.active.sum(1).max()) + 2 * dtc_changes.SPARE:
        dtc_changes.pack(factors)
    _store(p, chosen, keep, factors.points, factors.root, factors.factor, factors.weights)
    return short


def features_of(posterior: DTCPosterior, arms: Tensor, trials: Tensor) -> Tensor:
    """Features of ``arms`` (``t x f``) in some ``trials`` (``t``), ``t x f x r``, for :func:`downdate`.

    The product of two arms' features is their covariance at the last redraw, without what no reward can change.
    """
    return _features(posterior, posterior.kernel.between(arms, posterior.points[trials], trials), trials)


def features_of_pulls(posterior: DTCPosterior, arms: Tensor, ok: Tensor) -> Tensor:
    """:func:`features_of` one arm per trial (``s``), ``s x r``; zero where not ``ok``."""
    trials = torch.arange(len(arms), device=arms.device)
    return features_of(posterior, arms.unsqueeze(1), trials).squeeze(1) * ok.unsqueeze(1)


def features_at(posterior: DTCPosterior, X: Tensor) -> Tensor:
    """:func:`features_of` f locations ``f x d`` in all trials, ``s x f x r``."""
    covariance, arms = posterior.kernel.function
    k = covariance(X, arms[posterior.points])
    return _features(posterior, k, torch.arange(len(k), device=X.device))


def _features(posterior: DTCPosterior, k: Tensor, trials: Tensor) -> Tensor:
    return k @ (posterior.factor[trials] * posterior.noise_var[trials].sqrt().view(-1, 1, 1)).mT


def downdate(posterior: DTCPosterior, features: Tensor) -> tuple[Tensor, Tensor]:
    """Lower what :func:`variance_of` returns by one more pull of arms with ``features`` (``s x r``), O(r^2).

    Nothing else of the posterior changes, and nothing by features of zero, those of a failed pull. Returns h
    (``s x r x 1``) and t (``s x 1 x 1``): the variance of an arm with features z falls by (z . h)^2 / t.
    """
    z, (s, r) = features.unsqueeze(2), features.shape
    if posterior.ahead is None:
        posterior.ahead = torch.eye(r, dtype=z.dtype, device=z.device).repeat(s, 1, 1)
    h = posterior.ahead @ z
    t = torch.baddbmm(posterior.noise_var.view(-1, 1, 1), z.mT, h)
    posterior.ahead.baddbmm_(h, (h / t).mT, alpha=-1.0)
    return h, t


def dictionary_of(posterior: DTCPosterior) -> Dictionary:
    """What :func:`bo_robust.ops.dtc_scores.dtc_scores` needs to score any arm, :func:`downdate` included; O(r^3)."""
    factor, (_, arms) = posterior.factor, posterior.kernel.function
    if posterior.ahead is not None:
        factor = torch.linalg.cholesky_ex(posterior.ahead)[0].mT @ factor
    # F = Q U with the columns of F in reverse order: U, reversed both ways, is the triangular one
    triangular = torch.linalg.qr(factor.flip(2), mode="r")[1].flip(1, 2)
    return Dictionary(arms[posterior.points], posterior.root, triangular, posterior.weights)


def grow(posterior: DTCPosterior, kernel: ArmKernel) -> None:
    """Add arms without rewards, in place: ``kernel`` has the present arms first, then the new ones.

    Until the next rebuild the new arms have variance k(x, x) and mean zero: the caller must set them.
    """
    s, n = posterior.counts.shape
    new = kernel.num_arms - n
    for name in ("totals", "learnt", "mean", "dictionary"):
        setattr(posterior, name, torch.nn.functional.pad(getattr(posterior, name), (0, new)))
    posterior.variance = torch.cat([posterior.variance, kernel.diagonal[..., n:].expand(s, new)], 1)
    posterior.kernel = kernel


def variance_of(posterior: DTCPosterior, arms: Tensor, trials: Tensor) -> Tensor:
    """Variance of ``arms`` (``t x f``) in some ``trials`` (``t`` long), :func:`downdate` included, ``t x f``."""
    points, kernel = posterior.points[trials], posterior.kernel
    length = max(1, 16 * entries_at_once(points, *CHUNK_ENTRIES) // max(1, points.numel()))
    parts = [
        _variance(posterior, kernel.between(some, points, trials), kernel.diagonal_of(some, trials), trials, ahead=True)
        for some in arms.split(length, 1)
    ]
    return torch.cat(parts, 1)


def scores_at(posterior: DTCPosterior, X: Tensor) -> Scores:
    """Mean and variance at f locations ``f x d``, ``s x f`` each, without :func:`downdate`."""
    (covariance, arms), trials = posterior.kernel.function, torch.arange(len(posterior.counts), device=X.device)
    k, prior = covariance(X, arms[posterior.points]), covariance.diagonal(X)
    return Scores((k @ posterior.weights.unsqueeze(2)).squeeze(2), _variance(posterior, k, prior, trials, ahead=False))


def _variance(posterior: DTCPosterior, k: Tensor, prior: Tensor, trials: Tensor, ahead: bool) -> Tensor:
    """Variance of f points, ``t x f``, from k_D(x) (``t x f x r``) and k(x, x)."""
    explained, z = (k @ posterior.root[trials].mT).square().sum(2), _features(posterior, k, trials)
    along = z @ posterior.ahead[trials] if ahead and posterior.ahead is not None else z
    return (prior - explained).clamp_(min=0.0) + (along * z).sum(2).clamp_(min=0.0)


def _columns_of_matrix(kernel: ArmKernel, points: Tensor, trials: Tensor) -> Columns:
    """k_D(x) and k(x, x) of all arms in some ``trials`` (``t``), whose ``points`` are ``t x r``."""
    prior = kernel.diagonal[trials] if kernel.diagonal.ndim == 2 else kernel.diagonal.expand(len(trials), -1)
    return lambda some, arms: (kernel.block(points[some], arms, trials[some]).mT, prior[some, arms])


def index_of(posterior: DTCPosterior, trials: Tensor | None) -> slice | Tensor:
    """An index of some trials: where these are all in order a slice, because its views cost nothing."""
    s = len(posterior.counts)
    if trials is None or (len(trials) == s and trials.tolist() == [*range(s)]):
        return slice(None)
    return trials


def _store(posterior: DTCPosterior, trials: slice | Tensor, keep: Tensor, *factors: Tensor) -> None:
    """Store dictionaries, and ``factors`` that include all rewards: points, R, F and weights of some trials."""
    points, R, F, weights = factors
    posterior.dictionary[trials] = keep
    posterior.learnt[:, trials] = posterior.totals[:, trials]
    posterior.spent[trials] = 0.0
    if isinstance(trials, slice):
        posterior.points, posterior.root, posterior.factor, posterior.weights = points, R, F, weights
        posterior.ahead = None
        return
    more, pad = points.shape[1] - posterior.points.shape[1], torch.nn.functional.pad
    parts = {"points": points, "weights": weights, "root": R, "factor": F}
    if posterior.ahead is not None:
        parts["ahead"] = torch.eye(points.shape[1], dtype=F.dtype, device=F.device).expand_as(F)
    for name, part in parts.items():
        axes = part.ndim - 1
        whole = pad(getattr(posterior, name), (0, max(0, more)) * axes)
        whole[trials] = pad(part, (0, max(0, -more)) * axes)
        setattr(posterior, name, whole)
