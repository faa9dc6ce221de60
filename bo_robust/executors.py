"""Where objectives run: anything with ``submit(fn, x)`` that returns a future.

The executors of ``concurrent.futures`` and Dask's client have that method and can be passed as they are.
"""

import multiprocessing
import os
import pickle
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import BrokenExecutor, ProcessPoolExecutor
from concurrent.futures import Future as LocalFuture
from contextlib import contextmanager
from multiprocessing.connection import wait
from typing import Any, Protocol

THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


class WorkerLost(RuntimeError):
    """Raised by ``Future.result`` if the worker died and the objective did not raise: the trial is tried again.

    ``concurrent.futures.BrokenExecutor`` and ``CancelledError`` count as the same.
    """


class Future(Protocol):
    """A result on its way."""

    def result(self) -> Any:
        """Return the result, or raise what the objective raised, or :class:`WorkerLost`."""

    def done(self) -> bool:
        """Whether ``result`` returns at once."""

    def cancel(self) -> Any:
        """Do not start it, if it has not started."""


class Executor(Protocol):
    """Runs functions somewhere."""

    def submit(self, fn: Callable[[Any], Any], x: Any, /) -> Future:
        """Start ``fn(x)``."""


class InProcess:
    """Calls the function here and now."""

    def submit(self, fn: Callable[[Any], Any], x: Any, /) -> LocalFuture[Any]:
        """Return a future of ``fn(x)`` that is done."""
        future: LocalFuture[Any] = LocalFuture()
        try:
            future.set_result(fn(x))
        except Exception as error:
            future.set_exception(error)
        return future

    def shutdown(self, wait: bool = True) -> None:
        """Do nothing."""


class LocalProcesses:
    """Processes of this machine, each with its own threads; a pool that lost a worker is replaced by a new one.

    Processes are spawned: the objective must be a function of a module, and a script that uses them needs its
    ``if __name__ == "__main__":``. They exit when their parent dies.

    Args:
        workers: Number of processes, >= 1.
        threads: Threads of PyTorch and BLAS in each, >= 1; with one, two workers on two cores do not slow each other.
    """

    def __init__(self, workers: int, threads: int = 1) -> None:
        from bo_robust.validation import check_count  # here: workers load this module, and PyTorch is not for them

        check_count(1, workers=workers, threads=threads)
        self.workers, self.threads = workers, threads
        self._pool: ProcessPoolExecutor | None = None
        self._sent: Any = None

    def submit(self, fn: Callable[[Any], Any], x: Any, /) -> Future:
        """Start ``fn(x)`` in a process; the result of a process that died raises ``BrokenProcessPool``.

        Raises ``ValueError`` if the function cannot be sent to a process.
        """
        if fn is not self._sent:
            try:
                pickle.dumps(fn)
            except Exception as error:
                raise ValueError(
                    f"{fn!r} cannot be sent to a process ({error}); define it in a module, or use workers=1."
                ) from None
            self._sent = fn
        with _environment_variables(
            dict.fromkeys(THREAD_VARIABLES, str(self.threads))
        ):  # read where libraries are loaded
            if self._pool is not None:
                try:
                    return self._pool.submit(fn, x)
                except BrokenExecutor:
                    self._pool.shutdown(wait=False)
            self._pool = ProcessPoolExecutor(
                self.workers, multiprocessing.get_context("spawn"), prepare_worker, (self.threads,)
            )
            return self._pool.submit(fn, x)

    def shutdown(self, wait: bool = True) -> None:
        """Drop what has not started; wait for the rest, or with ``wait=False`` kill its processes."""
        if self._pool is not None:
            processes = list((self._pool._processes or {}).values())  # the pool forgets them as it shuts down
            self._pool.shutdown(wait=wait, cancel_futures=True)
            self._pool = None
            for process in [] if wait else processes:
                process.terminate()


def prepare_worker(threads: int) -> None:
    """Make this process exit when its parent dies, however it dies, and give PyTorch this number of threads."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_exit_with, args=(parent.sentinel,), daemon=True).start()
    if "torch" in sys.modules:  # loaded by the main module; a later import reads the environment
        sys.modules["torch"].set_num_threads(threads)


def _exit_with(sentinel: int) -> None:
    wait([sentinel])
    # Not sys.exit: in this thread it would end the thread only, and the objective may hold the main one.
    os._exit(1)


@contextmanager
def _environment_variables(variables: dict[str, str]) -> Iterator[None]:
    """Set environment variables within the block and restore the former ones after it."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
