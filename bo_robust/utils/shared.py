"""Global settings of other packages that several threads need at once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any


class Shared:
    """A context made by the first thread that enters, and left by the last.

    A thread that left a block of its own would end the setting for the others, or restore one that was never theirs.
    """

    def __init__(self, make: Callable[[], AbstractContextManager[Any]]) -> None:
        self._make, self._lock, self._held, self._within = make, threading.Lock(), ExitStack(), 0

    @contextmanager
    def __call__(self) -> Iterator[None]:
        with self._lock:
            if not self._within:
                self._held.enter_context(self._make())
            self._within += 1
        try:
            yield
        finally:
            with self._lock:
                self._within -= 1
                if not self._within:
                    self._held.close()
