"""Who was eliminated when, and who survived."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes

from bo_robust.experiments.config import PanelConfig
from bo_robust.experiments.figures import draw_timeline
from bo_robust.experiments.report.pictures import Picture, picture, rounds_axis
from bo_robust.experiments.summary import elimination_line


def eliminations(panel: PanelConfig, entry: dict[str, Any]) -> list[dict[str, Any]]:
    """What every algorithm that eliminates candidates found, with a timeline if a test failed."""
    found = {label: one["eliminations"] for label, one in entry["algorithms"].items() if one["eliminations"]}
    return [
        {
            "label": label,
            "line": elimination_line(of),
            "trials": of["trials"],
            "knows_true": of["true"] is not None,
            "picture": _timeline(panel, label, of) if of["eliminations"] else None,
            "candidates": {name: _candidate(name, of) for name in of["survived"]},
        }
        for label, of in found.items()
    ]


def _timeline(panel: PanelConfig, label: str, found: dict[str, Any]) -> Picture:
    names = list(found["survived"])
    record = {"candidates": names, **{key: found[key] for key in ("true", "survivors", "eliminations")}}

    def draw(axis: Axes) -> None:
        draw_timeline(axis, "", panel.horizon, record)
        rounds_axis(axis)

    said = f"Rounds in which {label} eliminated each of {len(names)} candidates. {elimination_line(found)}"
    return picture(draw, said, (5.4, 0.9 + 0.22 * len(names)))


def _candidate(name: str, found: dict[str, Any]) -> dict[str, Any]:
    """In how many trials a candidate survived, its median round of elimination, and in how many trials it is true."""
    fell = [row["round"] for row in found["eliminations"] if row["candidate"] == name and row["eliminated"]]
    return {
        "survived": found["survived"][name],
        "fell": np.median(fell) if fell else None,
        "true": found["true"] and found["true"].count(name),
    }
