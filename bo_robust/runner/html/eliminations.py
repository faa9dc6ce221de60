"""Who was eliminated when, and who survived."""

from __future__ import annotations

from typing import Any

import numpy as np

from bo_robust.runner.config import PanelConfig
from bo_robust.runner.eliminations import elimination_line
from bo_robust.runner.html.elements import details, figure, number, paragraph, section, table, text
from bo_robust.runner.html.pictures import picture, rounds_axis
from bo_robust.runner.timeline import draw_timeline

__all__ = ["eliminations"]

CAPTION = (
    "A dot per trial in the round in which a candidate fell, larger the further the sum of errors was beyond its "
    "limit (up to ten times); a cross where the last survivor failed as well and was kept. Right: share of the trials "
    "in which the candidate survived."
)


def eliminations(panel: PanelConfig, entry: dict[str, Any]) -> str:
    """Timeline and survivors of every algorithm of a panel that eliminates candidates; empty if there is none."""
    content = ""
    for label, one in entry["algorithms"].items():
        found = one["eliminations"]
        if found is not None:
            content += section(label, paragraph(elimination_line(found)) + _one(panel, label, found), 4)
    return section("Eliminations", content) if content else ""


def _one(panel: PanelConfig, label: str, found: dict[str, Any]) -> str:
    names = list(found["survived"])
    record = {"candidates": names, **{key: found[key] for key in ("true", "survivors", "eliminations")}}
    if not found["eliminations"]:
        return ""
    head = ["candidate", "trials survived", "median round of its fall"]
    rows = []
    for name, count in found["survived"].items():
        fell = [row["round"] for row in found["eliminations"] if row["candidate"] == name and row["eliminated"]]
        median = number(f"{np.median(fell):.4g}", float(np.median(fell))) if fell else "-"
        rows.append([text(name), number(f"{count} of {found['trials']}", count), median])
    if found["true"] is not None:
        head.append("trials in which it is the true one")
        for row, name in zip(rows, names, strict=True):
            row.append(number(str(found["true"].count(name)), found["true"].count(name)))
    survivors = table(f"{label}: survivors", head, rows)
    alt = f"Rounds in which {label} eliminated each of {len(names)} candidates. {elimination_line(found)}"

    def draw(axis: Any) -> None:
        draw_timeline(axis, "", panel.horizon, record)
        rounds_axis(axis)

    shown = picture(draw, alt, (5.4, 0.9 + 0.22 * len(names)))
    return figure([shown], CAPTION, kind="wide") + details("Survivors as a table", survivors)
