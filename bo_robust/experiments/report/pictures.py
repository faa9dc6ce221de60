"""Pictures: one by one as SVG in a data URI, or together in a PNG file."""

import base64
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib

# Before pyplot is imported: no window is wanted.
matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.colors import to_hex
from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter

# Keyword arguments of ``Axes.plot`` by label.
Looks = dict[str, dict[str, Any]]
INK = "black"
THEME: Any = {
    "axes.spines.top": False,
    "axes.spines.right": False,
    "font.size": 9.0,
    "axes.titlesize": 10.0,
    "lines.linewidth": 1.4,
    # The same ids every time, so that the same run gives the same page.
    "svg.hashsalt": "bo-robust",
}
# Line styles of the first ten labels, the next ten, ..., and the nearest that CSS has.
DASHES = {"-": "solid", "--": "dashed", ":": "dotted", "-.": "double"}
# A y axis is logarithmic where the largest positive value is more than so many times the smallest.
WIDE = 30.0


@dataclass(frozen=True)
class Picture:
    """One pair of axes."""

    draw: Callable[[Axes], Any]  # Draws it
    description: str  # Says in words what is to be seen
    size: tuple[float, float] = (4.6, 3.1)  # Width and height in inches. A phone shows wide pictures smaller.
    heading: str = ""  # Stands above it

    @property
    def data_uri(self) -> str:
        """The picture as SVG, for the ``src`` of an ``<img>``."""
        with plt.rc_context(THEME):
            figure, axis = plt.subplots(figsize=self.size, layout="constrained")
            try:
                self.draw(axis)
                axis.grid(alpha=0.3)
                axis.set_axisbelow(True)
                file = io.BytesIO()
                figure.savefig(file, format="svg", metadata={"Date": None})
            finally:
                plt.close(figure)
        return f"data:image/svg+xml;base64,{base64.b64encode(file.getvalue()).decode()}"


def png_bytes(rows: Sequence[Sequence[Picture]], title: str = "", note: str = "") -> bytes:
    """Rows of pictures as one PNG file, with one legend and a note below them."""
    columns, heights = max(map(len, rows)), [max(picture.size[1] for picture in row) for row in rows]
    size = (columns * max(picture.size[0] for row in rows for picture in row), sum(heights) + 0.6)
    figure, axes = plt.subplots(
        len(rows), columns, figsize=size, squeeze=False, layout="constrained", height_ratios=heights
    )
    try:
        named: dict[str, Any] = {}
        for row, places in zip(rows, axes, strict=True):
            for axis in places[len(row) :]:
                axis.set_visible(False)
            for picture, axis in zip(row, places, strict=False):
                picture.draw(axis)
                axis.grid(alpha=0.3)
                lines = [plain_text(picture.heading), axis.get_title()]
                axis.set_title("\n".join(line for line in lines if line), fontsize=9)
                named |= {label: handle for handle, label in zip(*axis.get_legend_handles_labels(), strict=True)}
        if named:
            figure.legend(named.values(), named, fontsize=8, loc="outside lower center", ncols=max(3, 2 * columns))
        figure.suptitle(plain_text(title), fontsize=11)
        figure.supxlabel(note, fontsize=8)
        file = io.BytesIO()
        dpi = 120 if size[0] <= 12 else 80  # with many panels: fewer pixels
        figure.savefig(file, dpi=dpi, format="png")
        return file.getvalue()
    finally:
        plt.close(figure)


def looks_of(labels: Sequence[str]) -> Looks:
    """Colour and line style of every label."""
    styles = list(DASHES)
    return {label: {"color": f"C{i % 10}", "linestyle": styles[i // 10 % 4]} for i, label in enumerate(labels)}


def legend(looks: Looks) -> list[tuple[str, str, str]]:
    """Label, colour and line style of every line, as CSS names them."""
    return [(label, to_hex(look["color"]), DASHES[look["linestyle"]]) for label, look in looks.items()]


def plain_text(label: str) -> str:
    """Escape a label for matplotlib, which reads $ as mathematics and hides labels that begin with _."""
    plain = label.replace("$", r"\$")
    return f" {plain}" if plain.startswith("_") else plain


def marks(horizon: int) -> np.ndarray:
    """At most 200 rounds to draw on a logarithmic axis, from 1 to the horizon."""
    return np.unique(np.round(np.geomspace(1, horizon, min(horizon, 200))).astype(int))


def curves_picture(
    title: str,
    description: str,
    curves: Mapping[str, np.ndarray],
    looks: Looks,
    *,
    rounds: np.ndarray | None = None,
    bands: Mapping[str, tuple[np.ndarray, np.ndarray]] | None = None,
    line_at: float | None = None,
    log_rounds: bool = False,
    y: Callable[[Axes], Any] = lambda axis: None,
) -> Picture:
    """Draw one curve by label against the round. The description ends with their last values, smallest first.

    ``curves`` and ``bands`` hold values by label, one for each of ``rounds`` (by default 0, 1, ...). ``line_at`` is the
    height of a dotted line. ``y`` sets up the y axis.
    """

    def draw(axis: Axes) -> None:
        if line_at is not None:
            axis.axhline(line_at, color=INK, linestyle=":", linewidth=1.0)
        for label, values in curves.items():
            at = np.arange(len(values)) if rounds is None else rounds
            axis.plot(at, values, label=plain_text(label), **looks[label])
            if bands:
                axis.fill_between(at, *bands[label], color=looks[label]["color"], alpha=0.15, lw=0)
        rounds_axis(axis, log=log_rounds)
        y(axis)
        axis.set_title(title)

    last = {label: float(values[-1]) for label, values in curves.items()}
    return Picture(draw, f"{description} {at_the_end(last)}")


def at_the_end(last: Mapping[str, float]) -> str:
    """Last values of curves, smallest first, in words for those who do not see the picture."""
    rising = sorted((value, label) for label, value in last.items())
    return "At the end: " + ", ".join(f"{label} {value:.3g}" for value, label in rising) + "."


def rounds_axis(axis: Axes, log: bool = False) -> None:
    """Show rounds from left to right, in plain numbers."""
    axis.set_xlabel("round")
    if log:
        axis.set_xscale("log")
        axis.set_xlim(left=0.9)
        plain_log(axis.xaxis)
    else:
        axis.xaxis.set_major_locator(MaxNLocator(integer=True))


def plain_log(axis: Axis) -> None:
    """Few plain numbers on a logarithmic axis, which must be drawn: within a decade powers of ten are too few."""
    low, high = axis.get_view_interval()
    axis.set_major_locator(LogLocator(numticks=7) if high >= 10.0 * low else MaxNLocator(5))
    axis.set_major_formatter("{x:g}")
    axis.set_minor_formatter(NullFormatter())


def from_zero(axis: Axes) -> None:
    """Begin the y axis at zero."""
    axis.set_ylim(bottom=0.0)


def log_if_wide(axis: Axes) -> None:
    """Make the y axis logarithmic where curves span more than a factor :data:`WIDE`, else begin it at zero."""
    values = np.concatenate([np.asarray(line.get_ydata(), dtype=float) for line in axis.lines])
    positive = values[np.isfinite(values) & (values > 0.0)]
    if positive.size and positive.max() > WIDE * positive.min():
        axis.set_yscale("log")
    else:
        from_zero(axis)
