"""``RobustGP`` in BayBE: ``BotorchRecommender(surrogate_model=RobustGPSurrogate())``.

BayBE's kernel, priors and scaling stay, ``posterior_stats`` works, and a campaign's JSON holds the surrogate: import
this module before ``Campaign.from_json``. It overrides ``_fit``, which is not public, and so needs BayBE 0.15.
There is no ``device``, as BayBE makes all tensors on the CPU, those of its searches too.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

import torch
from attrs import define
from baybe import Campaign
from baybe.kernels.base import Kernel
from baybe.surrogates import GaussianProcessSurrogate
from baybe.utils.dataframe import to_tensor
from botorch.fit import fit_gpytorch_mll
from botorch.models.transforms.input import Normalize
from torch import Tensor

from bo_robust.models import OutlierPrior, RobustGP
from bo_robust.proposals.sided_model import SidedModel, recommendable
from bo_robust.proposals.sided_model import replicates as points_to_replicate
from bo_robust.utils.upstream import baybe_context

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["RobustGPSurrogate", "held_measurements", "outlier_measurements", "recommend", "replicates"]


@define(slots=False, getstate_setstate=True)  # BayBE finds a class by its name, of which slots leave a second one
class RobustGPSurrogate(GaussianProcessSurrogate):
    """BayBE's ``GaussianProcessSurrogate``, its components included, with outlier detection, one model a target.

    Task parameters are refused. The objective says whether large or small observations are good; where it asks to match
    a value, neither is. ``outlier_share`` and ``outlier_density`` are as in
    :class:`bo_robust.models.RobustGP`.

    Examples:
        >>> campaign = Campaign(searchspace, objective, BotorchRecommender(surrogate_model=RobustGPSurrogate()))
    """

    supports_transfer_learning = False
    outlier_share: float = OutlierPrior.share
    outlier_density: float = OutlierPrior.density

    def _fit(self, train_x: Tensor, train_y: Tensor) -> None:
        context = searchspace, objective, _ = baybe_context(self)
        kernel = self.kernel_factory(*context)
        if isinstance(kernel, Kernel):
            kernel = kernel.to_gpytorch(searchspace=searchspace)
        self._model = RobustGP(
            train_x,
            train_y,
            likelihood=self.likelihood_factory(*context),
            covar_module=kernel,
            mean_module=self.mean_factory(*context),
            input_transform=Normalize(train_x.shape[-1], bounds=to_tensor(searchspace.scaling_bounds)),
            outlier_share=self.outlier_share,
            outlier_density=self.outlier_density,
            maximize=_large_is_good(objective, train_y),
        )
        criterion = self.fit_criterion_factory(*context)
        fit_gpytorch_mll(criterion.to_gpytorch(self._model.likelihood, self._model))


def _large_is_good(objective: Any, values: Tensor) -> bool | None:
    """Whether larger values of the target are better; None where that changes among these values ``n x 1``."""
    steps = objective.to_botorch()(values.sort(dim=0).values).diff(dim=0)
    if (steps >= 0.0).all():
        return True
    return False if (steps <= 0.0).all() else None


def outlier_measurements(campaign: Campaign) -> pd.DataFrame:
    """Return the measurements of which the model flags a value as an outlier."""
    return _measurements(campaign, "flagged")


def held_measurements(campaign: Campaign) -> pd.DataFrame:
    """Return the measurements to repeat before you rely on them: a value is good, and held by its model."""
    return _measurements(campaign, "held")


def _measurements(campaign: Campaign, which: str) -> pd.DataFrame:
    found: set[int] = set()
    models = _fitted(campaign)
    by_target = campaign.objective.handle_missing_values(campaign.measurements).values()
    for measurements, each in zip(by_target, models, strict=True):
        found |= set(measurements.index[getattr(each.verdict, which).numpy()])
    return campaign.measurements.loc[sorted(found)]


def replicates(campaign: Campaign, q: int = 1, pending_experiments: pd.DataFrame | None = None) -> pd.DataFrame:
    """Return up to q experiments to measure again before the campaign recommends new ones; often none.

    An observation there is better than all inliers, but flagged or held: :func:`bo_robust.models.suggest_replicates`.
    """
    pending = None if pending_experiments is None else _encoded(campaign, pending_experiments)
    sided = [each for each in _fitted(campaign) if each.maximize is not None]
    encoded = _encoded(campaign, campaign.measurements)
    points = islice(points_to_replicate(sided, X_pending=pending), q)
    rows = [int((encoded == point).all(-1).nonzero()[0]) for point in points]
    return campaign.measurements.iloc[rows][list(campaign.searchspace.parameter_names)]


def recommend(campaign: Campaign) -> pd.DataFrame:
    """Return the measured experiment of the best mean, one row with the mean of each target.

    Measurements that are flagged, or held on the good side, are not recommended and do not move the means.
    Raises ``ValueError`` if the objective has several outputs.
    """
    if campaign.objective.is_multi_output:
        raise ValueError("recommend takes one objective; scalarise several by a DesirabilityObjective.")
    models, encoded = _fitted(campaign), _encoded(campaign, campaign.measurements)
    values = torch.stack([each.predict(encoded).mean for each in models], -1)
    value = campaign.objective.to_botorch()(values).flatten()
    value = value.where(recommendable(models, encoded), -float("inf"))
    means = {f"{target.name}_mean": mean for target, mean in zip(campaign.targets, values.T.numpy(), strict=True)}
    experiments = campaign.measurements[list(campaign.searchspace.parameter_names)]
    return experiments.assign(**means).iloc[[int(value.argmax())]]


def _fitted(campaign: Campaign) -> list[SidedModel]:
    """The fitted models, one for each target; ``ValueError`` if there is none."""
    if campaign.measurements.empty:
        raise ValueError("there is no model yet: add measurements to the campaign first.")
    models: list[Any] = list(getattr(campaign.get_surrogate().to_botorch(), "models", ()))
    if not models or not all(hasattr(model, "verdict") for model in models):
        raise ValueError("this is for campaigns whose recommender has surrogate_model=RobustGPSurrogate().")
    return [SidedModel(model, model.maximize, model.train_X_all) for model in models]


def _encoded(campaign: Campaign, experiments: pd.DataFrame) -> Tensor:
    """Experiments as the models see them, ``n x d``."""
    return to_tensor(campaign.searchspace.transform(experiments, allow_extra=True))
