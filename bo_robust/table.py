"""A table of designs and readings, from a CSV file: its cells as text, and its columns as numbers or categories."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

DECIMAL_COMMA = re.compile(r"([+-]?\d*),(\d+)")


class TableError(ValueError):
    """A table that cannot be used; the message names file, row and column."""


@dataclass(frozen=True)
class Table:
    """The rows of a CSV file, as text, by the names in its header; ``rows[i]`` is row i + 2 of the file."""

    path: Path
    names: list[str]
    rows: list[list[str]]
    separator: str = ","

    def cells(self, name: str) -> list[str]:
        position = self.names.index(name)
        return [row[position] for row in self.rows]

    def where(self, row: int, name: str) -> str:
        return f"{self.path}, row {row + 2}, column {name!r}"

    def names_rows(self, name: str) -> bool:
        """Whether a column holds a text of its own in every row, such as a sample's name."""
        cells = self.cells(name)
        numeric = (number(cell) is not None or DECIMAL_COMMA.fullmatch(cell) for cell in cells)
        return 1 < len(set(cells)) == len(cells) and not any(numeric)


def read_table(path: Path) -> Table:
    """Read a CSV file with a header; raises ``TableError`` where it is none."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise TableError(f"{path}: {error.strerror or error}.") from None
    except UnicodeDecodeError:
        raise TableError(f"{path} is not UTF-8 text; save it as CSV (UTF-8).") from None
    lines = text.splitlines()
    if not lines or not lines[0].strip():
        raise TableError(f"{path} is empty; its first row must name the columns.")
    separator = max(",;\t", key=lines[0].count)  # what spreadsheets write, by country
    parsed = [[cell.strip() for cell in row] for row in csv.reader(lines, delimiter=separator)]
    if separator == ";":  # written where the comma is the decimal point
        parsed[1:] = [[re.sub(f"^{DECIMAL_COMMA.pattern}$", r"\1.\2", cell) for cell in row] for row in parsed[1:]]
    names, rows = parsed[0], parsed[1:]
    for i, name in enumerate(names):
        if not name:
            raise TableError(f"{path}: column {i + 1} has no name in the first row.")
        if names.index(name) < i:
            raise TableError(f"{path} has two columns {name!r}; rename one.")
    while rows and not any(rows[-1]):
        rows.pop()
    for i, row in enumerate(rows):
        if not any(row):
            raise TableError(f"{path}, row {i + 2} is blank; delete it.")
        if len(row) != len(names):
            raise TableError(f"{path}, row {i + 2} has {len(row)} cells where the first row has {len(names)}.")
    return Table(path, names, rows, separator)


@dataclass
class Column:
    """A parameter: a column of numbers, whole numbers or categories, and its cells in all tables."""

    name: str
    whole: bool = False
    categories: list[str] = field(default_factory=list)
    span: tuple[float, float] = (0.0, 0.0)  # of numbers

    @classmethod
    def of(cls, name: str, tables: Sequence[Table], kind: str | None = None) -> Column:
        """Recognise a column: categories where no cell is a number, whole numbers where none has a decimal point.

        ``kind`` may say what it is: "integer", "continuous" or "categorical".
        """
        places = [(t, i, cell) for t in tables for i, cell in enumerate(t.cells(name))]
        for table, i, cell in places:
            if not cell:
                hint = f"every design needs a value; --ignore {name} leaves the column out"
                raise TableError(f"{table.where(i, name)} is blank: {hint}.")
        numbers = [number(cell) for *_, cell in places]
        if kind == "categorical" or all(value is None for value in numbers):
            for table, i, cell in places if kind is None else ():
                if DECIMAL_COMMA.fullmatch(cell):
                    hint = f"write a decimal point, or name the column with --categorical {name}"
                    raise TableError(f"{table.where(i, name)}: {cell!r} has a comma; {hint}.")
            return cls(name, categories=sorted({cell for *_, cell in places}))
        for (table, i, cell), value in zip(places, numbers, strict=True):
            if value is None:
                hint = f"correct it, or name the column with --categorical {name}"
                raise TableError(f"{table.where(i, name)}: {cell!r} is no number; {hint}.")
            if kind == "integer" and not value.is_integer():
                raise TableError(f"{table.where(i, name)}: {cell!r} is no whole number, as --integer says.")
        values = [value for value in numbers if value is not None]
        whole = all(re.fullmatch(r"[+-]?\d+", cell) for *_, cell in places)
        span = min(values, default=0.0), max(values, default=0.0)
        return cls(name, kind == "integer" or (whole and kind is None), span=span)

    def encode(self, cell: str) -> float:
        """The number of a cell; of a category, its place in the list."""
        return float(self.categories.index(cell)) if self.categories else float(number(cell) or 0.0)

    def decode(self, value: float) -> str:
        if self.categories:
            return self.categories[round(value)]
        return str(round(value)) if self.whole else f"{value:.6g}"

    def __str__(self) -> str:
        if self.categories:
            first, more = self.categories[:3], ["..."] if len(self.categories) > 3 else []
            return f"{self.name} ({', '.join(first + more)})"
        return f"{self.name} ({self.span[0]:g} to {self.span[1]:g}{', whole' if self.whole else ''})"


def number(cell: str) -> float | None:
    """The finite number in a cell; None where there is none."""
    try:
        value = float(cell)
    except ValueError:
        return None
    return value if math.isfinite(value) else None
