"""Local neural surrogate optimisation (LNSO): argmax_x VaR_alpha(u(x, Z)) for continuous Z, from draws of Z alone.

Nguyen, Dai, Low & Jaillet, "Value-at-Risk Optimization with Gaussian Processes" (ICML 2021), Section 3.5, Algorithm 2:

    VaR_alpha(u(x, Z)) = argmin_v E rho_alpha(u(x, Z) - v),    rho_alpha(e) = alpha e if e >= 0, else (alpha - 1) e,

so a small network g(x; theta) fitted to E_{x in B(x_c, r)} E_Z rho_alpha(u(x, Z) - g(x; theta)) is the value at risk
near x_c. x ascends g, and where ||x - x_c|| >= r (the paper's line 4 prints delta_x for r) the ball is centred anew and
g refitted, from the parameters it had.

Maximise :class:`~bo_robust.acquisition.value_at_risk.ValueAtRiskUCB` itself first: an exact quantile over 256 fixed
points took a second a query where 8 starts of LNSO took 15 to 60 (one thread), with lower regret for d_z = 1, where
LNSO's surrogate smooths kinks of VaR, and about the same for d_z = 5 (``python -m benchmarks.lnso``).

All starts are one batch of networks, ``s x n x features``, in rounds: fit all, then climb; a start that leaves its ball
waits for the next round, one that does not goes on learning in it. Nothing branches on data. All starts meet the same
random numbers, so a start does the same alone as among others. Lengths are fractions of the box of x; a network sees
(x - x_c) / r, so that it moves along with its ball (kept in place, its units saturate after a few balls), and u in
units of its spread over the box.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from botorch.acquisition import AcquisitionFunction
from torch import Tensor
from torch.quasirandom import SobolEngine

from bo_robust.environments import ContinuousEnvironment
from bo_robust.functionals import ValueAtRisk
from bo_robust.models.moments import marginal_moments
from bo_robust.ops.weighted_quantile import check_level, weighted_quantile
from bo_robust.validation import check_count, check_finite, check_positive

if TYPE_CHECKING:
    from bo_robust.acquisition.value_at_risk import ValueAtRiskUCB

__all__ = ["climb", "estimate_value_at_risk", "optimize_lnso", "pinball_loss"]

HIDDEN = 30
ADAM = (0.9, 0.999, 1e-8)
# Points per block of a posterior call. 32,000 points, 30 data, one thread: 19 ms at 8, 28 ms at 32, 36 ms at 64.
BLOCK = 8
SCALE_POINTS = 64

Bound = Callable[[Tensor], Tensor]


def pinball_loss(errors: Tensor, alpha: float) -> Tensor:
    """rho_alpha: alpha e where e >= 0, else (alpha - 1) e, elementwise.

    Args:
        errors: e = value - estimate, any shape.
        alpha: Lower tail probability, in (0, 1).

    Raises:
        ValueError: if alpha is not in (0, 1).
    """
    check_level(alpha)
    return torch.where(errors >= 0.0, alpha * errors, (alpha - 1.0) * errors)


def estimate_value_at_risk(
    bound: Bound, environment: ContinuousEnvironment, x: Tensor, alpha: float, num_draws: int = 4096, seed: int = 0
) -> Tensor:
    """VaR_alpha(u(x, Z)) from fresh draws of Z, the same for every x: argmin_v of the mean pinball loss (eq. 6).

    That minimiser is the sample quantile (the smallest of them where there are several), so nothing is iterated.

    Args:
        bound: u at inputs of the model, ``n x d`` to ``n``.
        environment: Z.
        x: Designs, ``... x d_x``.
        alpha: Lower tail probability, in (0, 1).
        num_draws: Its standard error in probability is sqrt(alpha (1 - alpha) / num_draws).
        seed: Of the draws; a sampler has its own.

    Returns:
        ``...``, without gradient.

    Raises:
        ValueError: if alpha is not in (0, 1), num_draws < 1, or bound returns another shape.
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
    """argmax_x VaR_alpha(u(x, Z)) by LNSO: the best of where the starts began and where they ended.

    Args:
        target: A ``ValueAtRiskUCB`` with a ``ValueAtRisk``, whose u and alpha are taken; or u itself, inputs of the
            model ``n x d`` to ``n``, with ``alpha``.
        environment: Z; its fixed points are not used, except that their spread of u sets the networks' scale.
        bounds: Box of x, ``2 x d_x``.
        num_starts: Sobol points to start from.
        alpha: Lower tail probability, in (0, 1), of a plain u.
        seed: Of starts, first networks and draws.
        num_draws: Fresh draws of Z on which the points found are compared and valued.
        **settings: Of :func:`climb`: rounds, fit_steps, ascent_steps, num_x, num_z, radius, fit_rate, ascent_rate.

    Returns:
        x, ``1 x d_x``, and its VaR_alpha(u(x, Z)), a scalar, as ``optimize_acqf``.

    Raises:
        ValueError: if Z is not a ``ContinuousEnvironment``, an acquisition is not V-UCB with a ``ValueAtRisk`` and a
            model without batch shape, alpha is missing or given twice, or bounds or settings make no sense.

    Example:
        >>> acqf = ValueAtRiskUCB(model, environment, 0.1, 2.0)
        >>> x, value = optimize_lnso(acqf, environment, bounds_of_x)
        >>> next_input = search_lacing_value(acqf, x).point
    """
    check_count(1, num_starts=num_starts, num_draws=num_draws)
    _check_problem(environment, bounds)
    bound, alpha = _bound_of(target, alpha)
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
    """Algorithm 2 from every start. Both rates fall linearly to zero within a round (the paper states neither).

    Args:
        bound: u at inputs of the model, ``n x d`` to ``n``; called without gradient.
        environment: Z.
        bounds: Box of x, ``2 x d_x``.
        starts: ``s x d_x``, within the box.
        alpha: Lower tail probability, in (0, 1).
        rounds: Of fitting and climbing; a start moves about ``radius`` a round at most.
        fit_steps: Adam steps on the networks a round (t_g), each on a fresh minibatch.
        ascent_steps: Adam steps on x a round.
        num_x: Points of the ball in a minibatch (n_x).
        num_z: Draws of Z in a minibatch (n_z), with each of which all points are paired.
        radius: r, a fraction of the box.
        fit_rate: First step size of Adam on the networks.
        ascent_rate: First step size of Adam on x, a fraction of the radius.
        seed: Of the networks and draws; a sampler of Z has its own.

    Returns:
        Where they end, ``s x d_x``; not a number where u was not.

    Raises:
        ValueError: if a count is below 1, a rate, the radius or alpha makes no sense, or starts do not fit the box.
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
        shift, scale = sample.mean(), sample.std().clamp_min(torch.finfo(sample.dtype).tiny)
        x = (starts - low) / (high - low)
        centre = x
        networks = _first_networks(s, d, generator, x)
        for _ in range(rounds):
            z = environment.sample(fit_steps * num_z, generator).view(fit_steps, num_z, -1)
            offsets = _in_ball((fit_steps, num_x, d), generator, x)
            moments = torch.zeros_like(networks), torch.zeros_like(networks)
            for step in range(fit_steps):
                near = (centre.unsqueeze(1) + radius * offsets[step]).clamp_(0.0, 1.0)
                values = (u(near, z[step]) - shift) / scale
                gradient = _loss_gradient(networks, (near - centre.unsqueeze(1)) / radius, values, alpha)
                networks -= fit_rate * (1.0 - step / fit_steps) * _adam_direction(moments, gradient, step)
            moments = torch.zeros_like(x), torch.zeros_like(x)
            for step in range(ascent_steps):
                inside = _distance(x, centre) < radius
                slope = _slope(networks, (x - centre) / radius)
                rate = ascent_rate * radius * (1.0 - step / ascent_steps)
                climbed = (x + rate * _adam_direction(moments, slope, step)).clamp_(0.0, 1.0)
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


def _bound_of(target: ValueAtRiskUCB | Bound, alpha: float | None) -> tuple[Bound, float]:
    if not isinstance(target, AcquisitionFunction):
        if alpha is None:
            raise ValueError("a plain u needs alpha, the probability of the lower tail.")
        return target, alpha
    acqf: ValueAtRiskUCB = target  # type: ignore[assignment]
    functional = getattr(acqf, "functional", None)
    if not isinstance(functional, ValueAtRisk) or acqf.model.batch_shape:
        raise ValueError("LNSO needs a ValueAtRiskUCB of a ValueAtRisk, whose model has no batch shape.")
    if alpha is not None:
        raise ValueError("an acquisition function has its own alpha; leave alpha out.")

    def upper(points: Tensor) -> Tensor:
        mean, variance = marginal_moments(acqf.model, points, BLOCK, acqf.posterior_transform, acqf.pending_points)
        return mean + acqf.width * variance.sqrt()

    return upper, functional.alpha


def _check_problem(environment: ContinuousEnvironment, bounds: Tensor) -> None:
    if not isinstance(environment, ContinuousEnvironment):
        raise ValueError(
            f"LNSO draws from a ContinuousEnvironment, got {type(environment).__name__}; finite conditions have an "
            "exact quantile: maximise the acquisition function itself."
        )
    if bounds.ndim != 2 or bounds.shape[0] != 2 or bounds.shape[1] == 0 or not bool((bounds[0] < bounds[1]).all()):
        raise ValueError(f"bounds must be 2 x d_x, lower below upper, got shape {tuple(bounds.shape)}.")
    check_finite("bounds", bounds)
    like = environment.bounds
    if (bounds.dtype, bounds.device) != (like.dtype, like.device):
        raise ValueError(f"bounds are {bounds.dtype} on {bounds.device}, Z {like.dtype} on {like.device}; convert one.")


def _in_ball(shape: tuple[int, int, int], generator: torch.Generator, like: Tensor) -> Tensor:
    """Uniform in the unit ball of the last axis."""
    direction = _normal(shape, generator, like)
    direction /= direction.norm(dim=-1, keepdim=True).clamp_min_(1e-12)
    length = torch.rand((*shape[:-1], 1), generator=generator, dtype=like.dtype, device=like.device)
    return direction * length.pow_(1.0 / shape[-1])


def _normal(shape: tuple[int, ...], generator: torch.Generator, like: Tensor) -> Tensor:
    return torch.randn(shape, generator=generator, dtype=like.dtype, device=like.device)


# A network is one row of parameters: W1 (d x H), b1, W2 (H x H), b2, w3 (H), b3.
def _first_networks(s: int, d: int, generator: torch.Generator, like: Tensor) -> Tensor:
    """The same first network for every start, ``s x parameters``; it is zero at the output."""
    first = 2.0 * _normal((d * HIDDEN,), generator, like)
    biases = _normal((HIDDEN,), generator, like)
    second = 2.0 / math.sqrt(HIDDEN) * _normal((HIDDEN * HIDDEN,), generator, like)
    rest = like.new_zeros(2 * HIDDEN + 1)
    return torch.cat([first, biases, second, rest]).repeat(s, 1)


def _parts(networks: Tensor, d: int) -> tuple[Tensor, ...]:
    """Views of W1, b1, W2, b2, w3, b3, each ``s x rows x columns``."""
    sizes = (d * HIDDEN, HIDDEN, HIDDEN * HIDDEN, HIDDEN, HIDDEN, 1)
    rows = (d, 1, HIDDEN, 1, HIDDEN, 1)
    return tuple(p.unflatten(1, (r, -1)) for p, r in zip(networks.split(sizes, 1), rows, strict=True))


def _layers(parts: tuple[Tensor, ...], x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Both hidden layers and the output at ``s x n x d``."""
    W1, b1, W2, b2, w3, b3 = parts
    first = torch.baddbmm(b1, x, W1).sigmoid_()
    second = torch.baddbmm(b2, first, W2).sigmoid_()
    return first, second, torch.baddbmm(b3, second, w3)


def _loss_gradient(networks: Tensor, x: Tensor, values: Tensor, alpha: float) -> Tensor:
    """Gradient of each network's mean pinball loss at x (``s x n x d``) and u (``s x n x w``)."""
    parts = _parts(networks, x.shape[-1])
    _, _, W2, _, w3, _ = parts
    first, second, out = _layers(parts, x)
    d_out = ((values < out).to(out).mean(-1, keepdim=True) - alpha) / x.shape[1]
    d_second = (d_out * w3.mT) * (second * (1.0 - second))
    d_first = (d_second @ W2.mT) * (first * (1.0 - first))
    pieces = []
    for inputs, errors in ((x, d_first), (first, d_second), (second, d_out)):
        pieces += [(inputs.mT @ errors).flatten(1), errors.sum(1)]
    return torch.cat(pieces, 1)


def _slope(networks: Tensor, x: Tensor) -> Tensor:
    """Gradient of each network at its own x: ``s x d`` to ``s x d``."""
    parts = _parts(networks, x.shape[-1])
    W1, _, W2, _, w3, _ = parts
    first, second, _ = _layers(parts, x.unsqueeze(1))
    d_second = w3.mT * (second * (1.0 - second))
    d_first = (d_second @ W2.mT) * (first * (1.0 - first))
    return (d_first @ W1.mT).squeeze(1)


def _adam_direction(moments: tuple[Tensor, Tensor], gradient: Tensor, step: int) -> Tensor:
    """The step along the gradient at rate 1, counted from 0; updates the moments in place (Kingma & Ba 2015)."""
    beta1, beta2, eps = ADAM
    first, second = moments
    first.lerp_(gradient, 1.0 - beta1)
    second.mul_(beta2).addcmul_(gradient, gradient, value=1.0 - beta2)
    root = (second / (1.0 - beta2 ** (step + 1))).sqrt_().add_(eps)
    return first / (root * (1.0 - beta1 ** (step + 1)))


def _distance(x: Tensor, centre: Tensor) -> Tensor:
    """Euclidean, ``s x 1``."""
    return (x - centre).norm(dim=-1, keepdim=True)
