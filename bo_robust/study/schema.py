"""The tables of a study's file: their versions, their checksums, and whether they are whole.

Two tables only grow. ``trials`` holds what was asked; only its leases ever change. ``tells`` holds what came back, in
the order of the commits; a value of NULL is a failure. ``settings`` has one row. ``fits`` keeps hyperparameters, which
can be computed again. Each row carries a CRC-32 of its content, because SQLite does not see a flipped bit within a
value.
"""

import sqlite3
import zlib
from typing import Any

VERSION = 3
APPLICATION = 0x626F7362  # "bosb", in the header of the file
# ``fits`` is the last, so that the others begin on the same pages in files of all versions.
SCHEMA = """
CREATE TABLE settings (json TEXT NOT NULL, checksum INTEGER);
CREATE TABLE trials (
    id INTEGER PRIMARY KEY,
    x TEXT NOT NULL,
    asked_after INTEGER,  -- seq of the last tell it knew, NULL if added by hand
    leased_until REAL NOT NULL DEFAULT 0,
    checksum INTEGER
);
CREATE TABLE tells (
    seq INTEGER PRIMARY KEY, trial INTEGER NOT NULL UNIQUE REFERENCES trials (id), value REAL, checksum INTEGER
);
CREATE TABLE fits (data TEXT PRIMARY KEY, state TEXT NOT NULL, checksum INTEGER);
"""
# From version k to k + 1. Version 1 had no leases: what was open then is handed out again. Version 2 had no checksums
# and kept no hyperparameters.
MIGRATIONS = {
    1: "ALTER TABLE trials ADD COLUMN leased_until REAL NOT NULL DEFAULT 0",
    2: """
ALTER TABLE settings ADD COLUMN checksum INTEGER;
ALTER TABLE trials ADD COLUMN checksum INTEGER;
ALTER TABLE tells ADD COLUMN checksum INTEGER;
UPDATE settings SET checksum = checksum_of(json);
UPDATE trials SET checksum = checksum_of(id, x, asked_after);
UPDATE tells SET checksum = checksum_of(trial, value);
CREATE TABLE fits (data TEXT PRIMARY KEY, state TEXT NOT NULL, checksum INTEGER)
""",
}
_SUMMED = {"settings": "json", "trials": "id, x, asked_after", "tells": "trial, value"}


def checksum(*row: Any) -> int:
    """CRC-32 of a row's columns, as SQLite gives them to Python."""
    return zlib.crc32(repr(row).encode())


def add_checksum(db: sqlite3.Connection) -> None:
    """Make :func:`checksum` known to a connection's SQL as ``checksum_of``."""
    db.create_function("checksum_of", -1, checksum, deterministic=True)


def migrate(db: sqlite3.Connection, version: int) -> None:
    """Bring the tables from ``version`` to the next one, inside a transaction."""
    # Not executescript: it would commit the transaction first.
    for statement in MIGRATIONS[version].split(";"):
        db.execute(statement)
    db.execute(f"PRAGMA user_version = {version + 1}")


def counts(db: sqlite3.Connection) -> tuple[int, int]:
    """Numbers of trials and of tells in a study without gaps."""
    query = "SELECT (SELECT ifnull(max(id) + 1, 0) FROM trials), (SELECT ifnull(max(seq), 0) FROM tells)"
    trials, tells = db.execute(query).fetchone()
    return trials, tells


def fault(db: sqlite3.Connection, version: int) -> str | None:
    """Return what is wrong with the tables of a file of this version, or None; SQLite's own errors pass through."""
    if version < 1:
        return f"its schema version is {version}"
    said = "; ".join(row[0] for row in db.execute("PRAGMA integrity_check(3)"))
    if said != "ok":
        return said
    # Without gaps: ids count from 0, seqs from 1.
    for query in ("SELECT count(*), max(id) + 1, min(id) FROM trials", "SELECT count(*), max(seq), 0 FROM tells"):
        rows, last, first = db.execute(query).fetchone()
        if rows != (last or 0) or first:
            return f"{query}: {rows} rows, the last is number {last}"
    if db.execute("PRAGMA foreign_key_check").fetchone() is not None:
        return "tells of trials that are not there"
    for table, columns in _SUMMED.items() if version >= 3 else ():
        wrong = db.execute(f"SELECT count(*) FROM {table} WHERE checksum IS NOT checksum_of({columns})").fetchone()[0]
        if wrong:
            return f"{wrong} rows of {table} do not fit their checksums"
    return None
