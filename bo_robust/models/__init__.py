"""BoTorch models: the posteriors of the papers behind BoTorch's ``Model`` interface."""

from typing import TYPE_CHECKING

from bo_robust.utils.first_use import on_first_use

if TYPE_CHECKING:
    from bo_robust.features.maps import FourierMap, NystromMap
    from bo_robust.models.bkb import BKBModel
    from bo_robust.models.candidate_ensemble import CandidateEnsemble
    from bo_robust.models.candidate_priors import Candidate, candidate, candidate_grid
    from bo_robust.models.feature_gp import FeatureGP
    from bo_robust.models.moments import information_gain, marginal_moments, sequential_moments
    from bo_robust.models.robust.outcome_scale import OutcomeScale
    from bo_robust.models.robust.plot import plot_outliers
    from bo_robust.models.robust.prior import OutlierPrior
    from bo_robust.models.robust.replication import suggest_replicates
    from bo_robust.models.robust.robust_gp import RobustGP
    from bo_robust.models.training_data import TruncationWarning
    from bo_robust.models.truncated import TruncatedGP
    from bo_robust.models.truncated_feature_gp import TruncatedFeatureGP

__all__ = [
    "BKBModel",
    "Candidate",
    "CandidateEnsemble",
    "FeatureGP",
    "FourierMap",
    "NystromMap",
    "OutcomeScale",
    "OutlierPrior",
    "RobustGP",
    "TruncatedFeatureGP",
    "TruncatedGP",
    "TruncationWarning",
    "candidate",
    "candidate_grid",
    "information_gain",
    "marginal_moments",
    "plot_outliers",
    "sequential_moments",
    "suggest_replicates",
]
if not TYPE_CHECKING:  # a type checker knows the names imported above, and no others
    __getattr__, __dir__ = on_first_use(
        __name__,
        {
            ".features.maps": "FourierMap NystromMap",
            "bkb": "BKBModel",
            "candidate_ensemble": "CandidateEnsemble",
            "candidate_priors": "Candidate candidate candidate_grid",
            "feature_gp": "FeatureGP",
            "moments": "information_gain marginal_moments sequential_moments",
            "robust.outcome_scale": "OutcomeScale",
            "robust.plot": "plot_outliers",
            "robust.prior": "OutlierPrior",
            "robust.replication": "suggest_replicates",
            "robust.robust_gp": "RobustGP",
            "training_data": "TruncationWarning",
            "truncated": "TruncatedGP",
            "truncated_feature_gp": "TruncatedFeatureGP",
        },
    )
