"""What to measure next, from all that was measured: :func:`suggest`, on a box, a mixed space or a list of designs.

Nothing is kept between calls: a suggestion is a function of its arguments.
"""

from __future__ import annotations

import math
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any

import torch
from botorch.acquisition import AcquisitionFunction
from botorch.acquisition.logei import qLogNoisyExpectedImprovement
from botorch.acquisition.multi_objective.logei import qLogNoisyExpectedHypervolumeImprovement
from botorch.acquisition.multi_objective.objective import IdentityMCMultiOutputObjective
from botorch.acquisition.objective import GenericMCObjective
from botorch.exceptions import BotorchWarning, ModelFittingError
from botorch.fit import fit_gpytorch_mll
from botorch.models import ModelListGP, SingleTaskGP
from botorch.models.model import Model
from botorch.utils.multi_objective.hypervolume import infer_reference_point
from botorch.utils.multi_objective.pareto import is_non_dominated
from gpytorch.constraints import GreaterThan
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.mlls import ExactMarginalLogLikelihood
from gpytorch.priors import LogNormalPrior
from gpytorch.utils.warnings import GPInputWarning
from linear_operator.utils.warnings import NumericalWarning
from torch import Tensor

from bo_robust.acquisition import ValueAtRiskUCB
from bo_robust.conditions import ConditionedSpace
from bo_robust.methods import DEFAULT, Choice, choose, flagged, held, predict, reliable
from bo_robust.models import RobustGP, TruncatedGP, marginal_moments, suggest_replicates
from bo_robust.models.marginal_likelihood import fit_evidence
from bo_robust.models.recommendation import Prediction
from bo_robust.models.training_data import recommendable
from bo_robust.outcomes import Outputs
from bo_robust.search_space import SearchSpace, among, seed_of
from bo_robust.utils.input_checks import check_count, quoted

__all__ = ["Suggestion", "suggest"]

NOISE_FLOOR = 1e-6  # least noise variance that is learned; BoTorch's 1e-4 blurs the optimum of a noise-free objective
HALFWAY = 0.5  # between the label of a success and that of a failure
# The acquisition falls by this times the squared excess of the label over HALFWAY. Where failure is sure it is 2,500
# lower, which rules the design out; so much steeper would stop line searches at the edge.
STEEP = 1e4
_one_at_a_time = threading.RLock()  # PyTorch has one generator for all threads


@dataclass(frozen=True)
class Suggestion:
    """What to measure next, and what the data say so far.

    Attributes:
        X: ``q x d`` designs to measure next, in the columns and units of the data.
        replicate: Whether each of them is a second reading of a design whose reading may be an outlier, ``q`` bool.
        outliers: Which readings the models flag as outliers (or truncate), ``n`` bool.
        held: Which readings are plausible only in a learnt outcome scale, and beyond all others on the good side,
            ``n`` bool. A second reading of their designs comes first, also in a box.
        expected: ``n x m`` means of the objectives at the designs measured, in units of Y, from readings that are
            neither flagged nor held.
        best: The row of the design to use now; None for several objectives, or where no design can be recommended.
        mean: Mean of the objective there, in units of Y; NaN where ``best`` is None.
        interval: The ends of its 95 % interval there, in units of Y.
        model: The model of all outputs in the unit cube, in robust standard deviations of each output, where large
            objectives are good; None before there are data.
    """

    X: Tensor
    replicate: Tensor
    outliers: Tensor
    held: Tensor
    expected: Tensor
    best: int | None
    mean: float
    interval: tuple[float, float]
    model: Model | None


def suggest(
    X: Any,
    Y: Any,
    *,
    bounds: Any = None,
    candidates: Any = None,
    q: int = 1,
    maximize: bool | Sequence[bool] = True,
    constraints: Any = None,
    outcome_limits: Any = None,
    discrete: Mapping[int, Sequence[float]] | None = None,
    categorical: Mapping[int, Sequence[float]] | None = None,
    fixed: Mapping[int, float] | None = None,
    equality_constraints: Sequence[Any] = (),
    inequality_constraints: Sequence[Any] = (),
    conditions: Sequence[int] = (),
    worst: float = 0.1,
    set_conditions: bool = True,
    X_pending: Any = None,
    X_failed: Any = None,
    method: str = DEFAULT,
    settings: Mapping[str, Any] = MappingProxyType({}),
    seed: int = 0,
    trial: int | None = None,
    num_initial: int | None = None,
    repeats: str = "if noisy",
    restarts: int = 8,
    raw_samples: int = 128,
    device: str = "cpu",
) -> Suggestion:
    """Suggest the next designs to measure, on a box, a mixed space or a list of candidates.

    The first designs are quasi-random. Then the default method maximises BoTorch's ``qLogNoisyExpectedImprovement`` (or
    hypervolume improvement) on :class:`bo_robust.RobustGP`, with the probability that ``constraints`` hold. A reading
    that is held is measured a second time first. On a finite space, so is a flagged reading that is better than all
    inliers. Under ``conditions`` none is. Units of designs and readings do not matter.

    Args:
        X: ``n x d`` designs measured, n >= 0, in the order of measurement.
        Y: ``n`` or ``n x m`` readings of m objectives, finite.
        bounds: ``2 x d``, the smallest and the largest value of each column. Not needed with ``candidates``.
        candidates: ``N x d`` designs to choose from, by any descriptors.
        q: Number of designs; 0 for the analysis alone.
        maximize: Whether large readings are good; one value, or one per objective.
        constraints: ``n x k`` readings of constraints, which hold where they are at most 0; NaN where not measured.
        outcome_limits: Smallest and largest possible reading, such as (0, 100) of a yield; either may be None. One
            pair, or one (or None) per objective. A reading beyond them is flagged, and nothing beyond is expected.
        discrete: Values of columns that take no others, in order, by number of the column.
        categorical: Values of columns whose values have no order, by number of the column.
        fixed: Values that columns keep in every suggestion, by number of the column.
        equality_constraints: What suggestions fulfil, in units of X, as ``optimize_acqf`` has it: a list of (columns,
            coefficients, right-hand side). A mixture is ``[([0, 1, 2], [1.0, 1.0, 1.0], 100.0)]``. A list of
            candidates has no such constraints.
        inequality_constraints: The same, with a sum of at least the right-hand side.
        conditions: Columns that are observed, not chosen. The design to use is then good in the ``worst`` share of the
            conditions in X, by :class:`bo_robust.ValueAtRiskUCB`, and ``mean`` is its value at risk. ``candidates``
            are designs without these columns, and so are one objective and the default method needed.
        worst: A share of the conditions, in (0, 1).
        set_conditions: Whether an experiment can be made under a condition of choice. Each proposal then has the
            condition to test it under; otherwise NaN.
        X_pending: ``p x d`` designs under way. They are not suggested again, as if they were measured.
        X_failed: ``f x d`` designs whose measurement failed; their neighbourhood is avoided where failure is likely.
        method: A name in :data:`bo_robust.methods.METHODS`, other than "v-ucb", which ``conditions`` call for.
        settings: Settings of the method, see :mod:`bo_robust.methods`.
        seed: Seed of all random numbers, >= 0.
        trial: Number of the trial, which random numbers depend on. Default: the number of designs so far.
        num_initial: Designs of the initial design. Default: 2 d + 2, of a list at most an eighth (but 4).
        repeats: Whether expected improvement may choose a design of a finite space that was measured before: "never",
            or "if noisy", where the noise is large against what is unknown of the other designs. A second reading of a
            design whose reading may be an outlier does not count.
        restarts: Local searches for the best acquisition value.
        raw_samples: Random points from which these searches get their starts.
        device: "cpu" or "cuda".

    Raises:
        ValueError: if shapes, values or settings are wrong, or the readings differ by more than floating point holds.

    Examples:
        >>> X, Y = [[20.0], [60.0], [90.0]], [1.2, 3.4, 2.2]
        >>> suggest(X, Y, bounds=[[0.0], [100.0]]).X
    """
    check_count(0, q=q, seed=seed)
    check_count(1, restarts=restarts, raw_samples=raw_samples)
    if repeats not in ("never", "if noisy"):
        raise ValueError(f"repeats must be 'never' or 'if noisy', got {quoted(repeats)}.")
    limits = equality_constraints, inequality_constraints
    described = bounds, candidates, discrete or {}, categorical or {}, X
    space: Any
    if len(conditions):
        if method != DEFAULT or fixed or not 0.0 < worst < 1.0:
            raise ValueError("conditions need the default method, a worst share in (0, 1), and nothing fixed.")
        space = ConditionedSpace.of(*described, conditions=conditions, limits=limits, can_be_set=set_conditions)
    else:
        space = SearchSpace.of(*described, *limits).with_fixed(fixed or {})
    X, pending, failed = (space.rows(*x) for x in (("X", X), ("X_pending", X_pending), ("X_failed", X_failed)))
    trial = len(X) + len(pending) + len(failed) if trial is None else trial
    num_initial = space.num_initial if num_initial is None else num_initial
    known = {"dim": space.columns, "num_initial": num_initial}
    if space.candidates is not None:
        known["num_arms"] = len(space.candidates)
    choice = choose(method, settings, known)
    outputs = Outputs.of(Y, constraints, maximize, len(X), choice.model is not RobustGP, outcome_limits)
    if outcome_limits is not None and choice.model is not RobustGP:
        raise ValueError(f"{method} has no outcome_limits; only {DEFAULT} has them.")
    if choice.acquisition is ValueAtRiskUCB:
        hint = "name their columns in `conditions`, with the default method, or use it in Ax or BoTorch"
        raise ValueError(f"{method} needs conditions: {hint}.")
    if len(conditions) and len(X):
        width = choose("v-ucb", {"environment": {"points": [{"z": 0.0}]}}, known).acquisition_options["width"]
        options = {"environment": space.environment.to(device), "functional": worst, "width": width}
        choice = choice._replace(acquisition=ValueAtRiskUCB, acquisition_options=options)
    if outputs.several and choice.acquisition is not None:
        role = "conditions leave room for" if len(conditions) else f"{method} takes"
        raise ValueError(f"{role} one objective and no constraints; the default method takes several of both.")
    with _seeded(seed, "fit", len(X), device), _expected_warnings():
        now = _Round(space, outputs, choice, [X, pending, failed], repeats, device) if len(X) else None
    chosen = X[:0]
    replicate: list[bool] = []
    for k in range(q):
        if now is None or trial < num_initial:
            taken = torch.cat([X, pending, failed, chosen])
            x, measured = space.initial(seed, trial + k, taken), None
        else:
            measured = now.replicate(chosen)
            with _seeded(seed, "search", trial + k, device), _expected_warnings():
                x = now.maximise(chosen, restarts, raw_samples) if measured is None else measured
        chosen, replicate = torch.cat([chosen, x]), [*replicate, measured is not None]
    again = torch.tensor(replicate, dtype=torch.bool)
    if now is None:
        nothing = torch.empty(0, outputs.objectives, dtype=torch.float64)
        none = nothing[:, 0] > 0.0
        return Suggestion(chosen, again, none, none, nothing, None, math.nan, (math.nan, math.nan), None)
    return Suggestion(chosen, again, now.outliers.cpu(), now.held.cpu(), now.expected(), *now.best(), now.model)


class _Round:
    """The models of all outputs, on the data of one call."""

    def __init__(
        self, space: Any, outputs: Outputs, choice: Choice, designs: list[Tensor], repeats: str, device: str
    ) -> None:
        X, pending, failed = designs
        self.space, self.outputs, self.choice, self.X, self.repeats = space, outputs, choice, X, repeats
        self.X_elsewhere, self.X_pending = torch.cat([pending, failed]), pending
        self.worst = choice.acquisition_options.get("functional", math.nan)
        self.U, self.pending, self.failed = (space.encode(x).to(device) for x in (X, pending, failed))
        self.models: list[Any] = []
        self.outliers = torch.zeros(len(X), dtype=torch.bool, device=device)
        self.held, self.recommendable = self.outliers.clone(), ~self.outliers
        for j, y in enumerate(outputs.scaled.to(device).unbind(-1)):
            sided, rows = j < outputs.objectives, y.isfinite()
            options: dict[str, Any] = {}
            if choice.model is RobustGP:
                # A replicate decides in a finite space, and inflated variances in a box. Constraints have no good side.
                options["maximize"] = True if sided and space.candidates is None else None
                options["outcome_limits"] = outputs.limits[j]
            sided_choice = choice._replace(model_options=choice.model_options | options)
            build = partial(sided_choice.build, self.U[rows], y[rows].unsqueeze(-1))
            model = _fitted(build, **_modules(choice, self.U))
            self.models.append(model)
            self.outliers[rows] |= flagged(model)
            # Small constraints are good.
            self.recommendable[rows] &= recommendable(self.U[rows], reliable(model, maximize=sided))
            if sided:
                self.held |= held(model)
        self.model = self.models[0] if len(self.models) == 1 else ModelListGP(*self.models)
        self.failing = _failure_model(*map(self._designs, (X, failed))) if len(failed) else None

    def replicate(self, chosen: Tensor) -> Tensor | None:
        """A measured design to measure again first, ``1 x d``, or None; in a box where its reading is held."""
        if self.choice.model is not RobustGP or isinstance(self.space, ConditionedSpace):
            return None
        listed = self.space.candidates
        elsewhere = torch.cat([self.pending, self.failed, self.space.encode(chosen).to(self.U)])
        for model in self.models[: self.outputs.objectives]:
            if not model.outliers_detected:
                continue
            options: dict[str, Any] = {"maximize": True, "X_pending": elsewhere, "held_only": listed is None}
            points = suggest_replicates(model, len(self.U), self.U, **options)
            for point in () if points is None else points:
                x = self.X[(point == self.U).all(-1)][:1]
                if self.space.holds(x):
                    return x
        return None

    def maximise(self, chosen: Tensor, restarts: int, raw_samples: int) -> Tensor:
        """The design of the largest acquisition value, ``1 x d``, beside the chosen ones."""
        pending = torch.cat([self.pending, self.space.encode(chosen).to(self.U)])
        if not pending.isfinite().all():  # conditions that are not known yet
            pending = self._designs(torch.cat([self.X_pending, chosen]))
        acqf = self._acquisition(pending if len(pending) else None)
        if self.failing is not None:
            acqf = _WhereTrialsSucceed(acqf, self.failing)
        return self.space.maximise(acqf, restarts, raw_samples, self.U.device, self._known(chosen))

    def _designs(self, x: Tensor) -> Tensor:
        """Coordinates of designs without their conditions."""
        return self.space.encode_designs(x).to(self.U)

    def _known(self, chosen: Tensor) -> Tensor:
        """Designs, ``k x d``, of which another reading would teach less than one of other designs of a finite space.

        They are those under way or failed, and those measured where the noise is small against what is unknown
        elsewhere.
        """
        if self.space.candidates is None or self.choice.acquisition is not None:  # which chooses repeats itself
            return self.X[:0]
        elsewhere = torch.cat([self.X_elsewhere, chosen])
        if self.repeats == "never":
            return torch.cat([elsewhere, self.X])
        free = ~among(self.space.candidates, torch.cat([elsewhere, self.X]))
        if not free.any():
            return elsewhere
        U = self.space.encode(self.space.candidates[free]).to(self.U)
        with torch.no_grad():
            unknown = [marginal_moments(model, U)[1].amax() for model in self.models]
            readings = [model.posterior(U[:1], observation_noise=True).variance for model in self.models]
            noise = [y - model.posterior(U[:1]).variance for y, model in zip(readings, self.models, strict=True)]
        noisy = all(one > left for one, left in zip(noise, unknown, strict=True))
        return elsewhere if noisy else torch.cat([elsewhere, self.X])

    def expected(self) -> Tensor:
        """Means of the objectives at the designs measured, ``n x m``, in units of Y."""
        m = self.outputs.objectives
        mean = torch.stack([predict(model, self.U).mean for model in self.models[:m]], -1)
        return self.outputs.center[:m] + self.outputs.scale[:m] * mean.cpu()

    def best(self) -> tuple[int | None, float, tuple[float, float]]:
        """The row of the largest mean that may be recommended, with mean and 95 % interval there."""
        nothing = None, math.nan, (math.nan, math.nan)
        if self.outputs.objectives > 1:
            return nothing
        if isinstance(self.space, ConditionedSpace):
            model = self.models[0]
            used = model.reliable_model(maximize=True) if model.outliers_detected else model
            row, value, std = self.space.best(used, self.X, self.recommendable, self.worst)
            found = torch.stack(Prediction.gaussian(*torch.tensor([[value], [std**2]], dtype=torch.float64)))
            return self._in_units(row, found.clamp(*model.outcome_limits)[:, 0])
        may = self.recommendable.clone()
        for model in self.models[1:]:
            may &= predict(model, self.U, maximize=False).mean <= 0.0
        if not may.any():
            return nothing
        found = torch.stack(predict(self.models[0], self.U))
        row = int(found[0].where(may, -math.inf).argmax())
        return self._in_units(row, found[:, row])

    def _in_units(self, row: int | None, found: Tensor) -> tuple[int | None, float, tuple[float, float]]:
        """The row, and mean and interval there, three numbers of the model, in units of Y."""
        mean, *ends = (self.outputs.center[0] + self.outputs.scale[0] * found.cpu()).tolist()
        return row, mean, (min(ends), max(ends))

    def _acquisition(self, pending: Tensor | None) -> Any:
        if self.choice.acquisition is not None:
            generator = torch.Generator().manual_seed(int(torch.randint(2**62, (1,))))
            return self.choice.acquire(self.model, pending, generator)
        may = self.recommendable if self.recommendable.any() else torch.ones_like(self.recommendable)
        baseline, m = self.U[may], self.outputs.objectives
        options: dict[str, Any] = {"X_pending": pending, "prune_baseline": True}
        if len(self.models) > m:
            options["constraints"] = [partial(_output, j) for j in range(m, len(self.models))]
        if m == 1:
            objective = GenericMCObjective(partial(_output, 0)) if self.outputs.several else None
            return qLogNoisyExpectedImprovement(self.model, baseline, objective=objective, **options)
        with torch.no_grad():
            mean = self.model.posterior(baseline).mean[:, :m]
        front = mean[is_non_dominated(mean)]
        return qLogNoisyExpectedHypervolumeImprovement(
            self.model,
            infer_reference_point(front),
            baseline,
            objective=IdentityMCMultiOutputObjective(outcomes=list(range(m)), num_outcomes=len(self.models)),
            **options,
        )


class _WhereTrialsSucceed(AcquisitionFunction):
    """An acquisition function where success is likelier than failure; elsewhere the lower the surer failure is.

    A failure tells of a constraint, of which success or failure is all that is seen (Gelbart, Snoek & Adams 2014,
    "Bayesian optimization with unknown constraints"). The wrapped values are logarithms or bounds.
    """

    def __init__(self, acqf: Any, failing: SingleTaskGP) -> None:
        super().__init__(model=acqf.model)
        self.acqf, self.failing = acqf, failing
        self.set_X_pending(None)
        if (baseline := getattr(acqf, "X_baseline", None)) is not None:
            self.X_baseline = baseline  # where BoTorch's searches start

    def forward(self, X: Tensor) -> Tensor:
        """Values ``b`` at designs ``b x 1 x d``."""
        excess = (self.failing.posterior(X).mean.squeeze(-1).squeeze(-1) - HALFWAY).clamp_min(0.0)
        value: Tensor = self.acqf(X) - STEEP * excess.square()
        return value


def _output(j: int, Z: Tensor, X: Tensor | None = None) -> Tensor:
    return Z[..., j]


def _failure_model(U: Tensor, failed: Tensor) -> SingleTaskGP:
    """``SingleTaskGP`` of labels: 0 where there was a reading, 1 where the measurement failed.

    Where a region fails, labels follow a cliff. A failure by chance is noise, or a spike that spoils little around it.
    """
    labels = torch.cat([U.new_zeros(len(U), 1), U.new_ones(len(failed), 1)])
    return _fitted(partial(SingleTaskGP, torch.cat([U, failed]), labels))


def _fitted(build: Callable[..., Any], **modules: Any) -> Any:
    """The model, fitted; without these modules, at the modes of its priors, where no fit succeeds."""
    model = build(**modules)
    try:
        fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model), optimizer=fit_evidence)
    except ModelFittingError:
        model = build()
    return model.eval()


def _modules(choice: Choice, like: Tensor) -> dict[str, Any]:
    """BoTorch's default likelihood with a lower floor of the noise, where one is learned."""
    if choice.model not in (RobustGP, TruncatedGP) or "noise_var" in choice.model_options:
        return {}
    prior = LogNormalPrior(-4.0, 1.0)
    floor = GreaterThan(NOISE_FLOOR, transform=None, initial_value=prior.mode)
    return {"likelihood": GaussianLikelihood(noise_prior=prior, noise_constraint=floor).to(like)}


@contextmanager
def _seeded(seed: int, purpose: str, index: int, device: str) -> Iterator[None]:
    """Seed PyTorch's global random numbers within a block and restore them after it; one thread at a time."""
    with _one_at_a_time, torch.random.fork_rng(devices=[] if device == "cpu" else [torch.device(device)]):
        torch.manual_seed(seed_of(seed, purpose, index))
        yield


@contextmanager
def _expected_warnings() -> Iterator[None]:
    """Ignore warnings of good fits and searches: single restarts, covariances singular to rounding, line searches."""
    with warnings.catch_warnings():
        for category in (BotorchWarning, NumericalWarning, GPInputWarning):
            warnings.simplefilter("ignore", category)
        warnings.filterwarnings("ignore", "Optimization failed (in|on)", RuntimeWarning)
        yield
