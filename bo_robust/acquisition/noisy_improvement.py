"""Noisy improvement on a model that learns the scale of its outcomes, as fast as on a Gaussian one."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from botorch.acquisition.logei import qLogNoisyExpectedImprovement
from botorch.acquisition.objective import GenericMCObjective, PosteriorTransform
from botorch.models.gpytorch import GPyTorchModel
from botorch.posteriors import GPyTorchPosterior
from torch import Tensor

from bo_robust.models.robust.outcome_scale import OutcomeScale
from bo_robust.models.robust.posterior import ScaledPosterior


def noisy_improvement(model: Any, X_baseline: Tensor, **options: Any) -> qLogNoisyExpectedImprovement:
    """Make ``qLogNoisyExpectedImprovement`` of one outcome, maximized; its samples are exact in every scale.

    BoTorch samples a candidate beside the designs measured by the Cholesky factor of these, which it keeps, if the
    posterior is Gaussian. In a learnt scale the outcomes are not, but their latent values are. So the latent values are
    sampled, and untransformed by the objective.

    Args:
        model: A fitted ``RobustGP``, or another model of one output.
        X_baseline: ``r x d`` designs to improve on.
        options: Other arguments of ``qLogNoisyExpectedImprovement``; no objective and no constraints.
    """
    scale = getattr(model, "outcome_scale", None)
    if scale is None or scale.is_identity:
        return qLogNoisyExpectedImprovement(model, X_baseline, **options)
    objective = GenericMCObjective(partial(_outcome, scale))
    return qLogNoisyExpectedImprovement(LatentModel(model), X_baseline, objective=objective, **options)


def _outcome(scale: OutcomeScale, W: Tensor, X: Tensor | None = None) -> Tensor:
    return scale.untransform(W)[..., 0]


class LatentModel(GPyTorchModel):
    """A model of one outcome, on the scale on which it is Gaussian."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    @property
    def num_outputs(self) -> int:
        return 1

    @property
    def batch_shape(self) -> torch.Size:
        shape: torch.Size = self.model.batch_shape
        return shape

    def posterior(  # type: ignore[override]
        self,
        X: Tensor,
        output_indices: list[int] | None = None,
        observation_noise: bool | Tensor = False,
        posterior_transform: PosteriorTransform | None = None,
    ) -> GPyTorchPosterior:
        """The posterior of the latent values, as of BoTorch's models."""
        posterior = self.model.posterior(X, output_indices, observation_noise)
        assert isinstance(posterior, ScaledPosterior)
        latent: GPyTorchPosterior = posterior.latent
        return latent if posterior_transform is None else posterior_transform(latent)
