"""Which columns of a table are neither parameters nor outcomes, and why."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

from bo_robust.tables.cells import FAILED, is_date, is_pending, word, written
from bo_robust.tables.columns import ColumnOptions
from bo_robust.tables.kinds import kind_of
from bo_robust.tables.questions import Question
from bo_robust.tables.table import Table
from bo_robust.tables.unclear import about_blanks, is_grouped, is_screen, unclear

BATCH = "a batch, as --batch says"
WRONG = 0.05  # share of rows that may be wrong
BLANK = "blank where it may have values"  # which is asked about
FEW = 3  # rows that may repeat an outcome by accident
IDENTIFIER = re.compile(
    r"((new|old|run|row|exp|expt|experiment|sample|entry|reaction|rxn|trial|well|versuch|probe|essai)?[ _.-]?"
    r"(id|idx|index|nr|no|num|#)\.?)|run|row|entry|exp|expt|experiment|sample|trial|versuch|lauf|probe|essai",
    re.IGNORECASE,
)


def left_out(
    results: Table, listed: Table | None, outcomes: Sequence[str], options: ColumnOptions, questions: list[Question]
) -> dict[str, str]:
    """Columns that are neither parameters nor outcomes, each with the reason; adds ``questions`` where in doubt.

    Nothing else is looked for in columns that are asked about.
    """
    reasons: dict[str, str] = {}
    asked: dict[str, str] = {}
    source = results if listed is None else listed
    for name in dict.fromkeys([*source.names, *results.names]):
        if name not in outcomes and name not in options.named:
            # Behind the outcome stand other outcomes and remarks, unless all parameters do.
            before = results.names[: min(results.names.index(outcome) for outcome in outcomes)]
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
        if question := unclear(name, [cell for cell in source.cells(name) if not is_pending(cell)]):
            questions.append(question)
            asked[name] = question.text
    questions += about_blanks(results, [name for name, reason in asked.items() if reason == BLANK])
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
    first, bounds, levels = next(iter(filled), ""), word(f"{name}=LOW:HIGH"), word(f"{name}=A,B")
    free = not kind_of(name, filled, ColumnOptions()).has_form
    pending = _is_blank_where_pending(results, name, outcomes, words)
    sparse = 2 * len(filled) < len(cells)
    names_rows = free and all(_names_rows(table, name) for table in tables)
    question = unclear(name, filled) if ahead else None
    screen = names_rows and ahead and listed is None and is_screen(name, filled)
    rules: tuple[tuple[object, str | Question], ...] = (
        (not filled, f"no value yet; --bounds {bounds} or --levels {levels} makes it a parameter"),
        (listed is not None and name not in listed.names, f"not in {'' if listed is None else listed.path}"),
        (question, question or ""),
        (
            free and _all(r"\d+(:\d\d){1,2}", filled),
            f"times of day such as {first}; write durations as numbers of minutes",
        ),
        (free and all(map(is_date, filled)), "dates"),
        (any(re.fullmatch(r"0\d+", cell) for cell in filled), "codes with leading zeros"),
        (_counts_rows(tables[-1], name), "counts the rows"),
        (_numbers_rows(name, filled), "names the rows"),
        (free and _all(r"[\d.,]+ ?(-|–|to) ?[\d.,]+[^-–]*", filled), f"ranges such as {first}; write one number"),
        (any(_repeats(results, name, y) for y in outcomes), f"nearly the same as {outcomes[0]}, so readings of it"),
        (names_rows and screen is False and (pending or not sparse), "a text of its own in most rows"),
        (pending and listed is None and len(set(filled)) == 1, "one value only"),
        (ahead and (pending or (sparse and (is_grouped(cells) or not words))), BLANK),
        (pending, f"blank where {outcomes[0]} is, so an outcome"),
        (sparse, "blank in most rows"),
        (isinstance(screen, Question), screen if isinstance(screen, Question) else ""),
        (listed is None and len(set(cells)) == 1 and len(cells) > 1, "one value only"),
    )
    return next((reason for holds, reason in rules if holds), None)


def _is_missing(cell: str, words: bool) -> bool:
    return is_pending(cell) and not (words and cell == "Na")  # sodium, beside other words


def _all(form: str, cells: Sequence[str]) -> bool:
    return all(re.fullmatch(form, cell) for cell in cells)


def _numbers_rows(name: str, cells: Sequence[str]) -> bool:
    """Whether a column that is called so has whole numbers, each once."""
    named_so = IDENTIFIER.fullmatch(name.strip()) is not None
    return named_so and len(set(cells)) == len(cells) and all(map(str.isdigit, cells))


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
    if table.unit(name) or name.endswith((")", "]")):
        return False
    numbers = [written(cell) for cell in table.cells(name)]
    digits = [int(n.digits) for n in numbers if n is not None and n.digits.isdigit() and not (n.unit or n.sign)]
    if len(digits) < max(3, sum(not is_pending(cell) for cell in table.cells(name))):
        return False
    steps = [after - before for before, after in pairwise(digits)]
    return all(step > 0 for step in steps) and 2 * steps.count(1) > len(steps)


def _repeats(table: Table, name: str, outcome: str) -> bool:
    """Whether a column repeats an outcome to a tenth of its range, as the single readings of a mean do.

    As many rows as are expected to be wrong may differ.
    """
    if name not in table.names:
        return False
    read = list(zip(table.numbers(name), table.numbers(outcome), strict=True))
    mark = table.mark
    both = [(a, b) for a, b in read if a is not None and b is not None]
    pairs = [(a.value(mark), b.value(mark)) for a, b in both if {a.decimal, b.decimal} <= {"", "?", mark}]
    pairs.sort(key=lambda pair: abs(pair[0] - pair[1]))
    right = pairs[: len(pairs) - math.ceil(WRONG * len(pairs))]
    spread = max((b for _, b in right), default=0.0) - min((b for _, b in right), default=0.0)
    return len(right) > FEW and abs(right[-1][0] - right[-1][1]) < 0.1 * spread


def _is_remark(cells: Sequence[str]) -> bool:
    return "" in cells and all(written(cell) is None for cell in cells)


def _about_sides(
    results: Table, outcomes: Sequence[str], reasons: dict[str, str], options: ColumnOptions
) -> list[Question]:
    """Leave out remarks behind the outcome.

    Ask where columns on both sides of it may be parameters, as a second outcome would.
    """
    place = min(results.names.index(name) for name in outcomes)
    unclear = [name for name in results.names if name not in {*outcomes, *reasons, *options.conditions}]
    left = [name for name in unclear if results.names.index(name) < place]
    right = [name for name in unclear if results.names.index(name) > place and name not in options.named]
    for name in [name for name in right if _is_remark(results.cells(name))]:
        reasons[name] = "texts, blank in some rows"
        right.remove(name)
    if not (left and right):
        return []
    names, them = ", ".join(map(repr, right)), "it" if len(right) == 1 else "them"
    answers = f"--ignore {' '.join(map(word, right))}", f"take {them} with --parameters {word(','.join(left + right))}"
    stand = f"{'stands' if len(right) == 1 else 'stand'} behind {outcomes[0]!r}"
    return [Question(f"{names} {stand} and may be an outcome, too", answers)]
