"""What all kinds of columns have in common: parameters and conditions, as numbers that a search sees."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple, Self

from bo_robust.tables.table import Table


@dataclass(frozen=True)
class ColumnOptions:
    """What the user says of columns, by name."""

    parameters: Sequence[str] = ()
    ignored: Sequence[str] = ()
    kinds: Mapping[str, str] = field(default_factory=dict)  # an option of a kind, such as "integer"
    bounds: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    levels: Mapping[str, Sequence[str]] = field(default_factory=dict)
    steps: Mapping[str, float] = field(default_factory=dict)
    fixed: Mapping[str, str] = field(default_factory=dict)
    constrained: Sequence[str] = ()
    conditions: Sequence[str] = ()
    batch: str | None = None

    @property
    def named(self) -> set[str]:
        """Columns that are parameters because the user names them."""
        groups = (self.parameters, self.kinds, self.bounds, self.levels, self.steps, self.fixed, self.constrained)
        return {name for group in (*groups, self.conditions) for name in group}


class Cell(NamedTuple):
    """A cell that is not blank, and where it is."""

    text: str
    where: str


@dataclass(frozen=True)
class Column(ABC):
    """A parameter or a condition; a kind of column is a class derived from this one, and a row of ``kinds.KINDS``.

    Attributes:
        options: Options of the command that name columns of this kind, with what they are.
        ordered: Whether values have an order; if not, those of ``grid`` are categories.
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
        """Whether cells are of this kind, where the user does not say which they are."""

    @classmethod
    @abstractmethod
    def read(cls, name: str, cells: Sequence[Cell], tables: Sequence[Table], options: ColumnOptions) -> Self:
        """The column of these cells; raises ``TableError`` where they are not of this kind."""

    @abstractmethod
    def codes(self, table: Table) -> list[float]:
        """The numbers of all cells, NaN where they are blank."""

    @abstractmethod
    def decode(self, value: float) -> str:
        """A number as it is written in a cell."""

    @property
    def grid(self) -> list[float]:
        """All values of a column that takes no others; none where it takes all, or very many."""
        return []

    def on_grid(self, value: float) -> float:
        """A number rounded to a step that is too fine for a grid."""
        return value

    def number(self, code: float) -> float | str:
        """A number or a category as the file means it, where a search may see another one."""
        return self.decode(code)

    @property
    def axis(self) -> str:
        """What pictures call the numbers of this column."""
        return self.title

    @property
    def notes(self) -> list[str]:
        """Lines about values that need a look."""
        return []

    @property
    def title(self) -> str:
        return titled(self.name, self.unit)

    def __str__(self) -> str:
        """The title, and what the values are."""
        return f"{self.title} ({' to '.join(map(self.decode, self.span))})"


def titled(name: str, unit: str) -> str:
    return name if not unit or unit in name else f"{name} [{unit}]"
