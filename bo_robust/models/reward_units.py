"""Scales of observations that hold outliers."""

from __future__ import annotations

import math
import warnings
from typing import NamedTuple

import numpy as np
import torch
from botorch.models.transforms.outcome import OutcomeTransform, Standardize
from botorch.utils.types import DEFAULT
from gpytorch.settings import min_variance
from torch import Tensor

from bo_robust.models.marginal_likelihood import Array
from bo_robust.utils.linalg import median, median_and_mad
from bo_robust.utils.upstream import DefaultType

PRECISE = 1e-4  # variance of f where it is well known, in squared deviations of the observations
FURTHEST = 1e10  # largest size of what is computed, in deviations of the observations
NORMAL = 1.4826  # standard deviations of normal numbers in their median absolute deviation


class Units(NamedTuple):
    """The GP sees (y - center) / scale."""

    center: float
    scale: float


def robust_units(y: Array) -> Units:
    """Median, and 1.4826 times the median absolute deviation; if several are the median, that of the others."""
    center, deviation = map(float, median_and_mad(torch.from_numpy(y)))
    deviating = np.abs(y[y != center] - center)
    if 0 < len(deviating) < len(y) - 1:
        deviation = float(median(torch.from_numpy(deviating)))
    return Units(center, NORMAL * deviation or 1.0)


def spread_weights(places: Array, radius: float) -> Array:
    """1 / sum_j exp(-|x_i - x_j|^2 / 2 radius^2) of points ``n x d`` in the unit box, ``n``.

    So a cluster counts as one: a search that closes in on an optimum leaves many similar observations there, and all
    others would seem far out.
    """
    scaled = places / radius
    half = -0.5 * (scaled**2).sum(1)
    square = scaled @ scaled.T + half + half[:, None]
    return np.asarray(1.0 / np.exp(np.minimum(square, 0.0, out=square), out=square).sum(1))


def spread_units(y: Array, weights: Array) -> Units:
    """The median, and NORMAL times the weighted median absolute deviation, at least that of :func:`robust_units`."""
    unweighted = robust_units(y)
    deviations = np.abs(y - _weighted_median(y, weights))
    return Units(unweighted.center, max(unweighted.scale, NORMAL * _weighted_median(deviations, weights)))


def _weighted_median(y: Array, weights: Array) -> float:
    """The weighted median; the middle of two neighbors if half of the weight lies below, so it turns with y."""
    return 0.5 * _lower_median(y, weights) - 0.5 * _lower_median(-y, weights)


def _lower_median(y: Array, weights: Array) -> float:
    order = y.argsort(kind="stable")
    below = np.cumsum(weights[order])
    return float(y[order[min(int(np.searchsorted(below, 0.5 * below[-1])), len(y) - 1)]])


def rescaling_unit(y: Array) -> float:
    """The power of 1024 that brings deviations of observations nearest to 1; dividing by it rounds nothing."""
    deviation = robust_units(y / 4.0).scale  # differences of quarters do not overflow
    return float(1024.0 ** max(-100, min(round(math.log(deviation, 1024.0) + math.log(4.0, 1024.0)), 102)))


def smallest_deviation(Y: Tensor) -> float:
    """Standard deviation below which observations are equal to rounding; at most BoTorch's, for a unit of 1."""
    info = torch.finfo(Y.dtype)
    return min(1e-8, max(10.0 * info.eps * float(Y.detach().abs().max()), info.tiny))


def computable(Y: Tensor, transform: OutcomeTransform | DefaultType | None, default_kernel: bool) -> Tensor:
    """Observations, clipped where their squares would overflow; the order of all others stays.

    Raises ``ValueError`` if the squares of most overflow; warns of units that BoTorch or the priors cannot take.
    """
    y = Y.detach().to("cpu", torch.float64).flatten().numpy()
    info, units = torch.finfo(Y.dtype), robust_units(y)
    if not units.scale < info.max**0.5 / FURTHEST:
        raise ValueError(f"train_Y differ by about {units.scale:.0e}, whose square overflows; divide them by that.")
    floor, unit = (min_variance.value(Y.dtype) / PRECISE) ** 0.5, rescaling_unit(y)
    standardized = transform == DEFAULT or type(transform) is Standardize
    notice = ""
    if transform is None and default_kernel and unit != 1.0:
        notice = (
            f"train_Y differ by about {units.scale:.0e}, while the default kernel has variance 1: leave "
            f"`outcome_transform` out, or multiply them by {1.0 / units.scale:.0e}."
        )
    elif standardized and units.scale < floor and bool((Y[0] != Y).any()):
        notice = (
            f"train_Y differ by less than {floor:.0e}, and BoTorch rounds variances below "
            f"{min_variance.value(Y.dtype):.0e} up: multiply them by {1.0 / unit:.0e}, or acquisitions may go wrong."
        )
    if notice:
        warnings.warn(notice, UserWarning, stacklevel=3)
    reach = units.scale * info.max**0.25
    return Y.clamp(units.center - reach, units.center + reach)
