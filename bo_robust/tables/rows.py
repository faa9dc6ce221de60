"""Rows of a table that are no experiments: notes and statistics below it, and numbers of experiments to come."""

from __future__ import annotations

import re
from collections.abc import Sequence

from bo_robust.tables.cells import FAILED, is_pending, written
from bo_robust.tables.readings import rows_of

SUMS = "sums up what is above", "sum up what is above"
Lines = list[tuple[int, list[str]]]  # rows with their number in the file
STATISTIC = re.compile(
    r"(mean|average|avg|max(imum)?|min(imum)?|m[ée]dian[ae]?|s\.?d\.?|std\.?|st(d|andard)?\.?[ -]?dev\.?(iation)?|count"
    r"|(?-i:n|CV|MW|S\.?E\.?(M\.?)?)|standard error|%? ?rsd|variance|range|total|sum(me|a)?|somme|mittel(wert)?|gesamt"
    r"|durchschnitt|stabw\.?|standardabweichung|anzahl|moyenne|[ée]cart[ -]type|nombre|media|promedio"
    r"|desviaci[óo]n( est[áa]ndar)?|平均[値值]?|標準偏差|标准差|最[大小][値值]?|合[計计]|中央値|Ø)([ :=(].*|[:.])?",
    re.IGNORECASE,
)


def experiments(rows: Lines, width: int, notes: list[str]) -> Lines:
    """The rows that are experiments, of those below the names; adds to the ``notes`` what others are."""
    rows = list(rows)
    found: dict[tuple[str, str], list[int]] = {}
    while rows and (what := _rest(rows[-1][1], [row for _, row in rows[:-1]], width)):
        found.setdefault(what, []).append(rows.pop()[0])
    within = {line for i in range(width) for line in _statistics_within(rows, i)}
    if within:
        found.setdefault(SUMS, []).extend(within)
    for (one, several), lines in found.items():
        said = f"{one}, and is" if len(lines) == 1 else f"{several}, and are"
        notes.append(f"{rows_of(sorted(lines), range(len(lines)))} {said} not read.")
    return [(line, row) for line, row in rows if line not in within]


def _rest(row: Sequence[str], above: Sequence[Sequence[str]], width: int) -> tuple[str, str] | None:
    """What the last row is, and what several are, where it is no experiment; else None."""
    filled = [(i, cell) for i, cell in enumerate(row) if cell]
    if above and any(_is_statistic(cell, _cells(above, i)) for i, cell in filled):
        return SUMS
    texts = [i for i, cell in filled if written(cell) is None and not is_pending(cell) and cell.lower() != FAILED]
    numeric = [cells for cells in (_cells(above, i) for i in texts) if cells and all(map(written, cells))]
    if width > 2 and len(texts) == len(filled) and (len(filled) == 1 or numeric):
        return "is a note below the table", "are notes below the table"
    i, alone = filled[0]
    counts = alone.isdecimal() and _cells(above, i)[-1:] == [str(int(alone) - 1)]
    numbers = "has the number of an experiment alone", "have the numbers of experiments alone"
    return numbers if counts and width > 2 and len(filled) == 1 else None


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
    others = [cell for _, cell in named if not STATISTIC.fullmatch(cell)]
    return found if len(set(others)) == len(others) > 2 * len(found) else []
