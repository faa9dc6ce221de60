"""Fits of one model, for :func:`bo_robust.proposals.core.fit`."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from botorch.exceptions import ModelFittingError
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from gpytorch.constraints import GreaterThan
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.mlls import ExactMarginalLogLikelihood
from gpytorch.priors import LogNormalPrior
from torch import Tensor

from bo_robust.models.evidence_fit import fit_evidence
from bo_robust.models.robust.slips import Readings
from bo_robust.proposals.methods import Choice
from bo_robust.proposals.outcomes import Outputs

NOISE_FLOOR = 1e-6  # least noise variance that is learned; BoTorch's 1e-4 blurs the optimum of a noise-free objective
CHANCE = 0.2  # probability of two equal readings of one design, below which one is a copy: one pair of five is


def failure_model(U: Tensor, failed: Tensor) -> SingleTaskGP:
    """``SingleTaskGP`` of labels: 0 where there was an observation, 1 where the measurement failed.

    Where a region fails, labels follow a cliff. A failure by chance is noise, or a spike that spoils little around it.
    """
    labels = torch.cat([U.new_zeros(len(U), 1), U.new_ones(len(failed), 1)])
    return fitted_model(partial(SingleTaskGP, torch.cat([U, failed]), labels))


def fitted_model(build: Callable[..., Any], **modules: Any) -> Any:
    """The model, fitted; without these modules, at the modes of its priors, where no fit succeeds."""
    model = build(**modules)
    try:
        fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model), optimizer=fit_evidence)
    except ModelFittingError:
        model = build()
    return model.eval()


def modules(choice: Choice, template: Tensor) -> dict[str, Any]:
    """BoTorch's default likelihood with a lower floor of the noise, where one is learned."""
    if "noise_var" in choice.model_options or not choice.takes("likelihood", "train_Yvar"):
        return {}
    prior = LogNormalPrior(-4.0, 1.0)
    floor = GreaterThan(NOISE_FLOOR, transform=None, initial_value=prior.mode)
    return {"likelihood": GaussianLikelihood(noise_prior=prior, noise_constraint=floor).to(template)}


def equal_by_chance(outputs: Outputs, j: int, model: Any, points: Tensor) -> bool:
    """Whether two readings at each of the points ``k x d`` are often equal: steps are wide against the noise."""
    _, y, options = outputs.of(j)
    step = math.exp(Readings(y.numpy(), options["reading_unit"]).log_step)
    with torch.no_grad():
        noise = model.posterior(points, observation_noise=True).variance - model.posterior(points).variance
    # The density of a difference of two readings at 0 is 1 / (2 sqrt(pi) s).
    return bool((step >= CHANCE * (4.0 * math.pi * noise.clamp_min(0.0)).sqrt()).all())
