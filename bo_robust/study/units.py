"""The units in which models see rewards: (y - center) / scale, with the sign turned where f is minimised.

Units that a study does not give follow from the rewards. They are looked at when there are num_initial * 1.3^k rewards,
and stand still in between.
"""

import math
import statistics
import warnings
from dataclasses import dataclass

import numpy as np

from bo_robust.models.reward_units import coarse_unit
from bo_robust.study.settings import CommonSettings
from bo_robust.study.steps import last_step

TAIL = 0.15  # share of the rewards at either end that the scale ignores, because outliers may be there
NORMAL_RANGE = 2.0729  # a normal distribution's range without these ends, in standard deviations
GROWTHS = ((math.inf, 1.3),)  # growth of the number of rewards until the units are looked at again
TINY = 1e-290  # deviations up to this count as none: 1 / scale would overflow
SPOILT = 1e3  # a center or scale beyond so many spreads of the rewards was made by outliers


@dataclass(frozen=True)
class RewardUnits:
    """The units in which models see rewards.

    They see ``center`` as 0 and what is ``scale`` > 0 above it as 1; ``sign`` is -1 where f is minimised. ``known``
    says whether the scale tells how far f may go; not if all rewards are equal and no scale was given.
    """

    center: float
    scale: float
    sign: float
    known: bool

    def of_model(self, value: float) -> float:
        """Convert a value of the model to units of the rewards."""
        return self.center + self.sign * self.scale * value


def units_of(rewards: list[float], settings: CommonSettings) -> RewardUnits:
    """Return the units of rewards in the order told.

    The center is the median of the initial design. The scale is the largest spread at any of num_initial * 1.3^k
    rewards: those of the initial design may all lie where f is flat, and later ones all where it is best. (So a share
    of outliers above TAIL at one of these, which only few rewards may have, spoils it for good.) If all rewards are
    equal the scale is 1, which stands for nothing.
    """
    center, scale, num_initial = settings.center, settings.scale, settings.num_initial or 1
    if center is None:
        center = statistics.median(rewards[:num_initial])
    if scale is None:
        scale, last = 0.0, last_step(len(rewards), num_initial, GROWTHS)
        m = last
        while True:
            scale = max(scale, spread_of(rewards[:m], center))
            if m <= num_initial:
                break
            m = last_step(m - 1, num_initial, GROWTHS)
        if not scale > TINY:  # most rewards are equal
            usable = [gap for gap in (abs(y - center) for y in rewards[:last]) if gap > TINY]
            scale = 1.4826 * statistics.median(usable) if usable else 0.0
    known = settings.scale is not None or max(rewards) > min(rewards)
    return RewardUnits(center, scale or 1.0, -1.0 if settings.minimize else 1.0, known)


def coarse_units(rewards: list[float], settings: CommonSettings, as_told: bool) -> RewardUnits:
    """Return the units for a model that standardises by itself: as told, unless center or scale is given.

    Such a model still has moments in these units, and BoTorch rounds variances below 1e-10 up. So where rewards deviate
    by less than 1/32 or more than 32, the scale is their :func:`~bo_robust.models.reward_units.coarse_unit`.
    ``as_told`` says that a noise variance was given, in units of the rewards: they stay.
    """
    known = settings.scale is not None or max(rewards) > min(rewards)
    scale = settings.scale or (1.0 if as_told else coarse_unit(np.array(rewards)))
    return RewardUnits(settings.center or 0.0, scale, -1.0 if settings.minimize else 1.0, known)


def warn_of_spoilt_units(rewards: list[float], units: RewardUnits, settings: CommonSettings, warned_at: int) -> int:
    """Warn, once per look, if outliers in the good direction among the first rewards may have made the units.

    In the bad direction nobody can tell outliers from an objective that is steep far from its optimum. ``warned_at`` is
    the number of rewards at the last look that was warned about; its new value is returned.
    """
    median, m = statistics.median(rewards), last_step(len(rewards), settings.num_initial or 1, GROWTHS)
    width = spread_of(rewards, median)
    best = median - min(rewards) if settings.minimize else max(rewards) - median
    sizes = {"center": abs(units.center - median), "scale": units.scale}
    spoilt = [k for k, size in sizes.items() if getattr(settings, k) is None and min(size, best) > SPOILT * width > 0.0]
    if not spoilt or m == warned_at:
        return warned_at
    warnings.warn(
        f"the {' and '.join(spoilt)} of the first rewards (center {units.center:.3g}, scale {units.scale:.3g}) is far "
        f"from that of all (median {median:.3g}, spread {width:.3g}): there may have been outliers among them. If so, "
        "give `center` and `scale` to a new study and `add` these results to it.",
        UserWarning,
        stacklevel=2,
    )
    return m


def spread_of(rewards: list[float], center: float) -> float:
    """The standard deviation of rewards if they are normal; outliers move it little.

    It is the larger of two estimates. One is 1.4826 times the median absolute deviation from the center. The other is
    the range of the rewards without the share TAIL at either end, divided by NORMAL_RANGE.
    """
    # 1.4826 median absolute deviations are one standard deviation of a normal distribution.
    deviation = 1.4826 * statistics.median(abs(y - center) for y in rewards)
    # Lopsided rewards, such as a peak above a plain, have a small median deviation.
    ordered, k = sorted(rewards), min(math.ceil(TAIL * len(rewards)), (len(rewards) - 1) // 2)
    return max(deviation, (ordered[-1 - k] - ordered[k]) / NORMAL_RANGE)
