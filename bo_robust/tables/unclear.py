"""Cells of a column that can mean two things: levels or dates, ratios or times, factors or names of rows, blanks."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from itertools import groupby, pairwise

from bo_robust.tables.cells import is_date, is_pending, word, written
from bo_robust.tables.columns import ColumnOptions
from bo_robust.tables.kinds import kind_of
from bo_robust.tables.questions import Question
from bo_robust.tables.table import Table

TIMES = re.compile(r"\d+(:\d\d){1,2}")
MONTH = (
    r"(jan|f[eé][bv]|m[aä]r|mrz|a[pvb]r|ma[iy]|ju[nil]|ao[uû]|ago|aug|sep|o[ck]t|nov|d[eé][cz]|ene|dic)[^\W\d_]{0,2}"
)
DAY = re.compile(rf"\d{{1,2}}[-. ]+{MONTH}\.?|{MONTH}[-. ]+\d{{1,2}}", re.IGNORECASE)  # as 2-Jan
NAMED_DATE = re.compile(r"\b(date|day|time ?stamp|datum|tag|jour|fecha)|日", re.IGNORECASE)
DITTO = re.compile(r"[\"'″〃“”„]{1,2}|ditto|idem|dto\.?|↓")
# As 85 ± 2, 5 + 5, < 5 and 1:2:1.
UNSURE = re.compile(r"[^\w]*\d[^a-z]*(±|\+|\?)[^a-z]*|[<>≤≥] ?\d.*|\d+(:\d+){2,}", re.IGNORECASE)
ROLE = re.compile(
    r"\b(solvents?|base|ligand|catalyst|cat|acid|additive|reagent|substrate|salt|metal|support|polymer|monomer|buffer"
    r"|enzyme|oxidant|reductant|surfactant|electrolyte|initiator|precursor|nucleophile|electrophile|amine|alcohol|cation"
    r"|halide|anion|dopant|binder|filler|resin|strain|medium|material|lösungsmittel|säure|katalysator|solvant|acide)\b"
    r"|溶[媒剂]|[触催][媒化]|[酸碱]|塩基|配[位体]",
    re.IGNORECASE,
)
OF_ROWS = re.compile(r"\b(id|label|sample|code|who|by|operator|entry|ref|eln|comment|remark|note|recipe)s?\b", re.I)


def unclear(name: str, cells: Sequence[str]) -> Question | None:
    """What to ask about a column whose kind nobody says, by the forms of its cells; None where they are clear."""
    if kind_of(name, cells, ColumnOptions()).has_form:
        return None
    each = list(dict.fromkeys(cells))
    days = [c for c in each if DAY.fullmatch(c) or (is_date(c) and ":" not in c and not c.isdigit())]
    scattered = len(list(groupby(cells))) > len(each)  # dates come in blocks
    unsure = [cell for cell in each if UNSURE.fullmatch(cell)]
    kind = "--categorical"
    if each and all(map(TIMES.fullmatch, each)) and len(each) < len(cells):
        what = f"may hold ratios or times such as {cells[0]} (write times as numbers of hours or minutes)"
        kind = "--ratio"
    elif days and (len(days) < len(each) or (scattered and not NAMED_DATE.search(name))):
        what = f"has {days[0]!r}, maybe a level such as 1-2 that Excel made a date (type it as text, '1-2)"
    elif ditto := [cell for cell in each if DITTO.fullmatch(cell)]:
        what = f"has {ditto[0]!r}, which is no value (write what it repeats into each row)"
    elif unsure and not any(map(written, each)):
        what = f"has {unsure[0]!r}, which is no number (write one number in each cell)"
    else:
        return None
    return Question(f"{name!r} {what}", (f"{kind} {word(name)}", f"--ignore {word(name)}"))


def is_screen(name: str, cells: Sequence[str]) -> bool | Question:
    """Whether texts that most rows have for themselves are levels of a screen, and no names or remarks of rows."""
    words = name.replace("_", " ")
    forms = Counter(re.sub(r"\d+", "0", cell) for cell in cells)
    numbered = any("0" in form and 2 * count > len(cells) for form, count in forms.items())  # as cat-1, cat-2
    sentences = any(len(cell.split()) > 3 for cell in cells)
    role = ROLE.search(words) is not None
    if OF_ROWS.search(words) or (not role and (numbered or sentences or "name" in words.casefold())):
        return False
    if role and not numbered:
        return True
    what = f"{name!r} has a text of its own in most rows, such as {cells[0]!r}: a factor of a screen, or names of rows"
    return Question(what, (f"--categorical {word(name)}", f"--ignore {word(name)}"))


def is_grouped(cells: Sequence[str]) -> bool:
    """Whether most cells stand above blanks that may mean the same, as in a table for the eye."""
    blank = [is_pending(cell) for cell in cells]
    gaps = sum(not above and below for above, below in pairwise(blank))
    return not blank[0] and gaps > 1 and 2 * gaps >= blank.count(False)


def about_blanks(table: Table, names: Sequence[str]) -> list[Question]:
    """Questions about columns that are blank in rows in which they may have values."""
    rows: dict[int, list[str]] = {}
    for name in names:
        rows.setdefault(list(map(is_pending, table.cells(name))).index(True), []).append(name)
    questions = []
    for row, blank in sorted(rows.items()):
        what = f"row {table.lines[row]} is blank in {', '.join(map(repr, blank))}"
        text = f"{what} (write what is missing, or what the cell above means)"
        questions.append(Question(text, (f"--ignore {' '.join(map(word, blank))}",)))
    return questions
