"""The lock of a study's one writer, and the record of what that writer acknowledged.

The writer holds ``flock`` on the file ``.NAME.study-lock`` beside the study. The system drops that lock when the
process dies, however it dies. The file holds one line. It says which process writes and how many trials and tells it
has acknowledged, or that the study was closed. If the next writer finds a process there, that process crashed, and the
study must hold at least what it acknowledged. SQLite does not check this: it silently drops everything behind a damaged
place of its log.

The line is written after every commit and is not flushed. It outlives the process. After a loss of power it may be
older than the study, but never newer.
"""

import errno
import fcntl
import os
import re
import stat
import time
import weakref
from dataclasses import dataclass
from pathlib import Path

LENGTH = 128  # bytes of the line, always the same: a new line replaces the old one without truncation
LINE = re.compile(rb"bo_robust study: (?:closed|process (\d+), (\d+) trials, (\d+) tells) *\n")


class StudyLocked(RuntimeError):
    """Another writer has the study."""


@dataclass(frozen=True)
class LockRecord:
    """What a writer that did not close the study left in the lock: its process id and what it acknowledged."""

    process: int
    trials: int
    tells: int


class WriterLock:
    """The lock of the study in the file ``study``; ``path`` is the file of the lock."""

    def __init__(self, study: Path) -> None:
        self.study = study
        self.path = study.with_name(f".{study.name}.study-lock")
        self._file: int | None = None
        self._held, self._process = False, os.getpid()
        _LOCKS.add(self)

    def acquire(self, wait: float) -> LockRecord | None:
        """Become the writer, and return the last one's record; None if it closed the study, or there was none.

        Raises:
            StudyLocked: if another process still writes after ``wait`` seconds.
            FileExistsError: if another file has the name of the lock.
            OSError: if the lock cannot be opened.
        """
        file = self._file = self._open(os.O_RDWR | os.O_CREAT)
        deadline = time.monotonic() + wait
        while True:
            # Read before the lock is held, to name its holder in the error; read again under the lock.
            record = self._parsed(file)
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                self._held = True
                return self._parsed(file)
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    writer = f"process {record.process}" if record else "another process"
                    raise StudyLocked(
                        f"{self.study} is being written by {writer}; a study has one writer. Close that one, pass "
                        "wait=SECONDS, or open it with readonly=True."
                    ) from None
                time.sleep(0.02)

    def read(self) -> LockRecord | None:
        """Return the record of a writer that has not closed the study; None if there is no readable one."""
        try:
            file = self._open(os.O_RDONLY)
        except OSError:
            return None
        try:
            return self._parsed(file)
        except FileExistsError:
            return None
        finally:
            os.close(file)

    def write(self, record: LockRecord | None) -> None:
        """Replace the line; None says that the study is closed."""
        assert self._file is not None
        said = f"process {record.process}, {record.trials} trials, {record.tells} tells" if record else "closed"
        os.pwrite(self._file, f"{f'bo_robust study: {said}':<{LENGTH - 1}}\n".encode(), 0)

    def release(self) -> None:
        """Let the next writer in; a forked process only closes its copy."""
        file, self._file = self._file, None
        if file is not None:
            if self._held and os.getpid() == self._process:
                fcntl.flock(file, fcntl.LOCK_UN)  # closing is not enough while a fork has a copy
            os.close(file)

    def _open(self, flags: int) -> int:
        try:
            # O_NONBLOCK: a pipe of that name must not block.
            file = os.open(self.path, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o644)
        except OSError as error:
            if error.errno == errno.ELOOP:  # a symbolic link: what it leads to is not ours
                raise self._foreign() from None
            raise type(error)(
                f"{self.study} cannot be written: its lock {self.path} cannot be opened ({error.strerror})."
            ) from None
        if not stat.S_ISREG(os.fstat(file).st_mode):
            os.close(file)
            raise self._foreign()
        return file

    def _parsed(self, file: int) -> LockRecord | None:
        content = os.pread(file, LENGTH + 1, 0)
        if len(content) <= LENGTH and not content.strip(b"\0"):  # new, or power was lost before the line was on disk
            return None
        found = LINE.fullmatch(content)
        if found is None:
            raise self._foreign()
        return None if found[1] is None else LockRecord(*map(int, found.groups()))

    def _foreign(self) -> FileExistsError:
        return FileExistsError(f"{self.path} is not the lock of a study: move it away, or choose another path.")


def _release_all() -> None:
    for lock in list(_LOCKS):
        lock.release()


# A fork shares the open file and so the lock: it must close its copies, or an orphan would keep the study locked.
_LOCKS: weakref.WeakSet[WriterLock] = weakref.WeakSet()
os.register_at_fork(after_in_child=_release_all)
