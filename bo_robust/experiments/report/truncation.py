"""How many rewards were truncated, when, and how far beyond the level they lay."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from matplotlib.axes import Axes

from bo_robust.experiments.config import PanelConfig
from bo_robust.experiments.report.pictures import Looks, Picture, curves_picture, from_zero
from bo_robust.experiments.results import RunResults
from bo_robust.truncation import TRUNCATIONS

# Points of a curve.
DRAWN = 300


def truncation(run: RunResults, panel: PanelConfig, looks: Looks) -> dict[str, Any] | None:
    """Numbers and pictures of a panel's algorithms that truncate; None if there are none."""
    truncated, rewards = run.curves(panel, "truncated"), run.curves(panel, "reward")
    used = run.info["used"][panel.name]["algorithms"]
    by_label = {label: _lost(used[label], truncated[label] > 0.0, rewards[label]) for label in panel.labels}
    lost = {label: one for label, one in by_label.items() if one is not None}
    if not lost:
        return None
    ratios = {label: one["ratio"] for label, one in lost.items() if one["ratio"].size}
    pictures = []
    if any(one["count"] for one in lost.values()):
        rounds = np.unique(np.linspace(1, panel.horizon, min(panel.horizon, DRAWN)).round().astype(int))
        counts = {label: one["so_far"][rounds - 1] for label, one in lost.items()}
        said = f"Truncated rewards per trial of {panel.name} against the round."
        title = "truncated rewards per trial, so far"
        pictures.append(curves_picture(title, said, counts, looks, rounds=rounds, y=from_zero))
    if ratios:
        largest = ", ".join(f"{label} {ratio.max():.3g}" for label, ratio in ratios.items())
        said = f"Share of truncated rewards of {panel.name} beyond each multiple of the level. Largest: {largest}."
        pictures.append(Picture(lambda axis: _excess(axis, ratios, looks), said))
    return {"lost": lost, "pictures": pictures, "looks": {label: looks[label] for label in lost}}


def _lost(used: dict[str, Any], truncated: np.ndarray, rewards: np.ndarray) -> dict[str, Any] | None:
    """Truncated rewards of one algorithm with settings ``used``; None if it does not truncate.

    ``truncated`` and ``rewards`` (as they came) are ``trials x rounds``. In the result, ``share`` is of all rewards,
    ``early`` and ``late`` are shares in the halves of the run, ``so_far`` is per trial by round, ``level`` is that of
    the last round. ``ratio`` is |y| / b_t of each truncated reward, with its ``quantiles`` 0.5, 0.9 and 1. Unknown
    values are None, or empty.
    """
    horizon = truncated.shape[1]
    spec = dict(used.get("truncation") or {})
    kind = spec.pop("kind", "none")
    known = kind in TRUNCATIONS and kind != "none"  # of HE-GP-UCB's base algorithm no kind is stored
    if not known and not truncated.any():
        return None
    level, ratio = None, np.zeros(0)
    rule = str(used.get("rule", "zero")) if known else "-"
    if known:
        level = TRUNCATIONS[kind](**spec)(torch.arange(1, horizon + 1)).numpy()
        if rule != "residual":  # its level is for |y - mu|, and mu is not stored
            ratio = (np.abs(rewards) / level)[truncated & np.isfinite(rewards)]
    half = max(1, horizon // 2)
    return {
        "rule": rule,
        "count": truncated.sum(),
        "share": truncated.mean(),
        "early": truncated[:, :half].mean(),
        "late": truncated[:, half:].mean() if horizon > half else math.nan,
        "so_far": truncated.mean(0).cumsum(),
        "level": None if level is None else level[-1],
        "ratio": ratio,
        "quantiles": np.quantile(ratio, [0.5, 0.9, 1.0]) if ratio.size else [None] * 3,
    }


def _excess(axis: Axes, ratios: Mapping[str, np.ndarray], looks: Looks) -> None:
    for label, ratio in ratios.items():
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
