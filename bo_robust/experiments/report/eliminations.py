"""Who was eliminated when, and who survived."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes

from bo_robust.experiments.config import PanelConfig
from bo_robust.experiments.report.pictures import Picture, plain_text, rounds_axis
from bo_robust.experiments.summary import elimination_line

# Trials lie side by side within this share of a candidate's row.
SPREAD = 0.6


def eliminations(panel: PanelConfig, entry: dict[str, Any]) -> list[dict[str, Any]]:
    """What every algorithm that eliminates candidates found, with a timeline if a test failed."""
    found = {label: one["eliminations"] for label, one in entry["algorithms"].items() if one["eliminations"]}
    return [
        {
            "label": label,
            "line": elimination_line(of),
            "trials": of["trials"],
            "knows_true": of["true"] is not None,
            "picture": timeline(panel, label, of) if of["eliminations"] else None,
            "candidates": {name: _candidate(name, of) for name in of["survived"]},
        }
        for label, of in found.items()
    ]


def timeline(panel: PanelConfig, label: str, found: dict[str, Any]) -> Picture:
    """Which candidate was eliminated in which round, from eliminations of the summary.

    A dot is an elimination in one trial, larger the further the sum of errors was beyond its limit. A cross is a last
    survivor that failed its test and was kept. On the right stands the share of trials in which the candidate survived.
    """
    names, trials, right = list(found["survived"]), found["trials"], set(found["true"] or ())

    def draw(axis: Axes) -> None:
        for eliminated, marker, colour in ((True, "o", "C0"), (False, "x", "C3")):
            of = [row for row in found["eliminations"] if row["eliminated"] == eliminated]
            axis.scatter(
                [row["round"] for row in of],
                [names.index(row["candidate"]) + SPREAD * ((row["trial"] + 0.5) / trials - 0.5) for row in of],
                s=[12.0 * min(row["left"] / row["right"], 10.0) for row in of],
                marker=marker,
                color=colour,
                alpha=0.5 if eliminated else 1.0,
                linewidths=0 if eliminated else 1.2,
            )
        for u, count in enumerate(found["survived"].values()):
            share = f"{100 * count / trials:.0f} %"
            axis.text(1.01, u, share, transform=axis.get_yaxis_transform(), va="center", fontsize=8)
        labels = [plain_text(name) + (" (true)" if right == {name} else "") for name in names]
        axis.set_yticks(range(len(names)), labels, fontsize=8)
        axis.set_ylim(len(names) - 0.5, -0.5)
        axis.set_xlim(0, panel.horizon + 1)
        rounds_axis(axis)

    said = f"Rounds in which {label} eliminated each of {len(names)} candidates. {elimination_line(found)}"
    return Picture(draw, said, (5.4, 0.9 + 0.22 * len(names)))


def _candidate(name: str, found: dict[str, Any]) -> dict[str, Any]:
    """In how many trials a candidate survived, its median round of elimination, and in how many trials it is true."""
    fell = [row["round"] for row in found["eliminations"] if row["candidate"] == name and row["eliminated"]]
    return {
        "survived": found["survived"][name],
        "fell": np.median(fell) if fell else None,
        "true": found["true"] and found["true"].count(name),
    }
