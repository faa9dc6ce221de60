"""Picture of eliminations: which candidate fell in which round, and how far it had overstepped its limit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from bo_robust.runner.config import RunConfig
from bo_robust.runner.plot import plain_text, save_figure
from bo_robust.runner.results import part_path

__all__ = ["draw_timeline", "plot_eliminations"]

# Trials lie side by side within this part of a candidate's row.
SPREAD = 0.6
COLUMNS = 3


def plot_eliminations(config: RunConfig, folder: Path, traces: pd.DataFrame, path: Path) -> bool:
    """One picture per algorithm that eliminates, of all panels; False if there is none.

    A dot per trial where a candidate fell, larger the further the sum of errors was beyond its limit; a cross where
    the last survivor failed as well and was kept. On the right: trials in which the candidate survived.
    """
    pictures = []
    for i, panel in enumerate(config.panels):
        for j, algorithm in enumerate(panel.algorithms):
            facts = json.loads(part_path(folder, i, j).with_suffix(".json").read_text(encoding="utf-8"))
            if facts.get("eliminations") is not None:
                pictures.append((f"{panel.name}: {algorithm.label}", panel.horizon, facts["eliminations"]))
    if not pictures:
        return False
    columns = min(COLUMNS, len(pictures))
    rows = [pictures[i : i + columns] for i in range(0, len(pictures), columns)]
    heights = [1.2 + 0.25 * max(len(found["candidates"]) for _, _, found in row) for row in rows]
    figure, axes = plt.subplots(
        len(rows),
        columns,
        figsize=(5.6 * columns, sum(heights)),
        squeeze=False,
        layout="constrained",
        height_ratios=heights,
    )
    for axis in axes.flat[len(pictures) :]:
        axis.set_visible(False)
    for axis, picture in zip(axes.flat, pictures, strict=False):
        draw_timeline(axis, *picture)
    save_figure(figure, path)
    return True


def draw_timeline(axis: plt.Axes, title: str, horizon: int, found: dict[str, Any]) -> None:
    """One algorithm's timeline on ``axis``; ``found``: :func:`bo_robust.runner.eliminations.elimination_facts`."""
    names, trials = found["candidates"], len(found["survivors"])
    for eliminated, marker, colour in ((True, "o", "C0"), (False, "x", "C3")):
        of = [row for row in found["eliminations"] if row["eliminated"] == eliminated]
        if of:
            beside = np.array([(row["trial"] + 0.5) / trials - 0.5 for row in of])
            axis.scatter(
                [row["round"] for row in of],
                np.array([row["hypothesis"] for row in of]) + SPREAD * beside,
                s=[12.0 * min(row["left"] / row["right"], 10.0) for row in of],
                marker=marker,
                color=colour,
                alpha=0.5 if eliminated else 1.0,
                linewidths=0 if eliminated else 1.2,
            )
    for u, name in enumerate(names):
        count = sum(name in row for row in found["survivors"])
        axis.text(
            1.01, u, f"{100 * count / trials:.0f} %", transform=axis.get_yaxis_transform(), va="center", fontsize=8
        )
    right = set(found["true"] or ())
    labels = [plain_text(name) + (" (true)" if right == {name} else "") for name in names]
    axis.set_yticks(range(len(names)), labels, fontsize=8)
    axis.set_ylim(len(names) - 0.5, -0.5)
    axis.set_xlim(0, horizon + 1)
    axis.set_xlabel("round of elimination (dot size: how far beyond the limit); right: trials survived", fontsize=8)
    axis.set_title(plain_text(title), fontsize=9)
    axis.grid(alpha=0.3)
