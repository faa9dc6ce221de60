"""Columns of categories: texts, or numbers that the user says have no order."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from bo_robust.tables.cells import written
from bo_robust.tables.columns import Cell, Column, ColumnOptions, some_of
from bo_robust.tables.table import Table


@dataclass(frozen=True)
class Categorical(Column):
    """Categories, which a search sees as their places in a list."""

    options: ClassVar[Mapping[str, str]] = {"categorical": "columns of categories"}
    ordered: ClassVar[bool] = False
    categories: tuple[str, ...] = ()

    @classmethod
    def recognizes(cls, name: str, cells: Sequence[str], options: ColumnOptions) -> bool:
        return len(cells) > 0 and name not in options.bounds and all(written(cell) is None for cell in cells)

    @classmethod
    def read(cls, name: str, cells: Sequence[Cell], tables: Sequence[Table], options: ColumnOptions) -> Categorical:
        levels = options.levels.get(name)
        for cell in cells:
            if levels and cell.text not in levels:
                raise cell.error(f"is not among --levels {name}; add it")
        categories = tuple(levels or sorted({cell.text for cell in cells}))
        return cls(name, (0.0, max(1.0, len(categories) - 1.0)), name in options.conditions, categories=categories)

    def codes(self, table: Table) -> list[float]:
        return [float(self.categories.index(cell)) if cell else math.nan for cell in table.cells(self.name)]

    def decode(self, value: float) -> str:
        return "" if math.isnan(value) else self.categories[round(value)]

    @property
    def grid(self) -> list[float]:
        return [float(k) for k in range(len(self.categories))]

    @property
    def values(self) -> str:
        return some_of(self.categories)

    def notes(self) -> list[str]:
        """Lines about categories that differ in case, spaces or hyphens alone."""
        alike: dict[str, list[str]] = {}
        for category in self.categories:
            alike.setdefault(re.sub(r"[\s_-]", "", category.casefold()), []).append(category)
        groups = [group for group in alike.values() if len(group) > 1]
        return [f"{self.name} has {' and '.join(g)}, taken for {len(g)} levels; write one if not." for g in groups]
