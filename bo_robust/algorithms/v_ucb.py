"""V-UCB on finitely many pairs (x, z): x_t = argmax_x F(u(x, Z)), z_t a lacing value of x_t.

Nguyen, Dai, Low & Jaillet, "Value-at-Risk Optimization with Gaussian Processes" (ICML 2021), Algorithm 1; F is the
value at risk, or another functional of the bounds. Difference from :mod:`gp_ucb`: an arm is a pair, x-major (arm
= x * w + z, for w conditions z), and the rule. All trials choose in one step, nothing returns to the host.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from bo_robust.algorithms.base import ArmAlgorithm, Posterior, Selection, State
from bo_robust.functionals import Functional, as_functional, check_rule, pick
from bo_robust.linalg import row_argmax
from bo_robust.random import spread
from bo_robust.schedules import Width
from bo_robust.states.arms import ArmKernel
from bo_robust.validation import check_count

__all__ = ["VUCB", "instantaneous_regret_bound", "recommended_design", "select_pair"]


@dataclass(frozen=True)
class VUCB(ArmAlgorithm):
    """V-UCB.

    Args:
        width: Confidence width w_t.
        functional: F, or alpha alone for ``ValueAtRisk(alpha)``, the lower tail.
        num_environments: w, conditions per design; arms are numbered x * w + z.
        probabilities: Of the conditions, ``w`` numbers; None: all equal.
        rule: Which lacing value: "probable" (V-UCB Prob), "uniform" (V-UCB Unif), or "drawn" where conditions cannot be
            chosen and come with their probabilities (Remark 1).

    Raises:
        ValueError: if there are no conditions, the probabilities are not ``w`` numbers >= 0 that sum to 1, or the
            functional or rule are unknown.
    """

    width: Width
    functional: Functional | float
    num_environments: int
    probabilities: tuple[float, ...] | None = None
    rule: str = "probable"

    def __post_init__(self) -> None:
        check_count(1, num_environments=self.num_environments)
        object.__setattr__(self, "functional", as_functional(self.functional))
        check_rule(self.rule)
        if self.probabilities is not None:
            object.__setattr__(self, "probabilities", tuple(float(p) for p in self.probabilities))
            check_probabilities(self.probabilities, self.num_environments)

    def init(
        self,
        kernel: ArmKernel,
        noise_var: float | Tensor,
        trials: int = 1,
        *,
        prior_mean: Tensor | None = None,
        rounds: int | None = None,
    ) -> State:
        """State before any reward; as :meth:`ArmAlgorithm.init`, and the arms must be a multiple of w."""
        check_pairs(kernel, self.num_environments)
        return super().init(kernel, noise_var, trials, prior_mean=prior_mean, rounds=rounds)

    def select(self, state: State, uniform: Tensor) -> Selection:
        """The design of largest bound, first of equals, and its lacing value."""
        return select_pair(
            state,
            self.width,
            as_functional(self.functional),
            self.num_environments,
            self.probabilities,
            self.rule,
            uniform,
        )

    def recommend(self, state: State) -> Tensor:
        """The queried design of largest F(mu(x, Z)), ``s``; the first before any query."""
        return recommended_design(
            state.posterior, as_functional(self.functional), self.num_environments, self.probabilities
        )


def select_pair(
    state: State,
    width: Width,
    functional: Functional,
    num_environments: int,
    probabilities: tuple[float, ...] | None,
    rule: str,
    uniform: Tensor,
) -> Selection:
    """argmax over x of the upper bound of F, then the rule's choice of z.

    Args:
        state: Whose arms are pairs x * w + z.
        width: Confidence width.
        functional: F.
        num_environments: w.
        probabilities: Of the conditions; None: all equal.
        rule: As in :class:`VUCB`.
        uniform: ``s``: itself for a randomised width, a number derived from it for a random choice of z.
    """
    posterior = state.posterior
    w = width(state.round + 1, posterior.information_gain, uniform)
    reach = posterior.variance.sqrt().mul_(w.unsqueeze(1) if isinstance(w, Tensor) else w)
    pairs = (len(uniform), -1, num_environments)  # s x designs x w
    upper = (posterior.mean + reach).view(pairs)
    lower = (posterior.mean - reach).view(pairs)
    p = _tensor(probabilities, upper.dtype, upper.device)
    design = row_argmax(functional.upper_bound(lower, upper, p))
    here = design.view(-1, 1, 1).expand(-1, 1, num_environments)
    lower, upper = lower.gather(1, here).squeeze(1), upper.gather(1, here).squeeze(1)
    mask = functional.lacing(lower, upper, p)
    z = pick(mask, upper - lower, p, rule, None if rule == "probable" else spread(uniform, 1)[:, 0])
    return Selection(design * num_environments + z, w)


def recommended_design(
    posterior: Posterior, functional: Functional, num_environments: int, probabilities: tuple[float, ...] | None
) -> Tensor:
    """argmax of F(mu(x, Z)) over the designs with a reward, ``s``, first of equals; 0 before any."""
    pairs = (posterior.mean.shape[0], -1, num_environments)
    p = _tensor(probabilities, posterior.mean.dtype, posterior.mean.device)
    values = functional(posterior.mean.view(pairs), p)
    queried = posterior.counts.view(pairs).sum(-1) > 0
    return row_argmax(values.masked_fill(~queried, -math.inf))


def instantaneous_regret_bound(posterior: Posterior, selection: Selection) -> Tensor:
    """2 w_t sigma_{t-1}(x_t, z_t) >= F(f(x*)) - F(f(x_t)), ``s``, in units of f (Nguyen et al. 2021, Lemma 3).

    Holds where l <= f <= u in this round, for z_t by the rules "probable" and "uniform" and every functional but
    ``MeanVariance``. By :func:`select_pair`, from the posterior the selection was made with (before ``observe``).

    Args:
        posterior: After t - 1 rounds.
        selection: Of round t.

    Raises:
        ValueError: if the selection has no width.
    """
    if selection.width is None:
        raise ValueError("the selection has no width; it was not made by V-UCB or StableOpt.")
    sigma = posterior.variance.gather(1, selection.arms.unsqueeze(1)).squeeze(1).sqrt()
    return 2.0 * selection.width * sigma


def check_pairs(kernel: ArmKernel, num_environments: int) -> None:
    """Raise ``ValueError`` unless the arms are whole designs of w pairs each."""
    if kernel.num_arms % num_environments:
        raise ValueError(
            f"{kernel.num_arms} arms are not pairs of designs with {num_environments} conditions each; arms must be "
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
    """The probabilities on the device, moved there once; None where they are all equal."""
    if probabilities is None or len(set(probabilities)) == 1:
        return None
    return torch.tensor(probabilities, dtype=dtype, device=device)
