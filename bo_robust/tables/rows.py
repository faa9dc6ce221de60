"""Rows of a table that are no experiments: notes and statistics below it, and numbers of experiments to come."""

from __future__ import annotations

import re
from collections.abc import Sequence

from bo_robust.tables.cells import is_pending, written

Lines = list[tuple[int, list[str]]]  # rows with their number in the file
STATISTIC = re.compile(
    r"(mean|average|avg|max(imum)?|min(imum)?|median|s\.?d\.?|st(d|andard)?\.?[ -]?dev\.?(iation)?|std\.?|n|count|sum"
    r"|s\.?e\.?(m\.?)?|standard error|%? ?rsd|cv|variance|range|total|mittel(wert)?|mw|durchschnitt|stabw\.?|summe"
    r"|standardabweichung|anzahl|gesamt|moyenne|m[ée]diane|[ée]cart[ -]type|somme|nombre|media|promedio|mediana"
    r"|desviaci[óo]n( est[áa]ndar)?|suma|平均[値值]?|標準偏差|标准差|最[大小][値值]?|合[計计]"
    r"|中央値|Ø)([ :=(].*|[:.])?",
    re.IGNORECASE,
)


def experiments(rows: Lines, width: int, notes: list[str]) -> Lines:
    """The rows that are experiments, of those below the names; adds to the ``notes`` what others are."""
    rows = list(rows)
    while rows and (what := _rest(rows[-1][1], [row for _, row in rows[:-1]], width)):
        notes.append(f"Row {rows.pop()[0]} {what}, and is not read.")
    within = {line for i in range(width) for line in _statistics_within(rows, i)}
    notes += [f"Row {line} sums up what is above, and is not read." for line in sorted(within)]
    return [(line, row) for line, row in rows if line not in within]


def _rest(row: Sequence[str], above: Sequence[Sequence[str]], width: int) -> str:
    """What the last row is, where it is no experiment; else ""."""
    filled = [(i, cell) for i, cell in enumerate(row) if cell]
    alone = width > 2 and len(filled) == 1
    if alone and written(filled[0][1]) is None:
        return "is a note below the table"
    if above and (_is_summary(row, above) or any(_is_statistic(cell, _cells(above, i)) for i, cell in filled)):
        return "sums up what is above"
    if above and alone and filled[0][1].isdigit() and _cells(above, filled[0][0])[-1:] == [str(int(filled[0][1]) - 1)]:
        return "has the number of an experiment alone"
    return ""


def _cells(rows: Sequence[Sequence[str]], i: int) -> list[str]:
    return [row[i] for row in rows if i < len(row) and row[i]]


def _is_statistic(cell: str, above: Sequence[str]) -> bool:
    """Whether a cell has the word for a statistic where no cell above has, and "n" no answer beside "y"."""
    answers = cell.casefold() == "n" and len(set(above)) < len(above)
    return STATISTIC.fullmatch(cell) is not None and cell not in above and not answers


def _statistics_within(rows: Lines, i: int) -> list[int]:
    """Numbers of rows with words for statistics between names that each occur once."""
    named = [(line, row[i]) for line, row in rows if i < len(row) and row[i]]
    found = [line for line, cell in named if STATISTIC.fullmatch(cell)]
    others = [cell for line, cell in named if line not in found]
    return found if len(set(others)) == len(others) > 2 * len(found) else []


def _is_summary(row: Sequence[str], above: Sequence[Sequence[str]]) -> bool:
    """Whether a row has two cells, fewer than those above, one a text where these have numbers, as "mean" and 51.2."""
    filled = [(i, cell) for i, cell in enumerate(row) if cell]
    short = [other for other in above if sum(map(bool, other)) <= 2]
    if len(filled) != 2 or 2 * len(short) > len(above):
        return False
    columns = {i: _cells(above, i) for i, _ in filled}
    return any(
        written(cell) is None and not is_pending(cell) and columns[i] and all(written(one) for one in columns[i])
        for i, cell in filled
    )
