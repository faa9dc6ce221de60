"""V-UCB: the upper confidence bound of the value at risk (or another functional) of f(x, Z), maximised over x alone.

Nguyen, Dai, Low & Jaillet, "Value-at-Risk Optimization with Gaussian Processes" (ICML 2021), Algorithm 1:

    x_t = argmax_x VaR_alpha(u_{t-1}(x, Z)),    z_t a lacing value of x_t,    u, l = mu +- w_t sigma.

The model is a GP over (x, z). One flattened posterior call gives its marginal moments at all pairs of starts and
conditions. The quantile is exact, and gradients in x flow through the condition that it selects.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from botorch.acquisition.input_constructors import ACQF_INPUT_CONSTRUCTOR_REGISTRY, acqf_input_constructor
from botorch.acquisition.objective import PosteriorTransform
from botorch.models.model import Model
from botorch.utils.sampling import draw_sobol_normal_samples
from botorch.utils.transforms import t_batch_mode_transform
from linear_operator.utils.cholesky import psd_safe_cholesky
from torch import Tensor

from bo_robust.acquisition.base import ConfidenceBoundAcquisition
from bo_robust.acquisition.conditions import check_search_space, finite_environment
from bo_robust.acquisition.input_constructors import construct_inputs_gp_ucb
from bo_robust.acquisition.lacing import EnvironmentChoice, choose_environment, value_at
from bo_robust.acquisition.rounds import reference
from bo_robust.confidence import ConstantWidth, Width
from bo_robust.environments import Environment
from bo_robust.functionals import DETERMINISTIC_RULES, Functional, as_functional
from bo_robust.models.candidate_ensemble import CandidateEnsemble
from bo_robust.models.moments import joint_moments, marginal_moments
from bo_robust.validation import check_tensor, is_number, quoted

# Points per block of a posterior call. One thread, 64 x 100 points, n data, with gradient: 17 ms at 32 and 32 ms at 256
# for n = 100; 452 and 501 ms for n = 1200.
BLOCK = 32
# Draws of f that correlations are estimated from.
INFORMATION_DRAWS = 256


class ValueAtRiskUCB(ConfidenceBoundAcquisition):
    """Upper bound F(u(x, Z)) of a functional F of f(x, Z), on x alone.

    Build a new one each round, as :class:`~bo_robust.acquisition.GPUCB`. After maximising it over x, ask
    :meth:`select_environment` which condition to observe x under. If conditions cannot be chosen, observe x under what
    comes and fit the model to (x, z, y): nothing else changes (Remark 1).

    X are designs, ``d_x`` columns. The columns of z follow those of x in the model.

    With q > 1 the value is the sum of the bounds that the designs have when chosen one after the other, each observed
    under its most probable lacing value, as in sequential optimisation. That costs q posterior calls per member of the
    t-batch.

    Args:
        model: A fitted GP over (x, z) with one output, or with several and a ``posterior_transform``; without
            ``AppendFeatures`` or ``InputPerturbation``. Batched models get one width per member. For a
            ``CandidateEnsemble`` with this environment and functional, u and l are those of the candidate alive with
            the largest bound F(u(x, Z)) at x, the rule of :class:`~bo_robust.algorithms.HEGPUCB` over ``VUCB``.
        environment: The conditions, of the model's dtype and device (``.to`` moves them along).
        functional: F, or alpha alone for ``ValueAtRisk(alpha)`` (LOWER tail: BoTorch's ``VaR`` takes 1 - alpha).
        width: A schedule of :mod:`bo_robust.confidence`, or a number. The paper's experiments play w_t^2 = 2 log(pi^2
            t^2 / 0.6), which is ``FiniteWidth(num_arms=1, delta=0.1)``. None for a ``CandidateEnsemble``, which has its
            own.
        t: As in :class:`~bo_robust.acquisition.GPUCB`, like ``posterior_transform`` and ``generator``.
        X_pending: Designs under evaluation, ``k x d_x``, hallucinated one after the other at their most probable lacing
            values; or points ``k x d`` if their conditions are known.
        ignores_z: Take points of all ``d`` columns too, and ignore their z. A framework (Ax) whose search space holds z
            needs it; elsewhere such points are a mistake.

    Raises:
        ValueError: as :class:`~bo_robust.acquisition.GPUCB`; also if the environment does not fit the model.
        UnsupportedError: if the model has several outputs and there is no ``posterior_transform``.

    Example:
        >>> environment = FiniteEnvironment(Z, probabilities)  # w x d_z and w
        >>> acqf = ValueAtRiskUCB(SingleTaskGP(XZ, Y), environment, 0.1, FiniteWidth(num_arms=1, delta=0.1))
        >>> x, _ = optimize_acqf(acqf, bounds_of_x, q=1, num_restarts=8, raw_samples=128)
        >>> next_input = acqf.select_environment(x).point  # 1 x d
    """

    pending_points: Tensor | None
    _takes_candidates = True
    _moved_together = "model, environment, width and pending points"

    def __init__(
        self,
        model: Model,
        environment: Environment,
        functional: Functional | float,
        width: Width | float | None = None,
        t: int | None = None,
        posterior_transform: PosteriorTransform | None = None,
        X_pending: Tensor | None = None,
        generator: torch.Generator | None = None,
        ignores_z: bool = False,
    ) -> None:
        if isinstance(width, type) or not (width is None or callable(width) or is_number(width)):
            raise ValueError(f"width must be a number or a schedule of bo_robust.confidence, got {quoted(width)}.")
        schedule = width if width is None or callable(width) else ConstantWidth(float(width))
        super().__init__(model, schedule, t, posterior_transform, generator)
        if not isinstance(environment, Environment):
            raise ValueError(f"environment must be one of bo_robust.environments, got {quoted(environment)}.")
        self.environment = environment
        self.functional = as_functional(functional)
        self.ignores_z = ignores_z
        self._dim = reference(model).shape[-1] if getattr(model, "train_inputs", None) is not None else None
        if self._dim is not None:
            _check_columns(environment, self._dim)
        for buffer in environment.buffers():
            self._check("the environment", buffer)
        risk = model.risk if isinstance(model, CandidateEnsemble) else None
        if self.over_candidates and not (risk and risk.same(environment, self.functional)):
            raise ValueError(
                "the CandidateEnsemble tests candidates by another bound than the one maximised here; build it with "
                f"this environment and functional={self.functional}."
            )
        self.register_buffer("pending_points", None, persistent=False)
        self.set_X_pending(X_pending)

    def set_X_pending(self, X_pending: Tensor | None = None) -> None:
        """Hallucinate these designs (``k x d_x``) or points (``k x d``) from now on; None for no points.

        ``ValueError`` if they are neither, not finite, or not of the model's dtype and device.
        """
        if X_pending is not None and isinstance(X_pending, Tensor) and X_pending.ndim != 2:
            raise ValueError(f"X_pending must be k x d_x or k x d, got shape {tuple(X_pending.shape)}.")
        super().set_X_pending(X_pending)
        self.pending_points = None
        if self.X_pending is None or (self.environment.appended and self.X_pending.shape[-1] == self._dim):
            self.pending_points = self.X_pending
            return
        for x in self.X_pending:
            self.pending_points = self._observed(x, self.pending_points).detach()

    @t_batch_mode_transform()  # type: ignore[arg-type]
    def forward(self, X: Tensor) -> Tensor:
        """The bound at designs X, ``lead x q x d_x``: ``lead``.

        For a batched model X is ``lead x batch_shape x q x d_x``, and the result is ``lead x batch_shape``.
        ``ValueError`` if X does not fit the environment, or is not of the model's dtype and device.
        """
        X = self.designs(X)
        if X.shape[-2] == 1:
            return self._value(X.squeeze(-2), self.pending_points)
        if self.model.batch_shape and not self.over_candidates:
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
        """l and u at designs ``... x d_x`` under every condition, ``... x w`` each (``... x batch_shape x w``).

        Of candidates, those of the one with the largest bound at the design.
        """
        return self._bounds(self.designs(x), self.pending_points)

    def lacing_values(self, x: Tensor) -> Tensor:
        """Which conditions are worth observing at designs ``... x d_x``, ``... x w`` bool; never none (Theorem 1)."""
        with torch.no_grad():
            return self.functional.lacing(*self.bounds_at(x), self.environment.probabilities)

    def select_environment(
        self, x: Tensor, rule: str = "probable", generator: torch.Generator | None = None
    ) -> EnvironmentChoice:
        """Choose the condition to observe each design (``... x d_x``) under.

        ``rule`` is "probable" (V-UCB Prob), "uniform" (V-UCB Unif) or "widest"; "drawn" simulates conditions that
        cannot be chosen. See :func:`bo_robust.functionals.pick`. "informative" takes the condition, offered or not,
        whose observation has the largest squared correlation with F(f(x, Z)). ``generator`` (on the CPU) draws for
        "uniform" and "drawn"; default the global one. ``ValueError`` on an unknown rule, or designs that do not fit.
        """
        x = self.designs(x)
        with torch.no_grad():
            lower, upper = self._bounds(x, self.pending_points)
            uniform = information = None
            if rule == "informative":
                information = self._information(x)
            elif rule not in DETERMINISTIC_RULES:
                uniform = torch.rand(lower.shape[:-1], generator=generator, dtype=lower.dtype).to(lower)
            return choose_environment(x, self.environment, self.functional, lower, upper, rule, uniform, information)

    def certificate(self, x: Tensor, max_upper: Tensor | float | None = None) -> Tensor:
        """How far from optimal x can be, ``...``: max_upper - F(l(x)). It holds in any round where l <= f <= u.

        Of candidates l is the one with the smallest F(l): it holds if the true candidate is alive, and its bounds hold.
        Only observations count. Points under evaluation are left out: the variances that they lower are no confidence
        bounds. For a ``ContinuousEnvironment`` it holds as far as its points stand for Z.

        Args:
            x: Designs, ``... x d_x``, such as the recommended one.
            max_upper: max_x F(u), the value that ``optimize_acqf`` returned without points under evaluation. The result
                then bounds the regret F(f(x*)) - F(f(x)), as far as the search found the maximum. None stands for F(u)
                of x itself: the result is the length of the interval of F(f(x)), which bounds the regret only if x
                maximises F(u).
        """
        low, high = self._ends(x, None)
        return (high if max_upper is None else max_upper) - low

    def interval(self, x: Tensor) -> Tensor:
        """F(u(x)) - F(l(x)) at designs ``... x d_x``, ``...``, once the points under evaluation are observed."""
        low, high = self._ends(x, self.pending_points)
        return high - low

    def _ends(self, x: Tensor, pending: Tensor | None) -> tuple[Tensor, Tensor]:
        """The smallest F(l) and the largest F(u) among the candidates, without gradient."""
        with torch.no_grad():
            lower, upper = self._all_bounds(self.designs(x), pending)
            p = self.environment.probabilities
            low, high = self.functional.lower_bound(lower, upper, p), self.functional.upper_bound(lower, upper, p)
            return (low.amin(-1), high.amax(-1)) if self.over_candidates else (low, high)

    def _value(self, x: Tensor, pending: Tensor | None) -> Tensor:
        p = self.environment.probabilities
        wants_gradient = torch.is_grad_enabled() and (
            x.requires_grad or (pending is not None and pending.requires_grad)
        )
        if not wants_gradient or (self.model.batch_shape and not self.over_candidates):
            return self.functional.upper_bound(*self._bounds(x, pending), p)
        # All pairs without gradient, then the selected one with it: 3 times faster than all with it.
        with torch.no_grad():
            lower, upper = self._all_bounds(x, pending)
            winner = self._winner(lower, upper)
            selected = self.functional.selected(_of(upper, winner), p)
        if selected is None:
            return self.functional.upper_bound(*self._bounds(x, pending), p)
        points = self.environment.join(x, value_at(self.environment.values(x), selected))
        return _of(self.bounds_of(points.unsqueeze(-2), pending)[1], winner).squeeze(-1)

    def _bounds(self, x: Tensor, pending: Tensor | None) -> tuple[Tensor, Tensor]:
        """l and u; of candidates, those of the one with the largest bound of F."""
        lower, upper = self._all_bounds(x, pending)
        winner = self._winner(lower, upper)
        return _of(lower, winner), _of(upper, winner)

    def _all_bounds(self, x: Tensor, pending: Tensor | None) -> tuple[Tensor, Tensor]:
        return self.bounds_of(self.environment.points(x), pending)

    def _winner(self, lower: Tensor, upper: Tensor) -> Tensor | None:
        """Who of the candidates that choose has the largest bound of F, ``...``; the first of equals."""
        if not self.over_candidates:
            return None
        values = self.functional.upper_bound(lower, upper, self.environment.probabilities)
        return values.masked_fill(~self.model.choosing[self.model.alive], -math.inf).argmax(-1)

    def bounds_of(self, points: Tensor, pending: Tensor | None, block: int = BLOCK) -> tuple[Tensor, Tensor]:
        """l and u at inputs of the model, ``... x q x d``: ``... x q`` each (``... x batch_shape x q``).

        ``pending`` are points to hallucinate, ``k x d``; ``block`` is the number of points of one posterior call.
        """
        self._check("the width", self.width)
        mean, variance = marginal_moments(self.model, points, block, self.posterior_transform, pending)
        reach = self.width.unsqueeze(-1) * variance.sqrt()
        return mean - reach, mean + reach

    def _information(self, x: Tensor) -> Tensor:
        """Squared correlation of an observation at every condition with F(f(x, Z)), ``... x w``, over draws of f."""
        points = self.environment.points(x)
        mean, covariance, noise = joint_moments(self.model, points, self.posterior_transform, self.pending_points)
        winner = self._winner(*self._all_bounds(x, self.pending_points))
        if winner is not None:
            mean, noise = _of(mean, winner), _of(noise, winner)
            covariance = value_at(covariance.flatten(-2), winner).unflatten(-1, covariance.shape[-2:])
        w = mean.shape[-1]
        draws = draw_sobol_normal_samples(w, INFORMATION_DRAWS, device=x.device, dtype=x.dtype, seed=0)
        noiseless = draws @ psd_safe_cholesky(covariance).mT
        p = self.environment.probabilities
        risk = self.functional(mean.unsqueeze(-2) + noiseless, p)
        risk = risk - risk.mean(-1, keepdim=True)
        shared = (risk.unsqueeze(-1) * noiseless).mean(-2)
        total = risk.square().mean(-1, keepdim=True) * (covariance.diagonal(dim1=-2, dim2=-1) + noise)
        return shared.square() / total.clamp_min(torch.finfo(total.dtype).tiny)

    def _observed(self, x: Tensor, pending: Tensor | None) -> Tensor:
        """The pending points and x (``d_x``) under its most probable lacing value, ``(k + 1) x d``."""
        x = self.designs(x)
        with torch.no_grad():
            lower, upper = self._bounds(x, pending)
            if lower.ndim > 1:
                raise ValueError("pending designs need a model without batch shape; give points k x d.")
        point = choose_environment(x, self.environment, self.functional, lower, upper).point.unsqueeze(0)
        return point if pending is None else torch.cat([pending, point])

    def designs(self, X: Tensor) -> Tensor:
        """Designs ``... x d_x`` as they are, and, where z is ignored, points ``... x d`` without their columns of z.

        ``ValueError`` if X has another number of columns, or is not of the model's dtype and device.
        """
        self._check("X", X)
        if self._dim is None:
            return X
        d_x = self._dim - self.environment.appended
        if X.shape[-1] not in ((d_x, self._dim) if self.ignores_z else (d_x,)):
            raise ValueError(
                f"X has {X.shape[-1]} columns; the model has {self._dim}: {d_x} of x, then those of z. Give x alone "
                f"(the bounds of x, 2 x {d_x}, to optimize_acqf), or build the acquisition with ignores_z=True."
            )
        return X[..., :d_x]


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


def recommend(
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
        if isinstance(model, CandidateEnsemble):
            mean = mean[model.alive.nonzero().flatten().tolist().index(model.leader)]
        values = functional(mean.reshape(*mean.shape[:-1], k, w), environment.probabilities)
        index = values.argmax(-1)
    return RecommendedDesign(index, X_queried[index], values.gather(-1, index.unsqueeze(-1)).squeeze(-1))


def construct_inputs_value_at_risk_ucb(
    model: Model,
    environment: Environment | Mapping[str, Any],
    functional: Functional | float,
    width: Width | Mapping[str, Any] | float,
    delta: float = 0.1,
    t: int | None = None,
    posterior_transform: PosteriorTransform | None = None,
    X_pending: Tensor | None = None,
    training_data: Any = None,
    bounds: list[tuple[float, float]] | None = None,
) -> dict[str, Any]:
    """Keyword arguments of :class:`ValueAtRiskUCB`. Other arguments are those of :func:`construct_inputs_gp_ucb`.

    ``environment`` may also be plain JSON, ``{"points": [{"z": 0.0}, ...], "probabilities": [...]}``, and ``width`` a
    number. Ax gives the names of its columns in ``training_data``, and their ``bounds``. ``ValueError`` if a plain
    environment has another form, or is not the last columns of this search space.
    """
    if isinstance(environment, Mapping):
        plain, environment = environment, finite_environment(environment, reference(model))
        if training_data is not None and bounds is not None:
            check_search_space(plain, environment.z, training_data.feature_names, bounds)
    if isinstance(width, int | float):
        width = ConstantWidth(float(width))
    inputs = construct_inputs_gp_ucb(model, width, delta, t, posterior_transform, X_pending)
    ignores_z = training_data is not None  # Ax's search space holds z
    return {**inputs, "environment": environment, "functional": functional, "ignores_z": ignores_z}


if ValueAtRiskUCB not in ACQF_INPUT_CONSTRUCTOR_REGISTRY:  # registering twice, as on a reload, is an error
    acqf_input_constructor(ValueAtRiskUCB)(construct_inputs_value_at_risk_ucb)


def _of(values: Tensor, winner: Tensor | None) -> Tensor:
    """The row of the winner, ``... x h x w`` to ``... x w``."""
    return values if winner is None else value_at(values, winner)


def _check_columns(environment: Environment, dim: int) -> None:
    fits = environment.appended < dim if environment.appended else environment.dim in (None, dim)
    if not fits:
        raise ValueError(
            f"the environment has {environment.dim} columns and the model {dim}: the model must be over (x, z) with at "
            "least one column of x, or, for perturbations, over x with as many columns as they have."
        )
