"""What all kinds of columns have in common: parameters and conditions, as the numbers that a search sees."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple, Self

from bo_robust.tables.cells import TableError
from bo_robust.tables.table import Table


@dataclass(frozen=True)
class ColumnOptions:
    """What the user says of columns, by name."""

    parameters: Sequence[str] = ()
    ignored: Sequence[str] = ()
    kinds: Mapping[str, str] = field(default_factory=dict)  # an option that a kind has, such as "integer"
    bounds: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    levels: Mapping[str, Sequence[str]] = field(default_factory=dict)
    steps: Mapping[str, float] = field(default_factory=dict)
    constrained: Sequence[str] = ()
    conditions: Sequence[str] = ()

    @property
    def named(self) -> set[str]:
        """Columns that are parameters because the user names them."""
        groups = (self.parameters, self.kinds, self.bounds, self.levels, self.steps, self.constrained, self.conditions)
        return {name for group in groups for name in group}


class Cell(NamedTuple):
    """The text in a row of a column."""

    table: Table
    row: int
    column: str
    text: str

    @property
    def where(self) -> str:
        return self.table.where(self.row, self.column)

    def error(self, message: str) -> TableError:
        return TableError(f"{self.where}: {self.text!r} {message}.")


@dataclass(frozen=True)
class Column(ABC):
    """A parameter or a condition of some kind; what is said here holds for numbers of any value between two ends.

    A kind is a class derived from this one, in :data:`bo_robust.tables.kinds.KINDS`.

    Attributes:
        options: Options of the command that name columns of this kind, with what they say.
        ordered: Whether values have an order; those of ``grid`` are categories otherwise.
        has_form: Whether its cells have a form, such as that of dates, in which other kinds see rows or no values.
        span: The smallest and the largest value.
        observed: Whether this is a condition, which is not chosen.
    """

    options: ClassVar[Mapping[str, str]] = {}
    ordered: ClassVar[bool] = True
    has_form: ClassVar[bool] = False
    name: str
    span: tuple[float, float]
    observed: bool = False
    unit: str = ""

    @classmethod
    @abstractmethod
    def recognizes(cls, name: str, cells: Sequence[str], options: ColumnOptions) -> bool:
        """Whether these cells are of this kind, where the user does not say it."""

    @classmethod
    @abstractmethod
    def read(cls, name: str, cells: Sequence[Cell], tables: Sequence[Table], options: ColumnOptions) -> Self:
        """The column of the ``cells`` that are not blank; raises ``TableError`` where they are not of this kind."""

    @abstractmethod
    def codes(self, table: Table) -> list[float]:
        """The cells as numbers, NaN where they are blank."""

    @abstractmethod
    def decode(self, value: float) -> str:
        """A number as it is written in a cell."""

    @property
    @abstractmethod
    def values(self) -> str:
        """What the values are, in words."""

    @property
    def grid(self) -> list[float]:
        """All values of a column that takes no others; none where it takes all, or very many."""
        return []

    def on_grid(self, value: float) -> float:
        """A number rounded to a step that is too fine for a grid."""
        return value

    def notes(self) -> list[str]:
        """What in its values needs a look."""
        return []

    @property
    def title(self) -> str:
        return titled(self.name, self.unit)

    def __str__(self) -> str:
        return f"{self.title} ({self.values})"


def titled(name: str, unit: str) -> str:
    """Name and unit."""
    return name if not unit or unit in name else f"{name} [{unit}]"


def some_of(values: Sequence[str]) -> str:
    """The first values of a list."""
    return ", ".join([*values[:3], "..."] if len(values) > 3 else values)
