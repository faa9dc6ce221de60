"""LNSO, local neural surrogate optimization: argmax_x VaR_alpha(u(x, Z)) for continuous Z, from draws of Z alone.

Nguyen, Dai, Low & Jaillet, "Value-at-Risk Optimization with Gaussian Processes" (ICML 2021), Section 3.5, Algorithm 2:

    VaR_alpha(u(x, Z)) = argmin_v E rho_alpha(u(x, Z) - v),    rho_alpha(e) = alpha e if e >= 0, else (alpha - 1) e,

so a small network g(x; theta) fitted to E_{x in B(x_c, r)} E_Z rho_alpha(u(x, Z) - g(x; theta)) is the value at risk
near x_c. x ascends g. Where ||x - x_c|| >= r (the paper's line 4 prints delta_x for r) the ball is centered anew, and g
is refitted from its last parameters.

Maximize :class:`~bo_robust.acquisition.value_at_risk.ValueAtRiskUCB` itself first: an exact quantile over 256 fixed
points takes a tenth of the time, for the same regret after 60 rounds.
"""

import math
from collections.abc import Callable
from itertools import chain

import torch
from torch import Tensor
from torch.quasirandom import SobolEngine

from bo_robust.acquisition.condition_choice import ConditionChoice, value_at
from bo_robust.acquisition.value_at_risk import ValueAtRiskUCB
from bo_robust.ops.cuda_graphs import Repeated
from bo_robust.risk_measures.environments import ContinuousEnvironment
from bo_robust.risk_measures.functionals import ValueAtRisk
from bo_robust.risk_measures.selection_rules import select_by_rule
from bo_robust.utils.input_checks import check_bounds, check_count, check_positive
from bo_robust.utils.linalg import on_cuda

BLOCK = 8  # points of a posterior call. 32,000 points, 30 data, one thread: 19 ms at 8, 28 ms at 32, 36 ms at 64
SCALE_POINTS = 64  # designs, and about as many conditions, at which the spread of u over the box is measured
HIDDEN = 30  # sigmoid units of each of the two hidden layers of a network

Bound = Callable[[Tensor], Tensor]
Numbers = tuple[float, float]


def optimize_lnso(
    acqf: ValueAtRiskUCB,
    bounds: Tensor,
    num_starts: int = 64,
    seed: int = 0,
    num_draws: int = 4096,
    **settings: int | float,
) -> tuple[Tensor, Tensor]:
    """argmax_x VaR_alpha(u(x, Z)) by LNSO, among the points where the starts began and ended, as ``optimize_acqf``.

    Args:
        acqf: With a ``ValueAtRisk``, a ``ContinuousEnvironment`` and a model without batch shape.
        bounds: Box of x, ``2 x d_x``.
        num_starts: Sobol points to start from.
        seed: Seed of the starts, the first networks and the draws.
        num_draws: Fresh draws of Z, the same for every x, on which the points found are compared and valued. The
            standard error of the value, in probability, is sqrt(alpha (1 - alpha) / num_draws).
        **settings: Arguments of :func:`climb`, from ``rounds`` to ``ascent_rate``.

    Returns x, ``1 x d_x``, and its VaR_alpha(u(x, Z)). ``ValueError`` if an argument is not as described.

    Example:
        >>> acqf = ValueAtRiskUCB(model, environment, 0.1, 2.0)
        >>> x, value = optimize_lnso(acqf, bounds_of_x)
        >>> next_input = search_lacing_value(acqf, x).point
    """
    check_count(1, num_starts=num_starts, num_draws=num_draws)
    environment, alpha = check_continuous(acqf)
    check_bounds(bounds)
    low, high = bounds = acqf.designs(bounds)

    def upper(points: Tensor) -> Tensor:
        return acqf.bounds_of(points, acqf.pending_points, BLOCK)[1]

    sobol = SobolEngine(bounds.shape[-1], scramble=True, seed=seed).draw(num_starts, dtype=torch.float64)
    starts = low + (high - low) * sobol.to(bounds)
    ends = climb(upper, environment, bounds, starts, alpha, seed=seed, **settings)  # type: ignore[arg-type]
    designs = torch.cat([ends, starts])
    with torch.no_grad():
        z = environment.sample(num_draws, torch.Generator(bounds.device).manual_seed(seed + 1))
        values = acqf.functional(_at_pairs(upper, environment, designs, z))
    best = values.nan_to_num(-math.inf).argmax(keepdim=True)
    return designs[best], values[best].squeeze(0)


def search_lacing_value(
    acqf: ValueAtRiskUCB,
    x: Tensor,
    num_starts: int = 64,
    steps: int = 100,
    rate: float = 0.02,
    num_draws: int = 4096,
    seed: int = 0,
) -> ConditionChoice:
    """Search the lacing value of largest density for every design; the widest interval decides between equal densities.

    A gradient search of a continuous Z (Section 3.5), off the environment's fixed points. It minimizes

        relu(-d_u(z)) + relu(-d_l(z)) - 1{d_u(z) >= 0} 1{d_l(z) >= 0} p(z),
        d_u(z) = u(x, z) - VaR_alpha(u(x, Z)),    d_l(z) = VaR_alpha(l(x, Z)) - l(x, z).

    Where the fixed points can be trusted (d_z <= 2), ``acqf.select_condition`` needs no search. The search compares the
    environment's points, the draws, and every z that Adam passes on its way from some of them, by the VaR of the draws.
    By this VaR the result is never worse than the best of the environment's points. By the VaR of those points, which
    ``acqf.select_condition`` takes, it may be worse within the sampling error of the draws. The ``index`` of the choice
    counts what was compared. Arguments not as described raise ``ValueError``.

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
    starts_z = torch.cat([draws, environment.z.expand(*designs.shape[:-1], -1, -1)], -2)
    best_known = best_of(starts_z).z.unsqueeze(-2)
    # exp(log p - largest) is at most about 1: Adam would meet very large or small densities otherwise.
    largest = _log_density(environment, environment.z).max()
    unit = (torch.cat([best_known, draws[..., : num_starts - 1, :]], -2) - low) / (high - low)
    unit.requires_grad_()

    def loss_at(z: Tensor) -> Tensor:
        lower, upper = bounds_at(z)
        d_u, d_l = upper - var_upper, var_lower - lower
        density = torch.where((d_u >= 0.0) & (d_l >= 0.0), (_log_density(environment, z) - largest).exp(), 0.0)
        return ((-d_u).relu() + (-d_l).relu() - density).sum()

    return best_of(torch.cat([best_known, *_passed(loss_at, unit, low, high, steps, rate)], -2))


def _passed(loss: Bound, unit: Tensor, low: Tensor, high: Tensor, steps: int, rate: float) -> list[Tensor]:
    """The points that Adam passes on its way down a loss, from places ``unit`` in the box."""
    adam, passed = _Adam([unit]), []
    for numbers in _schedule(steps, rate):
        z = low + (high - low) * unit
        passed.append(z.detach())
        gradient = torch.autograd.grad(loss(z), unit)[0].nan_to_num(0.0, 0.0, 0.0)  # a broken model moves nothing
        with torch.no_grad():
            adam.step([gradient], *numbers)
            unit.clamp_(0.0, 1.0)
    return passed


class _Adam:
    """Adam (Kingma & Ba 2015) of few small tensors, with the numbers of a :func:`_schedule`.

    torch's takes .15 ms a step, as long as the step of a network itself.
    """

    def __init__(self, parameters: list[Tensor]) -> None:
        self.parameters = parameters
        self.moments = [(torch.zeros_like(p), torch.zeros_like(p)) for p in parameters]

    def step(self, gradients: list[Tensor], size: float | Tensor, root: float | Tensor) -> None:
        for parameter, (mean, square), gradient in zip(self.parameters, self.moments, gradients, strict=True):
            mean.lerp_(gradient, 0.1)
            square.mul_(0.999).addcmul_(gradient, gradient, value=0.001)
            scaled, value = (mean * size, 1.0) if isinstance(size, Tensor) else (mean, size)
            parameter.addcdiv_(scaled, square.sqrt().div_(root).add_(1e-8), value=value)


def _schedule(steps: int, rate: float) -> list[Numbers]:
    """Of each of Adam's steps: its size, < 0, as the rate falls to zero; the root of its second moment's correction."""
    sizes = [-(rate * (1.0 - step / steps)) / (1.0 - 0.9 ** (step + 1)) for step in range(steps)]
    return [(size, math.sqrt(1.0 - 0.999 ** (step + 1))) for step, size in enumerate(sizes)]


def _loop(adam: _Adam, step: Callable[..., None], tables: list[Tensor], schedule: list[Numbers]) -> Callable[[], None]:
    """Steps on a row of each table, ``steps x ...``, and of the schedule; on CUDA a graph, which counts its rows."""
    like = adam.parameters[0]
    at, numbers = like.new_zeros(1, dtype=torch.long), like.new_tensor(schedule)

    def counted() -> None:
        *rows, now = (table.index_select(0, at).squeeze(0) for table in (*tables, numbers))
        step(*rows, *now.unbind())
        at.add_(1)

    captured = Repeated("Steps of LNSO", counted, like.device)

    def loop() -> None:
        for x in (at, *chain(*adam.moments)):
            x.zero_()
        for i, now in enumerate(schedule):
            if on_cuda(like):
                captured()
            else:
                step(*(table[i] for table in tables), *now)

    return loop


def check_continuous(acqf: ValueAtRiskUCB) -> tuple[ContinuousEnvironment, float]:
    """Z and alpha; ``ValueError`` unless they are a continuous Z and a value at risk under one model."""
    risk = acqf.functional if isinstance(acqf, ValueAtRiskUCB) else None
    if not (isinstance(risk, ValueAtRisk) and isinstance(acqf.environment, ContinuousEnvironment)):
        raise ValueError("acqf must be a ValueAtRiskUCB of a ValueAtRisk over a ContinuousEnvironment.")
    if acqf.model.batch_shape or acqf.over_candidates:
        raise ValueError("the model of acqf must be one GP: without batch shape or candidates.")
    return acqf.environment, risk.alpha


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
    """Run Algorithm 2 from every start, and return the ends, ``s x d_x``.

    All starts are one batch of networks. A round fits all networks, then climbs. A start that leaves its ball waits for
    the next round; the network of one that stays goes on learning. All starts use the same random numbers, so a start
    does the same alone as among others. Both rates fall linearly to zero within a round (the paper states neither).

    Args:
        bound: u at inputs of the model, ``n x d`` to ``n``; called without gradient.
        environment: Z. Its fixed points only serve to measure the spread of u, the scale of the networks.
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
    low, high = bounds
    generator = torch.Generator(bounds.device).manual_seed(seed)
    s, d = starts.shape

    @torch.no_grad()
    def u(x: Tensor, z: Tensor) -> Tensor:
        return _at_pairs(bound, environment, low + (high - low) * x, z)

    box_x = SobolEngine(d, scramble=True, seed=seed).draw(SCALE_POINTS, dtype=torch.float64).to(bounds)
    sample = u(box_x, environment.z[:: max(1, len(environment.z) // SCALE_POINTS)])
    # Networks see u in units of its spread over the box; a constant u has none.
    shift, scale = sample.mean(), sample.std().clamp_min(torch.finfo(sample.dtype).tiny)
    x = ((starts - low) / (high - low)).detach()  # from here on lengths are fractions of the box
    center, networks = x.clone(), _first_networks(s, d, generator, x)
    inputs, targets = x.new_empty(fit_steps, s, num_x, d + 1), x.new_empty(fit_steps, s, num_x, num_z)

    fit = _fitting(networks, inputs, targets, alpha, fit_rate)
    ascend = _ascending(networks, x, center, radius, ascent_steps, ascent_rate)
    for _ in range(rounds):
        z = environment.sample(fit_steps * num_z, generator).view(fit_steps, num_z, -1)
        offsets = _in_ball((fit_steps, num_x, d), generator, x)
        # u depends on the balls alone, so that all minibatches of the round are one call: step x s x n_x x n_z.
        near = (center.unsqueeze(1) + radius * offsets.unsqueeze(1)).clamp_(0.0, 1.0)
        targets.copy_((u(near, z[:, None, None]) - shift) / scale)
        # A network sees (x - x_c) / r: it moves with its ball. Kept in place, its units saturate after a few.
        inputs.copy_(_with_one((near - center.unsqueeze(1)) / radius))
        fit()
        ascend()
        center.copy_(torch.where(_distance(x, center) >= radius, x, center))
    return low + (high - low) * x


def _fitting(networks: list[Tensor], inputs: Tensor, targets: Tensor, alpha: float, rate: float) -> Callable[[], None]:
    """Adam's steps of the networks in place, one for each minibatch of inputs and of u there."""
    adam = _Adam(networks)

    def step(x: Tensor, u: Tensor, *numbers: float | Tensor) -> None:
        units = _units(networks, x)
        # The derivative of the mean of rho_alpha by g: the share of u below g, less alpha.
        slope = ((u < units[-1]).to(u).mean(-1, keepdim=True) - alpha) / u.shape[1]
        adam.step(_by_networks(networks, units, slope), *numbers)

    return _loop(adam, step, [inputs, targets], _schedule(len(inputs), rate))


def _ascending(
    networks: list[Tensor], x: Tensor, center: Tensor, radius: float, steps: int, rate: float
) -> Callable[[], None]:
    """Adam's steps of the designs up their networks, in place; one that has left its ball stays."""
    adam = _Adam([x])

    def step(*numbers: float | Tensor) -> None:
        inside, before = _distance(x, center) < radius, x.clone()
        units = _units(networks, _with_one(((x - center) / radius).unsqueeze(1)))
        downhill = -_by_input(networks, units, torch.ones_like(units[-1])).squeeze(1) / radius
        adam.step([downhill], *numbers)
        x.copy_(torch.where(inside, x.clamp(0.0, 1.0), before))

    return _loop(adam, step, [], _schedule(steps, rate * radius))


def _first_networks(s: int, d: int, generator: torch.Generator, template: Tensor) -> list[Tensor]:
    """The three layers of every start, ``s x (inputs + 1) x outputs``: the same for all, with output zero.

    The last row of a layer is its bias.
    """

    def normal(rows: int, columns: int) -> Tensor:
        return torch.randn(rows, columns, generator=generator, dtype=template.dtype, device=template.device)

    first, biases = 2.0 * normal(d, HIDDEN), normal(1, HIDDEN)
    second = 2.0 / math.sqrt(HIDDEN) * normal(HIDDEN, HIDDEN)
    layers = torch.cat([first, biases]), torch.cat([second, torch.zeros_like(biases)]), first.new_zeros(HIDDEN + 1, 1)
    return [layer.repeat(s, 1, 1) for layer in layers]


def _with_one(x: Tensor) -> Tensor:
    """Inputs of a layer, with a last column of ones for its bias."""
    return torch.cat([x, x.new_ones(()).expand(*x.shape[:-1], 1)], -1)


# Gradients of a network are written out: by autograd a step, of some ten small products, took three times as long.


def _units(networks: list[Tensor], x: Tensor) -> list[Tensor]:
    """Inputs of the three layers at ``s x n x (d + 1)``, ones among them, and what the networks say, ``s x n x 1``."""
    first, second, third = networks
    hidden = _with_one((x @ first).sigmoid_())
    last = _with_one((hidden @ second).sigmoid_())
    return [x, hidden, last, last @ third]


def _backward(networks: list[Tensor], units: list[Tensor], slope: Tensor) -> tuple[Tensor, Tensor]:
    """Derivatives of a loss by what enters the units of both hidden layers, from its ``slope`` by the outputs."""
    second, third = (layer[:, :-1].mT for layer in networks[1:])  # without biases
    hidden, last = (unit[..., :-1] for unit in units[1:3])
    by_last = slope * third * (last - last.square())
    return by_last @ second * (hidden - hidden.square()), by_last


def _by_networks(networks: list[Tensor], units: list[Tensor], slope: Tensor) -> list[Tensor]:
    """Derivatives by the networks."""
    slopes = *_backward(networks, units, slope), slope
    return [unit.mT @ by for unit, by in zip(units, slopes, strict=False)]


def _by_input(networks: list[Tensor], units: list[Tensor], slope: Tensor) -> Tensor:
    """Derivatives by the inputs, ``s x n x d``."""
    return _backward(networks, units, slope)[0] @ networks[0][:, :-1].mT


def _at_pairs(bound: Bound, environment: ContinuousEnvironment, x: Tensor, z: Tensor) -> Tensor:
    """u at every design ``... x d_x`` under every z (``... x w x d_z``): ``... x w``."""
    shape = (*x.shape[:-1], z.shape[-2])
    points = environment.join(x.unsqueeze(-2).expand(*shape, -1), z.expand(*shape, -1)).flatten(0, -2)
    return bound(points).reshape(shape)


def _in_ball(shape: tuple[int, int, int], generator: torch.Generator, template: Tensor) -> Tensor:
    """Uniform points in the unit ball of the last axis."""
    direction = torch.randn(shape, generator=generator, dtype=template.dtype, device=template.device)
    direction /= direction.norm(dim=-1, keepdim=True).clamp_min_(1e-12)
    length = torch.rand((*shape[:-1], 1), generator=generator, dtype=template.dtype, device=template.device)
    return direction * length.pow_(1.0 / shape[-1])  # the d-th root makes points uniform in volume


def _distance(x: Tensor, center: Tensor) -> Tensor:
    return (x - center).norm(dim=-1, keepdim=True)


def _log_density(environment: ContinuousEnvironment, z: Tensor) -> Tensor:
    log_density = environment.log_prob(z)
    return torch.zeros_like(z[..., 0]) if log_density is None else log_density
