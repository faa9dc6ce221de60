"""What a page is made of: plain data that the one template, ``report.html.j2``, turns into HTML."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from bo_robust.experiments.report.pictures import Looks, Picture


class Cell(NamedTuple):
    """A cell of a table: its text, and for machines the number with all its digits, if it is one."""

    text: str
    value: float | None = None


def number(value: Any, pattern: str = "{:.4g}") -> Cell:
    """A cell with a number in a format of :meth:`str.format`, or a dash for None."""
    return Cell("-") if value is None else Cell(pattern.format(value), float(value))


def percent(value: float) -> Cell:
    """A cell with a share, as a percentage."""
    return Cell(f"{100 * value:.2g}%", float(value))


@dataclass(frozen=True)
class Words:
    """A paragraph; ``style`` is its class in the template's CSS."""

    kind: ClassVar[str] = "words"
    text: str
    style: str = ""


@dataclass(frozen=True)
class Lines:
    """A list of lines, each with lines below it."""

    kind: ClassVar[str] = "lines"
    lines: Sequence[tuple[str, Sequence[str]]]


@dataclass(frozen=True)
class Facts:
    """Names with their texts."""

    kind: ClassVar[str] = "facts"
    pairs: Sequence[tuple[str, str]]


@dataclass(frozen=True)
class Figure:
    """Pictures side by side, whose line is whose, and a caption."""

    kind: ClassVar[str] = "figure"
    pictures: Sequence[Picture]
    caption: str
    looks: Looks | None = None
    style: str = ""


@dataclass(frozen=True)
class Table:
    """A table: titles of its columns, cells after the first by label; ``below`` explains the columns."""

    kind: ClassVar[str] = "table"
    caption: str
    head: Sequence[str]
    rows: Mapping[str, Sequence[Cell]]
    below: str = ""
    lowest: str | None = None  # The label that is tagged


@dataclass(frozen=True)
class Folded:
    """Parts that are shown on demand."""

    kind: ClassVar[str] = "folded"
    title: str
    parts: Sequence[Any]


@dataclass(frozen=True)
class Section:
    """Parts below a heading; ``id`` is what links lead to."""

    kind: ClassVar[str] = "section"
    title: str
    parts: Sequence[Any]
    id: str = ""
