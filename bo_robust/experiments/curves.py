"""Curves of a panel's picture, one for each method. Nothing here imports matplotlib, which takes a second."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from bo_robust.experiments.statistics import CONFIDENCE

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from bo_robust.experiments.config import Panel

DASHES = ("-", "--", ":", "-.")  # of the first ten labels, the next ten, ...
LOG_TITLE = f"log10 regret: mean and {100 * CONFIDENCE:.0f} % confidence interval"


def band(axis: Axes, at: np.ndarray, curve: tuple[Any, Any, Any], label: str, look: dict[str, Any]) -> None:
    """Draw a ``curve`` of mean, low and high ``at`` these rounds."""
    mean, low, high = curve
    axis.plot(at, mean, label=plain_text(label), **look)
    axis.fill_between(at, low, high, color=look["color"], alpha=0.15, lw=0)


def values_of(panel: Panel, traces: pd.DataFrame, column: str) -> Mapping[str, np.ndarray]:
    """A column of the traces by label, ``trials x rows``."""
    by_label = {label: traces.loc[traces["method"] == label, column] for label in panel.labels}
    return {label: of.to_numpy(dtype=float).reshape(panel.trials, -1) for label, of in by_label.items()}


def looks_of(labels: Sequence[str]) -> dict[str, dict[str, Any]]:
    return {label: {"color": f"C{i % 10}", "linestyle": DASHES[i // 10 % 4]} for i, label in enumerate(labels)}


def plain_text(label: str) -> str:
    """Escape a label for matplotlib, which reads $ as mathematics and hides labels that begin with _."""
    plain = label.replace("$", r"\$")
    return f" {plain}" if plain.startswith("_") else plain
