"""Dictionary sizes against the effective dimension of the arms pulled."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes

from bo_robust.algorithms import ALGORITHMS
from bo_robust.experiments.config import PanelConfig
from bo_robust.experiments.report.pictures import INK, Looks, Picture, from_zero, marks, rounds_axis
from bo_robust.experiments.results import RunResults
from bo_robust.experiments.traces import DICTIONARY_COLUMNS


def dictionaries(run: RunResults, panel: PanelConfig, looks: Looks) -> dict[str, Any] | None:
    """Numbers and pictures of a panel's algorithms that keep a dictionary; None if there are none."""
    labels = [one.label for one in panel.algorithms if "dictionary" in ALGORITHMS[one.name].records]
    if not labels:
        return None
    sizes, estimates = (run.curves(panel, column) for column in DICTIONARY_COLUMNS)
    found = {label: _recorded(run, panel, label, sizes[label].mean(0), estimates[label].mean(0)) for label in labels}
    ends = "; ".join(
        f"{label} |S| {one['size'][-1]:.4g}, d_eff estimated {one['estimate'][-1]:.4g}"
        + ("" if one["final"] is None else f", exact {one['final']:.4g}")
        for label, one in found.items()
    )
    by_round = f"Dictionary size and effective dimension by round. At the end: {ends}."
    against = f"Dictionary size against effective dimension. At the end: {ends}."
    return {
        "found": found,
        "pictures": [
            Picture(lambda axis: _by_round(axis, found, looks), by_round),
            Picture(lambda axis: _against(axis, found, looks), against),
        ],
        "looks": {label: looks[label] for label in found},
        "all_exact": all(one["final"] is not None for one in found.values()),
    }


def _recorded(
    run: RunResults, panel: PanelConfig, label: str, size: np.ndarray, estimate: np.ndarray
) -> dict[str, Any]:
    """What was recorded of one algorithm, as means over trials; ``size`` |S| and ``estimate`` of d_eff are by round.

    ``exact`` is d_eff at ``rounds``; ``final`` is d_eff after the last round, or None where too many distinct arms were
    pulled. ``distinct`` is the number of distinct arms, ``ratio`` is |S| / d_eff after the last round.
    """
    recorded, rows = run.metadata[panel.name][label]["dictionary"], run.rows(panel.name, label)
    rounds, exact = np.array(recorded["rounds"], dtype=int), [np.mean(of) for of in recorded["effective_dimension"]]
    final = exact[-1] if len(rounds) and rounds[-1] == panel.horizon else None
    over = estimate[-1] if final is None else final
    return {
        "size": size,
        "estimate": estimate,
        "rounds": rounds,
        "exact": np.array(exact),
        "final": final,
        "distinct": rows[rows["ok"]].groupby("trial")["arm"].nunique().sum() / panel.trials,
        "ratio": size[-1] / over if over > 0.0 else None,
    }


def _by_round(axis: Axes, found: dict[str, dict[str, Any]], looks: Looks) -> None:
    for label, one in found.items():
        colour, rounds = looks[label]["color"], marks(len(one["size"]))
        axis.plot(rounds, one["size"][rounds - 1], color=colour)
        axis.plot(rounds, one["estimate"][rounds - 1], color=colour, linestyle="--")
        axis.plot(one["rounds"], one["exact"], color=colour, marker="o", markersize=3.5, linestyle="none")
    from_zero(axis)
    rounds_axis(axis, log=True)
    axis.set_title("|S| (solid), d_eff estimated (dashed), exact (dots)")


def _against(axis: Axes, found: dict[str, dict[str, Any]], looks: Looks) -> None:
    for label, one in found.items():
        colour, rounds, size = looks[label]["color"], marks(len(one["size"])), one["size"]
        axis.plot(one["estimate"][rounds - 1], size[rounds - 1], color=colour)
        axis.plot(one["exact"], size[one["rounds"] - 1], color=colour, marker="o", markersize=3.5, linestyle="none")
    end = min(axis.get_xlim()[1], axis.get_ylim()[1])
    axis.plot([0.0, end], [0.0, end], color=INK, linestyle=":", linewidth=1.0)
    axis.set_xlim(left=0.0)
    from_zero(axis)
    axis.set_xlabel("d_eff")
    axis.set_title("|S| against d_eff")
