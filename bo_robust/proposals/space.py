"""The designs that :func:`bo_robust.suggest` chooses from: a box, a mixed space or a list of candidates."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Any, cast

import numpy as np
import torch
from botorch.acquisition import AcquisitionFunction
from botorch.optim import optimize_acqf, optimize_acqf_discrete
from botorch.optim.optimize_mixed import optimize_acqf_mixed_alternating
from botorch.optim.utils import get_X_baseline
from botorch.utils.sampling import get_polytope_samples
from torch import Tensor
from torch.nn.functional import one_hot
from torch.quasirandom import SobolEngine

from bo_robust.proposals.inputs import Space
from bo_robust.utils.input_checks import quoted
from bo_robust.utils.random import stream

MOST_POINTS = 4096  # combinations of discrete columns up to which every one is evaluated
WEIGHED = 0.02  # of a sum, by which a design as it was weighed may differ; it may be measured a second time
EXACT = 1e-6  # of a constraint's largest term, up to which it counts as fulfilled
STARTS = 20  # points around which a mixed search starts; BoTorch draws 20 designs around each
BLOCK = 256  # designs evaluated at once in a mixed space, which bounds the memory
SPREAD = 64  # random designs of which an initial design under constraints takes the one farthest from all others

Constraint = tuple[Sequence[int], Sequence[float], float]  # columns, coefficients and right-hand side, as in BoTorch


@dataclass(frozen=True)
class SearchSpace:
    """Columns of designs, and their coordinates in the unit cube: one per number, one per value of a category."""

    bounds: Tensor  # 2 x d
    candidates: Tensor | None
    discrete: Mapping[int, Tensor]
    categorical: Mapping[int, Tensor]
    fixed: Mapping[int, float] = field(default_factory=dict)
    equalities: tuple[Constraint, ...] = ()  # sum of coefficients times columns = right-hand side
    inequalities: tuple[Constraint, ...] = ()  # >=

    @classmethod
    def from_space(cls, described: Space, X: Any) -> SearchSpace:
        """The space without its conditions, and with what is fixed; raises ``ValueError`` where there is none."""
        if (described.bounds is None) == (described.candidates is None):
            raise ValueError("give either bounds (2 x d) or candidates (N x d): they say which designs there are.")
        discrete, categorical = (
            {int(i): numbers("discrete and categorical values", sorted(v)) for i, v in (values or {}).items()}
            for values in (described.discrete, described.categorical)
        )
        kinds = "equality_constraints", "inequality_constraints"
        if described.candidates is not None:
            if any(getattr(described, kind) for kind in kinds):
                raise ValueError("candidates say which designs there are; leave out those that break a constraint.")
            table = numbers("candidates", described.candidates)
            if table.ndim != 2 or len(table) < 2 or not table.isfinite().all():
                raise ValueError(f"candidates must be N x d finite numbers, N >= 2, got {tuple(table.shape)}.")
            seen = numbers("X", X).reshape(-1, table.shape[-1]) if len(X) else table
            both = torch.cat([table, seen])
            space = cls(torch.stack([both.amin(0), both.amax(0)]), table, discrete, categorical)
            return space.with_fixed(described.fixed or {})
        box = numbers("bounds", described.bounds)
        if box.ndim != 2 or len(box) != 2 or not (box.isfinite().all() and (box[0] < box[1]).all()):
            form = "2 x d finite numbers, the lower below the upper"
            raise ValueError(f"bounds must be {form}, got {quoted(described.bounds)}.")
        limits = (
            tuple(_constraint(kind, one, box.shape[-1], categorical) for one in getattr(described, kind))
            for kind in kinds
        )
        space = cls(box, None, discrete, categorical, {}, *limits)
        return replace(space, candidates=space._points()).with_fixed(described.fixed or {})

    def _points(self) -> Tensor | None:
        """All designs, where every column has values of its own and they are few; raises ``ValueError`` if none is."""
        by_column = [self.discrete.get(i, self.categorical.get(i)) for i in range(self.bounds.shape[-1])]
        count = math.prod(math.inf if v is None else len(v) for v in by_column)
        if count > MOST_POINTS:
            return None
        points = torch.cartesian_prod(*cast(list[Tensor], by_column)).reshape(int(count), -1)
        if self.equalities or self.inequalities:
            points = points[[self._excess(x) == 0.0 for x in points]]
            if len(points) == 0:
                raise ValueError("no design fulfils equality_constraints and inequality_constraints.")
        return points

    def with_fixed(self, fixed: Mapping[int, float]) -> SearchSpace:
        """The space of those designs that have these values, by number of the column."""
        for i, value in fixed.items():
            allowed = self.categorical.get(i, self.discrete.get(i))
            inside = 0 <= i < self.bounds.shape[-1] and bool(self.bounds[0, i] <= value <= self.bounds[1, i])
            if not inside or (allowed is not None and value not in allowed):
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
    def columns(self) -> int:
        """Coordinates of a design, D."""
        return self.bounds.shape[-1] + sum(len(v) - 1 for v in self.categorical.values())

    @property
    def num_initial(self) -> int:
        plenty = 2 * self.bounds.shape[-1] + 2
        return min(plenty, max(4, len(self.candidates) // 8)) if self.candidates is not None else plenty

    def rows(self, name: str, x: Any) -> Tensor:
        """The designs as ``k x d``; raises ``ValueError`` unless they are."""
        d = self.bounds.shape[-1]
        x = numbers(name, [] if x is None else x)
        x = x.reshape(0, d) if x.numel() == 0 else x
        if x.ndim != 2 or x.shape[-1] != d:
            raise ValueError(f"{name} must be k x {d} numbers, got shape {tuple(x.shape)}.")
        if not (finite := x.isfinite().all(-1)).all():
            raise ValueError(f"{name} must be finite, but row {int((~finite).nonzero()[0])} is not; leave it out.")
        for i, values in self.categorical.items():
            if not torch.isin(x[:, i], values).all():
                raise ValueError(f"{name} has values in column {i} that are not among those of categorical[{i}].")
        return x

    def holds(self, x: Tensor) -> bool:
        """Whether a design, ``1 x d``, may be proposed: within bounds and constraints, with the fixed values."""
        fixed = all(float(x[0, i]) == value for i, value in self.fixed.items())
        if self.candidates is not None:
            return fixed and bool(among(x, self.candidates).any())
        return fixed and bool(self.feasible(x))

    def feasible(self, x: Tensor) -> Tensor:
        """Which designs ``k x d`` are within the bounds and fulfil the constraints, up to errors of weighing."""
        kept = torch.tensor([self._excess(one, WEIGHED) == 0.0 for one in x], dtype=torch.bool)
        return kept & ((self.bounds[0] <= x) & (x <= self.bounds[1])).all(-1)

    def encode(self, x: Tensor) -> Tensor:
        """Coordinates ``k x D`` of designs ``k x d``."""
        return _one_hot(self._scaled(x), {i: len(v) for i, v in self.categorical.items()})

    encode_designs = encode  # which have no conditions

    def _scaled(self, x: Tensor) -> Tensor:
        """Designs ``k x d`` in the unit cube, where a category is the number of its value."""
        side = self.bounds[1] - self.bounds[0]
        u = (x - self.bounds[0]) / torch.where(side > 0.0, side, 1.0)
        for i, values in self.categorical.items():
            u[:, i] = (x[:, i].unsqueeze(-1) == values).double().argmax(-1).double()
        return u

    def _decoded(self, u: Tensor) -> Tensor:
        """Designs ``k x d`` at coordinates in which a category is the number of its value."""
        x = (self.bounds[0] + (self.bounds[1] - self.bounds[0]) * u).clamp(*self.bounds)
        for i, values in self.discrete.items():
            x[:, i] = values[(x[:, i].unsqueeze(-1) - values).abs().argmin(-1)]
        for i, values in self.categorical.items():
            x[:, i] = values[u[:, i].round().long()]
        return torch.stack([self._feasible(row) for row in x]) if self.equalities or self.inequalities else x

    def _excess(self, x: Tensor, slack: float = EXACT) -> float:
        """By how much a design ``d`` breaks the constraints, each in units of its largest term; 0 if it does not.

        Sums may differ by ``slack``.
        """
        total = 0.0
        for constraints, equal in ((self.equalities, True), (self.inequalities, False)):
            for columns, coefficients, rhs in constraints:
                terms = x[list(columns)] * torch.tensor(coefficients, dtype=torch.float64)
                short = (rhs - float(terms.sum())) / max(abs(rhs), float(terms.abs().amax()), 1e-300)
                total += abs(short) * (abs(short) > slack) if equal else max(short, 0.0) * (short > EXACT)
        return total

    def _feasible(self, x: Tensor) -> Tensor:
        """The design ``d``, with values of one or two columns moved at a time until constraints hold."""
        excess = self._excess(x)
        while excess > 0.0:
            steps = self._moves(x)
            moves = [*((step,) for step in steps), *combinations(steps, 2)]
            tried = [x.clone() for _ in moves]
            for moved, move in zip(tried, moves, strict=True):
                for i, value in move:
                    moved[i] = value
            best = min(tried, key=self._excess, default=x)
            if self._excess(best) >= excess:
                raise ValueError("no design on the steps of the columns was found that fulfils the constraints.")
            x, excess = best, self._excess(best)
        return x

    def _moves(self, x: Tensor) -> list[tuple[int, float]]:
        """Columns and values that may fulfil a constraint: next steps, and what solves it for a column without."""
        moves = []
        for columns, coefficients, rhs in (*self.equalities, *self.inequalities):
            short = rhs - sum(c * float(x[i]) for i, c in zip(columns, coefficients, strict=True))
            for i, c in zip(columns, coefficients, strict=True):
                if i in self.fixed or c == 0.0:
                    continue
                if (grid := self.discrete.get(i)) is not None:
                    moves += [(i, float(v)) for v in (*grid[grid < x[i]][-1:], *grid[grid > x[i]][:1])]
                else:
                    low, high = self.bounds[:, i].tolist()
                    moves.append((i, min(max(float(x[i]) + short / c, low), high)))
        return moves

    def _scaled_constraints(self, device: Any) -> dict[str, Any]:
        """The constraints on coordinates in the unit cube, as arguments of BoTorch's searches."""
        scaled: dict[str, Any] = {}
        low, side = self.bounds[0], self.bounds[1] - self.bounds[0]
        for name, constraints in (("equality", self.equalities), ("inequality", self.inequalities)):
            built = []
            for columns, coefficients, rhs in constraints:
                place, factors = torch.tensor(columns), torch.tensor(coefficients, dtype=torch.float64)
                rest = rhs - float((factors * low[place]).sum())
                built.append((place.to(device), (factors * side[place]).to(device), rest))
            scaled[f"{name}_constraints"] = built or None
        return scaled

    def initial(self, seed: int, trial: int, taken: Tensor) -> Tensor:
        """The design of the initial design, ``1 x d``: scrambled Sobol, or a candidate that is not taken, if any."""
        if self.candidates is not None:
            order = torch.from_numpy(stream(seed, "suggest.candidates", 0).permutation(len(self.candidates)))
            free = ~among(self.candidates[order], taken)
            order = order[free] if free.any() else order
            return self.candidates[order[trial % len(order)] if not free.any() else order[0]].unsqueeze(0)
        if self.equalities or self.inequalities:
            return self._spread(seed, trial, taken)
        engine = SobolEngine(self.bounds.shape[-1], scramble=True, seed=seed_of(seed, "initial", 0) % 2**31)
        u = engine.fast_forward(trial).draw(1, dtype=torch.float64)
        for i, values in self.categorical.items():  # equal shares
            u[:, i] = (u[:, i] * len(values)).floor()
        return self._with_fixed_values(self._decoded(u))

    def _spread(self, seed: int, trial: int, taken: Tensor) -> Tensor:
        """Of random designs that fulfil the constraints the one farthest from those taken, ``1 x d``."""
        ends = torch.tensor([[0.0], [1.0]], dtype=torch.float64).repeat(1, self.bounds.shape[-1])
        for i, values in self.categorical.items():
            ends[1, i] = len(values) - 1e-9  # equal shares
        drawn = get_polytope_samples(
            SPREAD, ends, **self._scaled_constraints("cpu"), seed=seed_of(seed, "initial", trial) % 2**31
        )
        for i in self.categorical:
            drawn[:, i] = drawn[:, i].floor()
        designs = self._with_fixed_values(self._decoded(drawn))
        if len(taken) == 0:
            return designs[:1]
        return designs[torch.cdist(self.encode(designs), self.encode(taken)).amin(-1).argmax()].unsqueeze(0)

    def _with_fixed_values(self, x: Tensor) -> Tensor:
        for i, value in self.fixed.items():
            x[:, i] = value
        return x

    def maximize(
        self, acqf: Any, restarts: int, raw_samples: int, device: Any, observed: Tensor, around_best: bool = True
    ) -> Tensor:
        """The design of the largest acquisition value that the search finds, ``1 x d``.

        In a finite space the ``observed`` designs are left out, unless these are all. Discrete columns take their own
        values only, because between them the variance would stay largest. With ``around_best`` the search also starts
        near the best of the model's data, which must then have the columns of designs.
        """
        if self.candidates is not None:
            free = ~among(self.candidates, observed)
            table = self.candidates[free] if free.any() else self.candidates
            choices = self.encode(table).to(device)
            point, _ = optimize_acqf_discrete(acqf, q=1, choices=choices, max_batch_size=MOST_POINTS)
            return table[(choices == point).all(-1).nonzero()[0]]
        d = self.bounds.shape[-1]
        ends = torch.tensor([[0.0], [1.0]], dtype=torch.float64, device=device).repeat(1, d)
        kept = self._scaled(self._with_fixed_values(self.bounds[:1].clone()))[0] if self.fixed else self.bounds[0]
        search: dict[str, Any] = {"num_restarts": restarts, "raw_samples": raw_samples}
        search["fixed_features"] = {i: float(kept[i]) for i in self.fixed} or None
        search |= self._scaled_constraints(device)
        # Steps of one column cannot keep a sum: such columns are continuous in the search, and rounded after it.
        limited = {i for columns, *_ in (*self.equalities, *self.inequalities) for i in columns}
        discrete = {i: values for i, values in self.discrete.items() if i not in limited}
        if discrete or self.categorical:
            counts = {i: len(v) for i, v in self.categorical.items()}
            for i, count in counts.items():
                ends[1, i] = count - 1
            low, high = self.bounds
            grids = {i: ((v - low[i]) / (high[i] - low[i])).tolist() for i, v in discrete.items()}
            for i, grid in grids.items():
                ends[0, i], ends[1, i] = grid[0], grid[-1]
            search["options"] = {"init_batch_limit": BLOCK, **({} if around_best else {"num_spray_points": 0})}
            codes = {i: [float(k) for k in range(count)] for i, count in counts.items()}
            u, _ = optimize_acqf_mixed_alternating(OneHotAcquisition(acqf, counts), ends, grids, codes, **search)
        else:
            options: dict[str, Any] = {
                "sample_around_best": around_best and not limited,
                "sample_around_best_sigma": 0.05,
            }
            # The kinks of a bound end line searches, at good points: so there is no second try.
            u, _ = optimize_acqf(acqf, ends, q=1, options=options, retry_on_optimization_warning=False, **search)
        return self._with_fixed_values(self._decoded(u.detach().cpu()))


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


def _constraint(name: str, constraint: Any, d: int, categorical: Mapping[int, Tensor]) -> Constraint:
    """The constraint, as lists; raises ``ValueError`` unless it is (columns, coefficients, right-hand side)."""
    try:
        columns, coefficients, rhs = constraint
        built = [int(i) for i in columns], [float(c) for c in coefficients], float(rhs)
    except (TypeError, ValueError):
        built = [], [], 0.0
    right = len(built[0]) == len(built[1]) > 0 and all(0 <= i < d and i not in categorical for i in built[0])
    if not right:
        form = "(columns, coefficients, right-hand side), of columns that are no categories"
        raise ValueError(f"{name} must be a list of {form}, got {quoted(constraint)}.")
    return built


def numbers(name: str, x: Any) -> Tensor:
    """A tensor of numbers, from lists, arrays, tables of pandas or tensors; raises ``ValueError`` if it is none."""
    try:
        if hasattr(x, "to_numpy"):
            table, x = x, x.to_numpy()
            if x.dtype == object and not any(isinstance(value, str) for value in x.flat):  # columns of several dtypes
                x = np.where(table.isna(), math.nan, x).astype(float)
        return torch.as_tensor(np.array(x) if isinstance(x, np.ndarray) else x, dtype=torch.float64)
    except (TypeError, ValueError, RuntimeError):
        hint = "; give texts as numbers, and their column in `categorical`" * name.startswith("X")
        raise ValueError(f"{name} must be numbers in rows of one length, got {quoted(x)}{hint}.") from None


def among(X: Tensor, others: Tensor) -> Tensor:
    """Which of the designs ``n x d`` are among others ``k x d``, ``n`` bool."""
    observed = {tuple(row) for row in others.tolist()}
    return torch.tensor([tuple(row) in observed for row in X.tolist()], dtype=torch.bool)


def seed_of(seed: int, purpose: str, index: int) -> int:
    return int(stream(seed, f"suggest.{purpose}", index).integers(2**62))
