"""Gradient search of a continuous Z for the lacing value of largest density, off the environment's fixed points.

Nguyen, Dai, Low & Jaillet, "Value-at-Risk Optimization with Gaussian Processes" (ICML 2021), Section 3.5: minimise

    relu(-d_u(z)) + relu(-d_l(z)) - 1{d_u(z) >= 0} 1{d_l(z) >= 0} p(z),
    d_u(z) = u(x, z) - VaR_alpha(u(x, Z)),    d_l(z) = VaR_alpha(l(x, Z)) - l(x, z).

This is the companion of :func:`bo_robust.acquisition.optimize_lnso`. VaR is estimated from fresh draws of Z, and at
least one of the draws is a lacing value (Theorem 1). Where the fixed points can be trusted (d_z <= 2), no search is
needed: ``acqf.select_environment`` looks at them all.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from bo_robust.acquisition.lacing import value_at
from bo_robust.acquisition.value_at_risk import ValueAtRiskUCB
from bo_robust.environments import ContinuousEnvironment
from bo_robust.functionals import ValueAtRisk, pick
from bo_robust.validation import check_count, check_positive


@dataclass(frozen=True)
class LacingValue:
    """The condition found for each design; leading axes are those of the designs.

    Attributes:
        z: Value of the condition, ``... x d_z``.
        point: Input of the model to be observed, (x, z), ``... x d``.
        is_lacing: Whether d_u >= 0 and d_l >= 0 there, ``...`` bool; false only if the posterior is not finite.
        log_density: log p(z), ``...``; zero if the environment knows no density.
        regret_bound: u - l = 2 w sigma there, ``...``. It bounds the regret of x if x maximises VaR(u) and l <= f <= u,
            as far as the draws stand for Z.
    """

    z: Tensor
    point: Tensor
    is_lacing: Tensor
    log_density: Tensor
    regret_bound: Tensor


def search_lacing_value(
    acqf: ValueAtRiskUCB,
    x: Tensor,
    num_starts: int = 64,
    steps: int = 100,
    rate: float = 0.02,
    num_draws: int = 4096,
    seed: int = 0,
) -> LacingValue:
    """Find the lacing value of largest density for every design; equally dense ones go to the widest interval.

    The search compares the environment's points, the draws, and every z that Adam passes on its way from some of them.
    All are judged by the VaR of the draws. By it the result is never worse than the best of the environment's points.
    By the VaR of these points, which ``acqf.select_environment`` takes, it may be: the two differ by the sampling error
    of the draws, and so do the lacing values. Arguments not as described raise ``ValueError``.

    Args:
        acqf: With a ``ValueAtRisk``, a ``ContinuousEnvironment`` and a model without batch shape.
        x: Designs, ``... x d_x``, as ``optimize_lnso`` returns them.
        num_starts: Starts of Adam: the best of points and draws, and other draws.
        steps: Steps of Adam.
        rate: First step size of Adam, > 0, a fraction of the box of Z; it falls linearly to zero.
        num_draws: Draws of Z whose quantiles are the VaR of l and u, at least ``num_starts``.
        seed: Seed of the draws; a sampler has its own.
    """
    environment = acqf.environment
    if not isinstance(environment, ContinuousEnvironment) or not isinstance(acqf.functional, ValueAtRisk):
        raise ValueError(
            "lacing values are searched for a ValueAtRisk over a ContinuousEnvironment; use acqf.select_environment."
        )
    if acqf.model.batch_shape:
        raise ValueError("the search for lacing values needs a model without batch shape.")
    check_count(1, num_starts=num_starts, steps=steps)
    check_count(num_starts, num_draws=num_draws)
    check_positive(rate=rate)

    def bounds_at(z: Tensor) -> tuple[Tensor, Tensor]:
        designs = x.unsqueeze(-2).expand(*z.shape[:-1], x.shape[-1])
        return acqf.bounds_of(environment.join(designs, z), acqf.pending_points)

    low, high = environment.bounds
    with torch.no_grad():
        x = acqf.designs(x)
        draws = environment.sample(num_draws, torch.Generator(low.device).manual_seed(seed))
        z = torch.cat([draws, environment.z]).expand(*x.shape[:-1], -1, -1)
        lower, upper = bounds_at(z)
        var_lower, var_upper = (acqf.functional(b[..., :num_draws]).unsqueeze(-1) for b in (lower, upper))
        best = _best_of(z, upper - var_upper, var_lower - lower, upper - lower, environment)
        # The best so far, and the first draws.
        starts = torch.cat([best[0].unsqueeze(-2), z[..., : num_starts - 1, :]], -2)
        # exp(log p - reference) is at most about 1: Adam would meet very large or small densities otherwise.
        reference = _log_density(environment, environment.z).max()
    unit = ((starts - low) / (high - low)).requires_grad_()
    adam = torch.optim.Adam([unit], lr=rate)
    for step in range(steps):
        adam.param_groups[0]["lr"] = rate * (1.0 - step / steps)
        z = low + (high - low) * unit
        lower, upper = bounds_at(z)
        d_u, d_l = upper - var_upper, var_lower - lower
        density = torch.where((d_u >= 0.0) & (d_l >= 0.0), (_log_density(environment, z) - reference).exp(), 0.0)
        loss = (-d_u).relu() + (-d_l).relu() - density
        unit.grad = torch.autograd.grad(loss.sum(), unit)[0].nan_to_num(0.0, 0.0, 0.0)  # a broken model moves nothing
        adam.step()
        with torch.no_grad():
            unit.clamp_(0.0, 1.0)
            best = _better(best, _best_of(z.detach(), d_u, d_l, upper - lower, environment))
    found, is_lacing, log_density, gap = best
    return LacingValue(found, environment.join(x, found), is_lacing, log_density, gap)


Candidate = tuple[Tensor, Tensor, Tensor, Tensor]


def _best_of(z: Tensor, d_u: Tensor, d_l: Tensor, gap: Tensor, environment: ContinuousEnvironment) -> Candidate:
    """The best z of every design (``... x w``), whether it is lacing, its log density and its gap u - l."""
    lacing = (d_u >= 0.0) & (d_l >= 0.0)
    log_density = _log_density(environment, z)
    index = pick(lacing, gap, log_density, "probable")
    rest = (values.gather(-1, index.unsqueeze(-1)).squeeze(-1) for values in (lacing, log_density, gap))
    return (value_at(z, index), *rest)  # type: ignore[return-value]


def _better(old: Candidate, new: Candidate) -> Candidate:
    _, old_lacing, old_density, old_gap = old
    _, new_lacing, new_density, new_gap = new
    wider = (new_density == old_density) & (new_gap > old_gap)
    better = new_lacing & (~old_lacing | (new_density > old_density) | wider)
    z = torch.where(better.unsqueeze(-1), new[0], old[0])
    return (z, *(torch.where(better, n, o) for n, o in zip(new[1:], old[1:], strict=True)))  # type: ignore[return-value]


def _log_density(environment: ContinuousEnvironment, z: Tensor) -> Tensor:
    log_density = environment.log_prob(z)
    return torch.zeros_like(z[..., 0]) if log_density is None else log_density
