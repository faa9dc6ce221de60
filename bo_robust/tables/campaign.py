"""A campaign as its table says it: parameters, readings, and what is pending or failed."""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from bo_robust.acquisition.pending import MOST_PENDING
from bo_robust.proposals.conditions import encoded_space
from bo_robust.proposals.inputs import Space, numbers
from bo_robust.proposals.outcomes import Data
from bo_robust.proposals.space import among
from bo_robust.tables.cells import FAILED, TableError, advice, is_pending, word, written
from bo_robust.tables.columns import Column, ColumnOptions, titled
from bo_robust.tables.doubtful import doubtful
from bo_robust.tables.kinds import column_of
from bo_robust.tables.labels import ask_about_labels, recipes
from bo_robust.tables.left_out import BATCH, left_out
from bo_robust.tables.mixtures import mixture
from bo_robust.tables.options import column_options, inequalities, limits_of, requirement, sums, with_distances
from bo_robust.tables.questions import Question, ask_all
from bo_robust.tables.readings import notes_on_readings, rows_of
from bo_robust.tables.relations import Relation, relations
from bo_robust.tables.table import Table, read_table

SHAPING = ("bounds", "levels", "step", "fix", "sum", "where")  # options for proposals of any design


class Campaign:
    """The tables and what is asked, read and recognized; ``TableError`` where they cannot be.

    Attributes:
        results, listed: The tables of readings and of candidates (or None).
        objectives, maximize, limits: Columns to optimize, whether large values are good, and their limits.
        required: Column, sign and limit of each requirement.
        outcomes: Columns of objectives and requirements.
        columns: Columns of X: the ``parameters``, then the ``conditions``.
        left_out: Other columns, each with the reason; ``identifiers`` are those of the list, and ``carried`` those
            that follow from parameters.
        doubtful: Rows that are left out, too, each with a line about why.
        questions: What only the user can say, asked all at once.
        X: A design for each row of the readings, of which ``read``, ``pending`` and ``failed`` are places.
        Y, C: Readings of objectives and requirements in the rows that were ``read``.
    """

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        asked = [(name, True) for name in options.maximize] + [(name, False) for name in options.minimize]
        required = [requirement(text) for text in options.require]
        wanted = [name for name, _ in asked] + [name for name, *_ in required]
        wanted += [text.rpartition("=")[0].strip() for text in options.target]
        self.results = read_table(options.results, wanted, options.decimal, unnamed=bool(options.parameters))
        self.header = self.results.names
        opposed = {"maximize": options.maximize, "minimize": options.minimize}
        self.results, distances = with_distances(self.results, options.target, **opposed)
        asked += [(name, False) for name in distances]
        if not asked:
            names = ", ".join(self.results.names)
            raise TableError(f"say what to optimize, such as --maximize COLUMN; columns are {names}.")
        self.listed = self._list()
        self.tables = [self.results] if self.listed is None else [self.results, self.listed]
        self.objectives = [self.results.find(name) for name, _ in asked]
        self.maximize = [sense for _, sense in asked]
        self.required = [(self.results.find(name), sign, limit) for name, sign, limit in required]
        self.outcomes = [*self.objectives, *(name for name, *_ in self.required)]
        if twice := [name for i, name in enumerate(self.objectives) if name in self.objectives[:i]]:
            raise TableError(f"{twice[0]!r} is maximized or minimized twice; name it once.")
        self.limits = limits_of(options.limits, self.objectives, self.results)
        self.limits = [(0.0, None) if o in distances else x for o, x in zip(self.objectives, self.limits, strict=True)]
        self.equalities = sums(options.sum, self.tables)
        self.inequalities = inequalities(options.where, self.results)
        self.questions: list[Question] = []
        self._recognize()
        self._recognize_mixture()
        self._sort_rows()
        self._read()

    def _list(self) -> Table | None:
        if self.options.candidates is None:
            return None
        if shaping := [name for name in SHAPING if getattr(self.options, name) not in ([], ["none"])]:
            raise TableError(f"--{shaping[0]} is for proposals of any design; --candidates says which there are.")
        listed = read_table(self.options.candidates, decimal=self.options.decimal)
        shared = [name for name in self.results.names if name in listed.names]
        return read_table(self.options.candidates, shared, self.options.decimal) if shared else listed

    def _recognize(self) -> None:
        """Find the parameters and conditions, columns of the list that name its rows, and what is left out."""
        constrained = [name for names, *_ in (*self.equalities, *self.inequalities) for name in names]
        about = column_options(self.options, self.tables, constrained)
        if both := about.named & {*self.outcomes, *about.ignored}:
            raise TableError(f"{min(both)!r} cannot be a parameter and something else; leave one of the options out.")
        self.left_out = left_out(self.results, self.listed, self.outcomes, about, self.questions)
        source, apart = self.tables[-1], {*self.left_out, *self.outcomes, *about.conditions}
        free = [name for name in source.names if name not in apart and source.rows]
        # What a list has is known beforehand.
        labels = ask_about_labels(source, [name for name in free if name not in about.named], self.listed is None)
        self.questions += dict.fromkeys(labels.values())
        free = [name for name in free if name not in labels and self.listed is None]
        self.left_out |= recipes(source, free, about.named, self.questions)
        free = [name for name in free if name not in self.left_out]
        self.carried: list[Relation] = relations(source, free, about.named, self.questions) if free else []
        self.left_out |= {relation.name: relation.reason for relation in self.carried}
        ask_all(self.results.path, self.questions)
        names = self._parameters(about)
        self._leave_out_rows([*names, *about.conditions], about)
        self.parameters = [column_of(name, self.tables, about) for name in names]
        self.conditions = [column_of(name, [self.results], about) for name in about.conditions]
        self.columns = self.parameters + self.conditions
        if self.listed is None and (single := [c.name for c in self.parameters if not c.span[0] < c.span[1]]):
            raise TableError(f"{single[0]!r} has one value or none; give --bounds {word(f'{single[0]}=LOW:HIGH')}.")
        if not self.parameters:
            reasons = "".join(f"; {name}: {reason}" for name, reason in self.left_out.items())
            raise TableError(f"{self.results.path} has no parameter that varies{reasons}. Name some with --parameters.")
        self.fixed = {
            i: self._fixed(c, about.fixed[c.name]) for i, c in enumerate(self.columns) if c.name in about.fixed
        }
        listed = [] if self.listed is None else self.listed.names
        self.identifiers = [name for name in self.left_out if name in listed and name not in about.ignored]

    def _fixed(self, column: Column, text: str) -> float:
        """The number of a cell that --fix gives; raises ``TableError`` where the column cannot have it."""
        row = [text if name == column.name else "" for name in self.results.names]
        try:
            (code,) = column.codes(replace(self.results, rows=[row], lines=[0]))
        except ValueError:  # no such category
            code = math.nan
        low, high = column.span
        rounding = 1e-9 if column.grid else 1e-3  # of the range, to which values are printed
        if not low <= code <= high or abs(column.on_grid(code) - code) > rounding * (high - low):
            hint = "--bounds, --levels and --continuous say what it can be"
            raise TableError(f"--fix {column.name}={text} is no value of {column}; {hint}.")
        return column.on_grid(code)

    def _leave_out_rows(self, names: Sequence[str], about: ColumnOptions) -> None:
        """Leave out rows with a value of a parameter or condition far from all others: neither read nor pending."""
        self.doubtful = doubtful(self.results, names, about, self.listed)
        self.ranged = [name for name in about.conditions if name in about.bounds]
        kept = [i for i in range(len(self.results.rows)) if i not in self.doubtful]
        rows, lines = [self.results.rows[i] for i in kept], [self.results.lines[i] for i in kept]
        self.results = replace(self.results, rows=rows, lines=lines)
        self.tables[0] = self.results

    def _parameters(self, about: ColumnOptions) -> list[str]:
        """Names of the parameters, which both tables must have."""
        source = self.tables[-1]
        names = [name for name in source.names if name not in {*self.left_out, *self.outcomes, *about.conditions}]
        for name in names:
            if name not in self.results.names:
                self.results.find(name)  # raises, or differs in case
                raise TableError(f"{self.results.path} has no column {name!r}, which {source.path} has; rename one.")
        for name in (name for name in about.parameters if name not in source.names):
            raise TableError(f"{source.path} has no column {name!r}, which --parameters names.")
        return names

    def _recognize_mixture(self) -> None:
        """Add the sum that columns have in every row, as the parts of a mixture do; given sums decide their own."""
        self.mixture: list[str] = []
        parts = [column for column in self.parameters if column.ordered]
        if "none" in self.options.sum or self.listed is not None or not 2 <= len(parts) <= 12:
            return
        table = np.array([c.codes(self.results) for c in parts]).reshape(len(parts), -1).T
        given = [{i for i, part in enumerate(parts) if part.name in names} for names, *_ in self.equalities]
        if (found := mixture(table, given)) is None:
            return
        names, whole = [parts[i].name for i in found.parts], found.total
        text = f"{' + '.join(names)} = {whole:g}"
        if found.broken:
            rows = " and ".join(f"row {self.results.lines[row]} ({total:g})" for row, total in found.broken.items())
            keep = f"--sum {word(','.join(names) + f'={whole:g}')} keeps it in proposals"
            question = Question(f"{text} but for {rows}, which may be wrong", (keep, "--sum none does not"))
            ask_all(self.results.path, [question])
        self.equalities.append((names, [1.0] * len(names), whole))
        but = f" to within {found.off:.2g}" if found.off > 1e-6 * max(1.0, abs(whole)) else ""
        self.mixture = [f"{text} in every row{but}, and so in proposals."]

    def _sort_rows(self) -> None:
        """Sort the rows into those read, pending and failed."""
        cells = {name: self.results.cells(name) for name in self.outcomes}
        self.notes: list[str] = []
        self.read, self.pending, self.failed = [], [], []
        for i, line in enumerate(self.results.lines):
            for name, column in cells.items():
                if written(column[i]) is None and not is_pending(column[i]) and column[i].lower() != FAILED:
                    raise TableError(f"{self.results.where(i, name)}: {column[i]!r} {advice(column[i])}.")
            missing = [name for name in self.objectives if written(cells[name][i]) is None]
            if any(column[i].lower() == FAILED for column in cells.values()):
                self.failed.append(i)
            elif missing:
                self.pending.append(i)
                if len(missing) < len(self.objectives):
                    self.notes.append(f"Row {line} has no {missing[0]} yet, so it counts as pending.")
            else:
                self.read.append(i)
        if self.listed is None and len(self.pending) > MOST_PENDING:
            self.notes.append(
                f"{len(self.pending)} rows are pending, as in a list of all designs; if nobody measures them, remove "
                "them from the file and list all designs in another one, with --candidates FILE."
            )

    def _read(self) -> None:
        """Read designs, readings and what requirements are short of."""
        self.X = [list(x) for x in zip(*(column.codes(self.results) for column in self.columns), strict=True)]
        values = {name: self.results.values(name, outcome=True) for name in self.outcomes}
        readings = [[values[name][i] for name in self.objectives] for i in self.read]
        excesses = [[_excess(values[name][i], sign, limit) for name, sign, limit in self.required] for i in self.read]
        self.Y = np.array(readings, dtype=float).reshape(len(self.read), len(self.objectives))
        self.C = np.array(excesses, dtype=float).reshape(len(self.read), len(self.required))
        for name in self.outcomes:
            there = [(value, i) for i in self.read if (value := values[name][i]) is not None]
            where, designs = [self.results.lines[i] for _, i in there], [tuple(self.X[i]) for _, i in there]
            limited = f"{name}=" in " ".join(self.options.limits) or self.limits != [None] * len(self.limits)
            self.notes += notes_on_readings(self.titles[name], [y for y, _ in there], where, designs, limited)
        pending: dict[tuple[float, ...], list[int]] = {}
        for i in self.pending:
            pending.setdefault(tuple(self.X[i]), []).append(self.results.lines[i])
        several = [rows for rows in pending.values() if len(rows) > 1]
        self.notes += [f"{rows_of(rows, range(len(rows)))} are the same pending design." for rows in several]
        for i, x in enumerate(self.X):
            for column, value in zip(self.columns, x, strict=True):
                if math.isnan(value) and (i in self.read or not column.observed):
                    raise TableError(f"{self.results.where(i, column.name)} has no number; write it.")

    @cached_property
    def space(self) -> Space:
        """The designs that there are."""
        grids = {i: column.grid for i, column in enumerate(self.columns) if column.grid}
        discrete = {i: grid for i, grid in grids.items() if self.columns[i].ordered}
        categorical = {i: grid for i, grid in grids.items() if i not in discrete}
        conditions = range(len(self.parameters), len(self.columns))
        observed = {"conditions": conditions, "worst": self.options.worst, "set_conditions": not self.options.observe}
        if self.listed is not None:
            designs = [column.codes(self.listed) for column in self.parameters]
            return Space(candidates=np.array(designs).T, categorical=categorical, **observed)
        place = {column.name: i for i, column in enumerate(self.columns)}
        return Space(
            bounds=np.array([column.span for column in self.columns]).T,
            categorical=categorical,
            discrete=discrete,
            fixed=self.fixed,
            equality_constraints=[([place[n] for n in names], *rest) for names, *rest in self.equalities],
            inequality_constraints=[([place[n] for n in names], *rest) for names, *rest in self.inequalities],
            **observed,
        )

    @cached_property
    def data(self) -> Data:
        """What was measured."""
        measured, pending, failed = ([self.X[i] for i in rows] for rows in (self.read, self.pending, self.failed))
        constraints = self.C if self.required and self.read else None
        rest = [self.results.cells(name) for name in self.left_out if name in self.results.names]
        ids = [str([cells[i] for cells in rest]) for i in self.read]
        told = (self.limits, pending, failed, self.batch, ids)
        return Data(np.array(measured), self.Y, self.maximize, constraints, *told)

    def leave_out_copies(self, pairs: Sequence[tuple[int, ...]]) -> None:
        """Leave out the second reading of each pair of equal rows, places among those that were read."""
        lines = [" and ".join(str(self.results.lines[self.read[i]]) for i in pair) for pair in pairs]
        self.notes.append(f"Rows {', '.join(lines)} are the same; is one a copy? Two equal rows count as one reading.")
        kept = [i for i in range(len(self.read)) if i not in {copy for _, copy in pairs}]
        self.read, self.Y, self.C = [self.read[i] for i in kept], self.Y[kept], self.C[kept]
        for name in ("data", "batch", "encoded", "keeps_limits"):
            self.__dict__.pop(name, None)

    @cached_property
    def batch(self) -> list[str] | None:
        """The batch of each reading, as it is written."""
        if self.options.batch is None or not self.read:
            return None
        name = self.results.find(self.options.batch)
        cells = self.results.cells(name)
        if blank := [i for i in self.read if not cells[i]]:
            raise TableError(f"{self.results.where(blank[0], name)} is blank: write a name of its own.")
        return [cells[i] for i in self.read]

    @cached_property
    def encoded(self) -> Any:
        """The space as a search sees it."""
        return encoded_space(self.space, [self.X[i] for i in self.read])

    @cached_property
    def keeps_limits(self) -> np.ndarray:
        """Which of the rows that were read have designs that keep the sums and inequalities, bool."""
        X = numbers("X", [self.X[i] for i in self.read])
        return self.encoded.feasible(X).numpy() if self.read else np.zeros(0, dtype=bool)

    @cached_property
    def _written(self) -> dict[tuple[float, ...], dict[str, str]]:
        """The cells of each design that a file has, by name of the column: of the list, or of the readings."""
        source = self.results if self.listed is None else self.listed
        names = self.identifiers + [column.name for column in self.parameters if source.mark == self.results.mark]
        cells = {name: source.cells(name) for name in names}
        designs = list(zip(*(column.codes(source) for column in self.parameters), strict=True))
        first = {x: row for row, x in reversed(list(enumerate(designs)))}
        return {x: {name: column[row] for name, column in cells.items()} for x, row in first.items()}

    def cells_of(self, x: list[float]) -> dict[str, str]:
        """A design as the file writes it, behind what names it in the list, before what follows from it; by column."""
        names = [*self.identifiers, *(column.name for column in self.columns)]
        known = {c.name: c.number(v) for c, v in zip(self.columns, x, strict=True)}
        values = {c.name: c.decode(c.on_grid(v)) for c, v in zip(self.columns, x, strict=True)}
        values |= self._written.get(tuple(x[: len(self.parameters)]), {})
        return {name: values[name] for name in names} | {one.name: one.cell(known) for one in self.carried}

    def row_of(self, x: list[float]) -> list[str]:
        """A row for the table of readings: a design, with the units of its cells, and blanks for the rest."""
        cells = self.cells_of(x)
        for name in cells.keys() & {*self.results.names}:
            unit = next((n.unit for n in self.results.numbers(name) if n is not None and n.unit), "")
            number = written(cells[name])
            cells[name] += f" {unit}" if unit and number is not None and not number.unit else ""
        return [cells.get(name, "") for name in self.results.names]

    def introduction(self) -> list[str]:
        """What every column is taken for, what of the file or its levels needs a look, and the number of readings."""
        titles = self.titles
        goals = [
            f"{'Maximized' if sense else 'Minimized'}: {titles[name]}."
            for name, sense in zip(self.objectives, self.maximize, strict=True)
        ]
        goals += [f"Required: {name} {sign} {limit:g}." for name, sign, limit in self.required]
        line = f"{' '.join(goals)} Parameters: {', '.join(map(str, self.parameters))}."
        if self.conditions:
            line += f" Conditions: {', '.join(map(str, self.conditions))}."
        if self.fixed:
            kept = [f"{self.columns[i].name} = {self.columns[i].decode(x)}" for i, x in self.fixed.items()]
            line += f" Fixed: {', '.join(kept)}."
        if self.batch is not None:
            line += f" Batches: {len(set(self.batch))} of {self.options.batch}; readings of one share a deviation."
        apart = [f"{name} ({reason})" for name, reason in self.left_out.items() if reason != BATCH]
        line += f" Left out: {'; '.join(apart)}." if apart else ""
        notes = [note for table in self.tables for note in table.notes]
        looks = [note for column in self.columns for note in column.notes]
        looks += dict.fromkeys(self.doubtful.values())
        looks += [f"--bounds {name} says which values are right; conditions are those seen." for name in self.ranged]
        return [line, *notes, *self.mixture, *looks, *self.notes, self.summary()]

    @property
    def titles(self) -> dict[str, str]:
        """Names of the outcomes with their units."""
        return {name: titled(name, self.results.unit(name)) for name in self.outcomes}

    def summary(self) -> str:
        """Such as "20 readings (2 replicates), 1 pending, 1 failed; 24 of 343 recipes left"."""
        replicates = len(self.read) - len({tuple(self.X[i]) for i in self.read})
        parts = [f"{len(self.read)} reading{'' if len(self.read) == 1 else 's'}"]
        parts[0] += f" ({replicates} replicate{'' if replicates == 1 else 's'})" if replicates else ""
        parts += [f"{len(rows)} {what}" for what, rows in (("pending", self.pending), ("failed", self.failed)) if rows]
        parts += [f"{len(self.doubtful)} left out"] if self.doubtful else []
        left, total = self.left
        what = "recipes" if self.listed is not None else "designs"
        return f"{', '.join(parts)}{'' if total is None else f'; {left} of {total} {what} left'}."

    @cached_property
    def left(self) -> tuple[int, int | None]:
        """How many designs of a finite space are neither measured nor pending nor failed, and how many it has."""
        if self.listed is None and self.conditions:
            return 0, None
        points = self.encoded.designs.candidates
        if points is None:
            return 0, None
        every = points.unique(dim=0)
        taken = numbers("X", [x[: len(self.parameters)] for x in self.X]).reshape(-1, every.shape[-1])
        return int((~among(every, taken)).sum()), len(every)


def _excess(value: float | None, sign: str, limit: float) -> float:
    """By how much a reading breaks a requirement; NaN where there is none."""
    if value is None:
        return math.nan
    return limit - value if sign in (">=", "≥", ">") else value - limit
