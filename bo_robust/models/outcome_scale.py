"""Monotone scales of the outcomes, among which ``RobustGP`` chooses by marginal likelihood.

A target that is positive and skewed (a price, a count, a concentration) has large values that look like gross errors,
until it is seen as its logarithm or a root. A scale is w = T(y) with

    u = sign y + shift,    T(y) = sign log u  for power 0,    sign u^power / power  otherwise.

It increases with y, and u must be positive. ``sign`` is -1 where most observations are negative, as a minimiser of
positive costs has them. ``shift`` is half of the smallest positive u where some are zero, else 0. These are the powers
of Box & Cox (1964).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from botorch.models.transforms.outcome import ChainedOutcomeTransform, OutcomeTransform, Standardize
from botorch.posteriors import Posterior, TransformedPosterior
from torch import Tensor

POWERS = (0.5, 0.25, 0.0)
NODES = 32  # of Gauss and Hermite's quadrature, for the moments of y


class OutcomeScale(NamedTuple):
    """The scale w = T(y); the identity is exact."""

    power: float = 1.0
    sign: float = 1.0
    shift: float = 0.0

    @property
    def is_identity(self) -> bool:
        return self.power == 1.0

    def contains(self, y: Tensor) -> Tensor:
        """Whether each y has a w, as y."""
        return torch.ones_like(y, dtype=torch.bool) if self.is_identity else self.sign * y + self.shift > 0.0

    def transform(self, y: Tensor) -> Tensor:
        """The w of each y; beyond the domain a root continues as an odd function, and a logarithm is not finite."""
        if self.is_identity:
            return y
        u = self.sign * y + self.shift
        return self.sign * (u.log() if self.power == 0.0 else u.sign() * u.abs() ** self.power / self.power)

    def untransform(self, w: Tensor) -> Tensor:
        """The y of each w; beyond the domain a root continues as an odd function."""
        if self.is_identity:
            return w
        w = self.sign * w
        u = w.exp() if self.power == 0.0 else w.sign() * (self.power * w).abs() ** (1.0 / self.power)
        return self.sign * (u - self.shift)

    def log_slope(self, y: Tensor) -> Tensor:
        """log dw / dy of each y in the domain, as y."""
        return torch.zeros_like(y) if self.is_identity else (self.power - 1.0) * (self.sign * y + self.shift).log()

    def __str__(self) -> str:
        names = {1.0: "y", 0.5: "square root", 0.25: "fourth root", 0.0: "logarithm"}
        return names[self.power] + (" of -y" if self.sign < 0.0 else "")


IDENTITY = OutcomeScale()


def outcome_scales(y: Tensor) -> list[OutcomeScale]:
    """The scales that observations ``n`` allow, the identity first; the domain of each holds more than half of them."""
    sign = 1.0 if 2 * int((y > 0.0).sum()) > len(y) else -1.0
    u = sign * y
    positive = u[u > 0.0]
    if 2 * len(positive) <= len(y) or positive.amax() == positive.amin():
        return [IDENTITY]
    shift = 0.5 * float(positive.amin()) if bool((u == 0.0).any()) else 0.0
    return [IDENTITY, *(OutcomeScale(power, sign, shift) for power in POWERS)]


class ScaledOutcome(OutcomeTransform):
    """The outcome transform of a scale; the moments of y are by quadrature."""

    def __init__(self, scale: OutcomeScale) -> None:
        super().__init__()
        self.scale = scale

    def forward(self, Y: Tensor, Yvar: Tensor | None = None, X: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """w of observations; a root continues as an odd function, as fantasies of small outcomes may be below 0."""
        if Yvar is not None:
            raise ValueError("a model with an outcome scale takes no noise variances; give outcome_scale=None.")
        if self.scale.power == 0.0 and not bool(self.scale.contains(Y).all()):
            raise ValueError(
                f"the outcomes are modelled as their {self.scale}, which has no value for some of the new ones; "
                "make and fit a new model of all data, or give outcome_scale=None."
            )
        return self.scale.transform(Y), None

    def untransform(self, Y: Tensor, Yvar: Tensor | None = None, X: Tensor | None = None) -> tuple[Tensor, None]:
        return self.scale.untransform(Y), None

    def untransform_posterior(self, posterior: Posterior, X: Tensor | None = None) -> TransformedPosterior:
        return TransformedPosterior(posterior, self.scale.untransform, self._mean, self._variance)

    def _mean(self, mean: Tensor, variance: Tensor) -> Tensor:
        return self._expectation(mean, variance, self.scale.untransform)

    def _variance(self, mean: Tensor, variance: Tensor) -> Tensor:
        center = self._mean(mean, variance)
        return self._expectation(mean, variance, lambda w: (self.scale.untransform(w) - center.unsqueeze(-1)).square())

    def _expectation(self, mean: Tensor, variance: Tensor, function: Callable[[Tensor], Tensor]) -> Tensor:
        nodes, weights = (mean.new_tensor(x) for x in np.polynomial.hermite.hermgauss(NODES))
        w = mean.unsqueeze(-1) + (2.0 * variance).sqrt().unsqueeze(-1) * nodes
        return (function(w) * weights).sum(-1) / math.sqrt(math.pi)


def affine(of_y: Any, offset: float, weight: Any) -> TransformedPosterior:
    """The posterior of offset + weight y, which BoTorch's ``scalarize_posterior`` does for Gaussian posteriors only."""
    return TransformedPosterior(
        of_y._posterior,
        lambda samples: offset + weight * of_y._sample_transform(samples),
        lambda mean, variance: offset + weight * of_y._mean_transform(mean, variance),
        lambda mean, variance: weight.square() * of_y._variance_transform(mean, variance),
    )


def scaled_standardize(scale: OutcomeScale, standardize: Standardize) -> OutcomeTransform:
    if scale.is_identity:
        return standardize
    return ChainedOutcomeTransform(scale=ScaledOutcome(scale), standardize=standardize)


def standardize_of(transform: Any) -> tuple[OutcomeScale, Standardize | None]:
    """The scale and standardising part of a transform that :func:`scaled_standardize` made; None of another one."""
    if type(transform) is Standardize:
        return IDENTITY, transform
    first = transform["scale"] if isinstance(transform, ChainedOutcomeTransform) and "scale" in transform else None
    return (first.scale, transform["standardize"]) if isinstance(first, ScaledOutcome) else (IDENTITY, None)
