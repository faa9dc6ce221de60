"""One picture per panel: regret, the certificate beside V-UCB's regret, and seconds per acquisition."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from bo_robust.runner.plot import STYLES, plain_text, save_figure
from bo_robust.runner.robust.config import RobustPanelConfig
from bo_robust.runner.robust.results import curves, log_regret, mean_interval

__all__ = ["picture_name", "plot_certificate", "plot_panel"]


def picture_name(index: int, panel: RobustPanelConfig) -> str:
    """Such as ``00-branin-hoo-1-1.png``."""
    slug = re.sub(r"[^a-z0-9]+", "-", panel.name.lower()).strip("-")
    return f"{index:02d}-{slug or 'panel'}.png"


def plot_panel(panel: RobustPanelConfig, traces: pd.DataFrame, path: Path) -> None:
    """Draw a panel from its traces."""
    rows = traces[traces["panel"] == panel.name]
    colours: dict[str, dict[str, Any]] = {
        m.label: {"color": f"C{i % 10}", "linestyle": STYLES[i // 10 % len(STYLES)]}
        for i, m in enumerate(panel.methods)
    }
    figure, axes = plt.subplots(1, 3, figsize=(15, 4.4), layout="constrained")
    _plot_regret(axes[0], panel, rows, colours)
    plot_certificate(axes[1], panel, rows, colours)
    _plot_seconds(axes[2], panel, rows, colours)
    figure.suptitle(plain_text(f"{panel.name} ({panel.repetitions} repetitions)"), fontsize=11)
    save_figure(figure, path)


def _plot_regret(axis: Axes, panel: RobustPanelConfig, rows: pd.DataFrame, colours: dict[str, dict[str, Any]]) -> None:
    for label, regret in curves(rows, panel, "regret").items():
        mean, low, high = mean_interval(log_regret(regret))
        axis.plot(mean, label=plain_text(label), **colours[label])
        axis.fill_between(np.arange(len(mean)), low, high, alpha=0.15, color=colours[label]["color"], linewidth=0)
    axis.set_xlabel("round")
    axis.set_ylabel("log10 regret of the recommendation")
    axis.set_title("mean, 70 % confidence interval", fontsize=9)
    axis.legend(fontsize=8)
    axis.grid(alpha=0.3)


def plot_certificate(
    axis: Axes, panel: RobustPanelConfig, rows: pd.DataFrame, colours: dict[str, dict[str, Any]]
) -> None:
    """Medians of the methods that certify: certificate (solid), regret (dashed) and the bound 2 w sigma (dotted).

    Args:
        axis: To draw on.
        panel: The panel.
        rows: Its traces.
        colours: Colour of every label, as keyword arguments of ``plot``.
    """
    regrets, certificates = curves(rows, panel, "regret"), curves(rows, panel, "certificate")
    bounds = curves(rows, panel, "bound")
    for method in panel.methods:
        if not method.build().certifies:
            continue
        label, colour = method.label, colours[method.label]["color"]
        axis.plot(np.median(certificates[label], 0), color=colour, label=plain_text(f"{label}: certificate"))
        bound = "2 w sigma at the point chosen" if len(axis.lines) == 1 else None
        axis.plot(np.median(bounds[label][:, :-1], 0), color=colour, linestyle=":", label=bound)
        true = "regret" if bound else None
        axis.plot(10.0 ** np.median(log_regret(regrets[label]), 0), color=colour, linestyle="--", label=true)
    if axis.lines:
        axis.set_yscale("log")
        axis.legend(fontsize=8)
    axis.set_xlabel("round")
    axis.set_title("how far from optimal it can still be, and is (medians)", fontsize=9)
    axis.grid(alpha=0.3)


def _plot_seconds(axis: Axes, panel: RobustPanelConfig, rows: pd.DataFrame, colours: dict[str, dict[str, Any]]) -> None:
    for label, seconds in curves(rows, panel, "seconds").items():
        axis.plot(np.median(seconds[:, :-1], 0), label=plain_text(label), **colours[label])
    axis.set_yscale("log")
    axis.set_xlabel("round")
    axis.set_title("seconds per acquisition (median)", fontsize=9)
    axis.grid(alpha=0.3)
