"""BBKB: BKB in batches. Within one, the dictionary and the means stay, and only variances shrink.

Calandriello, Carratino, Lazaric, Valko, Rosasco (ICML 2020), Algorithm 1 with its global batch rule: a batch ends once
1 + sum of sigma~^2 at its start, over the arms it pulled, exceeds C; then the dictionary is drawn anew and rewards
enter the mean. Difference from :mod:`bkb`: when the posterior is rebuilt.

Within a batch variances are computed only where they can matter (:mod:`.candidates`); the choice is exact.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from bo_robust.algorithms.base import ArmAlgorithm, Info, Selection, State
from bo_robust.algorithms.bkb import new_dictionary, sparse_width
from bo_robust.algorithms.candidates import CANDIDATES, Candidates, check_batch_constant, choose, none_yet, of_bounds
from bo_robust.algorithms.random_arm import uniform_arms
from bo_robust.features.leverage import check_oversampling
from bo_robust.linalg import row_argmax
from bo_robust.random import spread
from bo_robust.schedules import Width
from bo_robust.states import dtc
from bo_robust.states.arms import ArmKernel
from bo_robust.states.dtc import DTCPosterior

__all__ = ["BBKB"]


@dataclass
class BBKBState(State):
    """State of BBKB. ``posterior.mean`` and ``posterior.variance`` are those of the start of the batch.

    Attributes:
        spent: Variances, at the start of the batch, of the arms it pulled, ``s``.
        candidates: Of the present batch.
    """

    spent: Tensor | None = None
    candidates: Candidates | None = None


@dataclass(frozen=True)
class BBKB(ArmAlgorithm):
    """BBKB.

    Args:
        width: Confidence width; :class:`bo_robust.schedules.BKBWidth` times the root of C is the theorem's.
        oversampling: q >= 1 on sigma~^2 = variance / lambda, as in :class:`.bkb.BKB`.
        batch_constant: c >= 0: a batch ends once the variances (of f, at its start) of the arms it pulled add up to
            more than c. The paper's C is 1 + c / lambda; c = 0 is BKB, c = k(x, x) lets about one new arm's worth in.
    """

    width: Width
    oversampling: float
    batch_constant: float

    def __post_init__(self) -> None:
        check_oversampling(self.oversampling)
        check_batch_constant(self.batch_constant)

    def init(
        self,
        kernel: ArmKernel,
        noise_var: float | Tensor,
        trials: int = 1,
        *,
        prior_mean: Tensor | None = None,
        rounds: int | None = None,
    ) -> State:
        """State before any reward; ``rounds`` is not used.

        Raises:
            ValueError: on a prior mean, a noise variance <= 0 or no trials.
        """
        if prior_mean is not None:
            raise ValueError("BBKB has prior mean zero: subtract prior_mean from the rewards instead.")
        posterior = dtc.init(kernel, noise_var, trials)
        noise_var = posterior.noise_var
        return BBKBState(
            posterior,
            spent=torch.zeros_like(noise_var),
            candidates=none_yet(noise_var, min(kernel.num_arms, CANDIDATES)),
        )

    def select(self, state: State, uniform: Tensor) -> Selection:
        """The arm of largest upper confidence bound; a uniformly random one in the first round.

        Chooses the candidates of a batch on the way, and refreshes their variances; nothing else changes.
        """
        assert isinstance(state, BBKBState)
        posterior = state.posterior
        w = sparse_width(state, self.width, uniform)
        if state.round == 0:
            return Selection(uniform_arms(uniform, posterior.counts.shape[1]), w)
        width = torch.as_tensor(w).to(posterior.noise_var).expand_as(posterior.noise_var)
        if posterior.ahead is None:  # every trial at the start of a batch
            bound = posterior.variance.sqrt().mul_(width.unsqueeze(1)).add_(posterior.mean)
            return Selection(row_argmax(bound), w)
        assert state.candidates is not None
        arms = posterior.noise_var.new_zeros(len(width), dtype=torch.long)
        sure = torch.zeros_like(arms, dtype=torch.bool)
        if len(trials := state.candidates.valid.nonzero().squeeze(1)):
            known = state.candidates.of(trials)
            places, _, sure[trials] = choose(known, width[trials], partial(dtc.variance_of, posterior, trials=trials))
            state.candidates.variance[trials] = known.variance
            arms[trials] = known.arms.gather(1, places.unsqueeze(1)).squeeze(1)
        if len(trials := (~sure).nonzero().squeeze(1)):
            arms[trials] = _look_again(state, trials, width[trials])
        return Selection(arms, w)

    def observe(self, state: State, arms: Tensor, rewards: Tensor, uniform: Tensor | None = None) -> Info:
        """Note the rewards, shrink variances, and where a batch ends rebuild. Reads back whether one does.

        Raises:
            ValueError: if ``uniform`` is missing.
        """
        if uniform is None:
            raise ValueError("observe needs `uniform`, one draw from [0, 1) per trial, to draw a dictionary.")
        assert isinstance(state, BBKBState)
        assert state.spent is not None
        assert state.candidates is not None
        posterior: DTCPosterior = state.posterior
        ok = dtc.count(posterior, arms, rewards)
        state.round += 1
        state.spent += posterior.variance.gather(1, arms.unsqueeze(1)).squeeze(1) * ok
        over = (state.spent > self.batch_constant) | (state.round == 1)
        if not over.all():
            dtc.downdate(posterior, arms, ok)
        if over.any():
            trials = over.nonzero().squeeze(1)
            uniforms = spread(uniform, posterior.counts.shape[1])
            keep = new_dictionary(posterior, posterior.variance, self.oversampling, uniforms)
            dtc.redraw(posterior, keep[trials], trials)
            state.spent[trials] = 0.0
            state.candidates.forget(trials)
        return Info(ok)


def _look_again(state: BBKBState, trials: Tensor, width: Tensor) -> Tensor:
    """The best of all arms of some trials, and new candidates."""
    assert state.candidates is not None
    posterior = state.posterior
    mean, variance = posterior.mean[trials], posterior.variance[trials]
    known = state.candidates.of(trials)
    variance.scatter_(
        1, known.arms, torch.where(known.valid.unsqueeze(1), known.variance, variance.gather(1, known.arms))
    )
    present = partial(dtc.variance_of, posterior, trials=trials)
    most = state.candidates.arms.shape[1]
    chosen = of_bounds(mean, variance, width, most)
    places, _, sure = choose(chosen, width, present)
    arms = chosen.arms.gather(1, places.unsqueeze(1)).squeeze(1)
    if not sure.all():
        variance.scatter_(1, chosen.arms, chosen.variance)
        everything = of_bounds(mean, variance, width, variance.shape[1])
        arms, _, _ = choose(everything, width, present)
        chosen = of_bounds(mean, everything.variance, width, most)
    state.candidates.put(trials, chosen)
    return arms
