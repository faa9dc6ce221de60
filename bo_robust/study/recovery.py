"""What is left of a damaged study: the rows of its file and of its log (``PATH-wal``) that fit their checksums.

SQLite itself reads copies of the files. It stops at the first damaged place of the log. So the pages behind that place
are also put into a copy of the file, even if their frames are damaged. Nothing false comes of it: rows carry their own
checksums, and a row of a study never changes once it is there.
"""

import json
import sqlite3
import struct
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from bo_robust.study.schema import APPLICATION, SCHEMA, checksum

LOG_HEADER = 32  # bytes (https://www.sqlite.org/fileformat2.html#the_write_ahead_log)
FRAME_HEADER = 24
PAGE = 4096
MAGIC = b"SQLite format 3\0"


class StudyDamaged(RuntimeError):
    """The file is torn, truncated or no study, or was moved while open; the message says what is readable and how."""


def damaged(path: Path, said: str, otherwise: str = "") -> StudyDamaged:
    """Make the error for a study in which ``said`` is wrong; ``otherwise`` is a sentence on what else can be done.

    It says how much is readable, and how to export that.
    """
    return StudyDamaged(
        f"{path} is damaged ({said}). {len(salvage(path))} tells are readable: `python -m bo_robust.study {path} > "
        "tells.jsonl` or bo_robust.study.salvage(path) exports them; give them to a new study with its "
        f"`add(x, value)`.{otherwise and ' ' + otherwise}"
    )


def salvage(path: str | Path) -> list[dict[str, Any]]:
    """Read what is left of a damaged study: one ``{"id", "x", "value"}`` per tell.

    The value is None for a failure, x is None for an unreadable point. The files are not touched. A tell that does not
    fit its checksum is left out; a point that does not is unreadable. A missing file or a garbled first page costs no
    row on another page or in the log. Raises ``FileNotFoundError`` if there is neither the file nor its log.
    """
    path, log_path = Path(path), Path(f"{path}-wal")
    if not path.is_file() and not log_path.is_file():
        raise FileNotFoundError(f"there is neither {path} nor {log_path}.")
    main = path.read_bytes() if path.is_file() else b""
    log = log_path.read_bytes() if log_path.is_file() else b""
    points: dict[int, Any] = {}
    values: dict[int, tuple[Any, Any]] = {}  # trial and value by seq
    for reading in _readings(main, log):
        trials, tells = _tables(*reading)
        # Rows that an earlier reading found win.
        points = {row[0]: row[1] for row in trials if _fits(row[4:], row[:3])} | points
        values = {row[0]: row[1:3] for row in tells if _fits(row[3:], row[1:3])} | values
    return [
        {"id": trial, "x": _point(points.get(trial)), "value": value}
        for _, (trial, value) in sorted(values.items())
        if isinstance(trial, int) and isinstance(value, float | None)
    ]


def _readings(main: bytes, log: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield file and log as they are, then with the log put into the file, then also with a new first page."""
    yield main, log
    main = _with_pages(main, log)
    yield main, b""
    # Bytes 68 to 71 of the header are the application id: another program's file gets no new first page.
    if not main.startswith(MAGIC) or main[68:72] == struct.pack(">I", APPLICATION):
        with closing(sqlite3.connect(":memory:")) as db:  # the tables of every study begin on the same pages
            db.executescript(f"PRAGMA page_size = {PAGE}; {SCHEMA}")
            yield _with_length(db.serialize()[:PAGE] + main[PAGE:]), b""


def _with_pages(main: bytes, log: bytes) -> bytes:
    """The file with every page of its log put in, except pages from before the log's last restart."""
    salts = (log[16:24], log[LOG_HEADER + 8 : LOG_HEADER + 16])  # in the header, and again in every frame
    data = bytearray(main)
    for start in range(LOG_HEADER, len(log) - FRAME_HEADER - PAGE + 1, FRAME_HEADER + PAGE):
        end = struct.unpack_from(">I", log, start)[0] * PAGE
        if log[start + 8 : start + 16] in salts and PAGE <= end <= len(main) + len(log):
            data.extend(bytes(max(0, end - len(data))))
            data[end - PAGE : end] = log[start + FRAME_HEADER : start + FRAME_HEADER + PAGE]
    return _with_length(bytes(data))


def _with_length(data: bytes) -> bytes:
    """The file with its number of pages written into its header."""
    return data[:28] + struct.pack(">I", len(data) // PAGE) + data[32:] if len(data) >= PAGE else data


def _tables(main: bytes, log: bytes) -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]:
    """Rows of trials and tells that SQLite reads in a copy of these files."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "copy"
        copy.write_bytes(main)
        Path(f"{copy}-wal").write_bytes(log)
        with closing(sqlite3.connect(copy)) as db:
            db.text_factory = lambda raw: raw.decode(errors="replace")
            return _rows(db, "SELECT * FROM trials ORDER BY id"), _rows(db, "SELECT * FROM tells ORDER BY seq")


def _rows(db: sqlite3.Connection, query: str) -> list[tuple[Any, ...]]:
    """The rows before the damage and those behind it, read from either end."""
    rows: list[tuple[Any, ...]] = []
    for direction in ("", " DESC"):
        try:
            db.execute("PRAGMA writable_schema = ON")  # otherwise a truncated file is refused as a whole
            for row in db.execute(query + direction):
                rows.append(row)  # one by one: what came before an error counts
            break
        except sqlite3.DatabaseError:
            continue
    return rows


def _fits(known: tuple[Any, ...], row: tuple[Any, ...]) -> bool:
    """Whether a row fits its checksum; files of earlier versions have none."""
    return known in ((), (None,)) or known == (checksum(*row),)


def _point(text: Any) -> Any:
    try:
        x = json.loads(text)
    except (ValueError, TypeError):
        return None
    return x if isinstance(x, dict) else None
