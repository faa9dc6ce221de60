"""What algorithms in feature space share: the state's kernel, and features of arms from settings."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from bo_robust.algorithms.base import State
from bo_robust.features.base import Features
from bo_robust.states.arms import ArmKernel, noise_of_trials
from bo_robust.states.dictionary import NystromDictionary, empty_table
from bo_robust.states.whitening import FeatureTable

__all__ = ["FeatureState", "feature_table", "prior_noise"]


@dataclass
class FeatureState(State):
    """State with the kernel that dictionaries are drawn from."""

    kernel: ArmKernel | None = None


def feature_table(features: Features | NystromDictionary, kernel: ArmKernel, root: str) -> FeatureTable:
    """Features of the arms, empty where dictionaries are still to be drawn; compressed for the symmetric root.

    Raises:
        ValueError: if a feature map meets arms of unknown location, or outside its box.
    """
    if isinstance(features, NystromDictionary):
        return empty_table(kernel)
    if kernel.arms is None:
        raise ValueError(
            f"{type(features).__name__} need the locations of the arms: ArmKernel.from_covariance(k, arms), or "
            "from_matrix(K, arms). Arms without locations take a NystromDictionary."
        )
    Phi = features(kernel.arms)
    return FeatureTable.compressed(Phi) if root == "symmetric" else FeatureTable(Phi)


def prior_noise(kernel: ArmKernel, noise_var: float | Tensor, trials: int, prior_mean: Tensor | None) -> Tensor:
    """lambda, ``s``.

    Raises:
        ValueError: on a noise variance <= 0, no trials, or a prior mean, which feature-space methods do not have.
    """
    if prior_mean is not None:
        raise ValueError("feature-space methods have prior mean zero: subtract prior_mean from the rewards instead.")
    return noise_of_trials(kernel, noise_var, trials)
