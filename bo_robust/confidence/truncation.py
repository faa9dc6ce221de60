"""Truncation levels b_t for heavy-tailed rewards, and the truncation itself.

Source: Ray Chowdhury & Gopalan 2019, Theorem 1 (TGP-UCB), Lemma 1 (ATA-GP-UCB, Fourier features) and Theorem 4
(ATA-GP-UCB, Nyström). All assume E|y|^(1+alpha) <= v, a raw moment: v must cover f as well as the noise, in units of
y^(1+alpha). Rewards should be centered, because truncation pulls the mean to zero.

Every level has a keyword ``scale`` > 0 that multiplies it; the theorems hold at 1. Every class raises ``ValueError`` at
construction when an argument is outside the range stated for it.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, overload

import numpy as np
import torch
from torch import Tensor

from bo_robust.confidence.base import log, required_size
from bo_robust.utils.input_checks import (
    Count,
    FailureProbability,
    Positive,
    TailIndex,
    check_fields,
    check_round,
    check_tensor,
    quoted,
)
from bo_robust.utils.linalg import median_and_mad


class Truncation(ABC):
    """A truncation level b_t of round t >= 1, in the units of y (ATA: of the feature directions).

    It is a number for a number, and a tensor for a tensor of rounds.
    """

    @abstractmethod
    def _at(self, t: float | Tensor) -> float | Tensor:
        """b_t; ``t`` is a number or a floating point tensor."""

    @overload
    def __call__(self, t: int) -> float: ...
    @overload
    def __call__(self, t: Tensor) -> Tensor: ...
    def __call__(self, t: int | Tensor) -> float | Tensor:
        """The level b_t of round ``t`` >= 1, of the shape of ``t``; ``ValueError`` if an integer ``t`` is below 1.

        Tensors of rounds are not checked, because that would wait for the device. Integer tensors give float64 levels.
        """
        if isinstance(t, Tensor):
            return self._at(t if t.is_floating_point() else t.double())
        check_round(t)
        return self._at(float(t))


@dataclass(frozen=True)
class NoTruncation(Truncation):
    """b_t = infinity, so that every reward is kept."""

    def _at(self, t: float | Tensor) -> float | Tensor:
        return torch.full_like(t, math.inf) if isinstance(t, Tensor) else math.inf


@dataclass(frozen=True)
class _MomentLevel(Truncation):
    """A level for rewards with E|y|^(1+alpha) <= v."""

    moment_bound: Positive
    alpha: TailIndex
    scale: Positive = field(default=1.0, kw_only=True)

    def __post_init__(self) -> None:
        check_fields(self)


@dataclass(frozen=True)
class TGPTruncation(_MomentLevel):
    """b_t = v^(1/(1+alpha)) t^(1/(2(1+alpha))), the level of TGP-UCB (Theorem 1).

    With v = alpha = 1 it is t^(1/4), as in Figure 1 (f).

    Args:
        moment_bound: v > 0, E|y|^(1+alpha) <= v.
        alpha: Tail index in (0, 1].
    """

    def _at(self, t: float | Tensor) -> float | Tensor:
        root = 1.0 / (1.0 + self.alpha)
        return (self.scale * self.moment_bound**root) * t ** (0.5 * root)


@dataclass(frozen=True)
class _ATATruncation(_MomentLevel):
    delta: FailureProbability
    horizon: Count
    num_features: Count | None

    def _level(self, t: float | Tensor, copies: int) -> float | Tensor:
        """The level in one direction, (v / L)^(1/(1+alpha)) t^((1-alpha)/(2(1+alpha))), L = log(copies m T / delta)."""
        L = log(copies * required_size(self.num_features) * self.horizon / self.delta)
        root = 1.0 / (1.0 + self.alpha)
        return (self.scale * (self.moment_bound / L) ** root) * t ** (0.5 * (1.0 - self.alpha) * root)


@dataclass(frozen=True)
class ATAFourierTruncation(_ATATruncation):
    """The level of ATA-GP-UCB with Fourier features (Lemma 1).

    b_t = (v / log(2 m T / delta))^(1/(1+alpha)) t^((1-alpha)/(2(1+alpha))).

    Args:
        moment_bound: v > 0, E|y|^(1+alpha) <= v.
        alpha: Tail index in (0, 1]; at 1 the level does not depend on t.
        delta: Failure probability in (0, 1).
        horizon: T >= 1, the number of rounds the guarantee is for.
        num_features: m >= 1, the number of FREQUENCIES (the features are 2 m sines and cosines).
    """

    def _at(self, t: float | Tensor) -> float | Tensor:
        return self._level(t, 2)


@dataclass(frozen=True)
class ATANystromTruncation(_ATATruncation):
    """The level of ATA-GP-UCB with Nyström features (Theorem 4).

    b_t = (v / log(4 m T / delta))^(1/(1+alpha)) t^((1-alpha)/(2(1+alpha))). Arguments not listed here are those of
    :class:`ATAFourierTruncation`.

    Args:
        num_features: m >= 1, a bound on the size of every dictionary (the union bound over directions then still
            holds); None for the paper's m_t, the number of arms in the present one, which ``ATAGPUCB`` fills in.
    """

    def _at(self, t: float | Tensor) -> float | Tensor:
        return self._level(t, 4)


# A reward y beyond its level b becomes c b sign(y): c by the name of the rule.
RULES: dict[str, float] = {"zero": 0.0, "clip": 1.0}


def check_rule(rule: str) -> None:
    """Raise ``ValueError`` unless ``rule`` is in :data:`RULES`."""
    if rule not in RULES:
        raise ValueError(f"rule must be one of {', '.join(RULES)}; got {quoted(rule)}.")


Rule = Annotated[str, check_rule]


def truncate(y: Tensor, level: float | Tensor, rule: str = "zero") -> Tensor:
    """Truncate rewards ``y`` of any shape beyond ``level``, b >= 0, a number or a tensor that broadcasts.

    - "zero" is the papers' y 1{|y| <= b}. It pulls the mean toward zero wherever it acts.
    - "clip" is sign(y) b beyond the level. It changes rewards less and suits one-sided tails.

    NaN stays NaN, and an infinite reward stays infinite at an infinite level, so that a failed pull is not mistaken for
    a reward. Another rule raises ``ValueError``.
    """
    check_rule(rule)
    check_tensor("y", y, floating=False)
    return torch.where(y.abs() > level, RULES[rule] * level * y.sign(), y)


def mostly_beyond(u: Tensor, rewards: Tensor, level: float | Tensor, share: float = 0.5) -> Tensor:
    """Whether each reward has more than this share of its weight u^2 beyond the level, ``... x t`` bool.

    ``u`` has the weights of p directions, ``... x p x t``; ``rewards`` are ``... x t``. It is not the share of
    directions: those that the data hardly inform have products too small for any level.
    """
    # the sum over directions of u^2 (1{beyond} - share), in few operations, as a GPU is starved by launches
    beyond = (u * rewards.unsqueeze(-2)).abs_().gt_(level)
    return beyond.sub_(share).mul_(u.square()).sum(-2) > 0.0


def median_mad(rows: np.ndarray) -> tuple[float, float]:
    """Median of the rewards and their median absolute deviation (MAD) from it.

    Raises ``ValueError`` if more than half of the entries are equal.
    """
    center, scale = map(float, median_and_mad(torch.as_tensor(rows, dtype=torch.float64).flatten()))
    if scale == 0.0:
        raise ValueError("more than half of the entries are equal: their MAD is 0 and cannot scale the rewards.")
    return center, scale


TRUNCATIONS: dict[str, Callable[..., Truncation]] = {
    "none": NoTruncation,
    "tgp": TGPTruncation,
    "ata_fourier": ATAFourierTruncation,
    "ata_nystrom": ATANystromTruncation,
}
