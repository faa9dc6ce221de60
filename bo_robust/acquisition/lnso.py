"""Local neural surrogate optimisation (LNSO): argmax_x VaR_alpha(u(x, Z)) for continuous Z, from draws of Z alone.

Nguyen, Dai, Low & Jaillet, "Value-at-Risk Optimization with Gaussian Processes" (ICML 2021), Section 3.5, Algorithm 2:

    VaR_alpha(u(x, Z)) = argmin_v E rho_alpha(u(x, Z) - v),    rho_alpha(e) = alpha e if e >= 0, else (alpha - 1) e,

so a small network g(x; theta) fitted to E_{x in B(x_c, r)} E_Z rho_alpha(u(x, Z) - g(x; theta)) is the value at risk
near x_c. x ascends g. Where ||x - x_c|| >= r (the paper's line 4 prints delta_x for r) the ball is centred anew, and g
is refitted from its last parameters.

Maximise :class:`~bo_robust.acquisition.value_at_risk.ValueAtRiskUCB` itself first. With an exact quantile over 256
fixed points a query took one second; 8 starts of LNSO took 15 to 60 (one thread). The exact quantile had lower regret
for d_z = 1, where LNSO's surrogate smooths kinks of VaR, and about the same for d_z = 5 (``python -m
benchmarks.lnso``).

All starts are one batch of networks, ``s x n x features``. A round fits all networks, then climbs. A start that leaves
its ball waits for the next round; the network of one that stays goes on learning. Nothing branches on data. All starts
meet the same random numbers, so a start does the same alone as among others.
"""

import math
from collections.abc import Callable

import torch
from botorch.acquisition import AcquisitionFunction
from torch import Tensor
from torch.quasirandom import SobolEngine

from bo_robust.acquisition.lnso_networks import adam_direction, first_networks, input_gradient, loss_gradient
from bo_robust.acquisition.value_at_risk import ValueAtRiskUCB
from bo_robust.environments import ContinuousEnvironment
from bo_robust.functionals import ValueAtRisk
from bo_robust.ops.weighted_quantile import check_level, weighted_quantile
from bo_robust.validation import check_bounds, check_count, check_like, check_positive

# Points per block of a posterior call. 32,000 points, 30 data, one thread: 19 ms at 8, 28 ms at 32, 36 ms at 64.
BLOCK = 8
# Designs, and about as many conditions, at which the spread of u over the box is measured.
SCALE_POINTS = 64

Bound = Callable[[Tensor], Tensor]


def pinball_loss(errors: Tensor, alpha: float) -> Tensor:
    """rho_alpha(e) = alpha e if e >= 0, else (alpha - 1) e, elementwise; ``ValueError`` unless alpha is in (0, 1)."""
    check_level(alpha)
    return torch.where(errors >= 0.0, alpha * errors, (alpha - 1.0) * errors)


def estimate_value_at_risk(
    bound: Bound, environment: ContinuousEnvironment, x: Tensor, alpha: float, num_draws: int = 4096, seed: int = 0
) -> Tensor:
    """VaR_alpha(u(x, Z)), ``...``, from fresh draws of Z, the same for every x; without gradient.

    It is argmin_v of the mean pinball loss (eq. 6). The minimiser is the sample quantile (the smallest if there are
    several), so nothing is iterated. Its standard error, in probability, is sqrt(alpha (1 - alpha) / num_draws).

    ``bound`` is u at inputs of the model, ``n x d`` to ``n``; another shape raises ``ValueError``. x are designs, ``...
    x d_x``; alpha is in (0, 1). A sampler of Z has its own seed.
    """
    check_count(1, num_draws=num_draws)
    with torch.no_grad():
        z = environment.sample(num_draws, torch.Generator(x.device).manual_seed(seed))
        return weighted_quantile(_at_pairs(bound, environment, x, z), None, alpha)


def optimize_lnso(
    target: ValueAtRiskUCB | Bound,
    environment: ContinuousEnvironment,
    bounds: Tensor,
    num_starts: int = 64,
    alpha: float | None = None,
    seed: int = 0,
    num_draws: int = 4096,
    **settings: int | float,
) -> tuple[Tensor, Tensor]:
    """argmax_x VaR_alpha(u(x, Z)) by LNSO, among the points where the starts began and ended.

    Args:
        target: A ``ValueAtRiskUCB`` with a ``ValueAtRisk`` and a model without batch shape, which gives u and alpha; or
            u itself, inputs of the model ``n x d`` to ``n``, with ``alpha``.
        environment: Z. Its fixed points only serve to measure the spread of u, the scale of the networks.
        bounds: Box of x, ``2 x d_x``.
        num_starts: Sobol points to start from.
        alpha: Lower tail probability, in (0, 1), of a plain u.
        seed: Seed of the starts, the first networks and the draws.
        num_draws: Fresh draws of Z on which the points found are compared and valued.
        **settings: Arguments of :func:`climb`, from ``rounds`` to ``ascent_rate``.

    Returns:
        x, ``1 x d_x``, and its VaR_alpha(u(x, Z)), a scalar, as ``optimize_acqf``.

    Raises:
        ValueError: if an argument is not as described, or alpha is missing or given twice.

    Example:
        >>> acqf = ValueAtRiskUCB(model, environment, 0.1, 2.0)
        >>> x, value = optimize_lnso(acqf, environment, bounds_of_x)
        >>> next_input = search_lacing_value(acqf, x).point
    """
    check_count(1, num_starts=num_starts, num_draws=num_draws)
    _check_problem(environment, bounds)
    bound, alpha = upper_bound_of(target, alpha)
    if isinstance(target, ValueAtRiskUCB):
        bounds = target.designs(bounds)
    low, high = bounds
    sobol = SobolEngine(bounds.shape[-1], scramble=True, seed=seed).draw(num_starts, dtype=torch.float64)
    starts = low + (high - low) * sobol.to(bounds)
    ends = climb(bound, environment, bounds, starts, alpha, seed=seed, **settings)  # type: ignore[arg-type]
    found = torch.cat([ends, starts])
    values = estimate_value_at_risk(bound, environment, found, alpha, num_draws, seed + 1)
    best = values.nan_to_num(-math.inf).argmax(keepdim=True)
    return found[best], values[best].squeeze(0)


def climb(
    bound: Bound,
    environment: ContinuousEnvironment,
    bounds: Tensor,
    starts: Tensor,
    alpha: float,
    rounds: int = 10,
    fit_steps: int = 200,
    ascent_steps: int = 40,
    num_x: int = 50,
    num_z: int = 10,
    radius: float = 0.1,
    fit_rate: float = 0.02,
    ascent_rate: float = 0.1,
    seed: int = 0,
) -> Tensor:
    """Run Algorithm 2 from every start, and return the ends, ``s x d_x``: NaN where u was NaN.

    Both rates fall linearly to zero within a round (the paper states neither). ``ValueError`` if an argument is not as
    described.

    Args:
        bound: u at inputs of the model, ``n x d`` to ``n``; called without gradient.
        environment: Z.
        bounds: Box of x, ``2 x d_x``.
        starts: ``s x d_x``, within the box.
        alpha: Lower tail probability, in (0, 1).
        rounds: Rounds of fitting and climbing. A start moves by about ``radius`` in a round, at most.
        fit_steps: Adam steps on the networks a round (t_g), each on a fresh minibatch.
        ascent_steps: Adam steps on x a round.
        num_x: Points of the ball in a minibatch (n_x).
        num_z: Draws of Z in a minibatch (n_z). Every point is paired with every draw.
        radius: r, a fraction of the box.
        fit_rate: First step size of Adam on the networks.
        ascent_rate: First step size of Adam on x, a fraction of the radius.
        seed: Seed of the networks and draws; a sampler of Z has its own.
    """
    counts = {"rounds": rounds, "fit_steps": fit_steps, "ascent_steps": ascent_steps, "num_x": num_x, "num_z": num_z}
    check_count(1, **counts)
    check_positive(radius=radius, fit_rate=fit_rate, ascent_rate=ascent_rate)
    check_level(alpha)
    _check_problem(environment, bounds)
    low, high = bounds
    if starts.ndim != 2 or starts.shape[1] != len(low) or not bool(((starts >= low) & (starts <= high)).all()):
        raise ValueError(f"starts must be s x {len(low)} within the bounds, got shape {tuple(starts.shape)}.")
    generator = torch.Generator(bounds.device).manual_seed(seed)
    s, d = starts.shape
    with torch.no_grad():

        def u(x: Tensor, z: Tensor) -> Tensor:
            return _at_pairs(bound, environment, low + (high - low) * x, z)

        box_x = SobolEngine(d, scramble=True, seed=seed).draw(SCALE_POINTS, dtype=torch.float64).to(bounds)
        sample = u(box_x, environment.z[:: max(1, len(environment.z) // SCALE_POINTS)])
        # Networks see u in units of its spread over the box; a constant u has none.
        shift, scale = sample.mean(), sample.std().clamp_min(torch.finfo(sample.dtype).tiny)
        # From here on lengths are fractions of the box.
        x = (starts - low) / (high - low)
        centre = x
        networks = first_networks(s, d, generator, x)
        for _ in range(rounds):
            z = environment.sample(fit_steps * num_z, generator).view(fit_steps, num_z, -1)
            offsets = _in_ball((fit_steps, num_x, d), generator, x)
            moments = torch.zeros_like(networks), torch.zeros_like(networks)
            for step in range(fit_steps):
                near = (centre.unsqueeze(1) + radius * offsets[step]).clamp_(0.0, 1.0)
                values = (u(near, z[step]) - shift) / scale
                # A network sees (x - x_c) / r: it moves with its ball. Kept in place, its units saturate after a few.
                gradient = loss_gradient(networks, (near - centre.unsqueeze(1)) / radius, values, alpha)
                networks -= fit_rate * (1.0 - step / fit_steps) * adam_direction(moments, gradient, step)
            moments = torch.zeros_like(x), torch.zeros_like(x)
            for step in range(ascent_steps):
                inside = _distance(x, centre) < radius
                slope = input_gradient(networks, (x - centre) / radius)
                rate = ascent_rate * radius * (1.0 - step / ascent_steps)
                climbed = (x + rate * adam_direction(moments, slope, step)).clamp_(0.0, 1.0)
                x = torch.where(inside, climbed, x)
            centre = torch.where(_distance(x, centre) >= radius, x, centre)
    return low + (high - low) * x


def _at_pairs(bound: Bound, environment: ContinuousEnvironment, x: Tensor, z: Tensor) -> Tensor:
    """u at every design ``... x d_x`` under every z (``w x d_z``): ``... x w``."""
    shape = (*x.shape[:-1], len(z))
    points = environment.join(x.unsqueeze(-2).expand(*shape, -1), z.expand(*shape, -1)).flatten(0, -2)
    values = bound(points)
    if values.shape != points.shape[:1]:
        raise ValueError(f"u must map n x d to n; got {tuple(values.shape)} at {tuple(points.shape)}.")
    return values.reshape(shape)


def upper_bound_of(target: ValueAtRiskUCB | Bound, alpha: float | None) -> tuple[Bound, float]:
    """u and alpha from the arguments of :func:`optimize_lnso`, with its errors."""
    if not isinstance(target, AcquisitionFunction):
        if alpha is None:
            raise ValueError("a plain u needs alpha, the probability of the lower tail.")
        return target, alpha
    acqf = target if isinstance(target, ValueAtRiskUCB) else None
    if acqf is None or not isinstance(acqf.functional, ValueAtRisk) or acqf.model.batch_shape:
        raise ValueError("LNSO needs a ValueAtRiskUCB of a ValueAtRisk, whose model has no batch shape.")
    if alpha is not None:
        raise ValueError("an acquisition function has its own alpha; leave alpha out.")

    def upper(points: Tensor) -> Tensor:
        return acqf.bounds_of(points, acqf.pending_points, BLOCK)[1]

    return upper, acqf.functional.alpha


def _check_problem(environment: ContinuousEnvironment, bounds: Tensor) -> None:
    if not isinstance(environment, ContinuousEnvironment):
        raise ValueError(
            f"LNSO draws from a ContinuousEnvironment, got {type(environment).__name__}; finite conditions have an "
            "exact quantile: maximise the acquisition function itself."
        )
    check_bounds(bounds)
    check_like("bounds", bounds, "Z", environment.bounds)


def _in_ball(shape: tuple[int, int, int], generator: torch.Generator, like: Tensor) -> Tensor:
    """Uniform points in the unit ball of the last axis."""
    direction = torch.randn(shape, generator=generator, dtype=like.dtype, device=like.device)
    direction /= direction.norm(dim=-1, keepdim=True).clamp_min_(1e-12)
    length = torch.rand((*shape[:-1], 1), generator=generator, dtype=like.dtype, device=like.device)
    # The d-th root makes points uniform in volume.
    return direction * length.pow_(1.0 / shape[-1])


def _distance(x: Tensor, centre: Tensor) -> Tensor:
    """Euclidean distance, ``s x 1``."""
    return (x - centre).norm(dim=-1, keepdim=True)
