"""What a search for outliers decided (:mod:`bo_robust.models.robust.detection`)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from bo_robust.models.marginal_likelihood import Array
from bo_robust.models.robust.conditioned_gp import Rows
from bo_robust.models.robust.outcome_scale import IDENTITY, OutcomeScale
from bo_robust.models.robust.slips import Slip

MANY = 0.25  # share of outliers above which there is a notice
UNEXPLAINED = 0.2  # share of an observation's variance that the others predict, below which there is one
ENOUGH = 40  # number of observations from which on


@dataclass(frozen=True)
class Detection:
    """What was decided of observations ``n``, all that ``RobustGP`` knows of outliers.

    Attributes:
        scale: The outcome scale.
        inliers: Which observations are inliers.
        held: Which inliers are plausible in a learnt scale alone, and look mistyped.
        probability: Of each observation that it is an inlier.
        zscore: Standardized leave-one-out residuals given the other inliers.
        limit: Size of the residual at which inlier and outlier are equally likely.
        confirmed: Which are inliers only because a replicate confirms them.
        explained: Share of the variance of the inliers that the other inliers predict; NaN without a GP.
        log_evidence: J of the inliers, as a density of the observations in the units given.
        loo_mean: Leave-one-out means given the other inliers, in the outcome scale; None without a GP, as
            ``loo_variance`` is, the variances of observations there.
        undecided: Number of outliers found where they are too many to leave out, so that all are inliers; else 0.
        slips: Slips of several observations at once, which are then outliers.
    """

    scale: OutcomeScale
    inliers: Rows
    held: Rows
    probability: Array
    zscore: Array
    limit: Array
    confirmed: Rows
    explained: float = math.nan
    log_evidence: float = 0.0
    loo_mean: Array | None = None
    loo_variance: Array | None = None
    undecided: int = 0
    slips: tuple[Slip, ...] = ()

    @classmethod
    def without_search(cls, inliers: Rows, scale: OutcomeScale = IDENTITY) -> Detection:
        """What is known where nothing was looked for."""
        n, none = len(inliers), np.zeros(len(inliers), dtype=bool)
        return cls(scale, inliers, none, inliers.astype(float), np.zeros(n), np.full(n, math.inf), none)

    def notice(self) -> str | None:
        """What a user should know before using the model, or None."""
        n, outliers, explained = len(self.inliers), int((~self.inliers).sum()), self.explained
        if self.undecided:
            return (
                f"{self.undecided} of {n} observations look like outliers, so nothing tells which are right: none is "
                "left out; do not trust this model, and replicate some."
            )
        if outliers > max(2.0, MANY * n):
            return (
                f"RobustGP flags {outliers} of {n} observations as outliers; look at them with "
                "bo_robust.models.plot_outliers(model)."
            )
        if n >= ENOUGH and explained < UNEXPLAINED:
            return (
                f"the others explain {max(explained, 0.0):.0%} of the variance of an observation: noise is large, the "
                "kernel is wrong, or there are more outliers than RobustGP can tell; look at them, or replicate some."
            )
        return None
