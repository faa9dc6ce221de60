"""The base of algorithms in feature space: a prior of mean zero."""

from abc import abstractmethod

from torch import Tensor

from bo_robust.bandits.base import ArmAlgorithm, State
from bo_robust.bandits.posteriors.arms import ArmKernel, noise_of_trials


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
        """Make the state before any reward. ``rounds`` is ignored: space grows as needed.

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
