"""The picture of a panel: regret by round."""

import io
import re
from typing import Any

import pandas as pd
from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter

from bo_robust.experiments.config import Panel
from bo_robust.experiments.curves import plain_text

THEME: Any = {
    **dict.fromkeys(("axes.spines.top", "axes.spines.right"), False),
    **dict.fromkeys(("axes.grid", "axes.axisbelow"), True),
    "grid.alpha": 0.3,
    "font.size": 9.0,
    "axes.titlesize": 10.0,
    "lines.linewidth": 1.4,
}


def file_name(index: int, panel: str) -> str:
    """Such as ``00-branin-hoo-1-1.png``."""
    slug = re.sub(r"[^a-z0-9]+", "-", panel.lower()).strip("-")
    return f"{index:02d}-{slug or 'panel'}.png"


def draw_panel(panel: Panel, traces: pd.DataFrame) -> bytes:
    """A PNG file of a panel's regret by round, given the traces of the panel."""
    file = io.BytesIO()
    with rc_context(THEME):
        figure = Figure(figsize=(9.2, 3.4), layout="constrained")
        axes = figure.subplots(1, 2)
        panel.runner.draw(panel, traces, axes)
        for axis in axes:
            axis.set_xlabel(panel.runner.unit)
            low, high = axis.xaxis.get_view_interval()
            if axis.get_xscale() != "log":
                axis.xaxis.set_major_locator(MaxNLocator(integer=True))
                continue
            # Few plain numbers; within a decade powers of ten are too few.
            axis.xaxis.set_major_locator(LogLocator(numticks=7) if high >= 10.0 * low else MaxNLocator(5))
            axis.xaxis.set_major_formatter("{x:g}")
            axis.xaxis.set_minor_formatter(NullFormatter())
        figure.suptitle(plain_text(panel.name))
        handles, labels = axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, fontsize=8, loc="outside lower center", ncols=6)
        figure.savefig(file, format="png", dpi=120)
    return file.getvalue()
