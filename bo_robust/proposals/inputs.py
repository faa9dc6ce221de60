"""The arguments of :func:`bo_robust.suggest`: the designs that there are, and how they are searched for."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bo_robust.proposals.frames import SUMS, Columns, space_in_numbers
from bo_robust.utils.host import on_host
from bo_robust.utils.input_checks import check_count, is_number, quoted
from bo_robust.utils.linalg import device_named

__all__ = ["Search", "Space"]

Constraint = tuple[list[int], list[float], float]  # columns, coefficients and right-hand side, as in BoTorch
ROUNDING = 1e-9  # of the range of a column, by which a value may lie beyond its ends


@dataclass(frozen=True)
class Space:
    """The designs that there are, in the units of the data: a box, a mixed space or a list.

    Columns have names where bounds or candidates have: ``bounds={"T": (20, 100)}, categorical={"solvent": ["DMF"]}``.

    Raises ``ValueError`` where fields are wrong or contradict each other.

    Attributes:
        bounds: ``2 x d``, the smallest and the largest value of each column; by name those of numbers alone. Not needed
            with ``candidates``.
        candidates: ``N x d`` designs to choose from, by any descriptors.
        discrete: Values of columns that take no others, in order, by number or name of the column.
        categorical: Values of columns whose values have no order, as whole numbers, by number of the column; by name,
            any values.
        fixed: Values that columns keep in every suggestion, by number or name of the column.
        equality_constraints: What suggestions fulfil, in units of X, as ``optimize_acqf`` has it: a list of (columns,
            coefficients, right-hand side). A mixture is ``[([0, 1, 2], [1.0, 1.0, 1.0], 100.0)]``. A list of
            candidates has no such constraints.
        inequality_constraints: The same, with a sum of at least the right-hand side.
        conditions: Columns that are observed, not chosen. The design to use is then good in the ``worst`` share of the
            conditions in X, by :class:`bo_robust.ValueAtRiskUCB`, and ``Suggestion.mean`` is its value at risk.
            A condition counts as often as it is in X, in tests at chosen conditions too. ``candidates`` are designs
            without these columns. There is one objective then, without ``constraints`` and ``fixed``.
        worst: A share of the conditions, in (0, 1).
        set_conditions: Whether an experiment can be made under a condition of choice. Each proposal then has the
            condition to test it under; otherwise NaN.
    """

    bounds: Any = None
    candidates: Any = None
    discrete: Mapping[int, Sequence[float]] = field(default_factory=dict)
    categorical: Mapping[int, Sequence[float]] = field(default_factory=dict)
    fixed: Mapping[int, float] = field(default_factory=dict)
    equality_constraints: Sequence[Any] = ()
    inequality_constraints: Sequence[Any] = ()
    conditions: Sequence[int] = ()
    worst: float = 0.1
    set_conditions: bool = True
    columns: Columns | None = field(default=None, init=False, repr=False, compare=False)

    @on_host
    def __post_init__(self) -> None:
        self._list_iterators()
        if (self.bounds is None) == (self.candidates is None):
            raise ValueError("give either bounds (2 x d) or candidates (N x d): they say which designs there are.")
        box, shape = self.candidates is None, tuple(self.table.shape)
        if len(shape) != 2 or shape[1] == 0 or (shape[0] != 2 if box else shape[0] < 2):
            form = "bounds must be 2 x d numbers" if box else "candidates must be N x d numbers, N >= 2"
            raise ValueError(f"{form}, got shape {shape}.")
        d, conditions = self.num_columns, self.conditions
        if not all(is_number(i) and i in range(d) for i in conditions) or not len({*conditions}) == len(conditions) < d:
            raise ValueError(f"conditions must be some, not all, of the {d} columns, got {quoted(conditions)}.")
        if conditions:
            self._check_risk()
        for i, column in self.design_columns.items():
            if box and not -math.inf < column[0] < column[1] < math.inf:
                ends = f"{self._title(i)} has {' and '.join(map(str, column.tolist()))}"
                raise ValueError(f"bounds must be finite, the lower below the upper, but column {ends}.")
        if not box and not (finite := self.table.isfinite().all(-1)).all():
            raise ValueError(f"candidates must be finite, but row {int(finite.int().argmin())} is not; leave it out.")
        for name in ("discrete", "categorical"):
            for i, values in self.values(name).items():
                self._check_values(name, i, values)
        for name in SUMS:
            self.constraints(name)

    def _check_risk(self) -> None:
        """Raise ``ValueError`` where there is no value at risk."""
        if not (is_number(self.worst) and 0.0 < self.worst < 1.0):
            form = "a share of conditions in (0, 1), such as 0.1 for 10 %"
            raise ValueError(f"worst is {form}, got {quoted(self.worst)}.")
        if not isinstance(self.set_conditions, bool | np.bool_):
            raise ValueError(f"set_conditions must be true or false, got {quoted(self.set_conditions)}.")
        for i in self.fixed:
            number = i not in self.conditions and i not in self.categorical
            hint = "give it one value in discrete" if number else "leave out the rows where it has others"
            raise ValueError(f"column {self._title(i)} cannot be fixed beside conditions; {hint}.")

    def _list_iterators(self) -> None:
        """Make lists of iterators, which end when they are read; ``ValueError`` where there are no columns."""
        for name in ("discrete", "categorical", "fixed"):
            values = {} if getattr(self, name) is None else getattr(self, name)
            if not isinstance(values, Mapping):
                raise ValueError(f"{name} must give values by number of the column, got {quoted(values)}.")
            object.__setattr__(self, name, {i: v if name == "fixed" else listed(v) for i, v in values.items()})
        for name in ("conditions", *SUMS):
            parts = [] if getattr(self, name) is None else listed(getattr(self, name))
            if not isinstance(parts, list):
                raise ValueError(f"{name} must be a list, got {quoted(parts)}.")
            if name in SUMS:
                parts = [
                    tuple(map(listed, p)) if isinstance(p := listed(part), list) and p else ([], p) for part in parts
                ]
            object.__setattr__(self, name, parts)
        for name, value in space_in_numbers(self).items():
            object.__setattr__(self, name, value)
        if any(isinstance(key, str) for key in (*self.discrete, *self.categorical, *self.fixed, *self.conditions)):
            raise ValueError("columns have names where bounds or candidates do, such as bounds={'T': (20, 100)}.")

    def _check_values(self, name: str, i: int, values: Tensor) -> None:
        """Raise ``ValueError`` unless a column can have these discrete or categorical values."""
        if i not in range(self.num_columns):
            raise ValueError(f"{name} has column {quoted(i)}, but the columns are 0 to {self.num_columns - 1}.")
        if name == "discrete" and i in self.values("categorical"):
            raise ValueError(f"column {self._title(i)} is both discrete and categorical; leave it out of one.")
        if values.ndim != 1 or len(values) == 0 or not values.isfinite().all():
            raise ValueError(f"{name}[{self._title(i)}] must be finite numbers, got {quoted(getattr(self, name)[i])}.")
        column = self.design_columns.get(i, values)
        low, high = self.table[:, int(i)].tolist() if self.candidates is None else (-math.inf, math.inf)
        room = ROUNDING * (high - low)
        broken = values[values != values.round()] if name == "categorical" else values[:0]
        for wrong, what in (
            (values[1:][values.diff() == 0.0], "twice; leave one out"),
            (broken, "but categories are whole numbers; number them"),
            (values[(values < low - room) | (values > high + room)], f"beyond the bounds {low} and {high}; widen them"),
        ):
            if len(wrong):
                raise ValueError(f"{name}[{self._title(i)}] has {float(wrong[0])}, {what}.")
        if self.candidates is not None and len(wrong := column[~torch.isin(column, values)]):
            raise ValueError(f"candidates have {float(wrong[0])} in column {i}, which {name}[{i}] lacks; add it there.")

    @cached_property
    def table(self) -> Tensor:
        """The bounds, ``2 x d``, or the candidates."""
        return numbers("bounds", self.bounds) if self.candidates is None else numbers("candidates", self.candidates)

    @property
    def num_columns(self) -> int:
        """The columns of X, d."""
        return int(self.table.shape[-1]) + (0 if self.candidates is None else len(self.conditions))

    @cached_property
    def design_columns(self) -> dict[int, Tensor]:
        """Bounds or candidates of each column of X that is no condition, by its number."""
        chosen = [i for i in range(self.num_columns) if i not in self.conditions]
        table = self.table[:, chosen] if self.candidates is None else self.table
        return dict(zip(chosen, table.T, strict=True))

    def _title(self, i: int) -> str:
        return str(i) if self.columns is None else repr(self.columns.names[i])

    def values(self, name: str) -> dict[int, Tensor]:
        """Values of the ``discrete`` or of the ``categorical`` columns, in order, by number of the column."""
        every = getattr(self, name).items()
        return {i: numbers(f"{name}[{self._title(i)}]", values).sort().values for i, values in every}

    def constraints(self, name: str) -> tuple[Constraint, ...]:
        """The constraints of this name, in which columns are counted among those of designs."""
        columns = list(self.design_columns)
        return tuple(self._constraint(name, constraint, columns) for constraint in getattr(self, name))

    def _constraint(self, name: str, constraint: Any, chosen: list[int]) -> Constraint:
        """The constraint, as lists; raises ``ValueError`` unless it is (columns, coefficients, right-hand side)."""
        if self.candidates is not None:
            raise ValueError("candidates say which designs there are; leave out those that break a constraint.")
        try:
            columns, coefficients, rhs = constraint
            columns, coefficients, rhs = [int(i) for i in columns], [float(c) for c in coefficients], float(rhs)
        except (TypeError, ValueError, OverflowError):
            columns, coefficients = [], []
        if any(i in self.conditions for i in columns):
            raise ValueError("constraints on designs cannot have conditions, which nobody chooses.")
        free = set(chosen) - set(self.values("categorical"))
        if not len(columns) == len(coefficients) > 0 or not set(columns) <= free:
            form = "(columns, coefficients, right-hand side), of columns that are no categories"
            raise ValueError(f"{name} must be a list of {form}, got {quoted(constraint)}.")
        return [chosen.index(i) for i in columns], coefficients, rhs


@dataclass(frozen=True)
class Search:
    """How designs are searched for; see :func:`bo_robust.suggest`. Raises ``ValueError`` where an argument is wrong."""

    num_initial: int | None = None
    repeats: str = "if noisy"
    restarts: int = 8
    raw_samples: int = 128
    device: str = "cpu"

    def __post_init__(self) -> None:
        check_count(0, num_initial=0 if self.num_initial is None else self.num_initial)
        check_count(1, restarts=self.restarts)
        check_count(self.restarts, raw_samples=self.raw_samples)
        if not isinstance(self.repeats, str) or self.repeats not in ("never", "if noisy"):
            raise ValueError(f"repeats must be 'never' or 'if noisy', got {quoted(self.repeats)}.")
        device_named(self.device)


def listed(x: Any) -> Any:
    """A list of what can be iterated over, in an order that does not change, but for texts."""
    if isinstance(x, str) or not isinstance(x, Iterable) or getattr(x, "ndim", 1) == 0:
        return x
    return sorted(x, key=repr) if isinstance(x, Set) else list(x)


def rows_of(name: str, x: Any, d: int) -> Tensor:
    """Numbers ``k x d``, k >= 0; raises ``ValueError`` unless they are."""
    x = numbers(name, [] if x is None else x)
    x = x.reshape(0, d) if x.numel() == 0 else x
    if x.ndim != 2 or x.shape[-1] != d:
        raise ValueError(f"{name} must be k x {d} numbers, got shape {tuple(x.shape)}.")
    return x


def numbers(name: str, x: Any) -> Tensor:
    """A tensor of numbers, from lists, arrays, tables of pandas or tensors; raises ``ValueError`` if it is none."""
    try:
        if hasattr(x, "to_numpy"):
            table, x = x, x.to_numpy()
            if x.dtype == object and not any(isinstance(value, str) for value in x.flat):  # columns of several dtypes
                x = np.where(table.isna(), math.nan, x).astype(float)
        return torch.as_tensor(np.array(x) if isinstance(x, np.ndarray) else x, dtype=torch.float64)
    except (TypeError, ValueError, RuntimeError, OverflowError, AttributeError):
        hint = "; give texts in a data frame, or as numbers, with their column in `categorical`" * name.startswith("X")
        raise ValueError(f"{name} must be numbers in rows of one length, got {quoted(x)}{hint}.") from None
