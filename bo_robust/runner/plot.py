"""Pictures: regret curves of every panel, and confidence intervals where a panel asks for them."""

from __future__ import annotations

from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from safetensors.torch import load_file

from bo_robust.runner.checkpoint import write_atomic
from bo_robust.runner.config import PanelConfig, RunConfig
from bo_robust.runner.results import part_path

__all__ = ["plot_intervals", "plot_regret"]


def plot_regret(config: RunConfig, traces: pd.DataFrame, path: Path) -> None:
    """Average regret R_t / t (above) and simple regret (below) against the round, mean ± standard error."""
    columns = len(config.panels)
    figure, axes = plt.subplots(2, columns, figsize=(4.6 * columns + 1, 7), squeeze=False)
    for j, panel in enumerate(config.panels):
        rows = traces[traces["panel"] == panel.name]
        rounds = _marks(panel.horizon)
        for algorithm in panel.algorithms:
            of = rows[rows["algorithm"] == algorithm.label]
            regret = of["regret"].to_numpy().reshape(panel.trials, panel.horizon)
            average = np.cumsum(regret, axis=1) / np.arange(1, panel.horizon + 1)
            simple = of["simple_regret"].to_numpy().reshape(panel.trials, panel.horizon)
            for axis, curves in ((axes[0, j], average), (axes[1, j], simple)):
                curves = curves[:, rounds - 1]
                mean = curves.mean(0)
                error = curves.std(0, ddof=1) / np.sqrt(panel.trials) if panel.trials > 1 else 0.0 * mean
                axis.plot(rounds, mean, label=algorithm.label)
                axis.fill_between(rounds, mean - error, mean + error, alpha=0.2)
        axes[0, j].set_title(panel.name, fontsize=10)
        axes[0, j].set_ylabel("average regret" if j == 0 else "")
        axes[1, j].set_ylabel("simple regret" if j == 0 else "")
        axes[1, j].set_xlabel("round")
        for axis in axes[:, j]:
            axis.set_xscale("log")
            axis.set_ylim(bottom=0.0)
            axis.grid(alpha=0.3)
    axes[0, 0].legend(fontsize=8)
    _save(figure, path)


def plot_intervals(config: RunConfig, folder: Path, path: Path) -> bool:
    """Final confidence intervals against f in each algorithm's worst-covered trial, where a panel asks for them."""
    wanted = [(i, panel) for i, panel in enumerate(config.panels) if panel.intervals]
    if not wanted:
        return False
    columns = max(len(panel.algorithms) for _, panel in wanted)
    figure, axes = plt.subplots(len(wanted), columns, figsize=(4.6 * columns, 3.2 * len(wanted)), squeeze=False)
    for row, (i, panel) in enumerate(wanted):
        _interval_row(axes[row], i, panel, folder)
    _save(figure, path)
    return True


def _interval_row(axes: np.ndarray, index: int, panel: PanelConfig, folder: Path) -> None:
    for j, algorithm in enumerate(panel.algorithms):
        final = {k: v.numpy() for k, v in load_file(part_path(folder, index, j).with_suffix(".safetensors")).items()}
        x = np.arange(len(final["f"]))
        reach = float(final["width"][0]) * final["sigma"]
        axes[j].fill_between(x, final["mean"] - reach, final["mean"] + reach, alpha=0.3, label="mean ± width · sigma")
        axes[j].plot(x, final["mean"], label="posterior mean")
        axes[j].plot(x, final["f"], "k--", label="f")
        covered = f"worst of {panel.trials} trials, {100 * float(final['coverage'][0]):.0f} % covered"
        axes[j].set_title(f"{panel.name}: {algorithm.label}\n({covered})", fontsize=9)
        axes[j].set_xlabel("arm")
    axes[0].legend(fontsize=8)


def _marks(horizon: int) -> np.ndarray:
    return np.unique(np.round(np.geomspace(1, horizon, min(horizon, 200))).astype(int))


def _save(figure: plt.Figure, path: Path) -> None:
    figure.tight_layout()
    write_atomic(path, lambda temporary: figure.savefig(temporary, dpi=120, format="png"))
    plt.close(figure)
