"""How large dictionaries were, against the effective dimension of the arms pulled."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from bo_robust.runner.config import PanelConfig
from bo_robust.runner.dictionaries import DICTIONARY_COLUMNS
from bo_robust.runner.html.elements import figure, number, paragraph, section, table, text
from bo_robust.runner.html.load import Stored
from bo_robust.runner.html.pictures import INK, legend, picture, rounds_axis
from bo_robust.runner.plot import marks

__all__ = ["dictionaries"]

DICTIONARIES = ("bkb", "bbkb")
NOT_STORED = (
    "Dictionary size |S| against effective dimension is not stored for {}: that part was played before runs recorded "
    "it. Played again, it has both."
)
CAPTION = (
    "Means over {} trials. Left, against the round: |S|, the arms in the dictionary (solid; the papers count copies "
    "too); the algorithm's own estimate of the effective dimension, the sum over all pulls of its posterior variance "
    "at the arm, divided by lambda, as of its last rebuild (dashed); and the exact d_eff = tr K (K + lambda I)⁻¹ of "
    "the arms pulled, computed at a few rounds after the run (dots). Right: |S| against the estimate, and against the "
    "exact d_eff at the same rounds (dots); dotted: where they are equal."
)
BELOW = (
    "After the last round, means over trials: |S|, arms in the dictionary; distinct arms pulled, which it is drawn "
    "from; d_eff: of the arms pulled, as the algorithm estimates it and exact{}; |S| / d_eff: over the exact one, "
    "where there is one, else over the estimate."
)


@dataclass(frozen=True)
class _Recorded:
    """Means over trials of one algorithm: ``size`` and ``estimate`` by round, ``exact`` at ``rounds``."""

    size: np.ndarray
    estimate: np.ndarray
    distinct: float
    rounds: np.ndarray
    exact: np.ndarray


def dictionaries(stored: Stored, panel: PanelConfig, looks: dict[str, Any]) -> str:
    """Table and pictures of the algorithms of a panel that keep a dictionary; empty if there is none."""
    labels = [a.label for a in panel.algorithms if a.name in DICTIONARIES]
    found = {label: one for label in labels if (one := _recorded(stored, panel, label)) is not None}
    missing = [label for label in labels if label not in found]
    content = ""
    if found:
        pictures = [
            picture(_by_round(found, looks), f"Dictionary size and effective dimension by round. {_at_the_end(found)}"),
            picture(_against(found, looks), f"Dictionary size against effective dimension. {_at_the_end(found)}"),
        ]
        content = figure(pictures, CAPTION.format(panel.trials), legend({label: looks[label] for label in found}))
        exact = all(len(one.rounds) and one.rounds[-1] == panel.horizon for one in found.values())
        below = BELOW.format("" if exact else " (none where too many distinct arms were pulled)")
        head = ["algorithm", "|S|", "distinct arms", "d_eff, estimate", "d_eff, exact", "|S| / d_eff"]
        content += table(f"{panel.name}: dictionaries", head, [_row(*item) for item in found.items()], below)
    if missing:
        content += paragraph(NOT_STORED.format(", ".join(missing)))
    return section("Dictionary size", content) if content else ""


def _recorded(stored: Stored, panel: PanelConfig, label: str) -> _Recorded | None:
    """What is stored of one algorithm; None of a part without it."""
    rows = stored.rows(panel.name)
    rows = rows[rows["algorithm"] == label]
    if not {*DICTIONARY_COLUMNS} <= {*rows} or rows["dictionary_size"].isna().any():
        return None
    shape = (panel.trials, panel.horizon)
    size, estimate = (rows[c].to_numpy(dtype=float).reshape(shape).mean(0) for c in DICTIONARY_COLUMNS)
    (known,) = (f for p, f in zip(stored.panels, stored.facts, strict=True) if p.name == panel.name)
    exact = known["dictionary"][label] or {"rounds": [], "effective_dimension": []}
    by_round = [float(np.mean(of)) for of in exact["effective_dimension"]]
    distinct = rows[rows["ok"]].groupby("trial")["arm"].nunique().sum() / panel.trials
    return _Recorded(size, estimate, float(distinct), np.array(exact["rounds"], dtype=int), np.array(by_round))


def _final_exact(one: _Recorded) -> float | None:
    return float(one.exact[-1]) if len(one.rounds) and one.rounds[-1] == len(one.size) else None


def _row(label: str, one: _Recorded) -> list[str]:
    exact = _final_exact(one)
    size, estimate = float(one.size[-1]), float(one.estimate[-1])
    over = estimate if exact is None else exact
    ratio = size / over if over > 0.0 else None
    numbers = [size, one.distinct, estimate, exact, ratio]
    return [text(label), *(number("-" if v is None else f"{v:.4g}", v) for v in numbers)]


def _at_the_end(found: dict[str, _Recorded]) -> str:
    """Last values in words, for those who do not see the picture."""
    said = []
    for label, one in found.items():
        exact = _final_exact(one)
        more = "" if exact is None else f", exact {exact:.4g}"
        said.append(f"{label} |S| {one.size[-1]:.4g}, d_eff estimated {one.estimate[-1]:.4g}{more}")
    return f"At the end: {'; '.join(said)}."


def _by_round(found: dict[str, _Recorded], looks: dict[str, Any]) -> Any:
    def draw(axis: Axes) -> None:
        for label, one in found.items():
            colour, rounds = looks[label]["color"], marks(len(one.size))
            axis.plot(rounds, one.size[rounds - 1], color=colour)
            axis.plot(rounds, one.estimate[rounds - 1], color=colour, linestyle="--")
            axis.plot(one.rounds, one.exact, color=colour, marker="o", markersize=3.5, linestyle="none")
        axis.set_ylim(bottom=0.0)
        rounds_axis(axis, log=True)
        axis.set_title("|S| (solid), d_eff estimated (dashed), exact (dots)")

    return draw


def _against(found: dict[str, _Recorded], looks: dict[str, Any]) -> Any:
    def draw(axis: Axes) -> None:
        for label, one in found.items():
            colour, rounds = looks[label]["color"], marks(len(one.size))
            axis.plot(one.estimate[rounds - 1], one.size[rounds - 1], color=colour)
            axis.plot(one.exact, one.size[one.rounds - 1], color=colour, marker="o", markersize=3.5, linestyle="none")
        end = min(axis.get_xlim()[1], axis.get_ylim()[1])
        axis.plot([0.0, end], [0.0, end], color=INK, linestyle=":", linewidth=1.0)
        axis.set_xlim(left=0.0)
        axis.set_ylim(bottom=0.0)
        axis.set_xlabel("d_eff")
        axis.set_title("|S| against d_eff")

    return draw
