"""V-UCB: the upper confidence bound of the value at risk (or another functional) of f(x, Z), maximised over x alone.

Nguyen, Dai, Low & Jaillet, "Value-at-Risk Optimization with Gaussian Processes" (ICML 2021), Algorithm 1:

    x_t = argmax_x VaR_alpha(u_{t-1}(x, Z)),    z_t a lacing value of x_t,    u, l = mu +- w_t sigma.

The model is a GP over (x, z). Its marginal moments at all pairs of starts and conditions come from one flattened
posterior call, the quantile is exact, and gradients in x flow through the condition it selects: where a gradient is
asked for, the pairs are evaluated without, and the selected ones again with it (3 times faster than all with it).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from botorch.acquisition import AcquisitionFunction
from botorch.acquisition.analytic import AnalyticAcquisitionFunction
from botorch.acquisition.input_constructors import ACQF_INPUT_CONSTRUCTOR_REGISTRY, acqf_input_constructor
from botorch.acquisition.objective import PosteriorTransform
from botorch.models.model import Model
from botorch.utils.transforms import is_ensemble, t_batch_mode_transform
from torch import Tensor

from bo_robust.acquisition.input_constructors import construct_inputs_gp_ucb
from bo_robust.acquisition.lacing import EnvironmentChoice, choose_environment, value_at
from bo_robust.acquisition.rounds import num_observations, reference, width_of_round
from bo_robust.environments import Environment
from bo_robust.functionals import Functional, as_functional
from bo_robust.models.moments import marginal_moments
from bo_robust.schedules import ConstantWidth, Width
from bo_robust.validation import check_finite

__all__ = ["Recommendation", "ValueAtRiskUCB", "construct_inputs_value_at_risk_ucb", "recommend"]

# Points per block of a posterior call. One thread, 64 x 100 points, n data, with gradient: 17 ms at 32 and 32 ms at 256
# for n = 100; 452 and 501 ms for n = 1200.
BLOCK = 32


class ValueAtRiskUCB(AnalyticAcquisitionFunction):
    """Upper bound F(u(x, Z)) of a functional F of f(x, Z), on x alone.

    Build a new one each round, as :class:`~bo_robust.acquisition.GPUCB`. After maximising it over x, ask
    :meth:`select_environment` which condition to observe x under; if conditions cannot be chosen, observe x under what
    comes and fit the model to (x, z, y): nothing else changes (Remark 1).

    X are designs, ``d_x`` columns. Where the columns of z follow those of x in the model, points of all ``d`` columns
    are taken as well and their z ignored, for frameworks (Ax) whose search space holds z.

    With q > 1 the value is the sum of the bounds the designs have when chosen one after the other, each observed under
    its most probable lacing value: what sequential optimisation of a batch does. That costs q posterior calls per
    member of the t-batch.

    Args:
        model: A fitted GP over (x, z) with one output, or with several and a ``posterior_transform``; without
            ``AppendFeatures`` or ``InputPerturbation``. Batched models get one width per member.
        environment: The conditions, of the model's dtype and device (moved along by ``.to``).
        functional: F, or alpha alone for ``ValueAtRisk(alpha)`` (LOWER tail: BoTorch's ``VaR`` takes 1 - alpha).
        width: A schedule of :mod:`bo_robust.schedules`, or a number. The paper's experiments play
            w_t^2 = 2 log(pi^2 t^2 / 0.6), which is ``FiniteWidth(num_arms=1, delta=0.1)``.
        t: Round about to be played; default one more than the number of observations in the model.
        posterior_transform: To one output, as in BoTorch.
        X_pending: Designs under evaluation, ``k x d_x``, hallucinated one after the other at their most probable
            lacing values; or points ``k x d`` where their conditions are known.
        generator: Random numbers of a randomised width.

    Raises:
        ValueError: as :class:`~bo_robust.acquisition.GPUCB`, or if the environment is not one, is of another dtype or
            device than the model, or has too many columns for it, or the functional is not one.
        UnsupportedError: if the model has several outputs and there is no ``posterior_transform``.

    Example:
        >>> environment = FiniteEnvironment(Z, probabilities)  # w x d_z and w
        >>> acqf = ValueAtRiskUCB(SingleTaskGP(XZ, Y), environment, 0.1, FiniteWidth(num_arms=1, delta=0.1))
        >>> x, _ = optimize_acqf(acqf, bounds_of_x, q=1, num_restarts=8, raw_samples=128)
        >>> next_input = acqf.select_environment(x).point  # 1 x d
    """

    width: Tensor
    pending_points: Tensor | None

    def __init__(
        self,
        model: Model,
        environment: Environment,
        functional: Functional | float,
        width: Width | float,
        t: int | None = None,
        posterior_transform: PosteriorTransform | None = None,
        X_pending: Tensor | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__(model=model, posterior_transform=posterior_transform)
        if is_ensemble(model):
            raise ValueError("V-UCB needs the posterior of one GP; an ensemble has no single confidence width.")
        if not isinstance(environment, Environment):
            raise ValueError(f"environment must be one of bo_robust.environments, got {environment!r}.")
        if isinstance(width, int | float):
            width = ConstantWidth(float(width))
        if not callable(width):
            raise ValueError(f"width must be a number or a schedule of bo_robust.schedules, got {width!r}.")
        self.environment = environment
        self.functional = as_functional(functional)
        self.t = num_observations(model) + 1 if t is None else t
        if not isinstance(self.t, int):
            raise ValueError(f"t (the round about to be played) must be an int, got {t!r}.")
        like = reference(model)
        self._dim = like.shape[-1] if getattr(model, "train_inputs", None) is not None else None
        if self._dim is not None:
            _check_columns(environment, self._dim)
        for buffer in environment.buffers():
            self._check("the environment", buffer)
        value = width_of_round(width, self.t, model, like.dtype, generator)
        self.register_buffer("width", torch.as_tensor(value, dtype=like.dtype, device=like.device))
        self.register_buffer("X_pending", None, persistent=False)
        self.register_buffer("pending_points", None, persistent=False)
        self.set_X_pending(X_pending)

    def set_X_pending(self, X_pending: Tensor | None = None) -> None:
        """Hallucinate these designs (``k x d_x``) or points (``k x d``) from now on; None for no points.

        Raises:
            ValueError: if they are neither, not finite, or not of the model's dtype and device.
        """
        if X_pending is not None:
            if X_pending.ndim != 2:
                raise ValueError(f"X_pending must be k x d_x or k x d, got shape {tuple(X_pending.shape)}.")
            self._check("X_pending", X_pending)
            check_finite("X_pending", X_pending)
        AcquisitionFunction.set_X_pending(self, X_pending)
        self.pending_points = None
        if self.X_pending is None or (self.environment.appended and self.X_pending.shape[-1] == self._dim):
            self.pending_points = self.X_pending
            return
        for x in self.X_pending:
            self.pending_points = self._observed(x, self.pending_points).detach()

    @t_batch_mode_transform()  # type: ignore[arg-type]
    def forward(self, X: Tensor) -> Tensor:
        """The bound at X.

        Args:
            X: Designs, ``lead x q x d_x``; for a batched model ``lead x batch_shape x q x d_x``.

        Returns:
            Values, ``lead`` (``lead x batch_shape``).

        Raises:
            ValueError: if X does not fit the environment, or is not of the model's dtype and device.
        """
        X = self._designs(X)
        if X.shape[-2] == 1:
            return self._value(X.squeeze(-2), self.pending_points)
        if self.model.batch_shape:
            raise ValueError("q > 1 needs a model without batch shape; choose designs one after the other.")
        totals = []
        for batch in X.reshape(-1, *X.shape[-2:]):
            total, pending = X.new_zeros(()), self.pending_points
            for x in batch:
                total = total + self._value(x, pending)
                pending = self._observed(x, pending)
            totals.append(total)
        return torch.stack(totals).reshape(X.shape[:-2])

    def bounds_at(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """l and u at designs ``... x d_x`` under every condition, ``... x w`` each (``... x batch_shape x w``)."""
        return self._bounds(self._designs(x), self.pending_points)

    def lacing_values(self, x: Tensor) -> Tensor:
        """The conditions worth observing designs ``... x d_x`` under, mask ``... x w``; never empty (Theorem 1)."""
        with torch.no_grad():
            return self.functional.lacing(*self.bounds_at(x), self.environment.probabilities)

    def select_environment(
        self, x: Tensor, rule: str = "probable", generator: torch.Generator | None = None
    ) -> EnvironmentChoice:
        """The condition to observe each design under.

        Args:
            x: Designs, ``... x d_x``.
            rule: "probable" (V-UCB Prob), "uniform" (V-UCB Unif), or "drawn": simulates conditions that come on their
                own. See :func:`bo_robust.functionals.pick`.
            generator: Of the latter two (on the CPU); default the global one.

        Raises:
            ValueError: on an unknown rule or designs that do not fit.
        """
        x = self._designs(x)
        with torch.no_grad():
            lower, upper = self._bounds(x, self.pending_points)
            uniform = None
            if rule != "probable":
                uniform = torch.rand(lower.shape[:-1], generator=generator, dtype=lower.dtype).to(lower)
            return choose_environment(x, self.environment, self.functional, lower, upper, rule, uniform)

    def certificate(self, x: Tensor, max_upper: Tensor | float | None = None) -> Tensor:
        """How far from optimal x can be, valid at any round where l <= f <= u; from observations alone.

        Points under evaluation are left out: variances that they lower are no confidence bounds. For a
        ``ContinuousEnvironment`` it holds as far as its points stand for Z.

        Args:
            x: Designs, ``... x d_x``, such as the recommended one.
            max_upper: max_x F(u), the value ``optimize_acqf`` returned, without points under evaluation. With it the
                result bounds the regret F(f(x*)) - F(f(x)), as far as the search found the maximum. None: F(u) of x
                itself, the length of the interval of F(f(x)), which bounds the regret only where x maximises F(u).

        Returns:
            max_upper - F(l(x)), or F(u(x)) - F(l(x)), ``...``.
        """
        with torch.no_grad():
            lower, upper = self._bounds(self._designs(x), None)
            p = self.environment.probabilities
            if max_upper is None:
                max_upper = self.functional.upper_bound(lower, upper, p)
            return max_upper - self.functional.lower_bound(lower, upper, p)

    def _value(self, x: Tensor, pending: Tensor | None) -> Tensor:
        p = self.environment.probabilities
        wants_gradient = torch.is_grad_enabled() and (
            x.requires_grad or (pending is not None and pending.requires_grad)
        )
        if not wants_gradient or self.model.batch_shape:
            return self.functional.upper_bound(*self._bounds(x, pending), p)
        with torch.no_grad():
            selected = self.functional.selected(self._bounds(x, pending)[1], p)
        if selected is None:
            return self.functional.upper_bound(*self._bounds(x, pending), p)
        points = self.environment.join(x, value_at(self.environment.values(x), selected))
        return self._bounds_of(points.unsqueeze(-2), pending)[1].squeeze(-1)

    def _bounds(self, x: Tensor, pending: Tensor | None) -> tuple[Tensor, Tensor]:
        return self._bounds_of(self.environment.points(x), pending)

    def _bounds_of(self, points: Tensor, pending: Tensor | None) -> tuple[Tensor, Tensor]:
        self._check("the width", self.width)
        mean, variance = marginal_moments(self.model, points, BLOCK, self.posterior_transform, pending)
        reach = self.width.unsqueeze(-1) * variance.sqrt()
        return mean - reach, mean + reach

    def _observed(self, x: Tensor, pending: Tensor | None) -> Tensor:
        """The pending points and x (``d_x``) under its most probable lacing value, ``(k + 1) x d``."""
        x = self._designs(x)
        with torch.no_grad():
            lower, upper = self._bounds(x, pending)
            if lower.ndim > 1:
                raise ValueError("pending designs need a model without batch shape; give points k x d.")
        point = choose_environment(x, self.environment, self.functional, lower, upper).point.unsqueeze(0)
        return point if pending is None else torch.cat([pending, point])

    def _designs(self, X: Tensor) -> Tensor:
        """X without columns of z."""
        self._check("X", X)
        if self._dim is None:
            return X
        d_x = self._dim - self.environment.appended
        if X.shape[-1] not in (d_x, self._dim):
            raise ValueError(f"X has {X.shape[-1]} columns; the model has {self._dim}, of which {d_x} are those of x.")
        return X[..., :d_x]

    def _check(self, name: str, x: Tensor) -> None:
        like = reference(self.model)
        if (x.dtype, x.device) != (like.dtype, like.device):
            raise ValueError(
                f"{name} is {x.dtype} on {x.device}, the model {like.dtype} on {like.device}; convert points, or "
                "the bounds or choices they come from, with `.to`, and model, environment, width and pending points "
                "together with the `.to` of the acquisition function."
            )


@dataclass(frozen=True)
class Recommendation:
    """The design to use.

    Attributes:
        index: Of the design among those queried, ``batch_shape``.
        x: The design, ``batch_shape x d_x``.
        value: F(mu(x, Z)), the estimate of F(f(x, Z)), ``batch_shape``.
    """

    index: Tensor
    x: Tensor
    value: Tensor


def recommend(
    model: Model,
    environment: Environment,
    functional: Functional | float,
    X_queried: Tensor,
    posterior_transform: PosteriorTransform | None = None,
) -> Recommendation:
    """argmax over the designs queried so far of F(mu(x, Z)), first of equals (Nguyen et al. 2021, Section 4).

    Args:
        model: Over (x, z), as in :class:`ValueAtRiskUCB`.
        environment: The conditions.
        functional: F, or alpha alone for ``ValueAtRisk(alpha)``.
        X_queried: Designs without z, ``k x d_x``.
        posterior_transform: To one output.

    Raises:
        ValueError: if there is no design, or its columns do not fit the environment and model.
    """
    functional = as_functional(functional)
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
    return Recommendation(index, X_queried[index], values.gather(-1, index.unsqueeze(-1)).squeeze(-1))


def construct_inputs_value_at_risk_ucb(
    model: Model,
    environment: Environment,
    functional: Functional | float,
    width: Width | str | float,
    width_options: dict[str, Any] | None = None,
    delta: float = 0.1,
    t: int | None = None,
    posterior_transform: PosteriorTransform | None = None,
    X_pending: Tensor | None = None,
) -> dict[str, Any]:
    """Keyword arguments of :class:`ValueAtRiskUCB`.

    Args:
        model: The fitted model.
        environment: As in :class:`ValueAtRiskUCB`.
        functional: As in :class:`ValueAtRiskUCB`.
        width: A width, a number, or the name of one in ``WIDTHS``, as for GP-UCB.
        width_options: Arguments of the named width.
        delta: Failure probability of the named width.
        t: As in :class:`ValueAtRiskUCB`.
        posterior_transform: As in :class:`ValueAtRiskUCB`.
        X_pending: As in :class:`ValueAtRiskUCB`.

    Returns:
        The keyword arguments.

    Raises:
        ValueError: if the name is unknown, or options come with a width that is not a name.
    """
    if isinstance(width, int | float):
        width = ConstantWidth(float(width))
    inputs = construct_inputs_gp_ucb(model, width, width_options, delta, t, posterior_transform, X_pending)
    return {**inputs, "environment": environment, "functional": functional}


if ValueAtRiskUCB not in ACQF_INPUT_CONSTRUCTOR_REGISTRY:  # registering twice, as on a reload, is an error
    acqf_input_constructor(ValueAtRiskUCB)(construct_inputs_value_at_risk_ucb)


def _check_columns(environment: Environment, dim: int) -> None:
    fits = environment.appended < dim if environment.appended else environment.dim in (None, dim)
    if not fits:
        raise ValueError(
            f"the environment has {environment.dim} columns and the model {dim}: the model must be over (x, z) with at "
            "least one column of x, or, for perturbations, over x with as many columns as they have."
        )
