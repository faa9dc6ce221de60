"""Truncation levels b_t for heavy-tailed rewards, and the truncation itself.

Source: Ray Chowdhury & Gopalan 2019, Theorem 1 (TGP-UCB), Lemma 1 (ATA-GP-UCB, Fourier features) and
Theorem 4 (ATA-GP-UCB, Nyström). All assume E|y|^(1+alpha) <= v, a raw moment: v must cover f as well as the
noise, in units of y^(1+alpha), and rewards should be centred because truncation pulls the mean to zero.
Every class raises ``ValueError`` at construction when an argument is outside the range stated for it.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol, overload

import torch
from torch import Tensor

from bo_robust.validation import check_count, check_delta, check_positive, check_round, check_rule, check_tail_index

__all__ = [
    "TRUNCATIONS",
    "ATAFourierTruncation",
    "ATANystromTruncation",
    "NoTruncation",
    "PublishedATATruncation",
    "TGPTruncation",
    "Truncation",
    "truncate",
]


class Truncation(Protocol):
    """A truncation level: b_t in the units of y (ATA: of the feature directions), t >= 1."""

    @overload
    def __call__(self, t: int) -> float: ...
    @overload
    def __call__(self, t: Tensor) -> Tensor: ...


class _Level(ABC):
    """A level computed from the round, a number for a number and a tensor for a tensor of rounds."""

    @abstractmethod
    def _at(self, t: float | Tensor) -> float | Tensor:
        """b_t; ``t`` is a number or a floating point tensor."""

    @overload
    def __call__(self, t: int) -> float: ...
    @overload
    def __call__(self, t: Tensor) -> Tensor: ...
    def __call__(self, t: int | Tensor) -> float | Tensor:
        """The level of round ``t``.

        Args:
            t: The round, >= 1, or a tensor of rounds of any shape (not checked: that would wait for the
                device). Integer tensors give float64 levels.

        Returns:
            b_t, of the shape of ``t``.

        Raises:
            ValueError: if an integer ``t`` is below 1.
        """
        if isinstance(t, Tensor):
            return self._at(t if t.is_floating_point() else t.double())
        check_round(t)
        return self._at(float(t))


@dataclass(frozen=True)
class NoTruncation(_Level):
    """b_t = infinity: every reward is kept."""

    def _at(self, t: float | Tensor) -> float | Tensor:
        return torch.full_like(t, math.inf) if isinstance(t, Tensor) else math.inf


@dataclass(frozen=True)
class TGPTruncation(_Level):
    """b_t = v^(1/(1+alpha)) t^(1/(2(1+alpha))) (Theorem 1). With v = alpha = 1 it is t^(1/4), Figure 1 (f).

    Args:
        moment_bound: v > 0, E|y|^(1+alpha) <= v.
        alpha: Tail index in (0, 1].
        scale: Factor on the level, > 0; 1 is the theorem.
    """

    moment_bound: float
    alpha: float
    scale: float = field(default=1.0, kw_only=True)

    def __post_init__(self) -> None:
        check_positive(moment_bound=self.moment_bound, scale=self.scale)
        check_tail_index(self.alpha)

    def _at(self, t: float | Tensor) -> float | Tensor:
        root = 1.0 / (1.0 + self.alpha)
        return (self.scale * self.moment_bound**root) * t ** (0.5 * root)


@dataclass(frozen=True)
class _ATATruncation(_Level):
    moment_bound: float
    alpha: float
    delta: float
    horizon: int
    num_features: int
    scale: float = field(default=1.0, kw_only=True)

    def __post_init__(self) -> None:
        check_ata(self.moment_bound, self.alpha, self.delta, self.horizon, self.num_features)
        check_positive(scale=self.scale)

    def _level(self, t: float | Tensor, directions: int) -> float | Tensor:
        """(v / log(directions T / delta))^(1/(1+alpha)) t^((1-alpha)/(2(1+alpha)))."""
        root = 1.0 / (1.0 + self.alpha)
        log_term = math.log(directions * self.horizon / self.delta)
        return (self.scale * (self.moment_bound / log_term) ** root) * t ** (0.5 * (1.0 - self.alpha) * root)


@dataclass(frozen=True)
class ATAFourierTruncation(_ATATruncation):
    """b_t = (v / log(2 m T / delta))^(1/(1+alpha)) t^((1-alpha)/(2(1+alpha))) (Lemma 1).

    Args:
        moment_bound: v > 0, E|y|^(1+alpha) <= v.
        alpha: Tail index in (0, 1]; at 1 the level does not depend on t.
        delta: Failure probability in (0, 1).
        horizon: T >= 1, the number of rounds the guarantee is for.
        num_features: m >= 1, the number of FREQUENCIES (the features are 2 m sines and cosines).
        scale: Factor on the level, > 0; 1 is the theorem.
    """

    def _at(self, t: float | Tensor) -> float | Tensor:
        return self._level(t, 2 * self.num_features)


@dataclass(frozen=True)
class ATANystromTruncation(_ATATruncation):
    """b_t = (v / log(4 m T / delta))^(1/(1+alpha)) t^((1-alpha)/(2(1+alpha))) (Theorem 4).

    Args:
        moment_bound: v > 0, E|y|^(1+alpha) <= v.
        alpha: Tail index in (0, 1]; at 1 the level does not depend on t.
        delta: Failure probability in (0, 1).
        horizon: T >= 1, the number of rounds the guarantee is for.
        num_features: m >= 1, the dictionary size; the paper's m_t, or a bound on it (its union bound over
            directions then still holds).
        scale: Factor on the level, > 0; 1 is the theorem.
    """

    def _at(self, t: float | Tensor) -> float | Tensor:
        return self._level(t, 4 * self.num_features)


@dataclass(frozen=True)
class PublishedATATruncation(_Level):
    """b_t = (v / log(p T))^(1/(1+alpha)) t^((1-alpha)/(2(1+alpha))), as the authors' published script has it.

    Args:
        moment_bound: v > 0, E|y|^(1+alpha) <= v.
        alpha: Tail index in (0, 1].
        horizon: T >= 2.
        num_directions: p >= 1, the FEATURES (twice the frequencies of Fourier features).
        scale: Factor on the level, > 0.
    """

    moment_bound: float
    alpha: float
    horizon: int
    num_directions: int
    scale: float = field(default=1.0, kw_only=True)

    def __post_init__(self) -> None:
        check_positive(moment_bound=self.moment_bound, scale=self.scale)
        check_tail_index(self.alpha)
        check_count(2, horizon=self.horizon)
        check_count(1, num_directions=self.num_directions)

    def _at(self, t: float | Tensor) -> float | Tensor:
        root = 1.0 / (1.0 + self.alpha)
        level = (self.moment_bound / math.log(self.num_directions * self.horizon)) ** root
        return (self.scale * level) * t ** (0.5 * (1.0 - self.alpha) * root)


def truncate(y: Tensor, level: float | Tensor, rule: str = "zero", centre: Tensor | None = None) -> Tensor:
    """Rewards with those beyond the level set to zero, clipped, or replaced by the mean they met.

    "zero" is the papers' y 1{|y| <= b}, the only rule their proofs cover; it pulls the mean towards zero wherever it
    acts. "clip" keeps sign(y) b, the smaller change, for one-sided tails. "residual" is centre + (y - centre)
    1{|y - centre| <= b}: neither pulls to zero nor needs centred rewards, but a wrong mean defends itself.
    NaN stays NaN, and an infinite reward stays infinite at an infinite level, so that a failed pull is not mistaken
    for a reward.

    Args:
        y: Rewards, any shape.
        level: b >= 0, a number or a tensor that broadcasts against ``y``.
        rule: "zero", "clip" or "residual".
        centre: mu_{t-1}(x_t) of every reward, for "residual".

    Returns:
        The truncated rewards, in the dtype of ``y``.

    Raises:
        ValueError: on an unknown rule, or "residual" without ``centre``.
    """
    check_rule(rule)
    if rule == "residual":
        if centre is None:
            raise ValueError("rule 'residual' needs the posterior mean before each reward as `centre`.")
        return torch.where((y - centre).abs() > level, centre, y)
    beyond = y.abs() > level
    return torch.where(beyond, level * y.sign() if rule == "clip" else torch.zeros_like(y), y)


TRUNCATIONS: dict[str, Callable[..., Truncation]] = {
    "none": NoTruncation,
    "tgp": TGPTruncation,
    "ata_fourier": ATAFourierTruncation,
    "ata_nystrom": ATANystromTruncation,
    "ata_published": PublishedATATruncation,
}


def check_ata(moment_bound: float, alpha: float, delta: float, horizon: int, num_features: int) -> None:
    check_positive(moment_bound=moment_bound)
    check_tail_index(alpha)
    check_delta(delta)
    check_count(1, horizon=horizon, num_features=num_features)
