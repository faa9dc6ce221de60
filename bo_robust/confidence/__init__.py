"""Confidence widths, information gain, regret bounds, and constants from old rewards."""

from typing import TYPE_CHECKING

from bo_robust.utils.first_use import on_first_use

if TYPE_CHECKING:
    from bo_robust.confidence import information_gain
    from bo_robust.confidence.base import Width
    from bo_robust.confidence.heavy_tails import (
        ATAFourierWidth,
        ATANystromWidth,
        TGPWidth,
    )
    from bo_robust.confidence.registry import WIDTHS
    from bo_robust.confidence.regret_bounds import gp_ucb_regret_bound
    from bo_robust.confidence.reward_moments import propose_constants
    from bo_robust.confidence.widths import (
        BayesianFiniteWidth,
        BKBWidth,
        CompactWidth,
        ConstantWidth,
        FiniteWidth,
        RandomizedWidth,
        RKHSWidth,
        SelfNormalizedWidth,
    )

__all__ = [
    "WIDTHS", "ATAFourierWidth", "ATANystromWidth", "BKBWidth", "BayesianFiniteWidth", "CompactWidth",
    "ConstantWidth", "FiniteWidth", "RKHSWidth", "RandomizedWidth", "SelfNormalizedWidth", "TGPWidth", "Width",
    "gp_ucb_regret_bound", "information_gain", "propose_constants",
]  # fmt: skip
if not TYPE_CHECKING:  # a type checker knows the names imported above, and no others
    __getattr__, __dir__ = on_first_use(
        __name__,
        {
            "": "information_gain",
            "base": "Width",
            "heavy_tails": "ATAFourierWidth ATANystromWidth TGPWidth",
            "regret_bounds": "gp_ucb_regret_bound",
            "reward_moments": "propose_constants",
            "widths": "BayesianFiniteWidth BKBWidth CompactWidth ConstantWidth FiniteWidth RandomizedWidth "
            "RKHSWidth SelfNormalizedWidth",
            "registry": "WIDTHS",
        },
    )
