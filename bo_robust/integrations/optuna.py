"""``RobustGP`` and the other methods in Optuna: ``optuna.create_study(sampler=RobustSampler())``.

A proposal is a function of the seed, the trial's number and what the storage holds, nothing else. So a study that is
opened again goes on as it would have, and workers may be several processes with one seed.
"""

from __future__ import annotations

import math
import secrets
import threading
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from itertools import groupby
from types import MappingProxyType
from typing import Any, NamedTuple

import torch
from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler, RandomSampler
from optuna.study import Study, StudyDirection
from optuna.trial import FrozenTrial, TrialState

from bo_robust.proposals.frames import SUMS
from bo_robust.proposals.inputs import Search, Space
from bo_robust.proposals.methods import DEFAULT, choose
from bo_robust.proposals.outcomes import Data
from bo_robust.proposals.space import MOST_POINTS
from bo_robust.proposals.suggest import Suggestion, suggest
from bo_robust.utils.host import on_host
from bo_robust.utils.input_checks import check_count, quoted
from bo_robust.utils.random import stream
from bo_robust.utils.upstream import keep_in_optuna_trial, optuna_contains

__all__ = ["Recommendation", "RobustSampler"]

# Arguments of the search; others are of the method.
SEARCH = tuple(field.name for field in fields(Search))
# What Optuna cannot express.
ELSEWHERE = ("v-ucb", "knowledge-gradient", "conditions", *SUMS)
# Attribute of a trial in the storage: its parameters, before the objective asks for them.
PROPOSED = "bo_robust:proposed"
_one_proposal_at_a_time = threading.Lock()


class Recommendation(NamedTuple):
    """The parameters to use, and the posterior mean of the objective there."""

    x: dict[str, Any]
    value: float


class RobustSampler(BaseSampler):
    """:func:`bo_robust.suggest` as a sampler.

    Parameters reach the model in the unit cube: as logarithms where the distribution is logarithmic; whole numbers and
    steps with an equal share each; categorical ones as one column per choice. Parameters that are not in every
    completed trial (conditional ones), and all of the first trial, are drawn uniformly and not modeled.

    If a later run changes the range of a parameter, that of the completed trial of the largest number counts. Trials
    whose value is outside it are left out of the model. A range that changes in every second trial or more often, or
    came back more than once, depends on other parameters: such a parameter counts as conditional.

    Trials that were pruned, failed or returned an infinite value are not observations, but keep the sampler away from
    where failure is likelier than success. Running trials are not proposed again, unless two processes choose at the
    same moment. A worker that was killed leaves a running trial behind: ``RDBStorage(heartbeat_interval=...)`` turns it
    into a failed one.

    Constraints are those of ``trial.set_constraint`` (or of an older ``constraints_func``), feasible at most 0. A trial
    without a value of one says nothing about that one. Studies may have several objectives.

    Args:
        method: A name in :data:`bo_robust.proposals.methods.METHODS` that chooses no conditions. The default, BoTorch's
            expected improvement on ``RobustGP``, needs no settings, and alone takes constraints and several objectives.
        seed: Seed of all random numbers, >= 0; None: drawn.
        fixed: Values that parameters keep, by name; the others are chosen for them. (With ``PartialFixedSampler`` the
            others are chosen as if nothing was fixed.)
        settings: Settings of the method (:mod:`bo_robust.proposals.methods`), and ``outcome_limits``, ``num_initial``,
            ``repeats``, ``restarts``, ``raw_samples`` and ``device`` of :func:`bo_robust.suggest`.

    Raises:
        ValueError: if a method or setting is unknown or out of range.

    Examples:
        >>> study = optuna.create_study(sampler=RobustSampler(seed=0), storage="sqlite:///study.db")
        >>> study.optimize(objective, n_trials=50)
    """

    def __init__(
        self,
        method: str = DEFAULT,
        *,
        seed: int | None = None,
        fixed: Mapping[str, Any] = MappingProxyType({}),
        **settings: Any,
    ) -> None:
        for name in {"minimize", "maximize"} & set(settings):
            raise ValueError(f"{name} is the direction of the Optuna study; give create_study direction='{name}'.")
        for name in (name for name in (method, *settings) if isinstance(name, str) and name in ELSEWHERE):
            hint = "call bo_robust.suggest, or take Ax (generation_strategy('v-ucb', ...), parameter_constraints)"
            raise ValueError(f"{name} is not in Optuna, which knows no sums of parameters or observed ones: {hint}.")
        check_count(0, seed=0 if seed is None else seed)
        self._search = {name: value for name, value in settings.items() if name in SEARCH}
        Search(**self._search)  # raises
        self._limits = settings.pop("outcome_limits", None)
        self._settings = {name: value for name, value in settings.items() if name not in SEARCH}
        choice = choose(method, self._settings, also=("seed", "fixed", "outcome_limits", *SEARCH))
        if self._limits is not None and not choice.takes("outcome_limits"):
            raise ValueError(f"{method} has no outcome_limits; only robust has them.")
        if not isinstance(fixed, Mapping):
            raise ValueError(f"fixed must give values by name of the parameter, got {quoted(fixed)}.")
        self._method, self._fixed = method, dict(fixed)
        self._seed = secrets.randbits(32) if seed is None else int(seed)

    def reseed_rng(self) -> None:
        """Do nothing: random numbers depend on the number of the trial."""

    def infer_relative_search_space(
        self, study: Study, trial: FrozenTrial | None = None
    ) -> dict[str, BaseDistribution]:
        """Return the parameters of all completed trials that have more than one value, with their latest ranges."""
        if not isinstance(study, Study):
            raise TypeError(f"this takes a study of Optuna, got {quoted(study)}.")
        completed = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
        return {name: d for name, d in _latest_ranges(completed).items() if not d.single()}

    @on_host
    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Return their values for this trial; none before the first trial is completed."""
        if not search_space:
            return {}
        if self._fixed:
            self._check_fixed(study)
        with _one_proposal_at_a_time:  # so that of two threads the second sees what the first chose
            history = _History(study, search_space, trial.number)
            (row,) = self._suggest(study, history, q=1, trial=trial.number).X.tolist()
            proposed = {axis.name: axis.value(v) for axis, v in zip(history.axes, row, strict=True)}
            keep_in_optuna_trial(study, trial, PROPOSED, proposed)
        return proposed

    def _check_fixed(self, study: Study) -> None:
        """Warn of fixed parameters that no completed trial has."""
        completed = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
        if unknown := sorted(set(self._fixed).difference(*(trial.params for trial in completed))):
            known = ", ".join(sorted(set().union(*(trial.params for trial in completed))))
            warnings.warn(f"no trial has the fixed {', '.join(unknown)}; their parameters are {known}.", stacklevel=2)

    @on_host
    def recommend(self, study: Study) -> Recommendation:
        """Return the parameters to use: those of the completed trial of the best posterior mean, constraints included.

        The study may be another sampler's, or loaded without one: ``RobustSampler().recommend(study)``.
        They are not those of the luckiest trial, as ``study.best_params`` are. Parameters that are not modeled are
        those of the latest completed trial there. Raises ``ValueError`` if the study has several objectives, no trial
        is completed or none is predicted to keep the constraints, or they have no parameter in common.
        """
        search_space = self.infer_relative_search_space(study)
        if len(study.directions) > 1:
            hint = "study.best_trials has the best of several, of which outlier_trials and held_trials may be wrong"
            raise ValueError(f"recommend takes one objective; {hint}.")
        history = _History(study, search_space)
        if not (search_space and history.completed):
            raise ValueError(
                "there is nothing to recommend: no trial is completed with a finite value, or none of its parameters "
                "is in all that are, with a range that stays."
            )
        found = self._suggest(study, history, q=0)
        if found.best is None:
            raise ValueError("no completed trial is predicted to keep the constraints; go on with the study.")
        row = history.X[found.best]
        latest = max((t for x, t in zip(history.X, history.completed, strict=True) if x == row), key=lambda t: t.number)
        return Recommendation(dict(latest.params), found.mean)

    @on_host
    def outlier_trials(self, study: Study) -> list[FrozenTrial]:
        """Return completed trials with a value that the model flags as an outlier, in the order of completion."""
        return self._trials(study, "outliers")

    @on_host
    def held_trials(self, study: Study) -> list[FrozenTrial]:
        """Return completed trials with a held value (:class:`bo_robust.Suggestion`), in the order of completion.

        A value there is the best, and plausible only if values vary by factors. The sampler proposes the same
        parameters again first.
        """
        return self._trials(study, "held")

    @on_host
    def slips(self, study: Study) -> list[tuple[str, list[FrozenTrial]]]:
        """Return what may have happened to values that are flagged or held: a kind of :class:`Slip`, and its trials."""
        completed, found = self._analysed(study)
        return [] if found is None else [(one.kind, [completed[row] for row in one.rows]) for one in found.slips]

    def _trials(self, study: Study, which: str) -> list[FrozenTrial]:
        completed, found = self._analysed(study)
        rows = [] if found is None else getattr(found, which).nonzero().flatten().tolist()
        return [completed[row] for row in rows]

    def _analysed(self, study: Study) -> tuple[list[FrozenTrial], Suggestion | None]:
        """The completed trials, and what :func:`suggest` says of them, where there is something to say."""
        search_space = self.infer_relative_search_space(study)
        history = _History(study, search_space)
        some = search_space and history.completed
        return history.completed, self._suggest(study, history, q=0) if some else None

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """Draw uniformly, unless the parameter is fixed; ``ValueError`` if it cannot have that value."""
        if param_name in self._fixed:
            value = self._fixed[param_name]
            try:
                inside = optuna_contains(param_distribution, value)
            except (TypeError, ValueError):  # no such choice
                inside = False
            if not inside:
                raise ValueError(f"fixed[{param_name!r}] must be a value of {param_distribution}, got {quoted(value)}.")
            return value
        seed = int(stream(self._seed, f"optuna.{param_name}", trial.number).integers(2**32))
        return RandomSampler(seed).sample_independent(study, trial, param_name, param_distribution)

    def _suggest(self, study: Study, history: _History, q: int, trial: int = 0) -> Suggestion:
        return suggest(
            replace(history.data(study), outcome_limits=self._limits),
            space=history.space(self._fixed),
            q=q,
            method=self._method,
            settings=self._settings,
            seed=self._seed,
            trial=trial,
            **self._search,
        )


class _Axis:
    """A parameter as one column of numbers: logarithms, numbers, or the number of a choice."""

    def __init__(self, name: str, distribution: Any) -> None:
        self.name, self.distribution = name, distribution
        self.choices: tuple[Any, ...] = getattr(distribution, "choices", ())
        self.values = [float(k) for k in range(len(self.choices))]
        if self.choices:
            self.bounds = (0.0, self.values[-1])
            return
        low, high, step = distribution.low, distribution.high, distribution.step
        half = 0.5 * (step or 0.0)
        self.bounds = (self._scaled(low - half), self._scaled(high + half))
        if step and (high - low) / step < MOST_POINTS:
            self.values = [self._scaled(low + k * step) for k in range(round((high - low) / step) + 1)]

    def number(self, value: Any) -> float:
        """The number of a value."""
        return float(self.distribution.to_internal_repr(value)) if self.choices else self._scaled(value)

    def value(self, number: float) -> Any:
        """The value nearest to a number."""
        d = self.distribution
        if self.choices:
            return self.choices[int(number)]
        value = math.exp(number) if d.log else number
        if d.step:
            value = d.low + round((value - d.low) / d.step) * d.step
        return type(d.low)(min(max(value, d.low), d.high))

    def _scaled(self, value: float) -> float:
        return math.log(value) if self.distribution.log else float(value)


class _History:
    """Trials in a search space, completed ones in the order of their completion; that to be proposed is left out."""

    def __init__(self, study: Study, search_space: dict[str, BaseDistribution], number: int | None = None) -> None:
        self.axes = [_Axis(name, distribution) for name, distribution in search_space.items()]
        trials = [t for t in study.get_trials(deepcopy=False) if t.number != number]
        trials = [t for t in trials if all(_holds(t, *axis) for axis in search_space.items())]
        done = [t for t in trials if t.state == TrialState.COMPLETE and all(map(math.isfinite, t.values))]
        self.completed = sorted(done, key=lambda t: (t.datetime_complete, t.number))
        finished = {t.number for t in done}  # comparing trials would take a second from some thousands on
        rest = [t for t in trials if t.number not in finished and t.state != TrialState.WAITING]
        self.X = self._rows(self.completed)
        self.running = self._rows([t for t in rest if t.state == TrialState.RUNNING])
        self.failed = self._rows([t for t in rest if t.state != TrialState.RUNNING])

    def space(self, fixed: Mapping[str, Any]) -> Space:
        """The designs that there are, where some parameters are fixed."""
        axes = list(enumerate(self.axes))
        return Space(
            bounds=torch.tensor([axis.bounds for axis in self.axes], dtype=torch.float64).T,
            discrete={i: axis.values for i, axis in axes if axis.values and not axis.choices},
            categorical={i: axis.values for i, axis in axes if axis.values and axis.choices},
            fixed={i: axis.number(fixed[axis.name]) for i, axis in axes if axis.name in fixed},
        )

    def data(self, study: Study) -> Data:
        """What the trials say."""
        return Data(
            self.X,
            [t.values for t in self.completed] or torch.empty(0, len(study.directions)),
            maximize=[direction == StudyDirection.MAXIMIZE for direction in study.directions],
            constraints=self.constraints(),
            X_pending=self.running,
            X_failed=self.failed,
            ids=[trial.number for trial in self.completed],
        )

    def constraints(self) -> list[list[float]] | None:
        """Values of all constraints, a row for each completed trial; None where there are none."""
        names = sorted({name for trial in self.completed for name in trial.constraints})
        return [[t.constraints.get(name, math.nan) for name in names] for t in self.completed] if names else None

    def _rows(self, trials: Sequence[FrozenTrial]) -> list[list[float]]:
        return [[axis.number(_params(trial)[axis.name]) for axis in self.axes] for trial in trials]


def _params(trial: FrozenTrial) -> dict[str, Any]:
    """The parameters of a trial; of one that is running also those that its objective has not asked for yet."""
    proposed = trial.system_attrs.get(PROPOSED, {}) if trial.state == TrialState.RUNNING else {}
    return {**proposed, **trial.params}


def _latest_ranges(completed: list[FrozenTrial]) -> dict[str, BaseDistribution]:
    """Parameters that all of these trials have and whose range is stable, each with its latest range."""
    shared = set.intersection(*(set(trial.distributions) for trial in completed)) if completed else set()
    latest = {}
    for name in sorted(shared):
        ranges = [distribution for distribution, _ in groupby(trial.distributions[name] for trial in completed)]
        changes = len(ranges) - 1
        # A user changes a range seldom, and may undo that. One that depends on other parameters keeps changing.
        if 2 * changes < len(completed) and sum(d in ranges[:i] for i, d in enumerate(ranges)) < 2:
            latest[name] = ranges[-1]
    return latest


def _holds(trial: FrozenTrial, name: str, distribution: BaseDistribution) -> bool:
    """Whether the trial has a value of the parameter within this range."""
    if trial.distributions.get(name) == distribution:  # a user may have enqueued a value outside it
        return True
    try:
        return optuna_contains(distribution, _params(trial)[name])
    except (KeyError, ValueError):  # no such parameter or choice
        return False
