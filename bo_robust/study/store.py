"""The file of a study: one SQLite database, in which every answer is one transaction.

SQLite keeps a rollback journal, with ``synchronous = EXTRA``: a commit returns when it is on disk. So neither SIGKILL
nor a loss of power undoes what was acknowledged, if the disk tells the truth about its cache. Any number of processes
may read and write the file, on a file system whose locks work. ``BEGIN IMMEDIATE`` puts their transactions in order.
``PATH-journal`` lies beside the file during a commit. A crash leaves it there; it then belongs to the file, and the
next connection rolls back with it what was not committed.

Two tables only grow. ``trials`` holds what was asked; only its leases ever change. ``tells`` holds what came back, in
the order of the commits; a value of NULL is a failure, a condition of ``null`` is the one asked. ``settings`` has
one row. Each row carries a CRC-32 of its content, because SQLite does not see a flipped bit within a value.

A file is opened only if it is a whole study: its structure (``PRAGMA integrity_check``), its numbering and the
checksums of its rows. An older copy of the file, or one whose journal was deleted after a crash, may pass as whole.
"""

import json
import os
import sqlite3
import threading
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from bo_robust.validation import quoted

VERSION = 6
APPLICATION = 0x626F7362  # "bosb", in the header of the file
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
    seq INTEGER PRIMARY KEY,
    trial INTEGER NOT NULL UNIQUE REFERENCES trials (id),
    value REAL,
    condition TEXT NOT NULL,
    checksum INTEGER
)
"""
INSERT_TRIAL = "INSERT INTO trials (id, x, asked_after, checksum) VALUES (?1, ?2, ?3, checksum_of(?1, ?2, ?3))"
INSERT_TELL = "INSERT INTO tells (trial, value, condition, checksum) VALUES (?1, ?2, ?3, checksum_of(?1, ?2, ?3))"
FAULTS = (  # each gives a row for everything that is wrong
    "SELECT integrity_check FROM pragma_integrity_check(3) WHERE integrity_check != 'ok'",
    "SELECT 'the settings are missing' WHERE (SELECT count(*) FROM settings) != 1",
    "SELECT 'trials are missing' WHERE (SELECT count(*) != max(id) + 1 FROM trials)",
    "SELECT 'tells are missing' WHERE (SELECT count(*) != max(seq) FROM tells)",
    "SELECT 'there is no trial ' || trial FROM tells WHERE trial NOT IN (SELECT id FROM trials)",
    "SELECT 'checksum of the settings' FROM settings WHERE checksum IS NOT checksum_of(json)",
    "SELECT 'checksum of trial ' || id FROM trials WHERE checksum IS NOT checksum_of(id, x, asked_after)",
    "SELECT 'checksum of tell ' || seq FROM tells WHERE checksum IS NOT checksum_of(trial, value, condition)",
)
NO_ACCESS = {  # errors of SQLite that say nothing about the content of the file
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_NOMEM,
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_INTERRUPT,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_CANTOPEN,
}
PATIENCE = 30.0  # seconds to wait for the transaction of another process


class StudyDamaged(RuntimeError):
    """The file is no whole study of this version of the package."""


class Store:
    """The tables of one study. Errors are those of ``Study.create`` and ``Study.open``.

    Args:
        path: The file. With ``create`` it must not hold anything yet.
        create: Settings (plain JSON) of a new study; None opens an existing one.
        readonly: Whether nothing may be written.

    Attributes:
        settings: Settings of the study.
    """

    def __init__(self, path: str | Path, create: dict[str, Any] | None = None, readonly: bool = False) -> None:
        if not isinstance(path, str | os.PathLike):
            raise TypeError(f"a study's path must be a text or a Path, got {quoted(path)}.")
        self.path = Path(os.path.realpath(path))  # a symbolic link is the same study
        self._readonly = readonly
        self._process, self._mutex = os.getpid(), threading.RLock()
        self._db: sqlite3.Connection | None = None
        _check_file(self.path, exists=create is None)
        try:
            with self._explained():
                self._db = self._connect("rwc" if create is not None else "ro" if readonly else "rw")
                if create is not None:
                    self._create(create)
                self._check(self.db)
                self.settings: dict[str, Any] = json.loads(self._read("SELECT json FROM settings")[0][0])
        except BaseException:
            self.close()
            raise

    @property
    def db(self) -> sqlite3.Connection:
        """SQLite's connection; raises where this process has none."""
        if os.getpid() != self._process:
            raise RuntimeError(f"{self.path} was opened by process {self._process}; open it again in this one.")
        if self._db is None:
            raise ValueError(f"the study {self.path} is closed.")
        return self._db

    def trials(self, after: int) -> list[tuple[int, dict[str, Any], int | None]]:
        """(id, x, asked_after) of the trials with an id beyond ``after``."""
        rows = self._read("SELECT id, x, asked_after FROM trials WHERE id > ? ORDER BY id", after)
        return [(trial, json.loads(x), asked_after) for trial, x, asked_after in rows]

    def tells(self, after: int) -> list[tuple[int, int, float | None, dict[str, Any] | None]]:
        """(seq, trial, value, condition) of the tells beyond ``after``, in the order of the commits.

        The condition is None where it is the one asked.
        """
        rows = self._read("SELECT seq, trial, value, condition FROM tells WHERE seq > ? ORDER BY seq", after)
        return [(seq, trial, value, json.loads(condition)) for seq, trial, value, condition in rows]

    def leases(self) -> dict[int, float]:
        """The end of the lease, in seconds of the epoch, of every trial without a tell, by id."""
        query = "SELECT id, leased_until FROM trials WHERE id NOT IN (SELECT trial FROM tells) ORDER BY id"
        return dict(self._read(query))

    def lease(self, ids: Sequence[int], until: float) -> None:
        """Commit new ends of leases."""
        if ids:
            with self._commit() as db:
                _set_leases(db, ids, until)

    def ask(
        self, known: int, xs: Sequence[Mapping[str, Any]], seq: int, again: Mapping[int, float], until: float
    ) -> bool:
        """Commit new trials, and leases until then for them and for the trials handed out ``again``.

        Nothing is committed, and False returned, if another process asked meanwhile: if there are not ``known`` trials,
        or the leases of ``again``, by id, do not end as they did.
        """
        with self._commit() as db:
            leases = self.leases()
            if self._count(db) != known or any(leases.get(trial) != end for trial, end in again.items()):
                return False
            new = range(known, known + len(xs))
            db.executemany(INSERT_TRIAL, [(trial, json.dumps(x), seq) for trial, x in zip(new, xs, strict=True)])
            _set_leases(db, [*again, *new], until)
            return True

    def add(self, x: Mapping[str, Any], value: float | None) -> int:
        """Commit a trial that nobody asked for together with its value, and return its id."""
        with self._commit() as db:
            trial = self._count(db)
            db.execute(INSERT_TRIAL, (trial, json.dumps(x), None))
            db.execute(INSERT_TELL, (trial, value, json.dumps(None)))
        return trial

    def tell(self, results: Sequence[tuple[int, float | None, Mapping[str, Any] | None]]) -> None:
        """Commit results (trial, value or None for a failure, condition or None for the one asked), all or none.

        Raises ``ValueError`` if a trial was never asked, or was told something else.
        """
        query = "SELECT seq, value, condition FROM trials LEFT JOIN tells ON trial = id WHERE id = ?"
        with self._commit() as db:
            for trial, value, condition in results:
                known = db.execute(query, (trial,)).fetchone()
                if known is None:
                    raise ValueError(f"trial {trial} was never asked.")
                seq, told, at = known
                if seq is None:
                    db.execute(INSERT_TELL, (trial, value, json.dumps(condition)))
                elif (told, json.loads(at)) != (value, condition):
                    before, now = _words(told, json.loads(at)), _words(value, condition)
                    raise ValueError(f"trial {trial} was told {before} before and now {now}; the first stands.")

    def backup(self, path: str | Path) -> None:
        """See :meth:`bo_robust.study.Study.backup`."""
        target = Path(path)
        target.touch(exist_ok=False)  # nothing that exists is overwritten
        try:
            with self._mutex, self._explained(), closing(sqlite3.connect(target, isolation_level=None)) as copy:
                self.db.backup(copy)
                _know_checksum(copy)
                self._check(copy)
        except BaseException:
            target.unlink()
            raise

    def close(self) -> None:
        """Close the file; a fork leaves that to its parent."""
        with self._mutex:
            db, self._db = self._db, None
            if db is not None and os.getpid() == self._process:
                db.close()

    def _connect(self, mode: str) -> sqlite3.Connection:
        uri = f"{self.path.as_uri()}?mode={mode}"
        # Threads share the connection, and the mutex orders them. Transactions begin and end in `_commit` only.
        db = sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False, timeout=PATIENCE)
        db.execute("PRAGMA synchronous = EXTRA")
        _know_checksum(db)
        return db

    def _create(self, settings: dict[str, Any]) -> None:
        with self._commit() as db:
            if db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
                raise FileExistsError(f"{self.path} exists; open it with Study.open, or choose another path.")
            for statement in SCHEMA.split(";"):  # not executescript: it would commit the transaction first
                db.execute(statement)
            db.execute("INSERT INTO settings VALUES (?1, checksum_of(?1))", (json.dumps(settings, allow_nan=False),))
            db.execute(f"PRAGMA application_id = {APPLICATION}")
            db.execute(f"PRAGMA user_version = {VERSION}")

    def _check(self, db: sqlite3.Connection) -> None:
        """Raise :class:`StudyDamaged` unless a database is a whole study of this version."""
        version, application = (
            db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("user_version", "application_id")
        )
        if application != APPLICATION:
            raise self._damaged("it is no study, or its creation was interrupted: then create it again")
        if version != VERSION:
            raise StudyDamaged(
                f"{self.path} is of another bo_robust: its schema version is {version}, and this one reads {VERSION}. "
                "Open it with that one, or `add(x, value)` its `results()` to a new study."
            )
        for query in FAULTS:
            if (fault := db.execute(query).fetchone()) is not None:
                raise self._damaged(fault[0])

    def _read(self, query: str, *values: Any) -> list[Any]:
        with self._mutex, self._explained():
            return self.db.execute(query, values).fetchall()

    @contextmanager
    def _commit(self) -> Iterator[sqlite3.Connection]:
        """Run a transaction: it is on disk when the block ends without an error."""
        with self._mutex, self._explained(), self.db as db:  # which commits or rolls back
            db.execute("BEGIN IMMEDIATE")
            yield db

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Make SQLite's errors within the block name the file."""
        try:
            yield
        except sqlite3.ProgrammingError:  # a mistake of the caller
            raise
        except sqlite3.DatabaseError as error:
            # The low byte of an extended error code is its primary code.
            if getattr(error, "sqlite_errorcode", 0) & 0xFF in NO_ACCESS:
                hint = "; it was opened with readonly=True" if self._readonly else ""
                raise OSError(f"{self.path} cannot be read or written: {error}{hint}.") from error
            raise self._damaged(str(error)) from error

    def _damaged(self, fault: str) -> StudyDamaged:
        return StudyDamaged(
            f"{self.path} cannot be opened as a study ({fault}). Copy back a backup, or see what SQLite's own "
            "`.recover` finds in it, and `add(x, value)` that to a new study."
        )

    def _count(self, db: sqlite3.Connection) -> int:
        return int(db.execute("SELECT count(*) FROM trials").fetchone()[0])


def checksum(*row: Any) -> int:
    """CRC-32 of a row's columns, as SQLite gives them to Python."""
    return zlib.crc32(repr(row).encode())


def _know_checksum(db: sqlite3.Connection) -> None:
    db.create_function("checksum_of", -1, checksum, deterministic=True)


def _words(value: float | None, condition: Mapping[str, Any] | None) -> str:
    return ("FAILED" if value is None else repr(value)) + ("" if condition is None else f" under {condition}")


def _set_leases(db: sqlite3.Connection, ids: Sequence[int], until: float) -> None:
    db.executemany("UPDATE trials SET leased_until = ? WHERE id = ?", [(until, trial) for trial in ids])


def _check_file(path: Path, exists: bool) -> None:
    """Raise ``OSError`` or ``ValueError`` where a study cannot be, or is not although it should be."""
    if not path.exists() and exists:
        raise FileNotFoundError(f"there is no study at {path}; make one with Study.create.")
    if path.exists() and not path.is_file():
        raise OSError(f"{path} is no file; choose another path.")
    if path.exists() and path.stat().st_nlink > 1:  # each name would have a journal of its own
        raise ValueError(f"{path} has several names (hard links); copy it to a file of its own, or delete the others.")
