"""The base of algorithms in feature space: a prior of mean zero, and the features of the arms."""

from abc import abstractmethod
from dataclasses import dataclass

from torch import Tensor

from bo_robust.algorithms.base import ArmAlgorithm, State
from bo_robust.features.base import Features
from bo_robust.posteriors.arms import ArmKernel, noise_of_trials
from bo_robust.posteriors.dictionary import NystromDictionary, empty_table
from bo_robust.posteriors.whitening import FeatureTable


class FeatureSpaceAlgorithm(ArmAlgorithm):
    """Base of the algorithms whose posterior is a regression on features of the arms."""

    def init(
        self,
        kernel: ArmKernel,
        noise_var: float | Tensor,
        trials: int = 1,
        *,
        prior_mean: Tensor | None = None,
        rounds: int | None = None,
    ) -> State:
        """Make the state before any reward. ``rounds`` is ignored: room grows as needed.

        ``ValueError`` on a prior mean (features have none), a noise variance <= 0, no trials, or features that do not
        fit the arms.
        """
        if prior_mean is not None:
            raise ValueError(
                f"{type(self).__name__} has prior mean zero: subtract prior_mean from the rewards instead."
            )
        return self._start(kernel, noise_of_trials(kernel, noise_var, trials))

    @abstractmethod
    def _start(self, kernel: ArmKernel, noise_var: Tensor) -> State:
        """Make the state before any reward, with one trial per noise variance (``s``)."""


@dataclass
class FeatureState(State):
    """State with the kernel that dictionaries are drawn from."""

    kernel: ArmKernel | None = None


def feature_table(features: Features | NystromDictionary, kernel: ArmKernel, root: str) -> FeatureTable:
    """The features of the arms, compressed for the symmetric root; empty if dictionaries are still to be drawn.

    A feature map that meets arms without locations, or outside its box, raises ``ValueError``.
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
