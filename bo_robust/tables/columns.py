"""What the columns of a table are: parameters with their range or levels, and those left out, with the reason."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from bo_robust.tables.cells import FAILED, TableError, is_date, is_pending, word, written
from bo_robust.tables.table import Table, named

LEVELS = 3  # a column of so few values has levels of a plan, from which no step follows
WRONG = 0.05  # share of rows that may be wrong
CHANCE = 0.05  # of values that are all multiples of a step by accident, above which the step is not taken for one
MOST_STEPS = 4096  # of a column; wider ranges are continuous, and rounded in the end
DIGITS = 1e5  # steps of a range, beyond which decimals are those of a computer
IDENTIFIER = re.compile(
    r"((new|old|run|row|exp|expt|experiment|sample|entry|reaction|rxn|trial|well|versuch|probe|essai)?[ _.-]?"
    r"(id|idx|index|nr|no|num|#)\.?)|run|row|entry|exp|expt|experiment|sample|trial|versuch|lauf|probe|essai",
    re.IGNORECASE,
)
FINEST = 12  # decimals up to which a step is looked for


@dataclass(frozen=True)
class ColumnOptions:
    """What the user says of columns, by name."""

    parameters: Sequence[str] = ()
    ignored: Sequence[str] = ()
    kinds: Mapping[str, str] = field(default_factory=dict)  # "integer", "continuous" or "categorical"
    bounds: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    levels: Mapping[str, Sequence[str]] = field(default_factory=dict)
    steps: Mapping[str, float] = field(default_factory=dict)
    constrained: Sequence[str] = ()
    conditions: Sequence[str] = ()

    @property
    def named(self) -> set[str]:
        """Columns that are parameters because the user names them."""
        groups = (self.parameters, self.kinds, self.bounds, self.levels, self.steps, self.constrained, self.conditions)
        return {name for group in groups for name in group}


@dataclass(frozen=True)
class Column:
    """A parameter: numbers, on a grid where there is a step or a list of levels, or categories."""

    name: str
    unit: str = ""
    categories: tuple[str, ...] = ()
    span: tuple[float, float] = (0.0, 0.0)  # of numbers
    step: float | None = None
    levels: tuple[float, ...] = ()  # numbers that the user lists
    mark: str = "."
    observed: bool = False  # a condition, which is not chosen

    def codes(self, table: Table) -> list[float]:
        """The numbers of a column; of a category, its place in the list."""
        if self.categories:
            return [float(self.categories.index(c)) if c else math.nan for c in table.cells(self.name)]
        return [math.nan if value is None else value for value in table.values(self.name)]

    def decode(self, value: float) -> str:
        """A number as it is written, with the decimal mark of the file."""
        if math.isnan(value):
            return ""
        if self.categories:
            return self.categories[round(value)]
        if self.step is not None and self.step >= 1.0 and float(self.step).is_integer() and value.is_integer():
            return str(int(value))
        return f"{value:.6g}".replace(".", self.mark)

    @property
    def grid(self) -> list[float]:
        """All values of a column that takes no others; none where it takes all, or very many."""
        if self.levels:
            return list(self.levels)
        if self.step is None or self.observed or (self.span[1] - self.span[0]) / self.step >= MOST_STEPS:
            return []
        low, high = (end / self.step for end in self.span)
        return [_rounded(k * self.step) for k in range(math.ceil(low - 1e-9), math.floor(high + 1e-9) + 1)]

    def holds(self, value: float) -> bool:
        """Whether a number is within the range; a category always is."""
        return bool(self.categories) or self.span[0] <= value <= self.span[1]

    def on_grid(self, value: float) -> float:
        """A number of a range that is too wide for a grid, rounded to the step."""
        if self.step is None or self.grid or self.observed or math.isnan(value):
            return value
        return _rounded(round(value / self.step) * self.step)

    @property
    def title(self) -> str:
        """Name and unit."""
        has_unit = not self.unit or self.unit in self.name
        return self.name if has_unit else f"{self.name} [{self.unit}]"

    def __str__(self) -> str:
        listed = list(self.categories) or [self.decode(value) for value in self.levels]
        if listed:
            first, more = listed[:3], ["..."] if len(listed) > 3 else []
            return f"{self.title} ({', '.join(first + more)})"
        if self.observed and self.span == (0.0, 0.0):
            return f"{self.title} (not seen yet)"
        low, high = (f"{end:g}".replace(".", self.mark) for end in self.span)
        step = "" if self.step is None else f", in steps of {self.step:g}".replace(".", self.mark)
        return f"{self.title} ({low} to {high}{', whole' if self.step == 1.0 else step})"


def column_of(name: str, tables: Sequence[Table], options: ColumnOptions) -> Column:
    """Recognize a column from its cells in all tables, and what the user says of it; raises ``TableError``."""
    kind, levels = options.kinds.get(name), [str(level) for level in options.levels.get(name, ())]
    places = [(table, i, cell) for table in tables for i, cell in enumerate(table.cells(name))]
    for table, i, cell in places:
        if not cell and name not in options.conditions:
            hint = f"every design needs a value; --ignore {word(name)} leaves the column out"
            raise TableError(f"{table.where(i, name)} is blank: {hint}.")
    places = [place for place in places if place[2]]  # conditions of what is pending are not known yet
    cells = [cell for *_, cell in places] + levels
    observed, mark = name in options.conditions, tables[0].mark
    if kind == "categorical" or (cells and name not in options.bounds and all(written(cell) is None for cell in cells)):
        if levels and (strange := [place for place in places if place[2] not in levels]):
            table, i, cell = strange[0]
            raise TableError(f"{table.where(i, name)}: {cell!r} is not among --levels {name}; add it.")
        categories = levels or sorted({cell for *_, cell in places})
        return Column(name, categories=tuple(categories), mark=mark, observed=observed)
    for table, i, cell in places:
        if written(cell) is None:
            other = next((one for one in cells if written(one) is not None), "")
            but = f", but {other!r} may be one" if other else ""
            hint = f"correct one of them, or name the column with --categorical {word(name)}"
            raise TableError(f"{table.where(i, name)}: {cell!r} is no number{but}; {hint}.")
    if len(units := {table.unit(name) for table in tables if any(table.cells(name)) and table.unit(name)}) > 1:
        raise TableError(f"column {name!r} has the units {' and '.join(sorted(units))}; write one in both files.")
    values = [value for table in tables for value in table.values(name) if value is not None]
    if kind == "integer" and (broken := [i for i, value in enumerate(values) if not value.is_integer()]):
        table, i, cell = places[broken[0]]
        raise TableError(f"{table.where(i, name)}: {cell!r} is no whole number, as --integer says.")
    listed = sorted(quantity(level) for level in levels)
    span = options.bounds.get(name) or (min(listed or values, default=0.0), max(listed or values, default=0.0))
    step = options.steps.get(name, {"integer": 1.0, "continuous": None}.get(kind or "", _step(values)))
    return Column(name, next(iter(units), ""), (), span, step, tuple(listed), mark, observed)


def quantity(text: str) -> float:
    """The number in an argument, with a point or comma; raises ``TableError``."""
    if (number := written(text)) is None:
        raise TableError(f"{text!r} is no number.")
    if number.decimal == "?" and "," in number.digits:
        raise TableError(f"{text!r} may be {number.value(','):g} or {number.value('.'):g}; write it without the comma.")
    return number.value("," if "," in number.digits and "." not in number.digits else ".")


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


def left_out(results: Table, listed: Table | None, outcomes: Sequence[str], options: ColumnOptions) -> dict[str, str]:
    """Columns that are neither parameters nor outcomes, each with the reason; raises ``TableError`` where in doubt."""
    reasons = {}
    source = results if listed is None else listed
    for name in dict.fromkeys([*source.names, *results.names]):
        if name in outcomes or name in options.named:
            continue
        tables = [table for table in (results, listed) if table is not None and name in table.names]
        reason = "as --ignore says" if name in options.ignored else None
        if reason is None and options.parameters:
            reason = "not among --parameters"
        if (reason := reason or _reason(name, tables, outcomes, results, listed)) is not None:
            reasons[name] = reason
    _check_sides(results, outcomes, reasons, options)
    return reasons


def _reason(
    name: str, tables: Sequence[Table], outcomes: Sequence[str], results: Table, listed: Table | None
) -> str | None:
    cells = [cell for table in tables for cell in table.cells(name)]
    words = any(written(cell) is None and not is_pending(cell) for cell in cells)

    def missing(cell: str) -> bool:
        return is_pending(cell) and not (words and cell == "Na")  # sodium, beside other words

    filled = [cell for cell in cells if not missing(cell)]
    if not filled:
        return (
            f"no value yet; --bounds {word(f'{name}=LOW:HIGH')} or --levels {word(f'{name}=A,B')} makes it a parameter"
        )
    if listed is not None and name not in listed.names:
        return f"not in {listed.path}"
    if (reason := _no_numbers(name, filled, tables[-1])) is not None:
        return reason
    pending = [all(is_pending(c) or c.lower() == FAILED for c in row) for row in _rows(results, outcomes)]
    blank = [missing(cell) for cell in results.cells(name)] if name in results.names else []
    if any(blank) and all(p for p, b in zip(pending, blank, strict=True) if b):
        return f"blank where {outcomes[0]} is, so an outcome"
    if 2 * len(filled) < len(cells):
        return "blank in most rows"
    if name in results.names and any(_repeats(results, name, outcome) for outcome in outcomes):
        return f"nearly the same as {outcomes[0]}, so readings of it"
    if all(_names_rows(table, name) for table in tables):
        return "a text of its own in most rows"
    if listed is None and len(set(cells)) == 1 and len(cells) > 1:
        return "one value only"
    return None


def _no_numbers(name: str, filled: Sequence[str], table: Table) -> str | None:
    """Why cells that look like numbers are none that can be chosen; None where they can."""
    if all(re.fullmatch(r"\d+(:\d\d){1,2}", cell) for cell in filled):
        return f"times of day such as {filled[0]}; write durations as numbers of minutes"
    if all(map(is_date, filled)):
        return "dates"
    if any(re.fullmatch(r"0\d+", cell) for cell in filled):
        return "codes with leading zeros"
    if _counts_rows(table, name):
        return "counts the rows"
    if IDENTIFIER.fullmatch(name.strip()) and len(set(filled)) == len(filled) and all(map(str.isdigit, filled)):
        return "names the rows"
    if all(re.fullmatch(r"[\d.,]+ ?(-|–|to) ?[\d.,]+.*", cell) for cell in filled):
        return f"ranges such as {filled[0]}; write one number"
    return None


def _rows(table: Table, names: Sequence[str]) -> list[tuple[str, ...]]:
    return list(zip(*(table.cells(name) for name in names), strict=True))


def _names_rows(table: Table, name: str) -> bool:
    cells = [cell for cell in table.cells(name) if cell]
    singles = sum(count == 1 for count in Counter(cells).values())
    return len(cells) > 1 and 2 * singles > len(table.rows) and all(written(cell) is None for cell in cells)


def _counts_rows(table: Table, name: str) -> bool:
    """Whether a column has whole numbers without a unit that increase, by one in most rows.

    Such are the numbers of experiments. A parameter would be in another order, or have replicates.
    """
    if table.unit(name) or name.endswith((")", "]")):
        return False
    numbers = [written(cell) for cell in table.cells(name)]
    digits = [int(n.digits) for n in numbers if n is not None and n.digits.isdigit() and not (n.unit or n.sign)]
    if len(digits) < max(3, len(table.rows)):
        return False
    steps = [after - before for before, after in pairwise(digits)]
    return all(step > 0 for step in steps) and 2 * steps.count(1) > len(steps)


def _repeats(table: Table, name: str, outcome: str) -> bool:
    """Whether a column repeats an outcome to a tenth of its range, as the single readings of a mean do.

    As many rows as are expected to be wrong may differ.
    """
    read = list(zip(table.numbers(name), table.numbers(outcome), strict=True))
    mark = table.mark
    both = [(a, b) for a, b in read if a is not None and b is not None]
    pairs = [(a.value(mark), b.value(mark)) for a, b in both if {a.decimal, b.decimal} <= {"", "?", mark}]
    pairs.sort(key=lambda pair: abs(pair[0] - pair[1]))
    right = pairs[: len(pairs) - math.ceil(WRONG * len(pairs))]
    spread = max((b for _, b in right), default=0.0) - min((b for _, b in right), default=0.0)
    return len(right) > LEVELS and abs(right[-1][0] - right[-1][1]) < 0.1 * spread


def _is_remark(cells: Sequence[str]) -> bool:
    return "" in cells and all(written(cell) is None for cell in cells)


def _check_sides(results: Table, outcomes: Sequence[str], reasons: dict[str, str], options: ColumnOptions) -> None:
    """Leave out remarks behind the outcome.

    Raise ``TableError`` where columns on both sides of it may be parameters, as a second outcome would.
    """
    place = min(results.names.index(name) for name in outcomes)
    unclear = [name for name in results.names if name not in {*outcomes, *reasons, *options.conditions}]
    left = [name for name in unclear if results.names.index(name) < place]
    right = [name for name in unclear if results.names.index(name) > place and name not in options.named]
    for name in [name for name in right if _is_remark(results.cells(name))]:
        reasons[name] = "texts, blank in some rows"
        right.remove(name)
    if left and right:
        name, target = right[0], outcomes[0]
        hint = f"--ignore {word(name)}, or take it with --parameters {word(','.join([*left, name]))}"
        raise TableError(f"{results.path}: {name!r} stands behind {target!r} and may be an outcome, too; say {hint}.")


def spellings(columns: Sequence[Column]) -> list[str]:
    """Lines about levels that differ in case, spaces or hyphens alone."""
    lines = []
    for column in columns:
        alike: dict[str, list[str]] = {}
        for level in column.categories:
            alike.setdefault(re.sub(r"[\s_-]", "", level.casefold()), []).append(level)
        for group in (group for group in alike.values() if len(group) > 1):
            lines.append(f"{column.name} has {' and '.join(group)}, taken for {len(group)} levels; write one if not.")
    return lines


def names_in(words: Sequence[str], tables: Sequence[Table]) -> list[str]:
    """Columns that an option lists, each a word, or several with commas; raises ``TableError``."""
    found = []
    for listed in words:
        whole = any(named(listed, table.names) for table in tables)
        for name in [listed] if whole else [part.strip() for part in listed.split(",") if part.strip()]:
            where = next((table for table in tables if named(name, table.names)), tables[0])
            found.append(where.find(name))
    return found
