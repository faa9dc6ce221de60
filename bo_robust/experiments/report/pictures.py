"""Pictures: one by one as SVG in a data URI, or together in a PNG file."""

import base64
import io
import textwrap
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
Curves = Mapping[str, np.ndarray]
INK = "black"
THEME: Any = {
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.alpha": 0.3,
    "font.size": 9.0,
    "axes.titlesize": 10.0,
    "lines.linewidth": 1.4,
    # The same ids every time, so that the same run gives the same page.
    "svg.hashsalt": "bo-robust",
}
# Line styles of the first ten labels, the next ten, ..., and the nearest that CSS has.
DASHES = {"-": "solid", "--": "dashed", ":": "dotted", "-.": "double"}

LETTERS = 14.0  # of a note, per inch


@dataclass(frozen=True)
class Picture:
    """One pair of axes."""

    title: str
    draw: Callable[[Axes], Any]  # Draws it
    description: str  # Says in words what is to be seen
    caption: str  # Explains it
    size: tuple[float, float] = (4.6, 3.1)  # Width and height in inches. A phone shows wide pictures smaller.

    @property
    def data_uri(self) -> str:
        """The picture as SVG, for the ``src`` of an ``<img>``."""
        content = _drawn([[("", self)]], "svg", metadata={"Date": None})
        return f"data:image/svg+xml;base64,{base64.b64encode(content).decode()}"


def png_bytes(rows: Sequence[Sequence[tuple[str, Picture]]], note: str = "") -> bytes:
    """Rows of pictures, each below a heading, as one PNG file, with one legend and a note below them."""
    width = max(sum(picture.size[0] for _, picture in row) for row in rows)
    dpi = 120 if width <= 12 else 80  # with many panels: fewer pixels
    return _drawn(rows, "png", note, legend=True, dpi=dpi)


def _drawn(
    rows: Sequence[Sequence[tuple[str, Picture]]], form: str, note: str = "", legend: bool = False, **options: Any
) -> bytes:
    columns, heights = max(map(len, rows)), [max(picture.size[1] for _, picture in row) for row in rows]
    size = (columns * max(picture.size[0] for row in rows for _, picture in row), sum(heights) + 0.6 * legend)
    file = io.BytesIO()
    with plt.rc_context(THEME):
        figure, axes = plt.subplots(
            len(rows), columns, figsize=size, squeeze=False, layout="constrained", height_ratios=heights
        )
        try:
            named: dict[str, Any] = {}
            for row, places in zip(rows, axes, strict=True):
                for axis in places[len(row) :]:
                    axis.set_visible(False)
                for (heading, picture), axis in zip(row, places, strict=False):
                    picture.draw(axis)
                    axis.set_title("\n".join(plain_text(line) for line in (heading, picture.title) if line))
                    named |= {label: handle for handle, label in zip(*axis.get_legend_handles_labels(), strict=True)}
            if legend and named:
                place: Any = {"fontsize": 8, "loc": "outside lower center", "ncols": max(3, 2 * columns)}
                figure.legend(named.values(), named, **place)
            if note:
                figure.supxlabel(textwrap.fill(note, round(LETTERS * size[0])), fontsize=8)
            figure.savefig(file, format=form, **options)
        finally:
            plt.close(figure)
    return file.getvalue()


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


def curves_picture(
    title: str,
    panel: str,
    curves: Curves,
    looks: Looks,
    caption: str,
    *,
    log_rounds: bool = False,
    bands: Mapping[str, tuple[np.ndarray, np.ndarray]] | None = None,
    dashed: Curves | None = None,
    dotted: Curves | None = None,
    line_at: float | None = None,
    y: Callable[[Axes], Any] = lambda axis: None,
) -> Picture:
    """Draw one curve by label against the round. The description ends with their last values, smallest first.

    ``curves``, ``bands``, ``dashed`` and ``dotted`` hold a value for each of the rounds 0, 1, ... by label, or, on a
    logarithmic axis, of the rounds 1, 2, ..., of which at most 200 are drawn. ``line_at`` is the height of a dotted
    line. ``y`` sets up the y axis.
    """

    def places(values: np.ndarray) -> np.ndarray:
        count = len(values)
        if not log_rounds:
            return np.arange(count)
        return np.unique(np.round(np.geomspace(1, count, min(count, 200))).astype(int)) - 1

    def draw(axis: Axes) -> None:
        first = int(log_rounds)
        if line_at is not None:
            axis.axhline(line_at, color=INK, linestyle=":", linewidth=1.0)
        for label, values in curves.items():
            at = places(values)
            axis.plot(at + first, values[at], label=plain_text(label), **looks[label])
            if bands:
                low, high = bands[label]
                axis.fill_between(at + first, low[at], high[at], color=looks[label]["color"], alpha=0.15, lw=0)
        for style, more in (("--", dashed), (":", dotted)):
            for label, values in (more or {}).items():
                at = places(values)
                axis.plot(at + first, values[at], color=looks[label]["color"], linestyle=style)
        rounds_axis(axis, log_rounds)
        y(axis)

    last = sorted((float(values[-1]), label) for label, values in curves.items())
    words = ", ".join(f"{label} {value:.3g}" for value, label in last)
    return Picture(title, draw, f"{title} of {panel} against the round. At the end: {words}.", caption)


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
