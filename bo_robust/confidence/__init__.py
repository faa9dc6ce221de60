"""Confidence widths, information gain, regret bounds, and constants from old rewards."""

from collections.abc import Callable

from bo_robust.confidence import information_gain
from bo_robust.confidence.base import Width
from bo_robust.confidence.heavy_tails import (
    ATAFourierWidth,
    ATANystromWidth,
    LogWidth,
    PublishedATAWidth,
    PublishedTGPWidth,
    TGPWidth,
)
from bo_robust.confidence.regret_bounds import gp_ucb_regret_bound
from bo_robust.confidence.reward_moments import propose_constants
from bo_robust.confidence.widths import (
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
    "WIDTHS", "ATAFourierWidth", "ATANystromWidth", "BKBWidth", "BayesianFiniteWidth", "CompactWidth", "ConstantWidth",
    "FiniteWidth", "LogWidth", "PublishedATAWidth", "PublishedTGPWidth", "RKHSWidth", "RandomisedWidth",
    "SelfNormalisedWidth", "TGPWidth", "Width", "gp_ucb_regret_bound", "information_gain", "propose_constants",
]  # fmt: skip

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
