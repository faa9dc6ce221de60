"""The progress of a run on a terminal."""

import time
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from bo_robust.experiments.store import ShardKey


class ProgressBar(Progress):
    """A bar that counts the rounds of all trials in the shards ``todo``; hidden if there are none."""

    def __init__(self, panels: Sequence[Any], todo: Sequence[ShardKey], console: Console) -> None:
        super().__init__(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=16),
            TaskProgressColumn(),
            TextColumn("{task.fields[rate]}"),
            TimeRemainingColumn(),
            console=console,
        )
        self._panels = panels
        self._shown = dict.fromkeys(todo, 0)  # rounds by shard
        # Time and rounds when a shard was first seen: rounds from a checkpoint do not count for the rate.
        self._began: dict[ShardKey, tuple[float, int]] = {}
        total = sum(panels[key.panel].horizon * (key.stop - key.first) for key in todo)
        self._task = self.add_task("", total=total, rate="", visible=bool(todo))

    def played(self, key: ShardKey, rounds: int) -> None:
        """Show that this many rounds of a shard are played."""
        now, trials, panel = time.perf_counter(), key.stop - key.first, self._panels[key.panel]
        began, first = self._began.setdefault(key, (now, rounds))
        rate = (rounds - first) * trials / max(now - began, 1e-9)
        said = f"{panel.name} · {panel.methods[key.method].label}"
        advance = (rounds - self._shown[key]) * trials
        self.update(self._task, description=said, advance=advance, rate=f"{rate:,.0f} rounds/s" if rate else "")
        self._shown[key] = rounds

    def stored(self, key: ShardKey) -> None:
        """Show that a shard is finished."""
        self.played(key, self._panels[key.panel].horizon)
