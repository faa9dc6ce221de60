"""A result folder, finished or not: what is stored of it, its summary, and what is missing."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from bo_robust.runner import results
from bo_robust.runner.config import RunConfig
from bo_robust.runner.errors import RunError
from bo_robust.runner.provenance import read_run
from bo_robust.runner.robust import results as robust_results
from bo_robust.runner.robust.config import RobustPanelConfig, RobustRunConfig, is_robust_folder
from bo_robust.runner.robust.run import read_run as read_robust_run

__all__ = ["Stored", "load"]


@dataclass(frozen=True)
class Stored:
    """What a result folder holds.

    Attributes:
        folder: The folder.
        robust: Whether it is of a value-at-risk run.
        info: ``run.json``.
        config: The run's configuration, :class:`RunConfig` or :class:`RobustRunConfig`.
        panels: Panels of which something can be reported, cut down to that, in order.
        places: By (panel, label) the indices of panel and algorithm in the file names of ``parts/``.
        facts: Facts of each of ``panels``.
        traces: Their traces, joined.
        summary: Of ``panels``, as ``summary.json`` holds it for finished runs.
        missing: What has not been played yet, in words; empty for finished runs.
    """

    folder: Path
    robust: bool
    info: dict[str, Any]
    config: Any
    panels: tuple[Any, ...]
    places: dict[tuple[str, str], tuple[int, int]]
    facts: list[dict[str, Any]]
    traces: pd.DataFrame
    summary: dict[str, Any]
    missing: list[str]

    def rows(self, panel: str) -> pd.DataFrame:
        """The traces of one panel."""
        return self.traces[self.traces["panel"] == panel]


def load(folder: Path) -> Stored:
    """Read a result folder of either kind of run.

    Raises:
        RunError: when it is none, its configuration was changed, or a part is damaged; a part that is missing is none
            (see :attr:`Stored.missing`).
    """
    return _load_robust(folder) if is_robust_folder(folder) else _load_arms(folder)


def _load_arms(folder: Path) -> Stored:
    info, config = read_run(folder)
    panels, facts, frames, missing, places = [], [], [], [], {}
    for i, panel in enumerate(config.panels):
        known: dict[str, Any] = {}
        there, absent = [], []
        for j, algorithm in enumerate(panel.algorithms):
            if not results.part_path(folder, i, j).exists():
                absent.append(algorithm.label)
                continue
            frame, one = results.load_part(folder, i, j, panel)
            results.collect(known, algorithm.label, one)
            places[panel.name, algorithm.label] = (i, j)
            there.append(algorithm)
            frames.append(frame)
        if absent:
            missing.append(f"{panel.name}: " + ("; ".join(absent) if there else "all of it"))
        if there:
            compare = _comparable(panel.compare, [a.label for a in there])
            panels.append(dataclasses.replace(panel, algorithms=tuple(there), compare=compare))
            facts.append(known)
    traces = pd.DataFrame({"panel": []})
    summary: dict[str, Any] = {"name": config.name, "description": config.description, "panels": []}
    if panels:
        traces = pd.concat(frames, ignore_index=True).astype({"panel": "category", "algorithm": "category"})
        done = RunConfig(config.name, tuple(panels), config.description)
        summary = results.summarise(done, traces, {p.name: f for p, f in zip(panels, facts, strict=True)})
    return Stored(folder, False, info, config, tuple(panels), places, facts, traces, summary, missing)


def _load_robust(folder: Path) -> Stored:
    info, config = read_robust_run(folder)
    panels, facts, frames, missing, places = [], [], [], [], {}
    for i, panel in enumerate(config.panels):
        there = [
            [robust_results.part_path(folder, i, j, k).exists() for k in range(panel.repetitions)]
            for j in range(len(panel.methods))
        ]
        methods, repetitions = _paired(there)
        missing += _missing_repetitions(panel, there, repetitions)
        if not methods:
            continue
        played = tuple(panel.methods[j] for j in methods)
        compare = _comparable(panel.compare, [m.label for m in played])
        panels.append(dataclasses.replace(panel, methods=played, compare=compare, repetitions=len(repetitions)))
        facts.append(_robust_facts(folder, i))
        for j, method in zip(methods, played, strict=True):
            places[panel.name, method.label] = (i, j)
            for k in repetitions:
                path, key = robust_results.part_path(folder, i, j, k), (panel.name, method.label, k)
                frames.append(robust_results.load_part(folder, path, key, panel.rounds + 1))
    traces = pd.concat(frames, ignore_index=True) if frames else pd.DataFrame({"panel": []})
    summary: dict[str, Any] = {"name": config.name, "description": config.description, "panels": []}
    if panels:
        done = RobustRunConfig(config.name, tuple(panels), config.description)
        summary = robust_results.summarise(done, traces, facts)
    return Stored(folder, True, info, config, tuple(panels), places, facts, traces, summary, missing)


def _paired(there: list[list[bool]]) -> tuple[list[int], list[int]]:
    """Methods and repetitions to report: repetitions that all methods played; if there is none, methods with the first.

    Args:
        there: By method and repetition, whether it was played.
    """
    common = [k for k in range(len(there[0])) if all(row[k] for row in there)]
    if common:
        return list(range(len(there))), common
    return [j for j, row in enumerate(there) if row[0]], [0]


def _missing_repetitions(panel: RobustPanelConfig, there: list[list[bool]], used: list[int]) -> list[str]:
    """In words, by method; repetitions played but not used are named as well."""
    if not any(any(row) for row in there):
        return [f"{panel.name}: all of it"]
    lines = []
    for method, row in zip(panel.methods, there, strict=True):
        absent, spare = row.count(False), sum(row[k] for k in range(len(row)) if k not in used)
        if absent:
            lines.append(f"{panel.name}: {method.label}, {absent} of {len(row)} repetitions")
        if spare and row[used[0]]:
            lines.append(
                f"{panel.name}: {spare} more repetitions of {method.label} are played, and left out until all methods "
                "have played them"
            )
    return lines


def _robust_facts(folder: Path, panel: int) -> dict[str, Any]:
    path = robust_results.facts_path(folder, panel)
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise RunError(
            f"cannot read {path} ({error}); `bo-robust resume {folder}` writes it with the first repetition played."
        ) from None


def _comparable(compare: tuple[tuple[str, ...], ...], labels: list[str]) -> tuple[tuple[str, ...], ...]:
    return tuple(pair for pair in compare if all(label in labels for label in pair))
