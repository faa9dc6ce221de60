"""How f varies over the environments at the designs a value-at-risk run recommends."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from bo_robust.runner.html.elements import figure, number, paragraph, table, text
from bo_robust.runner.html.load import Stored
from bo_robust.runner.html.pictures import INK, legend, picture
from bo_robust.runner.robust.config import RobustPanelConfig

__all__ = ["environments"]

NOT_STORED = (
    "How f varies over the environments at the recommended design is not stored for {}: it was played before runs "
    "recorded it. Played again, it is."
)
CAPTION = (
    "Distribution of f(x, Z), without noise, over the points of Z with their probabilities, at the design recommended "
    "after the last round by the median repetition of each method ({} repetitions) and at the best design found: the "
    "probability that f is at most the value on the axis, cut off below 0.001. Dotted: alpha = {:g}; dots: values at "
    "risk. Right: the lower tail."
)
BELOW = (
    "Of the median repetition of each method, by its regret after the last round (of an even number the better one of "
    "the middle two): the recommended x, its true value at risk, and mean, smallest and largest f over the points of Z."
)
BEST = "best design found"
# Points of a curve; the tail is drawn up to so many times alpha; the axis begins where so much probability lies below.
DRAWN, TAIL, CUT_OFF = 300, 3.0, 1e-3


@dataclass(frozen=True)
class _Spread:
    """f at a design ``x`` over the points of Z, in rising order, with probabilities, and its value at risk."""

    x: list[float]
    value: float
    values: np.ndarray
    probabilities: np.ndarray
    repetition: int | None = None


def environments(stored: Stored, index: int, looks: dict[str, Any]) -> str:
    """Picture and table of one panel; says so of methods for which nothing is stored."""
    panel: RobustPanelConfig = stored.panels[index]
    known = stored.facts[index]
    found: dict[str, _Spread] = {}
    if "probabilities" in known:
        p = np.array(known["probabilities"])
        rows = stored.rows(panel.name)
        rows = rows[rows["round"] == panel.rounds]
        for method in panel.methods:
            if (one := _median(rows[rows["method"] == method.label], known["value"], p)) is not None:
                found[method.label] = one
    missing = [m.label for m in panel.methods if m.label not in found]
    said = paragraph(NOT_STORED.format(", ".join(missing))) if missing else ""
    if not found:
        return said
    found[BEST] = _spread(known["x"], known["value"], np.array(known["values"]), p)
    alpha, looks = known["alpha"], looks | {BEST: {"color": INK, "linestyle": "--"}}
    at_risk = ", ".join(f"{label} {one.value:.4g}" for label, one in found.items())
    alt = f"Distribution of f over the environments of {panel.name}{{}}. Values at risk: {at_risk}."
    pictures = [
        picture(_curves(found, looks, alpha, 1.0), alt.format("")),
        picture(_curves(found, looks, alpha, min(1.0, TAIL * alpha)), alt.format(", the lower tail")),
    ]
    caption = CAPTION.format(panel.repetitions, alpha)
    head = ["method", "repetition", "x", "value at risk", "mean", "smallest", "largest"]
    body = [_row(label, one) for label, one in found.items()]
    shown = figure(pictures, caption, legend({label: looks[label] for label in found}))
    return shown + table(f"{panel.name}: f over the environments", head, body, BELOW) + said


def _median(rows: pd.DataFrame, best: float, probabilities: np.ndarray) -> _Spread | None:
    """The median repetition of one method; None if one is from before designs were stored."""
    if not {"recommended", "values"} <= {*rows} or rows["values"].isna().any():
        return None
    row = rows.sort_values("regret", kind="stable").iloc[(len(rows) - 1) // 2]
    values = np.array(row["values"], dtype=float)
    return _spread([*row["recommended"]], best - row["regret"], values, probabilities, int(row["repetition"]))


def _spread(
    x: list[float], value: float, values: np.ndarray, probabilities: np.ndarray, repetition: int | None = None
) -> _Spread:
    order = values.argsort(kind="stable")
    order = order[probabilities[order] > 0.0]
    return _Spread(x, float(value), values[order], probabilities[order], repetition)


def _row(label: str, one: _Spread) -> list[str]:
    numbers = [one.value, float(one.values @ one.probabilities), float(one.values[0]), float(one.values[-1])]
    return [
        text(label),
        "-" if one.repetition is None else number(str(one.repetition), one.repetition),
        text("(" + ", ".join(f"{v:.4g}" for v in one.x) + ")"),
        *(number(f"{v:.4g}", v) for v in numbers),
    ]


def _curves(found: dict[str, _Spread], looks: dict[str, Any], alpha: float, upto: float) -> Any:
    def draw(axis: Axes) -> None:
        begin = []
        for label, one in found.items():
            below = np.minimum(one.probabilities.cumsum(), 1.0)
            drawn = np.unique(np.searchsorted(below, np.linspace(0.0, upto, DRAWN)).clip(max=len(below) - 1))
            f, share = one.values[drawn], below[drawn]
            axis.step(np.append(f[0], f), np.append(0.0, share), where="post", **looks[label])
            begin.append(one.values[np.searchsorted(below, CUT_OFF).clip(max=len(below) - 1)])
            axis.plot([one.value], [alpha], marker="o", markersize=4.0, color=looks[label]["color"])
        axis.axhline(alpha, color=INK, linestyle=":", linewidth=1.0)
        end = axis.get_xlim()[1]
        axis.set_xlim(min(begin) - 0.05 * (end - min(begin)), end)
        axis.set_ylim(0.0, 1.02 * upto)
        axis.set_xlabel("f")
        axis.set_title("probability that f is at most this" + (", lower tail" if upto < 1.0 else ""))

    return draw
