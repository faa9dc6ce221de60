"""Confidence widths for heavy-tailed rewards (Ray Chowdhury & Gopalan 2019); see :mod:`.widths` for conventions."""

from __future__ import annotations

import math
from dataclasses import dataclass

from bo_robust.schedules.truncation import check_ata
from bo_robust.schedules.width_base import Number, ScaledWidth, sqrt
from bo_robust.validation import check_count, check_delta, check_positive, check_tail_index

__all__ = ["ATAFourierWidth", "ATANystromWidth", "LogWidth", "PublishedATAWidth", "PublishedTGPWidth", "TGPWidth"]


@dataclass(frozen=True)
class TGPWidth(ScaledWidth):
    """TGP-UCB (Ray Chowdhury & Gopalan 2019, Theorem 1), rewards truncated at b_t once.

    w_t = B + (3 / sqrt(noise_var)) b_{t-1} sqrt(2 gamma_{t-1} + 2 log(1/delta)), b_t = v^(1/(1+alpha))
    t^(1/(2(1+alpha))) and b_0 = 0, so w_1 = B. (logdet(I + K/noise_var) = 2 gamma.)

    Args:
        norm_bound: B > 0, ||f||_k <= B.
        moment_bound: v > 0, E|y|^(1+alpha) <= v.
        alpha: Tail index in (0, 1].
        noise_var: lambda > 0 of the posterior.
        delta: Failure probability in (0, 1).
    """

    norm_bound: float
    moment_bound: float
    alpha: float
    noise_var: float
    delta: float

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(norm_bound=self.norm_bound, moment_bound=self.moment_bound, noise_var=self.noise_var)
        check_tail_index(self.alpha)
        check_delta(self.delta)

    def _at(self, t: int, gain: Number, uniform: Number | None) -> Number:
        root = 1.0 / (1.0 + self.alpha)
        level = self.moment_bound**root * (t - 1) ** (0.5 * root)
        spread = sqrt(gain * 2.0 - 2.0 * math.log(self.delta))
        return self.norm_bound + (3.0 * level / math.sqrt(self.noise_var)) * spread


@dataclass(frozen=True)
class _ATAWidth(ScaledWidth):
    norm_bound: float
    moment_bound: float
    alpha: float
    noise_var: float
    delta: float
    horizon: int
    num_features: int

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(norm_bound=self.norm_bound, noise_var=self.noise_var)
        check_ata(self.moment_bound, self.alpha, self.delta, self.horizon, self.num_features)

    def _spread(self, t: int, directions: int) -> float:
        """The second term of w_t, with L = log(directions T / delta)."""
        root = 1.0 / (1.0 + self.alpha)
        growth = float(t - 1) ** (0.5 * (1.0 - self.alpha) * root)  # 0^0 = 1 when alpha = 1
        log_term = math.log(directions * self.horizon / self.delta)
        tail = self.moment_bound**root * log_term ** (self.alpha * root)
        return 4.0 * math.sqrt(self.num_features / self.noise_var) * tail * growth


@dataclass(frozen=True)
class ATAFourierWidth(_ATAWidth):
    """ATA-GP-UCB with quadrature Fourier features (Ray Chowdhury & Gopalan 2019, Lemma 1).

    w_t = B + 4 sqrt(m / noise_var) v^(1/(1+alpha)) L^(alpha/(1+alpha)) (t-1)^((1-alpha)/(2(1+alpha))),
    L = log(2 m T / delta). For alpha < 1, w_1 = B; for alpha = 1 the power is 0 and 0^0 = 1, so the width is
    one constant for every t, the first round included.

    Args:
        norm_bound: B > 0, ||f||_k <= B.
        moment_bound: v > 0, E|y|^(1+alpha) <= v.
        alpha: Tail index in (0, 1].
        noise_var: lambda > 0 of the posterior.
        delta: Failure probability in (0, 1).
        horizon: T >= 1, the number of rounds the guarantee is for.
        num_features: m >= 1, the number of FREQUENCIES (the features are 2 m sines and cosines).
    """

    def _at(self, t: int, gain: Number, uniform: Number | None) -> Number:
        return self.norm_bound + self._spread(t, 2 * self.num_features)


@dataclass(frozen=True)
class ATANystromWidth(_ATAWidth):
    """ATA-GP-UCB with Nyström features (Ray Chowdhury & Gopalan 2019, Theorem 4).

    As :class:`ATAFourierWidth` with B (1 + 1/sqrt(1 - epsilon)) for B and L = log(4 m T / delta).

    Args:
        norm_bound: B > 0, ||f||_k <= B.
        moment_bound: v > 0, E|y|^(1+alpha) <= v.
        alpha: Tail index in (0, 1].
        noise_var: lambda > 0 of the posterior.
        delta: Failure probability in (0, 1).
        horizon: T >= 1, the number of rounds the guarantee is for.
        num_features: m >= 1, the dictionary size; the paper's m_t, or a bound on it (the width grows with m).
        epsilon: Accuracy of the dictionary, in (0, 1).
    """

    epsilon: float

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0.0 < self.epsilon < 1.0:
            raise ValueError(f"epsilon (accuracy of the dictionary) must be in (0, 1), got {self.epsilon!r}.")

    def _at(self, t: int, gain: Number, uniform: Number | None) -> Number:
        prior = self.norm_bound * (1.0 + 1.0 / math.sqrt(1.0 - self.epsilon))
        return prior + self._spread(t, 4 * self.num_features)


@dataclass(frozen=True)
class PublishedTGPWidth(ScaledWidth):
    """TGP-UCB as its authors' published script has it: w_t = B + b_t sqrt(log t) / sqrt(noise_var).

    Theorem 1 without the factor 3, with log t for log det(I + K / noise_var) + 2 log(1 / delta), and b_t for b_{t-1}:
    no guarantee (github.com/sayakrc/Bayesian-Optimization-under-Heavy-tailed-Payoffs).

    Args:
        norm_bound: B > 0.
        moment_bound: v > 0, E|y|^(1+alpha) <= v.
        alpha: Tail index in (0, 1].
        noise_var: lambda > 0 of the posterior.
    """

    norm_bound: float
    moment_bound: float
    alpha: float
    noise_var: float

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(norm_bound=self.norm_bound, moment_bound=self.moment_bound, noise_var=self.noise_var)
        check_tail_index(self.alpha)

    def _at(self, t: int, gain: Number, uniform: Number | None) -> Number:
        root = 1.0 / (1.0 + self.alpha)
        level = self.moment_bound**root * t ** (0.5 * root)
        return self.norm_bound + level * math.sqrt(math.log(t) / self.noise_var)


@dataclass(frozen=True)
class PublishedATAWidth(ScaledWidth):
    """ATA-GP-UCB as its authors' published script has it, without the theorem's factor 4 and without delta.

    w_t = B + sqrt(p / noise_var) v^(1/(1+alpha)) log(p T)^(alpha/(1+alpha)) t^((1-alpha)/(2(1+alpha))): no guarantee.

    Args:
        norm_bound: B > 0.
        moment_bound: v > 0, E|y|^(1+alpha) <= v.
        alpha: Tail index in (0, 1].
        noise_var: lambda > 0 of the posterior.
        horizon: T >= 2.
        num_directions: p >= 1, the FEATURES (twice the frequencies of Fourier features).
    """

    norm_bound: float
    moment_bound: float
    alpha: float
    noise_var: float
    horizon: int
    num_directions: int

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(norm_bound=self.norm_bound, moment_bound=self.moment_bound, noise_var=self.noise_var)
        check_tail_index(self.alpha)
        check_count(2, horizon=self.horizon)
        check_count(1, num_directions=self.num_directions)

    def _at(self, t: int, gain: Number, uniform: Number | None) -> Number:
        root = 1.0 / (1.0 + self.alpha)
        growth = float(t) ** (0.5 * (1.0 - self.alpha) * root)
        log_term = math.log(self.num_directions * self.horizon)
        tail = self.moment_bound**root * log_term ** (self.alpha * root)
        return self.norm_bound + math.sqrt(self.num_directions / self.noise_var) * tail * growth


@dataclass(frozen=True)
class LogWidth(ScaledWidth):
    """w_t = log t, without a guarantee (Ray Chowdhury & Gopalan 2019, Section 6, Figure 1 (f)); w_1 = 0."""

    def _at(self, t: int, gain: Number, uniform: Number | None) -> Number:
        return math.log(t)
