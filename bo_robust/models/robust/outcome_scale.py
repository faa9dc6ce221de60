"""Monotone scales of the outcomes, among which ``RobustGP`` chooses by marginal likelihood.

A target that is positive and skewed (a price, a count, a concentration) has large values that look like gross errors,
until it is seen as its logarithm or a root. A scale is w = T(y) with

    u = sign y + shift,    T(y) = sign log u  for power 0,    sign u^power / power  otherwise.

It increases with y, and u must be positive. ``sign`` is -1 where most observations are negative, as a minimizer of
positive costs has them. ``shift`` is 0 where all are of one sign. Zeros, or a few values that cross zero as a profit
does, call for another one: it makes the smallest u a share ``SMALLEST`` of the median of what the others exceed it by.
A logarithm of ties just above zero would stretch them over many units, and predict nonsense between. These are the two
parameters of Box & Cox (1964). Where outcomes have both limits, the logit is a scale, too: T(y) = log(u / (upper - y)).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import softplus

from bo_robust.utils.linalg import median

POWERS = (0.5, 0.25, 0.0)
SMALLEST = 0.3
NAMES = {1.0: "y", 0.5: "square root", 0.25: "fourth root", 0.0: "logarithm"}


class OutcomeScale(NamedTuple):
    """The scale w = T(y); the identity is exact. A finite ``upper`` makes a logarithm the logit."""

    power: float = 1.0
    sign: float = 1.0
    shift: float = 0.0
    upper: float = math.inf

    @classmethod
    def of(cls, numbers: Tensor) -> OutcomeScale:
        """The scale of stored numbers, whose power may be rounded, as 1/3 is in float32."""
        power, *others = numbers.tolist()
        return cls(min(NAMES, key=lambda known: abs(known - power)), *others)

    @property
    def is_identity(self) -> bool:
        return self.power == 1.0

    @property
    def is_logarithm(self) -> bool:
        return self.power == 0.0 and self.upper == math.inf

    @property
    def domain(self) -> tuple[float, float]:
        """The ends of the y that have a w; infinite for the identity."""
        if self.is_identity:
            return -math.inf, math.inf
        return (-self.shift, self.upper) if self.sign > 0.0 else (-math.inf, self.shift)

    def contains(self, y: Tensor) -> Tensor:
        """Whether each y has a w, as y."""
        inside = (self.sign * y + self.shift > 0.0) & (y < self.upper)
        return torch.ones_like(inside) if self.is_identity else inside

    def transform(self, y: Tensor) -> Tensor:
        """The w of each y; beyond the domain a root continues as an odd function, and a logarithm is not finite."""
        if self.is_identity:
            return y
        u = self.sign * y + self.shift
        if self.power:
            return self.sign * u.sign() * u.abs() ** self.power / self.power
        return self.sign * u.log() - (0.0 if self.is_logarithm else (self.upper - y).log())

    def untransform(self, w: Tensor) -> Tensor:
        """The y of each w; beyond the domain a root continues as an odd function."""
        if self.is_identity:
            return w
        if self.upper < math.inf:
            return (self.upper + self.shift) * w.sigmoid() - self.shift
        w = self.sign * w
        u = w.exp() if self.power == 0.0 else w.sign() * (self.power * w).abs() ** (1.0 / self.power)
        return self.sign * (u - self.shift)

    def log_slope(self, y: Tensor) -> Tensor:
        """log dw / dy of each y in the domain, as y."""
        if self.is_identity:
            return torch.zeros_like(y)
        if self.upper < math.inf:
            return math.log(self.upper + self.shift) - (y + self.shift).log() - (self.upper - y).log()
        return (self.power - 1.0) * (self.sign * y + self.shift).log()

    def log_inverse_slope(self, w: Tensor) -> Tensor:
        """log dy / dw at each w, as w."""
        if self.is_identity:
            return torch.zeros_like(w)
        if self.upper < math.inf:
            return math.log(self.upper + self.shift) - softplus(w) - softplus(-w)
        return self.sign * w if self.power == 0.0 else (1.0 / self.power - 1.0) * (self.power * w).abs().log()

    def __str__(self) -> str:
        name = "logit" if self.upper < math.inf else NAMES.get(self.power, f"power {self.power:g}")
        return name + (" of -y" if self.sign < 0.0 else "")


IDENTITY = OutcomeScale()


def outcome_scales(y: Tensor, limits: tuple[float, float] = (-math.inf, math.inf)) -> list[OutcomeScale]:
    """The scales that observations ``n`` within ``limits`` allow, the identity first; the domain of each holds all."""
    scales = [IDENTITY]
    if not len(y) or y.amax() == y.amin():
        return scales
    lower, upper = limits
    if math.isfinite(upper - lower):
        scales.append(OutcomeScale(0.0, 1.0, _shift(y - lower) - lower, upper + _shift(upper - y)))
    sign = 1.0 if 2 * int((y > 0.0).sum()) > len(y) else -1.0
    u = sign * y
    if 2 * int((u > 0.0).sum()) > len(y):
        scales += [OutcomeScale(power, sign, _shift(u)) for power in POWERS]
    return scales


def _shift(u: Tensor) -> float:
    """What makes values ``n`` that differ positive; 0 if they are."""
    least = u.amin()
    if least > 0.0:
        return 0.0
    above = u[u > least] - least
    return float(SMALLEST * median(above) - least)
