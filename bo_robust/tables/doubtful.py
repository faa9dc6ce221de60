"""Values of parameters and conditions far from all others, whose rows are left out until they are said to be right."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import combinations, pairwise

import numpy as np
from scipy.stats import t as student

from bo_robust.tables.cells import quantity, word, written
from bo_robust.tables.columns import ColumnOptions
from bo_robust.tables.formulas import last_digit
from bo_robust.tables.readings import rows_of
from bo_robust.tables.table import Table

ERROR = 0.01  # share of cells that are wrong
GROSS = 0.1  # of these, the share that may be any number within DECADES, a natural logarithm
DECADES = 9.2
EXTREME = 0.03  # share, at least, of new values that are beyond all others
STRETCH = 0.5  # of the range of all others, beyond which a value may do harm
ODDS = 0.1  # of being wrong, from which a row is left out: less is lost by a right row than done by a wrong one
SLIPS = (
    *(("a decimal point", 0.03, 10.0**k, 0.0) for k in (-1, 1, -2, 2, -3, 3, -4, 4)),
    *(("kelvin", 0.02, 1.0, shift) for shift in (-273.0, -273.15, 273.0, 273.15)),
    *(("minutes or hours", 0.02, factor, 0.0) for factor in (1.0 / 60.0, 60.0)),
    ("a sign", 0.05, -1.0, 0.0),
)  # what may be wrong, its share of errors, and the factor and the shift to the right value


def doubtful(table: Table, names: Sequence[str], options: ColumnOptions, listed: Table | None) -> dict[int, str]:
    """Rows with a value that is likely to be wrong rather than new, each with a line about it."""
    found: dict[int, str] = {}
    values = {}
    for name in names:
        cells = [cell for cell in table.cells(name) if cell]
        if cells and all(map(written, cells)):
            values[name] = np.array(table.values(name), dtype=float)
    texts = [name for name in names if name not in values and name not in options.kinds]
    exchanged = [(*one, "give --bounds of both") for one in _exchanged(values, options)]
    for a, b, row in _exchanged_texts(table, texts, listed):
        exchanged.append((a, b, row, f"say --categorical {word(a)} {word(b)} if it is right"))
    for a, b, row, hint in exchanged:
        both = f"{a} = {table.cells(a)[row]} and {b} = {table.cells(b)[row]} look exchanged"
        found[row] = f"Row {table.lines[row]} left out: {both}. Correct it, or {hint}."
    for name, column in values.items():
        column[[*found]] = math.nan
        known = [*options.bounds.get(name, ()), *map(quantity, options.levels.get(name, ()))]
        known += [v for v in listed.values(name) if v is not None] if listed and name in listed.names else []
        while (block := _block(column, known)) is not None:
            rows, right, slip = block
            cells, wrong = [table.cells(name)[row] for row in rows], column[rows]
            column[rows] = math.nan
            low, high = np.nanmin([*column, *known]), np.nanmax([*column, *known])
            bounds = word(f"{name}={min(low, *wrong):.12g}:{max(high, *wrong):.12g}")
            fits = f"; {', '.join(f'{value:.6g}' for value in right)} would fit ({slip}?)" if slip else ""
            far = f"{name} = {', '.join(cells)} is far from all others, {low:g} to {high:g}{fits}"
            line = f"{rows_of(table.lines, rows)} left out: {far}. Correct it, or say --bounds {bounds} if it is right."
            found |= dict.fromkeys(rows, line)
    return found


def _block(column: np.ndarray, known: Sequence[float]) -> tuple[list[int], list[float], str] | None:
    """Rows of a few values beyond all others that are likely to be wrong, the values that would fit, and the slip."""
    rows = np.flatnonzero(np.isfinite(column))
    upward = rows[np.argsort(column[rows], kind="stable")]
    in_order = bool((np.diff(column[rows]) >= 0.0).all() or (np.diff(column[rows]) <= 0.0).all())
    for order in (upward[::-1], upward):
        gaps = np.abs(np.diff(column[order]))
        wider = gaps[:-1] > 1.05 * np.maximum.accumulate(gaps[:0:-1])[::-1]  # than all gaps behind it
        for m in np.flatnonzero(wider[: max(1, len(order) // 3)]) + 1:
            others = np.append(column[order[m:]], known)
            if len(order) < m + 3 or gaps[m - 1] <= STRETCH * np.ptp(others) or np.ptp(others) == 0.0:
                continue
            block = sorted(order[:m].tolist())
            runs = m if in_order else 1 + sum(b - a > 1 for a, b in pairwise(block))
            if (right := _right(column[block], float(column[order[0]]), others, ERROR**runs)) is not None:
                return block, *right
    return None


def _right(block: np.ndarray, far: float, others: np.ndarray, error: float) -> tuple[list[float], str] | None:
    """What values would be but for a slip that is more likely than new ones; "" where it is none of them."""
    low, high, unit = others.min(), others.max(), last_digit(others).min()
    room = STRETCH / 2.0 * (high - low)
    new, best = _density(others, far), (0.0, list(block), "")
    for slip, share, factor, shift in SLIPS:
        right = block * factor + shift
        if low - room <= right.min() and right.max() <= high + room:
            rough = np.abs(right / unit - np.round(right / unit)).max() > 1e-6  # finer than all others
            likely = _density(others, far * factor + shift)
            if factor == -1.0 and len(right) == 1 and right[0] in others:  # a level: by chance, rarer if less round
                digits, _, exponent = f"{abs(far):.8e}".replace(".", "").partition("e")
                last = 10.0 ** (int(exponent) + 1 - len(digits.rstrip("0")))
                likely = max(likely, float((others == right[0]).mean()) / last)
            weight = share * abs(factor) * likely * (0.1 if rough else 1.0)
            best = max(best, (weight, right.tolist(), slip))
    gross = GROSS / ((abs(far) + high - low) * DECADES) if len(block) == 1 and far != 0.0 else 0.0  # 0 is a control
    wrong = error * (best[0] + gross)
    return best[1:] if far != 0.0 and new * ODDS < wrong else None


def _density(others: np.ndarray, value: float) -> float:
    """Of one more value, new ones beyond the range included: on a scale, and on a logarithm over decades."""
    scales = [_on_scale(others, value)]
    smallest, largest = min(others.min(), value), max(others.max(), value)
    if 0.0 < 10.0 * smallest < largest:
        scales.append(_on_scale(np.log(others), math.log(value)) / value)
    return float(np.mean(scales))


def _on_scale(others: np.ndarray, value: float) -> float:
    levels = np.unique(others)
    spacing = np.diff(levels).max()
    beyond = max(levels[0] - value, value - levels[-1])
    if beyond <= 0.0:
        return len(others) / (len(others) + 1.0) / float(np.ptp(levels))
    scale = max(float(np.ptp(levels)) / 4.0, spacing)
    extreme = max(EXTREME, 1.0 / (len(others) + 1.0)) * (
        10.0 if beyond <= 1.05 * spacing else 1.0
    )  # a plan's next level
    return extreme * float(student.pdf(beyond / scale, len(levels) - 1)) / scale


def _exchanged(values: dict[str, np.ndarray], options: ColumnOptions) -> Iterator[tuple[str, str, int]]:
    """Pairs of columns of other ranges, with a row that has a value of each in the other."""
    for a, b in combinations(values, 2):
        both = np.isfinite(values[a]) & np.isfinite(values[b])
        for row in {int(f(np.where(both, values[a], np.nan))) for f in (np.nanargmin, np.nanargmax) if both.sum() > 7}:
            others = both & (np.arange(len(both)) != row)
            A, B = (np.append(values[n][others], options.bounds.get(n, ())) for n in (a, b))
            x, y = values[a][row], values[b][row]
            if (A.max() < B.min() or B.max() < A.min()) and B.min() <= x <= B.max() and A.min() <= y <= A.max():
                yield a, b, row


def _exchanged_texts(table: Table, names: Sequence[str], listed: Table | None) -> Iterator[tuple[str, str, int]]:
    """Pairs of columns that share no category, but for a row that has a category of each in the other."""
    known = {name: listed.cells(name) if listed and name in listed.names else [] for name in names}
    for a, b in combinations(names, 2):
        A, B = table.cells(a), table.cells(b)
        for row, (x, y) in enumerate(zip(A, B, strict=True)):
            others = [{*cells[:row], *cells[row + 1 :], *known[n]} - {""} for n, cells in ((a, A), (b, B))]
            several = min(map(len, others)) > 1 and len(A) > 7  # two things in another order are no slip
            if several and x in others[1] and y in others[0] and not others[0] & others[1]:
                yield a, b, row
