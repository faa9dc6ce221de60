"""The tables of a study: they open only if they are whole, and an answer you got back is on disk.

A file is checked read-only before it is written to: its structure (``PRAGMA integrity_check``), its counts, the
checksums of its rows, and whether it holds what its last writer acknowledged. SQLite's own recovery reads the log. It
stops at the first damaged place and silently takes what stands behind it for never written. The record in the lock says
that something is missing, not where.

One loss shows only in ``Status.recovered``: that of commits behind a damaged place of the log, if a loss of power took
the newest record too, or if file and log were copied without the lock.
"""

import json
import os
import sqlite3
import weakref
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, closing, suppress
from pathlib import Path
from typing import Any

from bo_robust.study.connection import Connection, file_size, study_path
from bo_robust.study.lock import LockRecord
from bo_robust.study.recovery import LOG_HEADER, StudyDamaged, damaged
from bo_robust.study.schema import APPLICATION, SCHEMA, VERSION, add_checksum, counts, fault, migrate


class Store:
    """The tables of one study. Errors are those of ``Study.create`` and ``Study.open``.

    Args:
        path: The file. With ``create`` it must not hold a study yet.
        create: Settings (plain JSON) of a new study; None opens an existing one.
        readonly: Open for reading beside a writer; an earlier version of the file is then refused.
        wait: Seconds to wait for another writer to close.

    Attributes:
        settings: Settings of the study.
        recovered: Whether the last writer did not close the study; False for readers.
    """

    def __init__(
        self,
        path: str | Path,
        create: dict[str, Any] | None = None,
        readonly: bool = False,
        wait: float = 0.0,
    ) -> None:
        self.path = study_path(path)
        self.readonly = readonly
        self._file = Connection(self.path, readonly)
        # The connection's method, not this object's, which it would keep alive.
        weakref.finalize(self, self._file.close)
        if create is None and not self.path.is_file() and not file_size(self._file.log):
            raise FileNotFoundError(f"there is no study at {self.path}; make one with Study.create.")
        try:
            # Read before the study is: a writer beside this reader only adds to what it acknowledged.
            record = self._file.lock.read() if readonly else self._file.lock.acquire(wait)
            log = file_size(self._file.log) > LOG_HEADER
            if log and not file_size(self.path):  # SQLite would delete the log
                raise damaged(self.path, f"missing or empty, but not its log {self._file.log}; both are as they were")
            with self._file.explained():
                if create is not None:
                    self._create(create)
                    record = None  # the record is of a study that is no more
                version = self._look(record)
                self.recovered = not readonly and (log or record is not None)
                if not readonly:
                    self._start(version)
                self.settings = self._read_settings()
        except BaseException:
            self.close()
            raise

    def _create(self, settings: dict[str, Any]) -> None:
        self._file.connect("rwc")
        db = self._file.db
        tables = db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        if tables or db.execute("PRAGMA user_version").fetchone()[0]:
            raise FileExistsError(f"{self.path} exists; open it with Study.open, or choose another path.")
        self._file.synchronise()
        with self.commit():
            # Not executescript: it would commit the transaction first.
            for statement in SCHEMA.split(";"):
                db.execute(statement)
            db.execute("INSERT INTO settings VALUES (?1, checksum_of(?1))", (json.dumps(settings, allow_nan=False),))
            db.execute(f"PRAGMA application_id = {APPLICATION}")
            db.execute(f"PRAGMA user_version = {VERSION}")
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")  # from here on the file is a study without its log, too

    def _look(self, record: LockRecord | None) -> int:
        """Return the version of a file after a check that leaves it untouched.

        ``record`` is of a writer that has not closed the study.
        """
        interrupted = not self.readonly and file_size(f"{self.path}-journal")  # a creation, to be rolled back
        # Read-only, because closing a writer would put the log into a damaged file.
        self._file.connect("rw" if interrupted else "ro")
        db = self._file.db
        version, application = (
            db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("user_version", "application_id")
        )
        if application != APPLICATION:
            tables = [row[0] for row in db.execute("SELECT name FROM sqlite_master")]
            if "tells" in tables:
                raise damaged(self.path, f"its application_id is {application}")
            nothing = (
                "holds nothing: create it again if its creation was interrupted, put a copy back if it was emptied or "
                "copied without its -wal"
            )
            raise StudyDamaged(f"{self.path} {'is no study' if tables else nothing}.")
        if version > VERSION:
            raise ValueError(f"{self.path} has schema version {version}, this bo_robust knows {VERSION}; upgrade it.")
        if version < VERSION and self.readonly:
            raise ValueError(
                f"{self.path} has schema version {version}; open it once for writing to bring it to {VERSION}."
            )
        if (said := fault(db, version)) is not None:
            raise damaged(self.path, said)
        trials, tells = counts(db)
        if record is not None and (trials < record.trials or tells < record.tells):
            raise damaged(
                self.path,
                f"its last writer, killed or still there, acknowledged {record.trials} trials and {record.tells} "
                f"tells; {trials} and {tells} are left, because its log {self._file.log} is damaged, torn or gone, or "
                "the file is an older one; all files are as they were",
                f"To go on with what is left, delete {self._file.lock.path} first.",
            )
        return int(version)

    def _start(self, version: int) -> None:
        """Open a whole file for writing and bring it to this version."""
        self._file.connect("rw")
        self._file.synchronise()
        while version < VERSION:
            with self.commit() as db:
                migrate(db, version)
            version += 1
        if self.recovered:  # what is behind a tear does not stay in the log
            with suppress(sqlite3.OperationalError):  # a full disk
                self._file.db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        self._file.opened()

    def _read_settings(self) -> dict[str, Any]:
        row = self._file.db.execute("SELECT json FROM settings").fetchone()
        return self._parsed(None if row is None else row[0])

    def trials(self, after: int) -> list[tuple[int, dict[str, float], int | None]]:
        """(id, x, asked_after) of the trials with an id beyond ``after``."""
        rows = self._file.read("SELECT id, x, asked_after FROM trials WHERE id > ? ORDER BY id", after)
        return [(trial, self._parsed(x), asked_after) for trial, x, asked_after in rows]

    def tells(self, after: int) -> list[tuple[int, int, float | None]]:
        """(seq, trial, value) of the tells beyond ``after``, in the order of the commits."""
        return self._file.read("SELECT seq, trial, value FROM tells WHERE seq > ? ORDER BY seq", after)

    def leases(self) -> dict[int, float]:
        """The end of the lease, in seconds of the epoch, of every trial without a tell, by id."""
        query = "SELECT id, leased_until FROM trials WHERE id NOT IN (SELECT trial FROM tells) ORDER BY id"
        return dict(self._file.read(query))

    def lease(self, ids: Sequence[int], until: float) -> None:
        """Commit new ends of leases."""
        if ids:
            with self.commit() as db:
                self.update_leases(db, ids, until)

    def tell(self, results: Sequence[tuple[int, float | None]]) -> None:
        """Commit results (trial, value or None for a failure), all or none of them.

        Raises ``ValueError`` if a trial was never asked, or was told something else.
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

    def commit(self) -> AbstractContextManager[sqlite3.Connection]:
        """Run a transaction: it is on disk when the block ends without an error."""
        return self._file.commit()

    def insert_trial(self, db: sqlite3.Connection, trial: int, x: Mapping[str, float], asked_after: int | None) -> None:
        """Add a trial within a commit, not leased."""
        query = "INSERT INTO trials (id, x, asked_after, checksum) VALUES (?1, ?2, ?3, checksum_of(?1, ?2, ?3))"
        db.execute(query, (trial, json.dumps(x), asked_after))

    def update_leases(self, db: sqlite3.Connection, ids: Sequence[int], until: float) -> None:
        """Set the ends of leases within a commit."""
        db.executemany("UPDATE trials SET leased_until = ? WHERE id = ?", [(until, i) for i in ids])

    def insert_tell(self, db: sqlite3.Connection, trial: int, value: float | None) -> None:
        """Add a tell within a commit."""
        query = "INSERT INTO tells (trial, value, checksum) VALUES (?1, ?2, checksum_of(?1, ?2))"
        db.execute(query, (trial, value))

    def insert_fits(self, db: sqlite3.Connection, fits: Mapping[str, Any]) -> None:
        """Keep hyperparameters within a commit, by the digest of what they were fitted to."""
        rows = [(data, json.dumps(state)) for data, state in fits.items()]
        db.executemany("INSERT OR REPLACE INTO fits VALUES (?1, ?2, checksum_of(?1, ?2))", rows)

    def fits(self) -> dict[str, Any]:
        """Hyperparameters that were kept, without damaged ones, which can be computed again."""
        query = "SELECT data, state FROM fits WHERE checksum IS checksum_of(data, state)"
        return {data: json.loads(state) for data, state in self._file.read(query)}

    def backup(self, path: str | Path) -> None:
        """See :meth:`bo_robust.study.Study.backup`."""
        target = Path(path)
        # O_EXCL claims the name, so that nothing that exists is overwritten.
        os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644))
        try:
            with closing(sqlite3.connect(target, isolation_level=None)) as copy:
                add_checksum(copy)
                self._file.copy(copy)
                said = fault(copy, VERSION)
            if said is not None:
                raise damaged(self.path, said)
        except BaseException:
            target.unlink()
            raise

    def close(self) -> None:
        """Close the file and let the next writer in."""
        self._file.close()

    def _parsed(self, text: Any) -> dict[str, Any]:
        try:
            return dict(json.loads(text))
        except (ValueError, TypeError) as error:
            raise damaged(self.path, f"unreadable text: {error}") from error


def _word(value: float | None) -> str:
    return "FAILED" if value is None else repr(value)
