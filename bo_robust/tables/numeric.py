"""Columns of numbers, in steps where they have some."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from bo_robust.tables.cells import TableError, quantity, word, written
from bo_robust.tables.columns import Cell, Column, ColumnOptions, some_of
from bo_robust.tables.table import Table

LEVELS = 3  # a column of so few values has levels of a plan, from which no step follows
CHANCE = 0.05  # of values that are all multiples of a step by accident, above which the step is not taken for one
MOST_STEPS = 4096  # of a column; wider ranges are continuous, and rounded in the end
DIGITS = 1e5  # steps of a range, beyond which decimals are those of a computer
FINEST = 12  # decimals up to which a step is looked for


@dataclass(frozen=True)
class Numeric(Column):
    """Numbers, on a grid where there is a step or a list of levels."""

    options: ClassVar[Mapping[str, str]] = {
        "integer": "columns of whole numbers",
        "continuous": "columns of numbers that take any value, though all so far are whole or in steps",
    }
    step: float | None = None
    levels: tuple[float, ...] = ()  # that the user lists
    mark: str = "."

    @classmethod
    def recognizes(cls, name: str, cells: Sequence[str], options: ColumnOptions) -> bool:
        return True

    @classmethod
    def read(cls, name: str, cells: Sequence[Cell], tables: Sequence[Table], options: ColumnOptions) -> Numeric:
        number = next((cell.text for cell in cells if written(cell.text) is not None), "")
        for cell in cells:
            if written(cell.text) is None:
                but = f", but {number!r} may be one" if number else ""
                hint = f"correct one of them, or name the column with --categorical {word(name)}"
                raise cell.error(f"is no number{but}; {hint}")
        kind = options.kinds.get(name)
        values = [value for table in tables for value in table.values(name) if value is not None]
        for cell, value in zip(cells, values, strict=True):
            if kind == "integer" and not value.is_integer():
                raise cell.error("is no whole number, as --integer says")
        levels = tuple(sorted(map(quantity, options.levels.get(name, ()))))
        ends = levels or values or (0.0,)
        low, high = options.bounds.get(name, (min(ends), max(ends)))
        if beyond := [level for level in levels if not low <= level <= high]:
            raise TableError(
                f"--levels of {name!r} have {beyond[0]:g}, beyond --bounds {low:g} to {high:g}; widen them."
            )
        step = options.steps.get(name, {"integer": 1.0, "continuous": None}.get(kind or "", _step(values)))
        return cls(name, (low, high), name in options.conditions, _unit(name, tables), step, levels, tables[0].mark)

    def codes(self, table: Table) -> list[float]:
        return [math.nan if value is None else value for value in table.values(self.name)]

    def decode(self, value: float) -> str:
        if math.isnan(value):
            return ""
        if self.step is not None and self.step >= 1.0 and float(self.step).is_integer() and value.is_integer():
            return str(int(value))
        return f"{value:.6g}".replace(".", self.mark)

    @property
    def grid(self) -> list[float]:
        if self.levels:
            return list(self.levels)
        if self.step is None or self.observed or (self.span[1] - self.span[0]) / self.step >= MOST_STEPS:
            return []
        low, high = (end / self.step for end in self.span)
        return [_rounded(k * self.step) for k in range(math.ceil(low - 1e-9), math.floor(high + 1e-9) + 1)]

    def on_grid(self, value: float) -> float:
        if self.step is None or self.grid or self.observed or math.isnan(value):
            return value
        return _rounded(round(value / self.step) * self.step)

    @property
    def values(self) -> str:
        if self.levels:
            return some_of([self.decode(level) for level in self.levels])
        if self.observed and self.span == (0.0, 0.0):
            return "not seen yet"
        step = "" if self.step is None else ", whole" if self.step == 1.0 else f", in steps of {self.step:g}"
        return f"{self.span[0]:g} to {self.span[1]:g}{step}".replace(".", self.mark)


def _unit(name: str, tables: Sequence[Table]) -> str:
    """The unit that all tables have which have one."""
    units = {table.unit(name) for table in tables if any(table.cells(name))} - {""}
    if len(units) > 1:
        raise TableError(f"column {name!r} has the units {' and '.join(sorted(units))}; write one in both files.")
    return next(iter(units), "")


def _step(values: Sequence[float]) -> float | None:
    """The largest step of 1, 2 or 5 by a power of ten that has all values as multiples beyond chance, or the finest."""
    distinct = set(values)
    decimals = (k for k in range(FINEST) if all(_whole(v * 10.0**k) for v in distinct))
    if len(distinct) < 2 or (k := next(decimals, None)) is None:
        return None
    shared = math.gcd(*(round(v * 10.0**k) for v in distinct))
    steps = [f * 10**e for e in range(len(str(shared))) for f in (1, 2, 5) if shared % (f * 10**e) == 0]
    sure = [s for s in steps if len(distinct) > LEVELS and s ** -len(distinct) < CHANCE]
    step = _rounded(max(sure, default=1) / 10.0**k)
    return None if step < 1.0 and max(distinct) - min(distinct) > DIGITS * step else step


def _whole(value: float) -> bool:
    return abs(value - round(value)) <= 1e-6


def _rounded(value: float) -> float:
    return float(f"{value:.12g}")
