"""``RobustGP`` in BoFire: a strategy takes ``RobustGPSurrogate`` where it takes ``SingleTaskGPSurrogate``.

Import this module before you load one from JSON. It overrides a method that is not public, and so needs BoFire 0.5.
There is no ``device``, as BoFire makes all tensors on the CPU, those of its searches too.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from bofire.data_models.strategies.api import BotorchStrategy as BotorchStrategySpecification
from bofire.data_models.strategies.api import Step, StepwiseStrategy
from bofire.data_models.surrogates.api import SingleTaskGPSurrogate as SingleTaskGPSpecification
from bofire.kernels import api as kernels
from bofire.priors import api as priors
from bofire.surrogates.api import SingleTaskGPSurrogate, register
from botorch.fit import fit_gpytorch_mll
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.mlls import ExactMarginalLogLikelihood
from torch import Size, Tensor

from bo_robust.models import OutlierPrior, RobustGP
from bo_robust.utils.upstream import bofire_experiments

if TYPE_CHECKING:
    import pandas as pd
    from bofire.strategies.api import BotorchStrategy

__all__ = ["RobustGPSurrogate", "held_experiments", "outlier_experiments"]


class RobustGPSurrogate(SingleTaskGPSpecification):
    """What BoFire's ``SingleTaskGPSurrogate`` specifies, with outlier detection.

    The objective says whether large or small values are good; where it asks for a target, neither is.
    ``outlier_share`` and ``outlier_density`` are those of :class:`bo_robust.models.RobustGP`.

    Examples:
        >>> surrogate = RobustGPSurrogate(inputs=domain.inputs, outputs=domain.outputs)
        >>> strategy = SoboStrategy(domain=domain, surrogate_specs=BotorchSurrogates(surrogates=[surrogate]))
    """

    type: Literal["RobustGPSurrogate"] = "RobustGPSurrogate"
    outlier_share: float = OutlierPrior.share
    outlier_density: float = OutlierPrior.density


@register(RobustGPSurrogate)
class _FittedSurrogate(SingleTaskGPSurrogate):
    def __init__(self, data_model: RobustGPSurrogate, **options: Any) -> None:
        self._specification = data_model
        super().__init__(data_model=data_model, **options)

    def _fit_botorch(self, tX: Tensor, tY: Tensor, input_transform: Any = None, outcome_transform: Any = None) -> None:
        d = (tX if input_transform is None else input_transform(tX)).shape[-1]
        limits = None if self.noise_constraint is None else priors.map(self.noise_constraint)
        likelihood = GaussianLikelihood(priors.map(self.noise_prior, d=d), limits)
        # BoFire's constraint leaves the noise at 0, outside of its limits; BoTorch's fit would begin at the limit.
        likelihood.noise = likelihood.noise.clamp_min(likelihood.noise_covar.raw_noise_constraint.lower_bound)
        values = tY.flatten().sort().values.cpu().numpy()
        steps = np.diff(self.outputs[0].objective(values, values))
        self.model = RobustGP(
            tX,
            tY,
            likelihood=likelihood,
            covar_module=kernels.map(self.kernel, Size(), list(range(d)), self.get_feature_indices),
            outcome_transform=outcome_transform,
            input_transform=input_transform,
            outlier_share=self._specification.outlier_share,
            outlier_density=self._specification.outlier_density,
            maximize=True if (steps >= 0.0).all() else False if (steps <= 0.0).all() else None,
        )
        fit_gpytorch_mll(ExactMarginalLogLikelihood(self.model.likelihood, self.model))


def outlier_experiments(strategy: BotorchStrategy) -> pd.DataFrame:
    """Return the experiments of which a surrogate of the fitted strategy flags a value as an outlier."""
    return _experiments(strategy, "flagged")


def held_experiments(strategy: BotorchStrategy) -> pd.DataFrame:
    """Return the experiments to measure again before you rely on them: a value is good, and held by its surrogate."""
    return _experiments(strategy, "held")


def _experiments(strategy: BotorchStrategy, which: str) -> pd.DataFrame:
    found: set[int] = set()
    for surrogate in strategy.surrogates.surrogates:
        if hasattr(surrogate.model, "verdict"):  # which formulas and other models have not
            experiments = bofire_experiments(surrogate, strategy.experiments)
            found |= set(experiments.index[getattr(surrogate.model.verdict(), which).cpu().numpy()])
    return strategy.experiments.loc[sorted(found)]


def _strategies(base: type[BotorchStrategySpecification]) -> Iterator[type[BotorchStrategySpecification]]:
    yield base
    for strategy in base.__subclasses__():
        yield from _strategies(strategy)


# BoFire lets its lists of surrogates know of a registered one, but pydantic has built the strategies that hold such a
# list before. Strategies of steps hold strategies, so they come last.
for _holder in (*_strategies(BotorchStrategySpecification), Step, StepwiseStrategy):
    _holder.model_rebuild(force=True)
