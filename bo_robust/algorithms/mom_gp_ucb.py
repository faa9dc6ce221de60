"""MoM-GP-UCB: GP-UCB with a median of means in feature space instead of truncation.

The estimator Ray Chowdhury & Gopalan (NeurIPS 2019) suggest and do not build: no v, alpha or level to know, and no
guarantee here. Difference from :mod:`ata_gp_ucb`: the posterior (:mod:`bo_robust.states.median_of_means`).
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from bo_robust.algorithms.base import ArmAlgorithm, Info, Selection, State
from bo_robust.algorithms.feature_space import feature_table, prior_noise
from bo_robust.algorithms.gp_ucb import select_ucb
from bo_robust.features.base import Features
from bo_robust.schedules import Width
from bo_robust.states import median_of_means
from bo_robust.states.arms import ArmKernel

__all__ = ["MoMGPUCB"]


@dataclass(frozen=True)
class MoMGPUCB(ArmAlgorithm):
    """MoM-GP-UCB.

    Args:
        width: Confidence width; none has been proved for this estimator.
        features: A feature map of arm locations.
        groups: Number of groups, odd; more withstand more bad rewards and average fewer.
        root: Of V^{-1}, whose rows are the directions: "symmetric" or "cholesky".
    """

    width: Width
    features: Features
    groups: int = 9
    root: str = "symmetric"

    def init(
        self,
        kernel: ArmKernel,
        noise_var: float | Tensor,
        trials: int = 1,
        *,
        prior_mean: Tensor | None = None,
        rounds: int | None = None,
    ) -> State:
        """State before any reward; ``rounds`` is not used.

        Raises:
            ValueError: on an even number of groups, an unknown root, a prior mean, a noise variance <= 0, no trials,
                arms of unknown location or outside the features' box.
        """
        noise = prior_noise(kernel, noise_var, trials, prior_mean)
        table = feature_table(self.features, kernel, self.root)
        return State(median_of_means.init(table, noise, self.groups, self.root))

    def select(self, state: State, uniform: Tensor) -> Selection:
        """The arm of largest upper confidence bound."""
        return select_ucb(state, self.width, uniform)

    def observe(self, state: State, arms: Tensor, rewards: Tensor, uniform: Tensor | None = None) -> Info:
        """Take in the rewards."""
        state.round += 1
        return Info(median_of_means.observe(state.posterior, arms, rewards))
