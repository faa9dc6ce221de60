"""The picture of a panel: regret by round. Matplotlib, which takes a second to import, is imported to draw."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from benchmarks.panel import Panel
from benchmarks.statistics import CONFIDENCE, mean_interval

if TYPE_CHECKING:
    from matplotlib.axes import Axes

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


def file_name(index: int, panel: str) -> str:
    """Such as ``00-branin-hoo-1-1.png``."""
    slug = re.sub(r"[^a-z0-9]+", "-", panel.lower()).strip("-")
    return f"{index:02d}-{slug or 'panel'}.png"


def picture(
    shape: tuple[int, int], size: tuple[float, float], draw: Callable[[list[Axes]], None], title: str = ""
) -> bytes:
    """A PNG file of ``rows x columns`` axes, which ``draw`` fills, with one legend for all below them."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    file = io.BytesIO()
    with rc_context(THEME):
        figure = Figure(figsize=size, layout="constrained")
        axes = list(figure.subplots(*shape, squeeze=False).flat)
        draw(axes)
        legend = {label: line for axis in axes for line, label in zip(*axis.get_legend_handles_labels(), strict=True)}
        figure.suptitle(title)
        figure.legend(legend.values(), legend, fontsize=8, loc="outside lower center", ncols=6)
        figure.savefig(file, format="png", dpi=120)
    return file.getvalue()


def draw_panel(panel: Panel, traces: pd.DataFrame) -> bytes:
    """A PNG file of a panel's regret by round, given the traces of the panel."""
    from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter

    def draw(axes: list[Axes]) -> None:
        panel.draw(traces, axes)
        for axis in axes:
            axis.set_xlabel(panel.unit)
            low, high = axis.xaxis.get_view_interval()
            if axis.get_xscale() != "log":
                axis.xaxis.set_major_locator(MaxNLocator(integer=True))
                continue
            # Few plain numbers; within a decade powers of ten are too few.
            axis.xaxis.set_major_locator(LogLocator(numticks=7) if high >= 10.0 * low else MaxNLocator(5))
            axis.xaxis.set_major_formatter("{x:g}")
            axis.xaxis.set_minor_formatter(NullFormatter())

    return picture((1, 2), (9.2, 3.4), draw, plain_text(panel.name))


def band(
    axis: Axes, at: np.ndarray, values: np.ndarray, label: str, look: dict[str, Any], confidence: float | None = None
) -> None:
    """Draw the mean of ``trials x rounds`` ``at`` these rounds, with the interval of :func:`mean_interval`."""
    mean, low, high = mean_interval(values, confidence)
    axis.plot(at, mean, label=plain_text(label), **look)
    axis.fill_between(at, low, high, color=look["color"], alpha=0.15, lw=0)


def values_of(traces: pd.DataFrame, labels: Sequence[str], trials: int, column: str) -> Mapping[str, np.ndarray]:
    """A column of the traces of a panel by label, ``trials x rows``."""
    by_label = {label: traces.loc[traces["method"] == label, column] for label in labels}
    return {label: of.to_numpy(dtype=float).reshape(trials, -1) for label, of in by_label.items()}


def looks_of(labels: Sequence[str]) -> dict[str, dict[str, Any]]:
    return {label: {"color": f"C{i % 10}", "linestyle": DASHES[i // 10 % 4]} for i, label in enumerate(labels)}


def plain_text(label: str) -> str:
    """Escape a label for matplotlib, which reads $ as mathematics and hides labels that begin with _."""
    plain = label.replace("$", r"\$")
    return f" {plain}" if plain.startswith("_") else plain
