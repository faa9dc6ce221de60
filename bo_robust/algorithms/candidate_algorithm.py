"""MLE-GP-UCB: GP-UCB under the candidate of largest marginal likelihood, chosen anew each round.

The baseline of Ziomek, Adachi & Osborne (ICML 2024), section 7: common practice over a finite U, without a guarantee.
The other algorithms over candidates derive from it: their start, rewards, widths and bounds.

A candidate is a kernel matrix, a prior mean and a noise variance (:mod:`bo_robust.posteriors.candidates`).

Axes: ``s`` trials, ``h`` candidates, ``n`` arms.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from bo_robust.algorithms.base import ArmAlgorithm, Info, Selection, State, checked_state
from bo_robust.algorithms.bbkb import BBKB
from bo_robust.algorithms.bkb import BKB
from bo_robust.confidence import BKBWidth, Width
from bo_robust.confidence.candidate_widths import Widths, check_number, check_unit_scale, each, widths_at
from bo_robust.linalg import row_argmax
from bo_robust.posteriors import arms as arm_posteriors
from bo_robust.posteriors import candidates
from bo_robust.posteriors.arms import ArmKernel
from bo_robust.posteriors.candidates import CandidatePosterior


@dataclass(frozen=True)
class CandidateSelection(Selection):
    """The arms to pull next; ``width`` is that of the leader (:class:`CandidatePosterior`).

    ``candidate`` is u_t, who chose each arm, as an index in U, ``s`` long. It is None for rules that mix candidates.
    """

    candidate: Tensor | None = None


@dataclass(frozen=True)
class Taken:
    """A round's rewards under every candidate, as of before them (:func:`bo_robust.posteriors.candidates.observe`)."""

    ok: Tensor  # Whether the reward was taken in, `s` bool
    error: Tensor  # eta_t = y_t - mu_{t-1}(x_t), `s x h`
    mean: Tensor  # mu_{t-1}(x_t), `s x h`
    variance: Tensor  # sigma_{t-1}^2(x_t), `s x h`
    truncated: Tensor | None  # Whether it was truncated under any candidate, `s` bool; None where nothing ever is


@dataclass(frozen=True)
class CandidateAlgorithm(ArmAlgorithm):
    """MLE-GP-UCB, the base of the algorithms over candidates: GP-UCB under the leader, the likeliest candidate.

    Args:
        width: Confidence width w^u_t, one for all candidates or a tuple of one each.
    """

    # The test of HE-GP-UCB is of a width that holds; the other algorithms over candidates are its baselines.
    default_width: ClassVar[Mapping[str, Any]] = {"kind": "bayesian_finite"}
    over_candidates: ClassVar[bool] = True

    width: Widths

    @property
    def base(self) -> ArmAlgorithm | None:
        """The algorithm whose posterior is kept under every candidate; None for the exact posterior."""
        return None

    def init(
        self,
        kernel: ArmKernel,
        noise_var: float | Tensor,
        trials: int = 1,
        *,
        prior_mean: Tensor | None = None,
        rounds: int | None = None,
    ) -> State:
        """Make the state before any reward.

        ``noise_var`` and ``prior_mean`` are shared, or have a leading axis ``h``; for kernels of their own see
        :func:`bo_robust.posteriors.candidates.candidate_kernel`.

        Raises:
            ValueError: if U is empty; if the arguments and widths do not agree on h; if k(x, x) > 1 and the width has a
                norm bound, which assumes k(x, x) <= 1; if ``BKBWidth`` has no BKB or BBKB as base; or from ``init`` of
                the posterior.
        """
        prior = candidates.batched(kernel, noise_var, trials, prior_mean)
        h, diagonal = prior.candidates, kernel.diagonal
        check_number(self.width, h)
        names = [f"candidate {u}" for u in range(h)]
        check_unit_scale(self.width, names, lambda u: diagonal[u] if diagonal.ndim == 2 else diagonal)
        if any(isinstance(w, BKBWidth) for w in each(self.width)) and not isinstance(self.base, BKB | BBKB):
            raise ValueError("BKBWidth is for BKB and BBKB: give one of them as base, or another width.")
        begin = arm_posteriors.init if self.base is None else self.base.init
        state = begin(prior.kernel, prior.noise_var, trials * h, prior_mean=prior.prior_mean, rounds=rounds)
        return self.start(candidates.begin(state, h))

    def select(self, state: State, uniform: Tensor) -> CandidateSelection:
        """Choose the arm of largest bound under the leader; before any reward the first candidate leads."""
        posterior: CandidatePosterior = checked_state(state, State).posterior
        w, leader = self.widths(posterior, state.round + 1, uniform), posterior.leader
        own = of_leader(posterior, w)
        bound = posterior.under(leader, posterior.variances).sqrt_()
        bound.mul_(own.unsqueeze(1) if isinstance(own, Tensor) else own)
        return CandidateSelection(row_argmax(bound.add_(posterior.under(leader, posterior.means))), own, leader)

    def observe(self, state: State, arms: Tensor, rewards: Tensor, uniform: Tensor | None = None) -> Info:
        """Learn from the rewards under every candidate."""
        taken = self.take_in(checked_state(state, State).posterior, arms, rewards, uniform)
        state.round += 1
        return Info(taken.ok, taken.truncated)

    def take_in(self, posterior: CandidatePosterior, arms: Tensor, rewards: Tensor, uniform: Tensor | None) -> Taken:
        """Run :func:`bo_robust.posteriors.candidates.observe`, with the posterior of :attr:`base` if there is one."""
        base = self.base
        if base is None:
            return Taken(*candidates.observe(posterior, arms, rewards), None)
        # All candidates of a trial share its draw.
        everyone = None if uniform is None else uniform.unsqueeze(1).expand(posterior.alive.shape).reshape(-1)

        truncated = None

        def by_base(state: State, arms: Tensor, rewards: Tensor) -> Tensor:
            nonlocal truncated
            info = base.observe(state, arms, rewards, everyone)
            truncated = None if info.truncated is None else info.truncated.view(posterior.alive.shape).any(1)
            return info.ok

        seen = candidates.observe(posterior, arms, rewards, by_base, base.transform_rewards)
        return Taken(*seen, truncated)

    def widths(self, posterior: CandidatePosterior, t: int, uniform: Tensor | None) -> Tensor | float:
        """w^u_t, ``s x h`` or a number; :class:`BKBWidth` is given sum sigma~^2, others the information gain."""

        def known(width: Width) -> Tensor:
            if isinstance(width, BKBWidth):
                return posterior.flat.effective_dimension.view(posterior.alive.shape)
            return posterior.gains

        return widths_at(self.width, t, known, uniform)


def reaches(variances: Tensor, w: Tensor | float) -> Tensor:
    """w sigma under every candidate, ``s x h x k``, from variances of that shape and w, ``s x h`` or a number."""
    return variances.sqrt().mul_(w.unsqueeze(2) if isinstance(w, Tensor) else w)


def of_leader(posterior: CandidatePosterior, w: Tensor | float) -> Tensor | float:
    """The leader's width, ``s`` or a number."""
    return posterior.under(posterior.leader, w.expand(posterior.alive.shape)) if isinstance(w, Tensor) else w


def alive_only(values: Tensor, alive: Tensor, fill: float = -math.inf) -> Tensor:
    """Fill the ``values`` (``s x h`` or ``s x h x k``) of eliminated candidates, in place."""
    dead = ~alive
    return values.masked_fill_(dead if values.ndim == 2 else dead.unsqueeze(2), fill)


def best_alive(values: Tensor, alive: Tensor) -> tuple[Tensor, Tensor]:
    """The place of the largest of ``values`` (``s x h x k``, written over) of candidates alive, and who has it.

    Both are ``s`` long; ties go to the first.
    """
    values = alive_only(values, alive)
    place = row_argmax(values.amax(1))
    there = place.view(-1, 1, 1).expand(-1, values.shape[1], 1)
    return place, values.gather(2, there).squeeze(2).argmax(1)
