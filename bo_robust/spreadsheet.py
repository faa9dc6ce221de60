"""``bo-robust suggest results.csv``: what to measure next, from a table of readings.

The table is the only state: it is read, and never written. It needs no extra; ``--plot`` needs Matplotlib.
"""

from __future__ import annotations

import argparse
import csv
import difflib
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from bo_robust.suggest import Suggestion, suggest

__all__ = ["Column", "Table", "TableError", "main", "read_table"]

FAILED = "failed"
Z95 = 1.96  # standard deviations on either side of the mean that hold 95 % of a normal distribution


class TableError(ValueError):
    """A table that cannot be used; the message names file, row and column."""


@dataclass(frozen=True)
class Table:
    """The rows of a CSV file, as text, by the names in its header; ``rows[i]`` is row i + 2 of the file."""

    path: Path
    names: list[str]
    rows: list[list[str]]

    def cells(self, name: str) -> list[str]:
        """The cells of a column."""
        position = self.names.index(name)
        return [row[position] for row in self.rows]

    def where(self, row: int, name: str) -> str:
        """The place of a cell, for errors."""
        return f"{self.path}, row {row + 2}, column {name!r}"


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
    return Table(path, names, rows)


@dataclass
class Column:
    """A parameter: a column of numbers, whole numbers or categories."""

    name: str
    whole: bool = False
    categories: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, name: str, tables: Sequence[Table], whole: bool, categorical: bool) -> Column:
        """Recognise a column: categories where no cell is a number, whole numbers where all are."""
        places = [(t, i, cell) for t in tables for i, cell in enumerate(t.cells(name))]
        for table, i, cell in places:
            if not cell:
                raise TableError(f"{table.where(i, name)} is blank; every design needs a value.")
        numbers = [_number(cell) for *_, cell in places]
        if categorical or all(value is None for value in numbers):
            return cls(name, categories=sorted({cell for *_, cell in places}))
        for (table, i, cell), value in zip(places, numbers, strict=True):
            if value is None:
                hint = f"correct it, or name the column with --categorical {name}"
                raise TableError(f"{table.where(i, name)}: {cell!r} is no number; {hint}.")
            if whole and not value.is_integer():
                raise TableError(f"{table.where(i, name)}: {cell!r} is no whole number, as --integer says.")
        return cls(name, whole or all(value is not None and value.is_integer() for value in numbers))

    def encode(self, cell: str) -> float:
        """The number of a cell; of a category, its place in the list."""
        return float(self.categories.index(cell)) if self.categories else float(_number(cell) or 0.0)

    def decode(self, value: float) -> str:
        """The cell of a number."""
        if self.categories:
            return self.categories[round(value)]
        return str(round(value)) if self.whole else f"{value:.6g}"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; errors are one sentence on standard error, and exit code 2."""
    options = _parser().parse_args(argv)
    try:
        designs, report = run(options)
    except (ValueError, ImportError) as error:
        print(f"bo-robust suggest: {error}", file=sys.stderr)
        return 2
    csv.writer(sys.stdout, lineterminator="\n").writerows(designs)
    sys.stdout.flush()
    print("\n".join(report), file=sys.stderr)
    return 0


def run(options: argparse.Namespace) -> tuple[list[list[str]], list[str]]:
    """The designs to measure next, as rows with a header, and the lines about the readings so far."""
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
            raise TableError(f"{where}: {cell!r} is no number; leave it blank while under way, or write {FAILED}.")
    read = [i for i, value in enumerate(values) if value is not None]
    if not read:
        raise TableError(f"{results.path}: column {options.target!r} has no reading yet.")
    categorical = {i: range(len(c.categories)) for i, c in enumerate(columns) if c.categories}
    space: dict[str, Any] = {"categorical": categorical}
    if listed is None:
        ends = [(min(x), max(x)) for x in zip(*X, strict=True)]
        space |= {"bounds": list(zip(*ends, strict=True))}
        space |= {"discrete": {i: range(int(a), int(b) + 1) for i, (a, b) in enumerate(ends) if columns[i].whole}}
    else:
        cells = _cells(listed, columns)
        space |= {"candidates": [[c.encode(cell) for c, cell in zip(columns, row, strict=True)] for row in cells]}
    found = suggest(
        [X[i] for i in read],
        [values[i] for i in read],
        q=options.n,
        maximize=options.maximize,
        X_pending=[X[i] for i, cell in enumerate(readings) if not cell],
        X_failed=[X[i] for i, cell in enumerate(readings) if cell.lower() == FAILED],
        seed=options.seed,
        **space,
    )
    report += _about(found, results, columns, read, options)
    if options.plot is not None:
        model: Any = found.model
        from bo_robust.models.outlier_plot import plot_outliers

        plot_outliers(model, options.plot)
        report.append(f"The picture of all readings is in {options.plot}.")
    names = [column.name for column in columns]
    designs = [[column.decode(v) for column, v in zip(columns, x, strict=True)] for x in found.X.tolist()]
    if listed is not None and identifiers:
        rows = [listed.rows[space["candidates"].index(x)] for x in found.X.tolist()]
        designs = [
            [row[listed.names.index(name)] for name in identifiers] + x for row, x in zip(rows, designs, strict=True)
        ]
    return [[*identifiers, *names], *designs], report


def _columns(
    options: argparse.Namespace, known: Table, listed: Table | None
) -> tuple[list[Column], list[str], list[str]]:
    """The parameters, lines about columns that are left out, and columns of the list that only name its rows."""
    tables = [known] if listed is None else [known, listed]
    names = [name for name in (known if listed is None else listed).names if name != options.target]
    identifiers: list[str] = []
    if listed is not None:
        texts = {name: listed.cells(name) for name in names}
        identifiers = [
            name
            for name, cells in texts.items()
            if len(set(cells)) == len(cells)
            and all(_number(c) is None for c in cells)
            and name not in options.categorical
        ]
        names = [name for name in names if name not in identifiers]
        for name in names:
            if name not in known.names:
                raise TableError(
                    f"{known.path} has no column {name!r}, which {listed.path} has; {_nearest(name, known.names)}"
                )
    for name in (*options.integer, *options.categorical):
        if name not in names:
            raise TableError(f"{known.path} has no parameter {name!r}; {_nearest(name, names)}")
    columns = [Column.of(name, tables, name in options.integer, name in options.categorical) for name in names]
    report = []
    if listed is None:
        fixed = [c.name for c in columns if len(set(known.cells(c.name))) == 1]
        columns = [c for c in columns if c.name not in fixed]
        if fixed:
            report.append(f"One value only, so not varied: {', '.join(fixed)}.")
    else:
        ignored = [n for n in known.names if n not in {options.target, *names, *identifiers}]
        if ignored:
            report.append(f"Not in {listed.path}, so not used: {', '.join(ignored)}.")
    if not columns:
        raise TableError(f"{known.path} has no parameter that varies; add designs that differ.")
    return columns, report, identifiers


def _about(
    found: Suggestion, known: Table, columns: list[Column], read: list[int], options: argparse.Namespace
) -> list[str]:
    """Lines about readings that look wrong, what to measure again, and the design to use now."""
    lines = []
    model: Any = found.model
    flags = found.outliers.nonzero().flatten().tolist()
    if flags:
        for row in flags:
            away = abs(float(model.loo_zscore[row]))
            lines.append(
                f"Row {read[row] + 2} looks wrong: {options.target} = {known.cells(options.target)[read[row]]} is "
                f"{away:.3g} standard deviations from {float(found.expected[row, 0]):.4g}, which the others let expect."
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
            f"To use now: row {row + 2} ({design}), expected {options.target} {found.mean:.4g} "
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
    return value if torch.tensor(value).isfinite() else None


def _nearest(name: str, names: Sequence[str]) -> str:
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    return f"did you mean {close[0]!r}?" if close else f"it has {', '.join(names)}."


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="bo-robust suggest",
        description="Suggest the designs to measure next, from a CSV table of readings so far, some of which may be "
        "wrong. The designs go to standard output as CSV, what is said about the readings to standard error.",
    )
    parser.add_argument("results", type=Path, help=f"readings so far; blank: under way; '{FAILED}': failed")
    parser.add_argument("--target", required=True, help="the column of the readings")
    sense = parser.add_mutually_exclusive_group(required=True)
    sense.add_argument("--maximize", dest="maximize", action="store_true")
    sense.add_argument("--minimize", dest="maximize", action="store_false")
    parser.add_argument(
        "--candidates", type=Path, help="CSV of the designs to choose from; default: the box of columns"
    )
    parser.add_argument("-n", type=int, default=1, help="number of designs; default 1")
    parser.add_argument("--integer", nargs="+", default=[], metavar="COLUMN", help="columns of whole numbers")
    parser.add_argument("--categorical", nargs="+", default=[], metavar="COLUMN", help="columns of categories")
    parser.add_argument(
        "--plot", type=Path, metavar="PNG", help="draw leave-one-out predictions, flagged readings marked"
    )
    parser.add_argument("--seed", type=int, default=0)
    return parser
