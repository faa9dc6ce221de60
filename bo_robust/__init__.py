"""bo_robust: Bayesian optimization when the textbook assumptions fail.

The classes below are those for BoTorch. Algorithms over finite arms are in ``bo_robust.bandits``, widths and truncation
levels in ``bo_robust.confidence``, environments and functionals in ``bo_robust.risk_measures``. Importing any
acquisition function registers it with BoTorch's input constructors. Subpackages are imported when a name of them is
first used.
"""

from typing import TYPE_CHECKING

from bo_robust.utils.first_use import on_first_use

if TYPE_CHECKING:
    from bo_robust import acquisition as acquisition
    from bo_robust import bandits as bandits
    from bo_robust import confidence as confidence
    from bo_robust import features as features
    from bo_robust import models as models
    from bo_robust import risk_measures as risk_measures
    from bo_robust.acquisition import GPUCB as GPUCB
    from bo_robust.acquisition import EliminationUCB as EliminationUCB
    from bo_robust.acquisition import StableOpt as StableOpt
    from bo_robust.acquisition import ValueAtRiskUCB as ValueAtRiskUCB
    from bo_robust.acquisition import eliminate as eliminate
    from bo_robust.models import BKBModel as BKBModel
    from bo_robust.models import CandidateEnsemble as CandidateEnsemble
    from bo_robust.models import FeatureGP as FeatureGP
    from bo_robust.models import FourierMap as FourierMap
    from bo_robust.models import NystromMap as NystromMap
    from bo_robust.models import OutlierPrior as OutlierPrior
    from bo_robust.models import RobustGP as RobustGP
    from bo_robust.models import TruncatedFeatureGP as TruncatedFeatureGP
    from bo_robust.models import TruncatedGP as TruncatedGP
    from bo_robust.models import suggest_replicates as suggest_replicates
    from bo_robust.proposals.suggest import Data as Data
    from bo_robust.proposals.suggest import Space as Space
    from bo_robust.proposals.suggest import suggest as suggest
else:
    __all__, __getattr__, __dir__ = on_first_use(__name__)

__version__ = "0.1.0"
