"""What :class:`bo_robust.models.RobustGP` assumes about outliers."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from bo_robust.models.marginal_likelihood import Array
from bo_robust.models.reward_units import Units
from bo_robust.utils.input_checks import check_positive, is_number, quoted

CLIP = 1e5  # robust standard deviations from the median from which on observations are clipped, to be computable


@dataclass(frozen=True)
class OutlierPrior:
    """What is assumed about outliers; no number depends on the units of the data.

    Raises ``ValueError`` unless 0 < share < .5 and density > 0.
    """

    share: float = 0.05
    """Share of outliers among all observations that is expected before the data are seen, in (0, .5)."""
    density: float = 0.05
    """Density of an outlier within 1 / (4 density) robust standard deviations of the median, per such deviation."""

    def expected(self, n: int) -> float:
        """How many outliers are expected among n observations, at least one."""
        return max(1.0, self.share * n)

    def log_density(self, y: Array, units: Units) -> Array:
        """log p_0 of observations ``n`` whose median and robust standard deviation these are."""
        out = np.minimum(np.abs(y - units.center) / units.scale, CLIP)
        tail = -2.0 * np.log(np.maximum(4.0 * self.density * out, 1.0))
        return np.asarray(math.log(self.density) - math.log(units.scale) + tail)

    def __post_init__(self) -> None:
        if not (is_number(self.share) and 0.0 < self.share < 0.5):
            raise ValueError(f"outlier_share must be in (0, .5), got {quoted(self.share)}.")
        check_positive(outlier_density=self.density)
