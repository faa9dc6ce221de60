"""BBKB: BKB in batches. Within a batch the dictionary and the means stay, and only variances shrink.

Calandriello, Carratino, Lazaric, Valko, Rosasco (ICML 2020), Algorithm 1 with its global batch rule. A batch ends once
1 + sum of sigma~^2 at its start, over the arms it pulled, exceeds C. Then a new dictionary is drawn and the rewards
enter the mean. Within a batch, variances are kept only of arms that can be chosen (:mod:`.shortlist`). The choice is
exact. Difference from :mod:`bkb`: when the posterior is rebuilt.

A dictionary saves time where arms are pulled again. Where nearly every pull is a new arm, take :class:`.GPUCB`, whose
exact posterior is then cheaper.
"""

import math
from dataclasses import dataclass, field
from typing import Any, ClassVar

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
from bo_robust.utils.linalg import all_numbers, on_cuda, row_argmax


@dataclass
class BBKBState(State):
    """State of BBKB; mean and variance of the posterior are those of the start of the batch."""

    shortlist: Shortlist = field(kw_only=True)  # Shortlist of this batch
    # The arms chosen last and their rows of the shortlist, if no batch ends with them
    chosen: tuple[Tensor, Tensor] | None = None


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
        posterior, shortlist = state.posterior, state.shortlist
        state.chosen = None
        w = sparse_width(state, self.width, uniform)
        if state.round == 0:
            return Selection(uniform_arms(uniform, posterior.counts.shape[1]), w)
        if posterior.ahead is None:  # every trial at the start of a batch
            return Selection(largest_bound(posterior.mean, posterior.variance, w), w)
        places = largest_bound(shortlist.mean, shortlist.variance, w).unsqueeze(1)
        arms = shortlist.arms.gather(1, places).squeeze(1)
        pull = shortlist.pulls.gather(1, places.unsqueeze(2).expand(-1, -1, shortlist.pulls.shape[2])).squeeze(1)
        spent = (posterior.spent + pull[:, COSTS - 1]).tolist()  # the one wait for a GPU in most rounds
        if all(after <= self.batch_constant for after in spent):
            state.chosen = arms, pull
        elif math.inf in spent:
            trials = torch.tensor([i for i, after in enumerate(spent) if after == math.inf], device=arms.device)
            width = torch.as_tensor(w).to(posterior.noise_var).expand_as(posterior.noise_var)
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
            ok, features = dtc.note(posterior, arms, rewards, chosen[1])
            rank = posterior.points.shape[1]  # the list has columns for the largest dictionary so far
            state.shortlist.lower(*dtc.downdate(posterior, features[:, :rank]))
            return Info(ok)
        arms, rewards = within(arms, rewards, posterior.counts.shape[1])
        ok, _ = dtc.note(posterior, arms, rewards, dtc.costs_of(posterior, arms.unsqueeze(1)).squeeze(1))
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
