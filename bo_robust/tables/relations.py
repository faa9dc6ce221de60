"""Columns that follow from others, which proposals carry along: partners of a category, and formulas to rounding."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np

from bo_robust.tables.cells import word, written
from bo_robust.tables.columns import titled
from bo_robust.tables.formulas import BROKEN, Formula, decimals, fit, last_digit, shortest
from bo_robust.tables.questions import Question
from bo_robust.tables.table import Table

SURE = math.log(100.0)  # evidence against chance, in nats, from which a column follows from others
ASKED = math.log(5.0)  # evidence from which the user is asked whether a number belongs to a category
SOURCES = 3  # columns, at most, in a formula
MANY = 16  # columns of numbers, beyond which formulas have a source less
SIGNIFICANT = 3  # digits, at least, of a product
SHAPES = ("linear", "powers", "reciprocal", "log")  # the last ones of fewer sources
SCREENED = 48  # rows on which formulas are looked for, before all rows decide

Beside = Callable[[Mapping[str, str | float]], str]  # from values of parameters to a cell, blank where it is unknown


class Relation(NamedTuple):
    """How the cells of a column follow from parameters, as ``reason`` says.

    Attributes:
        broken: Rows that break the relation.
        sure: Whether it is beyond chance and confounding; if not, the user is asked.
    """

    name: str
    title: str
    sources: tuple[str, ...]
    reason: str
    cell: Beside
    broken: tuple[int, ...]
    sure: bool


def relations(table: Table, names: Sequence[str], named: set[str], questions: list[Question]) -> list[Relation]:
    """Relations among columns; those that the user ``named`` follow from no others. Adds ``questions`` in doubt."""
    search = _Search(table, names)
    found: dict[str, Relation | None] = dict.fromkeys(names)

    def carry(columns: Sequence[str], look: Callable[[str, list[str]], Relation | None], later: bool = False) -> None:
        for i, name in enumerate(columns):
            sources = [n for n in names if not found[n] and n != name and (later or n in columns[:i])]
            found[name] = found[name] or (None if name in named else look(name, sources))

    asked = sorted(names, key=search.coded)  # of two columns, the later one follows
    first = sorted(asked, key=lambda name: name not in named)
    carry(sorted(first, key=lambda name: name in search.numbers), search.partner)
    carry(first, lambda name, sources: search.formula(name, sources, 1))
    carry(names[::-1], lambda name, sources: search.formula(name, sources, SOURCES), later=True)
    for one in filter(None, found.values()):
        # Naming a column answers what was asked of it and columns before it.
        answered = any(source in named and asked.index(source) > asked.index(one.name) for source in one.sources)
        if not one.sure and answered:
            # Of one quantity in two columns, the other follows; two levels may be those of confounded factors.
            alike = len(one.sources) == 1 and len(np.unique(search.numbers.get(one.name, ()))) > 2
            found[one.name] = one._replace(sure=True) if alike else None
        elif not one.sure:
            rows = " and ".join(str(table.lines[row]) for row in one.broken)
            but = f"but for row{'s' * (len(one.broken) > 1)} {rows}, which may be wrong" if rows else "in all rows"
            text, values = f"categorical {word(one.name)}", search.numbers.get(one.name)
            if values is not None:
                text = f"bounds {word(f'{one.name}={np.nanmin(values):.12g}:{np.nanmax(values):.12g}')}"
            answers = (f"--ignore {word(one.name)} leaves it out", f"--{text} varies it")
            questions.append(Question(f"{one.name!r} {one.reason.replace('=', 'is', 1)} {but}", answers))
    carried = {name: one for name, one in found.items() if one}
    return [one._replace(cell=partial(_through, one, carried, search)) for one in carried.values()]


class _Search:
    """Designs of a table, each once, as codes of their cells and as numbers; replicates are no evidence."""

    def __init__(self, table: Table, names: Sequence[str]) -> None:
        codes = [np.unique(table.cells(name), return_inverse=True)[1] for name in names]
        self.rows = np.unique(np.array(codes), axis=1, return_index=True)[1]
        self.rows.sort()
        self.table, self.codes = table, {n: code[self.rows] for n, code in zip(names, codes, strict=True)}
        self.cells = {name: np.array(table.cells(name))[self.rows] for name in names}
        self.numbers: dict[str, np.ndarray] = {}
        for name in names:
            if len({*table.cells(name), ""}) > 2 and all(map(written, filter(None, table.cells(name)))):
                self.numbers[name] = np.array(table.values(name), dtype=float)[self.rows]
        self.pairs = math.log(max(1, len(names) * (len(names) - 1)))

    def coded(self, name: str) -> bool:
        """Whether the levels of a column are as those of factors in code, such as -1, 0 and 1."""
        levels = np.unique(self.numbers.get(name, np.ones(1)))
        return bool((levels == -levels[::-1]).all())

    def partner(self, name: str, sources: Sequence[str]) -> Relation | None:
        """The text that a column belongs to, or goes with one to one."""
        for source in (source for source in sources if source not in self.numbers):
            both = np.flatnonzero((self.cells[source] != "") & (self.cells[name] != ""))
            A, B = self.codes[source][both], self.codes[name][both]
            pairs, counts = np.unique([A, B], axis=1, return_counts=True)
            most = {a: b for _, a, b in sorted(zip(counts.tolist(), *pairs.tolist(), strict=True))}
            fits = np.array([most[a] == b for a, b in zip(A.tolist(), B.tolist(), strict=True)], dtype=bool)
            each, groups = (np.unique(codes, return_counts=True)[1] for codes in (B[fits], [*most.values()]))
            # Of all orders of the cells, so few give each text one partner.
            broken, evidence = both[~fits], _orders(each) - _orders(groups) - self.pairs
            sure = evidence - len(broken) * math.log(max(2, len(both))) > SURE
            alike = len(each) == len(most) > 2 and not len(broken) and (name not in self.numbers or evidence > ASKED)
            if len(broken) <= min(BROKEN, len(both) // 8) and (sure or alike):
                cells = [self.cells[n][both[fits]].tolist() for n in (source, name)]
                sure &= len(each) > 2 or _akin(name, source)
                cell = partial(_partner, source, dict(zip(*cells, strict=True)))
                return self._relation(name, (source,), f"goes with {source}", cell, broken, sure)
        return None

    def formula(self, name: str, sources: Sequence[str], most: int) -> Relation | None:
        """The formula of a column of numbers, of as few sources as there can be."""
        sources = [source for source in sources if source in self.numbers and name in self.numbers]
        most = min(most, SOURCES - (len(self.numbers) > MANY), len(sources))
        found: list[Relation] = []
        for size in range(1, most + 1):
            for relation in self._formulas(name, sources, size):
                if not relation.broken:
                    return relation
                found.append(relation)
        return next(iter(found), None)

    def _formulas(self, name: str, sources: Sequence[str], size: int) -> Iterator[Relation]:
        table = np.array([self.numbers[source] for source in sources]).T
        sets = np.array([*combinations(range(len(sources)), size)])
        for shape in SHAPES[: len(SHAPES) + 1 - size]:
            powers, inverse = shape == "powers", shape == "reciprocal"
            rows, y, A, unit, usable = self._shaped(name, table, shape)
            some = sets[usable[sets].all(1)]
            if not len(some) or len(rows) < size + 3:
                continue
            few = np.unique(np.linspace(0, len(rows) - 1, SCREENED).round().astype(int))
            counts = fit(y[few], A[few], unit[few], some, powers)[2]
            for columns in some[np.argsort(counts, kind="stable")[(counts < 0).sum() :]]:
                (factors,), (kept,), (broken,) = fit(y, A, unit, columns[None], powers)
                values, X = y[kept], A[np.ix_(kept, columns)]
                formula = shortest(values, X, unit[kept], factors, powers) if broken >= 0 else None
                if formula is None or 8 * broken > len(rows) or formula.says_nothing(X, unit):
                    continue
                each = np.unique(values, return_counts=True)[1] / len(values)
                off = 2.0 * np.abs(values - formula(X)).max() / max(float(np.ptp(values)), 1e-300)
                evidence = (len(values) - size - 1) * -math.log(min(1.0, max((each**2).sum(), off)))
                exact = off < 1e-9 and shape == "linear"
                alike = exact and size == 1
                evidence -= broken * math.log(len(rows)) + self.pairs + (0.0 if alike else math.log(len(sets)))
                needed = ASKED if alike and len(each) > 2 and not broken else SURE
                if evidence > needed and (size == 1 or len(each) > 2):
                    names = tuple(sources[i] for i in columns)
                    text = formula.written([f"log10({n})" for n in names] if shape == "log" else names)
                    text = f"= 1 / ({text})" if inverse else f"= {text}"
                    sure = evidence > SURE and (len(each) > 2 or _akin(name, names[0]))
                    digits = max(0, -round(math.log10(last_digit(self.numbers[name][rows]).min())))
                    cell = partial(_number, names, formula, shape, digits, exact, self.table.mark)
                    yield self._relation(name, names, text, cell, rows[~kept], sure)

    def _shaped(self, name: str, A: np.ndarray, shape: str) -> tuple[np.ndarray, ...]:
        """The rows that can have a shape; in it, a column, the others and its unit; which of the others can have it."""
        positive = shape in ("powers", "reciprocal")
        rows = np.flatnonzero(self.numbers[name] > (0.0 if positive else -math.inf))
        y, A, unit = self.numbers[name][rows], A[rows], last_digit(self.numbers[name])[rows]
        usable = np.greater(A, 0.0 if shape in ("powers", "log") else -math.inf).all(0)
        if shape == "log":
            A = np.log10(np.where(A > 0.0, A, 1.0))
        return (rows, 1.0 / y, A, unit / y**2, usable) if shape == "reciprocal" else (rows, y, A, unit, usable)

    def _relation(self, name: str, sources: tuple[str, ...], reason: str, cell: Beside, broken: Any, sure: bool) -> Any:
        rows = tuple(self.rows[broken].tolist())
        return Relation(name, titled(name, self.table.unit(name)), sources, reason, cell, rows, sure and not rows)


def _through(one: Relation, carried: Mapping[str, Relation], search: _Search, values: Mapping[str, str | float]) -> str:
    """The cell of a relation, whose sources may follow from parameters themselves."""
    known = dict(values)
    for name in (name for name in one.sources if name not in known):
        cell = _through(carried[name], carried, search, values)
        number = written(cell) if name in search.numbers else None
        if not cell:
            return ""
        known[name] = cell if number is None else number.value(search.table.mark)
    return one.cell(known)


def _partner(source: str, partners: Mapping[str, str], values: Mapping[str, str | float]) -> str:
    return partners.get(str(values[source]), "")


def _number(
    sources: Sequence[str],
    formula: Formula,
    shape: str,
    digits: int,
    exact: bool,
    mark: str,
    values: Mapping[str, str | float],
) -> str:
    A = np.array([[values[source] for source in sources]], dtype=float)
    with np.errstate(all="ignore"):
        number = float(formula(np.log10(A) if shape == "log" else A)[0] ** (-1.0 if shape == "reciprocal" else 1.0))
    if not math.isfinite(number):
        return ""
    if formula.powers and number:  # digits of its own, as small numbers have
        digits = max(digits, SIGNIFICANT - 1 - math.floor(math.log10(abs(number))))
    if exact:  # without rounding, as codes of factors are
        digits = max(digits, int(decimals(np.array([number]))[0]))
    return f"{number:.{digits}f}".replace(".", mark)


def _akin(a: str, b: str) -> bool:
    """Whether names begin with one word, and differ in others than numbers, as T_C and T_K do."""
    (first, *one), (second, *two) = ([p for p in re.split(r"[\W_]+", name.casefold()) if p] or [""] for name in (a, b))
    return first == second and not any(part.isdigit() for part in one + two)


def _orders(counts: np.ndarray) -> float:
    """The logarithm of the number of orders of things that there are so often."""
    return math.lgamma(counts.sum() + 1.0) - sum(math.lgamma(count + 1.0) for count in counts)
