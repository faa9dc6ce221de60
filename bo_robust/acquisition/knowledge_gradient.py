"""The knowledge gradient of the value at risk, or another functional, of f(x, Z): which pair (x, z) to observe next.

It is rhoKG^apx of Cakmak, Astudillo, Frazier & Zhou, "Bayesian Optimization of Risk Measures" (NeurIPS 2020). An
observation at (x, z) changes the covariance R R^T of a design under all conditions by -c c^T, where c is its covariance
with (x, z) over the standard deviation of the observation. So R (I - g v v^T) with v = R^-1 c and
g = 1 / (1 + sqrt(1 - |v|^2)) is a root of what is left, and no fantasy needs one of its own.

Axes: ``s`` members of an ensemble (one for other models), ``n`` designs evaluated, ``b`` points (x, z), ``w``
conditions, ``K`` fantasies, ``M`` samples, ``d`` columns of the model.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import torch
from botorch.acquisition.objective import PosteriorTransform
from botorch.models.model import Model
from botorch.utils.sampling import draw_sobol_normal_samples
from botorch.utils.transforms import t_batch_mode_transform
from linear_operator.utils.cholesky import psd_safe_cholesky
from linear_operator.utils.warnings import NumericalWarning
from torch import Tensor

from bo_robust.acquisition.condition_choice import ConditionChoice, columns_over, value_at
from bo_robust.acquisition.ucb import PendingAcquisition
from bo_robust.models.joint_moments import JointMoments
from bo_robust.risk_measures.environments import Environment
from bo_robust.risk_measures.functionals import Functional, as_functional
from bo_robust.utils.host import on_host
from bo_robust.utils.input_checks import check_count, quoted
from bo_robust.utils.linalg import entries_at_once
from bo_robust.utils.random import stream
from bo_robust.utils.upstream import forget, points_given

TINY = 1e-30
BLOCK = 64  # points at once, which bounds the memory
VALUES_AT_ONCE = (1 << 18, 1 << 25)  # such a block stays in the processor's cache, or takes a quarter GiB of a GPU


class _Designs(NamedTuple):
    """Designs under all conditions before the next observation; ``...`` are the axes of the designs."""

    points: Tensor  # `... x w x d`, as the kernel sees them
    white: Tensor  # `s x ... x r x w`
    mean: Tensor  # `s x ... x w`
    root: Tensor  # R of the covariance R R^T, lower triangular, `s x ... x w x w`
    drawn: Tensor  # R e of the base samples e, `s x ... x M x w`


class _State(NamedTuple):
    """What stays while (x, z) is searched for, in float64."""

    joint: JointMoments
    environment: Environment
    known: _Designs  # those evaluated, `n`
    fantasies: Tensor  # `K x 1 x 1 x 1 x 1`
    samples: Tensor  # `M x w`
    rows: Tensor | None  # of the environment's points, those that stand for all; None: all
    probabilities: Tensor | None  # of the conditions
    selected: Tensor  # F of the samples of the designs evaluated where it selects a condition, `s x n x M`


class ValueAtRiskKnowledgeGradient(PendingAcquisition):
    """The best risk F(f(x, Z)) that an observation at (x, z) is expected to make known (rhoKG^apx).

    It is the mean, over ``num_fantasies`` of the observation, of the largest E[F(f(x', Z))] among x itself and the
    designs evaluated before. The expectation is over ``num_samples`` of the posterior under the conditions. X are
    points (x, z), with all columns of the model. Maximize it over both, and choose by :meth:`select_condition` among
    the conditions that there are; or fix the columns of z (``fixed_features``) where the condition is known.

    :class:`~bo_robust.acquisition.ValueAtRiskUCB` takes less time, and bounds the regret. The value of an ensemble is
    the weighted mean over its members. In a learnt scale samples are those of f. Values at q > 1 points are the sums of
    those that they have when chosen one after the other. A copy of a float32 model computes in float64, since in
    float32 values under many conditions drown in rounding; what is returned is float32, which hides tiny gains.

    Args:
        model: A fitted model over (x, z) of one output, or of several with a ``posterior_transform``; without
            ``AppendFeatures``, ``InputPerturbation`` or a batch shape. An exact GP takes the least time.
        environment: The conditions, of the model's dtype and device (``.to`` moves them along).
        functional: F, as in :class:`~bo_robust.acquisition.ValueAtRiskUCB`.
        X_evaluated: Designs that may be recommended, ``n x d_x``; default those of the model's data.
        num_fantasies: K.
        num_samples: M.
        num_conditions: If there are more conditions, so many stand for them, drawn once by their probabilities.
        seed: Seed of all random numbers, >= 0.
        posterior_transform: To one output, such as -f.
        X_pending: Points under evaluation, ``k x d``, hallucinated at their means; or designs ``k x d_x``, each under
            the condition of the largest value beside those before it.

    Raises:
        ValueError: if the environment does not fit the model, the model has a batch shape and is no ensemble, its
            posterior is not Gaussian, or an argument is not as described.
        UnsupportedError: if the model has several outputs and there is no ``posterior_transform``.

    Example:
        >>> acqf = ValueAtRiskKnowledgeGradient(SingleTaskGP(XZ, Y), environment, 0.1)
        >>> xz, _ = optimize_acqf(acqf, bounds_of_xz, q=1, num_restarts=5, raw_samples=64)
        >>> next_input = acqf.select_condition(xz[:, :d_x]).point  # 1 x d
    """

    X_evaluated: Tensor
    _pending: Tensor  # points, `k x d`
    _parts: Sequence[Any] | None  # model, transform and environment in float64
    _state: _State | None
    chooses_conditions: ClassVar[bool] = True
    takes_conditions: ClassVar[bool] = True  # in X, unlike V-UCB
    may_repeat: ClassVar[bool] = True

    def __init__(
        self,
        model: Model,
        environment: Environment,
        functional: Functional | float | str | Mapping[str, Any],
        X_evaluated: Tensor | None = None,
        num_fantasies: int = 10,
        num_samples: int = 10,
        num_conditions: int = 32,
        seed: int = 0,
        posterior_transform: PosteriorTransform | None = None,
        X_pending: Tensor | None = None,
    ) -> None:
        if not isinstance(model, Model):
            raise ValueError(f"model must be a BoTorch model, got {quoted(model)}.")
        super().__init__(model=model, posterior_transform=posterior_transform)
        check_count(1, num_fantasies=num_fantasies, num_samples=num_samples, num_conditions=num_conditions)
        check_count(0, seed=seed)
        columns_over(model, environment)
        self.environment, self.functional, self.seed = environment, as_functional(functional), seed
        self.num_fantasies, self.num_samples, self.num_conditions = num_fantasies, num_samples, num_conditions
        if X_evaluated is None:
            data: Any = getattr(model, "models", [model])[0]
            if getattr(data, "train_inputs", None) is None:
                raise ValueError(f"{type(data).__name__} does not tell its data; give X_evaluated, designs n x d_x.")
            X_evaluated = self._designs_of(points_given(data)).flatten(0, -2)
        self._check("X_evaluated", X_evaluated)
        if X_evaluated.ndim != 2 or len(X_evaluated) == 0:
            raise ValueError(f"X_evaluated must be n x d_x with n >= 1, got shape {tuple(X_evaluated.shape)}.")
        self.register_buffer("X_evaluated", X_evaluated.detach().unique(dim=0))
        self.dim = environment.points(X_evaluated[:1]).shape[-1]
        self.set_X_pending(X_pending)

    def set_X_pending(self, X_pending: Tensor | None = None) -> None:
        """Hallucinate these points (``k x d``) or designs (``k x d_x``), finite, from now on; None for no points."""
        super().set_X_pending(X_pending)
        self._pending, self._state, self._parts = self.X_evaluated.new_zeros(0, self.dim), None, None
        for x in () if self.X_pending is None else self.X_pending:
            point = x if len(x) == self.dim else self.select_condition(x).point
            self._pending, self._state = torch.cat([self._pending, point.unsqueeze(0)]), None

    @t_batch_mode_transform()  # type: ignore[arg-type]
    def forward(self, X: Tensor) -> Tensor:
        """The value at points (x, z), ``lead x q x d``: ``lead``; ``ValueError`` if X does not fit."""
        return self._exact(X).to(X)

    def _exact(self, X: Tensor) -> Tensor:
        """The same in float64: cast, small gains over a large value are rounded away."""
        self._check("X", X)
        if X.shape[-1] != self.dim:
            hint = "give (x, z) (optimize_acqf: the bounds of both)"
            raise ValueError(f"X has {X.shape[-1]} columns, not {self.dim}: {hint}.")
        if X.shape[-2] == 1:
            if self._state is None:  # made here, as what it holds does not move with `.to`
                self._state = self._state_beside(self._pending[:0])
            blocks = X.flatten(0, -2).double().split(BLOCK)
            return torch.cat([self._values(self._state, x) for x in blocks]).reshape(X.shape[:-2])
        batches = [
            torch.cat([self._values(self._state_beside(x[:j]), x[j : j + 1]) for j in range(len(x))]).sum()
            for x in X.flatten(0, -3).double()
        ]
        return torch.stack(batches).reshape(X.shape[:-2])

    def select_condition(self, x: Tensor) -> ConditionChoice:
        """Choose the condition to observe each design (``... x d_x``) under: that of the largest value.

        Its ``regret_bound`` is infinite, because the value bounds nothing.
        """
        self._check("x", x)
        with torch.no_grad():
            value = self._exact(self.environment.points(x).unsqueeze(-2))
            if self.environment.probabilities is not None:
                value = value.masked_fill(self.environment.probabilities <= 0, -torch.inf)
            index = value.argmax(-1)
            z = value_at(self.environment.values(x), index)
            return ConditionChoice(index, z, self.environment.join(x, z), x.new_full(index.shape, torch.inf))

    @on_host
    def _state_beside(self, chosen: Tensor) -> _State:
        """The state where points ``k x d`` are chosen, too; it has a gradient if they have."""
        x, pending = self.X_evaluated.double(), torch.cat([self._pending.double(), chosen.double()])
        with torch.set_grad_enabled(torch.is_grad_enabled() and pending.requires_grad):
            if self._parts is None:
                parts = self.model, self.posterior_transform, self.environment
                self._parts = parts if self.X_evaluated.dtype == x.dtype else [*map(_in_double, parts)]
            model, transform, environment = self._parts
            # Probabilities keep their dtype, whose rounding says when they reach alpha.
            points, p, rows = environment.points(x), self.environment.probabilities, None
            joint = JointMoments(model, transform, points[0, :1])
            if len(pending):
                joint.hallucinate(joint.inputs(pending))
            if points.shape[-2] > self.num_conditions:
                shuffles = environment.appended > 1  # neighbors of a quasi-random sequence share a corner
                rows = _resampled(points.shape[-2], p, self.num_conditions, self.seed, shuffles).to(x.device)
                points, p = points[:, rows], None
            sizes = (1, self.num_fantasies), (points.shape[-2], self.num_samples)
            fantasies, samples = (
                draw_sobol_normal_samples(d, n, dtype=torch.float64, seed=self.seed + k).to(x)
                for k, (d, n) in enumerate(sizes)
            )
            known = _designs(joint, points, samples)
            selected = self.functional(known.mean.unsqueeze(-2) + known.drawn, p)
        return _State(joint, environment, known, fantasies[..., None, None, None], samples, rows, p, selected)

    def _values(self, state: _State, X: Tensor) -> Tensor:
        """Values ``b`` at points ``b x d``."""
        joint, known = state.joint, state.known
        points = state.environment.points(self._designs_of(X))
        proposed = _designs(joint, points if state.rows is None else points[:, state.rows], state.samples)
        at = joint.inputs(X)
        alone = at.unsqueeze(-2)
        white = joint.white(alone)  # s x b x r x 1
        prior = joint.covariance(alone, white, alone, white).squeeze(-1)
        deviation = (prior + joint.noise(alone)).clamp_min(TINY).sqrt().unsqueeze(-1)  # s x b x 1 x 1
        c = joint.covariance(proposed.points, proposed.white, alone, white) / deviation
        risk = self._risks(state, proposed, c).squeeze(-1)  # K x s x b
        # All points are the columns of one product for each design.
        columns = white.squeeze(-1).mT.unsqueeze(1)  # s x 1 x r x b
        c = joint.covariance(known.points, known.white, at, columns) / deviation.squeeze(-1).mT.unsqueeze(1)
        # The best design of each fantasy is found without gradient, then evaluated again with it.
        with torch.no_grad():
            best = self._best(state, c.detach())  # K x s x b
        member = torch.arange(best.shape[1], device=X.device).unsqueeze(-1)
        chosen = _Designs(known.points, known.white, *(part[member, best] for part in known[2:]))
        c = c.mT[member, best, torch.arange(len(X), device=X.device)].unsqueeze(-1)
        risk = torch.maximum(risk, self._risks(state, chosen, c).squeeze(-1))
        return joint.weights @ risk.mean(0)

    def _best(self, state: _State, c: Tensor) -> Tensor:
        """The best of the designs evaluated after each observation, of ``s x n x w x b``: ``K x s x b``."""
        may, found = self._contenders(state, c), []
        most = entries_at_once(c, *VALUES_AT_ONCE) // (state.fantasies.numel() * state.samples.numel())
        for pairs in may.nonzero().split(max(1, most)):
            member, design, point = pairs.unbind(-1)
            designs = _Designs(*state.known[:2], *(part[member, design].unsqueeze(0) for part in state.known[2:]))
            found.append(self._risks(state, designs, c.mT[member, design, point][None, ..., None])[:, 0, :, 0])
        risk = c.new_full((len(state.fantasies), *may.shape), -torch.inf)
        risk[:, may] = torch.cat(found, -1)
        return risk.argmax(-2)

    def _contenders(self, state: _State, c: Tensor) -> Tensor:
        """Which designs evaluated may be the best in some fantasy, ``s x n x b`` bool.

        Others are sure to be worse than one of them: |shift| |c| bounds how far an observation moves a value. With 60
        designs a tenth are left, and a value takes half of the time.
        """
        known, F, outcome = state.known, self.functional, state.joint.outcome
        shift = (state.fantasies - _along(state, known, c).mT).abs().amax((0, -1))  # s x n x b
        if F.selects:
            reach = (shift * c.abs().amax(-2)).unsqueeze(-1)
            low, high = (outcome(state.selected.unsqueeze(-2) + sign * reach).mean(-1) for sign in (-1.0, 1.0))
        else:
            reach = (shift.unsqueeze(-1) * c.abs().mT).unsqueeze(-2)  # s x n x b x 1 x w
            before = (known.mean.unsqueeze(-2) + known.drawn).unsqueeze(-3)
            ends = outcome(before - reach), outcome(before + reach)
            low, high = (bound(*ends, state.probabilities).mean(-1) for bound in (F.lower_bound, F.upper_bound))
        return ~(high < low.amax(-2, keepdim=True) - _rounding(low) * low.abs().amax())  # NaN stays

    def _risks(self, state: _State, designs: _Designs, c: Tensor) -> Tensor:
        """E[F] of designs after observations, of whose covariances are ``... x w x j``: ``K x ... x j``."""
        shift = (state.fantasies - _along(state, designs, c).mT).unsqueeze(-1)  # K x ... x j x M x 1
        before = designs.mean[..., None, None, :] + designs.drawn.unsqueeze(-3)
        values = torch.addcmul(before, shift, c.mT.unsqueeze(-2))  # K x ... x j x M x w
        outcome, p = state.joint.outcome, state.probabilities
        if self.functional.selects:  # which an increasing function of the values does not change
            return outcome(self.functional(values, p)).mean(-1)
        return self.functional(outcome(values), p).mean(-1)

    def _designs_of(self, X: Tensor) -> Tensor:
        """The columns of designs."""
        return X[..., : X.shape[-1] - self.environment.appended]

    def _apply(self, fn: Any, recurse: bool = True) -> ValueAtRiskKnowledgeGradient:
        super()._apply(fn, recurse)
        self._pending, self._state, self._parts = fn(self._pending), None, None
        return self


def _in_double(module: Any) -> Any:
    """A copy in float64."""
    if module is None:
        return None
    forget(module)  # in another dtype, and what has a gradient cannot be copied
    return copy.deepcopy(module).double().eval()


def _along(state: _State, designs: _Designs, c: Tensor) -> Tensor:
    """g v^T e for the base samples e, ``... x M x j``."""
    v = torch.linalg.solve_triangular(designs.root, c, upper=False)
    left = (1.0 - v.square().sum(-2, keepdim=True)).clamp_min(TINY)  # whose square root has a gradient
    return (state.samples @ v) / (1.0 + left.sqrt())


def _designs(joint: JointMoments, X: Tensor, samples: Tensor) -> _Designs:
    """What is known of f at inputs ``... x w x d``."""
    points = joint.inputs(X)
    white = joint.white(points)
    prior = joint.prior(points, points)
    size = prior.diagonal(dim1=-2, dim2=-1).amax().clamp_min(TINY)  # rounding, and so the jitter, is a share of it
    # Always some jitter: where some designs had none, and others did, the root would jump between them.
    jitter = _rounding(size) * torch.eye(points.shape[-2], dtype=size.dtype, device=size.device)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NumericalWarning)  # of more jitter
        root = psd_safe_cholesky((prior - white.mT @ white) / size + jitter, max_tries=6) * size.sqrt()
    return _Designs(points, white, joint.mean(points, white), root, samples @ root.mT)


def _rounding(x: Tensor) -> float:
    """More than sums of numbers of size 1 are off by."""
    return float(torch.finfo(x.dtype).eps ** 0.75)


def _resampled(w: int, p: Tensor | None, n: int, seed: int, shuffles: bool) -> Tensor:
    """Places of n out of w conditions, as often as they are probable, by systematic resampling."""
    draws = stream(seed, "conditions", 0)
    order = torch.from_numpy(draws.permutation(w)) if shuffles else torch.arange(w)
    mass = (torch.ones(w).double() if p is None else p.double().cpu())[order].cumsum(0)
    places = (torch.arange(n).double() + draws.uniform()) / n * mass[-1]
    return order[torch.searchsorted(mass, places).clamp(max=w - 1)]
