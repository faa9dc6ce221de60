"""MLE-GP-UCB: GP-UCB under the candidate of largest marginal likelihood, found anew each round.

The baseline of Ziomek, Adachi & Osborne (ICML 2024), section 7: common practice over a finite U, without a guarantee.
The other algorithms over candidates derive from it: their start, rewards, widths and bounds.

A candidate is a kernel matrix, a prior mean and a noise variance (:mod:`bo_robust.bandits.posteriors.candidates`).

Axes: ``s`` trials, ``h`` candidates, ``n`` arms.
"""

import math
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from bo_robust.bandits.base import ArmAlgorithm, Info, Selection, State, checked_state
from bo_robust.bandits.posteriors import candidates
from bo_robust.bandits.posteriors.arms import ArmKernel
from bo_robust.bandits.posteriors.candidates import CandidatePosterior, Observed
from bo_robust.confidence.base import DIMENSION, needs_of
from bo_robust.confidence.candidate_widths import Widths, check_number, check_unit_scale, each, widths_at
from bo_robust.utils.linalg import row_argmax


@dataclass(frozen=True)
class CandidateSelection(Selection):
    """The arms to pull next; ``width`` is that of the MAP candidate (:class:`CandidatePosterior`).

    ``candidate`` is u_t, the candidate that chose each arm, as an index in U, ``s`` long; None where rules mix them.
    """

    candidate: Tensor | None = None


@dataclass(frozen=True)
class CandidateAlgorithm(ArmAlgorithm):
    """MLE-GP-UCB, the base of the algorithms over candidates: GP-UCB under the likeliest candidate.

    Args:
        width: Confidence width w^u_t, one for all candidates or a tuple of one each.
    """

    over_candidates: ClassVar[bool] = True
    capturable: ClassVar[bool] = True

    width: Widths

    def prior(self, kernel: ArmKernel, noise_var: float | Tensor, trials: int, **options: Any) -> Any:
        """As :func:`bo_robust.bandits.posteriors.candidates.init`.

        ``noise_var`` and ``prior_mean`` are shared, or have a leading axis ``h``; for kernels of their own see
        :func:`bo_robust.bandits.posteriors.candidates.candidate_kernel`.

        Raises:
            ValueError: also if the widths do not agree on h; if k(x, x) > 1 and the width has a norm bound, which
                assumes k(x, x) <= 1; or if the width is a ``BKBWidth``.
        """
        posterior = candidates.init(kernel, noise_var, trials, **options)
        h, diagonal = posterior.active.shape[1], kernel.diagonal
        check_number(self.width, h)
        names = [f"candidate {u}" for u in range(h)]
        check_unit_scale(self.width, names, lambda u: diagonal[u] if diagonal.ndim == 2 else diagonal)
        if any(DIMENSION in needs_of(w) for w in each(self.width)):
            raise ValueError("BKBWidth is for BKB and BBKB; give another width.")
        return posterior

    def select(self, state: State, uniform: Tensor) -> CandidateSelection:
        """Choose the arm of largest bound under the MAP candidate; before any reward it is the first."""
        posterior: CandidatePosterior = checked_state(state, State, CandidatePosterior).posterior
        w, best = self.widths(posterior, state.round + 1, uniform), posterior.map_candidate
        map_width = of_map_candidate(posterior, w)
        bound = posterior.under(best, posterior.variances).sqrt_()
        bound.mul_(map_width.unsqueeze(1) if isinstance(map_width, Tensor) else map_width)
        return CandidateSelection(row_argmax(bound.add_(posterior.under(best, posterior.means))), map_width, best)

    def observe(self, state: State, arms: Tensor, rewards: Tensor, uniform: Tensor | None = None) -> Info:
        """Learn from the rewards under every candidate."""
        observed = self.condition(checked_state(state, State, CandidatePosterior).posterior, arms, rewards)
        state.round += 1
        return Info(observed.ok)

    def condition(self, posterior: CandidatePosterior, arms: Tensor, rewards: Tensor) -> Observed:
        """Run :func:`bo_robust.bandits.posteriors.candidates.observe`."""
        return candidates.observe(posterior, arms, rewards)

    def widths(self, posterior: CandidatePosterior, t: int, uniform: Tensor | None) -> Tensor | float:
        """w^u_t, ``s x h`` or a number."""
        return widths_at(self.width, t, lambda _: posterior.gains, uniform)


def reaches(variances: Tensor, w: Tensor | float) -> Tensor:
    """w sigma under every candidate, ``s x h x k``, from variances of that shape and w, ``s x h`` or a number."""
    return variances.sqrt().mul_(w.unsqueeze(2) if isinstance(w, Tensor) else w)


def of_map_candidate(posterior: CandidatePosterior, w: Tensor | float) -> Tensor | float:
    """The width of the MAP candidate, ``s`` or a number."""
    return posterior.under(posterior.map_candidate, w.expand(posterior.active.shape)) if isinstance(w, Tensor) else w


def masked(values: Tensor, among: Tensor, fill: float = -math.inf) -> Tensor:
    """Fill the ``values`` (``s x h`` or ``s x h x k``) of candidates not ``among`` these (``s x h``), in place."""
    others = ~among
    return values.masked_fill_(others if values.ndim == 2 else others.unsqueeze(2), fill)


def best_among(values: Tensor, among: Tensor) -> tuple[Tensor, Tensor]:
    """The place of the largest of ``values`` (``s x h x k``, written over) ``among`` candidates, and who has it.

    Both are ``s`` long; ties go to the first.
    """
    values = masked(values, among)
    place = row_argmax(values.amax(1))
    there = place.view(-1, 1, 1).expand(-1, values.shape[1], 1)
    return place, values.gather(2, there).squeeze(2).argmax(1)
