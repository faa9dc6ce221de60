"""Reading what is left of a damaged study: its pages, those in its log (``PATH-wal``) and the rows on them."""

from __future__ import annotations

import json
import sqlite3
import struct
import sys
import tempfile
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bo_robust.study.schema import APPLICATION, SCHEMA, checksum

__all__ = ["LOG_HEADER", "Log", "read_log", "salvage"]

LOG_HEADER = 32  # bytes
_FRAME_HEADER = 24
_PAGE = 4096
_MAGIC = b"SQLite format 3\0"


@dataclass(frozen=True)
class Log:
    """What the log of a study holds.

    Attributes:
        sound: Whether its header is whole; SQLite takes a log whose header is not for an empty one.
        lost: Commits at or behind the first damaged frame, which SQLite ignores. One may be a commit that a crash
            interrupted; of two, the first was acknowledged, for the second begins after the fsync of the first. A
            page that comes again begins another commit, also where the frame that ended the one before is damaged.
        page_size: Bytes.
        pages: By number, the newest readable image of every page in the log: of all commits if acknowledged ones are
            damaged, else of those that SQLite reads.
    """

    sound: bool
    lost: int
    page_size: int
    pages: dict[int, bytes]


def read_log(path: str | Path) -> Log:
    """Read a ``-wal`` file, checksums included (https://www.sqlite.org/fileformat2.html#the_write_ahead_log).

    A frame's checksum continues that of the frame before it, so each is checked against the one stored there: damage
    costs a frame or two, not all that follows. Frames of other salts are left over from before a checkpoint.

    Args:
        path: Of the log.
    """
    data = Path(path).read_bytes()
    if len(data) < LOG_HEADER:  # torn at birth, before any commit
        return Log(True, 0, _PAGE, {})
    magic, _, size, _, *salts, first, second = struct.unpack_from(">8I", data)
    order = {0x377F0682: "<", 0x377F0683: ">"}.get(magic, "<" if sys.byteorder == "little" else ">")
    sound = _checksum(data[:24], order, (0, 0)) == (first, second) and 0 < size <= 65536
    size = size if sound else _PAGE
    known = tuple(salts) if sound else None
    before = (first, second)
    kept: dict[int, bytes] = {}
    pages: dict[int, bytes] = {}
    waiting: dict[int, bytes] = {}
    broken, lost = False, 0
    since: set[int] = set()  # pages of the commit that the damage is in, or of a later one
    for start in range(LOG_HEADER, len(data) - _FRAME_HEADER - size + 1, _FRAME_HEADER + size):
        page, commit, salt_1, salt_2, *stored = struct.unpack_from(">6I", data, start)
        body = data[start + _FRAME_HEADER : start + _FRAME_HEADER + size]
        current = known in (None, (salt_1, salt_2))
        good = current and page > 0
        good = good and _checksum(body, order, _checksum(data[start : start + 8], order, before)) == tuple(stored)
        before = (stored[0], stored[1])
        if good and known is None:
            known = (salt_1, salt_2)
        if not good and not broken:
            kept, broken, since = dict(pages), True, {page}
        elif broken and current:
            lost += page in since
            since = {page} | (set() if page in since else since)
        if broken and current and commit > 0:
            lost, since = lost + 1, set()
        if good:
            waiting[page] = body
            if commit:
                pages |= waiting
                waiting = {}
    return Log(sound, lost, size, kept if broken and sound and lost < 2 else pages)


def salvage(path: str | Path) -> list[dict[str, Any]]:
    """What can be read of a damaged study, ``{"id", "x", "value"}`` a tell (value None: failed; x None: unreadable).

    Reads a copy, from both ends of every table up to the damage; the files themselves are not touched. Tells that do
    not fit their checksums are left out, points that do not are unreadable. If the file is missing or empty, what its
    log ``PATH-wal`` holds of it; if its first page is damaged, all the same.

    Args:
        path: The file.

    Raises:
        FileNotFoundError: if there is neither the file nor its log.
    """
    data = _with_log(Path(path))
    points, found = _tables(data)
    if not found and (not data.startswith(_MAGIC) or data[68:72] == struct.pack(">I", APPLICATION)):
        with closing(sqlite3.connect(":memory:")) as db:  # the tables of every study begin on the same pages
            db.executescript(f"PRAGMA page_size = {_PAGE}; {SCHEMA}")
            points, found = _tables(_counted(db.serialize()[:_PAGE] + data[_PAGE:], _PAGE))
    texts = dict(points)
    return [
        {"id": trial, "x": _parsed(texts.get(trial)), "value": value}
        for _, trial, value, *_ in found
        if isinstance(trial, int) and isinstance(value, float | None)
    ]


def _with_log(path: Path) -> bytes:
    """The file with the pages of its log put in."""
    log_path = Path(f"{path}-wal")
    if not path.is_file() and not log_path.is_file():
        raise FileNotFoundError(f"there is neither {path} nor {log_path}.")
    data = bytearray(path.read_bytes() if path.is_file() else b"")
    log = read_log(log_path) if log_path.is_file() else Log(True, 0, _PAGE, {})
    for page, body in log.pages.items():
        end = page * log.page_size
        data.extend(bytes(max(0, end - len(data))))
        data[end - log.page_size : end] = body
    return _counted(bytes(data), log.page_size) if log.pages else bytes(data)


def _counted(data: bytes, page_size: int) -> bytes:
    """The file with the number of its pages in its header."""
    return data[:28] + struct.pack(">I", len(data) // page_size) + data[32:]


def _tables(data: bytes) -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]:
    """Trials and tells in the bytes of a file."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "copy"
        copy.write_bytes(data)
        with closing(sqlite3.connect(copy)) as db:
            db.text_factory = lambda raw: raw.decode(errors="replace")
            points = _rows(db, "SELECT * FROM trials ORDER BY id")
            points = [row[:2] for row in points if _fits(row[4:], row[:3])]
            return points, [row for row in _rows(db, "SELECT * FROM tells ORDER BY seq") if _fits(row[3:], row[1:3])]


def _fits(known: tuple[Any, ...], row: tuple[Any, ...]) -> bool:
    """Whether a row fits its checksum; files of earlier versions have none."""
    return known in ((), (None,)) or known == (checksum(*row),)


def _checksum(data: bytes, order: str, start: tuple[int, int]) -> tuple[int, int]:
    first, second = start
    words = struct.unpack(f"{order}{len(data) // 4}I", data)
    for even, odd in zip(words[::2], words[1::2], strict=True):
        first = (first + even + second) & 0xFFFFFFFF
        second = (second + odd + first) & 0xFFFFFFFF
    return first, second


def _rows(db: sqlite3.Connection, query: str) -> list[tuple[Any, ...]]:
    """The rows before the damage and those after it, by their first column."""
    found: dict[int, tuple[Any, ...]] = {}
    for direction in ("", " DESC"):
        try:
            db.execute("PRAGMA writable_schema = ON")  # otherwise a truncated file is refused as a whole
            for row in db.execute(query + direction):
                found[row[0]] = row
            break
        except sqlite3.DatabaseError:
            continue
    return [found[key] for key in sorted(found)]


def _parsed(text: Any) -> Any:
    try:
        x = json.loads(text)
    except (ValueError, TypeError):
        return None
    return x if isinstance(x, dict) else None
