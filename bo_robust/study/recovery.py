"""Reading what is left of a damaged study."""

from __future__ import annotations

import json
import shutil
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Any

__all__ = ["salvage"]


def salvage(path: str | Path) -> list[dict[str, Any]]:
    """What can be read of a damaged study, ``{"id", "x", "value"}`` a tell (value None: failed; x None: unreadable).

    Reads a copy, from both ends of every table up to the damage; the file itself is not touched.

    Args:
        path: The file.
    """
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "copy"
        for suffix in ("", "-wal"):
            if Path(f"{path}{suffix}").is_file():
                shutil.copyfile(f"{path}{suffix}", f"{copy}{suffix}")
        with closing(sqlite3.connect(copy)) as db:
            points = _rows(db, "SELECT id, x FROM trials ORDER BY id")
            found = _rows(db, "SELECT seq, trial, value FROM tells ORDER BY seq")
    texts = dict(points)
    return [{"id": trial, "x": _parsed(texts.get(trial)), "value": value} for _, trial, value in found]


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


def _parsed(text: str | None) -> Any:
    try:
        return None if text is None else json.loads(text)
    except ValueError:
        return None
