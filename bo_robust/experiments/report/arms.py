"""What the page shows of one panel of a run over arms."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from matplotlib.axes import Axes

from bo_robust.algorithms import ALGORITHMS
from bo_robust.experiments.config import Panel
from bo_robust.experiments.report.parts import Cell, Figure, Folded, Section, Table, Words, number, percent
from bo_robust.experiments.report.pictures import (
    INK,
    Looks,
    Picture,
    curves_picture,
    from_zero,
    log_if_wide,
    marks,
    plain_log,
    plain_text,
    rounds_axis,
)
from bo_robust.experiments.results import RunResults
from bo_robust.experiments.summary import elimination_line
from bo_robust.experiments.traces import DICTIONARY_COLUMNS
from bo_robust.truncation import TRUNCATIONS

# Where a curve has more points, so many are drawn.
DRAWN = 300
# Trials lie side by side within this share of a candidate's row.
SPREAD = 0.6
TRUNCATION_HEAD = (
    *("method", "rule", "truncated", "share", "early", "late", "b_T"),
    *("|y| / b_t: median", "90 %", "largest"),
)
TRUNCATION_BELOW = (
    "truncated: rewards of all trials and rounds, and their share; early, late: that share in the first and in the "
    "second half of the rounds. b_T: the level of the last round. |y| / b_t: of the truncated rewards, how many "
    "times the level of their round. ATA-GP-UCB truncates u y for weights |u| <= 1 and all past rewards anew: "
    "counted is what lost more than half of its weight in its own round, and |y| / b_t is that of |u| = 1. With rule "
    "'residual' the level is for |y - mu|, which is not stored."
)
TIMELINE = (
    "A dot per trial in the round in which a candidate fell, larger the further the sum of errors was beyond its limit "
    "(up to ten times); a cross where the last survivor failed as well and was kept. Right: share of the trials in "
    "which the candidate survived."
)
DICTIONARY = (
    "against the round: |S|, the arms in the dictionary (solid; the papers count copies too), and the method's own "
    "estimate of the effective dimension, the sum over all pulls of its posterior variance at the arm, divided by "
    "lambda, as of its last rebuild (dashed)."
)
DICTIONARY_HEAD = ("method", "|S|", "distinct arms", "d_eff, estimate", "|S| / d_eff")
DICTIONARY_BELOW = (
    "After the last round, means over trials: |S|, arms in the dictionary; distinct arms pulled, which it is drawn "
    "from; d_eff: of the arms pulled, as the method estimates it."
)


def sections(run: RunResults, panel: Panel, summary: dict[str, Any], looks: Looks) -> list[Section]:
    """What the page shows of a panel between results and settings; ``summary`` is that of the panel."""
    trials = f"{panel.trials} trials"
    shaded = ", shaded ± standard error" if panel.trials > 1 else ""
    caption = (
        "Average regret R_t / t, and simple regret of the arm of largest posterior mean, against the round: mean over "
        f"{trials}{shaded}."
    )
    made = [
        Section("Regret", [Figure(regret(run, panel, looks), caption, looks)]),
        _confidence(run, panel, summary, looks),
        truncation(run, panel, looks),
        eliminations(panel, summary),
        dictionaries(run, panel, looks),
    ]
    return [section for section in made if section is not None]


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
        words = f"{name} of {panel.name} against the round."
        pictures.append(
            curves_picture(name, words, means, looks, rounds=rounds, bands=bands, log_rounds=True, y=from_zero)
        )
    return pictures


def _confidence(run: RunResults, panel: Panel, summary: dict[str, Any], looks: Looks) -> Section | None:
    """Coverage and width of the methods that have confidence intervals; None if there are none."""
    labels = [label for label, method in summary["methods"].items() if method["mean_width"] is not None]
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

    words = f"Coverage of {panel.name} against the round, with 1 - delta = {target:g}."
    of_coverage = curves_picture(
        "coverage", words, coverage, looks, rounds=rounds, line_at=target, log_rounds=True, y=up_to_one
    )
    words = f"Width of {panel.name} against the round."
    of_width = curves_picture("width", words, width, looks, rounds=rounds, log_rounds=True, y=log_if_wide)
    caption = (
        f"Share of arms whose mean lies in the interval (dotted: 1 − delta = {target:g}), and the confidence width "
        f"that multiplies sigma, before each round: means over {panel.trials} trials. No line before the end of an "
        "initial design."
    )
    parts: list[Any] = [Figure([of_coverage, of_width], caption, {label: looks[label] for label in labels})]
    known = {label: run.metadata[panel.name][label]["intervals"] for label in labels}
    intervals = [interval(run, panel, label, looks) for label in labels if known[label]["reach"] is not None]
    if intervals:
        kept = known[labels[-1]]
        num_arms, drawn = kept["num_arms"], len(kept["arms"])
        thinned = f" {drawn} of {num_arms} arms are drawn, evenly spaced." if num_arms > drawn else ""
        caption = (
            f"After the last round, of the trial of {panel.trials} whose interval covers least: posterior mean (line) "
            f"± width · sigma (shaded) and the true f (dashed), by arm.{thinned}"
        )
        figure = Figure(intervals, caption, style="small")
        parts.append(
            figure if panel.intervals else Folded("Confidence intervals of the worst-covered trials", [figure])
        )
    return Section("Confidence", parts)


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


def truncation(run: RunResults, panel: Panel, looks: Looks) -> Section | None:
    """How many rewards were truncated, when, and how far beyond the level they lay; None if no method truncates."""
    truncated, rewards = run.curves(panel, "truncated"), run.curves(panel, "reward")
    used = run.info["used"][panel.name]["methods"]
    rows: dict[str, list[Cell]] = {}
    ratios: dict[str, np.ndarray] = {}
    so_far: dict[str, np.ndarray] = {}
    for label in panel.labels:
        row = _truncated_rewards(used[label], truncated[label] > 0.0, rewards[label])
        if row is not None:
            rows[label], ratio = row
            so_far[label] = truncated[label].mean(0).cumsum()
            if ratio.size:
                ratios[label] = ratio
    if not rows:
        return None
    pictures = []
    if any(counts[-1] for counts in so_far.values()):
        rounds = np.unique(np.linspace(1, panel.horizon, min(panel.horizon, DRAWN)).round().astype(int))
        counts = {label: values[rounds - 1] for label, values in so_far.items()}
        words = f"Truncated rewards per trial of {panel.name} against the round."
        title = "truncated rewards per trial, so far"
        pictures.append(curves_picture(title, words, counts, looks, rounds=rounds, y=from_zero))
    if ratios:
        largest = ", ".join(f"{label} {ratio.max():.3g}" for label, ratio in ratios.items())
        words = f"Share of truncated rewards of {panel.name} beyond each multiple of the level. Largest: {largest}."
        pictures.append(Picture(lambda axis: _excess(axis, ratios, looks), words))
    parts: list[Any] = [Table(f"{panel.name}: truncated rewards", TRUNCATION_HEAD, rows, TRUNCATION_BELOW)]
    if pictures:
        caption = "Rewards truncated so far, per trial (mean), against the round"
        caption += "; share of the truncated rewards that lie beyond a multiple of the level." if ratios else "."
        parts.append(Figure(pictures, caption, {label: looks[label] for label in rows}))
    return Section("Truncation", parts)


def _truncated_rewards(
    used: dict[str, Any], truncated: np.ndarray, rewards: np.ndarray
) -> tuple[list[Cell], np.ndarray] | None:
    """The row of a method with settings ``used``, and |y| / b_t of its truncated rewards, as far as known.

    ``truncated`` and ``rewards`` (as they came) are ``trials x rounds``. None for methods that do not truncate.
    """
    horizon = truncated.shape[1]
    spec = dict(used.get("truncation") or {})
    kind = spec.pop("kind", "none")
    known = kind in TRUNCATIONS and kind != "none"  # of HE-GP-UCB's base method no kind is stored
    if not known and not truncated.any():
        return None
    last_level, ratio = None, np.zeros(0)
    consequence = str(used.get("rule", "zero")) if known else "-"
    if known:
        levels = TRUNCATIONS[kind](**spec)(torch.arange(1, horizon + 1)).numpy()
        last_level = levels[-1]
        if consequence != "residual":  # its level is for |y - mu|, and mu is not stored
            ratio = (np.abs(rewards) / levels)[truncated & np.isfinite(rewards)]
    half = max(1, horizon // 2)
    quantiles = np.quantile(ratio, [0.5, 0.9, 1.0]) if ratio.size else [None] * 3
    return [
        Cell(consequence),
        number(truncated.sum(), "{:,}"),
        percent(truncated.mean()),
        percent(truncated[:, :half].mean()),
        percent(truncated[:, half:].mean() if horizon > half else math.nan),
        number(last_level, "{:.3g}"),
        *(number(quantile, "{:.3g}") for quantile in quantiles),
    ], ratio


def _excess(axis: Axes, ratios: Mapping[str, np.ndarray], looks: Looks) -> None:
    for label, ratio in ratios.items():
        beyond = np.sort(ratio)
        shares = 1.0 - np.arange(len(beyond)) / len(beyond)
        kept = np.unique(np.geomspace(1, len(beyond), min(len(beyond), DRAWN)).round().astype(int))
        kept = len(beyond) - kept[::-1]  # densest in the tail
        x, y = np.append(1.0, beyond[kept]), np.append(1.0, shares[kept])
        axis.step(x, y, where="pre", **looks[label])
    axis.set_xscale("log")
    plain_log(axis.xaxis)
    axis.set_ylim(bottom=0.0)
    axis.set_xlabel("|y| / b_t")
    axis.set_title("share of them beyond this multiple of the level")


def eliminations(panel: Panel, summary: dict[str, Any]) -> Section | None:
    """Who was eliminated when, and who survived, of every method that eliminates candidates; None if none does."""
    sections = []
    for label, method in summary["methods"].items():
        record = method["eliminations"]
        if not record:
            continue
        parts: list[Any] = [Words(elimination_line(record))]
        if record["eliminations"]:
            head = ["candidate", "trials survived", "median round of its fall"]
            head += [] if record["true"] is None else ["trials in which it is the true one"]
            rows = {name: _candidate(name, record) for name in record["survived"]}
            survivors = Table(f"{label}: survivors", head, rows)
            parts.append(Figure([timeline(panel, label, record)], TIMELINE, style="wide"))
            parts.append(Folded("Survivors as a table", [survivors]))
        sections.append(Section(label, parts))
    return Section("Eliminations", sections) if sections else None


def timeline(panel: Panel, label: str, record: dict[str, Any]) -> Picture:
    """Which candidate was eliminated in which round, from eliminations of the summary.

    A dot is an elimination in one trial, larger the further the sum of errors was beyond its limit. A cross is a last
    survivor that failed its test and was kept. On the right stands the share of trials in which the candidate survived.
    """
    names, trials, right = list(record["survived"]), record["trials"], set(record["true"] or ())

    def draw(axis: Axes) -> None:
        for eliminated, marker, colour in ((True, "o", "C0"), (False, "x", "C3")):
            of = [row for row in record["eliminations"] if row["eliminated"] == eliminated]
            axis.scatter(
                [row["round"] for row in of],
                [names.index(row["candidate"]) + SPREAD * ((row["trial"] + 0.5) / trials - 0.5) for row in of],
                s=[12.0 * min(row["left"] / row["right"], 10.0) for row in of],
                marker=marker,
                color=colour,
                alpha=0.5 if eliminated else 1.0,
                linewidths=0 if eliminated else 1.2,
            )
        for u, count in enumerate(record["survived"].values()):
            share = f"{100 * count / trials:.0f} %"
            axis.text(1.01, u, share, transform=axis.get_yaxis_transform(), va="center", fontsize=8)
        labels = [plain_text(name) + (" (true)" if right == {name} else "") for name in names]
        axis.set_yticks(range(len(names)), labels, fontsize=8)
        axis.set_ylim(len(names) - 0.5, -0.5)
        axis.set_xlim(0, panel.horizon + 1)
        rounds_axis(axis)

    words = f"Rounds in which {label} eliminated each of {len(names)} candidates. {elimination_line(record)}"
    return Picture(draw, words, (5.4, 0.9 + 0.22 * len(names)))


def _candidate(name: str, record: dict[str, Any]) -> list[Cell]:
    """In how many trials a candidate survived, its median round of elimination, and in how many trials it is true."""
    fell = [row["round"] for row in record["eliminations"] if row["candidate"] == name and row["eliminated"]]
    survived = record["survived"][name]
    cells = [Cell(f"{survived} of {record['trials']}", survived), number(np.median(fell) if fell else None)]
    return cells if record["true"] is None else [*cells, number(record["true"].count(name), "{}")]


def dictionaries(run: RunResults, panel: Panel, looks: Looks) -> Section | None:
    """How large dictionaries were, and the estimated effective dimension; None if no method keeps one."""
    labels = [method.label for method in panel.methods if "dictionary" in ALGORITHMS[method.name].records]
    if not labels:
        return None
    curves = {column: run.curves(panel, column) for column in DICTIONARY_COLUMNS}
    sizes, estimates = ({label: by_label[label].mean(0) for label in labels} for by_label in curves.values())
    rows = {}
    for label in labels:
        traces, size, estimate = run.rows(panel.name, label), sizes[label][-1], estimates[label][-1]
        distinct = traces[traces["ok"]].groupby("trial")["arm"].nunique().sum() / panel.trials
        ratio = size / estimate if estimate > 0.0 else None
        rows[label] = [number(value) for value in (size, distinct, estimate, ratio)]
    ends = "; ".join(
        f"{label} |S| {sizes[label][-1]:.4g}, d_eff estimated {estimates[label][-1]:.4g}" for label in labels
    )
    words = f"Dictionary size and effective dimension by round. At the end: {ends}."
    picture = Picture(lambda axis: _by_round(axis, sizes, estimates, looks), words)
    caption = f"Means over {panel.trials} trials, {DICTIONARY}"
    return Section(
        "Dictionary size",
        [
            Figure([picture], caption, {label: looks[label] for label in labels}),
            Table(f"{panel.name}: dictionaries", DICTIONARY_HEAD, rows, DICTIONARY_BELOW),
        ],
    )


def _by_round(axis: Axes, sizes: Mapping[str, np.ndarray], estimates: Mapping[str, np.ndarray], looks: Looks) -> None:
    for label, size in sizes.items():
        colour, rounds = looks[label]["color"], marks(len(size))
        axis.plot(rounds, size[rounds - 1], color=colour)
        axis.plot(rounds, estimates[label][rounds - 1], color=colour, linestyle="--")
    from_zero(axis)
    rounds_axis(axis, log=True)
    axis.set_title("|S| (solid), d_eff estimated (dashed)")
