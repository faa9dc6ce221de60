"""The connection to an open study file: opening, committing, closing.

SQLite runs in WAL mode with ``synchronous = FULL``: a commit returns after its fsync. So neither SIGKILL nor a loss of
power undoes what was acknowledged, if the disk tells the truth about its cache. Network file systems do not work: they
lack the locks and the shared memory that WAL needs.

A commit is refused if the files were moved, deleted or replaced since they were opened. A process forked from the
writer cannot use the connection. It closes its copy of the lock, so that orphaned workers do not keep the study locked.
"""

import os
import sqlite3
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from bo_robust.study.lock import LockRecord, WriterLock
from bo_robust.study.recovery import StudyDamaged, damaged
from bo_robust.study.schema import add_checksum, counts

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


class StudyUnreachable(sqlite3.OperationalError):
    """The file cannot be read or written, whatever it contains."""


class Connection:
    """The connection and the lock of one study, which are closed together.

    ``log`` is the path of SQLite's write-ahead log; ``lock`` is the writer's, which a reader does not hold.
    """

    def __init__(self, path: Path, readonly: bool) -> None:
        self.path, self.readonly = path, readonly
        self.log = f"{path}-wal"
        self.lock = WriterLock(path)
        self._db: sqlite3.Connection | None = None
        self._process = os.getpid()
        self._mutex = threading.RLock()
        self._written: dict[str, tuple[int, int] | None] = {}  # device and inode by file name, set when writing begins
        self._unchanging: tuple[int, ...] | None = None  # state of a file that is read without its log

    @property
    def db(self) -> sqlite3.Connection:
        """SQLite's connection; raises where this process has none."""
        if os.getpid() != self._process:
            raise RuntimeError(f"{self.path} was opened by process {self._process}; open it again in this one.")
        if self._db is None:
            raise ValueError(f"the study {self.path} is closed.")
        return self._db

    def connect(self, mode: str) -> None:
        """Open a new connection in the mode "ro", "rw" or "rwc" of SQLite's URIs."""
        if self._db is not None:
            self._db.close()
        if mode == "ro" and not file_size(self.log) and not os.access(self.path.parent, os.W_OK) and self.readonly:
            mode, self._unchanging = "ro&immutable=1", _state(self.path)  # no log can be made here, and none is needed
        uri = f"{self.path.as_uri()}?mode={mode}"
        # Threads share the connection, and the mutex orders them. Transactions begin and end in `commit` only.
        self._db = sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False, timeout=30.0)
        add_checksum(self._db)

    def synchronise(self) -> None:
        """Make every later commit return only when it is on disk."""
        self.db.execute("PRAGMA journal_mode = WAL")
        self.db.execute("PRAGMA synchronous = FULL")

    def opened(self) -> None:
        """Note that the study is whole and open for writing, so that a crash shows and moved files are noticed."""
        self._written = {name: _identity(name) for name in (f"{self.path}", self.log, f"{self.lock.path}")}
        self.lock.write(LockRecord(self._process, *counts(self.db)))

    def read(self, query: str, *values: Any) -> list[Any]:
        """Return all rows of a query."""
        with self._mutex, self.explained():
            if self._unchanging and (self._unchanging != _state(self.path) or file_size(self.log)):
                raise RuntimeError(f"{self.path} was changed since it was opened for reading; open it again.")
            return self.db.execute(query, values).fetchall()

    @contextmanager
    def commit(self) -> Iterator[sqlite3.Connection]:
        """Run a transaction: when the block ends without an error, it is on disk and acknowledged in the lock."""
        if self.readonly:
            raise ValueError(f"{self.path} was opened with readonly=True.")
        with self._mutex, self.explained():
            db = self.db
            try:
                if db.in_transaction:  # an interrupt came in between
                    db.execute("ROLLBACK")
                db.execute("BEGIN IMMEDIATE")
                yield db
                if moved := self._moved():
                    raise StudyDamaged(
                        f"{' and '.join(moved)} was moved, deleted or replaced while this study was open: nothing of "
                        "this call is stored. Put the files back together, or open the study where it is now."
                    )
                acknowledged = LockRecord(self._process, *counts(db))
                db.execute("COMMIT")
            except BaseException:
                if db.in_transaction:
                    db.execute("ROLLBACK")
                raise
            self.lock.write(acknowledged)  # after the commit: the record never says more than the file

    @contextmanager
    def explained(self) -> Iterator[None]:
        """Make SQLite's errors within the block name the file; damage becomes :class:`StudyDamaged`."""
        try:
            yield
        except UnicodeDecodeError as error:
            raise damaged(self.path, str(error)) from error
        except sqlite3.DatabaseError as error:
            if isinstance(
                error, StudyUnreachable | sqlite3.ProgrammingError
            ):  # said already, or a mistake of the caller
                raise
            # The low byte of an extended error code is its primary code.
            if getattr(error, "sqlite_errorcode", 0) & 0xFF in NO_ACCESS:
                raise StudyUnreachable(f"{self.path} cannot be read or written: {error}.") from error
            raise damaged(self.path, str(error)) from error

    def copy(self, target: sqlite3.Connection) -> None:
        """Copy the committed content into another database."""
        with self._mutex:
            try:
                self.db.backup(target)
            except sqlite3.Error as error:
                raise StudyUnreachable(f"{self.path} cannot be copied: {error}.") from error

    def close(self) -> None:
        """Write the log into the file, mark the lock as closed and let the next writer in."""
        if os.getpid() != self._process:  # a fork: the log and the lock are its parent's
            self._db = None
            self.lock.release()
            return
        with self._mutex:
            db, self._db = self._db, None
            whole = bool(self._written) and not self._moved()
            self._written = {}
            try:
                if db is not None:
                    if whole:
                        with suppress(sqlite3.Error):  # the log stays: it is part of the study
                            # A slow reader must not hold up closing for the 30 seconds of `connect`.
                            db.execute("PRAGMA busy_timeout = 1000")
                            db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()  # beside readers too
                    db.close()
                if whole:
                    self.lock.write(None)
            finally:
                self.lock.release()

    def _moved(self) -> list[str]:
        """Names of the files that are no longer those opened."""
        return [name for name, known in self._written.items() if _identity(name) != known]


def study_path(path: str | Path) -> Path:
    """Return a study's path without symbolic links, so that a link is the same study.

    Raises ``OSError`` if it is something other than a file, and ``ValueError`` if the file has several names, because
    each would have its own lock and log.
    """
    name = Path(os.path.realpath(path))
    try:
        found = os.lstat(name)
    except (FileNotFoundError, NotADirectoryError):
        return name
    except OSError as error:
        raise type(error)(f"{name} cannot be a study ({error.strerror}); choose another path.") from None
    if not stat.S_ISREG(found.st_mode):
        raise OSError(
            f"{name} is no file, but a folder, a device or a symbolic link that leads to itself; choose another path."
        )
    if found.st_nlink > 1:
        raise ValueError(
            f"{name} has {found.st_nlink} names (hard links), and each would let in a writer of its own; copy it to "
            "a file of its own, or delete the other names."
        )
    return name


def file_size(name: str | Path) -> int:
    """Size of a file in bytes, 0 if there is none."""
    return os.stat(name).st_size if os.path.isfile(name) else 0


def _identity(name: str) -> tuple[int, int] | None:
    try:
        found = os.stat(name)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _state(path: Path) -> tuple[int, ...]:
    found = path.stat()
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns
