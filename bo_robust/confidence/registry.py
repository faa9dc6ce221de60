"""All confidence widths by name."""

from collections.abc import Callable

from bo_robust.confidence.base import Width
from bo_robust.confidence.heavy_tails import (
    ATAFourierWidth,
    ATANystromWidth,
    LogWidth,
    PublishedATAWidth,
    PublishedTGPWidth,
    TGPWidth,
)
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
