"""V-UCB: the upper confidence bound of the value at risk (or another functional) of f(x, Z), maximized over x alone.

Nguyen, Dai, Low & Jaillet, "Value-at-Risk Optimization with Gaussian Processes" (ICML 2021), Algorithm 1:

    x_t = argmax_x VaR_alpha(u_{t-1}(x, Z)),    z_t a lacing value of x_t,    u, l = mu +- w_t sigma.

The model is a GP over (x, z); in a learnt scale T of f, u and l are T^-1 of the bounds of T(f). The quantile is exact,
and gradients in x flow through the condition that it selects. The functional offers conditions to observe x under
(:meth:`bo_robust.risk_measures.functionals.Functional.lacing`), a selection rule takes one. In the end,
:func:`recommend_design` chooses among the designs queried.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from botorch.acquisition.objective import PosteriorTransform
from botorch.models.model import Model
from botorch.utils.transforms import t_batch_mode_transform
from torch import Tensor

from bo_robust.acquisition.condition_choice import ConditionChoice, choose_condition, columns_over, value_at
from bo_robust.acquisition.elimination import Elimination
from bo_robust.acquisition.ucb import ConfidenceBoundAcquisition, reference
from bo_robust.confidence import Width
from bo_robust.models.moments import given_first, marginal_moments, marginal_quantiles
from bo_robust.models.verdict import Z95
from bo_robust.risk_measures.environments import Environment
from bo_robust.risk_measures.functionals import Functional, WorstCase, as_functional
from bo_robust.risk_measures.selection_rules import RANDOM_RULES, check_selection_rule
from bo_robust.utils.input_checks import check_tensor

# Points per block of a posterior call. One thread, 64 x 100 points, n data, with gradient: 17 ms at 32 and 32 ms at 256
# for n = 100; 452 and 501 ms for n = 1200.
BLOCK = 32


class ValueAtRiskUCB(ConfidenceBoundAcquisition):
    """Upper bound F(u(x, Z)) of a functional F of f(x, Z), on x alone.

    Build a new one each round, as :class:`~bo_robust.acquisition.GPUCB`. After maximizing it over x, ask
    :meth:`select_condition` which condition to observe x under. If conditions cannot be chosen, observe x under what
    comes and fit the model to (x, z, y): nothing else changes (Remark 1). X are designs, ``d_x`` columns; the columns
    of z follow those of x in the model.

    With q > 1 the value is the sum of the bounds that the designs have when chosen one after the other, each observed
    under its most probable lacing value, as in sequential optimization. That costs q posterior calls.

    Args:
        model: A fitted GP over (x, z) with one output, or with several and a ``posterior_transform``; without
            ``AppendFeatures`` or ``InputPerturbation``. Batched models get one width per member.
        environment: The conditions, of the model's dtype and device (``.to`` moves them along).
        functional: F, its name ("worst") or specification ({"kind": "cvar", "alpha": 0.1}), or alpha alone for
            ``ValueAtRisk(alpha)`` of the LOWER tail (BoTorch counts from the other side).
        width: A schedule of :mod:`bo_robust.confidence`, or a number. The paper's experiments take w_t^2 = 2 log(pi^2
            t^2 / 0.6), which is ``FiniteWidth(num_arms=1, delta=0.1)``. None with an ``elimination``.
        t: As in :class:`~bo_robust.acquisition.GPUCB`, like ``posterior_transform`` and ``generator``.
        X_pending: Designs under evaluation, ``k x d_x``, hallucinated one after the other at their most probable lacing
            values; or points ``k x d`` if their conditions are known.
        elimination: What :func:`~bo_robust.acquisition.eliminate` found for a ``CandidateEnsemble``. u and l are then
            those of the candidate of largest bound F(u(x, Z)) at x, with its own width. ``select_condition`` returns
            the candidates that chose, which the test by errors of the next round takes as ``chosen``.

    Raises:
        ValueError: as :class:`~bo_robust.acquisition.GPUCB`; also if the environment does not fit the model.
        UnsupportedError: if the model has several outputs and there is no ``posterior_transform``.

    Example:
        >>> environment = FiniteEnvironment(Z, probabilities)  # w x d_z and w
        >>> acqf = ValueAtRiskUCB(SingleTaskGP(XZ, Y), environment, 0.1, FiniteWidth(num_arms=1, delta=0.1))
        >>> x, _ = optimize_acqf(acqf, bounds_of_x, q=1, num_restarts=8, raw_samples=128)
        >>> next_input = acqf.select_condition(x).point  # 1 x d
    """

    chooses_conditions: ClassVar[bool] = True
    takes_conditions: ClassVar[bool] = False  # X are designs alone
    pending_points: Tensor | None

    def __init__(
        self,
        model: Model,
        environment: Environment,
        functional: Functional | float | str | Mapping[str, Any],
        width: Width | float | None = None,
        t: int | None = None,
        posterior_transform: PosteriorTransform | None = None,
        X_pending: Tensor | None = None,
        generator: torch.Generator | None = None,
        elimination: Elimination | None = None,
    ) -> None:
        if elimination is not None and (posterior_transform is not None or not elimination.maximize):
            raise ValueError("over candidates f is maximized, without a posterior_transform.")
        super().__init__(model, width, t, posterior_transform, generator, elimination)
        self.environment, self.functional = environment, as_functional(functional)
        self._dim = columns_over(model, environment)
        self.register_buffer("pending_points", None, persistent=False)
        self.set_X_pending(X_pending)

    def set_X_pending(self, X_pending: Tensor | None = None) -> None:
        """Hallucinate these designs (``k x d_x``) or points (``k x d``), finite, from now on; None for no points."""
        super().set_X_pending(X_pending)
        self.pending_points = None
        if self.X_pending is None or (self.environment.appended and self.X_pending.shape[-1] == self._dim):
            self.pending_points = self.X_pending
            return
        for x in self.X_pending:
            self.pending_points = self._observed(x, self.pending_points).detach()

    @t_batch_mode_transform()  # type: ignore[arg-type]
    def forward(self, X: Tensor) -> Tensor:
        """The bound at designs X, ``lead x q x d_x``: ``lead``; ``ValueError`` if X does not fit.

        For a batched model X is ``lead x batch_shape x q x d_x``, and the result is ``lead x batch_shape``.
        """
        X = self.designs(X)
        if X.shape[-2] == 1:
            return self._value(X.squeeze(-2), self.pending_points)
        if self.model.batch_shape:
            raise ValueError("q > 1 needs a model without batch shape; choose designs one after the other.")
        total, pending = X.new_zeros(X.shape[:-2]), self.pending_points
        for x in X.unbind(-2):
            total = total + self._value(x, pending)
            pending = self._observed(x, pending)
        return total

    def bounds_at(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """l and u at designs ``... x d_x`` under every condition, ``... x w``, of the candidate of largest bound."""
        return self._bounds(self.designs(x), self.pending_points)

    def lacing_values(self, x: Tensor) -> Tensor:
        """Which conditions are worth observing at designs ``... x d_x``, ``... x w`` bool; never none (Theorem 1)."""
        with torch.no_grad():
            return self.functional.lacing(*self.bounds_at(x), self.environment.probabilities)

    def select_condition(
        self, x: Tensor, selection_rule: str = "probable", generator: torch.Generator | None = None
    ) -> ConditionChoice:
        """Choose the condition to observe each design (``... x d_x``) under.

        ``selection_rule`` is one of :mod:`bo_robust.risk_measures.selection_rules`: "probable" (V-UCB Prob), "uniform"
        (V-UCB Unif), "widest", or "drawn", which simulates conditions that cannot be chosen; other words, and designs
        that do not fit, raise ``ValueError``. ``generator`` (on the CPU) draws for "uniform" and "drawn".
        """
        check_selection_rule(selection_rule)
        x = self.designs(x)
        with torch.no_grad():
            every_lower, every_upper = self.bounds_of(self.environment.points(x), self.pending_points)
            lower, upper = self._chosen(every_lower, every_upper)
            uniform = None
            if selection_rule in RANDOM_RULES:
                uniform = torch.rand(lower.shape[:-1], generator=generator, dtype=lower.dtype).to(lower)
            choice = choose_condition(x, self.environment, self.functional, lower, upper, selection_rule, uniform)
            if not self.over_candidates:
                return choice
            return replace(choice, candidates=self._choosing_candidates(every_lower, every_upper, choice.index))

    def regret_bound(self, x: Tensor, max_upper: Tensor | float | None = None) -> Tensor:
        """How far from optimal x can be, ``...``: max_upper - F(l(x)). It holds in any round where l <= f <= u.

        Of candidates l is the one with the smallest F(l): it holds if the true one is active. Only observations count:
        the variances that points under evaluation lower are no confidence bounds. For a ``ContinuousEnvironment`` it
        holds as far as its points stand for Z.

        Args:
            x: Designs, ``... x d_x``, such as the recommended one.
            max_upper: max_x F(u), the value that ``optimize_acqf`` returned without points under evaluation. The result
                then bounds the regret F(f(x*)) - F(f(x)), as far as the search found the maximum. None: F(u) of x
                itself, for the length of the interval of F(f(x)), which bounds the regret only if x maximizes F(u).
        """
        with torch.no_grad():
            lower, upper = self.bounds_of(self.environment.points(self.designs(x)), None)
            p = self.environment.probabilities
            low, high = self.functional.lower_bound(lower, upper, p), self.functional.upper_bound(lower, upper, p)
            if self.over_candidates:
                low, high = low.amin(-1), high.amax(-1)
            return (high if max_upper is None else max_upper) - low

    def _value(self, x: Tensor, pending: Tensor | None) -> Tensor:
        p = self.environment.probabilities
        with_gradient = x.requires_grad and torch.is_grad_enabled()
        if not (with_gradient and self.functional.selects) or self.over_candidates:
            return self.functional.upper_bound(*self._bounds(x, pending), p)
        # Where F is the value at one condition, the gradient passes through it alone: all conditions without gradient,
        # then that one with it. 2.4 times as fast at 128 designs x 256 conditions.
        points = self.environment.points(x)
        with torch.no_grad():
            index = self.functional.selected(self.bounds_of(points, pending)[1], p)
        selected = value_at(points.expand(*index.shape, *points.shape[-2:]), index).unsqueeze(-2)
        return self.bounds_of(selected, pending)[1].squeeze(-1)

    def _bounds(self, x: Tensor, pending: Tensor | None) -> tuple[Tensor, Tensor]:
        """l and u at every condition; over candidates, those by which x and its condition are chosen."""
        return self._chosen(*self.bounds_of(self.environment.points(x), pending))

    def _chosen(self, lower: Tensor, upper: Tensor) -> tuple[Tensor, Tensor]:
        """Of the bounds of all (``... x h x w``) those of the candidate with the largest bound of F, ``... x w``."""
        if not self.over_candidates:
            return lower, upper
        winner = self._winner(lower, upper)
        return value_at(lower, winner), value_at(upper, winner)

    def _choosing_candidates(self, lower: Tensor, upper: Tensor, index: Tensor) -> Tensor:
        """The candidate with the largest bound of F, as an index in U, ``... x 1``, where z has this ``index``."""
        return self._indices[self._winner(lower, upper)].unsqueeze(-1)

    def _winner(self, lower: Tensor, upper: Tensor) -> Tensor:
        """Of the acquisition set the largest bound of F, ``...``: place among the active, the first of equals."""
        values = self.functional.upper_bound(lower, upper, self.environment.probabilities)
        return values.masked_fill(~self._among, -math.inf).argmax(-1)

    def bounds_of(self, points: Tensor, pending: Tensor | None, block: int = BLOCK) -> tuple[Tensor, Tensor]:
        """l and u at inputs of the model, ``... x q x d``: ``... x q`` each (``... x batch_shape x q``).

        ``pending`` are points to hallucinate, ``k x d`` or ``... x k x d``; a posterior call has ``block`` points.
        """
        self._check("the width", self.width)
        width = self.width.unsqueeze(-1)
        if not self.over_candidates:
            ends = marginal_quantiles(self.model, points, (-width, width), block, self.posterior_transform, pending)
            return ends[0], ends[1]
        if pending is None or pending.ndim == 2:
            members = self.members if pending is None else self.members.hallucinate(pending)
            mean, variance = members.member_moments(points)
        else:
            posterior = self.members.member_posterior(torch.cat([pending, points], -2))
            noise = self.members.member_noise.unsqueeze(-1).expand(-1, pending.shape[-2])
            moments = posterior.mean.squeeze(-1), posterior.distribution.covariance_matrix
            mean, variance = given_first(*moments, noise)
        reach = width * variance.sqrt()
        return mean - reach, mean + reach

    def _observed(self, x: Tensor, pending: Tensor | None) -> Tensor:
        """The pending points and each x (``... x d_x``) under its most probable lacing value, ``... x (k + 1) x d``."""
        if self.model.batch_shape:
            raise ValueError("pending designs need a model without batch shape; give points k x d.")
        x = self.designs(x)
        with torch.no_grad():
            lower, upper = self._bounds(x, pending)
        point = choose_condition(x, self.environment, self.functional, lower, upper).point.unsqueeze(-2)
        if pending is None:
            return point
        return torch.cat([pending.expand(*point.shape[:-2], *pending.shape[-2:]), point], -2)

    def designs(self, X: Tensor) -> Tensor:
        """X as it is; ``ValueError`` unless it has the columns of designs, and the model's dtype and device."""
        self._check("X", X)
        d_x = None if self._dim is None else self._dim - self.environment.appended
        if d_x is not None and X.shape[-1] != d_x:
            raise ValueError(f"X has {X.shape[-1]} columns, not {d_x}: give x alone (optimize_acqf: the bounds of x).")
        return X


class StableOpt(ValueAtRiskUCB):
    """StableOpt: min_z u(x, z) over the conditions of an environment; ``select_condition`` is argmin_z l(x, z).

    It is V-UCB of ``WorstCase()``, its limit as alpha -> 0 (Bogunovic, Scarlett, Jegelka & Cevher, "Adversarially
    Robust Optimization with Gaussian Processes", NeurIPS 2018). Over candidates it is HE-StableOpt (Ziomek, Adachi &
    Osborne 2024, Algorithm 2): the design has the largest worst bound of any candidate, the condition the least lower
    bound.

    For the epsilon-stable setting pass ``PerturbationEnvironment.ball(epsilon, bounds)``. The minimum is then over
    fixed points of the ball, and may miss the smallest value on the ball by a little.

    Other arguments and errors are those of :class:`ValueAtRiskUCB`.

    Args:
        environment: Finite conditions or perturbations. Probabilities only tell the possible (> 0) from the impossible.
    """

    def __init__(
        self,
        model: Model,
        environment: Environment,
        width: Width | float | None = None,
        t: int | None = None,
        posterior_transform: PosteriorTransform | None = None,
        X_pending: Tensor | None = None,
        generator: torch.Generator | None = None,
        elimination: Elimination | None = None,
    ) -> None:
        super().__init__(
            model, environment, WorstCase(), width, t, posterior_transform, X_pending, generator, elimination
        )

    def _chosen(self, lower: Tensor, upper: Tensor) -> tuple[Tensor, Tensor]:
        """At every condition the least lower bound of any candidate, and the upper bound of the one that chose x."""
        lower_of_winner, upper_of_winner = super()._chosen(lower, upper)
        if not self.over_candidates:
            return lower_of_winner, upper_of_winner
        return lower[..., self._among, :].amin(-2), upper_of_winner

    def _choosing_candidates(self, lower: Tensor, upper: Tensor, index: Tensor) -> Tensor:
        """Indices in U, ``... x 2``: who chose the design, and who chose its condition."""
        at = lower.gather(-1, index[..., None, None].expand(*lower.shape[:-1], 1)).squeeze(-1)
        of_condition = self._indices[at.masked_fill(~self._among, torch.inf).argmin(-1)]
        return torch.cat([super()._choosing_candidates(lower, upper, index), of_condition.unsqueeze(-1)], -1)


@dataclass(frozen=True)
class RecommendedDesign:
    """The design to use.

    Attributes:
        index: Index of the design in ``X_queried``, ``batch_shape``.
        x: The design, ``batch_shape x d_x``.
        value: F(mu(x, Z)), the estimate of F(f(x, Z)), ``batch_shape``.
        interval: The ends of F(f(x, Z)) where every f(x, z) is within its 95 % interval, ``batch_shape`` each.
    """

    index: Tensor
    x: Tensor
    value: Tensor
    interval: tuple[Tensor, Tensor]


def recommend_design(
    model: Model,
    environment: Environment,
    functional: Functional | float | str | Mapping[str, Any],
    X_queried: Tensor,
    posterior_transform: PosteriorTransform | None = None,
    limits: tuple[float, float] = (-math.inf, math.inf),
) -> RecommendedDesign:
    """argmax over the designs queried so far of F(mu(x, Z)), ties to the first (Nguyen et al. 2021, Section 4).

    ``X_queried`` holds designs without z, ``k x d_x``. ``ValueError`` if it has none, or they do not fit. Value and
    interval are of f cut at its ``limits``. In a learnt scale T of f, mu are medians where F commutes with T: where it
    is the value at one condition, as the value at risk is. For other functionals mu are means.
    """
    functional = as_functional(functional)
    check_tensor("X_queried", X_queried)
    if X_queried.ndim != 2 or X_queried.shape[0] == 0:
        raise ValueError(f"X_queried must be k x d_x with k >= 1, got shape {tuple(X_queried.shape)}.")
    with torch.no_grad():
        points = environment.points(X_queried)  # k x w x d
        k, w, d = points.shape
        if getattr(model, "train_inputs", None) is not None and reference(model).shape[-1] != d:
            raise ValueError(f"designs with conditions have {d} columns, not the model's; give designs without z.")
        flat, p = points.reshape(k * w, d), environment.probabilities
        median, *ends = marginal_quantiles(model, flat, (0.0, -Z95, Z95), BLOCK, posterior_transform)
        mu = median if functional.selects else marginal_moments(model, flat, BLOCK, posterior_transform)[0]
        mu, lower, upper = (values.reshape(*values.shape[:-1], k, w) for values in (mu, *ends))
        index = functional(mu, p).argmax(-1)
        mu, lower, upper = (value_at(values, index).clamp(*limits) for values in (mu, lower, upper))
        interval = functional.lower_bound(lower, upper, p), functional.upper_bound(lower, upper, p)
    return RecommendedDesign(index, X_queried[index], functional(mu, p), interval)
