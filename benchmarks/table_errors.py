"""What people do to the readings of a table, and what becomes of it: ``python -m benchmarks.table_errors``.

A table has 18, 24 or 40 yields in % of a temperature, a time and a loading, as a laboratory would write them, in
batches of six rows. Each error of :data:`ERRORS` is made in a table of its own by seed. The *loss* is the true yield of
the best row less that of the row recommended, in %. An error is *named* if one of ``Suggestion.slips`` has its kind
and rows. Settings are chosen on seeds from 100 on; reported are those from 0 on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.common import options, report, report_environment
from benchmarks.stats import Paired
from bo_robust.proposals.suggest import Data, Suggestion, suggest
from bo_robust.utils.random import stream

Array = NDArray[np.float64]
BLOCK = 6  # rows of a batch
TIMES = np.array([1.0, 2, 3, 4, 6, 8, 12, 16])
LOADINGS = np.array([0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0])
BOUNDS = [[50.0, 1.0, 0.5], [120.0, 16.0, 5.0]]


class Table(NamedTuple):
    """Designs ``n x 3``, their true yields and readings, ``n`` each, and what was done to the latter."""

    X: Array
    f: Array
    Y: Array
    slip: tuple[str, tuple[int, ...]] | None = None

    @property
    def batch(self) -> list[int]:
        return [i // BLOCK for i in range(len(self.Y))]


def clean(rng: np.random.Generator, n: int) -> Table:
    """A table without an error."""
    X = np.stack([50.0 + 5.0 * rng.integers(15, size=n), rng.choice(TIMES, n), rng.choice(LOADINGS, n)], -1)
    center, width, late, load = rng.uniform(70, 100), rng.uniform(20, 40), rng.uniform(3, 8), rng.uniform(1.5, 4)
    f = rng.uniform(70, 95) * np.exp(-(((X[:, 0] - center) / width) ** 2))
    f = f * np.exp(-(np.log(X[:, 1] / late) ** 2) / 5.0) * np.exp(-(np.log(X[:, 2] / load) ** 2) / 4.0)
    Y = np.maximum(f * (1.0 + 0.04 * rng.standard_normal(n)) + 0.5 * rng.standard_normal(n), 0.1)
    return Table(X, f, np.round(Y, 1).astype(float))


def block(factor: float) -> Callable[[np.random.Generator, Table], Table]:
    """All readings of one batch times a factor."""

    def change(rng: np.random.Generator, table: Table) -> Table:
        wrong = np.array(table.batch) == rng.integers(len(table.Y) // BLOCK)
        return table._replace(Y=np.where(wrong, np.round(factor * table.Y, 1), table.Y))

    return change


def decimal(rng: np.random.Generator, table: Table) -> Table:
    """A reading of the better half times ten."""
    row = int(rng.choice(table.Y.argsort()[len(table.Y) // 2 :]))
    return changed(table, "decimal point", {row: round(10.0 * table.Y[row], 1)})


def best_and_worst(rng: np.random.Generator, table: Table) -> Table:
    i, j = int(table.Y.argmax()), int(table.Y.argmin())
    return changed(table, "exchanged", {i: table.Y[j], j: table.Y[i]})


def any_two(rng: np.random.Generator, table: Table) -> Table:
    """Two readings that differ by a standard deviation or more."""
    while True:
        i, j = rng.choice(len(table.Y), 2, replace=False)
        if abs(table.Y[i] - table.Y[j]) >= table.Y.std():
            break
    return changed(table, "exchanged", {int(i): table.Y[j], int(j): table.Y[i]})


def copied(rng: np.random.Generator, table: Table) -> Table:
    """The best reading copied into the next row."""
    row = int(table.Y[:-1].argmax())
    return changed(table, "copied", {row + 1: table.Y[row]})._replace(slip=("copied", (row, row + 1)))


def fractions(rng: np.random.Generator, table: Table) -> Table:
    """A third of the readings as fractions."""
    rows = rng.choice(len(table.Y), len(table.Y) // 3, replace=False)
    return changed(table, "fraction", {int(i): round(table.Y[i] / 100.0, 3) for i in rows})


def changed(table: Table, kind: str, readings: dict[int, float]) -> Table:
    Y = table.Y.copy()
    Y[list(readings)] = list(readings.values())
    return table._replace(Y=Y, slip=(kind, tuple(sorted(readings))))


ERRORS: dict[str, tuple[tuple[int, ...], Callable[[np.random.Generator, Table], Table]]] = {
    "clean": ((18, 24, 40), lambda rng, table: table),
    "batch doubled": ((18, 24, 40), block(2.0)),
    "batch times 1.5": ((18, 24, 40), block(1.5)),
    "decimal point": ((18, 24, 40), decimal),
    "best and worst exchanged": ((40,), best_and_worst),
    "two exchanged": ((24,), any_two),
    "best copied": ((40,), copied),
    "six fractions": ((18,), fractions),
}


def loss(table: Table, found: Suggestion) -> float:
    """What the recommendation costs, in %; the whole range where there is none."""
    return float(table.f.max() - (table.f.min() if found.best is None else table.f[found.best]))


def analysed(table: Table, batch: bool) -> Suggestion:
    data = Data(table.X, table.Y, batch=table.batch if batch else None)
    return suggest(data, bounds=BOUNDS, q=0)


def named(table: Table, found: Suggestion) -> tuple[bool, bool]:
    """Whether a slip was found, and whether the right one is among them."""
    told = [(slip.kind, tuple(slip.rows)) for slip in found.slips]
    return bool(told), table.slip in told


def measure(name: str, n: int, first: int, seeds: int) -> None:
    """Report an error in tables of n rows."""
    _, change = ERRORS[name]
    losses, batched, right, any_named = [], [], [], []
    for seed in range(first, first + seeds):
        table = change(stream(seed, f"slip {name}", n), clean(stream(seed, "table", n), n))
        found = analysed(table, False)
        told, correct = named(table, found)
        losses.append(loss(table, found))
        right.append(correct)
        any_named.append(told)
        if name == "clean" or name.startswith("batch"):
            batched.append(loss(table, analysed(table, True)))
    detail = {"losses": [round(x, 1) for x in losses], "tables": seeds}
    report(f"loss, {name}, {n} rows", float(np.mean(losses)), "% yield", detail)
    if batched:
        detail = {"losses": [round(x, 1) for x in batched]}
        most = None if name == "clean" else 5.0 if n == 18 else 2.0
        report(f"loss with batches, {name}, {n} rows", float(np.mean(batched)), "% yield", detail, most=most)
        Paired(tuple(a - b for a, b in zip(batched, losses, strict=True))).report(
            f"loss with batches less loss, {name}, {n} rows", "% yield"
        )
    if name == "clean":
        report(f"slip named, clean, {n} rows", float(np.mean(any_named)), "share of tables", most=0.02)
    elif not name.startswith("batch"):
        goal = {"two exchanged": 0.15, "best and worst exchanged": 0.6, "best copied": 0.5}.get(name, 0.9)
        report(f"named, {name}, {n} rows", float(np.mean(right)), "share of tables", least=goal)


def main() -> None:
    """Report all errors, or those that are named."""
    given = options(__doc__, positional=ERRORS, seeds=20, first=0)
    report_environment()
    for name in given.parts or ERRORS:
        for n in ERRORS[name][0]:
            measure(name, n, given.first, given.seeds)


if __name__ == "__main__":
    main()
