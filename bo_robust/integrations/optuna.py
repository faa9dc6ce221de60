"""Our methods in Optuna: ``optuna.create_study(sampler=RobustSampler())``.

A proposal is a function of the seed, the trial's number and what the storage holds, nothing else. So a study that is
opened again goes on as it would have, and workers may be several processes with one seed.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import secrets
from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np
import torch
from botorch.acquisition import AcquisitionFunction
from botorch.optim.optimize_mixed import optimize_acqf_mixed_alternating
from optuna._transform import _SearchSpaceTransform
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution
from optuna.samplers import BaseSampler, RandomSampler
from optuna.search_space import intersection_search_space
from optuna.study import Study, StudyDirection
from optuna.trial import FrozenTrial, TrialState
from torch import Tensor

from bo_robust.methods import DEFAULT, METHODS
from bo_robust.random import stream
from bo_robust.study.policy import History, Policy, Recommendation
from bo_robust.study.settings import StudySettings, complete
from bo_robust.study.space import Arms, Box, Float
from bo_robust.study.steps import seeded
from bo_robust.validation import check_count

__all__ = ["RobustSampler", "candidates_func"]

MAX_ARMS = 4096  # so many combinations of discrete parameters are all looked at


class RobustSampler(BaseSampler):
    """One of our methods as a sampler.

    Parameters reach the model in the unit box: as logarithms where the distribution is logarithmic; whole numbers and
    steps with an equal share each; categorical ones as one column per choice. If discrete parameters alone have at most
    4096 combinations, every one is looked at, and may come again. Otherwise discrete parameters are searched from
    several starts, one parameter at a time (those of more than 20 values as continuous ones). Parameters that are not
    in every completed trial with the same distribution (conditional ones) are drawn uniformly and not modelled. So are
    all parameters of the first trial, of which nothing is known.

    Rewards are the values of completed trials in the order of their completion, with the sign turned where the study
    minimises. Their center and scale are given, or follow from the rewards at some rounds. Trials that were pruned,
    failed or returned an infinite value count as the worst reward so far (of those not truncated). Running trials have
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
        ValueError: if a method or setting is unknown or out of range; in a study with several objectives.

    Example:
        >>> study = optuna.create_study(sampler=RobustSampler(seed=0), storage="sqlite:///study.db")
        >>> study.optimize(objective, n_trials=50)
    """

    def __init__(self, method: str = DEFAULT, *, seed: int | None = None, **settings: Any) -> None:
        _check(method, settings)
        check_count(0, seed=0 if seed is None else seed)
        self._method, self._settings = method, settings
        self._seed = secrets.randbits(32) if seed is None else seed
        self._last: tuple[Any, _Space, _DiscretePolicy] | None = None

    def reseed_rng(self) -> None:
        """Do nothing: random numbers depend on the number of the trial."""

    def infer_relative_search_space(
        self, study: Study, trial: FrozenTrial | None = None
    ) -> dict[str, BaseDistribution]:
        """Return the parameters of all completed trials that have more than one value."""
        if len(study.directions) > 1:
            raise ValueError("RobustSampler optimises one objective; make a study with one direction.")
        known = intersection_search_space(study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,)))
        return {name: d for name, d in known.items() if not d.single()}

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Return their values for this trial; none before the first trial is completed."""
        if not search_space:
            return {}
        space, policy = self._prepare(study, search_space)
        point = policy.propose(_history(study, trial, space), trial.number)
        played = _played(study, space).get(tuple(point.values()))
        if played is None:
            return space.untransform(point)
        return {name: played.params[name] for name in search_space}  # as they were, to the last bit

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
            raise ValueError("no parameter is in all completed trials: there is nothing to recommend.")
        space, policy = self._prepare(study, search_space)
        found = policy.recommend(_history(study, None, space))
        played = _played(study, space).get(tuple(found.x.values()))
        params = space.untransform(found.x) if played is None else dict(played.params)
        return dataclasses.replace(found, x=params)

    def set_aside(self, study: Study) -> list[FrozenTrial]:
        """Return completed trials whose values the model does not believe (or truncates), in the order of completion.

        The list is empty if no trial is completed, or they have no parameter in common.
        """
        search_space = self.infer_relative_search_space(study)
        if not search_space:
            return []
        space, policy = self._prepare(study, search_space)
        known = _completed(study, space)
        return [known[row][0] for row in policy.set_aside(_history(study, None, space))] if known else []

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """Draw uniformly."""
        seed = int(stream(self._seed, f"optuna.{param_name}", trial.number).integers(2**32))
        return RandomSampler(seed).sample_independent(study, trial, param_name, param_distribution)

    def _prepare(self, study: Study, search_space: dict[str, BaseDistribution]) -> tuple[_Space, _DiscretePolicy]:
        """The policy on this search space, kept because it remembers the hyperparameters it learned."""
        key = (study.study_name, study.direction, tuple(search_space.items()))
        if self._last is None or self._last[0] != key:
            space = _Space(search_space)
            given = self._settings | {"minimize": study.direction == StudyDirection.MINIMIZE}
            settings = complete(self._method, given, space.unit)
            self._last = key, space, _DiscretePolicy(space, settings, self._seed)
        return self._last[1:]


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
            raise ValueError("our methods take one objective and no constraints.")
        space = _unit_box(bounds.shape[-1])
        low, side = bounds[0], bounds[1] - bounds[0]

        def points(x: Tensor | None) -> list[dict[str, float]]:
            rows = [] if x is None else ((x - low) / side).tolist()
            return [dict(zip(space.names, row, strict=True)) for row in rows]

        told, running = points(train_x), points(pending_x)
        history = History(list(zip(told, train_obj[:, 0].tolist(), strict=True)), [], running)
        chosen = complete(method, settings, space)
        u = Policy(space, chosen, seed).propose(history, len(told) + len(running))
        return low + side * low.new_tensor([space.to_unit(u)])

    return propose


class _Space:
    """Optuna's parameters and the unit box."""

    def __init__(self, search_space: dict[str, BaseDistribution]) -> None:
        self.distributions = search_space
        self._transform = _SearchSpaceTransform(search_space, transform_0_1=True)
        self.names = _unit_box(len(self._transform.bounds)).names
        self.values = [_values(d) for d in search_space.values()]
        self.unit: Box | Arms = _unit_box(len(self.names))
        if all(v is not None for v in self.values) and math.prod(len(v or ()) for v in self.values) <= MAX_ARMS:
            combined = itertools.product(*(v or () for v in self.values))
            self.unit = Arms([self.transform(dict(zip(search_space, v, strict=True))) for v in combined])

    def transform(self, params: dict[str, Any]) -> dict[str, float]:
        return dict(zip(self.names, self._transform.transform(params).tolist(), strict=True))

    def untransform(self, point: dict[str, float]) -> dict[str, Any]:
        return self._transform.untransform(np.array([point[name] for name in self.names]))

    def holds(self, trial: FrozenTrial) -> bool:
        return all(trial.distributions.get(name) == d for name, d in self.distributions.items())

    def coordinates(self) -> list[tuple[bool, list[float] | None]]:
        """For every parameter, whether it is categorical, and its values (numbers of choices, else in the unit box)."""
        rows: list[tuple[bool, list[float] | None]] = []
        for (name, d), values in zip(self.distributions.items(), self.values, strict=True):
            if isinstance(d, CategoricalDistribution):
                rows.append((True, [float(i) for i in range(len(d.choices))]))
            elif values is None:
                rows.append((False, None))
            else:
                alone = _SearchSpaceTransform({name: d}, transform_0_1=True)
                rows.append((False, [float(alone.transform({name: v})[0]) for v in values]))
        return rows


class _DiscretePolicy(Policy):
    """A policy that only looks at values that discrete parameters have.

    Between these values the variance stays largest for ever at the points farthest from all of them, and rounding
    brings every such point back to a value that was played.
    """

    def __init__(self, space: _Space, settings: StudySettings, seed: int) -> None:
        super().__init__(space.unit, settings, seed)
        self._coordinates = space.coordinates()

    def _maximise(self, acqf: AcquisitionFunction, seed: int, history: History) -> tuple[dict[str, float], float]:
        discrete = {i: v for i, (categorical, v) in enumerate(self._coordinates) if v is not None and not categorical}
        choices = {i: v for i, (categorical, v) in enumerate(self._coordinates) if v is not None and categorical}
        if isinstance(self.space, Arms) or not (discrete or choices):
            return super()._maximise(acqf, seed, history)
        ends = [(0.0, 1.0) if v is None else (v[0], v[-1]) for _, v in self._coordinates]
        bounds = torch.tensor(ends, dtype=torch.float64, device=self.settings.common.device).T
        encoded = _Encoded(acqf, self._coordinates)
        with seeded(seed, self.settings.common.device):
            x, value = optimize_acqf_mixed_alternating(
                encoded,
                bounds,
                discrete,
                choices,
                num_restarts=self.settings.common.restarts,
                raw_samples=self.settings.common.raw_samples,
            )
        point = encoded.columns(x)[0].tolist()
        return dict(zip(self.space.names, point, strict=True)), float(cast(Tensor, value))


class _Encoded(AcquisitionFunction):
    """An acquisition on one column per parameter, where a choice is its number."""

    def __init__(self, acqf: AcquisitionFunction, coordinates: list[tuple[bool, list[float] | None]]) -> None:
        super().__init__(model=acqf.model)
        self.set_X_pending(None)  # the wrapped acquisition knows them
        self.acqf, self._coordinates = acqf, coordinates

    def columns(self, X: Tensor) -> Tensor:
        """The columns that the model knows, one per choice of a categorical parameter."""
        parts = []
        for x, (categorical, values) in zip(X.unbind(-1), self._coordinates, strict=True):
            if categorical and values is not None:
                parts.append(torch.nn.functional.one_hot(x.round().long(), len(values)).to(X))
            else:
                parts.append(x.unsqueeze(-1))
        return torch.cat(parts, -1)

    def forward(self, X: Tensor) -> Tensor:
        return self.acqf(self.columns(X))


def _unit_box(d: int) -> Box:
    return Box({f"column{i}": Float(0.0, 1.0) for i in range(d)})


def _values(distribution: Any) -> Sequence[Any] | None:
    """All values of a discrete parameter; None for a continuous one, or more than MAX_ARMS values."""
    if isinstance(distribution, CategoricalDistribution):
        return distribution.choices
    if distribution.step is None:
        return None
    count = round((distribution.high - distribution.low) / distribution.step) + 1
    if count > MAX_ARMS:
        return None
    values = [distribution.low + i * distribution.step for i in range(count)]
    # low + i * step may exceed high by rounding.
    return [min(v, distribution.high) for v in values] if isinstance(distribution, FloatDistribution) else values


def _played(study: Study, space: _Space) -> dict[tuple[float, ...], FrozenTrial]:
    """The latest completed trial of every point of the space."""
    trials = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    return {tuple(space.transform(t.params).values()): t for t in trials if space.holds(t)}


def _completed(study: Study, space: _Space) -> list[tuple[FrozenTrial, float]]:
    """Trials of this space with a finite value, in the order of their completion."""
    trials = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    known = [(t, t.value) for t in trials if space.holds(t) and t.value is not None and math.isfinite(t.value)]
    return sorted(known, key=lambda pair: (pair[0].datetime_complete, pair[0].number))


def _history(study: Study, trial: FrozenTrial | None, space: _Space) -> History:
    """What the trials say about this space; ``trial`` is about to be proposed and left out."""
    number = None if trial is None else trial.number
    others = [t for t in study.get_trials(deepcopy=False) if t.number != number and space.holds(t)]
    known = _completed(study, space)
    done = {t.number for t, _ in known}
    open_ = [t for t in others if t.number not in done and t.state != TrialState.WAITING]
    running = [space.transform(t.params) for t in open_ if t.state == TrialState.RUNNING]
    failed = [space.transform(t.params) for t in open_ if t.state != TrialState.RUNNING]
    told = [(space.transform(t.params), float(value)) for t, value in known]
    return History(told, failed, running)


def _check(method: str, settings: dict[str, Any]) -> None:
    """Raise ``ValueError`` on what is wrong in every search space."""
    conditional = [name for name, made in METHODS.items() if "environment" in made.defaults()]
    if method in conditional:
        known = ", ".join(name for name in METHODS if name not in conditional)
        raise ValueError(f"{method} needs conditions, which Optuna does not know of; choose one of {known}.")
    if "minimize" in settings:
        raise ValueError("minimize is the direction of the Optuna study; leave it out.")
    # Lengthscales are left out because the number of columns is not known yet.
    complete(method, {k: v for k, v in settings.items() if k != "lengthscale"}, _unit_box(2))
