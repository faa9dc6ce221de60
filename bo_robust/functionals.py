"""What to make of f(x, Z): value at risk, tail mean, worst case, mean, mean minus variance; and what bounds say of it.

Every functional takes values over the environment points, ``... x w``, with their probabilities (``w`` or ``... x w``;
None: all equal) to one number. From l <= f <= u at every point it gives bounds on itself
(:meth:`Functional.upper_bound`) and the points worth observing (:meth:`Functional.lacing`):

- Nguyen, Dai, Low & Jaillet, "Value-at-Risk Optimization with Gaussian Processes" (ICML 2021), V-UCB: VaR(l) <= VaR(f)
  <= VaR(u) (Lemma 2). A **lacing value** (Definition 1) is a z of the support with l(z) <= VaR(l) and u(z) >= VaR(u).
  There always is one (Theorem 1), and where x maximises VaR(u), the regret of x is at most u(z) - l(z) = 2 w
  sigma(x, z) (Lemma 3).
- Nguyen, Dai, Low & Jaillet, "Optimizing Conditional Value-At-Risk of Black-Box Functions" (NeurIPS 2021): CVaR is the
  mean of the VaR of all lower levels; z is lacing at the level of the largest gap.
- For any functional that is monotone and moves with constants, F(u) - F(l) <= max_z (u - l): the z of the widest
  interval serves where lacing values are not defined (mean).

In every case but :class:`MeanVariance` u(z) - l(z) >= F(u) - F(l) at the points offered.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from bo_robust.ops.weighted_quantile import check_level, quantile_index, sorted_masses, tail_weights, weighted_quantile

__all__ = [
    "CVaR",
    "Functional",
    "Mean",
    "MeanVariance",
    "ValueAtRisk",
    "WorstCase",
    "as_functional",
    "check_rule",
    "pick",
]

PICK_RULES = ("probable", "uniform", "drawn")


class Functional(ABC):
    """A number made of the values over the environment; subclasses are frozen dataclasses of their settings."""

    @abstractmethod
    def __call__(self, values: Tensor, probabilities: Tensor | None = None) -> Tensor:
        """F(values), differentiable.

        Args:
            values: ``... x w``.
            probabilities: ``w`` or ``... x w``, >= 0, summing to 1; None: all equal.

        Returns:
            ``...``.

        Raises:
            ValueError: if shapes, dtypes or devices do not fit.
        """

    def lower_bound(self, lower: Tensor, upper: Tensor, probabilities: Tensor | None = None) -> Tensor:
        """At most F(f) whenever lower <= f <= upper at every point; F(lower) here, as F is monotone.

        Args:
            lower: l, ``... x w``.
            upper: u, ``... x w``.
            probabilities: As in :meth:`__call__`.

        Returns:
            ``...``.
        """
        return self(lower, probabilities)

    def upper_bound(self, lower: Tensor, upper: Tensor, probabilities: Tensor | None = None) -> Tensor:
        """At least F(f) whenever lower <= f <= upper at every point; as :meth:`lower_bound`."""
        return self(upper, probabilities)

    def selected(self, values: Tensor, probabilities: Tensor | None = None) -> Tensor | None:
        """Index of the one entry that a monotone F(values) is, ``...``; None for functionals that mix several."""
        return None

    def lacing(self, lower: Tensor, upper: Tensor, probabilities: Tensor | None = None) -> Tensor:
        """The environment points worth observing at x; here those of the widest interval. Never empty.

        Args:
            lower: l, ``... x w``, finite.
            upper: u, ``... x w``, finite.
            probabilities: As in :meth:`__call__`; points of probability zero are not of the support.

        Returns:
            Mask, ``... x w``, bool.
        """
        gap = upper - lower
        if probabilities is not None:
            gap = gap.masked_fill(probabilities <= 0, -math.inf)
        return gap == gap.amax(-1, keepdim=True)


@dataclass(frozen=True)
class ValueAtRisk(Functional):
    """VaR_alpha(h) = inf{v : P(h <= v) >= alpha}, the lower alpha-quantile (alpha small: averse to risk).

    BoTorch's ``VaR(alpha)`` counts from the other side: its alpha is 1 - ours. Cumulative probabilities within 1e-9
    (1e-6 in float32) of alpha count as equal (:mod:`bo_robust.ops.weighted_quantile`).

    Args:
        alpha: Probability of the lower tail, in (0, 1).

    Raises:
        ValueError: if alpha is not in (0, 1).
    """

    alpha: float

    def __post_init__(self) -> None:
        check_level(self.alpha)

    def __call__(self, values: Tensor, probabilities: Tensor | None = None) -> Tensor:
        """The quantile, an entry of ``values``; its gradient goes to that entry."""
        return weighted_quantile(values, probabilities, self.alpha)

    def selected(self, values: Tensor, probabilities: Tensor | None = None) -> Tensor:
        """Where the quantile is."""
        return quantile_index(values, probabilities, self.alpha)

    def lacing(self, lower: Tensor, upper: Tensor, probabilities: Tensor | None = None) -> Tensor:
        """l(z) <= VaR(l) and u(z) >= VaR(u), z of the support (Definition 1).

        Never empty, rounding included: P(l <= VaR(l)) >= alpha > P(u < VaR(u)), and both sums are exact.
        """
        return _between(lower, upper, self(lower, probabilities), self(upper, probabilities), probabilities)


@dataclass(frozen=True)
class CVaR(Functional):
    """Mean of the lower alpha-tail, CVaR_alpha(h) = 1/alpha int_0^alpha VaR_a(h) da, exact for atoms.

    The point at the quantile counts with as much of its probability as completes alpha.

    Args:
        alpha: Probability of the lower tail, in (0, 1).

    Raises:
        ValueError: if alpha is not in (0, 1).
    """

    alpha: float

    def __post_init__(self) -> None:
        check_level(self.alpha)

    def __call__(self, values: Tensor, probabilities: Tensor | None = None) -> Tensor:
        """The tail mean."""
        return (values * tail_weights(values, probabilities, self.alpha)).sum(-1)

    def lacing(self, lower: Tensor, upper: Tensor, probabilities: Tensor | None = None) -> Tensor:
        """Lacing values of VaR at the level a <= alpha where VaR_a(u) - VaR_a(l) is largest.

        That gap is at least CVaR(u) - CVaR(l), the mean of the gaps. Between cumulative probabilities nothing changes.
        """
        l_order, l_mass = sorted_masses(lower, probabilities)
        u_order, u_mass = sorted_masses(upper, probabilities)
        last = (l_mass[..., -1:].double() * self.alpha).ceil_().long().clamp_(min=1)
        levels = torch.cat([l_mass, u_mass], -1).minimum(last).clamp_(min=1)
        low = lower.gather(-1, l_order.gather(-1, torch.searchsorted(l_mass, levels)))
        high = upper.gather(-1, u_order.gather(-1, torch.searchsorted(u_mass, levels)))
        level = (high - low).argmax(-1, keepdim=True)
        return _between(lower, upper, low.gather(-1, level)[..., 0], high.gather(-1, level)[..., 0], probabilities)


@dataclass(frozen=True)
class WorstCase(Functional):
    """min h over the points of positive probability: VaR as alpha -> 0, the aim of StableOpt."""

    def __call__(self, values: Tensor, probabilities: Tensor | None = None) -> Tensor:
        """The smallest value; its gradient goes to one point."""
        return values.gather(-1, self.selected(values, probabilities).unsqueeze(-1)).squeeze(-1)

    def selected(self, values: Tensor, probabilities: Tensor | None = None) -> Tensor:
        """Where the smallest value is."""
        supported = values if probabilities is None else values.masked_fill(probabilities <= 0, math.inf)
        return supported.argmin(-1)

    def lacing(self, lower: Tensor, upper: Tensor, probabilities: Tensor | None = None) -> Tensor:
        """Where l is smallest (u(z) >= min u holds everywhere)."""
        return _between(lower, upper, self(lower, probabilities), self(upper, probabilities), probabilities)


@dataclass(frozen=True)
class Mean(Functional):
    """E h(Z)."""

    def __call__(self, values: Tensor, probabilities: Tensor | None = None) -> Tensor:
        """The mean."""
        return values.mean(-1) if probabilities is None else (values * probabilities).sum(-1)

    def lacing(self, lower: Tensor, upper: Tensor, probabilities: Tensor | None = None) -> Tensor:
        """Points whose interval is at least as long as that of the mean: u(z) - l(z) >= F(u) - F(l). Never empty."""
        gap = upper - lower
        mean = self(gap, probabilities)
        if probabilities is not None:
            gap = gap.masked_fill(probabilities <= 0, -math.inf)
        return gap >= torch.minimum(mean, gap.amax(-1)).unsqueeze(-1)


@dataclass(frozen=True)
class MeanVariance(Functional):
    """E h(Z) - weight * Var h(Z), for the plug-in value F(mu) and for bounds.

    It is not monotone, so F(u) bounds nothing. With m = (l + u) / 2 and r = sqrt(E ((u - l) / 2)^2) the standard
    deviation, a seminorm, is within r of sd(m), and

        E l - weight (sd(m) + r)^2 <= F(f) <= E u - weight max(sd(m) - r, 0)^2.

    Honest, and not the tightest. The gap F(u) - F(l) is then not bounded by one interval: 2 w sigma is no regret bound.

    Args:
        weight: >= 0, per unit of f.

    Raises:
        ValueError: if the weight is negative or not finite.
    """

    weight: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.weight) and self.weight >= 0.0):
            raise ValueError(f"weight (of the variance) must be a finite number >= 0, got {self.weight!r}.")

    def __call__(self, values: Tensor, probabilities: Tensor | None = None) -> Tensor:
        """Mean minus weighted variance of the values."""
        mean = Mean()(values, probabilities)
        return mean - self.weight * Mean()((values - mean.unsqueeze(-1)).square(), probabilities)

    def lower_bound(self, lower: Tensor, upper: Tensor, probabilities: Tensor | None = None) -> Tensor:
        """E l - weight (sd(m) + r)^2."""
        spread, reach = _spread_and_reach(lower, upper, probabilities)
        return Mean()(lower, probabilities) - self.weight * (spread + reach).square()

    def upper_bound(self, lower: Tensor, upper: Tensor, probabilities: Tensor | None = None) -> Tensor:
        """E u - weight max(sd(m) - r, 0)^2."""
        spread, reach = _spread_and_reach(lower, upper, probabilities)
        return Mean()(upper, probabilities) - self.weight * (spread - reach).clamp_min(0.0).square()


def as_functional(functional: Functional | float) -> Functional:
    """The functional itself, or ``ValueAtRisk(alpha)`` of a number.

    Raises:
        ValueError: if it is neither.
    """
    if isinstance(functional, Functional):
        return functional
    if isinstance(functional, float):
        return ValueAtRisk(functional)
    raise ValueError(
        f"functional must be one of bo_robust.functionals, such as ValueAtRisk(0.1), or its alpha; got {functional!r}."
    )


def pick(mask: Tensor, gap: Tensor, density: Tensor | None, rule: str, uniform: Tensor | None = None) -> Tensor:
    """One environment point out of those a functional offers.

    Args:
        mask: Points offered, ``... x w``, bool, not empty.
        gap: u - l, ``... x w``.
        density: Probability or density of each point up to a constant, ``w`` or ``... x w``; None: all equal.
        rule: "probable": the most probable of those offered, of equally probable ones (to 1e-9 of the density, 1e-6 in
            float32) the one of widest interval (the paper leaves ties open). "uniform": one of them at random.
            "drawn": from the density, whether offered or not, as when z is observed but cannot be chosen (Remark 1).
        uniform: Draws from [0, 1), ``...``; "probable" needs none.

    Returns:
        Index of the point, long, ``...``.

    Raises:
        ValueError: on an unknown rule, or if ``uniform`` is missing.
    """
    check_rule(rule)
    if rule == "probable":
        if density is not None:
            ranked = density.expand(mask.shape).masked_fill(~mask, -math.inf)
            top = ranked.amax(-1, keepdim=True)
            mask = mask & (ranked >= top - (1e-9 if top.dtype == torch.float64 else 1e-6) * top.abs())
        return gap.masked_fill(~mask, -math.inf).argmax(-1)
    if uniform is None:
        raise ValueError(f'the rule "{rule}" needs uniform, a draw from [0, 1) per choice.')
    if rule == "uniform":
        rank = mask.cumsum(-1)
        chosen = (uniform.unsqueeze(-1) * rank[..., -1:]).long()
        return (rank <= chosen.minimum(rank[..., -1:] - 1)).sum(-1)
    mass = (torch.ones_like(gap) if density is None else density.expand(mask.shape)).cumsum(-1)
    return (mass <= uniform.unsqueeze(-1) * mass[..., -1:]).sum(-1).clamp_(max=mask.shape[-1] - 1)


def check_rule(rule: str) -> None:
    """Raise ``ValueError`` unless the rule is one of :func:`pick`."""
    if rule not in PICK_RULES:
        raise ValueError(f"rule must be one of {', '.join(PICK_RULES)}; got {rule!r}.")


def _spread_and_reach(lower: Tensor, upper: Tensor, probabilities: Tensor | None) -> tuple[Tensor, Tensor]:
    """sd(m) and r of :class:`MeanVariance`."""
    mean = Mean()
    middle, half = (lower + upper) / 2.0, (upper - lower) / 2.0
    variance = mean((middle - mean(middle, probabilities).unsqueeze(-1)).square(), probabilities)
    tiny = torch.finfo(lower.dtype).tiny  # roots have no gradient at zero
    return (variance + tiny).sqrt(), (mean(half.square(), probabilities) + tiny).sqrt()


def _between(lower: Tensor, upper: Tensor, low: Tensor, high: Tensor, probabilities: Tensor | None) -> Tensor:
    mask = (lower <= low.unsqueeze(-1)) & (upper >= high.unsqueeze(-1))
    return mask if probabilities is None else mask & (probabilities > 0)
