"""The file of a study: sqlite3, one writer, and an answer you got back is on disk.

Two tables that only grow: ``trials`` (what was asked; only a lease ever changes) and ``tells`` (what came back, in the
order of the commits; a value of NULL is a failure). Journal in WAL mode with ``synchronous = FULL``: a commit returns
after its fsync, so neither SIGKILL nor loss of power takes back what was acknowledged, as far as the disk tells the
truth about its cache. Not for network file systems, whose locks and shared memory WAL cannot use.

The writer holds ``flock`` on ``PATH.lock``, which the system drops when the process dies, however it dies; readers need
no lock. A process forked from the writer closes its copy, so that orphaned workers do not keep it.
"""

from __future__ import annotations

import fcntl
import json
import os
import sqlite3
import threading
import time
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bo_robust.study.recovery import salvage

__all__ = ["VERSION", "Store", "StudyDamaged", "StudyLocked"]

VERSION = 2
APPLICATION = 0x626F7362  # "bosb", in the header of the file
SCHEMA = """
CREATE TABLE settings (json TEXT NOT NULL);
CREATE TABLE trials (
    id INTEGER PRIMARY KEY,
    x TEXT NOT NULL,
    asked_after INTEGER,  -- seq of the last tell it knew, NULL if added by hand
    leased_until REAL NOT NULL DEFAULT 0
);
CREATE TABLE tells (seq INTEGER PRIMARY KEY, trial INTEGER NOT NULL UNIQUE REFERENCES trials (id), value REAL);
"""
# From version k to k + 1. Version 1 had no leases: what was open then is handed out again.
MIGRATIONS = {1: "ALTER TABLE trials ADD COLUMN leased_until REAL NOT NULL DEFAULT 0"}
_OPEN: weakref.WeakSet[Store] = weakref.WeakSet()


class StudyLocked(RuntimeError):
    """Another writer has the study."""


class StudyDamaged(RuntimeError):
    """The file is torn, truncated or no study; the message says what is readable and how to get it out."""


class Store:
    """The tables of one study.

    Args:
        path: The file. With ``create`` it must not hold a study yet.
        create: Settings (plain JSON) of a new study; None opens one.
        readonly: Open for reading beside a writer.
        wait: Seconds to wait for another writer to close.

    Raises:
        FileExistsError: if there is a study already.
        FileNotFoundError: if there is no file to open.
        StudyLocked: if another writer has it.
        StudyDamaged: if the file is no whole study.
        ValueError: if it was written by a later version, or by an earlier one and ``readonly``.
    """

    def __init__(
        self,
        path: str | Path,
        create: dict[str, Any] | None = None,
        readonly: bool = False,
        wait: float = 0.0,
    ) -> None:
        self.path = Path(path)
        self.readonly = readonly
        self._mutex = threading.RLock()
        self._pid = os.getpid()
        self._lock_file: int | None = None
        self._db: sqlite3.Connection | None = None
        if create is None and not self.path.is_file():
            raise FileNotFoundError(f"there is no study at {self.path}; make one with Study.create.")
        if not readonly:
            self._lock(wait)
        try:
            left = Path(f"{self.path}-wal")
            self.recovered = left.is_file() and left.stat().st_size > 0 and not readonly
            mode = "ro" if readonly else "rw" if create is None else "rwc"
            uri = f"{self.path.absolute().as_uri()}?mode={mode}"
            self._db = sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False, timeout=30.0)
            try:
                if create is not None:
                    self._create(create)
                self.settings = self._start()
            except sqlite3.DatabaseError as error:
                if isinstance(error, sqlite3.OperationalError):  # no access, no space: not a damaged file
                    raise
                raise StudyDamaged(_damage(self.path, str(error))) from error
        except BaseException:
            self.close()
            raise
        _OPEN.add(self)

    def _create(self, settings: dict[str, Any]) -> None:
        db = self._connection()
        tables = db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        if tables or db.execute("PRAGMA user_version").fetchone()[0]:
            raise FileExistsError(f"{self.path} exists; open it with Study.open, or choose another path.")
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = FULL")
        with self.commit():
            for statement in SCHEMA.split(";"):
                db.execute(statement)
            db.execute("INSERT INTO settings VALUES (?)", (json.dumps(settings, allow_nan=False),))
            db.execute(f"PRAGMA application_id = {APPLICATION}")
            db.execute(f"PRAGMA user_version = {VERSION}")

    def _start(self) -> dict[str, Any]:
        """Check the file, bring it to this version, read the settings."""
        db = self._connection()
        version, application = (
            db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("user_version", "application_id")
        )
        if application != APPLICATION:
            empty = db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0
            what = "holds nothing (its creation was interrupted): create it again" if empty else "is no study"
            raise StudyDamaged(f"{self.path} {what}.")
        said = "; ".join(row[0] for row in db.execute("PRAGMA quick_check(3)"))
        if said != "ok":
            raise StudyDamaged(_damage(self.path, said))
        if version > VERSION:
            raise ValueError(f"{self.path} has schema version {version}, this bo_robust knows {VERSION}; upgrade it.")
        if version < VERSION and self.readonly:
            raise ValueError(
                f"{self.path} has schema version {version}; open it once for writing to bring it to {VERSION}."
            )
        if not self.readonly:
            db.execute("PRAGMA journal_mode = WAL")
            db.execute("PRAGMA synchronous = FULL")
        while version < VERSION:
            with self.commit():
                db.execute(MIGRATIONS[version])
                version += 1
                db.execute(f"PRAGMA user_version = {version}")
        return self._parsed(db.execute("SELECT json FROM settings").fetchone()[0])

    def trials(self, after: int) -> list[tuple[int, dict[str, float], int | None]]:
        """(id, x, asked_after) of trials with a later id."""
        rows = self._read("SELECT id, x, asked_after FROM trials WHERE id > ? ORDER BY id", after)
        return [(trial, self._parsed(x), asked_after) for trial, x, asked_after in rows]

    def tells(self, after: int) -> list[tuple[int, int, float | None]]:
        """(seq, trial, value) of later tells, in the order of the commits."""
        return self._read("SELECT seq, trial, value FROM tells WHERE seq > ? ORDER BY seq", after)

    def leases(self) -> dict[int, float]:
        """Until when (seconds of the epoch) every trial without a tell is leased, by id."""
        query = "SELECT id, leased_until FROM trials WHERE id NOT IN (SELECT trial FROM tells) ORDER BY id"
        return dict(self._read(query))

    def add_trials(self, rows: Sequence[tuple[int, str, int | None, float]]) -> None:
        """Commit trials (id, x, asked_after, leased_until)."""
        with self.commit() as db:
            db.executemany("INSERT INTO trials (id, x, asked_after, leased_until) VALUES (?, ?, ?, ?)", rows)

    def lease(self, ids: Sequence[int], until: float) -> None:
        """Commit new ends of leases."""
        if ids:
            with self.commit() as db:
                db.executemany("UPDATE trials SET leased_until = ? WHERE id = ?", [(until, i) for i in ids])

    def tell(self, results: Sequence[tuple[int, float | None]]) -> None:
        """Commit results (trial, value or None for a failure), all or none of them.

        Raises:
            ValueError: if a trial was never asked, or was told something else.
        """
        query = "SELECT tells.seq, tells.value FROM trials LEFT JOIN tells ON trial = id WHERE id = ?"
        with self.commit() as db:
            for trial, value in results:
                known = db.execute(query, (trial,)).fetchone()
                if known is None:
                    raise ValueError(f"trial {trial} was never asked.")
                if known[0] is None:
                    db.execute("INSERT INTO tells (trial, value) VALUES (?, ?)", (trial, value))
                elif known[1] != value:
                    raise ValueError(
                        f"trial {trial} was told {_word(known[1])} before and now {_word(value)}; the first stands."
                    )

    @contextmanager
    def commit(self) -> Iterator[sqlite3.Connection]:
        """A transaction that is on disk when the block is left without an error."""
        if self.readonly:
            raise ValueError(f"{self.path} was opened with readonly=True.")
        with self._mutex:
            db = self._connection()
            db.execute("BEGIN IMMEDIATE")
            try:
                yield db
                db.execute("COMMIT")
            except BaseException:
                if db.in_transaction:
                    db.execute("ROLLBACK")
                raise

    def close(self) -> None:
        """Close the file and let the next writer in."""
        with self._mutex:
            if os.getpid() == self._pid and self._db is not None:
                self._db.close()
            self._db = None
            if self._lock_file is not None:
                fcntl.flock(self._lock_file, fcntl.LOCK_UN)  # a fork may not have closed its copy yet
                os.close(self._lock_file)
                self._lock_file = None

    def _read(self, query: str, *values: Any) -> list[Any]:
        with self._mutex:
            return self._connection().execute(query, values).fetchall()

    def _parsed(self, text: str) -> dict[str, Any]:
        try:
            return dict(json.loads(text))
        except (ValueError, TypeError) as error:
            raise StudyDamaged(_damage(self.path, f"unreadable text: {error}")) from error

    def _connection(self) -> sqlite3.Connection:
        if os.getpid() != self._pid:
            raise RuntimeError(f"{self.path} was opened by process {self._pid}; open it again in this one.")
        if self._db is None:
            raise ValueError(f"the study {self.path} is closed.")
        return self._db

    def _lock(self, wait: float) -> None:
        name = f"{self.path}.lock"
        self._lock_file = os.open(name, os.O_RDWR | os.O_CREAT, 0o644)
        deadline = time.monotonic() + wait
        while True:
            try:
                fcntl.flock(self._lock_file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError:
                if time.monotonic() < deadline:
                    time.sleep(0.02)
                    continue
                owner = os.pread(self._lock_file, 32, 0).decode(errors="replace").strip() or "unknown"
                os.close(self._lock_file)
                self._lock_file = None
                raise StudyLocked(
                    f"{self.path} is being written by process {owner}; a study has one writer. Close that one, pass "
                    "wait=SECONDS, or open it with readonly=True."
                ) from None
        os.ftruncate(self._lock_file, 0)
        os.pwrite(self._lock_file, str(os.getpid()).encode(), 0)


def _damage(path: Path, said: str) -> str:
    kept = len(salvage(path))
    return (
        f"{path} is damaged ({said}). {kept} tells are readable: `python -m bo_robust.study {path} > tells.jsonl` or "
        "bo_robust.study.salvage(path) exports them; give them to a new study with its `add(x, value)`."
    )


def _word(value: float | None) -> str:
    return "FAILED" if value is None else repr(value)


def _leave_lock_to_parent() -> None:
    for store in list(_OPEN):
        if store._lock_file is not None:
            os.close(store._lock_file)
            store._lock_file = None


os.register_at_fork(after_in_child=_leave_lock_to_parent)
