"""BBKB: BKB in batches. Within a batch the dictionary and the means stay, and only variances shrink.

Calandriello, Carratino, Lazaric, Valko, Rosasco (ICML 2020), Algorithm 1 with its global batch rule. A batch ends once
1 + sum of sigma~^2 at its start, over the arms it pulled, exceeds C. Then a new dictionary is drawn and the rewards
enter the mean. Within a batch, variances are computed only for arms that can be chosen (:mod:`.shortlist`); a single
trial over a matrix keeps those of all arms. The choice is exact. Difference from :mod:`bkb`: when the posterior is
rebuilt.

A dictionary saves time where arms are pulled again. Where nearly every pull is a new arm, take :class:`.GPUCB`, whose
exact posterior is then cheaper.
"""

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor

from bo_robust.bandits.base import Info, Selection, State, uniform_arms
from bo_robust.bandits.bkb import new_dictionary, sparse_width
from bo_robust.bandits.feature_space import FeatureSpaceAlgorithm
from bo_robust.bandits.gp_ucb import largest_bound
from bo_robust.bandits.posteriors import dtc
from bo_robust.bandits.posteriors.arms import ArmKernel
from bo_robust.bandits.posteriors.dtc import DTCPosterior
from bo_robust.bandits.shortlist import (
    SHORTLIST_SIZE,
    Shortlist,
    best_of,
    check_batch_constant,
    empty_shortlist,
    largest_bounds,
)
from bo_robust.confidence import Width
from bo_robust.utils.input_checks import check_oversampling
from bo_robust.utils.linalg import all_numbers
from bo_robust.utils.random import spread


@dataclass
class BBKBState(State):
    """State of BBKB; mean and variance of the posterior are those of the start of the batch."""

    spent: Tensor | None = None  # Sum of the variances, at the start of the batch, of the arms it pulled, `s`
    shortlist: Shortlist | None = None  # Shortlist of this batch, its variances the present ones
    features: Tensor | None = None  # F k_D(x) of the arms listed, `s x K x r`: what lowers their variances


@dataclass(frozen=True)
class BBKB(FeatureSpaceAlgorithm):
    """BBKB.

    Args:
        width: Confidence width; the theorem uses :class:`bo_robust.confidence.BKBWidth` times the root of C.
        oversampling: As in :class:`.bkb.BKB`.
        batch_constant: c >= 0. A batch ends once the variances (of f, at its start) of the arms it pulled add up to
            more than c. The paper's C is 1 + c / lambda; c = 0 is BKB, c = k(x, x) admits about one new arm.
    """

    records: ClassVar[frozenset[str]] = frozenset({"dictionary"})

    width: Width
    oversampling: float
    batch_constant: float

    def __post_init__(self) -> None:
        super().__post_init__()
        check_oversampling(self.oversampling)
        check_batch_constant(self.batch_constant)

    def _start(self, kernel: ArmKernel, noise_var: Tensor) -> State:
        posterior = dtc.init(kernel, noise_var, len(noise_var))
        return BBKBState(
            posterior,
            spent=torch.zeros_like(noise_var),
            shortlist=empty_shortlist(noise_var, min(kernel.num_arms, SHORTLIST_SIZE)),
        )

    def select(self, state: State, uniform: Tensor) -> Selection:
        """Choose the arm of largest upper confidence bound; a uniformly random one in the first round.

        This may renew the shortlist and refresh its variances. Nothing else in the state changes.
        """
        assert isinstance(state, BBKBState)
        posterior = state.posterior
        w = sparse_width(state, self.width, uniform)
        if state.round == 0:
            return Selection(uniform_arms(uniform, posterior.counts.shape[1]), w)
        if posterior.ahead is None:  # every trial at the start of a batch
            return Selection(largest_bound(posterior.mean, posterior.variance, w), w)
        assert state.shortlist is not None
        listed = state.shortlist
        width = torch.as_tensor(w).to(posterior.noise_var).expand_as(posterior.noise_var)
        arms, sure = listed.best(width)
        if not sure.all():
            trials = (~sure).nonzero().squeeze(1)
            arms[trials] = _look_again(state, trials, width[trials])
        return Selection(arms, w)

    def observe(self, state: State, arms: Tensor, rewards: Tensor, uniform: Tensor | None = None) -> Info:
        """Note the rewards and shrink variances; rebuild the trials whose batch ends. The host reads back which do."""
        if uniform is None:
            raise ValueError("observe needs `uniform`, one draw from [0, 1) per trial, to draw a dictionary.")
        assert isinstance(state, BBKBState)
        assert state.spent is not None
        assert state.shortlist is not None
        posterior: DTCPosterior = state.posterior
        ok = dtc.count(posterior, arms, rewards)
        state.round += 1
        state.spent += posterior.variance.gather(1, arms.unsqueeze(1)).squeeze(1) * ok
        # The first reward always ends a batch: until then the dictionary is empty.
        over = state.spent > self.batch_constant if state.round > 1 else torch.ones_like(ok)
        ended = over.tolist()
        if not all(ended):
            # Trials whose batch is over change here too; redraw then replaces what they have.
            change = dtc.downdate(posterior, arms, ok)
            if state.features is not None:
                state.features = dtc.lower(state.features, state.shortlist.variance, change, posterior.noise_var)
        if any(ended):
            trials = over.nonzero().squeeze(1)
            keep = new_dictionary(posterior, self.oversampling, spread(uniform, posterior.counts.shape[1]))
            dtc.redraw(posterior, keep[trials], trials)
            ok = ok & all_numbers(posterior.mean, posterior.variance)
            state.spent[trials] = 0.0
            state.shortlist.forget(trials)
            if all(ended):
                state.features = None
        return Info(ok)


def _look_again(state: BBKBState, trials: Tensor, width: Tensor) -> Tensor:
    """Choose the best of all arms in some trials, and renew their shortlists."""
    assert state.shortlist is not None
    posterior = state.posterior
    # Variances of the start of the batch, or of the last shortlist, are at least the present ones.
    mean, variance = posterior.mean[trials], posterior.variance[trials]
    known = state.shortlist.take(trials)
    variance.scatter_(
        1, known.arms, torch.where(known.valid.unsqueeze(1), known.variance, variance.gather(1, known.arms))
    )
    size = state.shortlist.arms.shape[1]
    chosen, features = _present(posterior, largest_bounds(mean, variance, width, size), trials)
    arms, sure = chosen.best(width)
    # With all arms listed nothing is outside: the second choice is certain.
    if not sure.all():
        variance.scatter_(1, chosen.arms, chosen.variance)
        everything = largest_bounds(mean, variance, width, variance.shape[1])
        arms, _, _ = best_of(everything, width, partial(dtc.variance_of, posterior, trials=trials))
        # The arms are in ascending order, so the variances that best_of refreshed are still those of arms 0, 1, ...
        chosen, features = _present(posterior, largest_bounds(mean, everything.variance, width, size), trials)
    state.shortlist.put(trials, chosen)
    s, (_, K, r) = len(posterior.noise_var), features.shape
    if state.features is None or state.features.shape[2] < r:
        old = state.features
        state.features = features.new_zeros(s, K, r)
        if old is not None:
            state.features[:, :, : old.shape[2]] = old
    state.features[trials] = features
    return arms


def _present(posterior: DTCPosterior, shortlist: Shortlist, trials: Tensor) -> tuple[Shortlist, Tensor]:
    """The shortlist of some trials with its present variances, and the features of its arms."""
    variance, features = dtc.variance_and_features(posterior, shortlist.arms, trials)
    shortlist.variance = torch.minimum(variance, shortlist.variance)
    return shortlist, features
