"""``bo-robust suggest results.csv``: what to measure next, from a table of readings.

The table is the only state: it is read, and never written. It needs no extra; ``--plot`` needs Matplotlib.
"""

from __future__ import annotations

import argparse
import csv
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bo_robust.search_space import MOST_POINTS
from bo_robust.suggest import Suggestion, suggest
from bo_robust.table import Column, Table, TableError, number, read_table
from bo_robust.utils.specs import nearest

FAILED = "failed"
KINDS = {
    "integer": "columns of whole numbers",
    "continuous": "columns of numbers, though all so far are whole",
    "categorical": "columns of categories",
}


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
        raise TableError(f"{results.path} has no column {options.target!r}; {nearest(options.target, results.names)}.")
    columns, report, identifiers = _columns(options, results, listed)
    X = [[column.encode(cell) for column, cell in zip(columns, row, strict=True)] for row in _cells(results, columns)]
    readings = results.cells(options.target)
    values = [number(cell) for cell in readings]
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
        found = suggest(
            [X[i] for i in read],
            [values[i] for i in read],
            q=options.n,
            maximize=options.maximize,
            X_pending=[X[i] for i, cell in enumerate(readings) if not cell],
            X_failed=[X[i] for i, cell in enumerate(readings) if cell.lower() == FAILED],
            settings={"outcome_scale": None if options.outcome_scale == "none" else "auto"},
            seed=options.seed,
            **space,
        )
    report += _about(found, results, columns, read, options)
    report += [f"Warning: {one.message}" for one in said]
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
            raise TableError(f"{source.path} has no column {name!r}; {nearest(name, source.names)}.")
    names = [name for name in source.names if name not in {options.target, *options.ignore}]
    identifiers = [name for name in names if source.names_rows(name) and name not in options.categorical]
    names = [name for name in names if name not in identifiers]
    if listed is not None:
        for name in names:
            if name not in known.names:
                hint = f"{nearest(name, known.names)}; --ignore {name} leaves it out."
                raise TableError(f"{known.path} has no column {name!r}, a parameter of {listed.path}; {hint}")
    kinds = {name: kind for kind in KINDS for name in getattr(options, kind)}
    for name in kinds:
        if name not in names:
            raise TableError(f"{known.path} has no parameter {name!r}; {nearest(name, names)}.")
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
    if not model.outcome_scale.is_identity:
        lines.append(
            f"Modelled on a scale of its own ({model.outcome_scale}), on which factors count more than differences; "
            "--outcome-scale none models the readings as they are."
        )
    for row in found.outliers.nonzero().flatten().tolist():
        lines.append(
            f"Row {read[row] + 2} looks wrong: {options.target} = {known.cells(options.target)[read[row]]} is "
            f"{abs(float(model.loo_zscore[row])):.3g} standard deviations from {float(found.expected[row, 0]):.4g}, "
            "which the others predict."
        )
    for row in found.held.nonzero().flatten().tolist():
        lines.append(
            f"Row {read[row] + 2}: {options.target} = {known.cells(options.target)[read[row]]} is far from all others, "
            f"and plausible only if {options.target} varies by factors. Measure it again before you rely on it."
        )
    if not (found.outliers | found.held).any():
        lines.append("No reading looks wrong.")
    for x in found.X[found.replicate].tolist():
        design = ", ".join(f"{c.name} = {c.decode(v)}" for c, v in zip(columns, x, strict=True))
        lines.append(f"Measure again: {design}; its reading is the best, but may be wrong.")
    if found.best is None:
        lines.append("No design can be recommended yet.")
    else:
        row = read[found.best]
        design = ", ".join(f"{c.name} = {known.cells(c.name)[row]}" for c in columns)
        low, high = found.interval
        lines.append(
            f"Recommended now: row {row + 2} ({design}), expected {options.target} {found.mean:.4g} "
            f"(95 % from {low:.4g} to {high:.4g})."
        )
    return lines


def _cells(table: Table, columns: list[Column]) -> list[list[str]]:
    positions = [table.names.index(column.name) for column in columns]
    return [[row[position] for position in positions] for row in table.rows]


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
    parser.add_argument("--candidates", type=Path, help="CSV of designs to choose from; default: the columns' ranges")
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
        "--plot", type=Path, metavar="PNG", help="draw leave-one-out residuals and the flagged readings"
    )
    parser.add_argument("--seed", type=int, default=0)
    return parser
