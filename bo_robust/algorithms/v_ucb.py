"""V-UCB on finitely many pairs (x, z): x_t = argmax_x F(u(x, Z)), z_t a lacing value of x_t.

Nguyen, Dai, Low & Jaillet, "Value-at-Risk Optimization with Gaussian Processes" (ICML 2021), Algorithm 1. F is the
value at risk, or another functional of the bounds. Differences from :mod:`gp_ucb`: the rule, and that an arm is a pair,
numbered x * w + z for w conditions z.
"""

import math
from dataclasses import dataclass
from functools import lru_cache
from numbers import Real

import torch
from torch import Tensor

from bo_robust.algorithms.base import ArmAlgorithm, PosteriorOverArms, Selection, State
from bo_robust.confidence import Width
from bo_robust.functionals import DETERMINISTIC_RULES, Functional, as_functional, check_rule, pick
from bo_robust.linalg import row_argmax
from bo_robust.posteriors.arms import ArmKernel
from bo_robust.random import spread
from bo_robust.validation import check_count, is_number, quoted


class PairAlgorithm(ArmAlgorithm):
    """Base of the algorithms whose arms are pairs (x, z), numbered x * w + z for ``num_environments`` conditions w."""

    num_environments: int

    def init(
        self,
        kernel: ArmKernel,
        noise_var: float | Tensor,
        trials: int = 1,
        *,
        prior_mean: Tensor | None = None,
        rounds: int | None = None,
    ) -> State:
        """Make the state before any reward. ``ValueError`` also if the number of arms is not a multiple of w."""
        check_pairs(kernel.num_arms, self.num_environments)
        return super().init(kernel, noise_var, trials, prior_mean=prior_mean, rounds=rounds)


@dataclass(frozen=True)
class VUCB(PairAlgorithm):
    """V-UCB.

    Args:
        width: Confidence width w_t.
        functional: F, or alpha alone for ``ValueAtRisk(alpha)``, the lower tail.
        num_environments: w >= 1, conditions per design.
        probabilities: Probabilities of the conditions, ``w`` numbers >= 0 that sum to 1; None if all are equal.
        rule: Which lacing value is chosen: "probable" (V-UCB Prob), "uniform" (V-UCB Unif) or "widest". "drawn" is for
            conditions that cannot be chosen and come with their probabilities (Remark 1).

    Raises:
        ValueError: if an argument is not as described.
    """

    width: Width
    functional: Functional | float
    num_environments: int
    probabilities: tuple[float, ...] | None = None
    rule: str = "probable"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count(1, num_environments=self.num_environments)
        object.__setattr__(self, "functional", as_functional(self.functional))
        check_rule(self.rule)
        if self.probabilities is not None:
            if isinstance(self.probabilities, Real) or not all(map(is_number, self.probabilities)):
                raise ValueError(
                    f"probabilities must be one number >= 0 per condition, got {quoted(self.probabilities)}."
                )
            object.__setattr__(self, "probabilities", tuple(float(p) for p in self.probabilities))
            check_probabilities(self.probabilities, self.num_environments)

    def select(self, state: State, uniform: Tensor) -> Selection:
        """Choose the design of largest bound, ties to the first, and its lacing value.

        A randomised width gets ``uniform``; a random choice of z gets a number derived from it.
        """
        posterior: PosteriorOverArms = state.posterior
        w = self.width(state.round + 1, posterior.information_gain, uniform)
        reach = posterior.variance.sqrt().mul_(w.unsqueeze(1) if isinstance(w, Tensor) else w)
        design = row_argmax(self.values(posterior.mean, reach))
        pairs = self.pairs(design)
        z = self.condition(posterior.mean.gather(1, pairs), reach.gather(1, pairs), uniform)
        return Selection(design * self.num_environments + z, w)

    def values(self, mean: Tensor, reach: Tensor) -> Tensor:
        """The upper bound of F per design, from mean and reach (w sigma) of the pairs, ``s x (designs * w)``."""
        whole = (mean.shape[0], -1, self.num_environments)
        lower, upper = (mean - reach).view(whole), (mean + reach).view(whole)
        return as_functional(self.functional).upper_bound(lower, upper, self._probabilities(mean))

    def pairs(self, design: Tensor) -> Tensor:
        """The arms of all pairs of one design per trial (``s``), ``s x w``."""
        z = torch.arange(self.num_environments, device=design.device)
        return design.unsqueeze(1) * self.num_environments + z

    def condition(self, mean: Tensor, reach: Tensor, uniform: Tensor) -> Tensor:
        """The rule's choice of z, ``s``, from mean and reach of the pairs of one design per trial, ``s x w``."""
        p, lower, upper = self._probabilities(mean), mean - reach, mean + reach
        mask = as_functional(self.functional).lacing(lower, upper, p)
        draws = None if self.rule in DETERMINISTIC_RULES else spread(uniform, 1)[:, 0]
        return pick(mask, upper - lower, p, self.rule, draws)

    def recommend(self, state: State) -> Tensor:
        """The queried design of largest F(mu(x, Z)), ``s``; the first design before any query."""
        return recommended_design(
            state.posterior, as_functional(self.functional), self.num_environments, self.probabilities
        )

    def _probabilities(self, like: Tensor) -> Tensor | None:
        return _tensor(self.probabilities, like.dtype, like.device)


def recommended_design(
    posterior: PosteriorOverArms, functional: Functional, num_environments: int, probabilities: tuple[float, ...] | None
) -> Tensor:
    """argmax of F(mu(x, Z)) over the designs with a reward, ``s``; ties go to the first. Design 0 before any reward."""
    pairs = (posterior.mean.shape[0], -1, num_environments)
    p = _tensor(probabilities, posterior.mean.dtype, posterior.mean.device)
    values = functional(posterior.mean.view(pairs), p)
    queried = posterior.counts.view(pairs).sum(-1) > 0
    return row_argmax(values.masked_fill(~queried, -math.inf))


def instantaneous_regret_bound(posterior: PosteriorOverArms, selection: Selection) -> Tensor:
    """2 w_t sigma_{t-1}(x_t, z_t) >= F(f(x*)) - F(f(x_t)), ``s``, in units of f (Nguyen et al. 2021, Lemma 3).

    It holds if l <= f <= u in this round, for z_t by the rules "probable" and "uniform", and for every functional but
    ``MeanVariance``. ``posterior`` must be that of the selection, before ``observe``. A selection without a width
    raises ``ValueError``.
    """
    if selection.width is None:
        raise ValueError("the selection has no width; it was not made by V-UCB or StableOpt.")
    sigma = posterior.variance.gather(1, selection.arms.unsqueeze(1)).squeeze(1).sqrt()
    return 2.0 * selection.width * sigma


def check_pairs(num_arms: int, num_environments: int) -> None:
    """Raise ``ValueError`` unless the arms are whole designs of w pairs each."""
    if num_arms % num_environments:
        raise ValueError(
            f"{num_arms} arms are not pairs of designs with {num_environments} conditions each; arms must be "
            "numbered x * w + z."
        )


def check_probabilities(probabilities: tuple[float, ...], num_environments: int) -> None:
    """Raise ``ValueError`` unless these are ``num_environments`` probabilities."""
    if len(probabilities) != num_environments:
        raise ValueError(f"probabilities must be {num_environments}, one per condition, got {len(probabilities)}.")
    if not all(p >= 0.0 for p in probabilities):
        raise ValueError("probabilities must be numbers >= 0.")
    if not abs(math.fsum(probabilities) - 1.0) <= 1e-6:
        raise ValueError(f"probabilities must sum to 1, got {math.fsum(probabilities):g}; divide them by their sum.")


@lru_cache(maxsize=64)
def _tensor(probabilities: tuple[float, ...] | None, dtype: torch.dtype, device: torch.device) -> Tensor | None:
    """The probabilities on the device, moved there once; None if all are equal."""
    if probabilities is None or len(set(probabilities)) == 1:
        return None
    return torch.tensor(probabilities, dtype=dtype, device=device)
