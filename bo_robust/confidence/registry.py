"""All confidence widths by name."""

from collections.abc import Callable

from bo_robust.confidence import heavy_tails, widths
from bo_robust.confidence.base import Width

WIDTHS: dict[str, Callable[..., Width]] = {
    "finite": widths.FiniteWidth,
    "compact": widths.CompactWidth,
    "rkhs": widths.RKHSWidth,
    "self_normalized": widths.SelfNormalizedWidth,
    "randomized": widths.RandomizedWidth,
    "tgp": heavy_tails.TGPWidth,
    "ata_fourier": heavy_tails.ATAFourierWidth,
    "ata_nystrom": heavy_tails.ATANystromWidth,
    "bayesian_finite": widths.BayesianFiniteWidth,
    "bkb": widths.BKBWidth,
    "constant": widths.ConstantWidth,
}
