"""Gradient search of a continuous Z for the lacing value of largest density, off the environment's fixed points.

Nguyen, Dai, Low & Jaillet, "Value-at-Risk Optimization with Gaussian Processes" (ICML 2021), Section 3.5: minimise

    relu(-d_u(z)) + relu(-d_l(z)) - 1{d_u(z) >= 0} 1{d_l(z) >= 0} p(z),
    d_u(z) = u(x, z) - VaR_alpha(u(x, Z)),    d_l(z) = VaR_alpha(l(x, Z)) - l(x, z).

This is the companion of :func:`bo_robust.acquisition.optimize_lnso`. VaR is estimated from fresh draws of Z, and at
least one of the draws is a lacing value (Theorem 1). Where the fixed points can be trusted (d_z <= 2), no search is
needed: ``acqf.select_condition`` looks at them all.
"""

import torch
from torch import Tensor

from bo_robust.acquisition.lnso import check_continuous
from bo_robust.acquisition.value_at_risk import ConditionChoice, ValueAtRiskUCB, value_at
from bo_robust.risk_measures.environments import ContinuousEnvironment
from bo_robust.risk_measures.selection_rules import select_by_rule
from bo_robust.utils.input_checks import check_count, check_positive


def search_lacing_value(
    acqf: ValueAtRiskUCB,
    x: Tensor,
    num_starts: int = 64,
    steps: int = 100,
    rate: float = 0.02,
    num_draws: int = 4096,
    seed: int = 0,
) -> ConditionChoice:
    """The lacing value of largest density for every design; of equally dense ones that of the widest interval.

    The search compares the environment's points, the draws, and every z that Adam passes on its way from some of them.
    All are compared by the VaR of the draws. By it the result is never worse than the best of the environment's points.
    By the VaR of these points, which ``acqf.select_condition`` takes, it may be: the two differ by the sampling error
    of the draws, and so do the lacing values. The ``index`` of the choice counts what was compared; ``regret_bound`` is
    NaN where the posterior is. Arguments not as described raise ``ValueError``.

    Args:
        acqf: With a ``ValueAtRisk``, a ``ContinuousEnvironment`` and a model without batch shape.
        x: Designs, ``... x d_x``, as ``optimize_lnso`` returns them.
        num_starts: Starts of Adam: the best of points and draws, and other draws.
        steps: Steps of Adam.
        rate: First step size of Adam, > 0, a fraction of the box of Z; it falls linearly to zero.
        num_draws: Draws of Z whose quantiles are the VaR of l and u, at least ``num_starts``.
        seed: Seed of the draws; a sampler has its own.
    """
    environment, _ = check_continuous(acqf)
    check_count(1, num_starts=num_starts, steps=steps)
    check_count(num_starts, num_draws=num_draws)
    check_positive(rate=rate)
    designs = acqf.designs(x)

    def bounds_at(z: Tensor) -> tuple[Tensor, Tensor]:
        points = environment.join(designs.unsqueeze(-2).expand(*z.shape[:-1], designs.shape[-1]), z)
        return acqf.bounds_of(points, acqf.pending_points)

    def best_of(z: Tensor) -> ConditionChoice:
        with torch.no_grad():
            lower, upper = bounds_at(z)
            lacing = (lower <= var_lower) & (upper >= var_upper)
            index = select_by_rule(lacing, upper - lower, _log_density(environment, z), "probable")
            gap = (upper - lower).gather(-1, index.unsqueeze(-1)).squeeze(-1)
            best = value_at(z, index)
            return ConditionChoice(index, best, environment.join(designs, best), gap)

    low, high = environment.bounds
    draws = environment.sample(num_draws, torch.Generator(low.device).manual_seed(seed))
    draws = draws.expand(*designs.shape[:-1], -1, -1)
    with torch.no_grad():
        var_lower, var_upper = (acqf.functional(b).unsqueeze(-1) for b in bounds_at(draws))
    known = torch.cat([draws, environment.z.expand(*designs.shape[:-1], -1, -1)], -2)
    best_known = best_of(known).z.unsqueeze(-2)
    # exp(log p - largest) is at most about 1: Adam would meet very large or small densities otherwise.
    largest = _log_density(environment, environment.z).max()
    unit = (torch.cat([best_known, draws[..., : num_starts - 1, :]], -2) - low) / (high - low)
    unit.requires_grad_()
    adam, passed = torch.optim.Adam([unit]), [best_known]
    for step in range(steps):
        adam.param_groups[0]["lr"] = rate * (1.0 - step / steps)
        z = low + (high - low) * unit
        passed.append(z.detach())
        lower, upper = bounds_at(z)
        d_u, d_l = upper - var_upper, var_lower - lower
        density = torch.where((d_u >= 0.0) & (d_l >= 0.0), (_log_density(environment, z) - largest).exp(), 0.0)
        loss = (-d_u).relu() + (-d_l).relu() - density
        unit.grad = torch.autograd.grad(loss.sum(), unit)[0].nan_to_num(0.0, 0.0, 0.0)  # a broken model moves nothing
        adam.step()
        with torch.no_grad():
            unit.clamp_(0.0, 1.0)
    return best_of(torch.cat(passed, -2))


def _log_density(environment: ContinuousEnvironment, z: Tensor) -> Tensor:
    log_density = environment.log_prob(z)
    return torch.zeros_like(z[..., 0]) if log_density is None else log_density
