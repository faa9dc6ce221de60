"""A campaign as its table says it: parameters, readings, and what is pending or failed."""

from __future__ import annotations

import argparse
import math
import re
from itertools import combinations
from typing import Any

import numpy as np

from bo_robust.cells import FAILED, TableError, advice, is_pending, written
from bo_robust.columns import Column, Said, column_of, left_out, names_in, quantity, spellings
from bo_robust.search_space import SearchSpace, among, numbers
from bo_robust.table import Table, read_table

KINDS = {
    "integer": "columns of whole numbers",
    "continuous": "columns of numbers that take any value, though all so far are whole or in steps",
    "categorical": "columns of categories",
}
REQUIREMENT = re.compile(r"(?P<column>.+?)\s*(?P<sign>>=|<=|≥|≤|>|<)\s*(?P<limit>[^<>=]+)")
TERM = re.compile(r"\s*(?P<sign>[+-]?)\s*(?P<factor>\d[\d.,]*)?\s*\*?\s*")


class Campaign:
    """The tables and what is asked, read and recognised; ``TableError`` where they cannot be."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        asked = [(name, True) for name in options.maximize] + [(name, False) for name in options.minimize]
        required = [_requirement(text) for text in options.require]
        wanted = [name for name, _ in asked] + [name for name, *_ in required]
        self.results = read_table(options.results, wanted, options.decimal)
        if not asked:
            raise TableError(
                f"say what to optimize, such as --maximize COLUMN; columns are {', '.join(self.results.names)}."
            )
        self.listed = self._list()
        self.objectives = [self.results.find(name) for name, _ in asked]
        self.maximize = [sense for _, sense in asked]
        self.required = [(self.results.find(name), sign, limit) for name, sign, limit in required]
        self.outcomes = [*self.objectives, *(name for name, *_ in self.required)]
        if twice := [name for i, name in enumerate(self.objectives) if name in self.objectives[:i]]:
            raise TableError(f"{twice[0]!r} is maximized or minimized twice; name it once.")
        self.limits = self._limits()
        self.equalities, self.inequalities = self._constraints()
        self.columns, self.identifiers, self.left_out = self._recognise()
        self._read()

    def _list(self) -> Table | None:
        if self.options.candidates is None:
            return None
        shaping = ("bounds", "levels", "step", "sum", "where")
        if said := [name for name in shaping if getattr(self.options, name) not in ([], ["none"])]:
            raise TableError(f"--{said[0]} is for proposals of any design; --candidates says which there are.")
        listed = read_table(self.options.candidates, decimal=self.options.decimal)
        shared = [name for name in self.results.names if name in listed.names]
        return read_table(self.options.candidates, shared, self.options.decimal) if shared else listed

    def _limits(self) -> list[tuple[float | None, float | None] | None]:
        """The limits of each objective."""
        limits: dict[str, tuple[float | None, float | None]] = {}
        for text in self.options.limits:
            name, _, ends = text.rpartition("=")
            if not name and len(self.objectives) > 1:
                raise TableError(f"--limits {text} needs a column, such as --limits {self.objectives[0]}={text}.")
            column = self.results.find(name.strip()) if name else self.objectives[0]
            if column not in self.objectives:
                raise TableError(f"--limits {text}: {column!r} is not maximized or minimized.")
            low, colon, high = (part.strip() for part in ends.partition(":"))
            pair = (quantity(low) if low else None, quantity(high) if high else None)
            if not colon or pair == (None, None):
                raise TableError(f"--limits {text} must be LOW:HIGH, such as 0:100; one of them may be left out.")
            limits[column] = pair
        return [limits.get(name) for name in self.objectives]

    def _constraints(self) -> tuple[list[Any], list[Any]]:
        """Sums and inequalities, each as (names, coefficients, right-hand side); inequalities hold from it on."""
        equalities, inequalities = [], []
        for text in (text for text in self.options.sum if text != "none"):
            parts, total = _assignment("--sum", text)
            found = names_in([parts], self._tables())
            equalities.append((found, [1.0] * len(found), quantity(total)))
        for text in self.options.where:
            match = REQUIREMENT.fullmatch(text.strip())
            if match is None:
                raise TableError(f'--where {text!r} is no condition such as "A + 2 B <= 60".')
            names, factors = self._terms(match["column"])
            sign = 1.0 if match["sign"] in (">=", "≥", ">") else -1.0
            inequalities.append((names, [sign * f for f in factors], sign * quantity(match["limit"])))
        return equalities, inequalities

    def _terms(self, text: str) -> tuple[list[str], list[float]]:
        """Columns and factors of a sum such as ``A + 2 B``; the longest name that fits is taken."""
        names: list[str] = []
        factors: list[float] = []
        rest = text.strip()
        while rest:
            term = TERM.match(rest)
            assert term is not None
            rest = rest[term.end() :]
            found = [name for name in sorted(self.results.names, key=len, reverse=True) if rest.startswith(name)]
            if not found or (names and not term["sign"]):
                word = re.split(r"[+*-]", rest)[0].strip()
                self.results.find(word or text)
                raise TableError(f"{text!r} is no sum of columns such as A + 2 B.")
            factor = quantity(term["factor"]) if term["factor"] else 1.0
            names, factors = [*names, found[0]], [*factors, -factor if term["sign"] == "-" else factor]
            rest = rest[len(found[0]) :].strip()
        return names, factors

    def _tables(self) -> list[Table]:
        return [self.results] if self.listed is None else [self.results, self.listed]

    def _recognise(self) -> tuple[list[Column], list[str], dict[str, str]]:
        """The parameters and conditions, columns of the list that name its rows, and what is left out."""
        options, tables = self.options, self._tables()
        listed_names = {kind: names_in(getattr(options, kind), tables) for kind in KINDS}
        bounds, levels, steps = {}, {}, {}
        for text in options.bounds:
            name, ends = _assignment("--bounds", text)
            low, colon, high = ends.partition(":")
            if not colon or not quantity(low) < quantity(high):
                raise TableError(f"--bounds {text} must be COLUMN=LOW:HIGH, the lower number first.")
            bounds[self.results.find(name)] = quantity(low), quantity(high)
        for text in options.levels:
            name, values = _assignment("--levels", text)
            parts = [value.strip() for value in values.split(";" if ";" in values else ",") if value.strip()]
            if ";" not in values and self.results.mark == "," and len(parts) > 1 and all(map(written, parts)):
                raise TableError(
                    f"--levels {text}: commas are decimal marks in {self.results.path}; write ; between levels."
                )
            levels[self.results.find(name)] = parts
        for text in options.step:
            name, value = _assignment("--step", text)
            steps[self.results.find(name)] = quantity(value)
            if not quantity(value) > 0.0:
                raise TableError(f"--step {text} must be larger than 0.")
        if options.condition and options.observe:
            raise TableError("give --condition or --observe: conditions are all set for a test, or none is.")
        self.conditions = names_in([*options.condition, *options.observe], [self.results])
        said = Said(
            parameters=names_in(options.parameters, tables),
            ignored=names_in(options.ignore, tables),
            kinds={name: kind for kind, names in listed_names.items() for name in names},
            bounds=bounds,
            levels=levels,
            steps=steps,
            constrained=[name for names, *_ in (*self.equalities, *self.inequalities) for name in names],
            conditions=self.conditions,
        )
        if both := said.named & {*self.outcomes, *said.ignored}:
            raise TableError(f"{min(both)!r} cannot be a parameter and something else; leave one of the options out.")
        out = left_out(self.results, self.listed, self.outcomes, said)
        source = self.results if self.listed is None else self.listed
        names = [name for name in source.names if name not in {*out, *self.outcomes, *self.conditions}]
        for name in names:
            if name not in self.results.names:
                self.results.find(name)  # raises, or differs in case
                raise TableError(f"{self.results.path} has no column {name!r}, which {source.path} has; rename one.")
        for name in (name for name in said.parameters if name not in source.names):
            raise TableError(f"{source.path} has no column {name!r}, which --parameters names.")
        columns = [column_of(name, tables, said) for name in names]
        columns += [column_of(name, [self.results], said) for name in self.conditions]
        for column in columns:
            single = not column.observed and not column.categories and not column.span[0] < column.span[1]
            if self.listed is None and single:
                raise TableError(f"{column.name!r} has one value or none; give --bounds {column.name}=LOW:HIGH.")
        if all(column.observed for column in columns):
            reasons = "".join(f"; {name}: {reason}" for name, reason in out.items())
            raise TableError(f"{self.results.path} has no parameter that varies{reasons}. Name some with --parameters.")
        identifiers = (
            [] if self.listed is None else [n for n in out if n in self.listed.names and n not in said.ignored]
        )
        self._recognise_mixture(columns)
        return columns, identifiers, out

    def _recognise_mixture(self, columns: list[Column]) -> None:
        """Add the sum that columns have in every row, as the parts of a mixture do."""
        self.mixture = ""
        parts = [c for c in columns if not (c.categories or c.observed)]
        if self.options.sum or self.listed is not None or not 2 <= len(parts) <= 12:
            return
        table = np.array([c.codes(self.results) for c in parts]).reshape(len(parts), -1).T
        if len(np.unique(table, axis=0)) <= len(parts):
            return
        for size in range(2, len(parts) + 1):
            for some in combinations(range(len(parts)), size):
                total = table[:, some].sum(-1)
                if np.ptp(total) <= 1e-6 * max(1.0, float(np.abs(table[:, some]).max())):
                    names = [parts[i].name for i in some]
                    self.equalities.append((names, [1.0] * size, float(f"{np.median(total):.9g}")))
                    self.mixture = f"{' + '.join(names)} = {np.median(total):g} in every row, and so in proposals."
                    return

    def _read(self) -> None:
        """Sort the rows into those read, pending and failed."""
        self.X = [list(x) for x in zip(*(column.codes(self.results) for column in self.columns), strict=True)]
        values = {name: self.results.values(name) for name in self.outcomes}
        self.notes: list[str] = []
        self.read, self.pending, self.failed = [], [], []
        for i in range(len(self.results.rows)):
            cells = {name: self.results.cells(name)[i] for name in self.outcomes}
            for name, cell in cells.items():
                if written(cell) is None and not is_pending(cell) and cell.lower() != FAILED:
                    raise TableError(f"{self.results.where(i, name)}: {cell!r} {advice(cell)}.")
            missing = [name for name in self.objectives if values[name][i] is None]
            if any(cell.lower() == FAILED for cell in cells.values()):
                self.failed.append(i)
            elif missing:
                self.pending.append(i)
                if len(missing) < len(self.objectives):
                    line = self.results.lines[i]
                    self.notes.append(f"Row {line} has no {missing[0]} yet, so it counts as pending.")
            else:
                self.read.append(i)
        readings = [[values[name][i] for name in self.objectives] for i in self.read]
        excesses = [[_excess(values[name][i], sign, limit) for name, sign, limit in self.required] for i in self.read]
        self.Y: Any = np.array(readings, dtype=float).reshape(len(self.read), len(self.objectives))
        self.C: Any = np.array(excesses, dtype=float).reshape(len(self.read), len(self.required))
        for i in range(len(self.X)):
            for column, value in zip(self.columns, self.X[i], strict=True):
                if math.isnan(value) and (i in self.read or not column.observed):
                    raise TableError(f"{self.results.where(i, column.name)} has no number; write it.")

    def space(self) -> dict[str, Any]:
        """The arguments of :func:`suggest` that say which designs there are."""
        place = {column.name: i for i, column in enumerate(self.columns)}
        categorical = {i: range(len(c.categories)) for i, c in enumerate(self.columns) if c.categories}
        given: dict[str, Any] = {"categorical": categorical}
        if self.listed is not None:
            designs = [column.codes(self.listed) for column in self.columns if not column.observed]
            return given | {"candidates": [list(x) for x in zip(*designs, strict=True)]}
        ends = [(0.0, max(1.0, len(c.categories) - 1.0)) if c.categories else c.span for c in self.columns]
        return given | {
            "bounds": [list(x) for x in zip(*ends, strict=True)],
            "discrete": {i: c.grid for i, c in enumerate(self.columns) if c.grid},
            "equality_constraints": [([place[n] for n in names], *rest) for names, *rest in self.equalities],
            "inequality_constraints": [([place[n] for n in names], *rest) for names, *rest in self.inequalities],
        }

    def first_line(self) -> str:
        """What every column is taken for."""
        goals = [
            f"{'Maximized' if sense else 'Minimized'}: {self.titles[name]}."
            for name, sense in zip(self.objectives, self.maximize, strict=True)
        ]
        goals += [f"Required: {name} {sign} {limit:g}." for name, sign, limit in self.required]
        parameters = ", ".join(str(c) for c in self.columns if not c.observed)
        line = f"{' '.join(goals)} Parameters: {parameters}."
        if self.conditions:
            line += f" Conditions: {', '.join(str(c) for c in self.columns if c.observed)}."
        if self.left_out:
            line += f" Left out: {'; '.join(f'{name} ({reason})' for name, reason in self.left_out.items())}."
        return line

    @property
    def titles(self) -> dict[str, str]:
        """Names of the outcomes with their units."""
        return {name: Column(name, self.results.unit(name)).title for name in self.outcomes}

    def introduction(self) -> list[str]:
        """The first line, what of the file or its levels needs a look, and the number of readings."""
        mixture = [self.mixture] if self.mixture else []
        notes = [*self.results.notes, *([] if self.listed is None else self.listed.notes)]
        return [self.first_line(), *notes, *mixture, *spellings(self.columns), *self.notes, self.summary()]

    def summary(self) -> str:
        """Such as "20 readings (2 replicates), 1 pending, 1 failed; 24 of 343 recipes left"."""
        replicates = len(self.read) - len({tuple(self.X[i]) for i in self.read})
        parts = [f"{len(self.read)} reading{'' if len(self.read) == 1 else 's'}"]
        parts[0] += f" ({replicates} replicate{'' if replicates == 1 else 's'})" if replicates else ""
        parts += [f"{len(rows)} {what}" for what, rows in (("pending", self.pending), ("failed", self.failed)) if rows]
        left, total = self.left()
        what = "recipes" if self.listed is not None else "designs"
        return f"{', '.join(parts)}{'' if total is None else f'; {left} of {total} {what} left'}."

    def left(self) -> tuple[int, int | None]:
        """How many designs of a finite space are neither measured nor pending nor failed, and how many it has."""
        given = self.space()
        limits = given.get("equality_constraints", ()), given.get("inequality_constraints", ())
        chosen = [i for i, c in enumerate(self.columns) if not c.observed]
        bounds = given.get("bounds")
        if bounds is not None and any(c.observed for c in self.columns):
            return 0, None
        designs = [[x[i] for i in chosen] for x in self.X]
        space = SearchSpace.of(
            bounds, given.get("candidates"), given.get("discrete", {}), given["categorical"], designs, *limits
        )
        if space.candidates is None:
            return 0, None
        every = space.candidates.unique(dim=0)
        taken = numbers("X", designs).reshape(-1, every.shape[-1])
        return int((~among(every, taken)).sum()), len(every)


def _assignment(option: str, text: str) -> tuple[str, str]:
    name, equals, value = text.rpartition("=")
    if not (equals and name.strip() and value.strip()):
        raise TableError(
            f"{option} {text} has no =; write {option} {'A,B,C' if option == '--sum' else 'COLUMN'}=VALUE."
        )
    return name.strip(), value.strip()


def _requirement(text: str) -> tuple[str, str, float]:
    match = REQUIREMENT.fullmatch(text.strip())
    if match is None:
        raise TableError(f'--require {text!r} is no requirement such as "purity >= 95".')
    return match["column"].strip(), match["sign"], quantity(match["limit"].strip())


def _excess(value: float | None, sign: str, limit: float) -> float:
    """By how much a reading breaks a requirement; NaN where there is none."""
    if value is None:
        return math.nan
    return limit - value if sign in (">=", "≥", ">") else value - limit
