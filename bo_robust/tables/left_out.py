"""Which columns of a table are neither parameters nor outcomes, and why; what is asked where cells mean two things."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from itertools import groupby, pairwise

from bo_robust.tables.cells import FAILED, is_date, is_pending, word, written
from bo_robust.tables.columns import ColumnOptions
from bo_robust.tables.kinds import kind_of
from bo_robust.tables.labels import IDENTIFIER, is_result, is_screen
from bo_robust.tables.questions import Question
from bo_robust.tables.table import Table

BATCH = "a batch, as --batch says"
WRONG = 0.05  # share of rows that may be wrong
BLANK = "blank where it may have values"  # which is asked about
FEW = 3  # rows that may repeat an outcome by accident
RANGE = re.compile(r"[\d.,]+ ?(-|–|to) ?[\d.,]+[^-–]*")
TIMES = re.compile(r"\d+(:\d\d){1,2}")
MONTH = r"(jan|f[eé][bv]|m[aä]?r|a[pvb]r|ma[iy]|ju[nil]|ao[uû]|ago|aug|sep|o[ck]t|nov|d[eé][cz]|ene|dic)[^\W\d_]{0,2}"
DAY = re.compile(rf"\d{{1,2}}[-. ]+{MONTH}\.?|{MONTH}[-. ]+\d{{1,2}}", re.IGNORECASE)  # as 2-Jan
NAMED_DATE = re.compile(r"\b(date|day|time ?stamp|datum|tag|jour|fecha)|日", re.IGNORECASE)
DITTO = re.compile(r"[\"'″〃“”„]{1,2}|ditto|idem|dto\.?|↓")
# As 85 ± 2, 5 + 5, < 5 and 1:2:1.
UNSURE = re.compile(r"[^\w]*\d[^a-z]*(±|\+|\?)[^a-z]*|[<>≤≥] ?\d.*|\d+(:\d+){2,}", re.IGNORECASE)


def left_out(
    results: Table, listed: Table | None, outcomes: Sequence[str], options: ColumnOptions, questions: list[Question]
) -> dict[str, str]:
    """Columns that are neither parameters nor outcomes, each with the reason; adds ``questions`` where in doubt.

    Nothing else is looked for in columns that are asked about.
    """
    reasons: dict[str, str] = {}
    asked: dict[str, str] = {}
    source = results if listed is None else listed
    before = results.names[: min(map(results.names.index, outcomes))]
    for name in dict.fromkeys([*source.names, *results.names]):
        if name in outcomes or name in options.named:
            continue
        # Behind the outcome stand other outcomes and remarks, unless all parameters do.
        ahead = name in before or all(other in reasons for other in before)
        reason = "not among --parameters" if options.parameters else _reason(name, results, listed, outcomes, ahead)
        reason = "as --ignore says" if name in options.ignored else reason
        reason = BATCH if name == options.batch else reason
        if isinstance(reason, Question):
            questions.append(reason)
            asked[name] = reason.text
        elif reason:
            (asked if reason == BLANK else reasons)[name] = reason
    kinds = {*options.kinds, *options.bounds, *options.levels, *options.steps}
    for name in (name for name in source.names if name in options.named - kinds):
        if question := _unclear(name, [cell for cell in source.cells(name) if not is_pending(cell)]):
            questions.append(question)
            asked[name] = question.text
    questions += _about_blanks(results, [name for name, reason in asked.items() if reason == BLANK])
    questions += _about_sides(results, outcomes, reasons, options)
    return reasons | asked


def _reason(
    name: str, results: Table, listed: Table | None, outcomes: Sequence[str], ahead: bool
) -> str | Question | None:
    """Why a column of which nobody says what it is is no parameter, by the first rule that holds; None where it is."""
    tables = [table for table in (results, listed) if table is not None and name in table.names]
    cells = [cell for table in tables for cell in table.cells(name)]
    words = any(written(cell) is None and not is_pending(cell) for cell in cells)
    filled = [cell for cell in cells if not _is_missing(cell, words)]
    first = next(iter(filled), "")
    values = f"--bounds {word(f'{name}=LOW:HIGH')}"
    free = not kind_of(name, filled, ColumnOptions()).has_form
    pending = _is_blank_where_pending(results, name, outcomes, words)
    sparse, named_so = 2 * len(filled) < len(cells), IDENTIFIER.fullmatch(name.strip())
    minutes = "write durations as numbers of minutes"
    names_rows = free and all(_names_rows(table, name) for table in tables)
    question = _unclear(name, filled) if ahead else None
    screen = names_rows and ahead and listed is None and is_screen(name, filled)
    rules: tuple[tuple[object, str | Question], ...] = (
        (not filled, f"empty; {values} makes it a parameter"),
        (listed is not None and name not in listed.names, f"not in {'' if listed is None else listed.path}"),
        (question, question or ""),
        (free and all(map(TIMES.fullmatch, filled)), f"times of day such as {first}; {minutes}"),
        (free and all(map(is_date, filled)), "dates"),
        (any(re.fullmatch(r"0\d+", cell) for cell in filled), "codes with leading zeros"),
        (_counts_rows(tables[-1], name), "counts the rows"),
        (named_so and len(set(filled)) == len(filled) and all(map(str.isdigit, filled)), "names the rows"),
        (free and all(map(RANGE.fullmatch, filled)), f"ranges such as {first}; write one number"),
        (any(_repeats(results, name, y) for y in outcomes), f"nearly the same as {outcomes[0]}, so readings of it"),
        (names_rows and screen is False and (pending or not sparse), "a text of its own in most rows"),
        (listed is None and len(set(filled if pending else cells)) == 1 < len(cells), "one value only"),
        (ahead and (pending or (sparse and (_is_grouped(cells) or not words))), BLANK),
        (pending, f"blank where {outcomes[0]} is, so an outcome"),
        (sparse, "blank in most rows"),
        (isinstance(screen, Question), screen if isinstance(screen, Question) else ""),
    )
    return next((reason for holds, reason in rules if holds), None)


def _is_missing(cell: str, words: bool) -> bool:
    return is_pending(cell) and not (words and cell == "Na")  # sodium, beside other words


def _is_blank_where_pending(table: Table, name: str, outcomes: Sequence[str], words: bool) -> bool:
    if name not in table.names:
        return False
    rows = zip(*(table.cells(outcome) for outcome in outcomes), strict=True)
    pending = [all(is_pending(cell) or cell.lower() == FAILED for cell in row) for row in rows]
    blank = [_is_missing(cell, words) for cell in table.cells(name)]
    return any(blank) and all(p for p, b in zip(pending, blank, strict=True) if b)


def _names_rows(table: Table, name: str) -> bool:
    cells = [cell for cell in table.cells(name) if cell]
    singles = sum(count == 1 for count in Counter(cells).values())
    return len(cells) > 1 and 2 * singles > len(cells) and all(written(cell) is None for cell in cells)


def _counts_rows(table: Table, name: str) -> bool:
    """Whether a column has whole numbers without a unit that increase, by one in most rows.

    Such are the numbers of experiments. A parameter would be in another order, or have replicates.
    """
    cells = [cell for cell in table.cells(name) if not is_pending(cell)]
    if len(cells) < 3 or not all(map(str.isdecimal, cells)) or table.unit(name) or name.endswith((")", "]")):
        return False
    steps = [after - before for before, after in pairwise(map(int, cells))]
    return min(steps) > 0 and 2 * steps.count(1) > len(steps)


def _repeats(table: Table, name: str, outcome: str) -> bool:
    """Whether a column repeats an outcome to a tenth of its range, as the single readings of a mean do.

    As many rows as are expected to be wrong may differ.
    """
    if name not in table.names:
        return False
    both = [(a, b) for a, b in zip(table.numbers(name), table.numbers(outcome), strict=True) if a and b]
    mark, marks = table.mark, {"", "?", table.mark}
    pairs = [(a.value(mark), b.value(mark)) for a, b in both if {a.decimal, b.decimal} <= marks]
    pairs.sort(key=lambda pair: abs(pair[0] - pair[1]))
    right = pairs[: len(pairs) - math.ceil(WRONG * len(pairs))]
    readings = [b for _, b in right]
    return len(right) > FEW and abs(right[-1][0] - right[-1][1]) < 0.1 * (max(readings) - min(readings))


def _about_sides(
    results: Table, outcomes: Sequence[str], reasons: dict[str, str], options: ColumnOptions
) -> list[Question]:
    """Leave out remarks behind the outcome.

    Ask where columns on both sides of it may be parameters, as a second outcome would.
    """
    place = min(map(results.names.index, outcomes))
    apart = {*outcomes, *reasons, *options.conditions}
    apart |= {name for name in results.names if is_result(name)}  # which are asked about wherever they stand
    left = [name for name in results.names[:place] if name not in apart]
    right = [name for name in results.names[place:] if name not in apart | options.named]
    for name in [name for name in right if "" in results.cells(name) and not any(results.numbers(name))]:
        reasons[name] = "texts, blank in some rows"
        right.remove(name)
    if not (left and right):
        return []
    stand, join = ("stands", "it joins") if len(right) == 1 else ("stand", "they join")
    parameters = " ".join(map(word, left + right))
    answers = f"--ignore {' '.join(map(word, right))}", f"--parameters {parameters} (which {join})"
    names = ", ".join(map(repr, right))
    return [Question(f"{names} {stand} behind {outcomes[0]!r} and may be an outcome, too", answers)]


def _unclear(name: str, cells: Sequence[str]) -> Question | None:
    """What to ask about a column whose kind nobody says, by the forms of its cells; None where they are clear."""
    if kind_of(name, cells, ColumnOptions()).has_form:
        return None
    each = list(dict.fromkeys(cells))
    days = [c for c in each if DAY.fullmatch(c) or (is_date(c) and ":" not in c and not c.isdigit())]
    scattered = len(list(groupby(cells))) > len(each)  # dates come in blocks
    unsure = [cell for cell in each if UNSURE.fullmatch(cell)]
    ratios = all(map(TIMES.fullmatch, each)) and len(each) < len(cells)
    if ratios:
        what = f"may hold ratios or times such as {cells[0]} (write times as numbers of hours or minutes)"
    elif days and (len(days) < len(each) or (scattered and not NAMED_DATE.search(name))):
        what = f"has {days[0]!r}, maybe a level such as 1-2 that Excel made a date (type it as text, '1-2)"
    elif ditto := [cell for cell in each if DITTO.fullmatch(cell)]:
        what = f"has {ditto[0]!r}, which is no value (write what it repeats into each row)"
    elif unsure and not any(map(written, each)):
        what = f"has {unsure[0]!r}, which is no number (write one number in each cell)"
    else:
        return None
    kind = "--ratio" if ratios else "--categorical"
    return Question(
        f"{name!r} {what}", (f"{kind} {word(name)} (as it is written)", f"--ignore {word(name)} (left out)")
    )


def _is_grouped(cells: Sequence[str]) -> bool:
    """Whether most cells stand above blanks that may mean the same, as in a table for the eye."""
    blank = [is_pending(cell) for cell in cells]
    gaps = sum(not above and below for above, below in pairwise(blank))
    return not blank[0] and gaps > 1 and 2 * gaps >= blank.count(False)


def _about_blanks(table: Table, columns: Sequence[str]) -> list[Question]:
    """Questions about columns that are blank in rows in which they may have values."""
    rows: dict[int, list[str]] = {}
    for name in columns:
        rows.setdefault(list(map(is_pending, table.cells(name))).index(True), []).append(name)
    questions = []
    for row, blank in sorted(rows.items()):
        names, it = ", ".join(blank), "it" if len(blank) == 1 else "them"
        fill = f"fill {it} in; if the value above is meant, repeat it"
        ignore = f"--ignore {' '.join(map(word, blank))} leaves {it} out of all rows"
        questions.append(Question(f"row {table.lines[row]} has no {names}: {fill} ({ignore})"))
    return questions
