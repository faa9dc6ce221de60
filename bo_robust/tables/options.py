"""What the options of ``bo-robust suggest`` say of the columns of a table; ``TableError`` where they do not fit it."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any

from bo_robust.tables.cells import TableError, quantity, written
from bo_robust.tables.columns import ColumnOptions
from bo_robust.tables.kinds import KINDS
from bo_robust.tables.table import Table, named, plain

REQUIREMENT = re.compile(r"(?P<column>.+?)\s*(?P<sign>>=|<=|≥|≤|>|<)\s*(?P<limit>[^<>=]+)")
WITHOUT_EFFECT = [  # pairs of options for one column, beside those of two kinds
    *({"categorical", "bounds"}, {"categorical", "step"}),
    *({"log", "step"}, {"continuous", "step"}, {"continuous", "levels"}, {"levels", "step"}),
]

Sum = tuple[list[str], list[float], float]  # names, factors and right-hand side


def column_options(options: argparse.Namespace, tables: Sequence[Table], constrained: Sequence[str]) -> ColumnOptions:
    """The options about columns, where those in sums and inequalities are ``constrained``."""
    table, bounds, levels, steps = tables[0], {}, {}, {}
    for name, ends in _given("--bounds", options.bounds, table):
        low, colon, high = ends.partition(":")
        if not colon or not quantity(low) < quantity(high):
            raise TableError(f"--bounds {name}={ends} must be COLUMN=LOW:HIGH, the lower number first.")
        bounds[name] = quantity(low), quantity(high)
    for name, values in _given("--levels", options.levels, table):
        parts = [value.strip() for value in values.split(";" if ";" in values else ",") if value.strip()]
        if ";" not in values and table.mark == "," and len(parts) > 1 and all(map(written, parts)):
            hint = f"commas are decimal marks in {table.path}; write ; between levels"
            raise TableError(f"--levels {name}={values}: {hint}.")
        if twice := [part for i, part in enumerate(parts) if part in parts[:i]]:
            raise TableError(f"--levels {name}={values} has {twice[0]} twice; leave one out.")
        levels[name] = parts
    for name, value in _given("--step", options.step, table):
        steps[name] = quantity(value, f"--step {name}={value}")
        if not steps[name] > 0.0:
            raise TableError(f"--step {name}={value} must be larger than 0.")
    if options.condition and options.observe:
        raise TableError("give --condition or --observe: conditions are all set for a test, or none is.")
    said = {kind: names_in(getattr(options, kind), tables) for one in KINDS for kind in one.options}
    _check_effect({**said, "bounds": bounds, "levels": levels, "step": steps})
    conditions = names_in([*options.condition, *options.observe], [table])
    fixed = dict(_given("--fix", options.fix, table))
    _check_conditions(conditions, fixed, {"levels": levels, "step": steps})
    return ColumnOptions(
        parameters=names_in(options.parameters, tables),
        ignored=names_in(options.ignore, tables),
        kinds={name: kind for kind, names in said.items() for name in names},
        bounds=bounds,
        levels=levels,
        steps=steps,
        fixed=fixed,
        constrained=constrained,
        batch=None if options.batch is None else table.find(options.batch),
        conditions=conditions,
    )


def _check_effect(given: Mapping[str, Iterable[str]]) -> None:
    """Raise ``TableError`` where, of two options for one column, one would have no effect."""
    for (one, names), (other, others) in combinations(given.items(), 2):
        both = sorted({*names} & {*others})
        kinds = not {one, other} & {"bounds", "levels", "step"}
        if both and (kinds or {one, other} in WITHOUT_EFFECT):
            raise TableError(f"--{one} and --{other} contradict each other for {both[0]!r}; leave one out.")


def _check_conditions(conditions: Sequence[str], fixed: Iterable[str], given: Mapping[str, Iterable[str]]) -> None:
    """Raise ``TableError`` where an option has no effect on conditions, or does not go with them."""
    for option, names in given.items():
        if seen := [name for name in names if name in conditions]:
            raise TableError(f"the values of condition {seen[0]!r} are those in the table; leave --{option} out.")
    for name in fixed if conditions else ():
        number = "" if name in conditions else f"give {name}, if it is a number, --bounds and one of --levels, or "
        hint = f"{number}leave out the rows where it has others"
        raise TableError(f"--fix does not go with --condition or --observe; {hint}.")


def requirement(text: str) -> tuple[str, str, float]:
    """Column, sign and limit of ``purity >= 95``."""
    match = REQUIREMENT.fullmatch(text.strip())
    if match is None:
        raise TableError(f'--require {text!r} is no requirement such as "purity >= 95".')
    return match["column"].strip(), match["sign"], quantity(match["limit"].strip())


def limits_of(texts: Sequence[str], objectives: Sequence[str], table: Table) -> list[Any]:
    """The limits of each objective, or None."""
    limits: dict[str, tuple[float | None, float | None]] = {}
    for text in texts:
        name, _, ends = text.rpartition("=")
        if not name and len(objectives) > 1:
            raise TableError(f"--limits {text} needs a column, such as --limits {objectives[0]}={text}.")
        column = table.find(name.strip()) if name else objectives[0]
        if column not in objectives:
            raise TableError(f"--limits {text}: {column!r} is not maximized or minimized.")
        low, colon, high = (part.strip() for part in ends.partition(":"))
        pair = (quantity(low) if low else None, quantity(high) if high else None)
        if not colon or pair == (None, None):
            raise TableError(f"--limits {text} must be LOW:HIGH, such as 0:100; one of them may be left out.")
        if low and high and quantity(low) >= quantity(high):
            raise TableError(f"--limits {text}: write the smaller number first.")
        limits[column] = pair
    return [limits.get(name) for name in objectives]


def with_distances(table: Table, texts: Sequence[str], **opposed: Sequence[str]) -> tuple[Table, list[str]]:
    """The table with distances from targets in place of the columns that --target names, and their new names.

    Columns of ``opposed`` options have none.
    """
    found: list[str] = []
    for text in texts:
        asked, value = _assignment("--target", text)
        name, target, mark = table.find(asked), quantity(value, f"--target {text}"), table.mark
        if twice := [
            f"--{sense}" for sense, others in opposed.items() if name in (named(o, table.names) for o in others)
        ]:
            raise TableError(f"{name} has --target and {twice[0]}; give one.")
        place, found = table.names.index(name), [*found, f"|{name} - {target:g}|"]
        rows = [list(row) for row in table.rows]
        for row, reading in zip(rows, table.values(name, outcome=True), strict=True):
            row[place] = row[place] if reading is None else f"{abs(reading - target):.12g}".replace(".", mark)
        table = replace(table, rows=rows, names=[*table.names[:place], found[-1], *table.names[place + 1 :]])
    return table, found


def sums(texts: Sequence[str], tables: Sequence[Table]) -> list[Sum]:
    """Sums that proposals keep."""
    parts = [_assignment("--sum", text) for text in texts if text != "none"]
    found = [(names_in([names], tables), quantity(total)) for names, total in parts]
    return [(names, [1.0] * len(names), total) for names, total in found]


def inequalities(texts: Sequence[str], table: Table) -> list[Sum]:
    """Inequalities that proposals keep; their sums are at least the right-hand side."""
    found = []
    for text in texts:
        match = REQUIREMENT.fullmatch(text.strip())
        if match is None:
            raise TableError(f'--where {text!r} is no condition such as "A + 2 B <= 60".')
        names, factors = _terms(match["column"], table)
        sign = 1.0 if match["sign"] in (">=", "≥", ">") else -1.0
        found.append((names, [sign * f for f in factors], sign * quantity(match["limit"])))
    return found


def _terms(text: str, table: Table) -> tuple[list[str], list[float]]:
    """Columns and factors of a sum such as ``A + 2 B``; the longest name that fits is taken, unit or not."""
    labels = sorted({label for name in table.names for label in (name, plain(name))}, key=len, reverse=True)
    term = re.compile(rf"([+-]?)\s*(\d[\d.,]*)?\s*\*?\s*({'|'.join(map(re.escape, labels))})\s*", re.IGNORECASE)
    names: list[str] = []
    factors: list[float] = []
    rest = text.strip()
    while rest:
        match = term.match(rest)
        if match is None or (names and not match[1]):
            table.find(re.split(r"[+*-]", rest.lstrip("+-*., 0123456789"))[0].strip() or text)
            raise TableError(f"{text!r} is no sum of columns such as A + 2 B.")
        names.append(table.find(match[3]))
        factors.append((-1.0 if match[1] == "-" else 1.0) * quantity(match[2] or "1"))
        rest = rest[match.end() :]
    return names, factors


def _given(option: str, texts: Sequence[str], table: Table) -> Iterator[tuple[str, str]]:
    """Columns, and what an option says of each."""
    for text in texts:
        name, value = _assignment(option, text)
        yield table.find(name), value


def _assignment(option: str, text: str) -> tuple[str, str]:
    name, equals, value = text.rpartition("=")
    if not (equals and name.strip() and value.strip()):
        form = "A,B,C" if option == "--sum" else "COLUMN"
        raise TableError(f"{option} {text} has no =; write {option} {form}=VALUE.")
    return name.strip(), value.strip()


def names_in(words: Sequence[str], tables: Sequence[Table]) -> list[str]:
    """Columns that an option lists, each a word, or several with commas; raises ``TableError``."""
    found = []
    for listed in words:
        whole = any(named(listed, table.names) for table in tables)
        for name in [listed] if whole else [part.strip() for part in listed.split(",") if part.strip()]:
            where = next((table for table in tables if named(name, table.names)), tables[0])
            found.append(where.find(name))
    return found
