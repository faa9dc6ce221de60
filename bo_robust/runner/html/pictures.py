"""Pictures as inline SVG whose text and lines take the page's colours, light or dark."""

from __future__ import annotations

import io
import itertools
import re
from collections.abc import Callable, Sequence
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.ticker import MaxNLocator

from bo_robust.runner.html.elements import items, text
from bo_robust.runner.plot import STYLES

__all__ = ["legend", "number_ids", "picture", "rounds_axis", "scale_for", "styles"]

# Colours that stand for the page's own, and are replaced by them in the SVG.
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
    "svg.hashsalt": "bo-robust",
}
DASHES = dict(zip(STYLES, ("", "6 3", "2 3", "6 3 2 3"), strict=True))
NO_METADATA = dict.fromkeys(("Creator", "Date", "Format", "Type"))


def picture(draw: Callable[[Axes], Any], alt: str, size: tuple[float, float] = (4.6, 3.1)) -> str:
    """Draw on one pair of axes; markup.

    Args:
        draw: Takes the axes.
        alt: What is to be seen, in words.
        size: Width and height in inches; wider ones are smaller on a phone.
    """
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
    svg = buffer.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<!--.*?-->|<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    head, body = re.match(r"<svg[^>]*>", svg), re.sub(r"^<svg[^>]*>", "", svg)
    assert head is not None
    view = re.search(r'viewBox="[^"]*"', head.group())
    assert view is not None
    body = body.replace("xlink:href", "href").replace("'DejaVu Sans'", "system-ui").replace(GRID, "var(--grid)")
    body = re.sub(rf"{INK}|#000000", "currentColor", body)
    body = "\n".join(line.strip() for line in body.splitlines() if line.strip())
    return f'<svg {view.group()} role="img" aria-label="{text(alt)}">{body}'


def number_ids(page: str) -> str:
    """The page with the ids inside of its pictures made unique."""
    count = itertools.count(1)

    def renamed(match: re.Match[str]) -> str:
        prefix = f"p{next(count)}-"
        svg = re.sub(r'(<[^>]*?\s)id="', rf'\1id="{prefix}', match.group())
        return svg.replace("url(#", f"url(#{prefix}").replace('href="#', f'href="#{prefix}')

    return re.sub(r"<svg .*?</svg>", renamed, page, flags=re.DOTALL)


def styles(labels: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Colour and line style of every label, those of the pictures of ``bo-robust plot``."""
    return {
        label: {"color": f"C{i % 10}", "linestyle": STYLES[i // 10 % len(STYLES)]} for i, label in enumerate(labels)
    }


def legend(looks: dict[str, dict[str, Any]]) -> str:
    """Which line is whose, as a list of markup."""
    lines = []
    for label, look in looks.items():
        stroke = "currentColor" if look["color"] == INK else to_hex(look["color"])
        dashes = DASHES[look["linestyle"]]
        lines.append(
            f'<span class="swatch" aria-hidden="true"><svg viewBox="0 0 28 8"><line x1="0" y1="4" x2="28" y2="4" '
            f'stroke="{stroke}" stroke-width="2.5" stroke-dasharray="{dashes}"></line></svg></span>{text(label)}'
        )
    return items(lines, "legend keys")


def rounds_axis(axis: Axes, log: bool = False) -> None:
    """Rounds from left to right, in plain numbers."""
    axis.set_xlabel("round")
    if log:
        axis.set_xscale("log")
        axis.set_xlim(left=0.9)
        axis.xaxis.set_major_formatter("{x:g}")
        axis.xaxis.set_minor_formatter("")
    else:
        axis.xaxis.set_major_locator(MaxNLocator(integer=True))


def scale_for(axis: Axes, values: np.ndarray, ratio: float = 30.0) -> None:
    """A logarithmic y axis where positive values differ by more than ``ratio``, else one from zero."""
    positive = values[np.isfinite(values) & (values > 0.0)]
    if positive.size and positive.max() > ratio * positive.min():
        axis.set_yscale("log")
    else:
        axis.set_ylim(bottom=0.0)
