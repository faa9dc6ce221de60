"""Regret against evaluations, on clean and on contaminated problems, for the README."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np

from benchmarks.robustness.contamination import CONTAMINATED
from benchmarks.robustness.problems import FUNCTIONS, make_problem
from benchmarks.robustness.split import HALVES, half_of
from benchmarks.robustness.summary import FLOOR, best_peer, by_method

__all__ = ["curve", "draw"]

SHARES = np.linspace(0.0, 1.0, 101)  # of the evaluations after the initial design, so that dimensions can be averaged
LABELS = {"plain": "SingleTaskGP", "robust": "RobustGP", "known": "outliers known"}
COLOURS = {"plain": "tab:gray", "robust": "tab:red", "known": "black"}


def curve(row: dict[str, Any]) -> np.ndarray:
    """log10 regret at every share of the evaluations after the initial design."""
    starts, regrets = np.array(row["curve"], dtype=float).T
    initial = make_problem(row["problem"]).initial
    at = initial + np.floor(SHARES * (row["evaluations"] - initial) + 1e-9)
    place = np.searchsorted(starts, at, side="right") - 1
    return np.log10(np.maximum(regrets[np.maximum(place, 0)], FLOOR))


def draw(rows: list[dict[str, Any]], acquisition: str, path: Path) -> None:
    """Means of log10 regret with bands of 1.96 standard errors over (problem, seed), of cells all methods played."""
    mpl.use("Agg")
    from matplotlib import pyplot as plt

    rows = [row for row in rows if row["acquisition"] == acquisition and row["problem"] in FUNCTIONS]
    halves = {name: [row for row in rows if half_of(row) == name] for name in HALVES}
    played = by_method(halves["report"])
    whole = {name for name, cells in played.items() if cells.keys() >= played["plain"].keys()}
    peer, _ = best_peer([row for row in halves["report"] if row["method"] in whole])  # of those that played all
    methods = list(dict.fromkeys(("plain", peer, "robust", "known")))
    figure, axes = plt.subplots(1, 2, sharey=True, figsize=(9, 3.4), layout="constrained")
    for axis, title, regimes in (
        (axes[0], "no outliers", ("none",)),
        (axes[1], "contaminated, mean over regimes", CONTAMINATED),
    ):
        table = by_method(row for row in halves["report"] if row["regime"] in regimes)
        shown = [method for method in methods if table[method]]
        common = sorted(set.intersection(*(set(table[method]) for method in shown))) if shown else []
        for method in shown:
            clusters: dict[tuple[str, int], list[np.ndarray]] = {}
            for pair in common:
                clusters.setdefault((pair[0], pair[2]), []).append(curve(table[method][pair]))
            means = np.array([np.mean(part, 0) for part in clusters.values()])
            if not len(means):
                continue
            middle = means.mean(0)
            band = 1.96 * means.std(0, ddof=1) / len(means) ** 0.5 if len(means) > 1 else 0.0 * middle
            style = {"color": COLOURS.get(method, "tab:blue"), "ls": ":" if method == "known" else "-"}
            axis.plot(100 * SHARES, 10**middle, label=LABELS.get(method, method), **style)
            axis.fill_between(
                100 * SHARES, 10 ** (middle - band), 10 ** (middle + band), color=style["color"], alpha=0.15
            )
        axis.set(title=title, xlabel="evaluations after the initial design, %", yscale="log")
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("simple regret, sd of f (geometric mean)")
    axes[0].legend()
    figure.savefig(path, dpi=130)
    plt.close(figure)
