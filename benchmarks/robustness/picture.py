"""Paired differences to ``SingleTaskGP`` after each evaluation, on clean and on contaminated functions."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from benchmarks.pictures import picture
from benchmarks.robustness.grid import MAIN
from benchmarks.robustness.summary import PLAIN, REPORTED, Row
from benchmarks.statistics import log_regret

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Method, label and style, in the order of the legend.
SHOWN = {
    "RobustGP": ("RobustGP", "tab:red", "-"),
    "RobustGP + replicates": ("RobustGP, with suggest_replicates", "tab:orange", "-"),
    "Winsorised": ("rewards Winsorised", "tab:blue", "-"),
    "RCGP": ("RCGP", "tab:purple", "-"),
    "known": ("wrong readings known", "black", ":"),
}


def curves(rows: list[Row]) -> pd.DataFrame:
    """log10 regret: a line for an evaluation, problem and seed, a column for a method."""
    cell = ["evaluation", "problem", "seed", "method"]
    long = [
        (t, row["problem"], row["seed"], row["method"], float(log_regret(regret)))
        for row in rows
        for t, regret in row["curve"]
        if t % 5 == 0
    ]
    return pd.DataFrame(long, columns=[*cell, "log regret"]).set_index(cell)["log regret"].unstack("method")


def draw(rows: list[Row], path: Path) -> None:
    """Means over pairs of a problem and a seed, with 95 % intervals; a method of fewer than three pairs is left out."""

    def fill(axes: list[Axes]) -> None:
        for axis, title, regime in zip(axes, ("no wrong readings", "10 % wrong", "30 % wrong"), MAIN, strict=True):
            if axis is not axes[0]:
                axis.sharey(axes[0])
            _regime(axis, curves([row for row in rows if row["regime"] == regime and row["problem"] in REPORTED]))
            axis.set(title=title, xlabel="evaluations")
        axes[0].set_ylabel("log10 regret minus that of SingleTaskGP")

    path.write_bytes(picture((1, len(MAIN)), (12.0, 3.9), fill))


def _regime(axis: Axes, table: pd.DataFrame) -> None:
    for shift, (method, (label, color, line)) in enumerate(SHOWN.items()):
        if method not in table:
            continue
        gaps = (table[method] - table[PLAIN]).dropna()
        found = gaps.groupby("evaluation").agg(["mean", "std", "count"])
        found = found[found["count"] > 2]
        if len(found):
            pairs = len(gaps.groupby(["problem", "seed"]))
            places = found.index + 0.4 * (shift - 2)  # beside one another
            reach = 1.96 * found["std"] / found["count"] ** 0.5
            shown: Any = {"label": f"{label} ({pairs} pairs)", "color": color, "ls": line}
            axis.errorbar(places, found["mean"], reach, capsize=2, lw=1.5, **shown)
    axis.axhline(0.0, color="tab:gray", lw=1)
