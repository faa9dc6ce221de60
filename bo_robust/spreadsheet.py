"""``bo-robust suggest results.csv``: what to measure next, from a table of readings.

The table is the only state: it is read, and never written. It needs no extra; ``--plot`` needs Matplotlib.
"""

from __future__ import annotations

import argparse
import csv
import difflib
import math
import re
import sys
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bo_robust.search_space import MOST_POINTS
from bo_robust.suggest import Suggestion, suggest

__all__ = ["Column", "Table", "TableError", "main", "read_table"]

FAILED = "failed"
KINDS = {
    "integer": "columns of whole numbers",
    "continuous": "columns of numbers, though all so far are whole",
    "categorical": "columns of categories",
}
DECIMAL_COMMA = re.compile(r"^([+-]?\d*),(\d+)$")
Z95 = 1.96  # standard deviations on either side of the mean that hold 95 % of a normal distribution


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
        """The cells of a column."""
        position = self.names.index(name)
        return [row[position] for row in self.rows]

    def where(self, row: int, name: str) -> str:
        """The place of a cell, for errors."""
        return f"{self.path}, row {row + 2}, column {name!r}"

    def names_rows(self, name: str) -> bool:
        """Whether a column holds a text of its own in every row, such as a sample's name."""
        cells = self.cells(name)
        return 1 < len(set(cells)) == len(cells) and all(_number(cell) is None for cell in cells)


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
    if separator != ",":
        parsed[1:] = [[DECIMAL_COMMA.sub(r"\1.\2", cell) for cell in row] for row in parsed[1:]]
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
        numbers = [_number(cell) for *_, cell in places]
        if kind == "categorical" or all(value is None for value in numbers):
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
        return float(self.categories.index(cell)) if self.categories else float(_number(cell) or 0.0)

    def decode(self, value: float) -> str:
        """The cell of a number."""
        if self.categories:
            return self.categories[round(value)]
        return str(round(value)) if self.whole else f"{value:.6g}"

    def __str__(self) -> str:
        if self.categories:
            return f"{self.name} ({', '.join(self.categories[:3])}{', ...' * (len(self.categories) > 3)})"
        return f"{self.name} ({self.span[0]:g} to {self.span[1]:g}{', whole' * self.whole})"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; errors are one sentence on standard error, and exit code 2."""
    options = _parser().parse_args(argv)
    try:
        separator, designs, report = run(options)
    except (ValueError, ImportError) as error:
        print(f"bo-robust suggest: {error}", file=sys.stderr)
        return 2
    csv.writer(sys.stdout, delimiter=separator, lineterminator="\n").writerows(designs)
    sys.stdout.flush()
    print("\n".join(report), file=sys.stderr)
    return 0


def run(options: argparse.Namespace) -> tuple[str, list[list[str]], list[str]]:
    """The separator of cells, the designs to measure next with a header, and the lines about the readings so far."""
    results = read_table(options.results)
    listed = None if options.candidates is None else read_table(options.candidates)
    if options.target not in results.names:
        raise TableError(f"{results.path} has no column {options.target!r}; {_nearest(options.target, results.names)}")
    columns, report, identifiers = _columns(options, results, listed)
    X = [[column.encode(cell) for column, cell in zip(columns, row, strict=True)] for row in _cells(results, columns)]
    readings = results.cells(options.target)
    values = [_number(cell) for cell in readings]
    for i, (cell, value) in enumerate(zip(readings, values, strict=True)):
        if value is None and cell and cell.lower() != FAILED:
            where = results.where(i, options.target)
            raise TableError(f"{where}: {cell!r} is no number; leave it blank while pending, or write {FAILED}.")
    read = [i for i, value in enumerate(values) if value is not None]
    if not read:
        raise TableError(f"{results.path}: column {options.target!r} has no reading yet.")
    categorical = {i: range(len(c.categories)) for i, c in enumerate(columns) if c.categories}
    space: dict[str, Any] = {"categorical": categorical}
    if listed is None:
        ends = [(min(x), max(x)) for x in zip(*X, strict=True)]
        space |= {"bounds": list(zip(*ends, strict=True))}
        # Whole numbers of a wider range are rounded in the end.
        whole = {i: ends[i] for i, c in enumerate(columns) if c.whole and ends[i][1] - ends[i][0] < MOST_POINTS}
        space |= {"discrete": {i: range(int(low), int(high) + 1) for i, (low, high) in whole.items()}}
    else:
        cells = _cells(listed, columns)
        space |= {"candidates": [[c.encode(cell) for c, cell in zip(columns, row, strict=True)] for row in cells]}
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always", UserWarning)
        found = suggest(
            [X[i] for i in read],
            [values[i] for i in read],
            q=options.n,
            maximize=options.maximize,
            X_pending=[X[i] for i, cell in enumerate(readings) if not cell],
            X_failed=[X[i] for i, cell in enumerate(readings) if cell.lower() == FAILED],
            settings={"outcome_scale": None if options.outcome_scale == "none" else options.outcome_scale},
            seed=options.seed,
            **space,
        )
    report += _about(found, results, columns, read, options)
    report += [f"Warning: {one.message}" for one in said if issubclass(one.category, UserWarning)]
    if options.plot is not None:
        model: Any = found.model
        from bo_robust.models.outlier_plot import plot_outliers

        plot_outliers(model, options.plot)
        report.append(f"The picture of all readings is in {options.plot}.")
    names = [column.name for column in columns]
    if listed is None:
        designs = [[column.decode(v) for column, v in zip(columns, x, strict=True)] for x in found.X.tolist()]
    else:  # as they stand there
        names = [*identifiers, *names]
        rows = [listed.rows[space["candidates"].index(x)] for x in found.X.tolist()]
        designs = [[row[listed.names.index(name)] for name in names] for row in rows]
    return results.separator, [names, *designs], report


def _columns(
    options: argparse.Namespace, known: Table, listed: Table | None
) -> tuple[list[Column], list[str], list[str]]:
    """The parameters, lines about columns that are left out, and columns of the list that only name its rows."""
    tables, source = ([known], known) if listed is None else ([known, listed], listed)
    for name in options.ignore:
        if name not in source.names:
            raise TableError(f"{source.path} has no column {name!r}; {_nearest(name, source.names)}")
    names = [name for name in source.names if name not in {options.target, *options.ignore}]
    identifiers = [name for name in names if source.names_rows(name) and name not in options.categorical]
    names = [name for name in names if name not in identifiers]
    if listed is not None:
        for name in names:
            if name not in known.names:
                near = _nearest(name, known.names)
                hint = f"{near.removesuffix('.')}; --ignore {name} leaves it out."
                raise TableError(f"{known.path} has no column {name!r}, a parameter of {listed.path}; {hint}")
    kinds = {name: kind for kind in KINDS for name in getattr(options, kind)}
    for name in kinds:
        if name not in names:
            raise TableError(f"{known.path} has no parameter {name!r}; {_nearest(name, names)}")
    columns = [Column.of(name, tables, kinds.get(name)) for name in names]
    report = []
    if listed is None:
        fixed = [c.name for c in columns if len(set(known.cells(c.name))) == 1]
        columns = [c for c in columns if c.name not in fixed]
        if identifiers:
            report.append(f"A text of its own in every row, so not varied: {', '.join(identifiers)}.")
        if fixed:
            report.append(f"One value only, so not varied: {', '.join(fixed)}.")
    else:
        ignored = [n for n in known.names if n not in {options.target, *options.ignore, *names, *identifiers}]
        if ignored:
            report.append(f"Not in {listed.path}, so not used: {', '.join(ignored)}.")
    if not columns:
        raise TableError(f"{known.path} has no parameter that varies; add designs that differ.")
    return columns, [f"Parameters: {', '.join(map(str, columns))}.", *report], identifiers


def _about(
    found: Suggestion, known: Table, columns: list[Column], read: list[int], options: argparse.Namespace
) -> list[str]:
    """Lines about readings that look wrong, what to measure again, and the design to use now."""
    lines = []
    model: Any = found.model
    scale = getattr(model, "outcome_scale", None)
    if scale is not None and not scale.is_identity:
        lines.append(
            f"Modelled on a scale of its own ({scale}), on which factors count more than differences; --outcome-scale "
            "none models the readings as they are."
        )
    flags = found.outliers.nonzero().flatten().tolist()
    if flags:
        for row in flags:
            away = abs(float(model.loo_zscore[row]))
            lines.append(
                f"Row {read[row] + 2} looks wrong: {options.target} = {known.cells(options.target)[read[row]]} is "
                f"{away:.3g} standard deviations from {float(found.expected[row, 0]):.4g}, which the others predict."
            )
    elif model is not None:
        lines.append("No reading looks wrong.")
    for x in found.X[found.replicate].tolist():
        design = ", ".join(f"{c.name} = {c.decode(v)}" for c, v in zip(columns, x, strict=True))
        lines.append(f"Measure again: {design}; its reading is the best, but looks wrong.")
    if found.best is None:
        lines.append("No design can be recommended yet.")
    else:
        row = read[found.best]
        design = ", ".join(f"{c.name} = {known.cells(c.name)[row]}" for c in columns)
        low, high = found.mean - Z95 * found.std, found.mean + Z95 * found.std
        lines.append(
            f"Recommended now: row {row + 2} ({design}), expected {options.target} {found.mean:.4g} "
            f"(95 % from {low:.4g} to {high:.4g})."
        )
    return lines


def _cells(table: Table, columns: list[Column]) -> list[list[str]]:
    positions = [table.names.index(column.name) for column in columns]
    return [[row[position] for position in positions] for row in table.rows]


def _number(cell: str) -> float | None:
    """The finite number in a cell; None where there is none."""
    try:
        value = float(cell)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _nearest(name: str, names: Sequence[str]) -> str:
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    return f"did you mean {close[0]!r}?" if close else f"it has {', '.join(names)}."


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="bo-robust suggest",
        description="Suggest the designs to measure next, from a CSV table of readings so far, some of which may be "
        "wrong. The designs go to standard output as CSV, what is said about the readings to standard error.",
    )
    parser.add_argument("results", type=Path, help=f"readings so far; blank: pending; '{FAILED}': failed")
    parser.add_argument("--target", required=True, help="the column of the readings")
    sense = parser.add_mutually_exclusive_group(required=True)
    sense.add_argument("--maximize", dest="maximize", action="store_true")
    sense.add_argument("--minimize", dest="maximize", action="store_false")
    parser.add_argument(
        "--candidates", type=Path, help="CSV of the designs to choose from; default: the range of each column"
    )
    parser.add_argument("-n", type=int, default=1, help="number of designs; default 1")
    for name, what in {**KINDS, "ignore": "columns that are no parameters, such as dates and notes"}.items():
        parser.add_argument(f"--{name}", nargs="+", default=[], metavar="COLUMN", help=what)
    parser.add_argument(
        "--outcome-scale",
        choices=("auto", "none"),
        default="auto",
        help="whether a logarithm or a root of the readings may be modelled, which the data choose; default auto",
    )
    parser.add_argument(
        "--plot", type=Path, metavar="PNG", help="draw leave-one-out predictions, flagged readings marked"
    )
    parser.add_argument("--seed", type=int, default=0)
    return parser
