"""How f varies over the environments at the designs a value-at-risk run recommends."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from bo_robust.experiments.config import ValueAtRiskPanelConfig
from bo_robust.experiments.report.pictures import INK, Looks, Picture
from bo_robust.experiments.results import RunResults

BEST = "best design found"
# Points of a curve. The lower tail is drawn up to TAIL times alpha. The axis begins where CUT_OFF of the probability
# lies below.
DRAWN, TAIL, CUT_OFF = 300, 3.0, 1e-3


def environments(run: RunResults, panel: ValueAtRiskPanelConfig, looks: Looks) -> dict[str, Any]:
    """Numbers and pictures of every method's median repetition, and of the best design found."""
    known, found = run.metadata[panel.name][panel.labels[0]], {}
    for label in panel.labels:
        rows = run.rows(panel.name, label)
        last = rows[rows["round"] == panel.rounds].sort_values("regret", kind="stable")
        # The lower median, so that it is one of the repetitions.
        median = last.iloc[(len(last) - 1) // 2]
        value = known["value"] - median["regret"]
        found[label] = _spread(median["recommended"], value, median["values"], known["probabilities"])
        found[label]["repetition"] = median["repetition"]
    found[BEST] = _spread(known["x"], known["value"], known["values"], known["probabilities"])
    looks = {**looks, BEST: {"color": INK, "linestyle": "--"}}
    at_risk = ", ".join(f"{label} {one['value']:.4g}" for label, one in found.items())
    pictures = []
    for part, upto in (("", 1.0), (", the lower tail", min(1.0, TAIL * known["alpha"]))):
        said = f"Distribution of f over the environments of {panel.name}{part}. Values at risk: {at_risk}."
        pictures.append(
            Picture(partial(_distribution, found=found, looks=looks, alpha=known["alpha"], upto=upto), said)
        )
    return {"found": found, "pictures": pictures, "looks": looks}


def _spread(x: Sequence[float], value: float, f: Sequence[float], probabilities: Sequence[float]) -> dict[str, Any]:
    """f at a design ``x`` over the points of Z in rising order, its distribution function and mean."""
    values, p = np.array(f, dtype=float), np.array(probabilities)
    order = values.argsort(kind="stable")
    # Points of probability 0 do not belong to the distribution.
    order = order[p[order] > 0.0]
    values, p = values[order], p[order]
    return {
        "repetition": None,
        "x": x,
        "value": value,
        "f": values,
        "below": np.minimum(p.cumsum(), 1.0),
        "mean": values @ p,
    }


def _distribution(axis: Axes, found: Mapping[str, Any], looks: Looks, alpha: float, upto: float) -> None:
    begin = []
    for label, one in found.items():
        below, last = one["below"], len(one["below"]) - 1
        drawn = np.unique(np.searchsorted(below, np.linspace(0.0, upto, DRAWN)).clip(max=last))
        f, share = one["f"][drawn], below[drawn]
        axis.step(np.append(f[0], f), np.append(0.0, share), where="post", **looks[label])
        begin.append(one["f"][np.searchsorted(below, CUT_OFF).clip(max=last)])
        axis.plot([one["value"]], [alpha], marker="o", markersize=4.0, color=looks[label]["color"])
    axis.axhline(alpha, color=INK, linestyle=":", linewidth=1.0)
    end = axis.get_xlim()[1]
    axis.set_xlim(min(begin) - 0.05 * (end - min(begin)), end)
    axis.set_ylim(0.0, 1.02 * upto)
    axis.set_xlabel("f")
    axis.set_title("probability that f is at most this" + (", lower tail" if upto < 1.0 else ""))
