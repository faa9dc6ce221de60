"""BBKB: BKB in batches. Within one, the dictionary and the means stay, and only variances shrink.

Calandriello, Carratino, Lazaric, Valko, Rosasco (ICML 2020), Algorithm 1 with its global batch rule: a batch ends once
1 + sum of sigma~^2 at its start, over the arms it pulled, exceeds C; then the dictionary is drawn anew and rewards
enter the mean. Difference from :mod:`bkb`: when the posterior is rebuilt.

Variances are refreshed lazily: within a batch they only fall, so an arm's last computed bound is above its true one,
and only arms whose last bound reaches the refreshed bound of the best candidate can be the argmax. The choice is exact.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from bo_robust.algorithms.base import ArmAlgorithm, Info, Selection, State
from bo_robust.algorithms.bkb import new_dictionary, sparse_width
from bo_robust.algorithms.random_arm import uniform_arms
from bo_robust.features.leverage import padded
from bo_robust.linalg import row_argmax
from bo_robust.random import spread
from bo_robust.schedules import Width
from bo_robust.states import dtc
from bo_robust.states.arms import ArmKernel
from bo_robust.states.dtc import DTCPosterior
from bo_robust.validation import check_positive

__all__ = ["BBKB"]


@dataclass
class BBKBState(State):
    """State with the variances at the start of every batch (``s x n``) and what its pulls have spent of them (``s``).

    ``posterior.variance`` holds, within a batch, the last computed variance of every arm: an upper bound.
    """

    start: Tensor | None = None
    spent: Tensor | None = None
    fresh: bool = True


@dataclass(frozen=True)
class BBKB(ArmAlgorithm):
    """BBKB.

    Args:
        width: Confidence width; :class:`bo_robust.schedules.BKBWidth` times the root of C is the theorem's.
        oversampling: q > 0 on sigma~^2 = variance / lambda, as in :class:`.bkb.BKB`.
        batch_constant: c >= 0: a batch ends once the variances (of f, at its start) of the arms it pulled add up to
            more than c. The paper's C is 1 + c / lambda; c = 0 is BKB, c = k(x, x) lets about one new arm's worth in.
    """

    width: Width
    oversampling: float
    batch_constant: float

    def __post_init__(self) -> None:
        check_positive(oversampling=self.oversampling)
        if not 0.0 <= self.batch_constant < float("inf"):
            raise ValueError(f"batch_constant must be a finite number >= 0, got {self.batch_constant!r}.")

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
        return BBKBState(posterior, start=posterior.variance.clone(), spent=torch.zeros_like(posterior.noise_var))

    def select(self, state: State, uniform: Tensor) -> Selection:
        """The arm of largest upper confidence bound; a uniformly random one in the first round.

        Refreshes variances on the way: ``posterior.variance`` comes closer to what it bounds, nothing else changes.
        """
        assert isinstance(state, BBKBState)
        posterior = state.posterior
        w = sparse_width(state, self.width, uniform)
        if state.round == 0:
            return Selection(uniform_arms(uniform, posterior.counts.shape[1]), w)
        bound = _bound(posterior.mean, posterior.variance, w)
        arms = row_argmax(bound)
        if state.fresh:
            return Selection(arms, w)
        best = _refresh(posterior, arms.unsqueeze(1), w)
        candidates, mask = padded(bound >= best)  # the candidate itself among them: its bound did not rise
        bounds = torch.where(mask, _refresh(posterior, candidates, w), -torch.inf)
        return Selection(candidates.gather(1, row_argmax(bounds).unsqueeze(1)).squeeze(1), w)

    def observe(self, state: State, arms: Tensor, rewards: Tensor, uniform: Tensor | None = None) -> Info:
        """Note the rewards, shrink variances, and where a batch ends rebuild. Reads back whether one does.

        Raises:
            ValueError: if ``uniform`` is missing.
        """
        if uniform is None:
            raise ValueError("observe needs `uniform`, one draw from [0, 1) per trial, to draw a dictionary.")
        assert isinstance(state, BBKBState)
        assert state.start is not None
        assert state.spent is not None
        posterior: DTCPosterior = state.posterior
        ok = dtc.count(posterior, arms, rewards)
        state.round += 1
        state.spent += state.start.gather(1, arms.unsqueeze(1)).squeeze(1) * ok
        over = (state.spent > self.batch_constant) | (state.round == 1)
        if not over.all():
            dtc.downdate(posterior, arms, ok)
            state.fresh = False
        if over.any():
            trials = over.nonzero().squeeze(1)
            uniforms = spread(uniform, state.start.shape[1])
            keep = new_dictionary(posterior, state.start, self.oversampling, uniforms)
            dtc.rebuild(posterior, keep[trials], trials)
            state.start[trials] = posterior.variance[trials]
            state.spent[trials] = 0.0
            state.fresh = bool(over.all())
        return Info(ok)


def _bound(mean: Tensor, variance: Tensor, width: Tensor | float) -> Tensor:
    w = width.unsqueeze(1) if isinstance(width, Tensor) else width
    return variance.sqrt().mul_(w).add_(mean)


def _refresh(posterior: DTCPosterior, arms: Tensor, width: Tensor | float) -> Tensor:
    """Bring the variances of some arms (``s x f``) up to date; their bounds, ``s x f``."""
    trials = torch.arange(arms.shape[0], device=arms.device)
    variance = torch.minimum(dtc.variance_of(posterior, arms, trials), posterior.variance.gather(1, arms))
    posterior.variance.scatter_(1, arms, variance)
    return _bound(posterior.mean.gather(1, arms), variance, width)
