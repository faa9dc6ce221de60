"""Whether a run fits into the memory of this machine."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from bo_robust.experiments.config import Panel
from bo_robust.experiments.errors import RunError
from bo_robust.linalg import on_cuda
from bo_robust.posteriors.snapshots import snapshot

# Bytes of one round of one trial while it is played (float64, with the columns of a dictionary): 4 numbers of 8 bytes,
# 3 of 4 and 2 of 1.
PLAYED_BYTES = 46
# Bytes of a row of traces when the run is finished, with the copies that joining, summing up and writing make: measured
# 196 and 216 on 3 million rows of 3 algorithms, in 4 panels and in one.
FINISHED_BYTES = 220


def check_finish(panels: Sequence[Any]) -> None:
    """Raise ``RunError`` if the traces of all panels, which are joined when the run is finished, take too much."""
    rows = sum(panel.trials * panel.rows * len(panel.methods) for panel in panels)
    which = f"panel {panels[0].name!r}" if len(panels) == 1 else f"{len(panels)} panels together"
    _check(which, f"{rows} rows of traces", rows * FINISHED_BYTES, "lower --trials or --horizon, or compare fewer")


def check_states(panel: Panel, state: Any, shard: int | None) -> None:
    """Raise ``RunError`` if the states of the trials played at once do not fit; ``state`` is that of one trial.

    Played at once are all trials, or ``shard`` of them.
    """
    of_trial = [x for x in snapshot(state)[0].values() if not on_cuda(x) and x.shape[:1] == (1,)]
    needed = panel.horizon * PLAYED_BYTES + sum(x.numel() * x.element_size() for x in of_trial)
    trials = min(panel.trials, shard or panel.trials)
    more = "lower --trials or --horizon, or give a --shard"
    _check(f"panel {panel.name!r}", f"{trials} trials x {panel.horizon} rounds", trials * needed, more)


def _check(which: str, what: str, needed: int, remedy: str) -> None:
    if not hasattr(os, "sysconf") or "SC_PHYS_PAGES" not in os.sysconf_names:
        return
    present = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if needed > present:
        raise RunError(
            f"{which}: {what} need {needed / 2**30:.3g} GiB, this machine has {present / 2**30:.3g}; {remedy}."
        )


@contextmanager
def memory_errors(
    panel: Panel, words: str = " does not fit into memory; lower --trials or --horizon."
) -> Iterator[None]:
    """Turn a lack of memory, on the host or the device, into ``RunError``."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        # On a CPU torch reports a lack of memory as a plain RuntimeError, "can't allocate memory".
        if isinstance(error, MemoryError | torch.OutOfMemoryError) or "allocate" in str(error):
            raise RunError(f"panel {panel.name!r}{words}") from None
        raise
