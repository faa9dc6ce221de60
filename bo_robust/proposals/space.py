"""The designs that :func:`bo_robust.suggest` chooses from: a box, a mixed space or a list of candidates."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, cast

import torch
from botorch.acquisition import AcquisitionFunction
from botorch.optim import optimize_acqf, optimize_acqf_discrete
from botorch.optim.optimize_mixed import optimize_acqf_mixed_alternating
from botorch.optim.utils import get_X_baseline
from botorch.utils.sampling import get_polytope_samples
from torch import Tensor
from torch.nn.functional import one_hot
from torch.quasirandom import SobolEngine

from bo_robust.proposals.axes import Axis, Categories
from bo_robust.proposals.constraints import WEIGHED, Constraints
from bo_robust.proposals.inputs import Space, rows_of
from bo_robust.utils.input_checks import is_number, quoted
from bo_robust.utils.random import stream

MOST_POINTS = 4096  # combinations of discrete columns up to which every one is evaluated
STARTS = 20  # points around which a mixed search starts; BoTorch draws 20 designs around each
BLOCK = 256  # designs evaluated at once in a mixed space, which bounds the memory
SPREAD = 64  # random designs of which an initial design under constraints takes the one farthest from all others


@dataclass(frozen=True)
class SearchSpace:
    """Designs by their axes, with constraints or as a list; the model sees them in the unit cube.

    A category has a coordinate there for each of its values, and one in searches, the number of the value.
    """

    axes: tuple[Axis, ...]
    candidates: Tensor | None = None  # all designs, where they are finitely many and few
    constraints: Constraints = field(default_factory=Constraints)
    fixed: Mapping[int, float] = field(default_factory=dict)

    @classmethod
    def from_space(cls, described: Space, X: Any) -> SearchSpace:
        """The space of designs without conditions, of which ``X`` are measured."""
        columns = list(described.design_columns)
        if described.candidates is not None:
            both = torch.cat([described.table, rows_of("X", X, len(columns))])
            space = cls(axes_of(described, columns, both), described.table)
        else:
            limits = Constraints(*map(described.constraints, ("equality_constraints", "inequality_constraints")))
            space = cls(axes_of(described, columns, described.table[:, columns]), None, limits)
            space = replace(space, candidates=space._points())
        return space.with_fixed(described.fixed or {})

    def _points(self) -> Tensor | None:
        """All designs, where every column has values of its own and they are few; raises ``ValueError`` if none is."""
        count = math.prod(math.inf if axis.values is None else len(axis.values) for axis in self.axes)
        if count > MOST_POINTS:
            return None
        points = torch.cartesian_prod(*cast(list[Tensor], [axis.values for axis in self.axes])).reshape(int(count), -1)
        points = points[self.constraints.fulfilled(points)]
        if len(points) == 0:
            raise ValueError("no design within the bounds fulfils all sums and inequalities.")
        return points

    def with_fixed(self, fixed: Mapping[int, float]) -> SearchSpace:
        """The space of those designs that have these values, by number of the column."""
        for i, value in fixed.items():
            axis = self.axes[i] if i in range(len(self.axes)) else None
            if (
                axis is None
                or not is_number(value)
                or not axis.low <= value <= axis.high
                or (axis.values is not None and value not in axis.values)
            ):
                raise ValueError(f"fixed[{i}] must be a value of column {i} of the designs, got {quoted(value)}.")
        points = self.candidates
        if points is not None:
            points = points[[all(row[i] == value for i, value in fixed.items()) for row in points.tolist()]]
            if len(points) == 0:
                raise ValueError(f"no candidate has the values of fixed, {dict(fixed)}.")
        return replace(self, candidates=points, fixed=fixed)

    conditioned = False

    @property
    def designs(self) -> SearchSpace:
        return self

    @property
    def bounds(self) -> Tensor:
        """The ends of all columns, ``2 x d``."""
        return torch.tensor([[axis.low, axis.high] for axis in self.axes], dtype=torch.float64).T

    @cached_property
    def counts(self) -> dict[int, int]:
        """Numbers of categories, by number of their column."""
        return {i: axis.categories for i, axis in enumerate(self.axes) if axis.categories}

    @property
    def columns(self) -> int:
        """Coordinates of a design, D."""
        return len(self.axes) + sum(count - 1 for count in self.counts.values())

    @property
    def num_initial(self) -> int:
        plenty = 2 * len(self.axes) + 2
        return min(plenty, max(4, len(self.candidates) // 8)) if self.candidates is not None else plenty

    def rows(self, name: str, x: Any) -> Tensor:
        """The designs as ``k x d``; raises ``ValueError`` unless they are."""
        x = rows_of(name, x, len(self.axes))
        if not (finite := x.isfinite().all(-1)).all():
            raise ValueError(f"{name} must be finite, but row {int((~finite).nonzero()[0])} is not; leave it out.")
        for axis, values in zip(self.axes, x.T, strict=True):
            if len(strange := values[~axis.holds(values)]):
                lacks = f"column {axis.column}, which categorical[{axis.column}] lacks; add it there"
                raise ValueError(f"{name} has {float(strange[0])} in {lacks}.")
        return torch.stack([axis.rounded(values) for axis, values in zip(self.axes, x.T, strict=True)], -1)

    def holds(self, x: Tensor) -> bool:
        """Whether a design, ``1 x d``, may be proposed: within bounds and constraints, with the fixed values."""
        fixed = all(float(x[0, i]) == value for i, value in self.fixed.items())
        if self.candidates is not None:
            return fixed and bool(among(x, self.candidates).any())
        return fixed and bool(self.feasible(x))

    def feasible(self, x: Tensor) -> Tensor:
        """Which designs ``k x d`` are within the bounds and fulfil the constraints, up to errors of weighing."""
        low, high = self.bounds
        return self.constraints.fulfilled(x, WEIGHED) & ((low <= x) & (x <= high)).all(-1)

    def exhausted(self, taken: Tensor) -> bool:
        """Whether the space is finite, and all of its designs are among these."""
        return self.candidates is not None and bool(among(self.candidates, taken).all())

    def encode(self, x: Tensor) -> Tensor:
        """Coordinates ``k x D`` of designs ``k x d``."""
        return _one_hot(torch.stack([a.coordinate(x[:, i]) for i, a in enumerate(self.axes)], -1), self.counts)

    encode_designs = encode  # which have no conditions

    def _designs(self, u: Tensor) -> Tensor:
        """Designs ``k x d`` of the space next to coordinates of a search, with the fixed values."""
        x = torch.stack([axis.value(u[:, i]) for i, axis in enumerate(self.axes)], -1)
        if self.constraints.columns:
            x = torch.stack([self.constraints.repaired(row, self.axes, self.fixed) for row in x])
        for i, value in self.fixed.items():
            x[:, i] = value
        return x

    def initial(self, seed: int, trial: int, taken: Tensor) -> Tensor:
        """The design of the initial design, ``1 x d``: scrambled Sobol, or a candidate that is not taken, if any."""
        if self.candidates is not None:
            order = torch.from_numpy(stream(seed, "suggest.candidates", 0).permutation(len(self.candidates)))
            free = ~among(self.candidates[order], taken)
            # Each pass starts one later: otherwise half of them would never be the design of an even trial.
            place = order[free][0] if free.any() else order[(trial + trial // len(order)) % len(order)]
            return self.candidates[place].unsqueeze(0)
        if self.constraints.columns:
            return self._spread(seed, trial, taken)
        engine = SobolEngine(len(self.axes), scramble=True, seed=seed_of(seed, "initial", 0) % 2**31)
        u = engine.fast_forward(trial).draw(1, dtype=torch.float64)
        for i, count in self.counts.items():  # equal shares
            u[:, i] = (u[:, i] * count).floor()
        return self._designs(u)

    def _spread(self, seed: int, trial: int, taken: Tensor) -> Tensor:
        """Of random designs that fulfil the constraints the one farthest from those taken, ``1 x d``."""
        ends = self._cube("cpu")
        for i, count in self.counts.items():
            ends[1, i] = count - 1e-9  # equal shares
        limits = self.constraints.scaled(self.axes, "cpu")
        drawn = get_polytope_samples(SPREAD, ends, **limits, seed=seed_of(seed, "initial", trial) % 2**31)
        for i in self.counts:
            drawn[:, i] = drawn[:, i].floor()
        designs = self._designs(drawn)
        if len(taken) == 0:
            return designs[:1]
        return designs[torch.cdist(self.encode(designs), self.encode(taken)).amin(-1).argmax()].unsqueeze(0)

    def _cube(self, device: Any) -> Tensor:
        """The ends of all coordinates of a search, ``2 x d``, where every column is a range."""
        return torch.tensor([[0.0], [1.0]], dtype=torch.float64, device=device).repeat(1, len(self.axes))

    def maximize(
        self, acqf: Any, restarts: int, raw_samples: int, device: Any, observed: Tensor, around_best: bool = True
    ) -> Tensor:
        """The design of the largest acquisition value that the search finds, ``1 x d``.

        In a finite space the ``observed`` designs are left out, unless these are all. Discrete columns take their own
        values only, because between them the variance would stay largest. With ``around_best`` the search also starts
        near the best of the model's data, which must then have the columns of designs.
        """
        if self.candidates is not None:
            return self._best_of_list(acqf, device, observed)
        fixed = {i: float(self.axes[i].coordinate(torch.tensor(x, dtype=torch.float64))) for i, x in self.fixed.items()}
        fixed |= {i: 0.0 for i, count in self.counts.items() if count == 1}
        search: dict[str, Any] = {"num_restarts": restarts, "raw_samples": raw_samples, "fixed_features": fixed or None}
        search |= self.constraints.scaled(self.axes, device)
        # Moves of one column cannot keep a sum: such columns are ranges in the search, and rounded after it.
        limited = self.constraints.columns
        grids = {
            i: axis.coordinate(axis.values).tolist()
            for i, axis in enumerate(self.axes)
            if axis.values is not None and not axis.categories and i not in limited
        }
        if grids or self.counts:
            u = self._climb_in_turn(acqf, grids, device, around_best, search)
        else:
            u = self._climb(acqf, device, around_best and not limited, search)
        return self._designs(u.detach().cpu())

    def _best_of_list(self, acqf: Any, device: Any, observed: Tensor) -> Tensor:
        """Evaluate every design."""
        assert self.candidates is not None
        free = ~among(self.candidates, observed)
        table = self.candidates[free] if free.any() else self.candidates
        choices = self.encode(table).to(device)
        point, _ = optimize_acqf_discrete(acqf, q=1, choices=choices, max_batch_size=MOST_POINTS)
        return table[(choices == point).all(-1).nonzero()[0]]

    def _climb(self, acqf: Any, device: Any, around_best: bool, search: dict[str, Any]) -> Tensor:
        """Follow gradients, where all columns are ranges."""
        options: dict[str, Any] = {"sample_around_best": around_best, "sample_around_best_sigma": 0.05}
        # The kinks of a bound end line searches, at good points: so there is no second try.
        search |= {"options": options, "retry_on_optimization_warning": False}
        u: Tensor = optimize_acqf(acqf, self._cube(device), q=1, **search)[0]
        return u

    def _climb_in_turn(
        self, acqf: Any, grids: dict[int, list[float]], device: Any, around_best: bool, search: dict[str, Any]
    ) -> Tensor:
        """Follow gradients in the ranges, in turn with steps of one column on a grid or of categories."""
        ends = self._cube(device)
        codes = {i: [float(k) for k in range(count)] for i, count in self.counts.items() if count > 1}
        for i, grid in (grids | codes).items():
            ends[0, i], ends[1, i] = grid[0], grid[-1]
        search["options"] = {"init_batch_limit": BLOCK, **({} if around_best else {"num_spray_points": 0})}
        return optimize_acqf_mixed_alternating(OneHotAcquisition(acqf, self.counts), ends, grids, codes, **search)[0]


def axes_of(described: Space, columns: Sequence[int], table: Tensor) -> tuple[Axis, ...]:
    """Axes of these columns of a space, each between the smallest and the largest value in a table of them."""
    discrete, categorical = (described.values(name) for name in ("discrete", "categorical"))
    axes: list[Axis] = []
    for i, low, high in zip(columns, table.amin(0).tolist(), table.amax(0).tolist(), strict=True):
        if i in categorical:
            axes.append(Categories(i, low, high, categorical[i]))
        else:  # steps may lie beyond an end by rounding
            axes.append(Axis(i, low, high, discrete[i].clamp(low, high) if i in discrete else None))
    return tuple(axes)


class OneHotAcquisition(AcquisitionFunction):
    """An acquisition function on one column per parameter, where a category is the number of its value."""

    def __init__(self, acqf: AcquisitionFunction, counts: Mapping[int, int]) -> None:
        super().__init__(model=acqf.model)
        self.set_X_pending(None)  # the wrapped function knows them
        self.acqf, self.counts = acqf, counts

    @property
    def X_baseline(self) -> Tensor:
        """Points around which BoTorch's search starts too, in the columns that it sees."""
        baseline = get_X_baseline(self.acqf)
        if baseline is None:
            raise AttributeError("this acquisition function knows no points.")
        return self.decode(_best_of(self.acqf, baseline))

    def forward(self, X: Tensor) -> Tensor:
        return self.acqf(self.encode(X))

    def encode(self, X: Tensor) -> Tensor:
        """The points as the wrapped function sees them, with one column for each value of a category."""
        return _one_hot(X, self.counts)

    def decode(self, X: Tensor) -> Tensor:
        """The points that :meth:`encode` makes these of."""
        columns, start = [], 0
        for i in range(X.shape[-1] - sum(count - 1 for count in self.counts.values())):
            width = self.counts.get(i, 1)
            part = X[..., start : start + width]
            columns.append(part.argmax(-1).to(X) if i in self.counts else part[..., 0])
            start += width
        return torch.stack(columns, -1)


def _best_of(acqf: AcquisitionFunction, X: Tensor) -> Tensor:
    """Points of the largest acquisition values, at most STARTS, out of ``n x d``."""
    if len(X) <= STARTS:
        return X
    with torch.no_grad():
        value = torch.cat([acqf(part) for part in X.unsqueeze(-2).split(BLOCK)])
    return X[value.argsort(descending=True, stable=True)[:STARTS]]


def _one_hot(u: Tensor, counts: Mapping[int, int]) -> Tensor:
    """Replace columns that hold numbers of values by one column for each value."""
    if not counts:
        return u
    parts = [
        one_hot(column.round().long(), counts[i]).to(u) if i in counts else column.unsqueeze(-1)
        for i, column in enumerate(u.unbind(-1))
    ]
    return torch.cat(parts, -1)


def among(X: Tensor, others: Tensor) -> Tensor:
    """Which of the designs ``n x d`` are among others ``k x d``, ``n`` bool."""
    observed = {tuple(row) for row in others.tolist()}
    return torch.tensor([tuple(row) in observed for row in X.tolist()], dtype=torch.bool)


def seed_of(seed: int, purpose: str, index: int) -> int:
    return int(stream(seed, f"suggest.{purpose}", index).integers(2**62))
