"""Pictures as inline SVG whose text and lines take the page's colours, light or dark."""

import io
import itertools
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import matplotlib

# Before pyplot is imported: no window is wanted.
matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.ticker import MaxNLocator

# Keyword arguments of ``Axes.plot`` by label.
Looks = dict[str, dict[str, Any]]
# Colours that stand for the page's own; the page's colours replace them in the SVG.
INK, GRID = "#010203", "#040506"
THEME: Any = {
    "text.color": INK,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.color": INK,
    "ytick.color": INK,
    "grid.color": GRID,
    "font.size": 9.0,
    "axes.titlesize": 10.0,
    "lines.linewidth": 1.4,
    "axes.facecolor": "none",
    "legend.facecolor": "none",
    "svg.fonttype": "none",  # text stays text
    # The same ids every time, so that the same run gives the same page.
    "svg.hashsalt": "bo-robust",
}
# What SVG calls matplotlib's line styles.
DASHES = {"-": "", "--": "6 3", ":": "2 3", "-.": "6 3 2 3"}
NO_METADATA = dict.fromkeys(("Creator", "Date", "Format", "Type"))
# A y axis is logarithmic where the largest positive value is more than so many times the smallest.
WIDE = 30.0


@dataclass(frozen=True)
class Picture:
    """A drawn picture; ``description`` says in words what is to be seen, ``heading`` stands above it.

    ``view`` is the attribute ``viewBox`` of its ``<svg>``, ``body`` the inside. Matplotlib wrote the body and escaped
    all text in it.
    """

    description: str
    view: str
    body: Markup
    heading: str = ""


def picture(
    draw: Callable[[Axes], Any], description: str, size: tuple[float, float] = (4.6, 3.1), heading: str = ""
) -> Picture:
    """Draw on one pair of axes; ``size`` is width and height in inches. A phone shows wide pictures smaller."""
    with plt.rc_context(THEME):
        shape, axis = plt.subplots(figsize=size, layout="constrained")
        try:
            draw(axis)
            axis.grid(alpha=1.0, linewidth=0.6)
            axis.set_axisbelow(True)
            buffer = io.StringIO()
            shape.savefig(buffer, format="svg", transparent=True, metadata=NO_METADATA)
        finally:
            plt.close(shape)
    svg = re.sub(r"<!--.*?-->|<metadata>.*?</metadata>", "", buffer.getvalue(), flags=re.DOTALL)
    found = re.search(r'<svg[^>]*viewBox="([^"]*)"[^>]*>(.*)</svg>', svg, flags=re.DOTALL)
    assert found is not None
    view, body = found.groups()
    body = body.replace("xlink:href", "href").replace("'DejaVu Sans'", "system-ui").replace(GRID, "var(--grid)")
    body = re.sub(rf"{INK}|#000000", "currentColor", body)
    body = "\n".join(line.strip() for line in body.splitlines() if line.strip())
    return Picture(description, view, Markup(body), heading)


def curves_picture(
    title: str,
    description: str,
    curves: Mapping[str, np.ndarray],
    looks: Looks,
    *,
    rounds: np.ndarray | None = None,
    bands: Mapping[str, tuple[np.ndarray, np.ndarray]] | None = None,
    rule: float | None = None,
    log_rounds: bool = False,
    y: Callable[[Axes], Any] = lambda axis: None,
) -> Picture:
    """Draw one curve by label against the round. The description ends with their last values, smallest first.

    ``curves`` and ``bands`` hold values by label, one for each of ``rounds`` (by default 0, 1, ...). A ``rule`` is a
    dotted horizontal line at that height. ``y`` sets up the y axis.
    """

    def draw(axis: Axes) -> None:
        if rule is not None:
            axis.axhline(rule, color=INK, linestyle=":", linewidth=1.0)
        for label, values in curves.items():
            at = np.arange(len(values)) if rounds is None else rounds
            axis.plot(at, values, **looks[label])
            if bands:
                axis.fill_between(at, *bands[label], color=looks[label]["color"], alpha=0.15, lw=0)
        rounds_axis(axis, log=log_rounds)
        y(axis)
        axis.set_title(title)

    last = {label: float(values[-1]) for label, values in curves.items()}
    return picture(draw, f"{description} {at_the_end(last)}")


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
        axis.xaxis.set_major_formatter("{x:g}")
        axis.xaxis.set_minor_formatter("")
    else:
        axis.xaxis.set_major_locator(MaxNLocator(integer=True))


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


def legend(looks: Looks) -> list[tuple[str, str, str]]:
    """Label, stroke and dashes of every line, as SVG names them."""
    return [
        (label, "currentColor" if look["color"] == INK else to_hex(look["color"]), DASHES[look["linestyle"]])
        for label, look in looks.items()
    ]


def number_ids(page: str) -> str:
    """Make the ids in a page's pictures unique by numbering the pictures."""
    count = itertools.count(1)

    def renamed(match: re.Match[str]) -> str:
        prefix = f"p{next(count)}-"
        svg = re.sub(r'(<[^>]*?\s)id="', rf'\1id="{prefix}', match.group())
        return svg.replace("url(#", f"url(#{prefix}").replace('href="#', f'href="#{prefix}')

    return re.sub(r"<svg .*?</svg>", renamed, page, flags=re.DOTALL)
