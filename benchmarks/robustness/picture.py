"""Paired differences to ``SingleTaskGP`` after each evaluation, on clean and on contaminated functions."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np

from benchmarks.robustness.summary import MAIN, PLAIN, reported
from bo_robust.experiments.summary import log_regret

__all__ = ["draw", "gaps"]

# Method, label and style, in the order of the legend.
SHOWN = {
    "RobustGP": ("RobustGP", "tab:red", "-"),
    "RobustGP + replicates": ("RobustGP, with suggest_replicates", "tab:orange", "-"),
    "Winsorised": ("rewards Winsorised", "tab:blue", "-"),
    "RCGP": ("RCGP", "tab:purple", "-"),
    "known": ("wrong readings known", "black", ":"),
}


def gaps(ours: dict[str, Any], theirs: dict[str, Any]) -> dict[int, float]:
    """log10 regret of one row less that of another, by the evaluations after which both recommended."""
    logs = [{t: float(log_regret(regret)) for t, regret in row["curve"]} for row in (ours, theirs)]
    return {t: logs[0][t] - logs[1][t] for t in sorted(logs[0].keys() & logs[1].keys())}


def draw(rows: list[dict[str, Any]], path: Path) -> None:
    """Means over pairs of a problem and a seed, with 95 % intervals; a method of fewer than three pairs is left out."""
    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(1, len(MAIN), sharey=True, figsize=(12, 3.9), layout="constrained")
    for axis, title, regime in zip(axes, ("no wrong readings", "10 % wrong", "30 % wrong"), MAIN, strict=True):
        table = reported(rows, [regime])
        for shift, (method, (label, colour, line)) in enumerate(SHOWN.items()):
            parts: dict[int, dict[tuple[str, int], list[float]]] = defaultdict(lambda: defaultdict(list))
            for problem, _, seed in table[method].keys() & table[PLAIN].keys():
                pair = problem, regime, seed
                for t, gap in gaps(table[method][pair], table[PLAIN][pair]).items():
                    parts[t][problem, seed].append(gap)
            at = [t for t in sorted(parts) if len(parts[t]) > 2 and t % 5 == 0]
            means = [np.array([np.mean(part) for part in parts[t].values()]) for t in at]
            middle = [mean.mean() for mean in means]
            reach = [1.96 * mean.std(ddof=1) / len(mean) ** 0.5 for mean in means]
            places = np.array(at) + 0.4 * (shift - 2)  # beside one another
            if at:
                shown = f"{label} ({len(table[method].keys() & table['plain'].keys())} pairs)"
                axis.errorbar(places, middle, reach, label=shown, color=colour, ls=line, capsize=2, lw=1.5)
        axis.axhline(0.0, color="tab:gray", lw=1)
        axis.set(title=title, xlabel="evaluations")
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("log10 regret less that of SingleTaskGP")
    legend = dict(zip(*reversed(axes[0].get_legend_handles_labels()), strict=True))
    figure.legend(legend.values(), legend, loc="outside lower center", ncols=max(len(legend), 1), fontsize=8)
    figure.savefig(path, dpi=130)
    plt.close(figure)
