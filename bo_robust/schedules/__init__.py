"""Confidence widths, truncation levels, information gain and regret bounds."""

from bo_robust.schedules import information_gain
from bo_robust.schedules.regret_bounds import gp_ucb_regret_bound
from bo_robust.schedules.truncation import (
    TRUNCATIONS,
    ATAFourierTruncation,
    ATANystromTruncation,
    NoTruncation,
    TGPTruncation,
    Truncation,
    truncate,
)
from bo_robust.schedules.widths import (
    WIDTHS,
    ATAFourierWidth,
    ATANystromWidth,
    BayesianFiniteWidth,
    CompactWidth,
    ConstantWidth,
    FiniteWidth,
    LogWidth,
    RandomisedWidth,
    RKHSWidth,
    SelfNormalisedWidth,
    TGPWidth,
    Width,
)

__all__ = [
    "TRUNCATIONS",
    "WIDTHS",
    "ATAFourierTruncation",
    "ATAFourierWidth",
    "ATANystromTruncation",
    "ATANystromWidth",
    "BayesianFiniteWidth",
    "CompactWidth",
    "ConstantWidth",
    "FiniteWidth",
    "LogWidth",
    "NoTruncation",
    "RKHSWidth",
    "RandomisedWidth",
    "SelfNormalisedWidth",
    "TGPTruncation",
    "TGPWidth",
    "Truncation",
    "Width",
    "gp_ucb_regret_bound",
    "information_gain",
    "truncate",
]
