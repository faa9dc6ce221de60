"""Tables with names: columns become numbers on the way to :func:`bo_robust.suggest`, and have names on the way back.

Such a table is a data frame, of pandas or polars (neither is imported), or values by name. Nothing below sees a name.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bo_robust.utils.input_checks import is_number, quoted
from bo_robust.utils.specs import nearest

DESIGNS = ("X", "X_pending", "X_failed")
SUMS = ("equality_constraints", "inequality_constraints")


@dataclass(frozen=True)
class Columns:
    """The ``names`` of a ``table``'s columns, and the ``levels`` of categories by name, whose places are the codes.

    ``listed`` are the table's designs as numbers, where it is a frame of candidates.
    """

    names: list[Any]
    table: Any
    levels: Mapping[Any, list[Any]]
    listed: Tensor | None = None

    def places(self, argument: str, names: Iterable[Any]) -> list[int]:
        """The numbers of columns."""
        if unknown := [name for name in names if name not in self.names]:
            raise ValueError(f"{argument} has no column {quoted(unknown[0])}; {nearest(unknown[0], self.names)}.")
        return [self.names.index(name) for name in names]

    def numbers(self, argument: str, table: Any, names: Collection[Any], free: Collection[Any] = ()) -> Any:
        """The columns of these names as numbers ``k x d``, ends in ``free`` ones; a table without names as it is.

        Free columns are categories, and conditions of which bounds say nothing, which have no ends.
        """
        if not has_names(table):
            if self.levels and table is not None and len(table):
                raise ValueError(f"{argument} must be a data frame, as categories have names.")
            return table
        own = list(getattr(table, "columns", table))
        odd = [name for name in names if own.count(name) != 1 and name not in free]
        if odd := [*odd, *(name for name in own if name not in names)]:
            raise ValueError(f"{argument} must have columns {quoted(names)}, each once; see {odd[0]!r}.")
        codes = {name: (0.0, max(len(levels) - 1.0, 1.0)) for name, levels in self.levels.items()}
        ends = {name: torch.tensor(codes.get(name, (-math.inf, math.inf))).double() for name in free}
        columns = [ends[n] if n in free else _numbers(argument, n, table[n], self.levels.get(n)) for n in names]
        if len({len(column) for column in columns}) != 1:
            raise ValueError(f"{argument} must have columns of one length.")
        return torch.stack(columns, -1)

    def named(self, X: Tensor, table: Any) -> Any:
        """Designs ``q x d`` as a table like this one, or rows of the candidates, with their index."""
        if self.listed is not None:
            rows = [int((self.listed == x).all(-1).nonzero()[0]) for x in X]
            return self.table.iloc[rows] if hasattr(self.table, "iloc") else self.table[rows]
        values = {name: column.tolist() for name, column in zip(self.names, X.T, strict=True)}
        for name, levels in self.levels.items():
            values[name] = [None if math.isnan(code) else levels[int(code)] for code in values[name]]
        names = self.names if table is self.table else getattr(table, "columns", table)
        return type(table)({name: values[name] for name in names})


def space_in_numbers(space: Any) -> dict[str, Any]:
    """The columns of a space whose bounds or candidates have names, and its other fields by number; else nothing.

    Raises ``ValueError`` where there are no such columns, or values that are no numbers.
    """
    table = space.bounds if space.candidates is None else space.candidates
    if not has_names(table):
        return {}
    texts = [name for name in (*space.categorical, *space.conditions) if isinstance(name, str)]
    names = list(dict.fromkeys([*getattr(table, "columns", table), *texts]))
    levels = {name: _levels(name, values) for name, values in space.categorical.items()}
    columns = Columns(names, table, levels)
    fields: dict[str, Any] = {"conditions": columns.places("conditions", space.conditions)}
    codes = {name: range(len(levels[name])) for name in levels}
    fixed = {name: _numbers("fixed", name, [value], levels.get(name)).item() for name, value in space.fixed.items()}
    for argument, values in (("discrete", space.discrete), ("categorical", codes), ("fixed", fixed)):
        fields[argument] = dict(zip(columns.places(argument, values), values.values(), strict=True))
    for kind in SUMS:
        sums = [(keys if isinstance(keys, list) else [keys], rest) for keys, *rest in getattr(space, kind)]
        fields[kind] = [(columns.places(kind, keys), *rest) for keys, rest in sums]
    if space.candidates is None:
        free = {*levels, *(name for name in space.conditions if name not in getattr(table, "columns", table))}
        fields["bounds"] = columns.numbers("bounds", table, names, free)
        return fields | {"columns": columns}
    fields["candidates"] = columns.numbers("candidates", table, [n for n in names if n not in space.conditions])
    whole = hasattr(table, "columns") and not space.conditions
    return fields | {"columns": replace(columns, listed=fields["candidates"] if whole else None)}


def data_in_numbers(data: Any, columns: Columns | None) -> tuple[Any, Callable[[Tensor], Any]]:
    """Data as numbers, and what gives designs ``q x d`` their names, where a table has some.

    Raises ``ValueError`` where tables have other columns, or values that are no numbers.
    """
    tables = [table for name in DESIGNS if has_names(table := getattr(data, name))]
    if columns is None and not tables:
        return data, lambda X: X
    every = columns or Columns(list(getattr(tables[0], "columns", tables[0])), tables[0], {})
    rows = {name: every.numbers(name, getattr(data, name), every.names) for name in DESIGNS}
    rows |= {name: _in_order(name, getattr(data, name), data.X) for name in ("Y", "constraints", "batch", "ids")}
    table = [*tables, every.table][0]
    if not tables and isinstance(table, Mapping) and not every.levels:  # arrays beside bounds by name
        return replace(data, **rows), lambda X: X
    return replace(data, **rows), lambda X: every.named(X, table)


def has_names(x: Any) -> bool:
    return isinstance(x, Mapping) or (hasattr(x, "to_numpy") and hasattr(x, "columns"))


def _levels(name: Any, values: Any) -> list[Any]:
    """The values of a column of categories."""
    levels = [v.item() if hasattr(v, "item") else v for v in values] if isinstance(values, list) else []
    if not levels or any(_missing(v) or v in levels[:i] for i, v in enumerate(levels)):
        raise ValueError(f"categorical[{name!r}] must list the different values there are, got {quoted(values)}.")
    return levels


def _numbers(argument: str, name: Any, values: Any, levels: list[Any] | None) -> Tensor:
    """A column as numbers or codes, NaN where they are missing; raises ``ValueError`` where a value is neither."""
    truths = () if argument == "bounds" else (True, False)  # no range has both alone
    if levels is None and np.asarray(values).dtype.kind in ("biuf" if truths else "iuf"):
        return torch.from_numpy(np.array(values, dtype=float).ravel())
    numbers = []
    for value in np.asarray(values, dtype=object).ravel():
        if not _missing(value) and not (value in levels if levels else is_number(value) or value in truths):
            lack = (
                f"categorical[{name!r}] lacks; add it" if levels else "is no number: leave it out, or use `categorical`"
            )
            raise ValueError(f"{argument} has {quoted(value)} in column {name!r}, which {lack}.")
        numbers.append(math.nan if _missing(value) else float(levels.index(value) if levels else value))
    return torch.tensor(numbers, dtype=torch.float64)


def _missing(value: Any) -> bool:
    return value is None or type(value).__name__ in ("NAType", "NaTType") or value != value


def _in_order(argument: str, rows: Any, X: Any) -> Any:
    """Rows in the order of X by an index that both have; raises ``ValueError`` where it is another one."""
    if not (hasattr(X, "reindex") and hasattr(rows, "reindex")) or len(X) != len(rows) or rows.index.equals(X.index):
        return rows
    if {*rows.index} != {*X.index} or len({*X.index}) < len(X):
        raise ValueError(f"{argument} has another index than X; give both the same, or {argument}.to_numpy().")
    return rows.reindex(X.index)
