"""Confidence widths w_t: UCB_t(x) = mu_{t-1}(x) + w_t sigma_{t-1}(x).

The width multiplies sigma. Srinivas et al. and Nguyen et al. write beta_t^(1/2) for it, the other papers beta_t.
BoTorch's ``UpperConfidenceBound(beta)`` takes w_t^2.

Every width has a keyword ``scale`` that multiplies w_t. The theorems hold at ``scale=1``; a paper that divides w_t^2 by
5 has the scale :data:`~bo_robust.confidence.base.EXPLORING`. Every class raises ``ValueError`` at construction when an
argument is outside the range stated for it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor

from bo_robust.confidence.base import DIMENSION, GAIN, UNIFORM, Number, ScaledWidth, sqrt
from bo_robust.utils.input_checks import Accuracy, Count, FailureProbability, Nonnegative, Positive, check_count
from bo_robust.utils.round_numbers import by_round


@dataclass(frozen=True)
class _FiniteArmsWidth(ScaledWidth):
    """w_t^2 = 2 log(|X| t^2 pi^2 / (share delta)): a union bound over arms and rounds."""

    num_arms: Count
    delta: FailureProbability
    _share: ClassVar[float]

    needs = frozenset[str]()

    def _at(self, t: int, gain: Number, uniform: Number | None) -> Number:
        return math.sqrt(2.0 * math.log(self.num_arms * t**2 * math.pi**2 / (self._share * self.delta)))


@dataclass(frozen=True)
class FiniteWidth(_FiniteArmsWidth):
    """w_t^2 = 2 log(|X| t^2 pi^2 / (6 delta)) for f ~ GP on finitely many arms (Srinivas et al. 2010, Theorem 1).

    Args:
        num_arms: |X| >= 1.
        delta: Failure probability in (0, 1).
    """

    _share = 6.0


@dataclass(frozen=True)
class BayesianFiniteWidth(_FiniteArmsWidth):
    """w_t^2 = 2 log(|X| pi^2 t^2 / (3 delta)), Theorem 1 at delta / 2 (Ziomek et al. 2024, Theorem 4.2 A).

    Arguments are those of :class:`FiniteWidth`.
    """

    _share = 3.0


@dataclass(frozen=True)
class CompactWidth(ScaledWidth):
    """Width for f ~ GP on a compact convex X in [0, r]^d (Srinivas et al. 2010, Theorem 2).

    w_t^2 = 2 log(2 t^2 pi^2 / (3 delta)) + 2 d log(t^2 d b r sqrt(log(4 d a / delta))), for sample paths with
    Pr(sup |df/dx_j| > L) <= a exp(-L^2 / b^2). The second logarithm counts grid points per dimension in the proof
    (A.2). There is at least one such point, so a negative logarithm is taken as 0. The appendix (Lemma 5.8) prints 4 d
    log(d t b r sqrt(..)), which is not what its own grid gives. Ziomek et al. 2024, Theorem 4.2 (B), print that with
    all of delta; as their test takes half, the width they need is this one at delta / 2.

    Args:
        dim: d >= 1.
        delta: Failure probability in (0, 1).
        a: a of the derivative bound, > delta / (4 d).
        b: b of the derivative bound, > 0, in units of f per unit of x.
        r: Side of the box, > 0.
    """

    dim: Count
    delta: FailureProbability
    a: Positive
    b: Positive
    r: Positive

    def __post_init__(self) -> None:
        super().__post_init__()
        if 4.0 * self.dim * self.a <= self.delta:
            raise ValueError(f"a must exceed delta / (4 dim), where log(4 dim a / delta) > 0; got a={self.a!r}.")

    needs = frozenset[str]()

    def _at(self, t: int, gain: Number, uniform: Number | None) -> Number:
        slope = self.b * math.sqrt(math.log(4.0 * self.dim * self.a / self.delta))
        log_grid = max(math.log(t**2 * self.dim * slope * self.r), 0.0)
        log_rounds = math.log(2.0 * t**2 * math.pi**2 / (3.0 * self.delta))
        return math.sqrt(2.0 * log_rounds + 2.0 * self.dim * log_grid)


@dataclass(frozen=True)
class RKHSWidth(ScaledWidth):
    """w_t^2 = 2 B + 300 gamma_t log^3(t / delta) for noise bounded by sigma (Srinivas et al. 2010, Theorem 3).

    The theorem's gamma_t is the maximum information gain of t points. A call raises ``ValueError`` at a round beyond
    ``max_gain``.

    Args:
        norm_bound_squared: B > 0 with ||f||_k^2 <= B (the SQUARED norm, unlike :class:`SelfNormalizedWidth`).
        delta: Failure probability in (0, 1).
        max_gain: Bounds on gamma_1, gamma_2, ..., such as
            :func:`~bo_robust.confidence.information_gain.greedy_bound`'s. None takes the realized gain of the call,
            which is smaller, and in no theorem.
    """

    by_norm_bound: ClassVar[bool] = True
    capturable: ClassVar[bool] = True

    norm_bound_squared: Positive
    delta: FailureProbability
    max_gain: Sequence[float] | None = field(default=None, repr=False)

    @property
    def needs(self) -> frozenset[str]:
        """The realized information gain, unless its bounds are given."""
        return frozenset({GAIN} if self.max_gain is None else ())

    def _at(self, t: int, gain: Number, uniform: Number | None) -> Number:
        if self.max_gain is not None:
            if t > len(self.max_gain):
                raise ValueError(f"max_gain has bounds for {len(self.max_gain)} rounds, this is round {t}.")
            gain = float(self.max_gain[int(t) - 1])
        factor = by_round(lambda t: 300.0 * math.log(t / self.delta) ** 3, t, gain)
        return sqrt(gain * factor + 2.0 * self.norm_bound_squared)


@dataclass(frozen=True)
class SelfNormalizedWidth(ScaledWidth):
    """w_t = B + R sqrt(2 (gamma_{t-1} + 1 + log(1/delta))) (Chowdhury & Gopalan 2017, Theorem 2).

    The theorem is for ``noise_var`` = 1 + 2/T. For another noise_var the self-normalized bound has R / sqrt(noise_var)
    in place of R. When noise_var < 1, pass that as ``noise_scale``, or there is no guarantee.

    Args:
        norm_bound: B > 0, ||f||_k <= B.
        noise_scale: R > 0, the noise is R-sub-Gaussian.
        delta: Failure probability in (0, 1).
    """

    by_norm_bound: ClassVar[bool] = True
    capturable: ClassVar[bool] = True

    norm_bound: Positive
    noise_scale: Positive
    delta: FailureProbability

    needs = frozenset({GAIN})

    def _at(self, t: int, gain: Number, uniform: Number | None) -> Number:
        inside = gain * 2.0 + 2.0 * (1.0 - math.log(self.delta))
        return self.norm_bound + self.noise_scale * sqrt(inside)


@dataclass(frozen=True)
class BKBWidth(ScaledWidth):
    """The width of BKB, beta~_t / sqrt(noise_var) (Calandriello et al. 2019, Theorem 2).

    beta~_t = 2 xi sqrt(alpha L_t sum_s sigma~_t^2(x_s) + log(1/delta)) + (1 + 1/sqrt(1 - epsilon)) sqrt(noise_var) F,
    with alpha = (1 + epsilon) / (1 - epsilon), t the number of rewards so far and L_t = 1 + log(kappa^2 t / noise_var
    + 1), which the proof needs (its inequality 6); the paper prints log(kappa^2 t). The division by sqrt(noise_var) is
    there because the paper's sigma~ is sigma / sqrt(noise_var).

    The argument ``information_gain`` of a call is the sum over the points chosen, which BKB and BBKB pass.

    Args:
        norm_bound: F > 0, ||f||_k <= F.
        noise_scale: xi > 0, the noise is xi-sub-Gaussian.
        noise_var: lambda > 0 of the posterior.
        delta: Failure probability in (0, 1).
        epsilon: Accuracy of the dictionary, in (0, 1).
        kappa: kappa >= sqrt k(x, x).
    """

    norm_bound: Positive
    noise_scale: Positive
    noise_var: Positive
    delta: FailureProbability
    epsilon: Accuracy
    kappa: Positive = 1.0

    needs = frozenset({DIMENSION})

    def _at(self, t: int, gain: Number, uniform: Number | None) -> Number:
        ratio = (1.0 + self.epsilon) / (1.0 - self.epsilon)
        log_rounds = 1.0 + math.log1p(self.kappa**2 * (t - 1) / self.noise_var)
        spread = sqrt(gain * (ratio * log_rounds) - math.log(self.delta))
        bias = (1.0 + 1.0 / math.sqrt(1.0 - self.epsilon)) * self.norm_bound
        return spread * (2.0 * self.noise_scale / math.sqrt(self.noise_var)) + bias


@dataclass(frozen=True)
class RandomizedWidth(ScaledWidth):
    """w_t = sqrt(zeta_t), zeta_t = 2 log(|X| / 2) + Exp(rate 1/2), of IRGP-UCB (Takeno et al. 2023, Theorem 4.2).

    Every round has a fresh draw; its law does not grow with t. The exponential is -2 log(1 - u), the inverse CDF at
    ``uniform``, so that all randomness comes from the caller's table of draws. A call raises ``ValueError`` if
    ``uniform`` is missing or a number outside [0, 1).

    Args:
        num_arms: |X| >= 2 (one arm would make the shift negative).
    """

    capturable: ClassVar[bool] = True

    num_arms: int

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count(2, num_arms=self.num_arms)

    needs = frozenset({UNIFORM})

    def _at(self, t: int, gain: Number, uniform: Number | None) -> Number:
        if uniform is None:
            raise ValueError("RandomizedWidth needs `uniform`, draws from [0, 1), one per trial and round.")
        shift = 2.0 * math.log(self.num_arms / 2.0)
        if isinstance(uniform, Tensor):
            return torch.sqrt(shift - 2.0 * torch.log1p(-uniform))
        if not 0.0 <= uniform < 1.0:
            raise ValueError(f"uniform must be in [0, 1), got {uniform!r}.")
        return math.sqrt(shift - 2.0 * math.log1p(-uniform))


@dataclass(frozen=True)
class ConstantWidth(ScaledWidth):
    """The same width every round, without a guarantee; 0 runs the posterior mean.

    ``value`` is the width, finite and >= 0.
    """

    value: Nonnegative

    needs = frozenset[str]()

    def _at(self, t: int, gain: Number, uniform: Number | None) -> Number:
        return self.value
