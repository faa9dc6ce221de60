"""Conditions: columns that are observed, not chosen, such as the humidity of the day."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from botorch.acquisition.objective import ScalarizedPosteriorTransform
from torch import Tensor

from bo_robust.acquisition import recommend_design
from bo_robust.models.robust.outcome_scale import IDENTITY
from bo_robust.models.verdict import Prediction, reliable_model
from bo_robust.proposals.inputs import Space, rows_of
from bo_robust.proposals.methods import DEFAULT, METHODS, Choice, choose
from bo_robust.proposals.sided_model import SidedModel
from bo_robust.proposals.space import SearchSpace, axes_of
from bo_robust.risk_measures.environments import Environment, FiniteEnvironment
from bo_robust.utils.random import stream

CHOOSING = [name for name, row in METHODS.items() if row.needs_conditions]
ANY_CONDITION = {"environment": {"points": [{"z": 0.0}]}}  # which the conditions seen replace


@dataclass(frozen=True)
class ConditionedSpace:
    """The designs and the conditions seen; its rows ``d`` hold both, its coordinates the conditions last.

    It stands for a :class:`SearchSpace` in :func:`bo_robust.suggest`, whose proposals then are the best designs by an
    acquisition function of designs alone, each with the condition to test it under.
    """

    designs: SearchSpace
    seen: SearchSpace
    design_columns: list[int]
    condition_columns: list[int]
    values: Tensor  # w x d_z, the conditions seen
    counts: Tensor  # how often
    can_be_set: bool
    worst: float
    candidates: None = None  # replicates under one condition say little of the others
    conditioned = True

    @classmethod
    def from_space(cls, space: Space, X: Any) -> ConditionedSpace:
        """The space with its conditions, of which those in ``X`` were seen."""
        conditions, chosen = list(space.conditions), list(space.design_columns)
        X = rows_of("X", X, space.num_columns)
        Z = X[:, conditions]
        values, counts = Z.unique(dim=0, return_counts=True)
        seen = SearchSpace(axes_of(space, conditions, Z if len(Z) else torch.zeros(2, len(conditions)).double()))
        designs = SearchSpace.from_space(space, X[:, chosen])
        return cls(designs, seen, chosen, conditions, values, counts, space.set_conditions, space.worst)

    def at_risk(self, choice: Choice, device: str) -> Choice:
        """The choice with the value at risk over the conditions seen, by V-UCB if it has no such method."""
        chooses = getattr(choice.acquisition, "chooses_conditions", False)
        method = choice if chooses else choose("v-ucb", ANY_CONDITION)
        options = method.acquisition_options | {"environment": self.environment.to(device), "functional": self.worst}
        return choice._replace(acquisition=method.acquisition, acquisition_options=options)

    @property
    def columns(self) -> int:
        return self.designs.columns + self.seen.columns

    @property
    def num_initial(self) -> int:
        return self.designs.num_initial + 2 * len(self.condition_columns)

    @cached_property
    def environment(self) -> FiniteEnvironment:
        """The conditions seen, as often as they were."""
        return FiniteEnvironment(self.seen.encode(self.values), self.counts.double() / self.counts.sum())

    def rows(self, name: str, x: Any) -> Tensor:
        """The designs with conditions as ``k x d``; conditions of designs under way may be NaN."""
        x = rows_of(name, x, len(self.design_columns) + len(self.condition_columns))
        x = x.clone()
        x[:, self.design_columns] = self.designs.rows(name, x[:, self.design_columns])
        Z = x[:, self.condition_columns]
        some = [axis.low if axis.values is None else float(axis.values[0]) for axis in self.seen.axes]
        self.seen.rows(name, Z if name == "X" else Z.where(Z.isfinite(), Z.new_tensor(some)))
        return x

    def feasible(self, x: Tensor) -> Tensor:
        """Which designs fulfil the constraints, ``k`` bool."""
        return self.designs.feasible(x[:, self.design_columns])

    def encode(self, x: Tensor) -> Tensor:
        """Coordinates ``k x D``, the conditions last."""
        return torch.cat([self.encode_designs(x), self.seen.encode(x[:, self.condition_columns])], -1)

    def encode_designs(self, x: Tensor) -> Tensor:
        """Coordinates of the designs alone."""
        return self.designs.encode(x[:, self.design_columns])

    def exhausted(self, taken: Tensor) -> bool:
        """False: a design may be measured under every condition."""
        return False

    def initial(self, seed: int, trial: int, taken: Tensor) -> Tensor:
        """A design of the initial design, under a condition that was seen."""
        x = self.designs.initial(seed, trial, taken[:, self.design_columns])
        if not (self.can_be_set and len(self.values)):
            return self._joined(x, torch.full((1, len(self.condition_columns)), math.nan).double())
        place = int(stream(seed, "suggest.conditions", trial).integers(len(self.values)))
        return self._joined(x, self.values[place : place + 1])

    def maximize(self, acqf: Any, restarts: int, raw_samples: int, device: Any, observed: Tensor) -> Tensor:
        """The design of the largest acquisition value, with the condition to test it under, ``1 x d``."""
        bound, space, columns = getattr(acqf, "acqf", acqf), self.designs, self.design_columns
        if bound.takes_conditions:
            space, columns = self._pairs, [*columns, *self.condition_columns]
        x = space.maximize(acqf, restarts, raw_samples, device, observed[:, columns], around_best=False)
        x = x[:, : len(self.design_columns)]
        if not self.can_be_set:
            return self._joined(x, torch.full((1, len(self.condition_columns)), math.nan).double())
        place = bound.select_condition(self.designs.encode(x).to(device)).index
        return self._joined(x, self.values[place.cpu()])

    @cached_property
    def _pairs(self) -> SearchSpace:
        """The space of designs with conditions, in the model's order; in a list each design is under those seen."""
        X, Z = self.designs.candidates, self.values
        both = None if X is None else torch.cat([X.repeat_interleave(len(Z), 0), Z.repeat(len(X), 1)], -1)
        return replace(self.designs, axes=(*self.designs.axes, *self.seen.axes), candidates=both)

    def _joined(self, x: Tensor, z: Tensor) -> Tensor:
        both = x.new_empty(1, len(self.design_columns) + len(self.condition_columns))
        both[:, self.design_columns], both[:, self.condition_columns] = x, z
        return both


def best_at_risk(sided: SidedModel, U: Tensor, environment: Environment, functional: Any) -> tuple[int, Prediction]:
    """The place of the best of designs ``k x d_x`` by a functional over conditions; its value there, and an interval.

    They are those of :func:`bo_robust.acquisition.recommend_design` by the reliable observations of a ``SidedModel``,
    within the ``outcome_limits`` and the domain of a learnt scale. Where small observations are good, the functional is
    that of -f: a lower tail becomes the upper one.
    """
    model, sign = sided.model, -1.0 if sided.maximize is False else 1.0
    domain = getattr(model, "outcome_scale", IDENTITY).domain
    lows, highs = zip(domain, getattr(model, "outcome_limits", domain), strict=True)
    low, high = sorted((sign * max(lows), sign * min(highs)))
    signed = ScalarizedPosteriorTransform(U.new_tensor([sign]))
    found = recommend_design(reliable_model(model, sided.maximize), environment, functional, U, signed, (low, high))
    ends = sorted((sign * end for end in found.interval), key=float)
    return int(found.index), Prediction(sign * found.value, *ends)


def encoded_space(space: Space, X: Any, method: str = DEFAULT) -> Any:
    """The space of designs, with its conditions if it has some; raises ``ValueError`` where there is none."""
    if len(space.conditions) == 0:
        return SearchSpace.from_space(space, X)
    if method in [*METHODS] and method not in (DEFAULT, *CHOOSING):  # others are unknown, which `choose` says
        raise ValueError(f"conditions need the default method or one that chooses them: {', '.join(CHOOSING)}.")
    return ConditionedSpace.from_space(space, X)
