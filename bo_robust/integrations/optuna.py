"""Our methods in Optuna: ``optuna.create_study(sampler=RobustSampler())``.

A proposal is a function of the seed, the trial's number and what the storage holds, nothing else. So a study that is
opened again goes on as it would have, and workers may be several processes with one seed.
"""

from __future__ import annotations

import dataclasses
import math
import secrets
from collections.abc import Callable
from itertools import groupby
from typing import Any

from optuna.distributions import BaseDistribution, CategoricalDistribution, IntDistribution
from optuna.samplers import BaseSampler, RandomSampler
from optuna.study import Study, StudyDirection
from optuna.trial import FrozenTrial, TrialState
from torch import Tensor

from bo_robust.methods import DEFAULT, METHODS
from bo_robust.random import stream
from bo_robust.study.policy import History, Policy, Recommendation
from bo_robust.study.records import WITH_CONSTRAINTS
from bo_robust.study.settings import complete
from bo_robust.study.space import Box, Categorical, Float, Integer, Parameter, Point, Space
from bo_robust.validation import check_count, quoted

__all__ = ["RobustSampler", "candidates_func"]


class RobustSampler(BaseSampler):
    """One of our methods as a sampler.

    Parameters reach the model in the unit box: as logarithms where the distribution is logarithmic; whole numbers and
    steps with an equal share each; categorical ones as one column per choice. If discrete parameters alone have at most
    4096 combinations, every one is looked at, and may come again. Otherwise discrete parameters are searched from
    several starts, one parameter at a time (those of more than 20 values as continuous ones). Parameters that are not
    in every completed trial (conditional ones) are drawn uniformly and not modelled. So are all parameters of the first
    trial, of which nothing is known.

    If a later run changes the range of a parameter, that of the completed trial of the largest number counts. Trials
    whose value is outside it are left out of the model, all others count. A value proposed outside the range of its own
    trial is drawn uniformly from that range. A range that changes in every second trial or more often, or came back
    more than once, depends on other parameters: such a parameter counts as conditional.

    Rewards are the values of completed trials in the order of their completion, with the sign turned where the study
    minimises. Their center and scale are given, or follow from the rewards at some rounds. Trials that were pruned,
    failed or returned an infinite value keep ``robust`` away from where they are likelier than completed ones; for
    other methods they count as the worst reward so far (of those not truncated). Running trials have
    taught nothing: their means stay as they are, and their variances are as if they were observed, so that they are not
    proposed again. (A worker that died leaves a running trial behind; ``RDBStorage(heartbeat_interval=...)`` turns it
    into a failed one.)

    Args:
        method: A name in :data:`bo_robust.methods.METHODS`, such as that of HE-GP-UCB for an unknown kernel; not one
            that chooses conditions as well (V-UCB). The default sees through outliers without any setting.
        seed: Seed of all random numbers, >= 0; None: drawn.
        settings: As for :class:`bo_robust.study.Study`: see :mod:`bo_robust.methods` and
            :mod:`bo_robust.study.settings`. ``minimize`` is the direction of the Optuna study.

    Raises:
        ValueError: if a method or setting is unknown or out of range; in a study with several objectives or
            constraints.

    Example:
        >>> study = optuna.create_study(sampler=RobustSampler(seed=0), storage="sqlite:///study.db")
        >>> study.optimize(objective, n_trials=50)
    """

    def __init__(self, method: str = DEFAULT, *, seed: int | None = None, **settings: Any) -> None:
        _check(method, settings)
        check_count(0, seed=0 if seed is None else seed)
        self._method, self._settings = method, settings
        self._seed = secrets.randbits(32) if seed is None else seed
        self._last: tuple[Any, Policy] | None = None

    def reseed_rng(self) -> None:
        """Do nothing: random numbers depend on the number of the trial."""

    def infer_relative_search_space(
        self, study: Study, trial: FrozenTrial | None = None
    ) -> dict[str, BaseDistribution]:
        """Return the parameters of all completed trials that have more than one value, with their latest ranges."""
        if not hasattr(study, "directions"):
            raise TypeError(f"this takes a study of Optuna, got {quoted(study)}.")
        if len(study.directions) > 1:
            raise ValueError(f"RobustSampler optimises one objective; for several {WITH_CONSTRAINTS}.")
        completed = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
        if any(key.startswith("constraints") for trial in completed for key in trial.system_attrs):
            raise ValueError(f"RobustSampler takes no constraints; for these {WITH_CONSTRAINTS}.")
        known = _latest_ranges(completed)
        return {name: d for name, d in known.items() if not d.single()}

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Return their values for this trial; none before the first trial is completed."""
        if not search_space:
            return {}
        history = _history(study, trial, search_space)
        return self._policy(study, search_space).propose(history, trial.number)

    def recommend(self, study: Study) -> Recommendation:
        """Recommend the parameters of the largest lower confidence bound, with their certificate.

        They are those of a completed trial (or of any combination, where discrete parameters alone are all looked at),
        and not of the luckiest, as ``study.best_params`` are. Parameters that are not modelled are those of the latest
        completed trial there. See :class:`bo_robust.study.Recommendation`. Raises ``ValueError`` if no trial is
        completed, or they have no parameter in common.

        Example:
            >>> study.optimize(objective, n_trials=50)
            >>> best = study.sampler.recommend(study)
        """
        search_space = self.infer_relative_search_space(study)
        if not search_space:
            raise ValueError(
                "there is nothing to recommend: no trial is completed, or none of its parameters is in all that are, "
                "with a range that stays."
            )
        policy = self._policy(study, search_space)
        best = policy.recommend(_history(study, None, search_space))
        for trial in study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))[::-1]:
            if _holds(trial, search_space) and _same(policy.space, trial.params, best.x):
                return dataclasses.replace(best, x=dict(trial.params))
        return best

    def set_aside(self, study: Study) -> list[FrozenTrial]:
        """Return completed trials whose values the model does not believe (or truncates), in the order of completion.

        The list is empty if no trial is completed, or they have no parameter in common.
        """
        search_space = self.infer_relative_search_space(study)
        if not search_space:
            return []
        known = _completed(study, search_space)
        history = _history(study, None, search_space)
        return [known[row][0] for row in self._policy(study, search_space).set_aside(history)] if known else []

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """Draw uniformly."""
        seed = int(stream(self._seed, f"optuna.{param_name}", trial.number).integers(2**32))
        return RandomSampler(seed).sample_independent(study, trial, param_name, param_distribution)

    def _policy(self, study: Study, search_space: dict[str, BaseDistribution]) -> Policy:
        """The policy on this search space, kept because it remembers the hyperparameters it learned."""
        key = (study.study_name, study.direction, tuple(search_space.items()))
        if self._last is None or self._last[0] != key:
            space = Box({name: _parameter(distribution) for name, distribution in search_space.items()})
            given = self._settings | {"minimize": study.direction == StudyDirection.MINIMIZE}
            self._last = key, Policy(space, complete(self._method, given, space), self._seed)
        return self._last[1]


def candidates_func(
    method: str = DEFAULT, seed: int = 0, **settings: Any
) -> Callable[[Tensor, Tensor, Tensor | None, Tensor, Tensor | None], Tensor]:
    """One of our methods for ``optuna_integration.BoTorchSampler(candidates_func=...)``.

    :class:`RobustSampler` does more: exact search over discrete parameters, the order of completion, failed trials.
    Arguments and errors are its own; constraints or several objectives raise ``ValueError`` when the function is
    called. Pass ``consider_running_trials=True`` to the sampler to have running trials hallucinated. Random numbers
    depend on the seed and the number of rewards and running trials.

    Returns:
        A function of points ``n x d``, rewards to be maximised ``n x 1``, constraints (None), the box ``2 x d`` and
        running points ``k x d`` or None, returning the next point ``1 x d``.
    """
    _check(method, settings)
    check_count(0, seed=seed)

    def propose(
        train_x: Tensor, train_obj: Tensor, train_con: Tensor | None, bounds: Tensor, pending_x: Tensor | None
    ) -> Tensor:
        if train_con is not None or train_obj.shape[-1] != 1:
            raise ValueError(f"our methods take one objective and no constraints here: {WITH_CONSTRAINTS}.")
        space = _unit_box(bounds.shape[-1])
        low, side = bounds[0], bounds[1] - bounds[0]

        def points(x: Tensor | None) -> list[dict[str, float]]:
            rows = [] if x is None else ((x - low) / side).tolist()
            return [dict(zip(space.names, row, strict=True)) for row in rows]

        told, running = points(train_x), points(pending_x)
        history = History(list(zip(told, train_obj[:, 0].tolist(), strict=True)), [], running)
        chosen = complete(method, settings, space)
        u = Policy(space, chosen, seed).propose(history, len(told) + len(running))
        return low + side * low.new_tensor([space.encode(u)])

    return propose


def _unit_box(d: int) -> Box:
    return Box({f"column{i}": Float(0.0, 1.0) for i in range(d)})


def _parameter(distribution: Any) -> Parameter:
    """The parameter of a study that has the same values."""
    if isinstance(distribution, CategoricalDistribution):
        return Categorical(distribution.choices)
    made = Integer if isinstance(distribution, IntDistribution) else Float
    return made(distribution.low, distribution.high, distribution.log, distribution.step)


def _latest_ranges(completed: list[FrozenTrial]) -> dict[str, BaseDistribution]:
    """Parameters that all of these trials have, each with its latest range; without those whose range does not stay."""
    shared = set.intersection(*(set(trial.distributions) for trial in completed)) if completed else set()
    latest = {}
    for name in sorted(shared):
        ranges = [distribution for distribution, _ in groupby(trial.distributions[name] for trial in completed)]
        changes = len(ranges) - 1
        # A user changes a range seldom, and may undo that. One that depends on other parameters keeps changing.
        if 2 * changes < len(completed) and sum(d in ranges[:i] for i, d in enumerate(ranges)) < 2:
            latest[name] = ranges[-1]
    return latest


def _holds(trial: FrozenTrial, search_space: dict[str, BaseDistribution]) -> bool:
    """Whether the trial has a value of every parameter within its range."""
    return all(name in trial.params and _has(trial, name, d) for name, d in search_space.items())


def _has(trial: FrozenTrial, name: str, distribution: BaseDistribution) -> bool:
    if trial.distributions[name] == distribution:
        return True
    try:
        _parameter(distribution).check(trial.params[name])
    except ValueError:
        return False
    return True


def _point(trial: FrozenTrial, search_space: dict[str, BaseDistribution]) -> Point:
    return {name: trial.params[name] for name in search_space}


def _same(space: Space, x: Point, y: Point) -> bool:
    """Whether two points are one; a value of a grid may be rounded."""
    return all(abs(u - v) <= 1e-9 for u, v in zip(space.encode(x), space.encode(y), strict=True))


def _completed(study: Study, search_space: dict[str, BaseDistribution]) -> list[tuple[FrozenTrial, float]]:
    """Trials of this space with a finite value, in the order of their completion."""
    trials = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    known = [(t, t.value) for t in trials if _holds(t, search_space) and t.value is not None and math.isfinite(t.value)]
    return sorted(known, key=lambda pair: (pair[0].datetime_complete, pair[0].number))


def _history(study: Study, trial: FrozenTrial | None, search_space: dict[str, BaseDistribution]) -> History:
    """What the trials say about this space; ``trial`` is about to be proposed and left out."""
    number = None if trial is None else trial.number
    others = [t for t in study.get_trials(deepcopy=False) if t.number != number and _holds(t, search_space)]
    known = _completed(study, search_space)
    done = {t.number for t, _ in known}
    tried = [t for t in others if t.number not in done and t.state != TrialState.WAITING]
    running = [_point(t, search_space) for t in tried if t.state == TrialState.RUNNING]
    failed = [_point(t, search_space) for t in tried if t.state != TrialState.RUNNING]
    return History([(_point(t, search_space), float(value)) for t, value in known], failed, running)


def _check(method: str, settings: dict[str, Any]) -> None:
    """Raise ``ValueError`` on what is wrong in every search space."""
    conditional = [name for name, made in METHODS.items() if "environment" in made.defaults()]
    if method in conditional:
        known = ", ".join(name for name in METHODS if name not in conditional)
        raise ValueError(f"{method} needs conditions, which Optuna does not know of; choose one of {known}.")
    for name in {"minimize", "maximize"} & set(settings):
        raise ValueError(f"{name} is the direction of the Optuna study; give create_study direction='{name}'.")
    # Lengthscales are left out because the number of columns is not known yet.
    complete(method, {k: v for k, v in settings.items() if k != "lengthscale"}, _unit_box(2))
