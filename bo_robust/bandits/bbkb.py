"""BBKB: BKB in batches. Within a batch the dictionary and the means stay, and only variances shrink.

Calandriello, Carratino, Lazaric, Valko, Rosasco (ICML 2020), Algorithm 1 with its global batch rule. A batch ends once
1 + sum of sigma~^2 at its start, over the arms it pulled, exceeds C. Then a new dictionary is drawn and the rewards
enter the mean. Within a batch, variances are kept only of arms that can be chosen (:mod:`.shortlist`). The choice is
exact. Difference from :mod:`bkb`: when the posterior is rebuilt.

A dictionary saves memory. Up to some 10^5 arms, and where nearly every pull is a new arm, :class:`.GPUCB`, whose
posterior is exact, is faster (``benchmarks.speed dictionaries_exact``).
"""

import math
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from bo_robust.bandits.base import ArmAlgorithm, Info, Selection, State, checked_state, uniform_arms
from bo_robust.bandits.bkb import new_dictionary, sparse_width
from bo_robust.bandits.gp_ucb import largest_bound
from bo_robust.bandits.posteriors import dtc
from bo_robust.bandits.posteriors.arms import ArmKernel, check_pulls, within
from bo_robust.bandits.posteriors.dtc import DTCPosterior
from bo_robust.bandits.shortlist import (
    COSTS,
    OUTSIDE,
    SHORTLIST_SIZE,
    Shortlist,
    empty_shortlist,
    largest_bounds,
    shortlist_of,
)
from bo_robust.confidence import Width
from bo_robust.utils.input_checks import Nonnegative, Oversampling
from bo_robust.utils.linalg import all_numbers, are_few, on_cuda, row_argmax


@dataclass
class BBKBState(State):
    """State of BBKB; mean and variance of the posterior are those of the start of the batch."""

    shortlist: Shortlist = field(kw_only=True)  # Shortlist of this batch
    # The arms chosen last and their rows of the shortlist (of few trials: places), if no batch ends with them
    chosen: tuple[Tensor, Tensor | list[int]] | None = None


@dataclass(frozen=True)
class BBKB(ArmAlgorithm):
    """BBKB.

    Args:
        width: Confidence width; the theorem uses :class:`bo_robust.confidence.BKBWidth` times the root of C.
        oversampling: As in :class:`.bkb.BKB`.
        batch_constant: c >= 0. A batch ends once the variances (of f, at its start) of the arms it pulled add up to
            more than c. The paper's C is 1 + c / lambda; c = 0 is BKB, c = k(x, x) admits about one new arm.
    """

    records: ClassVar[frozenset[str]] = frozenset({"dictionary"})
    takes_prior_mean: ClassVar[bool] = False

    width: Width
    oversampling: Oversampling
    batch_constant: Nonnegative

    def prior(self, kernel: ArmKernel, noise_var: float | Tensor, trials: int, **_: Any) -> DTCPosterior:
        """As :func:`bo_robust.bandits.posteriors.dtc.init`."""
        return dtc.init(kernel, noise_var, trials)

    def start(self, posterior: DTCPosterior) -> State:
        """Make the state around a fresh posterior, with void shortlists."""
        noise_var, n = posterior.noise_var, posterior.kernel.num_arms
        # A list costs time by its length every round, and by n when it is left (measured on one thread). On CUDA it
        # costs launches, of which the short one takes more.
        size = min(SHORTLIST_SIZE, n if on_cuda(noise_var) else max(64, n // 64))
        return BBKBState(posterior, shortlist=empty_shortlist(noise_var, min(n, size)))

    def select(self, state: State, uniform: Tensor) -> Selection:
        """Choose the arm of largest upper confidence bound; a uniformly random one in the first round.

        This may renew the shortlist. Nothing else in the state changes. Do not write to the arms returned:
        if :meth:`observe` gets this very tensor, it need not ask the device whether a batch ends.
        """
        state = checked_state(state, BBKBState, DTCPosterior)
        posterior: DTCPosterior = state.posterior
        state.chosen = None
        w = sparse_width(state, self.width, uniform)
        if state.round == 0:
            return Selection(uniform_arms(uniform, posterior.counts.shape[1]), w)
        if posterior.ahead is None:  # every trial at the start of a batch
            return Selection(largest_bound(posterior.mean, posterior.variance, w), w)
        arms, chosen, spent = (_chosen_of_few if are_few(posterior.noise_var) else _chosen)(state, w)
        if all(after <= self.batch_constant for after in spent):
            state.chosen = arms, chosen
        elif math.inf in spent:
            trials = torch.tensor([i for i, after in enumerate(spent) if after == math.inf], device=arms.device)
            width = torch.as_tensor(w, device=arms.device).to(posterior.noise_var).expand_as(posterior.noise_var)
            arms[trials] = _look_again(state, trials, width[trials])
        return Selection(arms, w)

    def observe(self, state: State, arms: Tensor, rewards: Tensor, uniform: Tensor | None = None) -> Info:
        """Note the rewards and shrink variances; rebuild the trials whose batch ends."""
        if uniform is None:
            raise ValueError("observe needs `uniform`, one draw from [0, 1) per trial, to draw a dictionary.")
        state = checked_state(state, BBKBState, DTCPosterior)
        posterior: DTCPosterior = state.posterior
        check_pulls(posterior.noise_var, arms, rewards)
        chosen, state.chosen = state.chosen, None
        if chosen is not None and arms is chosen[0]:
            state.round += 1
            if isinstance(chosen[1], list):
                return Info(_observe_few(state, arms, rewards, chosen[1]))
            ok, features = dtc.note(posterior, arms, rewards, chosen[1])
            rank = posterior.points.shape[1]  # the list has columns for the largest dictionary so far
            state.shortlist.lower(*dtc.downdate(posterior, features[:, :rank]))
            return Info(ok)
        arms, rewards = within(arms, rewards, posterior.counts.shape[1])
        ok = dtc.count(posterior, arms, rewards)
        state.round += 1
        # The first reward always ends a batch: until then the dictionary is empty.
        over = (posterior.spent > self.batch_constant) | (state.round == 1)
        if not over.all():
            # Trials whose batch is over change here too; redraw then replaces what they have.
            state.shortlist.lower(*dtc.downdate(posterior, dtc.features_of_pulls(posterior, arms, ok)))
        if over.any():
            trials = over.nonzero().squeeze(1)
            keep = new_dictionary(posterior, self.oversampling, uniform)
            dtc.redraw(posterior, keep[trials], trials)
            ok = ok & all_numbers(posterior.mean, posterior.variance)
            state.shortlist.forget(trials, posterior.points.shape[1])
        return Info(ok)


def _chosen(state: BBKBState, w: Tensor | float) -> tuple[Tensor, Tensor, list[float]]:
    """The arms of largest bound in the shortlist, their rows, and :attr:`.DTCPosterior.spent` after them."""
    shortlist = state.shortlist
    places = largest_bound(shortlist.mean, shortlist.variance, w).unsqueeze(1)
    pull = shortlist.pulls.gather(1, places.unsqueeze(2).expand(-1, -1, shortlist.pulls.shape[2])).squeeze(1)
    spent = (state.posterior.spent + pull[:, COSTS - 1]).tolist()  # the one wait for a GPU in most rounds
    return shortlist.arms.gather(1, places).squeeze(1), pull, spent


def _chosen_of_few(state: BBKBState, w: Tensor | float) -> tuple[Tensor, list[int], list[float]]:
    """As :func:`_chosen`, with places for rows. The arms are a copy, as the shortlist is written in place."""
    arms, pulls, pulled = (x.numpy() for x in (state.shortlist.arms, state.shortlist.pulls, state.posterior.pulled))
    places: list[int] = largest_bound(state.shortlist.mean, state.shortlist.variance, w).tolist()
    spent = [pulled.item(i, 1) + pulls.item(i, place, COSTS - 1) for i, place in enumerate(places)]
    return torch.from_numpy(np.array([arms.item(i, place) for i, place in enumerate(places)])), places, spent


def _observe_few(state: BBKBState, arms: Tensor, rewards: Tensor, places: list[int]) -> Tensor:
    """Within a batch, note the rewards of few trials on a CPU and shrink variances, one by one in NumPy."""
    p, shortlist = state.posterior, state.shortlist
    (sums, counts), ok = p.totals.numpy(), []
    parts = p.noise_var, p.pulled, p.ahead, shortlist.pulls, shortlist.variance
    given = zip(arms.tolist(), rewards.tolist(), places, *(x.numpy() for x in parts), strict=True)
    for i, (arm, reward, place, noise_var, pulled, ahead, pulls, variance) in enumerate(given):
        ok.append(math.isfinite(reward))
        if ok[i]:
            sums[i, arm] += reward
            counts[i, arm] += 1.0
            pulled += pulls[place, 1:COSTS]
            features = pulls[:, COSTS : COSTS + len(ahead)]
            z = features[place]
            h = ahead.dot(z)
            h /= math.sqrt(z.dot(h) + noise_var)
            ahead -= h[:, None] * h
            along = features.dot(h)
            along *= along
            variance -= along
            np.maximum(variance, 0.0, out=variance)
    return torch.from_numpy(np.array(ok))


def _look_again(state: BBKBState, trials: Tensor, width: Tensor) -> Tensor:
    """Choose the best of all arms in some trials, and renew their shortlists."""
    posterior, shortlist = state.posterior, state.shortlist
    size = shortlist.arms.shape[1] - OUTSIDE
    # Variances of the start of the batch, or of the last shortlist, are at least the present ones.
    mean, variance = posterior.mean[trials], posterior.variance[trials]
    arms, valid = shortlist.arms[trials, OUTSIDE:], shortlist.mean[trials, :1] < torch.inf
    variance.scatter_(1, arms, torch.where(valid, shortlist.variance[trials, OUTSIDE:], variance.gather(1, arms)))

    def look(size: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        arms, outside, outside_sd = largest_bounds(mean, variance, width, size)
        present = torch.minimum(dtc.variance_of(posterior, arms, trials), variance.gather(1, arms))
        variance.scatter_(1, arms, present)
        return arms, present, outside, outside_sd

    looked = size
    while True:
        arms, present, outside, outside_sd = look(looked)
        bound = mean.gather(1, arms).addcmul_(present.sqrt(), width.unsqueeze(1))
        places = row_argmax(bound).unsqueeze(1)
        # With all arms listed nothing is outside: that choice is certain.
        if (bound.gather(1, places).squeeze(1) > outside).all() or looked >= variance.shape[1]:
            break
        looked *= 8
    best = arms.gather(1, places).squeeze(1)
    if looked > size:
        arms, present, outside, outside_sd = look(size)
    pulls = torch.cat([dtc.costs_of(posterior, arms, trials), dtc.features_of(posterior, arms, trials)], 2)
    new = shortlist_of(arms, mean.gather(1, arms), present, pulls, outside, outside_sd, width)
    shortlist.put(trials, new)
    return best
