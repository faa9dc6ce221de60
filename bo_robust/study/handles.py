"""What an open study holds of the system: a connection and the writer's lock."""

from __future__ import annotations

import fcntl
import os
import sqlite3
import time
import weakref
from contextlib import suppress
from pathlib import Path

__all__ = ["Handles", "StudyLocked"]


class StudyLocked(RuntimeError):
    """Another writer has the study."""


class Handles:
    """Connection and lock; closed with the store, at the latest when it is collected.

    Attributes:
        pid: The process that opened them.
        db: The connection.
        crashed: Whether the last writer did not close the study, known once the lock is held.
        files: Device and inode of the files of a study that was opened whole for writing, by name.
    """

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.db: sqlite3.Connection | None = None
        self.crashed = False
        self.files: dict[str, tuple[int, int] | None] = {}
        self._lock: int | None = None
        self._held = False
        _OPEN.add(self)

    def lock(self, path: Path, wait: float) -> None:
        """Become the writer, and put this process's number into the file of the lock; raises :class:`StudyLocked`."""
        lock = self._lock = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT, 0o644)
        deadline = time.monotonic() + wait
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError:
                if time.monotonic() < deadline:
                    time.sleep(0.02)
                    continue
                owner = os.pread(lock, 32, 0).decode(errors="replace").strip() or "unknown"
                raise StudyLocked(
                    f"{path} is being written by process {owner}; a study has one writer. Close that one, pass "
                    "wait=SECONDS, or open it with readonly=True."
                ) from None
        self.crashed, self._held = os.fstat(lock).st_size > 0, True
        os.ftruncate(lock, 0)
        os.pwrite(lock, str(os.getpid()).encode(), 0)

    def remember(self, *names: str) -> None:
        """The study is open for writing, in these files."""
        self.files = {name: _identity(name) for name in names}

    def moved(self) -> list[str]:
        """Files that are no longer those opened."""
        return [name for name, known in self.files.items() if _identity(name) != known]

    def close(self) -> None:
        """Put the log into the file, leave a lock that says so, and let the next writer in."""
        mine = os.getpid() == self.pid
        opened, as_they_were = self._held and bool(self.files), not self.moved()
        if mine and self.db is not None:
            if opened and as_they_were:
                with suppress(sqlite3.Error):
                    self.db.execute("PRAGMA busy_timeout = 1000")
                    self.db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()  # beside readers too
            self.db.close()
        self.db = None
        lock, self._lock = self._lock, None
        if lock is not None:
            try:
                if mine and self._held and as_they_were and (opened or not self.crashed):
                    os.ftruncate(lock, 0)
            finally:
                if mine and self._held:
                    fcntl.flock(lock, fcntl.LOCK_UN)  # a fork may not have closed its copy yet
                os.close(lock)

    def leave_lock(self) -> None:
        """In a fork: the lock stays the parent's."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def _identity(name: str) -> tuple[int, int] | None:
    try:
        found = os.stat(name)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _leave_locks() -> None:
    for handles in list(_OPEN):
        handles.leave_lock()


_OPEN: weakref.WeakSet[Handles] = weakref.WeakSet()
os.register_at_fork(after_in_child=_leave_locks)
