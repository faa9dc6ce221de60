"""MoM-GP-UCB: GP-UCB with a median of means in feature space instead of truncation.

Ray Chowdhury & Gopalan (NeurIPS 2019) suggest this estimator but do not build it. It needs no v, alpha or level, and
has no guarantee here. Difference from :mod:`ata_gp_ucb`: the posterior (:mod:`bo_robust.posteriors.median_of_means`).
"""

from dataclasses import dataclass

from torch import Tensor

from bo_robust.algorithms.base import Info, Selection, State
from bo_robust.algorithms.feature_space import FeatureSpaceAlgorithm, feature_table
from bo_robust.algorithms.gp_ucb import select_ucb
from bo_robust.confidence import Width
from bo_robust.features.base import Features
from bo_robust.posteriors import median_of_means
from bo_robust.posteriors.arms import ArmKernel


@dataclass(frozen=True)
class MoMGPUCB(FeatureSpaceAlgorithm):
    """MoM-GP-UCB.

    Args:
        width: Confidence width; none has been proved for this estimator.
        features: A feature map of arm locations.
        groups: Number of groups, odd. More groups withstand more bad rewards, but average fewer each.
        root: Root of V^{-1}, whose rows are the directions: "symmetric" or "cholesky".
    """

    width: Width
    features: Features
    groups: int = 9
    root: str = "symmetric"

    def _start(self, kernel: ArmKernel, noise_var: Tensor) -> State:
        table = feature_table(self.features, kernel, self.root)
        return State(median_of_means.init(table, noise_var, self.groups, self.root))

    def select(self, state: State, uniform: Tensor) -> Selection:
        """Choose the arm of largest upper confidence bound."""
        return select_ucb(state, self.width, uniform)

    def observe(self, state: State, arms: Tensor, rewards: Tensor, uniform: Tensor | None = None) -> Info:
        """Learn from the rewards."""
        state.round += 1
        return Info(median_of_means.observe(state.posterior, arms, rewards))
