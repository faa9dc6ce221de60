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

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from bo_robust.bandits.posteriors import dtc_changes
from bo_robust.bandits.posteriors.arm_kernel import ArmKernel, noise_of_trials
from bo_robust.bandits.posteriors.arms import check_pulls, within
from bo_robust.bandits.posteriors.dtc_changes import Factors, RankOne
from bo_robust.features.leverage import padded
from bo_robust.features.nystrom import dictionary_root, rounding_share
from bo_robust.ops.dtc_scores import Dictionary, Scores, dtc_scores, dtc_steps, scores_of_columns, steps_of_columns
from bo_robust.utils.linalg import entries_at_once, on_cuda

# Entries of k_D(x) evaluated at once when all arms are scored, on a CPU and a GPU.
BLOCK_ENTRIES = (1 << 18, 1 << 23)
# A change is: rewards of one arm, a point in, or a point out. The factors of r points are changed up to r /
# POINTS_PER_CHANGE times at once, beyond that rebuilt (measured: benchmarks/bkb.py); and rebuilt after MAX_CHANGES in
# all, as rounding adds up.
POINTS_PER_CHANGE, MAX_CHANGES = 6, 512


@dataclass
class DTCPosterior:
    """What is known about n arms in s trials; the functions of this file update it in place."""

    kernel: ArmKernel  # The prior covariance
    noise_var: Tensor  # lambda, `s`
    counts: Tensor  # Number of rewards per arm, `s x n`
    sums: Tensor  # Sum of the rewards per arm, `s x n`
    learnt_counts: Tensor  # The part of `counts` that mean, variance and factors include, `s x n`
    learnt_sums: Tensor  # The part of `sums` that they include, `s x n`
    mean: Tensor  # Mean of f at every arm, `s x n`
    variance: Tensor  # Variance of f at every arm, `s x n` (the papers' sigma~^2 times lambda)
    information_gain: Tensor  # Sum of 1/2 log(1 + variance / lambda) at the arms as they were pulled, `s`
    dictionary: Tensor  # Which arms are in the dictionary, `s x n` bool
    # Linearly independent arms of the dictionary, one per slot, `s x r` long; an empty slot holds any arm
    points: Tensor
    root: Tensor  # R, `s x r x r`, lower triangular; rows and columns of empty slots are zero
    factor: Tensor  # F = L^{-1} R up to a rotation from the left, `s x r x r`
    weights: Tensor  # R^T V^{-1} sum_a s_a z_a, `s x r`
    changes: Tensor  # Number of changes since the factors were last built from scratch, `s` long
    rounding: Tensor  # eps times the largest k(x, x) over lambda, `s`
    ahead: Tensor | None = None  # F after the pulls noted by :func:`downdate`, `s x r x r`; None without such pulls

    @property
    def size(self) -> Tensor:
        """Number of arms in the dictionary, ``s`` long (the papers' |S| counts copies too)."""
        return self.dictionary.sum(1)

    @property
    def effective_dimension(self) -> Tensor:
        """Sum of sigma~^2(x_s) over all learnt rewards, ``s``, an estimate of d_eff = tr K (K + lambda I)^{-1}."""
        return (self.learnt_counts * self.variance).sum(1) / self.noise_var


def init(kernel: ArmKernel, noise_var: float | Tensor, trials: int = 1) -> DTCPosterior:
    """The prior, with an empty dictionary; errors are those of :func:`bo_robust.bandits.posteriors.arms.init`."""
    noise = noise_of_trials(kernel, noise_var, trials)
    variance = kernel.diagonal.expand(trials, kernel.num_arms).clone()
    empty = noise.new_zeros(trials, 0)
    return DTCPosterior(
        kernel=kernel,
        noise_var=noise,
        counts=torch.zeros_like(variance),
        sums=torch.zeros_like(variance),
        learnt_counts=torch.zeros_like(variance),
        learnt_sums=torch.zeros_like(variance),
        mean=torch.zeros_like(variance),
        variance=variance,
        information_gain=torch.zeros_like(noise),
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
    at, finite = arms.unsqueeze(1), rewards.nan_to_num(0.0, posinf=0.0, neginf=0.0)
    ok = finite == rewards
    weight = ok.to(finite)
    ratio = posterior.variance.gather(1, at).squeeze(1) / posterior.noise_var
    posterior.information_gain.addcmul_(ratio.log1p_(), weight, value=0.5)
    posterior.counts.scatter_add_(1, at, weight.unsqueeze(1))
    posterior.sums.scatter_add_(1, at, finite.unsqueeze(1))
    return ok


def rebuild(posterior: DTCPosterior, keep: Tensor, trials: Tensor | None = None) -> None:
    """Observe all rewards under new dictionaries, from scratch, O(n r^2); in place.

    ``keep`` has the arms of each new dictionary, ``t x n`` bool, and ``trials`` (``t`` long) says which trials these
    are; None: all. Raises ``ValueError`` if a dictionary is empty.
    """
    index = index_of(posterior, trials)
    chosen = torch.arange(len(posterior.counts), device=keep.device)[index]
    kernel, noise = posterior.kernel, posterior.noise_var[chosen]
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
    _score(posterior, chosen, points, R, F, weights)
    posterior.dictionary[index] = keep
    posterior.changes[index] = 0
    learnt(posterior, index)
    _store(posterior, index, points, R, F, weights)


def redraw(posterior: DTCPosterior, keep: Tensor, trials: Tensor | None = None) -> None:
    """As :func:`rebuild`, but by changes of the factors where that is less work."""
    p = posterior
    # On CUDA a rebuild takes less than a millisecond, and changes wait for the device once a point.
    if on_cuda(p.mean):
        rebuild(p, keep, trials)
        return
    chosen = index_of(p, trials)
    everyone = torch.arange(len(p.counts), device=keep.device)[chosen]
    moved = (keep != p.dictionary[chosen]).sum(1)
    changes = moved + (p.counts[chosen] != p.learnt_counts[chosen]).sum(1)
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
    new_counts, new_sums = counts - p.learnt_counts[chosen], sums - p.learnt_sums[chosen]
    arms, is_new = padded(new_counts > 0)
    dtc_changes.learn(factors, kernel, arms, new_counts.gather(1, arms) * is_new, new_sums.gather(1, arms) * is_new)
    short = torch.zeros_like(keep[:, 0])
    if moved:
        gone = factors.active & ~keep.gather(1, factors.points)
        dtc_changes.remove_points(factors, gone)
        present = torch.zeros_like(keep, dtype=torch.uint8).scatter_add_(1, factors.points, factors.active.byte()) > 0
        spanned = rounding_share(keep.sum(1), counts.dtype)
        short = dtc_changes.add_points(factors, kernel, keep & ~present, counts, sums, spanned)
    mean, variance = _steps(kernel, factors)
    p.mean[chosen] += mean
    p.variance[chosen] = variance.add_(p.variance[chosen]).clamp_(min=0.0)
    if moved and factors.points.shape[1] > int(factors.active.sum(1).max()) + 2 * dtc_changes.SPARE:
        dtc_changes.pack(factors)
    p.dictionary[chosen] = keep
    learnt(p, chosen)
    _store(p, chosen, factors.points, factors.root, factors.factor, factors.weights)
    return short


def _steps(kernel: ArmKernel, factors: Factors) -> tuple[Tensor, Tensor]:
    """The sum of what all changes add to the mean and variance of all arms, ``s x n`` each."""
    steps, points = factors.steps(), factors.points
    if kernel.matrix is None:
        assert kernel.arms is not None
        assert kernel.covariance is not None
        return dtc_steps(kernel.arms, kernel.arms[points], kernel.covariance, steps)
    parts = [steps_of_columns(k.mT, steps) for _, k in _blocks(kernel, points, factors.trials)]
    return torch.cat([mean for mean, _ in parts], 1), torch.cat([variance for _, variance in parts], 1)


def observe(posterior: DTCPosterior, arms: Tensor, rewards: Tensor) -> Tensor:
    """Observe one reward per trial under the present dictionary, which may not be empty; else as :func:`count`."""
    ok = count(posterior, arms, rewards)
    redraw(posterior, posterior.dictionary)
    return ok


def downdate(posterior: DTCPosterior, arms: Tensor, ok: Tensor) -> RankOne:
    """Lower what :func:`variance_of` returns by one more pull of ``arms`` (``s``) where ``ok``, O(r^2).

    Nothing else of the posterior changes. Returns what :func:`lower` needs.
    """
    if posterior.ahead is None:
        posterior.ahead = posterior.factor.clone()
    trials = torch.arange(arms.shape[0], device=arms.device)
    k = posterior.kernel.between(arms.unsqueeze(1), posterior.points, trials).squeeze(1)
    return dtc_changes.learn_(posterior.ahead, k, ok.to(k))


def lower(features: Tensor, variance: Tensor, change: RankOne, noise_var: Tensor) -> Tensor:
    """Lower the ``variance`` of arms (``s x f``, in place) as :func:`downdate` did, O(f r); returns their new features.

    ``features`` are F k_D(x), ``s x f x r``, written to.
    """
    more = change.u.shape[1] - features.shape[2]
    if more > 0:  # other trials got larger dictionaries
        features = torch.nn.functional.pad(features, (0, more))
    c = features @ change.u
    lost = noise_var * change.n / (1.0 + change.norm)
    variance.addcmul_(c.squeeze(2).square(), lost.unsqueeze(1), value=-1.0).clamp_(min=0.0)
    return features.baddbmm_(c * change.step, change.u.mT, alpha=-1.0)


def dictionary_of(posterior: DTCPosterior) -> Dictionary:
    """What :func:`bo_robust.ops.dtc_scores.dtc_scores` needs to score any arm, :func:`downdate` included; O(r^3).

    Raises ``ValueError`` if the kernel has no locations.
    """
    if posterior.kernel.arms is None:
        raise ValueError("the arms have no locations; give them to ArmKernel.from_matrix as `arms`.")
    factor = posterior.factor if posterior.ahead is None else posterior.ahead
    # F = Q U with the columns of F in reverse order: U, reversed both ways, is the triangular one
    triangular = torch.linalg.qr(factor.flip(2), mode="r")[1].flip(1, 2)
    return Dictionary(posterior.kernel.arms[posterior.points], posterior.root, triangular, posterior.weights)


def grow(posterior: DTCPosterior, kernel: ArmKernel) -> None:
    """Add arms without rewards, in place: ``kernel`` has the present arms first, then the new ones.

    Until the next rebuild the new arms have variance k(x, x) and mean zero: the caller must set them.
    """
    s, n = posterior.counts.shape
    new = kernel.num_arms - n
    for name in ("counts", "sums", "learnt_counts", "learnt_sums", "mean", "dictionary"):
        setattr(posterior, name, torch.nn.functional.pad(getattr(posterior, name), (0, new)))
    posterior.variance = torch.cat([posterior.variance, kernel.diagonal[..., n:].expand(s, new)], 1)
    posterior.kernel = kernel


def variance_of(posterior: DTCPosterior, arms: Tensor, trials: Tensor) -> Tensor:
    """Variance of ``arms`` (``t x f``) in some ``trials`` (``t`` long), :func:`downdate` included, ``t x f``."""
    points = posterior.points[trials]
    length = max(1, 16 * entries_at_once(points, *BLOCK_ENTRIES) // max(1, points.numel()))
    return torch.cat([variance_and_features(posterior, some, trials)[0] for some in arms.split(length, 1)], 1)


def variance_and_features(posterior: DTCPosterior, arms: Tensor, trials: Tensor) -> tuple[Tensor, Tensor]:
    """The same of few arms, and F k_D(x) of each, ``t x f x r``."""
    kernel = posterior.kernel
    k, prior = kernel.between(arms, posterior.points[trials], trials), kernel.diagonal_of(arms, trials)
    return _variance(posterior, k, prior, trials, ahead=True)


def scores_at(posterior: DTCPosterior, X: Tensor, ahead: bool) -> Scores:
    """Mean and variance at f locations ``f x d``, ``s x f`` each; with ``ahead``, :func:`downdate` is included."""
    kernel, trials = posterior.kernel, torch.arange(len(posterior.counts), device=X.device)
    assert kernel.arms is not None
    assert kernel.covariance is not None
    k, prior = kernel.covariance(X, kernel.arms[posterior.points]), kernel.covariance.diagonal(X)
    return Scores((k @ posterior.weights.unsqueeze(2)).squeeze(2), _variance(posterior, k, prior, trials, ahead)[0])


def _variance(posterior: DTCPosterior, k: Tensor, prior: Tensor, trials: Tensor, ahead: bool) -> tuple[Tensor, Tensor]:
    """Variance of f points, ``t x f``, from k_D(x) (``t x f x r``) and k(x, x), and F k_D(x)."""
    factor = posterior.ahead if ahead and posterior.ahead is not None else posterior.factor
    explained = (k @ posterior.root[trials].mT).square().sum(2)
    features = k @ factor[trials].mT
    left = features.square().sum(2) * posterior.noise_var[trials].unsqueeze(1)
    return (prior - explained).clamp_(min=0.0) + left, features


def _score(posterior: DTCPosterior, trials: Tensor, points: Tensor, R: Tensor, F: Tensor, weights: Tensor) -> None:
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
    length = max(1, entries_at_once(points, *BLOCK_ENTRIES) // max(1, s * r))
    for start in range(0, kernel.num_arms, length):
        block = slice(start, min(start + length, kernel.num_arms))
        yield block, kernel.block(points, block, trials)


def index_of(posterior: DTCPosterior, trials: Tensor | None) -> slice | Tensor:
    """An index of some trials: where these are all in order a slice, because its views cost nothing."""
    s = len(posterior.counts)
    everyone = trials is None or (len(trials) == s and torch.equal(trials, torch.arange(s, device=trials.device)))
    return slice(None) if everyone or trials is None else trials


def learnt(posterior: DTCPosterior, trials: slice | Tensor) -> None:
    """Note that mean, variance and factors include all rewards."""
    posterior.learnt_counts[trials] = posterior.counts[trials]
    posterior.learnt_sums[trials] = posterior.sums[trials]


def _store(
    posterior: DTCPosterior, trials: slice | Tensor, points: Tensor, R: Tensor, F: Tensor, weights: Tensor
) -> None:
    r = posterior.points.shape[1]
    if isinstance(trials, slice):
        posterior.points, posterior.root, posterior.factor, posterior.weights = points, R, F, weights
        posterior.ahead = None
        return
    more, shorter, pad = points.shape[1] - r, r - points.shape[1], torch.nn.functional.pad
    flat = {"points": points, "weights": weights}
    square = {"root": R, "factor": F} | ({} if posterior.ahead is None else {"ahead": F})
    for name, part in flat.items():
        whole = pad(getattr(posterior, name), (0, max(0, more)))
        whole[trials] = pad(part, (0, max(0, shorter)))
        setattr(posterior, name, whole)
    for name, part in square.items():
        whole = pad(getattr(posterior, name), (0, max(0, more), 0, max(0, more)))
        whole[trials] = pad(part, (0, max(0, shorter), 0, max(0, shorter)))
        setattr(posterior, name, whole)
