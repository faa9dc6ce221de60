"""The condition z to observe a design x under: the second half of a V-UCB round (Nguyen et al. 2021, Algorithm 1).

The functional offers conditions (lacing values, :meth:`bo_robust.functionals.Functional.lacing`), a pick takes one. Or
the pick is "informative", ours: the condition, offered or not, whose observation tells most about F(f(x, Z)).
"""

import math
from dataclasses import dataclass

import torch
from botorch.utils.sampling import draw_sobol_normal_samples
from linear_operator.utils.cholesky import psd_safe_cholesky
from torch import Tensor

from bo_robust.environments import Environment
from bo_robust.functionals import Functional
from bo_robust.picks import PICKS, pick_condition

MODEL_PICKS = (*PICKS, "informative")  # of a model, which has joint moments
# Draws of f that correlations are estimated from.
INFORMATION_DRAWS = 256


@dataclass(frozen=True)
class ConditionChoice:
    """The condition to observe each design under; leading axes are those of the designs.

    Attributes:
        index: Index of the condition, ``...``, long.
        z: Value of the condition, ``... x d_z``; the perturbation xi if x is perturbed.
        point: Input of the model to be observed, ``... x d``: (x, z), or x + xi.
        regret_bound: u - l = 2 w sigma there, ``...``, in units of f. It bounds the regret of x if x maximises the
            acquisition, the functional offered z (so neither "drawn" nor "informative"), and l <= f <= u. Not for
            ``MeanVariance``.
    """

    index: Tensor
    z: Tensor
    point: Tensor
    regret_bound: Tensor


def choose_condition(
    x: Tensor,
    environment: Environment,
    functional: Functional,
    lower: Tensor,
    upper: Tensor,
    pick: str = "probable",
    uniform: Tensor | None = None,
    information: Tensor | None = None,
) -> ConditionChoice:
    """Pick a condition for every design (``... x d_x``), with l and u over the conditions (``... x w``).

    ``functional`` offers the conditions worth observing. ``pick`` is one of :mod:`bo_robust.picks`, whose draws are
    ``uniform`` (``...``). With ``information`` (``... x w``) the possible condition of most of it is taken instead.
    ``ValueError`` if draws are missing or the pick is unknown.
    """
    p, gap = environment.probabilities, upper - lower
    if information is None:
        # A draw follows the probabilities of the conditions, the pick "probable" may rank by a density.
        weights = p if pick == "drawn" else environment.density
        index = pick_condition(functional.lacing(lower, upper, p), gap, weights, pick, uniform)
    else:
        index = (information if p is None else information.masked_fill(p <= 0, -math.inf)).argmax(-1)
    x = x.expand(*index.shape, x.shape[-1])  # a batched model has a choice per member
    z = value_at(environment.values(x), index)
    bound = gap.gather(-1, index.unsqueeze(-1)).squeeze(-1)
    return ConditionChoice(index, z, environment.join(x, z), bound)


def correlation_with_risk(
    functional: Functional, mean: Tensor, covariance: Tensor, noise: Tensor, probabilities: Tensor | None
) -> Tensor:
    """Squared correlation of an observation at every condition with F(f(x, Z)), ``... x w``, over draws of f.

    ``mean``, ``covariance`` and ``noise`` are those of f and the rewards at all conditions of x: ``... x w``, ``... x w
    x w`` and ``... x w``.
    """
    draws = draw_sobol_normal_samples(mean.shape[-1], INFORMATION_DRAWS, device=mean.device, dtype=mean.dtype, seed=0)
    noiseless = draws @ psd_safe_cholesky(covariance).mT
    risk = functional(mean.unsqueeze(-2) + noiseless, probabilities)
    risk = risk - risk.mean(-1, keepdim=True)
    shared = (risk.unsqueeze(-1) * noiseless).mean(-2)
    total = risk.square().mean(-1, keepdim=True) * (covariance.diagonal(dim1=-2, dim2=-1) + noise)
    return shared.square() / total.clamp_min(torch.finfo(total.dtype).tiny)


def value_at(values: Tensor, index: Tensor) -> Tensor:
    """The value of z of every design at an index: ``... x w x d_z`` and ``...`` to ``... x d_z``."""
    return values.gather(-2, index[..., None, None].expand(*index.shape, 1, values.shape[-1])).squeeze(-2)
