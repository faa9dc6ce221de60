"""A table of the page: plain data that the template ``report.html.j2`` turns into HTML."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple


class Cell(NamedTuple):
    """A cell of a table: its text, and for machines the number with all its digits, if it is one."""

    text: str
    value: float | None = None


class Table(NamedTuple):
    """A table: titles of its columns, cells after the first by label; ``below`` explains the columns."""

    caption: str
    head: Sequence[str]
    rows: Mapping[str, Sequence[Cell]]
    below: str = ""
    lowest: str | None = None  # The label that is tagged


def number(value: Any, pattern: str = "{:.4g}") -> Cell:
    """A cell with a number in a format of :meth:`str.format`."""
    return Cell(pattern.format(value), float(value))
