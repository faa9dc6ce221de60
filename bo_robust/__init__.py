"""bo_robust: Bayesian optimisation when the textbook assumptions fail.

The classes below are those for BoTorch. Algorithms over finite arms are in ``bo_robust.bandits``, widths and truncation
levels in ``bo_robust.confidence``, environments and functionals in ``bo_robust.risk_measures``. Importing any
acquisition function registers it with BoTorch's input constructors.
"""

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
from bo_robust.suggest import suggest

__version__ = "0.1.0"

__all__ = [
    "GPUCB",
    "BKBModel",
    "CandidateEnsemble",
    "EliminationUCB",
    "FeatureGP",
    "FourierMap",
    "NystromMap",
    "OutlierPrior",
    "RobustGP",
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
