"""Where a dictionary would save nothing: all pulled arms are its points, and the posterior is kept by exact algebra.

With every pulled arm in the dictionary the posterior of :mod:`bo_robust.posteriors.dtc` is the exact one, which
:mod:`bo_robust.posteriors.arms` updates at O(n m) a pull for m distinct arms. A dictionary of r points costs several
times O(n r) even where one changes, so that a draw of more than half of the arms is no saving. More points than drawn
only make the posterior more accurate.
"""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from bo_robust.features.leverage import padded
from bo_robust.posteriors import arms as arm_posteriors
from bo_robust.posteriors import dtc
from bo_robust.posteriors.arms import FIRST_ROWS, ArmPosterior
from bo_robust.posteriors.dtc import DTCPosterior

# With fewer distinct arms than this there is little to save, and the dictionary stays as it was drawn.
LEAST_ARMS = 8
# Beyond, it takes memory that a dictionary is there to save: 32 arms of a million, all that can be pulled of 20,000.
MOST_BYTES = 1 << 28


@dataclass
class Whole:
    """Trials whose dictionary has all their pulled arms."""

    trials: Tensor  # Which trials these are, `s` bool
    number: int = 0  # How many they are
    # Their exact posterior. It is derived and never saved.
    exact: ArmPosterior | None = field(default=None, metadata={"derived": True})
    # Sum of the rewards per arm that it knows, `s x n`
    sums: Tensor | None = field(default=None, metadata={"derived": True})


def init(posterior: DTCPosterior) -> Whole:
    """No trial."""
    return Whole(torch.zeros_like(posterior.noise_var, dtype=torch.bool))


def redraw(posterior: DTCPosterior, whole: Whole, keep: Tensor, trials: Tensor) -> None:
    """As :func:`.dtc.redraw`, but with all pulled arms in the dictionaries that would have more than half of them."""
    p, before = posterior, whole.trials.clone()
    past = p.counts[dtc.index_of(p, trials)].bool()
    pulled = past.sum(1)
    s, n = p.mean.shape
    fits = s * n * (int(pulled.max()) + FIRST_ROWS) * p.mean.element_size() <= MOST_BYTES
    whole.trials[trials] = (2 * keep.sum(1) > pulled) & (pulled >= LEAST_ARMS) & fits
    chosen, whole.number = whole.trials[trials], int(whole.trials.sum())
    if not whole.number:
        whole.exact = whole.sums = None
    if bool(chosen.any()):
        newly = bool((whole.trials & ~before).any())
        exact, index = present(p, whole, newly), dtc.index_of(p, trials[chosen])
        p.mean[index], p.variance[index], p.dictionary[index] = exact.mean[index], exact.variance[index], past[chosen]
        dtc.learnt(p, index)
    if not bool(chosen.all()):
        # Factors from before the trial was whole fit nothing.
        p.changes[before] = dtc.MAX_CHANGES
        dtc.redraw(p, keep[~chosen], trials[~chosen])


def observe(whole: Whole, arms: Tensor, rewards: Tensor, ok: Tensor) -> None:
    """Take in rewards (``s``) that :func:`.dtc.count` has noted (``ok``, ``s`` bool) in the trials that are whole."""
    if whole.number and whole.exact is not None:
        assert whole.sums is not None
        counts = (ok & whole.trials).to(rewards)
        arm_posteriors.observe(whole.exact, arms, rewards, counts)
        whole.sums.scatter_add_(1, arms.unsqueeze(1), torch.where(counts > 0, rewards, 0.0).unsqueeze(1))


def present(posterior: DTCPosterior, whole: Whole, newly: bool = False) -> ArmPosterior:
    """The exact posterior of the trials that are whole; those of the others are of no use.

    ``newly`` says that some became whole since it was last asked for: their rewards are then taken in.
    """
    p, newly = posterior, newly or whole.exact is None
    if whole.exact is None:
        s, n = p.mean.shape
        rounds = None if p.mean.is_cuda else n  # memory is taken only as it is used
        whole.exact = arm_posteriors.init(p.kernel, p.noise_var, s, rounds=rounds, dense=False)
        whole.sums = torch.zeros_like(p.sums)
    if not newly:
        return whole.exact
    assert whole.sums is not None
    arms, is_new = padded((p.counts > whole.exact.counts) & whole.trials.unsqueeze(1))
    for arm, new in zip(arms.unbind(1), is_new.unbind(1), strict=True):
        place = arm.unsqueeze(1)
        counts = (p.counts.gather(1, place) - whole.exact.counts.gather(1, place)).squeeze(1) * new
        sums = (p.sums.gather(1, place) - whole.sums.gather(1, place)).squeeze(1) * new
        if bool(new.any()):
            arm_posteriors.observe(whole.exact, arm, sums / counts.clamp(min=1.0), counts)
        whole.sums.scatter_add_(1, place, sums.unsqueeze(1))
    return whole.exact
