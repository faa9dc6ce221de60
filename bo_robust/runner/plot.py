"""Pictures: regret curves of every panel, and confidence intervals where a panel asks for them."""

from __future__ import annotations

from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from bo_robust.runner.checkpoint import write_atomic
from bo_robust.runner.config import PanelConfig, RunConfig
from bo_robust.runner.results import load_final

__all__ = ["STYLES", "marks", "plain_text", "plot_intervals", "plot_regret", "save_figure"]

# Line styles of the first ten algorithms, the next ten, ...
STYLES = ("-", "--", ":", "-.")
# With more algorithms than this the legend stands below the pictures.
MANY = 6


def plot_regret(config: RunConfig, folder: Path, traces: pd.DataFrame, path: Path) -> bool:
    """Average regret R_t / t (above) and simple regret (below) against the round, mean ± standard error."""
    columns = len(config.panels)
    figure, axes = plt.subplots(2, columns, figsize=(4.6 * columns + 1, 8), squeeze=False, layout="constrained")
    for j, panel in enumerate(config.panels):
        rows = traces[traces["panel"] == panel.name]
        rounds = marks(panel.horizon)
        for i, algorithm in enumerate(panel.algorithms):
            of = rows[rows["algorithm"] == algorithm.label]
            regret = of["regret"].to_numpy().reshape(panel.trials, panel.horizon)
            average = np.cumsum(regret, axis=1) / np.arange(1, panel.horizon + 1)
            simple = of["simple_regret"].to_numpy().reshape(panel.trials, panel.horizon)
            for axis, curves in ((axes[0, j], average), (axes[1, j], simple)):
                curves = curves[:, rounds - 1]
                mean = curves.mean(0)
                error = curves.std(0, ddof=1) / np.sqrt(panel.trials) if panel.trials > 1 else 0.0 * mean
                style = {"color": f"C{i % 10}", "linestyle": STYLES[i // 10 % len(STYLES)]}
                axis.plot(rounds, mean, label=plain_text(algorithm.label), **style)
                axis.fill_between(rounds, mean - error, mean + error, alpha=0.15, color=style["color"], linewidth=0)
        axes[0, j].set_title(plain_text(panel.name), fontsize=10)
        axes[0, j].set_ylabel("average regret" if j == 0 else "")
        axes[1, j].set_ylabel("simple regret" if j == 0 else "")
        axes[1, j].set_xlabel("round")
        for axis in axes[:, j]:
            axis.set_xscale("log")
            axis.set_ylim(bottom=0.0)
            axis.grid(alpha=0.3)
    if max(len(panel.algorithms) for panel in config.panels) <= MANY:
        axes[0, 0].legend(fontsize=8)
    else:
        handles, labels = axes[0, 0].get_legend_handles_labels()
        figure.legend(handles, labels, fontsize=8, loc="outside lower center", ncols=max(2, 2 * columns))
    save_figure(figure, path)
    return True


def plot_intervals(config: RunConfig, folder: Path, traces: pd.DataFrame, path: Path) -> bool:
    """Final confidence intervals against f in each algorithm's worst-covered trial, where a panel asks for them."""
    wanted = [(i, panel) for i, panel in enumerate(config.panels) if panel.intervals]
    if not wanted:
        return False
    columns = max(len(panel.algorithms) for _, panel in wanted)
    size = (4.6 * columns, 3.2 * len(wanted))
    figure, axes = plt.subplots(len(wanted), columns, figsize=size, squeeze=False, layout="constrained")
    for row, (i, panel) in enumerate(wanted):
        _interval_row(axes[row], i, panel, folder)
    save_figure(figure, path)
    return True


def _interval_row(axes: np.ndarray, index: int, panel: PanelConfig, folder: Path) -> None:
    for j, algorithm in enumerate(panel.algorithms):
        final = {k: v.numpy() for k, v in load_final(folder, index, j).items()}
        mean, reach, f = final["mean"], final["reach"], final["f"]
        x = np.arange(len(f))
        title = f"{panel.name}: {algorithm.label}"
        if np.isfinite(reach).all():
            axes[j].fill_between(x, mean - reach, mean + reach, alpha=0.3, label="mean ± width · sigma")
            title += f"\n(worst of {panel.trials} trials, {100 * np.mean(np.abs(f - mean) <= reach):.0f} % covered)"
        axes[j].plot(x, mean, label="posterior mean")
        axes[j].plot(x, f, "k--", label="f")
        axes[j].set_title(plain_text(title), fontsize=9)
        axes[j].set_xlabel("arm")
    axes[0].legend(fontsize=8)


def plain_text(label: str) -> str:
    """Plain text for matplotlib, which reads $ as mathematics and hides labels that begin with _."""
    plain = label.replace("$", r"\$")
    return f" {plain}" if plain.startswith("_") else plain


def marks(horizon: int) -> np.ndarray:
    """Rounds to draw on a logarithmic axis, at most 200 from 1 to the horizon."""
    return np.unique(np.round(np.geomspace(1, horizon, min(horizon, 200))).astype(int))


def save_figure(figure: plt.Figure, path: Path) -> None:
    dpi = 120 if figure.get_size_inches()[0] <= 12 else 80  # many panels
    write_atomic(path, lambda temporary: figure.savefig(temporary, dpi=dpi, format="png"))
    plt.close(figure)
