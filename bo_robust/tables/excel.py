"""The cells of a sheet as Excel shows them, and what a reader should know of it: merged, hidden and struck cells."""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Sequence
from functools import cache, partial
from itertools import takewhile
from pathlib import Path
from typing import Any

from bo_robust.tables.cells import SPACES, TableError, written
from bo_robust.utils.specs import nearest

Grid = list[list[str]]
# Of a number format: quoted and escaped text, room, repeated characters, brackets, and all else.
TOKEN = re.compile(r'"(?P<quoted>[^"]*)"|\\(?P<escaped>.)|[_*].|\[(?:\$(?P<currency>[^]-]*))?[^]]*\]|(?P<code>.)')


def read_sheet(path: Path, sheet: str | None, notes: list[str]) -> Grid:
    """The cells of a sheet; raises ``TableError`` where it is none, and adds to the ``notes``."""
    read, name = _sheet(path, sheet)
    stored = list(read(data_only=False)[name].rows)
    formulas = {cell.coordinate for row in stored for cell in row if cell.data_type == "f"}
    chosen = read(data_only=bool(formulas))[name]  # to read a file takes time
    rows = list(chosen.rows)
    grid = [[_shown(path, cell, formulas) for cell in row] for row in rows]
    _write_units(rows, grid)
    for number, (row, cells) in enumerate(zip(rows, grid, strict=True), 1):
        struck = [cell for cell in row if cell.value is not None and cell.has_style and cell.font.strike]
        if struck and 2 * len(struck) <= sum(map(bool, cells)):
            what = f"{path}, cell {struck[0].coordinate} is struck out, and others of its row are not"
            raise TableError(f"{what}; clear it, or remove the line through it.")
        if struck:
            notes.append(f"Row {number} is struck out, and is not read.")
            cells[:] = [""] * len(cells)
    _fill_merged(chosen, grid, notes)
    _say_hidden(chosen, grid, notes)
    return grid


def _sheet(path: Path, sheet: str | None) -> tuple[Callable[..., Any], str]:
    """What reads the book, and the name of the sheet that is meant."""
    try:
        import openpyxl
    except ImportError:
        raise TableError(f'{path} needs openpyxl: pip install "bo-robust[excel]", or save it as CSV (UTF-8).') from None
    read = cache(partial(openpyxl.load_workbook, path))
    try:
        book = read(data_only=False)
    except OSError as error:
        raise TableError(f"{path}: {error.strerror or error}.") from None
    except Exception as error:  # of zip files and XML
        raise TableError(f"{path} is no file that Excel wrote: {error}.") from None
    names = [one.title for one in book.worksheets]
    filled = [one.title for one in book.worksheets if any(any(row) for row in one.values)]
    if sheet is None and len(filled) > 1:
        raise TableError(f"{path} has the sheets {', '.join(filled)}; say which, such as {path}:{filled[0]}.")
    if (chosen := sheet or next(iter([*filled, *names]), "")) not in names:
        if chosen in book.sheetnames or not names:
            raise TableError(f"{path}: the sheet {chosen!r} is a chart; name one with cells: {', '.join(names)}.")
        raise TableError(f"{path} has no sheet {chosen!r}; {nearest(chosen, names)}.")
    return read, chosen


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _shown(path: Path, cell: Any, formulas: set[str]) -> str:
    value = cell.value
    if value is None and cell.coordinate in formulas:
        raise TableError(f"{path}, cell {cell.coordinate} has a formula without a value; save the file in Excel.")
    if value is None:
        return ""
    if _is_number(value):
        percent, unit = _format(cell.number_format)
        return f"{100.0 * value:.15g} {unit}" if percent else f"{value:.15g}"
    if isinstance(value, datetime.time):
        value = datetime.timedelta(hours=value.hour, minutes=value.minute, seconds=value.second)
    if isinstance(value, datetime.timedelta):
        minutes, seconds = divmod(round(value.total_seconds()), 60)
        return f"{minutes // 60}:{minutes % 60:02d}" + (f":{seconds:02d}" if seconds else "")
    return str(value).removesuffix(" 00:00:00").translate(SPACES).strip()


def _write_units(rows: Sequence[Sequence[Any]], grid: Grid) -> None:
    """Write the unit that all numbers of a column are shown with behind them; rows that were pasted may lack it."""
    for i in range(len(grid[0]) if grid else 0):
        numbers = [(row[i], line) for row, line in zip(rows, grid, strict=True) if _is_number(row[i].value)]
        shown = {_format(cell.number_format) for cell, _ in numbers}
        units = {unit for _, unit in shown}
        if len(units) == 1 and not any(percent for percent, _ in shown):
            for _, line in numbers:
                line[i] = f"{line[i]} {min(units)}".strip()


@cache
def _format(number_format: str) -> tuple[bool, str]:
    """Whether a number is shown in percent, and the text behind its digits, where it is a unit.

    Only a percent sign that is neither quoted nor escaped multiplies. A comma behind the digits divides, so that the
    text there, such as "k", is no unit of the number. What stands behind a semicolon is for other signs.
    """
    every = TOKEN.finditer(number_format.replace("General", "0"))
    tokens = list(takewhile(lambda token: token["code"] != ";", every))
    codes = "".join(token["code"] or " " for token in tokens)
    digits = max((i + 1 for i, code in enumerate(codes) if code in "0#?"), default=len(codes))
    behind = "".join((t["quoted"] or t["escaped"] or t["currency"] or t["code"] or "") for t in tokens[digits:])
    number = written(f"1 {behind.strip()}")
    unit = behind.strip() if number is not None and number.unit and codes[digits : digits + 1] != "," else ""
    return "%" in codes, unit or "%" * ("%" in codes)


def _fill_merged(sheet: Any, grid: Grid, notes: list[str]) -> None:
    """Write the text of merged cells into each of their rows, and into each column where a row has numbers."""
    filled = []
    for merged in sorted(sheet.merged_cells.ranges, key=lambda merged: (merged.min_row, merged.min_col)):
        first, text = merged.min_col - 1, grid[merged.min_row - 1][merged.min_col - 1]
        rows = grid[merged.min_row - 1 : merged.max_row]
        for row in rows:  # titles and names of groups stay in their first column
            width = merged.max_col - first if any(map(written, row)) else 1
            row[first : first + width] = [text] * width
        filled += [str(merged)] if text and (len(rows) > 1 or any(map(written, rows[0]))) else []
    if filled:
        notes.append(f"Merged cells hold their text in each row and column: {', '.join(filled)}.")


def _say_hidden(sheet: Any, grid: Grid, notes: list[str]) -> None:
    hidden = [f"row {i}" for i, row in enumerate(grid, 1) if any(row) and sheet.row_dimensions[i].hidden]
    for first in (one for one in sheet.column_dimensions.values() if one.hidden):
        columns = range(first.min, min(first.max, sheet.max_column) + 1)
        hidden += [f"column {sheet.cell(1, i).coordinate[:-1]}" for i in columns if any(row[i - 1] for row in grid)]
    if hidden:
        notes.append(f"Hidden, but read: {', '.join(hidden)}.")
