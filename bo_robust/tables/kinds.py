"""The kinds of columns, and which of them a column is."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Self

from bo_robust.tables.cells import TableError, quantity, word, written
from bo_robust.tables.columns import Cell, Column, ColumnOptions
from bo_robust.tables.spelling import mistyped
from bo_robust.tables.table import Table

LEVELS = 3  # a column of so few values has levels of a plan, from which no step follows
CHANCE = 0.05  # of values that are all multiples of a step by accident, above which the step is not taken for one
MOST_STEPS = 4096  # of a column; wider ranges are continuous, and rounded in the end
DIGITS = 1e5  # steps of a range, beyond which decimals are those of a computer
SIGNIFICANT = 6  # digits of a range in which its values are printed
SLACK = 1e-9  # of a step, by which a range may miss it
DECADES = 100.0  # times the smallest value, from which the largest one suggests a logarithm
FINEST = 12  # decimals up to which a step is looked for
SHOWN = 8  # levels in a line
TIME = re.compile(r"\d{1,2}:[0-5]\d")
RATIO = re.compile(r"(\d+(?:[.,]\d+)?) ?: ?(\d*[1-9]\d*(?:[.,]\d+)?|0[.,]\d+)")


def column_of(name: str, tables: Sequence[Table], options: ColumnOptions) -> Column:
    """Recognize a column from its cells in all tables, and what the user says of it; raises ``TableError``."""
    every = [Cell(text, table.where(i, name)) for table in tables for i, text in enumerate(table.cells(name))]
    cells = [cell for cell in every if cell.text]
    if len(cells) < len(every) and name not in options.conditions:  # of what is pending, they are not known yet
        where = next(cell.where for cell in every if not cell.text)
        what = "is blank: fill it in; if the value above is meant, repeat it"
        raise TableError(f"{where} {what} (--ignore {word(name)} leaves it out of all rows).")
    kind = kind_of(name, [*(cell.text for cell in cells), *options.levels.get(name, ())], options)
    return kind.read(name, cells, tables, options)


def kind_of(name: str, cells: Sequence[str], options: ColumnOptions) -> type[Column]:
    """The kind that the user names, or else the first that recognizes the cells."""
    said = options.kinds.get(name)
    return next(k for k in KINDS if (said in k.options if said else k.recognizes(name, cells, options)))


@dataclass(frozen=True)
class Categorical(Column):
    """Categories, which a search sees as places in their list."""

    options: ClassVar[Mapping[str, str]] = {"categorical": "columns of categories"}
    ordered: ClassVar[bool] = False
    categories: tuple[str, ...] = ()
    slips: tuple[str, ...] = ()  # lines about what a typing error may have made

    @classmethod
    def recognizes(cls, name: str, cells: Sequence[str], options: ColumnOptions) -> bool:
        free = name not in options.bounds and name not in options.steps  # which are of numbers
        return len(cells) > 0 and free and all(written(cell) is None for cell in cells)

    @classmethod
    def read(cls, name: str, cells: Sequence[Cell], tables: Sequence[Table], options: ColumnOptions) -> Self:
        categories = tuple(options.levels.get(name) or sorted({cell.text for cell in cells}))
        if unlisted := [cell for cell in cells if cell.text not in categories]:
            raise TableError(f"{unlisted[0].where}: {unlisted[0].text!r} is not among --levels {name}; add it.")
        span = 0.0, max(1.0, len(categories) - 1.0)
        slips = () if name in options.levels else tuple(mistyped(tables[0], name))
        return cls(name, span, name in options.conditions, "", categories, slips)

    def codes(self, table: Table) -> list[float]:
        return [float(self.categories.index(cell)) if cell else math.nan for cell in table.cells(self.name)]

    def decode(self, value: float) -> str:
        return "" if math.isnan(value) else self.categories[round(value)]

    def on_grid(self, value: float) -> float:
        return value if math.isnan(value) else float(round(value))

    @property
    def grid(self) -> list[float]:
        return [float(k) for k in range(len(self.categories))]

    @property
    def notes(self) -> list[str]:
        """Lines about categories that differ in case, spaces or hyphens alone."""
        alike: dict[str, list[str]] = {}
        for category in self.categories:
            alike.setdefault(re.sub(r"[\s_-]", "", category.casefold()), []).append(category)
        groups = [group for group in alike.values() if len(group) > 1]
        lines = [f"{self.name} has {' and '.join(g)}, taken for {len(g)} levels; write one if not." for g in groups]
        return [*lines, *self.slips]

    def __str__(self) -> str:
        return f"{self.title} ({_some_of(self.categories)})"


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
    typed: Mapping[float, str] = field(default_factory=dict)  # values of files, as cells that have them

    @classmethod
    def recognizes(cls, name: str, cells: Sequence[str], options: ColumnOptions) -> bool:
        return True

    @classmethod
    def read(cls, name: str, cells: Sequence[Cell], tables: Sequence[Table], options: ColumnOptions) -> Self:
        if wrong := [cell for cell in cells if written(cell.text) is None]:
            text, number = wrong[0].text, next((cell.text for cell in cells if written(cell.text)), "")
            but = f", but {number!r} may be one" if number else ""
            hint = f"correct one of them, or name the column with --categorical {word(name)}"
            if number and not any(map(str.isdigit, text)):
                what = f"{name} mixes numbers ({number}) and text ({text}): write {text} as a number"
                raise TableError(f"{wrong[0].where}: {what}, or take all as names with --categorical {word(name)}.")
            raise TableError(f"{wrong[0].where}: {wrong[0].text!r} is no number{but}; {hint}.")
        units = {table.unit(name) for table in tables if any(table.cells(name))} - {""}
        if len(units) > 1:
            raise TableError(f"column {name!r} has the units {' and '.join(sorted(units))}; write one in both files.")
        kind, values = options.kinds.get(name), [v for table in tables for v in table.values(name) if v is not None]
        if kind == "integer" and (broken := [i for i, value in enumerate(values) if not value.is_integer()]):
            text, where = cells[broken[0]]
            raise TableError(f"{where}: {text!r} is no whole number, as --integer says.")
        levels = tuple(sorted(map(quantity, options.levels.get(name, ()))))
        ends = levels or values or (0.0,)
        seen = min(ends), max(ends)
        low, high = seen if name in options.conditions else options.bounds.get(name, seen)
        if beyond := [level for level in levels if not low <= level <= high]:
            raise TableError(f"--levels {name}={beyond[0]:g} lies beyond --bounds {name}={low:g}:{high:g}; widen them.")
        step = _step_of(name, values, low, high, options)
        unit, observed = next(iter(units), ""), name in options.conditions
        mark, typed = tables[0].mark, [(value, cell.text) for cell, value in zip(cells, values, strict=True)]
        return cls(name, (low, high), observed, unit, step, levels, mark, dict(reversed(typed)))

    def codes(self, table: Table) -> list[float]:
        return [math.nan if value is None else value for value in table.values(self.name)]

    def decode(self, value: float) -> str:
        if math.isnan(value):
            return ""
        seen = written(self.typed.get(value, ""))
        if seen is not None and seen.decimal in ("", self.mark) and not (seen.has_groups or seen.unit):
            return self.typed[value]
        text = next(t for t in (f"{value:.15g}", repr(value)) if float(t) == value).replace(".", self.mark)
        # Three digits behind a comma may be thousands; a fourth one says that they are not.
        return re.sub(r"^(-?[1-9]\d{0,2},\d{3})(?!\d)", r"\g<1>0", text)

    @property
    def grid(self) -> list[float]:
        if self.levels:
            return list(self.levels)
        if self.step is None or self.observed or (self.span[1] - self.span[0]) / self.step >= MOST_STEPS:
            return []
        low, high = (end / self.step for end in self.span)
        return [_rounded(k * self.step) for k in range(math.ceil(low - SLACK), math.floor(high + SLACK) + 1)]

    def on_grid(self, value: float) -> float:
        """The number that is printed and read back: a value of a file, of the grid, or one of few digits."""
        if math.isnan(value) or value in self.typed:
            return value
        if grid := self.grid:
            return min(grid, key=lambda level: abs(level - value))
        low, high = self.span
        if self.step is not None and not self.observed:
            first, last = math.ceil(low / self.step - SLACK), math.floor(high / self.step + SLACK)
            return _rounded(min(max(round(value / self.step), first), last) * self.step)
        size = high - low or abs(value) or 1.0
        rounded = round(value, SIGNIFICANT - 1 - math.floor(math.log10(size))) + 0.0
        return min(max(rounded, low), high) if low < high else rounded

    def number(self, code: float) -> float | str:
        return self.on_grid(code)

    @property
    def notes(self) -> list[str]:
        low, high = self.span
        small = [value for value in self.typed if value < high / 10.0]
        if self.observed or not 0.0 < DECADES * low <= high or 3 * len(small) < len(self.typed):
            return []
        spans = f"{self.name} spans {math.log10(high / low):.2g} decades"
        return [f"{spans}; --log {word(self.name)} searches it by factors."]

    def __str__(self) -> str:
        low, high, size = (f"{x or 0.0:.12g}".replace(".", self.mark) for x in (*self.span, self.step))
        step = "" if self.step is None else ", whole" if self.step == 1.0 else f", in steps of {size}"
        values = f"{low} to {high}{step}"
        if self.levels:
            values = _some_of([self.decode(level) for level in self.levels])
        elif self.observed and self.span == (0.0, 0.0):
            values = "not seen yet"
        return f"{self.title} ({values})"


@dataclass(frozen=True)
class Ratio(Numeric):
    """Ratios such as 1:10, of which a search sees the side that varies, or the quotient where both do."""

    options: ClassVar[Mapping[str, str]] = {"ratio": "columns of ratios, such as 1:10"}
    has_form: ClassVar[bool] = True
    before: str = ""  # the side that all cells have, with the colon
    behind: str = ""

    @classmethod
    def recognizes(cls, name: str, cells: Sequence[str], options: ColumnOptions) -> bool:
        sure = re.search(r":|ratio|verh[äa]lt", name, re.IGNORECASE) or not all(map(TIME.fullmatch, cells))
        return bool(cells) and bool(sure) and all(map(RATIO.fullmatch, cells))

    @classmethod
    def read(cls, name: str, cells: Sequence[Cell], tables: Sequence[Table], options: ColumnOptions) -> Self:
        if wrong := [cell for cell in cells if RATIO.fullmatch(cell.text) is None]:
            raise TableError(f"{wrong[0].where}: {wrong[0].text!r} is no ratio such as 1:10; correct it.")
        first, second = ({cell.text.split(":")[i].strip() for cell in cells} for i in (0, 1))
        before = f"{min(first)}:" if len(first) == 1 else ""
        behind = "" if before else f":{min(second)}" if len(second) == 1 else ":1"
        form = cls(name, (0.0, 0.0), before=before, behind=behind)
        plain = [cell._replace(text=form._plain(cell.text)) for cell in cells]
        levels = {**options.levels, name: [form._plain(text) for text in options.levels.get(name, ())]}
        read = super().read(name, plain, [form._table(table) for table in tables], replace(options, levels=levels))
        return replace(read, before=before, behind=behind)

    def codes(self, table: Table) -> list[float]:
        return super().codes(self._table(table))

    def decode(self, value: float) -> str:
        return "" if math.isnan(value) else f"{self.before}{super().decode(value)}{self.behind}"

    def _table(self, table: Table) -> Table:
        i = table.names.index(self.name)
        return replace(table, rows=[[*row[:i], self._plain(row[i]), *row[i + 1 :]] for row in table.rows])

    def _plain(self, cell: str) -> str:
        """What varies, as a number in a cell."""
        if (sides := RATIO.fullmatch(cell)) is None:
            return cell
        if self.before or self.behind == f":{sides[2]}":
            return sides[2 if self.before else 1]
        quotient = quantity(sides[1]) / quantity(sides[2])
        return f"{quotient:.15g}".replace(".", "," if "," in cell else ".")


@dataclass(frozen=True)
class Logarithmic(Numeric):
    """Numbers over decades, of which a search sees logarithms."""

    options: ClassVar[Mapping[str, str]] = {"log": "columns of numbers that are searched by factors, over decades"}

    @classmethod
    def read(cls, name: str, cells: Sequence[Cell], tables: Sequence[Table], options: ColumnOptions) -> Self:
        read = super().read(name, cells, tables, options)
        if (least := min(read.span[0], *read.typed, *read.levels, math.inf)) <= 0.0:
            raise TableError(f"{name!r} has {least:g}, which has no logarithm, as --log says; leave the option out.")
        if name in options.constrained:
            raise TableError(f"--log {word(name)}: a column that is in a sum or an inequality is searched as it is.")
        low, high = map(math.log10, read.span)
        return replace(read, span=(low, high), step=None, levels=tuple(map(math.log10, read.levels)))

    def codes(self, table: Table) -> list[float]:
        return [math.log10(value) for value in super().codes(table)]

    def decode(self, value: float) -> str:
        return "" if math.isnan(value) else super().decode(self.number(value))

    def number(self, code: float) -> float:
        seen = {math.log10(value): value for value in self.typed}
        return seen.get(code, float(f"{10.0**code:.14g}"))

    def on_grid(self, value: float) -> float:
        if math.isnan(value):
            return value
        if (number := self.number(value)) in self.typed:
            return math.log10(number)
        if self.levels:
            return min(self.levels, key=lambda level: abs(level - value))
        return min(max(math.log10(float(f"{10.0**value:.3g}")), self.span[0]), self.span[1])

    @property
    def notes(self) -> list[str]:
        return []

    @property
    def axis(self) -> str:
        return f"log10 of {self.title}"

    def __str__(self) -> str:
        return f"{self.title} ({' to '.join(map(self.decode, self.span))}, by factors)"


KINDS: list[type[Column]] = [Ratio, Categorical, Numeric, Logarithmic]  # the first that recognizes cells is theirs


def _some_of(values: Sequence[str]) -> str:
    return ", ".join([*values[:SHOWN], "..."] if len(values) > SHOWN else values)


def _step_of(name: str, values: Sequence[float], low: float, high: float, options: ColumnOptions) -> float | None:
    """The step of a column between two ends, as options say or the values show; raises ``TableError``."""
    kind = options.kinds.get(name, "")
    step = options.steps.get(name, {"integer": 1.0, "continuous": None}.get(kind, _step(values)))
    if step is None or math.floor(high / step + SLACK) >= math.ceil(low / step - SLACK):
        if kind == "integer" and step is not None and not step.is_integer():
            raise TableError(f"--step {name}={step:g} is no whole number, as --integer says; leave one out.")
        return step
    if name in options.steps or kind == "integer":
        raise TableError(f"{low:g} to {high:g} has no multiple of the step {step:g} of {name!r}; change one of them.")
    return None


def _step(values: Sequence[float]) -> float | None:
    """The largest step of 1, 2 or 5 by a power of ten that has all values as multiples beyond chance, or the finest."""
    distinct = set(values)
    decimals = (k for k in range(FINEST) if all(abs(v * 10.0**k - round(v * 10.0**k)) <= 1e-6 for v in distinct))
    if len(distinct) < 2 or (k := next(decimals, None)) is None:
        return None
    shared = math.gcd(*(round(v * 10.0**k) for v in distinct))
    steps = [f * 10**e for e in range(len(str(shared))) for f in (1, 2, 5) if shared % (f * 10**e) == 0]
    sure = [s for s in steps if len(distinct) > LEVELS and s ** -len(distinct) < CHANCE]
    step = _rounded(max(sure, default=1) / 10.0**k)
    return None if step < 1.0 and max(distinct) - min(distinct) > DIGITS * step else step


def _rounded(value: float) -> float:
    return float(f"{value:.12g}") + 0.0  # which is no -0
