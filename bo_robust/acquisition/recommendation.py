"""The design to use in the end, from a GP over designs and conditions."""

from dataclasses import dataclass

import torch
from botorch.acquisition.objective import PosteriorTransform
from botorch.models.model import Model
from torch import Tensor

from bo_robust.acquisition.rounds import reference
from bo_robust.acquisition.value_at_risk import BLOCK
from bo_robust.environments import Environment
from bo_robust.functionals import Functional, as_functional
from bo_robust.models.moments import marginal_moments
from bo_robust.validation import check_tensor


@dataclass(frozen=True)
class RecommendedDesign:
    """The design to use.

    Attributes:
        index: Index of the design in ``X_queried``, ``batch_shape``.
        x: The design, ``batch_shape x d_x``.
        value: F(mu(x, Z)), the estimate of F(f(x, Z)), ``batch_shape``.
    """

    index: Tensor
    x: Tensor
    value: Tensor


def recommend_design(
    model: Model,
    environment: Environment,
    functional: Functional | float,
    X_queried: Tensor,
    posterior_transform: PosteriorTransform | None = None,
) -> RecommendedDesign:
    """argmax over the designs queried so far of F(mu(x, Z)), ties to the first (Nguyen et al. 2021, Section 4).

    Other arguments are those of :class:`ValueAtRiskUCB`. ``X_queried`` holds designs without z, ``k x d_x``.
    ``ValueError`` if it has no design, or its columns do not fit the environment and model.
    """
    functional = as_functional(functional)
    check_tensor("X_queried", X_queried)
    if X_queried.ndim != 2 or X_queried.shape[0] == 0:
        raise ValueError(f"X_queried must be k x d_x with k >= 1, got shape {tuple(X_queried.shape)}.")
    with torch.no_grad():
        points = environment.points(X_queried)  # k x w x d
        k, w, d = points.shape
        if getattr(model, "train_inputs", None) is not None and reference(model).shape[-1] != d:
            raise ValueError(
                f"designs and conditions have {d} columns, the model {reference(model).shape[-1]}; give designs "
                "without their z."
            )
        mean, _ = marginal_moments(model, points.reshape(k * w, d), BLOCK, posterior_transform)
        values = functional(mean.reshape(*mean.shape[:-1], k, w), environment.probabilities)
        index = values.argmax(-1)
    return RecommendedDesign(index, X_queried[index], values.gather(-1, index.unsqueeze(-1)).squeeze(-1))
