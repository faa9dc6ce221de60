"""BoTorch models: the posteriors of the papers behind BoTorch's ``Model`` interface."""

from typing import TYPE_CHECKING

from bo_robust.utils.first_use import on_first_use

if TYPE_CHECKING:
    from bo_robust.features.maps import FourierMap as FourierMap
    from bo_robust.features.maps import NystromMap as NystromMap
    from bo_robust.models.batch_effect import BatchEffectLikelihood as BatchEffectLikelihood
    from bo_robust.models.bkb import BKBModel as BKBModel
    from bo_robust.models.candidate_ensemble import CandidateEnsemble as CandidateEnsemble
    from bo_robust.models.candidate_priors import Candidate as Candidate
    from bo_robust.models.candidate_priors import candidate as candidate
    from bo_robust.models.candidate_priors import candidate_grid as candidate_grid
    from bo_robust.models.feature_gp import FeatureGP as FeatureGP
    from bo_robust.models.moments import information_gain as information_gain
    from bo_robust.models.moments import marginal_moments as marginal_moments
    from bo_robust.models.moments import sequential_moments as sequential_moments
    from bo_robust.models.robust.outcome_scale import OutcomeScale as OutcomeScale
    from bo_robust.models.robust.plot import plot_outliers as plot_outliers
    from bo_robust.models.robust.prior import OutlierPrior as OutlierPrior
    from bo_robust.models.robust.replication import suggest_replicates as suggest_replicates
    from bo_robust.models.robust.robust_gp import RobustGP as RobustGP
    from bo_robust.models.training_data import TruncationWarning as TruncationWarning
    from bo_robust.models.truncated import TruncatedGP as TruncatedGP
    from bo_robust.models.truncated_feature_gp import TruncatedFeatureGP as TruncatedFeatureGP
else:
    __all__, __getattr__, __dir__ = on_first_use(__name__)
