"""Categories that a typing error may have made."""

from __future__ import annotations

from collections import Counter

from bo_robust.tables.table import Table

ALIKE = ("0O", "0o", "1l", "1I", "5S")
SHORTEST = 5  # letters; shorter names differ by one often, as DMF and DME do


def mistyped(table: Table, name: str) -> list[str]:
    """Lines about categories that occur once, and are one edit from one that occurs twice or more."""
    cells = table.cells(name)
    counts = Counter(cells)
    pairs = [(one, other) for one in counts for other in counts if counts[one] == 1 < counts[other]]
    return [
        f"{name} = {one} (row {table.lines[cells.index(one)]}) occurs once; is it {other}?"
        for one, other in pairs
        if _is_slip(one, other)
    ]


def _is_slip(one: str, other: str) -> bool:
    """Whether a small letter within a word, or a digit like a letter, is wrong, missing, too much or exchanged."""
    if max(len(one), len(other)) < SHORTEST:
        return False
    same = next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
    before, a, b = one[:same], one[same:], other[same:]
    if a[:1] + b[:1] in ALIKE or b[:1] + a[:1] in ALIKE:
        return a[1:] == b[1:]
    letters = (a[:1] + b[:1]).islower() and (a[:1] + b[:1]).isalpha() and before[-1:].isalnum()
    exchanged = a[:2] == b[1::-1] and a[2:] == b[2:]
    return letters and (exchanged or a[1:] == b[1:] or a[1:] == b or a == b[1:])
