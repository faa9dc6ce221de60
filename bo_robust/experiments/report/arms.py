"""What the page shows of one panel of a run over arms."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from matplotlib.axes import Axes

from bo_robust.algorithms import ALGORITHMS
from bo_robust.experiments.config import Panel
from bo_robust.experiments.report.pictures import (
    INK,
    Looks,
    Picture,
    curves_picture,
    from_zero,
    log_if_wide,
    marks,
    plain_text,
    rounds_axis,
)
from bo_robust.experiments.results import RunResults
from bo_robust.experiments.summary import elimination_line
from bo_robust.experiments.traces import DICTIONARY_COLUMNS
from bo_robust.truncation import TRUNCATIONS

# Where there are more arms, or points of a curve, so many are drawn.
DRAWN = 300
# Trials lie side by side within this share of a candidate's row.
SPREAD = 0.6


def sections(run: RunResults, panel: Panel, entry: dict[str, Any], looks: Looks) -> dict[str, Any]:
    """Everything that ``arms.html.j2`` shows of a panel beside its summary, ``entry``."""
    return {
        "regret": regret(run, panel, looks),
        "confidence": _confidence(run, panel, entry, looks),
        "truncation": truncation(run, panel, looks),
        "eliminations": eliminations(panel, entry),
        "dictionaries": dictionaries(run, panel, looks),
    }


def regret(run: RunResults, panel: Panel, looks: Looks) -> list[Picture]:
    """Average and simple regret by round, mean ± standard error."""
    regret, rounds = run.curves(panel, "regret"), marks(panel.horizon)
    average = {label: of.cumsum(1) / np.arange(1, panel.horizon + 1) for label, of in regret.items()}
    pictures = []
    for name, of in (("average regret", average), ("simple regret", run.curves(panel, "simple_regret"))):
        drawn = {label: values[:, rounds - 1] for label, values in of.items()}
        means = {label: values.mean(0) for label, values in drawn.items()}
        bands = {}
        if panel.trials > 1:
            errors = {label: values.std(0, ddof=1) / np.sqrt(panel.trials) for label, values in drawn.items()}
            bands = {label: (mean - errors[label], mean + errors[label]) for label, mean in means.items()}
        said = f"{name} of {panel.name} against the round."
        pictures.append(
            curves_picture(name, said, means, looks, rounds=rounds, bands=bands, log_rounds=True, y=from_zero)
        )
    return pictures


def _confidence(run: RunResults, panel: Panel, entry: dict[str, Any], looks: Looks) -> dict[str, Any] | None:
    """Coverage and width of the algorithms that have confidence intervals; None if there are none."""
    labels = [label for label, one in entry["methods"].items() if one["mean_width"] is not None]
    if not labels:
        return None
    rounds, target = marks(panel.horizon), 1.0 - panel.delta
    coverage, width = (
        {label: of.mean(0)[rounds - 1] for label, of in run.curves(panel, column).items() if label in labels}
        for column in ("coverage", "width")
    )

    def up_to_one(axis: Axes) -> None:
        low = min(axis.get_ylim()[0], 0.99)
        axis.set_ylim(low, 1.0 + 0.04 * (1.0 - low))

    said = f"Coverage of {panel.name} against the round, with 1 - delta = {target:g}."
    of_coverage = curves_picture(
        "coverage", said, coverage, looks, rounds=rounds, rule=target, log_rounds=True, y=up_to_one
    )
    said = f"Width of {panel.name} against the round."
    of_width = curves_picture("width", said, width, looks, rounds=rounds, log_rounds=True, y=log_if_wide)
    return {
        "target": target,
        "pictures": [of_coverage, of_width],
        "looks": {label: looks[label] for label in labels},
        "kept": run.metadata[panel.name][labels[-1]]["intervals"],
        "intervals": [
            interval(run, panel, label, looks)
            for label in labels
            if run.metadata[panel.name][label]["intervals"]["reach"] is not None
        ],
    }


def interval(run: RunResults, panel: Panel, label: str, looks: Looks) -> Picture:
    """Final confidence intervals of an algorithm's worst-covered trial by arm, if it has any, with f."""
    known = run.metadata[panel.name][label]
    final = {name: np.array(of) for name, of in known["intervals"].items() if of is not None}
    share = 100.0 * known["covered"]

    def draw(axis: Axes) -> None:
        arms, mean, colour = final["arms"], final["mean"], looks[label]["color"]
        if "reach" in final:
            low, high = mean - final["reach"], mean + final["reach"]
            axis.fill_between(arms, low, high, color=colour, alpha=0.25, lw=0, label="its interval")
            axis.set_title(f"{share:.0f} % covered", fontsize=9)
        axis.plot(arms, mean, color=colour, label="posterior mean")
        axis.plot(arms, final["f"], color=INK, linestyle="--", linewidth=1.0, label="f")
        axis.set_xlabel("arm")

    words = f"Final interval of {label} against f by arm: {share:.0f} % of the arms are covered."
    return Picture(draw, words, (3.6, 2.4), heading=label)


def truncation(run: RunResults, panel: Panel, looks: Looks) -> dict[str, Any] | None:
    """Numbers and pictures of a panel's algorithms that truncate; None if there are none."""
    truncated, rewards = run.curves(panel, "truncated"), run.curves(panel, "reward")
    used = run.info["used"][panel.name]["methods"]
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


def eliminations(panel: Panel, entry: dict[str, Any]) -> list[dict[str, Any]]:
    """What every algorithm that eliminates candidates found, with a timeline if a test failed."""
    found = {label: one["eliminations"] for label, one in entry["methods"].items() if one["eliminations"]}
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


def timeline(panel: Panel, label: str, found: dict[str, Any]) -> Picture:
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


def dictionaries(run: RunResults, panel: Panel, looks: Looks) -> dict[str, Any] | None:
    """Numbers and a picture of a panel's algorithms that keep a dictionary; None if there are none."""
    labels = [one.label for one in panel.methods if "dictionary" in ALGORITHMS[one.name].records]
    if not labels:
        return None
    sizes, estimates = (run.curves(panel, column) for column in DICTIONARY_COLUMNS)
    recorded = {}
    for label in labels:
        rows = run.rows(panel.name, label)
        size, estimate = sizes[label].mean(0), estimates[label].mean(0)
        recorded[label] = {
            "size": size,
            "estimate": estimate,
            "distinct": rows[rows["ok"]].groupby("trial")["arm"].nunique().sum() / panel.trials,
            "ratio": size[-1] / estimate[-1] if estimate[-1] > 0.0 else None,
        }
    ends = "; ".join(
        f"{label} |S| {of['size'][-1]:.4g}, d_eff estimated {of['estimate'][-1]:.4g}" for label, of in recorded.items()
    )
    words = f"Dictionary size and effective dimension by round. At the end: {ends}."
    return {
        "recorded": recorded,
        "pictures": [Picture(lambda axis: _by_round(axis, recorded, looks), words)],
        "looks": {label: looks[label] for label in recorded},
    }


def _by_round(axis: Axes, recorded: dict[str, dict[str, Any]], looks: Looks) -> None:
    for label, of in recorded.items():
        colour, rounds = looks[label]["color"], marks(len(of["size"]))
        axis.plot(rounds, of["size"][rounds - 1], color=colour)
        axis.plot(rounds, of["estimate"][rounds - 1], color=colour, linestyle="--")
    from_zero(axis)
    rounds_axis(axis, log=True)
    axis.set_title("|S| (solid), d_eff estimated (dashed)")
