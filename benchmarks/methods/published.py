"""TGP-UCB and ATA-GP-UCB with the constants of their authors' published scripts, none of which has a guarantee.

Source: github.com/sayakrc/Bayesian-Optimization-under-Heavy-tailed-Payoffs @ 673ce5c.
"""

import math
from dataclasses import dataclass

from torch import Tensor

from bo_robust.confidence.base import Number, ScaledWidth, log, required_size, sqrt
from bo_robust.confidence.truncation import Truncation
from bo_robust.utils.input_checks import check_count


@dataclass(frozen=True)
class PublishedTGPWidth(ScaledWidth):
    """TGP-UCB: w_t = B + b_t sqrt(log t) / sqrt(noise_var).

    This is Theorem 1 without the factor 3, with log t for log det(I + K / noise_var) + 2 log(1 / delta), and with b_t
    for b_{t-1}. Arguments are those of :class:`bo_robust.confidence.TGPWidth` without ``delta``.
    """

    norm_bound: float
    moment_bound: float
    alpha: float
    noise_var: float

    needs = frozenset[str]()

    def _at(self, t: int, gain: Number, uniform: Number | None) -> Number:
        root = 1.0 / (1.0 + self.alpha)
        level = self.moment_bound**root * t ** (0.5 * root)
        return self.norm_bound + level * math.sqrt(math.log(t) / self.noise_var)


@dataclass(frozen=True)
class PublishedATAWidth(ScaledWidth):
    """ATA-GP-UCB, without the theorem's factor 4 and without delta.

    w_t = B + sqrt(p / noise_var) v^(1/(1+alpha)) log(p T)^(alpha/(1+alpha)) t^((1-alpha)/(2(1+alpha))).

    Args:
        norm_bound: B > 0, ||f||_k <= B.
        moment_bound: v > 0, E|y|^(1+alpha) <= v.
        alpha: Tail index in (0, 1].
        noise_var: lambda > 0 of the posterior.
        horizon: T >= 2.
        num_features: p >= 1, the number of FEATURES (twice the frequencies of Fourier features); None for the number of
            arms in the present dictionary, which ``ATAGPUCB`` fills in.
    """

    norm_bound: float
    moment_bound: float
    alpha: float
    noise_var: float
    horizon: int
    num_features: int | None

    needs = frozenset[str]()

    def __post_init__(self) -> None:
        check_count(2, horizon=self.horizon)
        super().__post_init__()

    def _at(self, t: int, gain: Number, uniform: Number | None) -> Number:
        p, root = required_size(self.num_features), 1.0 / (1.0 + self.alpha)
        growth = float(t) ** (0.5 * (1.0 - self.alpha) * root)
        tail = self.moment_bound**root * log(p * self.horizon) ** (self.alpha * root)
        return self.norm_bound + sqrt(p / self.noise_var) * tail * growth


@dataclass(frozen=True)
class PublishedATATruncation(Truncation):
    """ATA-GP-UCB: b_t = (v / log(p T))^(1/(1+alpha)) t^((1-alpha)/(2(1+alpha))).

    Arguments are those of :class:`PublishedATAWidth`.
    """

    moment_bound: float
    alpha: float
    horizon: int
    num_features: int | None

    def __post_init__(self) -> None:
        check_count(2, horizon=self.horizon)

    def _at(self, t: float | Tensor) -> float | Tensor:
        root = 1.0 / (1.0 + self.alpha)
        spread = (self.moment_bound / log(required_size(self.num_features) * self.horizon)) ** root
        return spread * t ** (0.5 * (1.0 - self.alpha) * root)


@dataclass(frozen=True)
class LogWidth(ScaledWidth):
    """w_t = log t (Ray Chowdhury & Gopalan 2019, Section 6, Figure 1 (f)); w_1 = 0."""

    needs = frozenset[str]()

    def _at(self, t: int, gain: Number, uniform: Number | None) -> Number:
        return math.log(t)
