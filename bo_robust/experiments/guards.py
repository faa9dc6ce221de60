"""Conditions of a run: a free folder, one process at a time in it, and enough memory."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch

from bo_robust.experiments.config import PanelConfig
from bo_robust.experiments.errors import RunError
from bo_robust.experiments.storage import is_leftover
from bo_robust.posteriors.snapshots import snapshot

# Bytes of one round of one trial in the traces (float64, with the columns of a dictionary): 4 numbers of 8 bytes,
# 3 of 4 and 2 of 1.
TRACE_BYTES = 46


def check_free(folder: Path) -> None:
    """Raise ``RunError`` if the folder of a new run holds something already, but for what a killed process left."""
    try:
        taken = os.path.lexists(folder) and not all(map(is_leftover, folder.iterdir()))
    except NotADirectoryError:
        taken = True
    except OSError as error:
        raise RunError(f"{folder} cannot be read ({error.strerror}); choose another --out.") from None
    if taken:
        raise RunError(
            f"{folder} exists already; choose another --out, or go on with `bo-robust resume {folder}` if it is a "
            "run that was interrupted."
        )


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the folder for one process at a time, on systems that have flock; what killed ones left is deleted."""
    inner = [folder / name for name in ("shards", "checkpoints")]
    for path in inner:
        if path.is_symlink():
            raise RunError(f"{path} is a symbolic link, and the run would write where it leads; put a folder there.")
    with _held(folder):
        for path in [path for place in (folder, *inner) for path in place.glob(".*.part")]:
            with suppress(OSError):
                path.unlink()
        yield


@contextmanager
def _held(folder: Path) -> Iterator[None]:
    try:
        import fcntl
    except ImportError:  # Windows
        yield
        return
    try:
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)  # not a file in it, which may be replaced
    except OSError as error:
        raise RunError(f"{folder} is not a result folder: it cannot be opened ({error.strerror}).") from None
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RunError(f"another process is running {folder}; wait for it or stop it.") from None
        except OSError as error:
            raise RunError(f"{folder} cannot be locked ({error.strerror}); choose another --out.") from None
        yield
    finally:
        os.close(handle)


def check_memory(panel: PanelConfig, state: Any = None, shard: int | None = None) -> None:
    """Raise ``RunError`` if a panel cannot fit into this machine.

    Its traces must, and so must the states of all trials, or of the ``shard`` trials that are played at once;
    ``state`` is that of one trial.
    """
    needed, more = panel.trials * panel.horizon * TRACE_BYTES, ""
    if state is not None:
        more = ", or give a --shard"
        of_trial = [x for x in snapshot(state)[0].values() if x.device.type == "cpu" and x.shape[:1] == (1,)]
        needed += min(panel.trials, shard or panel.trials) * sum(x.numel() * x.element_size() for x in of_trial)
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        there = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        if needed > there:
            raise RunError(
                f"panel {panel.name!r}: {panel.trials} trials x {panel.horizon} rounds need {needed / 2**30:.3g} GiB, "
                f"this machine has {there / 2**30:.3g}; lower --trials or --horizon{more}."
            )


@contextmanager
def memory_errors(
    panel: PanelConfig, said: str = " does not fit into memory; lower --trials or --horizon."
) -> Iterator[None]:
    """Turn a lack of memory, on the host or the device, into ``RunError``."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        # On a CPU torch reports a lack of memory as a plain RuntimeError, "can't allocate memory".
        if isinstance(error, MemoryError | torch.OutOfMemoryError) or "allocate" in str(error):
            raise RunError(f"panel {panel.name!r}{said}") from None
        raise
