"""What :class:`bo_robust.models.RobustGP` assumes about outliers."""

from __future__ import annotations

from dataclasses import dataclass

from bo_robust.utils.input_checks import check_positive, is_number, quoted


@dataclass(frozen=True)
class OutlierPrior:
    """All that is assumed about outliers; no number depends on the units of the data.

    Raises ``ValueError`` unless 0 < share < .5 and density > 0.
    """

    share: float = 0.05
    """Share of outliers among all observations that is expected before the data are seen, in (0, .5)."""
    density: float = 0.05
    """Density of an outlier within 1 / (4 density) robust standard deviations of the median, per such deviation."""
    clip: float = 1e5
    """Robust standard deviations from the median from which on observations are clipped, to be computable."""
    evidence_required: float = 5.0
    """Nats by which outliers must improve on no outliers: very strong evidence (Kass & Raftery 1995)."""
    scale_evidence: float = 8.0
    """Nats by which another outcome scale must improve on the given one: good outliers make data skewed, too."""
    noise: float = 0.1
    """Standard deviation of the noise that the search adds to that of the model."""
    min_observations: int = 4
    """Number of observations from which on outliers are detected."""
    cluster_radius: float = 0.1
    """Distance, in sides of the box of the points, within which observations count as about one for the scale s."""
    deviation_radii: tuple[float, ...] = (0.3, 0.2, 0.13, 0.085, 0.055, 0.035, 0.01)
    """Radii of local deviations in sides of the box, from half of the box to replicates alone."""
    deviation_density: float = 0.1
    """Expected number of local deviations of one radius, per volume of the box."""
    deviation_extent: float = 0.1
    """Relative height of a local deviation down to which it explains outliers of the same sign."""
    max_deviations: int = 4
    """Largest number of local deviations that turn outliers into inliers."""

    @property
    def least_deviation_probability(self) -> float:
        """Least prior probability of a local deviation, a fifth of ``share``: one observation decides nothing."""
        return self.share / 5.0

    def expected(self, n: int) -> float:
        """How many outliers are expected among n observations, at least one."""
        return max(1.0, self.share * n)

    def __post_init__(self) -> None:
        if not (is_number(self.share) and 0.0 < self.share < 0.5):
            raise ValueError(f"outlier_share must be in (0, .5), got {quoted(self.share)}.")
        check_positive(outlier_density=self.density)
