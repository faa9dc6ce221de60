"""From what was measured to what is measured next and what is used: one decision, of which every host is a translation.

A :class:`Problem` has the designs that there are and what was measured; :func:`fit` makes models of it. From these,
:func:`replicate`, :func:`search` and :func:`recommend` are functions without state, and :func:`propose` calls them in
turn. A host that fits and searches by itself, as Ax does, has :mod:`bo_robust.proposals.sided_model` alone.
"""

from __future__ import annotations

import math
import threading
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, NamedTuple

import torch
from botorch.acquisition.logei import qLogNoisyExpectedImprovement
from botorch.acquisition.multi_objective.objective import GenericMCMultiOutputObjective
from botorch.acquisition.objective import GenericMCObjective
from botorch.exceptions import BotorchWarning
from botorch.models import ModelListGP, SingleTaskGP
from botorch.utils.multi_objective.hypervolume import infer_reference_point
from botorch.utils.multi_objective.pareto import is_non_dominated
from gpytorch.utils.warnings import GPInputWarning
from linear_operator.utils.warnings import NumericalWarning
from torch import Tensor

from bo_robust.acquisition import ValueAtRiskUCB
from bo_robust.acquisition.exclusion import Elsewhere, WhereTrialsSucceed
from bo_robust.acquisition.fresh_pair import is_due, repeats
from bo_robust.acquisition.noisy_improvement import OnePointLogNoisyExpectedImprovement, contenders
from bo_robust.acquisition.pending import MOST_PENDING, MOST_PENDING_OF_BOUNDS, foremost_pending
from bo_robust.acquisition.several_outcomes import LatentModels, OnePointLogNoisyExpectedHypervolumeImprovement
from bo_robust.models import marginal_moments
from bo_robust.models.robust.slips import Slip
from bo_robust.models.verdict import Prediction
from bo_robust.proposals.conditions import best_at_risk
from bo_robust.proposals.fitting import equal_by_chance, failure_model, fitted_model, modules
from bo_robust.proposals.inputs import Search
from bo_robust.proposals.methods import Choice
from bo_robust.proposals.outcomes import Outputs
from bo_robust.proposals.sided_model import SidedModel, recommendable, replicates
from bo_robust.proposals.space import among, seed_of

# PyTorch has one generator for all threads, BoTorch's fits and searches draw from it, and a proposal is a function of
# its problem; so processes, not threads, make several at once.
_one_at_a_time = threading.RLock()


@dataclass(frozen=True, eq=False)
class Problem:
    """What there is to choose from, and what was measured, is under way or failed.

    Attributes:
        space: The designs, with the conditions if there are some.
        outputs: What was observed, ``n`` rows.
        choice: Model and acquisition function.
        X: Designs measured, ``n x d``, in the units of the data, as the others.
        pending: Designs under way, ``p x d``.
        failed: Designs whose measurement failed, ``f x d``.
        how: How designs are searched for.
        seed: Seed of all random numbers.
    """

    space: Any
    outputs: Outputs
    choice: Choice
    X: Tensor
    pending: Tensor
    failed: Tensor
    how: Search
    seed: int


class Recommendation(NamedTuple):
    """The row of the design to use now, or None, with mean and 95 % interval there in units of Y."""

    row: int | None = None
    mean: float = math.nan
    interval: tuple[float, float] = (math.nan, math.nan)


@dataclass(frozen=True, eq=False)
class Fitted:
    """The models of a problem; large objectives and small constraints are good.

    Attributes:
        problem: The problem.
        U: Coordinates of the designs measured, ``n x D``; ``pending`` and ``failed`` are those of the others.
        objectives: Models of the objectives.
        constraints: Models of the constraints.
        failing: Model of failures; None where none failed.
        outliers: Which observations a model flags, ``n`` bool.
        held: Which observations of objectives are held on the good side, ``n`` bool.
        recommendable: Which designs may be recommended, ``n`` bool; ``feasible`` are those that the space allows.
        copies: Rows that repeat another one, and count for nothing, with that row.
    """

    problem: Problem
    U: Tensor
    pending: Tensor
    failed: Tensor
    objectives: list[SidedModel]
    constraints: list[SidedModel]
    failing: SingleTaskGP | None
    outliers: Tensor
    held: Tensor
    recommendable: Tensor
    feasible: Tensor
    copies: Mapping[int, int] = field(default_factory=dict)

    @property
    def outcomes(self) -> list[SidedModel]:
        return [*self.objectives, *self.constraints]

    @cached_property
    def model(self) -> Any:
        """The model of all outputs."""
        models = [sided.model for sided in self.outcomes]
        return models[0] if len(models) == 1 else ModelListGP(*models)

    @cached_property
    def predictions(self) -> list[Prediction]:
        """Those of the objectives at the designs measured."""
        return [sided.predict(self.U) for sided in self.objectives]

    @cached_property
    def known_pending(self) -> Tensor:
        """Rows of the pending designs that the acquisition function gets, the foremost where they are many."""
        problem = self.problem
        every = torch.arange(len(problem.pending))
        # A bound of one design is cheap.
        cheap = problem.choice.acquisition is not None and not problem.space.conditioned
        most = MOST_PENDING_OF_BOUNDS if problem.space.conditioned else MOST_PENDING
        if cheap or len(every) <= most:
            return every
        acqf, designs = _acquisition(self, None), _designs(self, problem.pending)
        if getattr(acqf, "takes_conditions", False):
            designs = acqf.select_condition(designs).point
        return foremost_pending(acqf, _coordinates(self, problem.pending), most, designs).cpu()


def fit(problem: Problem) -> Fitted:
    """Fit a model to each output, and one to failures.

    A row that repeats another one to the last digit counts only if the noise makes that likely: otherwise it is a copy,
    which confirms nothing.
    """
    copies = problem.outputs.copies(problem.X) if problem.choice.takes("reading_unit") else {}
    if not copies:
        return _fit(problem)
    fitted = _fit(replace(problem, outputs=problem.outputs.without(list(copies))))
    points = fitted.U[list(copies)]
    if all(equal_by_chance(problem.outputs, j, one.model, points) for j, one in enumerate(fitted.outcomes)):
        return _fit(problem)
    for copy, row in copies.items():
        for rows in (fitted.outliers, fitted.held):
            rows[copy] = rows[row]
    return replace(fitted, copies=copies)


def _fit(problem: Problem) -> Fitted:
    space, outputs, X = problem.space, problem.outputs, problem.X
    U, pending, failed = (space.encode(x).to(problem.how.device) for x in (X, problem.pending, problem.failed))
    outliers = torch.zeros(len(X), dtype=torch.bool, device=U.device)
    held, feasible = outliers.clone(), space.feasible(X).to(U.device)
    fitted: list[SidedModel] = []
    with seeded(problem, "fit", len(X)):
        for j in range(outputs.scaled.shape[-1]):
            rows, y, options = outputs.of(j)
            rows = rows.to(U.device)
            build = partial(problem.choice.build, U[rows], y.to(U.device).unsqueeze(-1), options)
            model = fitted_model(build, **modules(problem.choice, U))
            sided = SidedModel(model, j < outputs.objectives, U[rows])
            fitted.append(sided)
            outliers[rows] |= sided.verdict.flagged
            if sided.maximize:
                held[rows] |= sided.verdict.held
        designs = [space.encode_designs(x).to(U) for x in (X, problem.failed)]
        failing = failure_model(*designs) if len(failed) else None
    objectives, constraints = fitted[: outputs.objectives], fitted[outputs.objectives :]
    may = feasible & recommendable(fitted, U)
    return Fitted(problem, U, pending, failed, objectives, constraints, failing, outliers, held, may, feasible)


def propose(
    problem: Problem, fitted: Fitted | None, q: int, trial: int, num_initial: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The next designs ``q x d``, which repeat a measured one, for which no other was left, and which are random."""
    chosen, again, exhausted, random = problem.X[:0], list[bool](), list[bool](), list[bool]()
    for k in range(trial, trial + q):
        measured, taken = None, torch.cat([problem.X, problem.pending, problem.failed, chosen])
        if fitted is None or trial < num_initial:
            x, drawn = problem.space.initial(problem.seed, k, taken), True
        else:
            measured = replicate(fitted, chosen)
            x = search(fitted, chosen, k) if measured is None else measured
            drawn = measured is None and _is_stuck(fitted, taken, x)
            x = problem.space.initial(problem.seed, k, taken) if drawn else x
        chosen, again, random = torch.cat([chosen, x]), [*again, measured is not None], [*random, drawn]
        exhausted.append(problem.space.exhausted(taken))
    repeated, none_left, by_chance = (torch.tensor(flags, dtype=torch.bool) for flags in (again, exhausted, random))
    return chosen, repeated, none_left, by_chance


def replicate(fitted: Fitted, chosen: Tensor) -> Tensor | None:
    """A measured design to measure again first, ``1 x d``, beside the chosen ones; or None."""
    problem = fitted.problem
    if problem.space.conditioned:
        return None
    elsewhere = torch.cat([fitted.pending, fitted.failed, problem.space.encode(chosen).to(fitted.U)])
    finite = problem.space.candidates is not None
    designs = (problem.X[(u == fitted.U).all(-1)][:1] for u in replicates(fitted.objectives, finite, elsewhere))
    return next((x for x in designs if problem.space.holds(x)), None)


def search(fitted: Fitted, chosen: Tensor, trial: int) -> Tensor:
    """The design of the largest acquisition value, ``1 x d``, beside the chosen ones."""
    problem = fitted.problem
    with seeded(problem, "search", trial):
        pending = _coordinates(fitted, torch.cat([problem.pending[fitted.known_pending], chosen]))
        acqf = _acquisition(fitted, pending if len(pending) else None)
        if fitted.failing is not None:
            acqf = WhereTrialsSucceed(acqf, fitted.failing)
        if len(fitted.known_pending) < len(fitted.pending) and not problem.space.conditioned:
            acqf = Elsewhere(acqf, fitted.pending)
        how = problem.how
        return problem.space.maximize(acqf, how.restarts, how.raw_samples, fitted.U.device, _taken(fitted, chosen))


def _is_stuck(fitted: Fitted, taken: Tensor, x: Tensor) -> bool:
    """Whether V-UCB repeats a pair where a random one is due (:mod:`bo_robust.acquisition.fresh_pair`)."""
    choice, space = fitted.problem.choice, fitted.problem.space
    if choice.acquisition is not ValueAtRiskUCB or not (x.isfinite().all() and is_due(len(taken))):
        return False
    u, known = (space.encode(points) for points in (x, taken[taken.isfinite().all(-1)]))
    return repeats(u[0], known, u.new_zeros(()), u.new_ones(()))  # coordinates go from 0 to 1


def expected(fitted: Fitted) -> Tensor:
    """Means of the objectives at the designs measured, ``n x m``, in units of Y."""
    outputs, m = fitted.problem.outputs, len(fitted.objectives)
    mean = torch.stack([prediction.mean for prediction in fitted.predictions], -1)
    return outputs.center[:m] + outputs.scale[:m] * mean.cpu()


def slips(fitted: Fitted) -> tuple[Slip, ...]:
    """What may have happened to observations that are flagged or held, by their rows in X."""
    found = [Slip("same row", (row, copy), math.nan, math.nan) for copy, row in fitted.copies.items()]
    for j, sided in enumerate(fitted.outcomes):
        rows = fitted.problem.outputs.of(j)[0].nonzero().flatten().tolist()
        told = getattr(sided.model, "slips", ())
        found += [slip._replace(rows=tuple(rows[i] for i in slip.rows), outcome=j) for slip in told]
    return tuple(found)


def recommend(fitted: Fitted) -> Recommendation:
    """The measured design of the largest mean that may be recommended; none of several objectives."""
    problem, may = fitted.problem, fitted.recommendable.clone()
    if len(fitted.objectives) > 1:
        return Recommendation()
    (objective,) = fitted.objectives
    for constraint in fitted.constraints:
        may &= constraint.predict(fitted.U).mean <= 0.0
    if not may.any():
        return Recommendation()
    if problem.space.conditioned:
        rows, designs, space = may.nonzero().flatten(), _designs(fitted, problem.X), problem.space
        place, at_risk = best_at_risk(objective, designs[rows], space.environment.to(fitted.U), space.worst)
        return _in_units(problem.outputs, int(rows[place]), torch.stack(at_risk))
    found = torch.stack(fitted.predictions[0])
    row = int(found[0].where(may, -math.inf).argmax())
    return _in_units(problem.outputs, row, found[:, row])


def _in_units(outputs: Outputs, row: int | None, found: Tensor) -> Recommendation:
    """The row, with mean and interval there, three numbers of the model, in units of Y."""
    mean, *ends = (outputs.center[0] + outputs.scale[0] * found.cpu()).tolist()
    return Recommendation(row, mean, (min(ends), max(ends)))


def _designs(fitted: Fitted, x: Tensor) -> Tensor:
    """Coordinates of designs without their conditions."""
    coordinates: Tensor = fitted.problem.space.encode_designs(x).to(fitted.U)
    return coordinates


def _coordinates(fitted: Fitted, x: Tensor) -> Tensor:
    """Coordinates of designs, without their conditions where some are not known yet."""
    if not x.isfinite().all():
        return _designs(fitted, x)
    coordinates: Tensor = fitted.problem.space.encode(x).to(fitted.U)
    return coordinates


def _taken(fitted: Fitted, chosen: Tensor) -> Tensor:
    """Designs of a finite space, ``k x d``, that should not be proposed, because other observations teach more.

    They are those under way or failed, and those measured where the noise is small against what is unknown elsewhere.
    """
    problem, space = fitted.problem, fitted.problem.space
    if space.candidates is None or problem.choice.acquisition is not None:  # which chooses repeats itself
        return problem.X[:0]
    elsewhere = torch.cat([problem.pending, problem.failed, chosen])
    if problem.how.repeats == "never":
        return torch.cat([elsewhere, problem.X])
    free = ~among(space.candidates, torch.cat([elsewhere, problem.X]))
    if not free.any():
        return elsewhere
    U = space.encode(space.candidates[free]).to(fitted.U)
    models = [sided.model for sided in fitted.outcomes]
    with torch.no_grad():
        unknown = [marginal_moments(model, U)[1].amax() for model in models]
        readings = [model.posterior(U[:1], observation_noise=True).variance for model in models]
        noise = [y - model.posterior(U[:1]).variance for y, model in zip(readings, models, strict=True)]
    noisy = all(one > left for one, left in zip(noise, unknown, strict=True))
    return elsewhere if noisy else torch.cat([elsewhere, problem.X])


def _acquisition(fitted: Fitted, pending: Tensor | None) -> Any:
    choice, m = fitted.problem.choice, len(fitted.objectives)
    if choice.acquisition is not None:
        generator = torch.Generator().manual_seed(int(torch.randint(2**62, (1,))))
        return choice.acquire(fitted.model, pending, generator)
    # What is to be improved on: where no design will do, all.
    every = torch.ones_like(fitted.feasible)
    baseline = fitted.U[next(rows for rows in (fitted.recommendable, fitted.feasible, every) if rows.any())]
    if not fitted.constraints:
        baseline = contenders([sided.model for sided in fitted.objectives], baseline)
    options: dict[str, Any] = {"X_pending": pending, "prune_baseline": True}
    if not fitted.problem.outputs.several:
        return OnePointLogNoisyExpectedImprovement(fitted.model, baseline, **options)
    model = LatentModels([sided.model for sided in fitted.outcomes])
    if fitted.constraints:
        options["constraints"] = [partial(model.outcome, j) for j in range(m, len(fitted.outcomes))]
    if m == 1:
        objective = GenericMCObjective(partial(model.outcome, 0))
        return qLogNoisyExpectedImprovement(model, baseline, objective=objective, **options)
    with torch.no_grad():
        mean = fitted.model.posterior(baseline).mean[:, :m]
    ref_point = infer_reference_point(mean[is_non_dominated(mean)])
    objectives = GenericMCMultiOutputObjective(partial(model.first_outcomes, m))
    return OnePointLogNoisyExpectedHypervolumeImprovement(model, ref_point, baseline, objective=objectives, **options)


@contextmanager
def seeded(problem: Problem, purpose: str, index: int) -> Iterator[None]:
    """Seed PyTorch's global random numbers within a block and restore them after it; one thread at a time.

    Warnings of good fits and searches are ignored: single restarts, covariances singular to rounding, line searches.
    """
    devices = [] if problem.how.device == "cpu" else [torch.device(problem.how.device)]
    with _one_at_a_time, torch.random.fork_rng(devices=devices), warnings.catch_warnings():
        torch.manual_seed(seed_of(problem.seed, purpose, index))
        for category in (BotorchWarning, NumericalWarning, GPInputWarning):
            warnings.simplefilter("ignore", category)
        warnings.filterwarnings("ignore", "Optimization failed (in|on)", RuntimeWarning)
        yield
