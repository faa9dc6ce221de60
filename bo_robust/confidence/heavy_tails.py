"""Confidence widths for heavy-tailed rewards (Ray Chowdhury & Gopalan 2019); see :mod:`.widths` for conventions."""

import math
from dataclasses import dataclass
from typing import ClassVar

from bo_robust.confidence.base import GAIN, Number, ScaledWidth, log, required_size, sqrt
from bo_robust.utils.input_checks import Accuracy, Count, FailureProbability, Positive, TailIndex
from bo_robust.utils.round_numbers import by_round


@dataclass(frozen=True)
class _HeavyTailWidth(ScaledWidth):
    """Width for ||f||_k <= B and E|y|^(1+alpha) <= v, over a posterior of noise variance lambda."""

    norm_bound: Positive
    moment_bound: Positive
    alpha: TailIndex
    noise_var: Positive

    def _level(self, t: int) -> float:
        """The truncation level of TGP-UCB, b_t = v^(1/(1+alpha)) t^(1/(2(1+alpha))), with b_0 = 0."""
        root = 1.0 / (1.0 + self.alpha)
        return self.moment_bound**root * t ** (0.5 * root)


@dataclass(frozen=True)
class TGPWidth(_HeavyTailWidth):
    """TGP-UCB, where every reward is truncated once (Ray Chowdhury & Gopalan 2019, Theorem 1).

    w_t = B + (3 / sqrt(noise_var)) b_{t-1} sqrt(2 gamma_{t-1} + 2 log(1/delta)) with b_t = v^(1/(1+alpha))
    t^(1/(2(1+alpha))). As b_0 = 0, w_1 = B. The paper writes logdet(I + K/noise_var) for 2 gamma.

    Args:
        norm_bound: B > 0, ||f||_k <= B.
        moment_bound: v > 0, E|y|^(1+alpha) <= v.
        alpha: Tail index in (0, 1].
        noise_var: lambda > 0 of the posterior.
        delta: Failure probability in (0, 1).
    """

    capturable: ClassVar[bool] = True

    delta: FailureProbability

    needs = frozenset({GAIN})

    def _at(self, t: int, gain: Number, uniform: Number | None) -> Number:
        spread = sqrt(gain * 2.0 - 2.0 * math.log(self.delta))
        factor = by_round(lambda t: 3.0 * self._level(t - 1) / math.sqrt(self.noise_var), t, spread)
        return self.norm_bound + factor * spread


@dataclass(frozen=True)
class _ATAWidth(_HeavyTailWidth):
    """A width of ATA-GP-UCB, whose union bound is over ``horizon`` rounds and all directions of feature space."""

    delta: FailureProbability
    horizon: Count
    num_features: Count | None

    def _noise_term(self, t: int, copies: int) -> Number:
        """The second term of w_t (:class:`ATAFourierWidth`), with L = log(copies m T / delta)."""
        m, root = required_size(self.num_features), 1.0 / (1.0 + self.alpha)
        tail = self.moment_bound**root * log(copies * m * self.horizon / self.delta) ** (self.alpha * root)
        growth = float(t - 1) ** (0.5 * (1.0 - self.alpha) * root)  # 0^0 = 1 when alpha = 1
        return 4.0 * (sqrt(m / self.noise_var) * tail * growth)


@dataclass(frozen=True)
class ATAFourierWidth(_ATAWidth):
    """ATA-GP-UCB with quadrature Fourier features (Ray Chowdhury & Gopalan 2019, Lemma 1).

    w_t = B + 4 sqrt(m / noise_var) v^(1/(1+alpha)) L^(alpha/(1+alpha)) (t-1)^((1-alpha)/(2(1+alpha))),
    L = log(2 m T / delta). For alpha < 1, w_1 = B. For alpha = 1 the power is 0 and 0^0 = 1, so the width is one
    constant for every t, the first round included. Arguments not listed here are those of :class:`TGPWidth`.

    Args:
        horizon: T >= 1, the number of rounds the guarantee is for.
        num_features: m >= 1, the number of FREQUENCIES (the features are 2 m sines and cosines).
    """

    needs = frozenset[str]()

    def _at(self, t: int, gain: Number, uniform: Number | None) -> Number:
        return self.norm_bound + self._noise_term(t, 2)


@dataclass(frozen=True)
class ATANystromWidth(_ATAWidth):
    """ATA-GP-UCB with Nyström features (Ray Chowdhury & Gopalan 2019, Theorem 4).

    The formula is that of :class:`ATAFourierWidth` with B (1 + 1/sqrt(1 - epsilon)) for B and L = log(4 m T / delta).
    Arguments not listed here are those of :class:`ATAFourierWidth`.

    Args:
        num_features: m >= 1, a bound on the size of every dictionary; None for the paper's m_t, the number of arms in
            the present one, which ``ATAGPUCB`` fills in each round.
        epsilon: Accuracy of the dictionary, in (0, 1).
    """

    epsilon: Accuracy

    needs = frozenset[str]()

    def _at(self, t: int, gain: Number, uniform: Number | None) -> Number:
        prior = self.norm_bound * (1.0 + 1.0 / math.sqrt(1.0 - self.epsilon))
        return prior + self._noise_term(t, 4)
