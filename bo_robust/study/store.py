"""The file of a study: sqlite3, one writer, and an answer you got back is on disk.

Journal in WAL mode with ``synchronous = FULL``: a commit returns after its fsync, so neither SIGKILL nor loss of power
takes back what was acknowledged, as far as the disk tells the truth about its cache. Not for network file systems,
whose locks and shared memory WAL cannot use.

The writer holds ``flock`` on ``PATH.lock``, which the system drops when the process dies, however it dies; readers need
no lock. Its number stands in that file until it closes the study: if it is there when the next one opens, it crashed.
A process forked from the writer closes its copy, so that orphaned workers do not keep it. Names are resolved first, so
that a link is the same study; a commit is refused if the files under their names are no longer those opened.
"""

from __future__ import annotations

import json
import os
import sqlite3
import threading
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from bo_robust.study.handles import Handles, StudyLocked
from bo_robust.study.recovery import LOG_HEADER, read_log, salvage
from bo_robust.study.schema import APPLICATION, SCHEMA, VERSION, add_checksum, fault, migrate

__all__ = ["Store", "StudyDamaged", "StudyLocked"]

_NO_ACCESS = {  # errors of SQLite that say nothing about the file
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


class StudyDamaged(RuntimeError):
    """The file is torn, truncated or no study, or was moved while open; the message says what is readable and how."""


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
        self.path = Path(os.path.realpath(path))
        self.readonly = readonly
        self._mutex = threading.RLock()
        self._handles = Handles()
        weakref.finalize(self, self._handles.close)
        self._still: tuple[int, ...] | None = None
        if create is None and not self.path.is_file() and not _size(f"{self.path}-wal"):
            raise FileNotFoundError(f"there is no study at {self.path}; make one with Study.create.")
        try:
            if not readonly:
                self._handles.lock(self.path, wait)
            self.recovered = self._check_log() and not readonly
            with self._explained():
                if create is not None:
                    self._connect("mode=rwc")
                    self._create(create)
                # Looked at read-only first: a writer's close would put the log into a file that is damaged.
                alone = not _size(f"{self.path}-wal") and not os.access(self.path.parent, os.W_OK)
                if alone and readonly:  # no log can be made here, and none is needed
                    self._still = _state(self.path)
                hot = not readonly and _size(f"{self.path}-journal")  # of an interrupted creation: to be rolled back
                self._connect("mode=ro&immutable=1" if self._still else "mode=rw" if hot else "mode=ro")
                version = self._check()
                if version >= 3 and create is None:  # earlier ones left their number in the lock
                    self.recovered |= self._handles.crashed
                if not readonly:
                    self._connect("mode=rw")
                    self._start(version)
                self.settings = self._known()
            if not readonly:
                self._handles.remember(f"{self.path}", f"{self.path}-wal", f"{self.path}.lock")
        except BaseException:
            self.close()
            raise

    def _connect(self, how: str) -> None:
        if self._handles.db is not None:
            self._handles.db.close()
        uri = f"{self.path.as_uri()}?{how}"
        self._handles.db = sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False, timeout=30.0)
        add_checksum(self._handles.db)

    def _check_log(self) -> bool:
        """Whether there is a log with commits to recover; raises if SQLite would drop acknowledged ones."""
        name = f"{self.path}-wal"
        if _size(name) <= LOG_HEADER:
            return False
        if not _size(str(self.path)):
            raise StudyDamaged(_damage(self.path, f"missing or empty, but not its log {name}; both are as they were"))
        log = read_log(name)
        if not log.sound:
            raise StudyDamaged(_damage(self.path, f"the header of its log {name} is broken; both are as they were"))
        if log.lost > 1:
            said = f"{log.lost} commits at or behind the damaged part of its log {name}; both are as they were"
            raise StudyDamaged(_damage(self.path, said))
        return True

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
            db.execute("INSERT INTO settings VALUES (?1, checksum_of(?1))", (json.dumps(settings, allow_nan=False),))
            db.execute(f"PRAGMA application_id = {APPLICATION}")
            db.execute(f"PRAGMA user_version = {VERSION}")
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")  # from here on the file is a study without its log, too

    def _check(self) -> int:
        """The version of a file that is whole."""
        db = self._connection()
        version, application = (
            db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("user_version", "application_id")
        )
        if application != APPLICATION:
            tables = [row[0] for row in db.execute("SELECT name FROM sqlite_master")]
            if "tells" in tables:
                raise StudyDamaged(_damage(self.path, f"its application_id is {application}"))
            nothing = "holds nothing: its creation was interrupted, create it again (or it was copied without its -wal)"
            raise StudyDamaged(f"{self.path} {'is no study' if tables else nothing}.")
        if version > VERSION:
            raise ValueError(f"{self.path} has schema version {version}, this bo_robust knows {VERSION}; upgrade it.")
        if version < VERSION and self.readonly:
            raise ValueError(
                f"{self.path} has schema version {version}; open it once for writing to bring it to {VERSION}."
            )
        if (said := fault(db, version)) is not None:
            raise StudyDamaged(_damage(self.path, said))
        return int(version)

    def _start(self, version: int) -> None:
        """Bring the file to this version."""
        db = self._connection()
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = FULL")
        while version < VERSION:
            with self.commit():
                migrate(db, version)
            version += 1
        if self.recovered:  # what is behind a tear does not stay in the log
            with suppress(sqlite3.OperationalError):  # a full disk
                db.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def _known(self) -> dict[str, Any]:
        row = self._connection().execute("SELECT json FROM settings").fetchone()
        return self._parsed(None if row is None else row[0])

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
                    self.insert_tell(db, trial, value)
                elif known[1] != value:
                    raise ValueError(
                        f"trial {trial} was told {_word(known[1])} before and now {_word(value)}; the first stands."
                    )

    def insert_trial(self, db: sqlite3.Connection, trial: int, x: Mapping[str, float], asked_after: int | None) -> None:
        """Add a trial within a commit, not leased."""
        query = "INSERT INTO trials (id, x, asked_after, checksum) VALUES (?1, ?2, ?3, checksum_of(?1, ?2, ?3))"
        db.execute(query, (trial, json.dumps(x), asked_after))

    def insert_tell(self, db: sqlite3.Connection, trial: int, value: float | None) -> None:
        """Add a tell within a commit."""
        query = "INSERT INTO tells (trial, value, checksum) VALUES (?1, ?2, checksum_of(?1, ?2))"
        db.execute(query, (trial, value))

    def insert_fits(self, db: sqlite3.Connection, fits: Mapping[str, Any]) -> None:
        """Keep hyperparameters within a commit, by what they were fitted to."""
        rows = [(data, json.dumps(state)) for data, state in fits.items()]
        db.executemany("INSERT OR REPLACE INTO fits VALUES (?1, ?2, checksum_of(?1, ?2))", rows)

    def fits(self) -> dict[str, Any]:
        """Hyperparameters that were kept; damaged ones are left out, for they can be computed again."""
        query = "SELECT data, state FROM fits WHERE checksum IS checksum_of(data, state)"
        return {data: json.loads(state) for data, state in self._read(query)}

    @contextmanager
    def commit(self) -> Iterator[sqlite3.Connection]:
        """A transaction that is on disk when the block is left without an error."""
        if self.readonly:
            raise ValueError(f"{self.path} was opened with readonly=True.")
        with self._mutex, self._explained():
            db = self._connection()
            try:
                if db.in_transaction:  # an interrupt came in between
                    db.execute("ROLLBACK")
                db.execute("BEGIN IMMEDIATE")
                yield db
                if moved := self._handles.moved():
                    raise StudyDamaged(
                        f"{' and '.join(moved)} was moved, deleted or replaced while this study was open: nothing of "
                        "this call is stored. Put the files back together, or open the study where it is now."
                    )
                db.execute("COMMIT")
            except BaseException:
                if db.in_transaction:
                    db.execute("ROLLBACK")
                raise

    def close(self) -> None:
        """Close the file and let the next writer in."""
        with self._mutex:
            self._handles.close()

    def _read(self, query: str, *values: Any) -> list[Any]:
        with self._mutex, self._explained():
            if self._still and (self._still != _state(self.path) or _size(f"{self.path}-wal")):
                raise RuntimeError(f"{self.path} was changed since it was opened for reading; open it again.")
            return self._connection().execute(query, values).fetchall()

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """What SQLite says of a damaged file; no access and no space stay as they are."""
        try:
            yield
        except UnicodeDecodeError as error:
            raise StudyDamaged(_damage(self.path, str(error))) from error
        except sqlite3.DatabaseError as error:
            mistake = isinstance(error, sqlite3.ProgrammingError)  # of the caller
            if mistake or getattr(error, "sqlite_errorcode", 0) & 0xFF in _NO_ACCESS:
                raise
            raise StudyDamaged(_damage(self.path, str(error))) from error

    def _parsed(self, text: Any) -> dict[str, Any]:
        try:
            return dict(json.loads(text))
        except (ValueError, TypeError) as error:
            raise StudyDamaged(_damage(self.path, f"unreadable text: {error}")) from error

    def _connection(self) -> sqlite3.Connection:
        if os.getpid() != self._handles.pid:
            raise RuntimeError(f"{self.path} was opened by process {self._handles.pid}; open it again in this one.")
        if self._handles.db is None:
            raise ValueError(f"the study {self.path} is closed.")
        return self._handles.db


def _damage(path: Path, said: str) -> str:
    kept = len(salvage(path))
    return (
        f"{path} is damaged ({said}). {kept} tells are readable: `python -m bo_robust.study {path} > tells.jsonl` or "
        "bo_robust.study.salvage(path) exports them; give them to a new study with its `add(x, value)`."
    )


def _word(value: float | None) -> str:
    return "FAILED" if value is None else repr(value)


def _size(name: str) -> int:
    """Bytes of a file, 0 if there is none."""
    return os.stat(name).st_size if os.path.isfile(name) else 0


def _state(path: Path) -> tuple[int, ...]:
    found = path.stat()
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns
