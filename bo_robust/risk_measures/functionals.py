"""Functionals F of f(x, Z): value at risk, tail mean, expectile, worst case, mean, mean minus variance.

A functional maps values at the conditions (``... x w``) and their probabilities to one number. From bounds
l <= f <= u at every point it derives bounds on F(f) and the points worth observing (:meth:`Functional.lacing`):

- Nguyen, Dai, Low & Jaillet, "Value-at-Risk Optimization with Gaussian Processes" (ICML 2021), V-UCB:
  VaR(l) <= VaR(f) <= VaR(u) (Lemma 2). A **lacing value** (Definition 1) is a z of the support with l(z) <= VaR(l) and
  u(z) >= VaR(u). It always exists (Theorem 1). If x maximizes VaR(u), its regret is at most
  u(z) - l(z) = 2 w sigma(x, z) with the width w (Lemma 3).
- Nguyen, Dai, Low & Jaillet, "Optimizing Conditional Value-At-Risk of Black-Box Functions" (NeurIPS 2021): CVaR is the
  mean of VaR over all lower levels. Observe a lacing value of the level with the largest gap.
- Lacing values are not defined for the mean. But F(u) - F(l) <= max_z (u - l) for every F that is monotone and
  satisfies F(f + c) = F(f) + c, so the z of the widest interval serves.

The points offered satisfy u(z) - l(z) >= F(u) - F(l) for every functional but :class:`MeanVariance`.

A new functional is a subclass and a row of :data:`FUNCTIONALS`.
"""

import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Integral
from typing import Annotated, Any, ClassVar

import torch
from torch import Tensor

from bo_robust.risk_measures.weighted_quantile import quantile_index, sorted_masses, supported, tail_weights
from bo_robust.utils import specs
from bo_robust.utils.input_checks import Nonnegative, check_fields, check_tensor, is_number, outside_package, quoted
from bo_robust.utils.linalg import on_cuda

__all__ = [
    "FUNCTIONALS",
    "CVaR",
    "Expectile",
    "Functional",
    "Mean",
    "MeanVariance",
    "ValueAtRisk",
    "WorstCase",
    "as_functional",
]


def check_alpha(alpha: float) -> None:
    """Raise ``ValueError`` unless alpha, the probability of the lower tail, is in (0, 1); warn above 0.5."""
    if not (is_number(alpha) and 0.0 < alpha < 1.0):
        what = "alpha (probability of the lower tail; BoTorch's VaR counts from the other side)"
        raise ValueError(f"{what} must be strictly between 0 and 1, got {quoted(alpha)}.")
    if alpha > 0.5:
        warnings.warn(
            f"alpha = {alpha:g} is the LOWER tail, the worst {alpha:.0%} of the conditions. BoTorch's VaR({alpha:g}) "
            f"is alpha = {1.0 - alpha:g} here.",
            stacklevel=outside_package(),
        )


LowerTail = Annotated[float, check_alpha]


class Functional(ABC):
    """Base of the functionals. Subclasses are frozen dataclasses of their settings.

    Shapes are the same in all methods: values and (finite) bounds are ``... x w``, a result per x is ``...``.
    Probabilities are ``w`` or ``... x w``, >= 0 and with sum 1; None means all equal.
    """

    def __post_init__(self) -> None:
        check_fields(self)

    # Whether it reads no number back to the host, so that a CUDA graph can repeat it; a subclass says so anew
    capturable: ClassVar[bool] = False

    @abstractmethod
    def __call__(self, values: Tensor, probabilities: Tensor | None = None) -> Tensor:
        """F(values), differentiable; ``ValueError`` if shapes, dtypes or devices do not fit."""

    selects: ClassVar[bool] = False  # whether F(values) is the value at one condition, which `selected` then names

    def selected(self, values: Tensor, probabilities: Tensor | None = None) -> Tensor:
        """The index of the condition whose value F(values) is, ``...`` long."""
        raise NotImplementedError(f"{type(self).__name__} is no entry of the values.")

    def lower_bound(self, lower: Tensor, upper: Tensor, probabilities: Tensor | None = None) -> Tensor:
        """A lower bound on F(f) for every f with lower <= f <= upper: F(lower) if F is monotone."""
        return self(lower, probabilities)

    def upper_bound(self, lower: Tensor, upper: Tensor, probabilities: Tensor | None = None) -> Tensor:
        """An upper bound on F(f) for every f with lower <= f <= upper: F(upper) if F is monotone."""
        return self(upper, probabilities)

    def lacing(self, lower: Tensor, upper: Tensor, probabilities: Tensor | None = None) -> Tensor:
        """Mask of the conditions worth observing, ``... x w`` bool, never empty. Here: the widest intervals.

        Points of probability zero are not in the support and never in the mask.
        """
        gap = upper - lower
        if probabilities is not None:
            gap = gap.masked_fill(probabilities <= 0, -math.inf)
        return gap == gap.amax(-1, keepdim=True)


class _Selecting(Functional):
    """A functional whose value is that at one condition, which gets the whole gradient."""

    selects: ClassVar[bool] = True

    def __call__(self, values: Tensor, probabilities: Tensor | None = None) -> Tensor:
        index = self.selected(values, probabilities)
        return values.gather(-1, index.unsqueeze(-1)).squeeze(-1)

    def lacing(self, lower: Tensor, upper: Tensor, probabilities: Tensor | None = None) -> Tensor:
        """Lacing values: z of the support with l(z) <= F(l) and u(z) >= F(u).

        Never empty, even after rounding. Of a value at risk, P(l <= VaR(l)) >= alpha > P(u < VaR(u)), and both sums are
        exact; in the worst case the point of smallest l has u(z) >= min u.
        """
        if on_cuda(lower) and (probabilities is None or probabilities.ndim == 1):  # half the launches
            low, high = self(torch.stack([lower, upper]), probabilities)
        else:
            low, high = self(lower, probabilities), self(upper, probabilities)
        return _between(lower, upper, low, high, probabilities)


@dataclass(frozen=True)
class ValueAtRisk(_Selecting):
    """VaR_alpha(h) = inf{v : P(h <= v) >= alpha}, the lower alpha-quantile. A small alpha is averse to risk.

    BoTorch's ``VaR`` counts from the other side, and takes the next value where alpha times the number of values is a
    whole number (:mod:`bo_robust.risk_measures.weighted_quantile`). An alpha above 0.5 gets a warning. Cumulative
    probabilities within 1e-9 (1e-6 in float32) of alpha count as equal to it.

    Raises:
        ValueError: if alpha, the probability of the lower tail, is not in (0, 1).
    """

    capturable: ClassVar[bool] = True

    alpha: LowerTail

    def selected(self, values: Tensor, probabilities: Tensor | None = None) -> Tensor:
        return quantile_index(values, probabilities, self.alpha)


@dataclass(frozen=True)
class CVaR(Functional):
    """Mean of the lower alpha-tail, CVaR_alpha(h) = 1/alpha int_0^alpha VaR_a(h) da.

    The point at the quantile counts with only as much of its probability as completes alpha, so that this is exact for
    finitely many points. ``alpha`` is that of :class:`ValueAtRisk`.
    """

    capturable: ClassVar[bool] = True

    alpha: LowerTail

    def __call__(self, values: Tensor, probabilities: Tensor | None = None) -> Tensor:
        return (values * tail_weights(values, probabilities, self.alpha)).sum(-1)

    def lacing(self, lower: Tensor, upper: Tensor, probabilities: Tensor | None = None) -> Tensor:
        """Lacing values of VaR at the level a <= alpha where VaR_a(u) - VaR_a(l) is largest.

        This gap is at least CVaR(u) - CVaR(l), the mean of the gaps of all levels.
        """
        l_order, l_mass = sorted_masses(lower, probabilities)
        u_order, u_mass = sorted_masses(upper, probabilities)
        # VaR_a(l) and VaR_a(u) change only at their cumulative masses, so no other levels need a look. Masses are whole
        # numbers: levels are cut at alpha, rounded up.
        last = (l_mass[..., -1:].double() * self.alpha).ceil_().long().clamp_(min=1)
        levels = torch.cat([l_mass, u_mass], -1).minimum(last).clamp_(min=1)
        low = lower.gather(-1, l_order.gather(-1, torch.searchsorted(l_mass, levels)))
        high = upper.gather(-1, u_order.gather(-1, torch.searchsorted(u_mass, levels)))
        level = (high - low).argmax(-1, keepdim=True)
        return _between(lower, upper, low.gather(-1, level)[..., 0], high.gather(-1, level)[..., 0], probabilities)


@dataclass(frozen=True)
class Expectile(Functional):
    """The tau-expectile: argmin_v E |tau - 1{h <= v}| (h - v)^2 (Newey & Powell 1987), the mean for tau = 1/2.

    A tau below 1/2 is averse to risk: values below v count (1 - tau) / tau times as much. Unlike a quantile it sees how
    bad the bad conditions are. ``ValueError`` if tau is not in (0, 1).
    """

    capturable: ClassVar[bool] = True

    tau: float

    def __post_init__(self) -> None:
        if not (is_number(self.tau) and 0.0 < self.tau < 1.0):
            raise ValueError(f"tau must be strictly between 0 and 1, got {quoted(self.tau)}.")

    def __call__(self, values: Tensor, probabilities: Tensor | None = None) -> Tensor:
        check_tensor("values", values)
        p = (torch.ones_like(values) if probabilities is None else probabilities.expand_as(values)).detach()
        with torch.no_grad():
            ordered, order = values.sort(-1)
            mass = p.gather(-1, order)
            below, sums = mass.cumsum(-1), (mass * ordered).cumsum(-1)
            # tau E (h - v)^+ - (1 - tau) E (v - h)^+ at every value v: it falls, and is 0 at the expectile.
            above = sums[..., -1:] - sums - ordered * (below[..., -1:] - below)
            left = self.tau * above - (1.0 - self.tau) * (ordered * below - sums)
            last = (left >= 0.0).sum(-1, keepdim=True).clamp_min(1) - 1
            weights = p * torch.where(values <= ordered.gather(-1, last), 1.0 - self.tau, self.tau)
        return (values * weights).sum(-1) / weights.sum(-1)


@dataclass(frozen=True)
class WorstCase(_Selecting):
    """Minimum of h over the points of positive probability: VaR as alpha -> 0, the objective of StableOpt."""

    capturable: ClassVar[bool] = True

    def selected(self, values: Tensor, probabilities: Tensor | None = None) -> Tensor:
        check_tensor("values", values)
        supported = values if probabilities is None else values.masked_fill(probabilities <= 0, math.inf)
        return supported.argmin(-1)


@dataclass(frozen=True)
class Mean(Functional):
    """E h(Z)."""

    capturable: ClassVar[bool] = True

    def __call__(self, values: Tensor, probabilities: Tensor | None = None) -> Tensor:
        check_tensor("values", values)
        return values.mean(-1) if probabilities is None else (values * probabilities).sum(-1)

    def lacing(self, lower: Tensor, upper: Tensor, probabilities: Tensor | None = None) -> Tensor:
        """Points whose interval is at least as long as that of the mean: u(z) - l(z) >= F(u) - F(l)."""
        gap = upper - lower
        mean = self(gap, probabilities)
        if probabilities is not None:
            gap = gap.masked_fill(probabilities <= 0, -math.inf)
        # Rounding may put the mean above the largest gap; the minimum keeps the mask from being empty.
        return gap >= torch.minimum(mean, gap.amax(-1)).unsqueeze(-1)


@dataclass(frozen=True)
class MeanVariance(Functional):
    """E h(Z) - weight * Var h(Z).

    It is not monotone, so F(u) bounds nothing. Let m = (l + u) / 2 and r = sqrt(E ((u - l) / 2)^2). The standard
    deviation is a seminorm, so that of f is within r of sd(m), and

        E l - weight (sd(m) + r)^2 <= F(f) <= E u - weight max(sd(m) - r, 0)^2.

    These bounds hold, but are not the tightest. One interval does not bound their gap, so that 2 w sigma is no bound on
    the regret.

    Raises:
        ValueError: if the weight (unit: 1 / unit of f) is negative or not finite.
    """

    capturable: ClassVar[bool] = True

    weight: Nonnegative

    def __call__(self, values: Tensor, probabilities: Tensor | None = None) -> Tensor:
        mean = Mean()(values, probabilities)
        if self.weight == 0.0:
            return mean
        return mean - self.weight * Mean()((values - mean.unsqueeze(-1)).square(), probabilities)

    def lower_bound(self, lower: Tensor, upper: Tensor, probabilities: Tensor | None = None) -> Tensor:
        if self.weight == 0.0:
            return Mean()(lower, probabilities)
        spread, reach = _spread_and_reach(lower, upper, probabilities)
        return Mean()(lower, probabilities) - self.weight * (spread + reach).square()

    def upper_bound(self, lower: Tensor, upper: Tensor, probabilities: Tensor | None = None) -> Tensor:
        spread, reach = _spread_and_reach(lower, upper, probabilities)
        # A variance beyond the largest number counts as this number: the bound stays one.
        largest = torch.finfo(spread.dtype).max
        return Mean()(upper, probabilities) - self.weight * (spread - reach).clamp_min(0.0).square().clamp_max(largest)


# Names for Ax, which stores JSON.
FUNCTIONALS: dict[str, type[Functional]] = {
    "cvar": CVaR,
    "expectile": Expectile,
    "mean": Mean,
    "mean-variance": MeanVariance,
    "var": ValueAtRisk,
    "worst": WorstCase,
}


def as_functional(functional: Any) -> Functional:
    """Return a functional as it is, and one of other words for it.

    A number is the alpha of ``ValueAtRisk``, a text a name in :data:`FUNCTIONALS` ("worst"), and a mapping a name with
    settings (``{"kind": "cvar", "alpha": 0.1}``). ``ValueError`` for anything else.
    """
    if isinstance(functional, Functional):
        return functional
    if is_number(functional) and not isinstance(functional, Integral):  # 10 is not 10 %
        return ValueAtRisk(float(functional))
    if isinstance(functional, str | Mapping):
        spec = {"kind": functional} if isinstance(functional, str) else functional
        built: Functional = specs.build(spec, FUNCTIONALS, {}, "functional")
        return built
    raise ValueError(f"functional must be one of bo_robust.risk_measures or an alpha, got {quoted(functional)}.")


def _spread_and_reach(lower: Tensor, upper: Tensor, probabilities: Tensor | None) -> tuple[Tensor, Tensor]:
    """sd(m) and r of :class:`MeanVariance`."""
    mean = Mean()
    middle, half = (lower + upper) / 2.0, (upper - lower) / 2.0
    middle = middle - mean(middle, probabilities).unsqueeze(-1)
    finfo = torch.finfo(lower.dtype)

    def root_mean_square(x: Tensor) -> Tensor:
        size = x.detach().abs().amax(-1, keepdim=True)
        unit = torch.where(size > finfo.max**0.5 / x.shape[-1], size, 1.0)  # the sum of their squares overflows
        # The gradient of a square root is infinite at zero.
        return (mean((x / unit).square(), probabilities) + finfo.tiny).sqrt() * unit.squeeze(-1)

    return root_mean_square(middle), root_mean_square(half)


def _between(lower: Tensor, upper: Tensor, low: Tensor, high: Tensor, probabilities: Tensor | None) -> Tensor:
    """Mask of the points z of the support with l(z) <= low and u(z) >= high."""
    mask = (lower <= low.unsqueeze(-1)) & (upper >= high.unsqueeze(-1))
    return supported(mask, probabilities)
