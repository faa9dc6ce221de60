"""The table in a file: CSV as spreadsheets of several countries write it, or a sheet of Excel; its cells are text."""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bo_robust.tables.cells import ABOUT, FAILED, SPACES, TableError, Written, is_pending, other, word, written
from bo_robust.tables.excel import read_sheet
from bo_robust.tables.rows import Lines, experiments
from bo_robust.utils.specs import nearest

OTHER_FILES = (".json", ".jsonl", ".numbers", ".ods", ".parquet", ".pdf", ".xls")
SHEET = re.compile(r"(.+\.xls[xm])(?::(.+))?", re.IGNORECASE)


@dataclass(frozen=True)
class Table:
    """The rows of a file, as text, by the names in its header.

    Attributes:
        path: The file.
        names: Names of the columns.
        rows: Their cells.
        lines: Number of each row in the file, as Excel counts them.
        units: Units that a row beside the names gives, by name.
        separator: Of cells, in which the answer is written.
        decimal: The decimal mark; "" where no number of the file shows it.
        decided: Whether an option gave the decimal mark.
        notes: What a reader should know of how it was read.
    """

    path: Path
    names: list[str]
    rows: list[list[str]]
    lines: list[int]
    units: dict[str, str] = field(default_factory=dict)
    separator: str = ","
    decimal: str = ""
    decided: bool = False
    notes: tuple[str, ...] = ()

    @property
    def mark(self) -> str:
        """The decimal mark in which the answer is written."""
        return self.decimal or ("," if self.separator == ";" else ".")

    def cells(self, name: str) -> list[str]:
        position = self.names.index(name)
        return [row[position] for row in self.rows]

    def where(self, row: int, name: str) -> str:
        return f"{self.path}, row {self.lines[row]}, column {name!r}"

    def find(self, name: str) -> str:
        """The column of this name, which may leave out the unit or differ in case; raises ``TableError``."""
        if (found := named(name, self.names)) is None:
            raise TableError(f"{self.path} has no column {name!r}; {nearest(name, self.names)}.")
        return found

    def numbers(self, name: str) -> list[Written | None]:
        return [written(cell) for cell in self.cells(name)]

    def values(self, name: str, outcome: bool = False) -> list[float | None]:
        """The numbers of a column, None where there is none; ``TableError`` where units or marks disagree."""
        numbers = self.numbers(name)
        units = {number.unit: i for i, number in reversed(list(enumerate(numbers))) if number is not None}
        if len(units) > 1:
            i, k = sorted(units.values())[:2]
            cells = f"{self.cells(name)[k]!r} has another unit than {self.cells(name)[i]!r} in row {self.lines[i]}"
            categories = f"; --categorical {word(name)} takes the cells of a parameter as they are"
            hint = f"write one unit, or none{'' if outcome else categories}"
            raise TableError(f"{self.where(k, name)}: {cells}; {hint}.")
        groups = {n.decimal for n in numbers if n is not None and n.has_groups}
        return [None if n is None else n.value(self._decimal_of(n, i, name, groups)) for i, n in enumerate(numbers)]

    def unit(self, name: str) -> str:
        """The unit in the cells of a column of numbers, or in the row of units."""
        return next((n.unit for n in self.numbers(name) if n is not None and n.unit), self.units.get(name, ""))

    def _decimal_of(self, number: Written, row: int, name: str, groups: set[str]) -> str:
        if number.decimal != "?":
            if self.decided and number.decimal not in ("", self.decimal):
                what = f"{self.cells(name)[row]!r} has another decimal mark than --decimal says"
                raise TableError(f"{self.where(row, name)}: {what}.")
            return number.decimal or "."
        mark = "." if "." in number.digits else ","
        if self.decided:
            return self.decimal
        if len(groups) == 1:
            return next(iter(groups))
        if self.decimal == mark or (not self.decimal and (mark, self.separator) == (".", ",")):
            return mark
        cell, either = self.cells(name)[row], f"{number.value(mark):.10g} or {number.value(other(mark)):.10g}"
        hint = f"with --decimal {mark} or --decimal {other(mark)} say which it is"
        raise TableError(f"{self.where(row, name)}: {cell!r} may be {either}; {hint}.")


def named(name: str, names: Sequence[str]) -> str | None:
    """The name that is meant, which may leave out a unit in brackets and differ in case; None unless it is unique."""
    if name in names:
        return name
    alike = [known for known in names if plain(known) in (plain(name), name.strip().casefold())]
    return alike[0] if len(alike) == 1 else None


def plain(name: str) -> str:
    return re.sub(r"\s*[\[(][^\[(]*[\])]$", "", name.translate(SPACES)).strip().casefold() or name


def read_table(
    path: Path | str, wanted: Iterable[str] = (), decimal: str | None = None, unnamed: bool = False
) -> Table:
    """Read a CSV file, or ``file.xlsx:sheet``; raises ``TableError`` where it is no table with names.

    Of columns without a name, the first may stand before all others, and others only where ``unnamed`` ones may.

    The names are in the first row that has all those ``wanted``, else in the fullest of the first rows. A row beside
    it of texts alone, above or below which all columns hold numbers, has units.
    """
    match = SHEET.fullmatch(str(path))
    if Path(path).suffix.lower() in OTHER_FILES:
        raise TableError(f"{path} is of a kind that is not read; save it as CSV (UTF-8) or as .xlsx.")
    notes: list[str] = []
    if match is not None:
        grid, separator = read_sheet(Path(match[1]), match[2], notes), ","
    else:
        grid, separator = _csv(Path(path), notes)
    kept = [(i + 1, row) for i, row in enumerate(grid) if any(row)]
    if not kept:
        raise TableError(f"{path} is empty; its first row must name the columns.")
    names, above, below = _columns(path, kept, _header([row for _, row in kept], wanted), unnamed, notes)
    units, beside = {}, []
    if below and _is_units(below[0][1], [row for _, row in below[1:]]):
        beside = [below.pop(0)]
    elif above and _names_units(names, above[-1][1]) and _is_units(above[-1][1], [row for _, row in below]):
        beside = [above.pop()]
    for line, row in beside:
        units = {name: cell.strip("[]() ") for name, cell in zip(names, row, strict=True) if cell.strip("[]() -")}
        notes.append(f"Row {line} holds units.")
    notes += [f"Row {line} is above the names, and is not read." for line, _ in above]
    lines, rows = [line for line, _ in below], [row for _, row in below]
    if about := [(line, c) for line, row in below for c in row if ABOUT.match(c) and written(c)]:
        notes.append(f"Row {about[0][0]} has {about[0][1]!r}, which is read as the number alone.")
    mark = decimal or _decimal_mark(path, rows)
    return Table(Path(path), names, rows, lines, units, separator, mark, decimal is not None, tuple(notes))


def _columns(
    path: Path | str, kept: Lines, header: int, unnamed: bool, notes: list[str]
) -> tuple[list[str], Lines, Lines]:
    """The names, and the rows above and below them, of columns that hold something."""
    width = max(i + 1 for i, name in enumerate(kept[header][1]) if name)
    again = [line for line, row in kept[header + 1 :] if row[:width] == kept[header][1][:width]]
    notes += [f"Row {line} repeats the names, and is not read." for line in again]
    below = experiments([(line, row) for line, row in kept[header + 1 :] if line not in again], width, notes)
    beyond = [(line, cell) for line, row in below for cell in row[width:] if cell]
    if beyond and not (unnamed and 2 * len(beyond) > len(below)):  # in few rows, they may be shifted
        line, cell = beyond[0]
        commas = len(beyond) > 1 and all(cell.isdigit() for _, cell in beyond)
        hint = ", or save it with semicolons if commas are decimal marks" if commas else ""
        raise TableError(f"{path}, row {line} has the cell {cell!r} beyond the last name; name its column{hint}.")
    notes += ["Cells beyond the last name are not read."] * bool(beyond)
    rows = [(line, (row + [""] * width)[:width]) for line, row in [*kept[: header + 1], *below]]
    line, names = rows[header]
    used = [i for i, name in enumerate(names) if name or any(row[i] for _, row in rows[header + 1 :])]
    blank = [i for i in used if not names[i]]
    gone = blank if unnamed else [0] if len(used) > 1 and blank[:1] == [0] else []  # as pandas writes an index
    notes += [f"Column {i + 1} has no name, and is not read." for i in gone]
    if unread := [i for i in blank if i not in gone]:
        raise TableError(f"{path}: column {unread[0] + 1} has no name in row {line}.")
    named_rows = [(line, [row[i] for i in used if i not in gone]) for line, row in rows]
    names = named_rows[header][1]
    if header and len(set(names)) < len(names):
        names = _with_groups(names, named_rows[header - 1][1])
    if twice := [name for i, name in enumerate(names) if name in names[:i]]:
        raise TableError(f"{path} has two columns {twice[0]!r}; rename one.")
    return names, named_rows[:header], named_rows[header + 1 :]


def _with_groups(names: Sequence[str], above: Sequence[str]) -> list[str]:
    """Names of which several are the same, behind those of their groups in the row above."""
    groups = list(above)
    for i, left in enumerate(groups[:-1]):
        groups[i + 1] = groups[i + 1] or left
    pairs = zip(groups, names, strict=True)
    return [f"{group} {name}" if group not in ("", name) and names.count(name) > 1 else name for group, name in pairs]


def _decimal_mark(path: Path | str, rows: list[list[str]]) -> str:
    """The decimal mark that columns of numbers prove, or ""."""
    shown: dict[str, str] = {}
    for column in zip(*rows, strict=True):
        cells = [cell for cell in column if not is_pending(cell) and cell.lower() != FAILED]
        numbers = {cell: number for cell in cells if (number := written(cell)) is not None}
        if len(numbers) == len({*cells}):
            shown |= {number.decimal: cell for cell, number in numbers.items() if number.decimal in (".", ",")}
    if len(shown) > 1:
        which = f"{shown['.']!r} and {shown[',']!r}"
        raise TableError(f"{path} has {which}: write one decimal mark, or say with --decimal which it is.")
    return next(iter(shown), "")


def _header(rows: list[list[str]], wanted: Iterable[str]) -> int:
    """The place of the row that has the names."""
    wanted, counts = list(wanted), [len([cell for cell in row if cell]) for row in rows]
    for i, row in enumerate(rows if wanted else ()):
        if _has_all(wanted, row):  # below it, names may stand under those of groups, which are merged
            below = [k for k in (i + 1,) if k < len(rows) and _has_all(wanted, rows[k])]
            return max([i, *below], key=counts.__getitem__)
    # The first rows end where the first number comes; titles have one cell.
    first = next((i for i, row in enumerate(rows) if any(written(cell) for cell in row)), len(rows))
    return counts.index(max(counts[: max(first, 1)]))


def _has_all(wanted: Iterable[str], row: Sequence[str]) -> bool:
    return all(named(name, row) is not None for name in wanted)


def _is_units(row: Sequence[str], below: Sequence[Sequence[str]]) -> bool:
    """Whether a row has texts where the rows below have numbers, and a text of its own in all other columns."""
    numeric = 0
    for i, cell in enumerate(row):
        cells = [other_row[i] for other_row in below if not is_pending(other_row[i])]
        if written(cell) is not None or (cell and cell in cells) or cell.lower() == FAILED:
            return False
        numeric += bool(cell.strip("-–— ")) and bool(cells) and all(written(one) for one in cells)
    return numeric > 0


def _names_units(names: Sequence[str], above: Sequence[str]) -> bool:
    """Whether a row above the names may have units: it is as wide, and repeats no name, as merged cells do."""
    return sum(map(bool, above)) > len(names) / 2 and all(map(str.__ne__, names, above))


def _csv(path: Path, notes: list[str]) -> tuple[list[list[str]], str]:
    """The cells of a file of text, and their separator."""
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise TableError(f"{path}: {error.strerror or error}.") from None
    text = _text(path, raw, notes)
    separators = ",;\t"
    if match := re.match(r"sep=(.)\r?\n", text):  # Excel shows the rest
        separators, text = match[1], text[match.end() :]
    rated: list[tuple[float, str, list[list[str]]]] = []
    for separator in separators:
        try:
            parsed = list(csv.reader(io.StringIO(text, newline=""), delimiter=separator))
        except csv.Error as error:
            raise TableError(f"{path} is no CSV file: {error}.") from None
        grid = [[cell.translate(SPACES).strip() for cell in row] for row in parsed]
        widths = Counter(len(row) for row in grid if any(row))
        width, count = max(widths.items(), key=lambda item: (item[1], item[0]), default=(0, 0))
        rated.append((count / sum(widths.values()) if width > 1 else 0.0, separator, grid))
    # The comma comes last: between semicolons it is a decimal mark in as many cells of each row.
    share, separator, grid = max(rated, key=lambda one: (one[0], separators.find(one[1])))
    return grid, separator if share else ","


def _text(path: Path, raw: bytes, notes: list[str]) -> str:
    try:
        return raw.decode("utf-16" if raw[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig")
    except UnicodeDecodeError:
        if any(0x80 <= byte < 0xA0 for byte in raw):  # letters in the code pages of DOS and of Macs
            raise TableError(f"{path} is not UTF-8 text; save it as CSV (UTF-8).") from None
    notes.append(f"{path} is not UTF-8 text, and was read as Latin-1.")
    return raw.decode("latin-1")
