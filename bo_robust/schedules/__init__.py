"""Confidence widths, truncation levels, information gain and regret bounds."""

from collections.abc import Callable

from bo_robust.schedules import information_gain
from bo_robust.schedules.heavy_tail_widths import (
    ATAFourierWidth,
    ATANystromWidth,
    LogWidth,
    PublishedATAWidth,
    PublishedTGPWidth,
    TGPWidth,
)
from bo_robust.schedules.regret_bounds import gp_ucb_regret_bound
from bo_robust.schedules.truncation import (
    TRUNCATIONS,
    ATAFourierTruncation,
    ATANystromTruncation,
    NoTruncation,
    PublishedATATruncation,
    TGPTruncation,
    Truncation,
    truncate,
)
from bo_robust.schedules.width_base import Width
from bo_robust.schedules.widths import (
    BayesianFiniteWidth,
    BKBWidth,
    CompactWidth,
    ConstantWidth,
    FiniteWidth,
    RandomisedWidth,
    RKHSWidth,
    SelfNormalisedWidth,
)

__all__ = [
    "TRUNCATIONS",
    "WIDTHS",
    "ATAFourierTruncation",
    "ATAFourierWidth",
    "ATANystromTruncation",
    "ATANystromWidth",
    "BKBWidth",
    "BayesianFiniteWidth",
    "CompactWidth",
    "ConstantWidth",
    "FiniteWidth",
    "LogWidth",
    "NoTruncation",
    "PublishedATATruncation",
    "PublishedATAWidth",
    "PublishedTGPWidth",
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

WIDTHS: dict[str, Callable[..., Width]] = {
    "finite": FiniteWidth,
    "compact": CompactWidth,
    "rkhs": RKHSWidth,
    "self_normalised": SelfNormalisedWidth,
    "randomised": RandomisedWidth,
    "tgp": TGPWidth,
    "ata_fourier": ATAFourierWidth,
    "ata_nystrom": ATANystromWidth,
    "bayesian_finite": BayesianFiniteWidth,
    "bkb": BKBWidth,
    "constant": ConstantWidth,
    "log": LogWidth,
    "tgp_published": PublishedTGPWidth,
    "ata_published": PublishedATAWidth,
}
