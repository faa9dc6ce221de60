"""The kinds of columns, and which one a column is."""

from __future__ import annotations

from collections.abc import Sequence

from bo_robust.tables.categorical import Categorical
from bo_robust.tables.cells import TableError, word
from bo_robust.tables.columns import Cell, Column, ColumnOptions
from bo_robust.tables.numeric import Numeric
from bo_robust.tables.table import Table

# A column is of the first kind that recognizes its cells, unless the user says which.
KINDS: list[type[Column]] = [Categorical, Numeric]


def column_of(name: str, tables: Sequence[Table], options: ColumnOptions) -> Column:
    """Recognize a column from its cells in all tables, and what the user says of it; raises ``TableError``."""
    cells = [Cell(table, row, name, text) for table in tables for row, text in enumerate(table.cells(name))]
    for cell in cells:
        if not cell.text and name not in options.conditions:  # of what is pending, these are not known yet
            hint = f"every design needs a value; --ignore {word(name)} leaves the column out"
            raise TableError(f"{cell.where} is blank: {hint}.")
    filled = [cell for cell in cells if cell.text]
    kind = kind_of(name, [*(cell.text for cell in filled), *options.levels.get(name, ())], options)
    return kind.read(name, filled, tables, options)


def kind_of(name: str, cells: Sequence[str], options: ColumnOptions) -> type[Column]:
    """The kind that the user names, or of which these cells are."""
    if (said := options.kinds.get(name)) is not None:
        return next(kind for kind in KINDS if said in kind.options)
    return next(kind for kind in KINDS if kind.recognizes(name, cells, options))
