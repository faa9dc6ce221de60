"""Confidence widths, information gain, regret bounds, and constants from old rewards."""

from typing import TYPE_CHECKING

from bo_robust.utils.first_use import on_first_use

if TYPE_CHECKING:
    from bo_robust.confidence import information_gain as information_gain
    from bo_robust.confidence.base import Width as Width
    from bo_robust.confidence.heavy_tails import ATAFourierWidth as ATAFourierWidth
    from bo_robust.confidence.heavy_tails import ATANystromWidth as ATANystromWidth
    from bo_robust.confidence.heavy_tails import TGPWidth as TGPWidth
    from bo_robust.confidence.registry import WIDTHS as WIDTHS
    from bo_robust.confidence.regret_bounds import gp_ucb_regret_bound as gp_ucb_regret_bound
    from bo_robust.confidence.reward_moments import propose_constants as propose_constants
    from bo_robust.confidence.widths import BayesianFiniteWidth as BayesianFiniteWidth
    from bo_robust.confidence.widths import BKBWidth as BKBWidth
    from bo_robust.confidence.widths import CompactWidth as CompactWidth
    from bo_robust.confidence.widths import ConstantWidth as ConstantWidth
    from bo_robust.confidence.widths import FiniteWidth as FiniteWidth
    from bo_robust.confidence.widths import RandomizedWidth as RandomizedWidth
    from bo_robust.confidence.widths import RKHSWidth as RKHSWidth
    from bo_robust.confidence.widths import SelfNormalizedWidth as SelfNormalizedWidth
else:
    __all__, __getattr__, __dir__ = on_first_use(__name__)
