"""How many rewards were truncated, when, and how far beyond the level they lay."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from matplotlib.axes import Axes

from bo_robust.runner.config import PanelConfig
from bo_robust.runner.html.elements import figure, number, section, table, text
from bo_robust.runner.html.load import Stored
from bo_robust.runner.html.pictures import legend, picture, rounds_axis
from bo_robust.schedules import TRUNCATIONS

__all__ = ["truncation"]

# Points of a line.
DRAWN = 300
BELOW = (
    "truncated: rewards of all trials and rounds, and their share; early, late: that share in the first and in the "
    "second half of the rounds. b_T: the level of the last round. |y| / b_t: of the truncated rewards, how many times "
    "the level of their round. ATA-GP-UCB truncates u y for weights |u| <= 1 and all past rewards anew: counted is "
    "what lost more than half of its weight in its own round, and |y| / b_t is that of |u| = 1. With rule 'residual' "
    "the level is for |y - mu|, which is not stored."
)


@dataclass(frozen=True)
class _Lost:
    """Truncated rewards of one algorithm: ``truncated`` (trials x rounds), ``level`` (rounds), ``ratio`` |y| / b_t."""

    truncated: np.ndarray
    rule: str
    level: np.ndarray | None
    ratio: np.ndarray | None


def truncation(stored: Stored, panel: PanelConfig, looks: dict[str, Any]) -> str:
    """Table and pictures of the algorithms of a panel that truncate; empty if there is none."""
    lost = {a.label: one for a in panel.algorithms if (one := _lost(stored, panel, a.label)) is not None}
    if not lost:
        return ""
    rows = [_row(label, one) for label, one in lost.items()]
    head = ["algorithm", "rule", "truncated", "share", "early", "late", "b_T", "|y| / b_t: median", "90 %", "largest"]
    content = table(f"{panel.name}: truncated rewards", head, rows, BELOW)
    if not any(one.truncated.any() for one in lost.values()):
        return section("Truncation", content)
    pictures = [picture(_counts(lost, looks), _alt(panel, lost))]
    far = {label: one.ratio for label, one in lost.items() if one.ratio is not None and one.ratio.size}
    if far:
        farthest = ", ".join(f"{label} {ratio.max():.3g}" for label, ratio in far.items())
        alt = f"Share of truncated rewards of {panel.name} beyond each multiple of the level. Largest: {farthest}."
        pictures.append(picture(_excess(far, looks), alt))
    caption = (
        "Rewards truncated so far, per trial (mean), against the round"
        + ("; share of the truncated rewards that lie beyond a multiple of the level" if far else "")
        + "."
    )
    return section("Truncation", content + figure(pictures, caption, legend({label: looks[label] for label in lost})))


def _lost(stored: Stored, panel: PanelConfig, label: str) -> _Lost | None:
    rows = stored.rows(panel.name)
    rows = rows[rows["algorithm"] == label]
    shape = (panel.trials, panel.horizon)
    truncated = rows["truncated"].to_numpy(dtype=bool).reshape(shape)
    used = stored.info.get("used", {}).get(panel.name, {}).get("algorithms", {}).get(label, {})
    spec = dict(used.get("truncation") or {})
    kind = spec.pop("kind", "none")
    if kind not in TRUNCATIONS or kind == "none":  # of HE-GP-UCB's base algorithm no kind is stored
        return _Lost(truncated, "-", None, None) if truncated.any() else None
    rule = str(used.get("rule", "zero"))
    level = TRUNCATIONS[kind](**spec)(torch.arange(1, panel.horizon + 1)).numpy()
    ratio = None
    if rule != "residual":
        reward = rows["reward"].to_numpy(dtype=float).reshape(shape)
        ratio = (np.abs(reward) / level)[truncated & np.isfinite(reward)]
    return _Lost(truncated, rule, level, ratio)


def _row(label: str, one: _Lost) -> list[str]:
    half = max(1, one.truncated.shape[1] // 2)
    count, share = int(one.truncated.sum()), float(one.truncated.mean())
    parts = [float(of.mean()) if of.size else math.nan for of in (one.truncated[:, :half], one.truncated[:, half:])]
    known = one.ratio is not None and one.ratio.size
    far = [float(np.quantile(one.ratio, q)) for q in (0.5, 0.9, 1.0)] if known and one.ratio is not None else [None] * 3
    return [
        text(label),
        text(one.rule),
        number(f"{count:,}", count),
        *(number(f"{100 * of:.2g}%", of) for of in (share, *parts)),
        "-" if one.level is None else number(f"{one.level[-1]:.3g}", one.level[-1]),
        *(number("-" if value is None else f"{value:.3g}", value) for value in far),
    ]


def _alt(panel: PanelConfig, lost: dict[str, _Lost]) -> str:
    ends = ", ".join(f"{label} {one.truncated.sum(1).mean():.3g}" for label, one in lost.items())
    return f"Truncated rewards per trial of {panel.name} against the round. At the end: {ends}."


def _counts(lost: dict[str, _Lost], looks: dict[str, Any]) -> Any:
    def draw(axis: Axes) -> None:
        for label, one in lost.items():
            horizon = one.truncated.shape[1]
            rounds = np.unique(np.linspace(1, horizon, min(horizon, DRAWN)).round().astype(int))
            axis.plot(rounds, one.truncated.mean(0).cumsum()[rounds - 1], **looks[label])
        axis.set_ylim(bottom=0.0)
        rounds_axis(axis)
        axis.set_title("truncated rewards per trial, so far")

    return draw


def _excess(far: dict[str, np.ndarray], looks: dict[str, Any]) -> Any:
    def draw(axis: Axes) -> None:
        for label, ratio in far.items():
            beyond = np.sort(ratio)
            shares = 1.0 - np.arange(len(beyond)) / len(beyond)
            kept = np.unique(np.geomspace(1, len(beyond), min(len(beyond), DRAWN)).round().astype(int))
            kept = len(beyond) - kept[::-1]  # densest in the tail
            x, y = np.append(1.0, beyond[kept]), np.append(1.0, shares[kept])
            axis.step(x, y, where="pre", **looks[label])
        axis.set_xscale("log")
        axis.xaxis.set_major_formatter("{x:g}")
        axis.set_ylim(bottom=0.0)
        axis.set_xlabel("|y| / b_t")
        axis.set_title("share of them beyond this multiple of the level")

    return draw
