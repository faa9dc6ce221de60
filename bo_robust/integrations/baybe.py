"""``RobustGP`` in BayBE: ``BotorchRecommender(surrogate_model=RobustGPSurrogate())``.

BayBE's kernel, priors and scaling stay, ``posterior_stats`` works, and a campaign's JSON holds the surrogate: import
this module before ``Campaign.from_json``. It overrides ``_fit``, which is not public, and so needs BayBE 0.15.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attrs import define
from baybe import Campaign
from baybe.kernels.base import Kernel
from baybe.surrogates import GaussianProcessSurrogate
from baybe.utils.dataframe import to_tensor
from botorch.fit import fit_gpytorch_mll
from botorch.models import ModelListGP
from botorch.models.transforms.input import Normalize
from torch import Tensor

from bo_robust.models import RobustGP, suggest_replicates

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["RobustGPSurrogate", "outlier_measurements", "recommend", "replicates"]


@define(slots=False, getstate_setstate=True)  # BayBE finds a class by its name, of which slots leave a second one
class RobustGPSurrogate(GaussianProcessSurrogate):
    """BayBE's ``GaussianProcessSurrogate``, its components included, with outlier detection, one model a target.

    Task parameters are refused. The objective says whether large or small readings are good; where it asks to match a
    value, no variance is inflated. The other arguments are those of :class:`bo_robust.models.RobustGP`.

    Examples:
        >>> campaign = Campaign(searchspace, objective, BotorchRecommender(surrogate_model=RobustGPSurrogate()))
    """

    supports_transfer_learning = False
    outlier_share: float = 0.05
    outlier_density: float = 0.05

    def _fit(self, train_x: Tensor, train_y: Tensor) -> None:
        context = self._searchspace, self._objective, self._measurements
        kernel = self.kernel_factory(*context)
        if isinstance(kernel, Kernel):
            kernel = kernel.to_gpytorch(searchspace=self._searchspace)
        self._model = RobustGP(
            train_x,
            train_y,
            likelihood=self.likelihood_factory(*context),
            covar_module=kernel,
            mean_module=self.mean_factory(*context),
            input_transform=Normalize(train_x.shape[-1], bounds=to_tensor(self._searchspace.scaling_bounds)),
            outlier_share=self.outlier_share,
            outlier_density=self.outlier_density,
            maximize=self._large_is_good(train_y),
        )
        criterion = self.fit_criterion_factory(*context)
        fit_gpytorch_mll(criterion.to_gpytorch(self._model.likelihood, self._model))

    def _large_is_good(self, values: Tensor) -> bool | None:
        """Whether larger values of the target are better; None where that changes among these values ``n x 1``."""
        steps = self._objective.to_botorch()(values.sort(dim=0).values).diff(dim=0)
        if (steps >= 0.0).all():
            return True
        return False if (steps <= 0.0).all() else None


def outlier_measurements(campaign: Campaign) -> pd.DataFrame:
    """Return the measurements of which the model flags a value as an outlier."""
    outliers: set[int] = set()
    by_target = campaign.objective.handle_missing_values(campaign.measurements).values()
    for measurements, model in zip(by_target, _fitted(campaign), strict=True):
        outliers |= set(measurements.index[~model.inlier_mask.numpy()])
    return campaign.measurements.loc[sorted(outliers)]


def replicates(campaign: Campaign, q: int = 1, pending_experiments: pd.DataFrame | None = None) -> pd.DataFrame:
    """Return up to q experiments to measure again before the campaign recommends new ones; often none.

    A reading there is better than all inliers, but flagged: :func:`bo_robust.models.suggest_replicates`.
    """
    pending = None if pending_experiments is None else _encoded(campaign, pending_experiments)
    points = suggest_replicates(ModelListGP(*_fitted(campaign)), q=q, X_pending=pending)
    encoded = _encoded(campaign, campaign.measurements)
    rows = [] if points is None else [int((encoded == point).all(-1).nonzero()[0]) for point in points]
    return campaign.measurements.iloc[rows][list(campaign.searchspace.parameter_names)]


def recommend(campaign: Campaign) -> pd.DataFrame:
    """Return the measured experiment of the best posterior mean, one row with the mean of each target.

    Raises ``ValueError`` if the objective has several outputs.
    """
    if campaign.objective.is_multi_output:
        raise ValueError("recommend takes one objective; scalarise several by a DesirabilityObjective.")
    encoded = _encoded(campaign, campaign.measurements)
    means = campaign.posterior_stats(stats=["mean"])
    value = campaign.objective.to_botorch()(to_tensor(means)).flatten()
    for model in _fitted(campaign):  # not where only other points support an experiment that was bad
        usable = model.inlier_mask if model.maximize is None else model.recommendable()
        refused = (encoded.unsqueeze(1) == model.train_X_all[~usable]).all(-1).any(1)
        value = value.masked_fill(refused, -float("inf"))
    experiments = campaign.measurements[list(campaign.searchspace.parameter_names)]
    return experiments.join(means).iloc[[int(value.argmax())]]


def _fitted(campaign: Campaign) -> list[RobustGP]:
    """The fitted models, one for each target."""
    models: list[Any] = list(getattr(campaign.get_surrogate().to_botorch(), "models", ()))
    if not models or not all(isinstance(model, RobustGP) for model in models):
        raise ValueError("this is for campaigns whose recommender has surrogate_model=RobustGPSurrogate().")
    return models


def _encoded(campaign: Campaign, experiments: pd.DataFrame) -> Tensor:
    """Experiments as the models see them, ``n x d``."""
    return to_tensor(campaign.searchspace.transform(experiments, allow_extra=True))
