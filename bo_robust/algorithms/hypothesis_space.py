"""What algorithms over a finite set U of hypotheses share: start, widths, and upper bounds under all of them.

A hypothesis is a kernel matrix, a prior mean and a noise variance (:mod:`bo_robust.states.hypotheses`). ``init`` of
these algorithms takes, as :func:`bo_robust.states.hypotheses.stretch`, a kernel of ``h x n x n`` matrices
(:func:`bo_robust.states.hypotheses.candidate_kernel`) or one for all, and a prior mean of ``h x n`` or ``n``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from bo_robust.algorithms.base import ArmAlgorithm, Info, Selection, State
from bo_robust.algorithms.bbkb import BBKB
from bo_robust.algorithms.bkb import BKB
from bo_robust.linalg import row_argmax
from bo_robust.schedules import BKBWidth, RKHSWidth, SelfNormalisedWidth, Width
from bo_robust.states import arms as arm_states
from bo_robust.states import hypotheses
from bo_robust.states.arms import ArmKernel
from bo_robust.states.dictionary import NystromDictionary
from bo_robust.states.hypotheses import HypothesisPosterior

__all__ = [
    "HypothesisAlgorithm",
    "HypothesisSelection",
    "Widths",
    "alive_only",
    "begin",
    "check_base",
    "of_leader",
    "select_under",
    "take_in",
    "upper_bounds",
    "width_of",
]

Widths = Width | tuple[Width, ...]
"""One width for all hypotheses, which is handed the information gain of each, or one per hypothesis."""


@dataclass(frozen=True)
class HypothesisSelection(Selection):
    """What to pull next, and who says so; ``width`` is that of the leader (:class:`HypothesisPosterior`).

    Attributes:
        hypothesis: u_t, index in U, ``s`` long; None for rules that mix them.
    """

    hypothesis: Tensor | None = None


def begin(
    width: Widths,
    kernel: ArmKernel,
    noise_var: float | Tensor,
    trials: int,
    prior_mean: Tensor | None,
    rounds: int | None,
    base: ArmAlgorithm | None = None,
) -> HypothesisPosterior:
    """All hypotheses, no rewards: the exact posterior, or that of ``base``.

    Raises:
        ValueError: on an empty U, widths or parts of hypotheses that do not agree in number, k(x, x) > 1 with a width
            of a norm bound, which assumes k(x, x) <= 1, and as ``init`` of the posterior.
    """
    prior = hypotheses.stretch(kernel, noise_var, trials, prior_mean)
    h = prior.hypotheses
    if isinstance(width, tuple) and len(width) != h:
        raise ValueError(f"{len(width)} widths for {h} hypotheses; give one width, or one per hypothesis.")
    largest = float(kernel.diagonal.max())
    needs_one = any(isinstance(w, RKHSWidth | SelfNormalisedWidth) for w in _each(width))
    if needs_one and largest > 1.0 + 1e-6:
        raise ValueError(
            f"k(x, x) goes up to c = {largest:.4g}, and a width by norm bound assumes k(x, x) <= 1. Divide the kernels "
            "and noise_var by c, rewards, prior means and the noise scale R by sqrt(c); the norm bound B stays."
        )
    if any(isinstance(w, BKBWidth) for w in _each(width)) and not isinstance(base, BKB | BBKB):
        raise ValueError("BKBWidth is for BKB and BBKB: give one of them as base, or another width.")
    keywords = {"prior_mean": prior.prior_mean, "rounds": rounds}
    if base is None:
        flat = arm_states.init(prior.kernel, prior.noise_var, trials * h, **keywords)  # type: ignore[arg-type]
        return hypotheses.over(flat, h)
    return hypotheses.over(base.init(prior.kernel, prior.noise_var, trials * h, **keywords), h)  # type: ignore[arg-type]


def take_in(
    posterior: HypothesisPosterior, arms: Tensor, rewards: Tensor, uniform: Tensor | None, base: ArmAlgorithm | None
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """:func:`bo_robust.states.hypotheses.observe`, by ``base`` where there is one."""
    if base is None:
        return hypotheses.observe(posterior, arms, rewards)
    shape = posterior.alive.shape
    everyone = None if uniform is None else uniform.unsqueeze(1).expand(shape).reshape(-1)

    def by_base(state: State, arms: Tensor, rewards: Tensor) -> Tensor:
        return base.observe(state, arms, rewards, everyone).ok

    return hypotheses.observe(posterior, arms, rewards, by_base, base.seen)


def width_of(width: Widths, posterior: HypothesisPosterior, t: int, uniform: Tensor | None) -> Tensor | float:
    """w^u_t, ``s x h`` or a number; :class:`BKBWidth` is handed sum sigma~^2 where others get the information gain."""
    column = None if uniform is None else uniform.unsqueeze(1)
    if not isinstance(width, tuple):
        return width(t, _known(width, posterior), column)
    values = []
    for u, w in enumerate(width):
        known = _known(w, posterior)[:, u : u + 1]
        values.append(torch.as_tensor(w(t, known, column)).to(known).expand_as(known))
    return torch.cat(values, 1)


def _known(width: Width, posterior: HypothesisPosterior) -> Tensor:
    """What the width is handed of every hypothesis, ``s x h``."""
    if isinstance(width, BKBWidth):
        return posterior.flat.effective_dimension.view(posterior.alive.shape)
    return posterior.gains


def upper_bounds(posterior: HypothesisPosterior, w: Tensor | float) -> Tensor:
    """mu + w sigma of every hypothesis and arm, ``s x h x n``."""
    return posterior.variances.sqrt().mul_(w.unsqueeze(2) if isinstance(w, Tensor) else w).add_(posterior.means)


def of_leader(posterior: HypothesisPosterior, w: Tensor | float) -> Tensor | float:
    """The leader's width, ``s`` or a number."""
    return posterior.of(posterior.leader, w.expand(posterior.alive.shape)) if isinstance(w, Tensor) else w


def select_under(state: State, width: Widths, hypothesis: Tensor, uniform: Tensor) -> HypothesisSelection:
    """GP-UCB under one hypothesis per trial (``s`` long)."""
    posterior: HypothesisPosterior = state.posterior
    w = width_of(width, posterior, state.round + 1, uniform)
    own = posterior.of(hypothesis, w.expand(posterior.alive.shape)) if isinstance(w, Tensor) else w
    sd = posterior.of(hypothesis, posterior.variances).sqrt_()
    bound = sd.mul_(own.unsqueeze(1) if isinstance(own, Tensor) else own)
    return HypothesisSelection(row_argmax(bound.add_(posterior.of(hypothesis, posterior.means))), own, hypothesis)


@dataclass(frozen=True)
class HypothesisAlgorithm(ArmAlgorithm):
    """Base of the algorithms over hypotheses, and what those without elimination share: GP-UCB under the leader.

    Args:
        width: Confidence width w^u_t, one for all hypotheses or a tuple of one each.
    """

    width: Widths

    def init(
        self,
        kernel: ArmKernel,
        noise_var: float | Tensor,
        trials: int = 1,
        *,
        prior_mean: Tensor | None = None,
        rounds: int | None = None,
    ) -> State:
        """State before any reward; as :meth:`bo_robust.algorithms.he_gp_ucb.HEGPUCB.init`."""
        return State(begin(self.width, kernel, noise_var, trials, prior_mean, rounds))

    def select(self, state: State, uniform: Tensor) -> HypothesisSelection:
        """The arm of largest bound under the leader; under the first hypothesis before any reward."""
        return select_under(state, self.width, state.posterior.leader, uniform)

    def observe(self, state: State, arms: Tensor, rewards: Tensor, uniform: Tensor | None = None) -> Info:
        """Take in the rewards under every hypothesis."""
        state.round += 1
        return Info(take_in(state.posterior, arms, rewards, uniform, None)[0])


def check_base(base: ArmAlgorithm | None) -> None:
    """Raise ``ValueError`` if an algorithm's posterior does not tell hypotheses apart."""
    if isinstance(base, HypothesisAlgorithm):
        raise ValueError(f"base is itself over hypotheses ({type(base).__name__}); give None or an algorithm of one.")
    features = getattr(base, "features", None)
    if features is not None and not isinstance(features, NystromDictionary):
        raise ValueError(
            f"{type(features).__name__} of {type(base).__name__} know nothing of the candidates' kernels, whose "
            "posteriors would be the same; take a NystromDictionary, or a base without features."
        )


def alive_only(values: Tensor, alive: Tensor, fill: float = -math.inf) -> Tensor:
    """``values`` (``s x h`` or ``s x h x k``) with those of eliminated hypotheses filled, in place."""
    dead = ~alive
    return values.masked_fill_(dead if values.ndim == 2 else dead.view(*dead.shape, *(1,) * (values.ndim - 2)), fill)


def _each(width: Widths) -> tuple[Width, ...]:
    return width if isinstance(width, tuple) else (width,)
