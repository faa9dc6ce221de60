"""The picture of a panel: regret by round."""

import io
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter

from bo_robust.experiments.config import Panel
from bo_robust.experiments.summary import CONFIDENCE, log_regret, mean_interval

THEME: Any = {
    **dict.fromkeys(("axes.spines.top", "axes.spines.right"), False),
    **dict.fromkeys(("axes.grid", "axes.axisbelow"), True),
    "grid.alpha": 0.3,
    "font.size": 9.0,
    "axes.titlesize": 10.0,
    "lines.linewidth": 1.4,
}
DASHES = ("-", "--", ":", "-.")  # of the first ten labels, the next ten, ...
LOG_TITLE = f"log10 regret: mean and {100 * CONFIDENCE:.0f} % confidence interval"
DRAWN = 200  # points of a curve on a logarithmic axis


def file_name(index: int, panel: str) -> str:
    """Such as ``00-branin-hoo-1-1.png``."""
    slug = re.sub(r"[^a-z0-9]+", "-", panel.lower()).strip("-")
    return f"{index:02d}-{slug or 'panel'}.png"


def draw_panel(panel: Panel, traces: pd.DataFrame) -> bytes:
    """A PNG file of a panel's regret by round, given the traces of the panel."""
    draw = {"arms": _over_arms, "botorch": _over_designs, "environment": _over_environment}[panel.loop]
    file = io.BytesIO()
    with rc_context(THEME):
        figure = Figure(figsize=(9.2, 3.4), layout="constrained")
        axes = figure.subplots(1, 2)
        draw(panel, traces, axes)
        for axis in axes:
            axis.set_xlabel("evaluation" if panel.loop == "botorch" else "round")
            if panel.loop != "arms":
                axis.xaxis.set_major_locator(MaxNLocator(integer=True))
        figure.suptitle(plain_text(panel.name))
        handles, labels = axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, fontsize=8, loc="outside lower center", ncols=6)
        figure.savefig(file, format="png", dpi=120)
    return file.getvalue()


def _over_arms(panel: Panel, traces: pd.DataFrame, axes: Sequence[Axes]) -> None:
    """Average and simple regret: means over trials, shaded by one standard error."""
    regret, simple = _curves(panel, traces, "regret"), _curves(panel, traces, "simple_regret")
    average = {label: values.cumsum(1) / np.arange(1, panel.horizon + 1) for label, values in regret.items()}
    at = np.unique(np.geomspace(1, panel.horizon, min(panel.horizon, DRAWN)).round().astype(int))
    for axis, title, curves in ((axes[0], "average regret R_t / t", average), (axes[1], "simple regret", simple)):
        axis.set_title(f"{title}: mean ± standard error")
        for label, look in looks_of(panel.labels).items():
            _band(axis, at, mean_interval(curves[label][:, at - 1]), label, look)
        axis.set_xscale("log")
        axis.set_xlim(left=0.9)
        axis.set_ylim(bottom=0.0)
        # Few plain numbers; within a decade powers of ten are too few.
        low, high = axis.xaxis.get_view_interval()
        axis.xaxis.set_major_locator(LogLocator(numticks=7) if high >= 10.0 * low else MaxNLocator(5))
        axis.xaxis.set_major_formatter("{x:g}")
        axis.xaxis.set_minor_formatter(NullFormatter())


def _over_designs(panel: Panel, traces: pd.DataFrame, axes: Sequence[Axes]) -> None:
    """Simple regret of the recommendation and its logarithm, after the initial design."""
    axes[0].set_title("simple regret in sd of f: mean ± standard error")
    axes[1].set_title(LOG_TITLE)
    regret = _curves(panel, traces, "regret")
    for label, look in looks_of(panel.labels).items():
        at = np.flatnonzero(~np.isnan(regret[label]).any(0))
        values = regret[label][:, at]
        _band(axes[0], at + 1, mean_interval(values), label, look)
        _band(axes[1], at + 1, mean_interval(log_regret(values), CONFIDENCE), label, look)
    axes[0].set_ylim(bottom=0.0)


def _over_environment(panel: Panel, traces: pd.DataFrame, axes: Sequence[Axes]) -> None:
    """log10 regret with the confidence interval of its mean; regret bounds beside the regret that they bound."""
    axes[0].set_title(LOG_TITLE)
    axes[1].set_title("medians: regret bound (solid), regret (dashed)")
    axes[1].set_yscale("log")
    regret, regret_bound = _curves(panel, traces, "regret"), _curves(panel, traces, "regret_bound")
    for label, look in looks_of(panel.labels).items():
        of_log = log_regret(regret[label])
        _band(axes[0], np.arange(of_log.shape[1]), mean_interval(of_log, CONFIDENCE), label, look)
        if not np.isnan(regret_bound[label]).all():  # methods that do not bound the regret have none in any round
            axes[1].plot(np.median(regret_bound[label], 0), color=look["color"])
            axes[1].plot(10.0 ** np.median(of_log, 0), color=look["color"], linestyle="--")


def _band(axis: Axes, at: np.ndarray, curve: tuple[Any, Any, Any], label: str, look: dict[str, Any]) -> None:
    mean, low, high = curve
    axis.plot(at, mean, label=plain_text(label), **look)
    axis.fill_between(at, low, high, color=look["color"], alpha=0.15, lw=0)


def _curves(panel: Panel, traces: pd.DataFrame, column: str) -> Mapping[str, np.ndarray]:
    """A column of the traces by label, ``trials x rows``."""
    by_label = {label: traces.loc[traces["method"] == label, column] for label in panel.labels}
    return {label: of.to_numpy(dtype=float).reshape(panel.trials, -1) for label, of in by_label.items()}


def looks_of(labels: Sequence[str]) -> dict[str, dict[str, Any]]:
    return {label: {"color": f"C{i % 10}", "linestyle": DASHES[i // 10 % 4]} for i, label in enumerate(labels)}


def plain_text(label: str) -> str:
    """Escape a label for matplotlib, which reads $ as mathematics and hides labels that begin with _."""
    plain = label.replace("$", r"\$")
    return f" {plain}" if plain.startswith("_") else plain
