"""Confidence widths w_t: UCB_t(x) = mu_{t-1}(x) + w_t sigma_{t-1}(x).

The width multiplies sigma. Srinivas et al. and Nguyen et al. write beta_t^(1/2) for it, the other papers
beta_t; BoTorch's ``UpperConfidenceBound(beta)`` takes w_t^2. ``scale`` multiplies w_t: a paper that divides
w_t^2 by 5 has ``scale=5 ** -0.5``; the theorems hold at ``scale=1``. Every class raises ``ValueError`` at
construction when an argument is outside the range stated for it.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor

from bo_robust.schedules.truncation import check_ata
from bo_robust.validation import check_count, check_delta, check_positive, check_round, check_tail_index

__all__ = [
    "WIDTHS",
    "ATAFourierWidth",
    "ATANystromWidth",
    "BayesianFiniteWidth",
    "CompactWidth",
    "ConstantWidth",
    "FiniteWidth",
    "LogWidth",
    "RKHSWidth",
    "RandomisedWidth",
    "SelfNormalisedWidth",
    "TGPWidth",
    "Width",
]

Number = float | Tensor


class Width(Protocol):
    """A confidence width, see :meth:`_ScaledWidth.__call__` for the arguments."""

    def __call__(self, t: int, information_gain: Number = 0.0, uniform: Number | None = None) -> Number: ...


@dataclass(frozen=True)
class _ScaledWidth(ABC):
    scale: float = field(default=1.0, kw_only=True)

    def __post_init__(self) -> None:
        check_positive(scale=self.scale)

    def __call__(self, t: int, information_gain: Number = 0.0, uniform: Number | None = None) -> Number:
        """The width of round ``t``, for every trial.

        Args:
            t: The round about to be played, >= 1; t - 1 rewards were observed.
            information_gain: gamma_{t-1} = 1/2 logdet(I + K_{t-1}/noise_var) in nats, of the t - 1 points
                played: a number, or ``s`` of them, one per trial. Use the realised gain, not a worst case.
            uniform: Draws from [0, 1), a number or ``s``; only :class:`RandomisedWidth` needs them.

        Returns:
            w_t in units of sigma: a tensor of shape ``s`` where it depends on an argument that is one, else
            a number. Tensors never wait for the device.

        Raises:
            ValueError: if ``t`` is below 1, or ``uniform`` is needed and missing.
        """
        check_round(t)
        return self.scale * self._at(t, information_gain, uniform)

    @abstractmethod
    def _at(self, t: int, gain: Number, uniform: Number | None) -> Number:
        """The width at scale 1; a number where it depends on ``t`` alone."""


@dataclass(frozen=True)
class FiniteWidth(_ScaledWidth):
    """w_t^2 = 2 log(|X| t^2 pi^2 / (6 delta)), f ~ GP on finitely many arms (Srinivas et al. 2010, Thm 1).

    Args:
        num_arms: |X| >= 1.
        delta: Failure probability in (0, 1).
    """

    num_arms: int
    delta: float

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count(1, num_arms=self.num_arms)
        check_delta(self.delta)

    def _at(self, t: int, gain: Number, uniform: Number | None) -> Number:
        return math.sqrt(2.0 * math.log(self.num_arms * t**2 * math.pi**2 / (6.0 * self.delta)))


@dataclass(frozen=True)
class BayesianFiniteWidth(_ScaledWidth):
    """w_t^2 = 2 log(|X| pi^2 t^2 / (3 delta)): Thm 1 at delta / 2 (Ziomek et al. 2024, Thm 4.2 A).

    Args:
        num_arms: |X| >= 1.
        delta: Failure probability in (0, 1).
    """

    num_arms: int
    delta: float

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count(1, num_arms=self.num_arms)
        check_delta(self.delta)

    def _at(self, t: int, gain: Number, uniform: Number | None) -> Number:
        return math.sqrt(2.0 * math.log(self.num_arms * t**2 * math.pi**2 / (3.0 * self.delta)))


@dataclass(frozen=True)
class CompactWidth(_ScaledWidth):
    """f ~ GP on a compact convex X in [0, r]^d (Srinivas et al. 2010, Theorem 2).

    w_t^2 = 2 log(2 t^2 pi^2 / (3 delta)) + 2 d log(t^2 d b r sqrt(log(4 d a / delta))), for sample paths with
    Pr(sup |df/dx_j| > L) <= a exp(-L^2 / b^2). The second logarithm counts grid points per dimension in the
    proof (A.2), of which there is at least one, so it is taken as 0 where it is negative. The appendix
    (Lemma 5.8) prints 4 d log(d t b r sqrt(..)), which is not what its own grid gives.

    Args:
        dim: d >= 1.
        delta: Failure probability in (0, 1).
        a: a of the derivative bound, > delta / (4 d).
        b: b of the derivative bound, > 0, in units of f per unit of x.
        r: Side of the box, > 0.
    """

    dim: int
    delta: float
    a: float
    b: float
    r: float

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count(1, dim=self.dim)
        check_delta(self.delta)
        check_positive(a=self.a, b=self.b, r=self.r)
        if 4.0 * self.dim * self.a <= self.delta:
            raise ValueError(f"a must exceed delta / (4 dim), where log(4 dim a / delta) > 0; got a={self.a!r}.")

    def _at(self, t: int, gain: Number, uniform: Number | None) -> Number:
        slope = self.b * math.sqrt(math.log(4.0 * self.dim * self.a / self.delta))
        log_grid = max(math.log(t**2 * self.dim * slope * self.r), 0.0)
        log_rounds = math.log(2.0 * t**2 * math.pi**2 / (3.0 * self.delta))
        return math.sqrt(2.0 * log_rounds + 2.0 * self.dim * log_grid)


@dataclass(frozen=True)
class RKHSWidth(_ScaledWidth):
    """w_t^2 = 2 B + 300 gamma_t log^3(t / delta), noise bounded by sigma (Srinivas et al. 2010, Theorem 3).

    The theorem's gamma_t is the maximum information gain of t points; it is read from ``information_gain``,
    so pass that for the theorem as stated.

    Args:
        norm_bound_squared: B > 0 with ||f||_k^2 <= B (the SQUARED norm, unlike :class:`SelfNormalisedWidth`).
        delta: Failure probability in (0, 1).
    """

    norm_bound_squared: float
    delta: float

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(norm_bound_squared=self.norm_bound_squared)
        check_delta(self.delta)

    def _at(self, t: int, gain: Number, uniform: Number | None) -> Number:
        return _sqrt(gain * (300.0 * math.log(t / self.delta) ** 3) + 2.0 * self.norm_bound_squared)


@dataclass(frozen=True)
class SelfNormalisedWidth(_ScaledWidth):
    """w_t = B + R sqrt(2 (gamma_{t-1} + 1 + log(1/delta))) (Chowdhury & Gopalan 2017, Theorem 2).

    The theorem is for ``noise_var`` = 1 + 2/T. For another noise_var the self-normalised bound has
    R / sqrt(noise_var) in place of R: pass that as ``noise_scale`` when noise_var < 1, or there is no
    guarantee.

    Args:
        norm_bound: B > 0, ||f||_k <= B.
        noise_scale: R > 0, the noise is R-sub-Gaussian.
        delta: Failure probability in (0, 1).
    """

    norm_bound: float
    noise_scale: float
    delta: float

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(norm_bound=self.norm_bound, noise_scale=self.noise_scale)
        check_delta(self.delta)

    def _at(self, t: int, gain: Number, uniform: Number | None) -> Number:
        inside = gain * 2.0 + 2.0 * (1.0 - math.log(self.delta))
        return self.norm_bound + self.noise_scale * _sqrt(inside)


@dataclass(frozen=True)
class RandomisedWidth(_ScaledWidth):
    """w_t = sqrt(zeta_t), zeta_t = 2 log(|X| / 2) + Exp(rate 1/2): IRGP-UCB (Takeno et al. 2023, Thm 4.2).

    A fresh draw each round; the law does not grow with t. The exponential is the inverse CDF of ``uniform``,
    -2 log(1 - u), so it comes from the caller's pre-drawn table.

    Args:
        num_arms: |X| >= 2 (one arm would make the shift negative).

    Raises:
        ValueError: on a call, if ``uniform`` is missing or is a number outside [0, 1).
    """

    num_arms: int

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count(2, num_arms=self.num_arms)

    def _at(self, t: int, gain: Number, uniform: Number | None) -> Number:
        if uniform is None:
            raise ValueError("RandomisedWidth needs `uniform`, draws from [0, 1), one per trial and round.")
        shift = 2.0 * math.log(self.num_arms / 2.0)
        if isinstance(uniform, Tensor):
            return torch.sqrt(shift - 2.0 * torch.log1p(-uniform))
        if not 0.0 <= uniform < 1.0:
            raise ValueError(f"uniform must be in [0, 1), got {uniform!r}.")
        return math.sqrt(shift - 2.0 * math.log1p(-uniform))


@dataclass(frozen=True)
class TGPWidth(_ScaledWidth):
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
        spread = _sqrt(gain * 2.0 - 2.0 * math.log(self.delta))
        return self.norm_bound + (3.0 * level / math.sqrt(self.noise_var)) * spread


@dataclass(frozen=True)
class _ATAWidth(_ScaledWidth):
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
class ConstantWidth(_ScaledWidth):
    """w_t = value every round, without a guarantee; 0 plays the posterior mean.

    Args:
        value: The width, >= 0.

    Raises:
        ValueError: if ``value`` is negative or not finite.
    """

    value: float

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (math.isfinite(self.value) and self.value >= 0.0):
            raise ValueError(f"value must be a finite number >= 0, got {self.value!r}.")

    def _at(self, t: int, gain: Number, uniform: Number | None) -> Number:
        return self.value


@dataclass(frozen=True)
class LogWidth(_ScaledWidth):
    """w_t = log t, without a guarantee (Ray Chowdhury & Gopalan 2019, Section 6, Figure 1 (f)); w_1 = 0."""

    def _at(self, t: int, gain: Number, uniform: Number | None) -> Number:
        return math.log(t)


WIDTHS: dict[str, Callable[..., Width]] = {
    "finite": FiniteWidth,
    "compact": CompactWidth,
    "rkhs": RKHSWidth,
    "self_normalised": SelfNormalisedWidth,
    "randomised": RandomisedWidth,
    "tgp": TGPWidth,
    "ata_fourier": ATAFourierWidth,
    "ata_nystrom": ATANystromWidth,
    "bayesian_finite": BayesianFiniteWidth,
    "constant": ConstantWidth,
    "log": LogWidth,
}


def _sqrt(x: Number) -> Number:
    return x.sqrt() if isinstance(x, Tensor) else math.sqrt(x)
