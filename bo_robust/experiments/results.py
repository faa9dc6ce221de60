"""The content of a result folder, of a finished run or one under way."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bo_robust.experiments.config import Panel, RunConfig
from bo_robust.experiments.errors import RunError
from bo_robust.experiments.records import join_eliminations
from bo_robust.experiments.store import Shard, ShardKey, load_shard, read_run
from bo_robust.experiments.summary import summarise


@dataclass(frozen=True)
class RunResults:
    """What a result folder holds."""

    folder: Path
    info: dict[str, Any]  # `run.json`
    config: RunConfig
    panels: tuple[Panel, ...]  # Panels with results, in order, cut down to the methods and trials that have some
    # `bo_robust.experiments.store.Shard.metadata` by name of the panel and label
    metadata: dict[str, dict[str, dict[str, Any]]]
    traces: pd.DataFrame  # Traces of `panels`, joined; only an empty column "panel" if there are none
    missing: list[str]  # What has not been played yet, in words; empty for finished runs

    @cached_property
    def summary(self) -> dict[str, Any]:
        """Numbers of :attr:`panels`, as ``summary.json`` holds them."""
        return summarise(self.config.with_panels(self.panels), self.traces, self.metadata)

    def rows(self, panel: str, label: str | None = None) -> pd.DataFrame:
        """The traces of one panel, or of one of its methods."""
        rows = self.traces[self.traces["panel"] == panel]
        return rows if label is None else rows[rows["method"] == label]

    def curves(self, panel: Panel, column: str) -> dict[str, np.ndarray]:
        """A column of a panel's traces by label, ``trials x rows``."""
        shape = (panel.trials, panel.rows)
        return {
            label: self.rows(panel.name, label)[column].to_numpy(dtype=float).reshape(shape) for label in panel.labels
        }


def load(folder: Path, *, unfinished: bool = False) -> RunResults:
    """Read a result folder of either kind of run; ``unfinished`` accepts a run under way."""
    info, config = read_run(folder)
    size, digest = info.get("shard"), info["config_digest"]
    panels: list[Panel] = []
    metadata: dict[str, dict[str, dict[str, Any]]] = {}
    frames: list[pd.DataFrame] = []
    missing: list[str] = []
    for i, panel in enumerate(config.panels):
        spans = panel.shards(size)
        keys = [[ShardKey(i, j, *span) for span in spans] for j in range(len(panel.methods))]
        there = [[key.path(folder).exists() for key in row] for row in keys]
        methods, used = _paired(there)
        missing += _missing(panel, there, used)
        if missing and not unfinished:
            raise RunError(
                f"{folder} is not finished, results are missing ({missing[0]}); `bo-robust resume {folder}` plays them."
            )
        if not methods:
            continue
        trials = sum(spans[k][1] - spans[k][0] for k in used)
        panels.append(panel.with_methods(tuple(panel.methods[j] for j in methods), trials=trials))
        known = metadata[panel.name] = {}
        for j in methods:
            shard = join_shards([load_shard(folder, keys[j][k], digest) for k in used])
            label = panel.methods[j].label
            known[label] = _with_notes(shard, info, panel.name)
            frames.append(shard.frame)
    traces = pd.DataFrame({"panel": []})
    if frames:
        traces = pd.concat(frames, ignore_index=True)
        traces = traces.astype({"panel": "category", "method": "category"})
    return RunResults(folder, info, config, tuple(panels), metadata, traces, missing)


def join_shards(shards: Sequence[Shard]) -> Shard:
    """One shard of all trials, from shards of consecutive trials in order."""
    every = [shard.metadata for shard in shards]
    joined = every[0] | {"seconds": sum(of["seconds"] for of in every)}
    if "covered" in joined:  # a run over arms
        worst = min(every, key=lambda of: of["covered"])  # the first of equals
        joined |= {"covered": worst["covered"], "intervals": worst["intervals"]}
        joined["eliminations"] = join_eliminations([of["eliminations"] for of in every])
    return Shard(pd.concat([shard.frame for shard in shards], ignore_index=True), joined)


def _with_notes(shard: Shard, info: dict[str, Any], panel: str) -> dict[str, Any]:
    """Metadata with notes on all trials: a run in shards has them in ``run.json``."""
    notes = info["used"][panel].get("notes")
    return shard.metadata if notes is None else shard.metadata | {"notes": notes}


def _paired(there: list[list[bool]]) -> tuple[list[int], list[int]]:
    """Methods and shards to report: all methods with the shards they share, else those that have the first shard.

    ``there`` says by method and shard whether it is stored.
    """
    common = [k for k in range(len(there[0])) if all(row[k] for row in there)]
    if common:
        return list(range(len(there))), common
    return [j for j, row in enumerate(there) if row[0]], [0]


def _missing(panel: Panel, there: list[list[bool]], used: Sequence[int]) -> list[str]:
    """What is missing, in words, by method, and shards that are stored but not used."""
    if not any(any(row) for row in there):
        return [f"{panel.name}: all of it"]
    lines, left_out = [], []
    many = "shards" if panel.over_arms else "trials"
    for method, row in zip(panel.methods, there, strict=True):
        absent, spare = row.count(False), sum(row[k] for k in range(len(row)) if k not in used)
        if absent:
            share = "" if len(row) == 1 else f", {absent} of {len(row)} {many}"
            lines.append(f"{panel.name}: {method.label}{share}")
        if spare and row[used[0]]:
            left_out.append(
                f"{panel.name}: {spare} more {many} of {method.label} are played, and left out until all "
                "methods have played them"
            )
    return lines + left_out
