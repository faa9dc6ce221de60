"""Cells of a column that can mean two things: levels or dates, ratios or times, factors or names of rows, blanks."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from itertools import groupby, pairwise

from bo_robust.tables.cells import is_date, word, written
from bo_robust.tables.questions import Question
from bo_robust.tables.table import Table

TIMES = re.compile(r"\d+(:\d\d){1,2}")
DAY = re.compile(r"\d{1,2}[-. ]+[^\W\d_]{3,4}\.?|[^\W\d_]{3,4}[-. ]+\d{1,2}|\d{1,2}\.[^\W\d_]{3,4}\.?")  # as 2-Jan
NAMED_DATE = re.compile(r"\b(date|day|time ?stamp|datum|tag|jour|fecha|fecha)|[日]", re.IGNORECASE)
UNSURE = re.compile(r"[^\w]*\d[^a-z]*(±|\+/?-|\?)[^a-z]*|[<>≤≥] ?\d.*", re.IGNORECASE)  # as 85 ± 2 and < 5
ROLE = re.compile(
    r"\b(solvents?|base|ligand|catalyst|cat|acid|additive|reagent|substrate|salt|metal|support|polymer|monomer|buffer"
    r"|enzyme|oxidant|reductant|surfactant|electrolyte|initiator|precursor|nucleophile|electrophile|amine|alcohol|cation"
    r"|halide|anion|dopant|binder|filler|resin|strain|medium|material|lösungsmittel|säure|katalysator|solvant|acide)\b"
    r"|溶[媒剂]|[触催][媒化]|[酸碱]|塩基|配[位体]",
    re.IGNORECASE,
)


def unclear(name: str, cells: Sequence[str]) -> Question | None:
    """What to ask about a column that nobody named, by the forms of its cells; None where they are clear."""
    first, ignore, categorical = next(iter(cells), ""), f"--ignore {word(name)}", f"--categorical {word(name)}"
    days = [cell for cell in cells if DAY.fullmatch(cell) or (is_date(cell) and ":" not in cell)]
    scattered = len(list(groupby(cells))) > len(set(cells))  # dates come in blocks
    if cells and all(map(TIMES.fullmatch, cells)) and len(set(cells)) < len(cells):
        what = f"{name!r} may hold ratios or times such as {first} (write times as numbers of hours or minutes)"
        return Question(what, (f"--ratio {word(name)}", ignore))
    if days and None in map(written, cells) and (len(days) < len(cells) or (scattered and not NAMED_DATE.search(name))):
        what = f"{name!r} has {days[0]!r}, maybe a level such as 1-2 that Excel made a date (type it as text, '1-2)"
        return Question(what, (categorical, ignore))
    if unsure := [cell for cell in cells if UNSURE.fullmatch(cell)]:
        what = f"{name!r} has {unsure[0]!r}, which is no number (write one number in each cell)"
        return Question(what, (categorical, ignore)) if all(written(cell) is None for cell in cells) else None
    return None


def is_screen(name: str, cells: Sequence[str]) -> bool | Question:
    """Whether texts that most rows have for themselves are levels of a screen, and no names or remarks of rows."""
    if ROLE.search(name):
        return True
    forms = Counter(re.sub(r"\d+", "0", cell) for cell in cells)  # of numbered names
    numbered = any("0" in form and 2 * count > len(cells) for form, count in forms.items())
    if numbered or any(len(cell) > 20 or len(cell.split()) > 2 for cell in cells):
        return False
    if re.search(r"\b(id|name|label|sample|who|by|operator|entry|ref|eln|comment|remark|note|recipe)s?\b", name, re.I):
        return False
    what = f"{name!r} has a text of its own in most rows, such as {cells[0]!r}: a factor of a screen, or names of rows"
    return Question(what, (f"--categorical {word(name)}", f"--ignore {word(name)}"))


def is_grouped(cells: Sequence[str]) -> bool:
    """Whether most cells stand above blanks that may mean the same, as in a table for the eye."""
    gaps = sum(bool(above) and not below for above, below in pairwise(cells))
    return bool(cells[0]) and gaps > 1 and 2 * gaps >= sum(map(bool, cells))


def about_blanks(table: Table, names: Sequence[str]) -> list[Question]:
    """A question about columns that are blank in rows in which they may have values."""
    if not names:
        return []
    rows = [(next(i for i, cell in enumerate(table.cells(name)) if not cell), name) for name in names]
    row, name = min(rows, key=lambda pair: pair[0])
    them = ", ".join(map(repr, names))
    what = f"row {table.lines[row]} is blank in column {name!r} (write what is missing, or what the cell above means)"
    return [Question(f"{what}; {them} may be outcomes, too", (f"--ignore {' '.join(map(word, names))}",))]
