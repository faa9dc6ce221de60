"""bo_robust: Bayesian optimization when the textbook assumptions fail.

The classes below are those for BoTorch. Algorithms over finite arms are in ``bo_robust.bandits``, widths and truncation
levels in ``bo_robust.confidence``, environments and functionals in ``bo_robust.risk_measures``. Importing any
acquisition function registers it with BoTorch's input constructors. Subpackages are imported when a name of them is
first used.
"""

from typing import TYPE_CHECKING

from bo_robust.utils.first_use import on_first_use

if TYPE_CHECKING:
    from bo_robust import bandits, confidence, risk_measures
    from bo_robust.acquisition import GPUCB, EliminationUCB, StableOpt, ValueAtRiskUCB, eliminate
    from bo_robust.models import (
        BKBModel,
        CandidateEnsemble,
        FeatureGP,
        FourierMap,
        NystromMap,
        OutlierPrior,
        RobustGP,
        TruncatedFeatureGP,
        TruncatedGP,
        suggest_replicates,
    )
    from bo_robust.proposals.suggest import Data, Space, suggest

__version__ = "0.1.0"

__all__ = [
    "GPUCB",
    "BKBModel",
    "CandidateEnsemble",
    "Data",
    "EliminationUCB",
    "FeatureGP",
    "FourierMap",
    "NystromMap",
    "OutlierPrior",
    "RobustGP",
    "Space",
    "StableOpt",
    "TruncatedFeatureGP",
    "TruncatedGP",
    "ValueAtRiskUCB",
    "bandits",
    "confidence",
    "eliminate",
    "risk_measures",
    "suggest",
    "suggest_replicates",
]
if not TYPE_CHECKING:  # a type checker knows the names imported above, and no others
    __getattr__, __dir__ = on_first_use(
        __name__,
        {
            "": "acquisition bandits confidence features models risk_measures",
            "acquisition": "GPUCB EliminationUCB StableOpt ValueAtRiskUCB eliminate",
            "models": "BKBModel CandidateEnsemble FeatureGP FourierMap NystromMap OutlierPrior RobustGP "
            "TruncatedFeatureGP TruncatedGP suggest_replicates",
            "proposals.suggest": "Data Space suggest",
        },
    )
