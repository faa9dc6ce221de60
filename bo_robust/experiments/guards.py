"""Conditions of a run: a free folder, one process at a time in it, and enough memory."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from bo_robust.experiments.config import PanelConfig
from bo_robust.experiments.errors import RunError

__all__ = ["check_free", "check_memory", "locked", "memory_errors"]

# Bytes of one round of one trial in the traces (float64, with the columns of a dictionary): 4 numbers of 8 bytes,
# 3 of 4 and 2 of 1.
TRACE_BYTES = 46


def check_free(folder: Path) -> None:
    """Raise ``RunError`` if the folder of a new run holds something already."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise RunError(
            f"{folder} exists already; choose another --out, or go on with `bo-robust resume {folder}` if it is a "
            "run that was interrupted."
        )


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the folder for one process at a time, on systems that have flock."""
    try:
        import fcntl
    except ImportError:  # Windows
        yield
        return
    handle = os.open(folder, os.O_RDONLY)  # not a file in it, which may be replaced
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise RunError(f"another process is running {folder}; wait for it or stop it.") from None
        yield
    finally:
        os.close(handle)


def check_memory(panel: PanelConfig) -> None:
    """Raise ``RunError`` if the traces of a panel cannot fit into this machine."""
    needed = panel.trials * panel.horizon * TRACE_BYTES
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        there = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        if needed > there:
            raise RunError(
                f"panel {panel.name!r}: the traces of {panel.trials} trials x {panel.horizon} rounds need "
                f"{needed / 2**30:.3g} GiB, this machine has {there / 2**30:.3g}; lower --trials or --horizon."
            )


@contextmanager
def memory_errors(panel: PanelConfig) -> Iterator[None]:
    """Turn a lack of memory, on the host or the device, into ``RunError``."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        # On a CPU torch reports a lack of memory as a plain RuntimeError, "can't allocate memory".
        if isinstance(error, MemoryError | torch.OutOfMemoryError) or "allocate" in str(error):
            raise RunError(f"panel {panel.name!r} does not fit into memory; lower --trials or --horizon.") from None
        raise
