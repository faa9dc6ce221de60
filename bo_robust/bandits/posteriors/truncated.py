"""ATA-GP-UCB's estimator over n arms: every reward is truncated anew each round, in each direction of feature space.

Source: Ray Chowdhury & Gopalan 2019, Algorithm 2. With U = R Phi^T and R^T R = V^{-1}, r_i = sum_tau u_{i tau} y_tau
1{|u_{i tau} y_tau| <= b_t}, theta = R^T r, and the mean is phi^T theta. As rewards repeat arms, r_i = sum_a u_ia T_ia
with truncated sums T_ia per arm (``reward_lists``), and the mean is Y^T (B^T r) for whitened features Y and axes B
(``whitening``). Where nothing is beyond the level it is ridge regression, whatever the root.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from bo_robust.bandits.posteriors import reward_lists, whitening
from bo_robust.bandits.posteriors.arm_kernel import ArmKernel
from bo_robust.bandits.posteriors.arms import check_pulls, within
from bo_robust.bandits.posteriors.reward_lists import RewardLists
from bo_robust.bandits.posteriors.whitening import FeatureTable, Whitening
from bo_robust.confidence.base import Number
from bo_robust.confidence.truncation import mostly_beyond
from bo_robust.utils.input_checks import check_finite
from bo_robust.utils.linalg import all_numbers

BLOCK = 32  # rounds of a graph (:mod:`bo_robust.bandits.captured`)


@dataclass
class TruncatedPosterior:
    """Truncated ridge regression on features of n arms in s trials; :func:`observe` updates it in place."""

    whitening: Whitening  # Whitened features and pull counts
    mean: Tensor  # Estimate of f at every arm, `s x n`
    variance: Tensor  # sigma^2 of every arm, `s x n`
    information_gain: Tensor  # 1/2 log det(I + K / lambda) of the rewards so far, up to the features' accuracy, `s`
    lists: RewardLists  # The rewards
    rule: str  # A key of RULES
    level: Tensor  # b of the last round, `s`
    kernel: ArmKernel | None = None  # The prior covariance, where dictionaries are drawn from it
    drawn: int = 0  # Round after which the features were last replaced

    @property
    def has_blocks(self) -> bool:
        """Whether rounds are the same work: those with dictionaries are not."""
        return self.whitening.table.size is None

    def begin_block(self) -> tuple[int, ...]:
        """As that of :class:`.arms.ArmPosterior`: rounds, entries of a list, and rounds that bound the eigenvalues."""
        bound = self.whitening.most_rounds(1)
        if not self.has_blocks or self.whitening.most_rounds(BLOCK) != bound or self.whitening.refreshes_within(BLOCK):
            return ()
        if self.lists.spare < BLOCK:
            reward_lists.make_room(self.lists, BLOCK)
        return BLOCK, self.lists.table.shape[2], bound

    @property
    def size(self) -> Tensor | None:
        """m_t, the number of arms in the present dictionary, at least 1, ``s``; None where there is none."""
        size = self.whitening.table.size
        return None if size is None else size.clamp(min=1.0).expand_as(self.noise_var)

    @property
    def counts(self) -> Tensor:
        """Number of rewards per arm, ``s x n``."""
        return self.whitening.counts

    @property
    def noise_var(self) -> Tensor:
        """lambda, ``s``."""
        return self.whitening.noise_var


def init(table: FeatureTable, noise_var: Tensor, root: str = "symmetric", rule: str = "zero") -> TruncatedPosterior:
    """The posterior of no rewards.

    ``table`` has the features of the arms and ``noise_var`` (``s``) is lambda > 0. ``root`` is "symmetric"
    (the paper's V^{-1/2}) or "cholesky" (L^{-1}: cheaper, other directions). ``rule`` is what becomes of u y beyond the
    level, a key of :data:`~bo_robust.confidence.truncation.RULES`. Raises ``ValueError`` if features are not finite.
    """
    check_finite("the features of the arms", table.coordinates)
    white = whitening.init(table, noise_var, root)
    variance = white.variance(white.squares())
    mean, gain = torch.zeros_like(variance), torch.zeros_like(noise_var)
    return TruncatedPosterior(white, mean, variance, gain, lists=reward_lists.init(mean), rule=rule, level=gain.clone())


def observe(
    posterior: TruncatedPosterior,
    arms: Tensor,
    rewards: Tensor,
    level: Number,
    new_features: Callable[[Tensor, Tensor], FeatureTable] | None = None,
    level_of: Callable[[Tensor], Number] | None = None,
) -> tuple[Tensor, Tensor]:
    """Observe one reward per trial and truncate all rewards anew at ``level``, in place.

    Args:
        posterior: State before the round.
        arms: ``s`` long.
        rewards: ``s``. A NaN or infinite one is a failed pull and changes nothing of its trial but the level.
        level: b_t > 0, never less than before; with ``level_of`` a floor of all levels to come. A tensor, ``s``, is one
            that :func:`.reward_lists.raise_floor` gave.
        new_features: Returns features that replace the present ones, given the variance before this round and the
            counts after it (``s x n``); None: they stay.
        level_of: Returns b_t, ``s`` or a number, for dictionaries of ``size`` arms.

    Returns:
        Whether the reward was observed, and whether it lost more than half of its weight ||u_t||^2 to truncation,
        counted over the directions; ``s`` bool each.

    Raises:
        ValueError: on a falling level, an arm out of range, or rewards of another shape, dtype or device.
    """
    white = posterior.whitening
    check_pulls(posterior.information_gain, arms, rewards)
    if whitening.reads_data(white):  # five launches on CUDA, where the caller must not err
        arms, rewards = within(arms, rewards, posterior.mean.shape[1])
    if not isinstance(level, Tensor):
        reward_lists.raise_floor(posterior.lists, level)
    # On a GPU the time of a round is that of its launches: these are fewer than with `isfinite` and indices of trials.
    finite = rewards.nan_to_num(0.0, posinf=0.0, neginf=0.0)
    ok, at = finite == rewards, arms.unsqueeze(1)
    weight = ok.to(finite)
    ratio = posterior.variance.gather(1, at).squeeze(1) / white.noise_var
    posterior.information_gain.addcmul_(ratio.log1p_(), weight, value=0.5)
    whitening.count(white, arms, weight)
    reward_lists.insert(posterior.lists, arms, finite, white.counts.gather(1, at).squeeze(1), level)
    if new_features is None:
        whitening.update(white, arms, weight)
    else:
        whitening.replace_features(white, new_features(posterior.variance, white.counts))
        posterior.drawn = white.rounds
    size = posterior.size
    posterior.level = level if isinstance(level, Tensor) else torch.full_like(posterior.level, level)
    if level_of is not None and size is not None:
        posterior.level.copy_(torch.as_tensor(level_of(size)))
    u = refresh(posterior, arms)
    truncated = mostly_beyond(u, finite.unsqueeze(1), posterior.level.view(-1, 1, 1)).squeeze(1)
    return ok & all_numbers(posterior.mean, posterior.variance), truncated


def refresh(posterior: TruncatedPosterior, arms: Tensor) -> Tensor:
    """Recompute mean and variance in place, from the whitened features and the rewards at the last level.

    Returns u_a of one arm per trial (``s``, long), ``s x p x 1``.
    """
    white, lists = posterior.whitening, posterior.lists
    squares = white.squares()
    posterior.variance = white.variance(squares)
    rule = posterior.rule
    if whitening.reads_data(white):
        r = _few_truncated(white, lists, squares.sqrt_(), posterior.level, rule)
        posterior.mean = (r.unsqueeze(1) @ white.white).squeeze(1)
        return white.directions(white.columns(arms))
    # On a GPU every arm in every direction, without a branch or a read-back.
    u = white.white.mT if white.axes is None else white.white.mT @ white.axes.mT
    r = lists.truncated_sums(u, posterior.level.unsqueeze(1), rule).sum(1)
    posterior.mean = (u @ r.unsqueeze(2)).squeeze(2)
    return u.gather(1, arms.view(-1, 1, 1).expand(-1, 1, u.shape[2])).mT


def _few_truncated(white: Whitening, lists: RewardLists, norms: Tensor, level: Tensor, rule: str) -> Tensor:
    """B^T r (``s x k``): plain sums for the arms that lose nothing, the few others one by one.

    |u_ia| <= ||y_a||, so an arm whose largest listed reward times that norm is within the level loses nothing.
    """
    largest, total = lists.largest, lists.total
    touched = norms * largest > level.unsqueeze(1)
    correction: Tensor | float = 0.0
    if touched.any():
        most = int(touched.sum(1).max())
        touched, arms = touched.to(torch.uint8).topk(most, 1)  # the touched arms of a trial, then any others
        columns = white.white.gather(2, arms.unsqueeze(1).expand(-1, white.white.shape[1], -1))
        u = white.directions(columns)
        beyond = u.abs().amax(1) * largest.gather(1, arms) > level.unsqueeze(1)
        trials, slots = (beyond & touched.bool()).nonzero(as_tuple=True)
        if len(trials):
            pairs = trials, arms[trials, slots]
            sums = lists.truncated_sums(u[trials, :, slots], level[trials], rule, pairs)
            r = u.new_zeros(u.shape[:2]).index_add_(0, trials, sums)
            correction = white.in_coordinates(r)
            total = total.index_put(pairs, total.new_zeros(()))
    return (white.white @ total.unsqueeze(2)).squeeze(2) + correction
