"""Pictures of a run: regret, confidence intervals and eliminations over arms; one picture per panel over (x, z)."""

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes

from bo_robust.experiments.comparisons import mean_interval
from bo_robust.experiments.results import RunResults
from bo_robust.experiments.storage import write_atomic
from bo_robust.experiments.value_at_risk.summary import CONFIDENCE, log_regret

# Line styles of the first ten entries, the next ten, ...
STYLES = ("-", "--", ":", "-.")
# With more algorithms than this the legend stands below the pictures.
MANY = 6
# Trials lie side by side within this share of a candidate's row.
SPREAD = 0.6
COLUMNS = 3


def pictures(run: RunResults) -> dict[str, Callable[[Path], None]]:
    """Functions that draw the pictures of a finished run into a file, by file name."""
    if run.value_at_risk:
        return {_picture_name(i, p.name): partial(_value_at_risk, run, p) for i, p in enumerate(run.panels)}
    found: dict[str, Callable[[Path], None]] = {"regret.png": partial(_regret, run)}
    if any(panel.intervals for panel in run.panels):
        found["intervals.png"] = partial(_intervals, run)
    timelines = [
        (f"{panel.name}: {label}", panel.horizon, metadata["eliminations"])
        for panel in run.panels
        for label, metadata in run.metadata[panel.name].items()
        if metadata["eliminations"] is not None
    ]
    if timelines:
        found["eliminations.png"] = partial(_eliminations, timelines)
    return found


def looks(labels: list[str]) -> dict[str, dict[str, Any]]:
    """Colour and line style of every label, as keyword arguments of ``plot``."""
    return {
        label: {"color": f"C{i % 10}", "linestyle": STYLES[i // 10 % len(STYLES)]} for i, label in enumerate(labels)
    }


def plain_text(label: str) -> str:
    """Escape a label for matplotlib, which reads $ as mathematics and hides labels that begin with _."""
    plain = label.replace("$", r"\$")
    return f" {plain}" if plain.startswith("_") else plain


def marks(horizon: int) -> np.ndarray:
    """At most 200 rounds to draw on a logarithmic axis, from 1 to the horizon."""
    return np.unique(np.round(np.geomspace(1, horizon, min(horizon, 200))).astype(int))


def save_figure(figure: plt.Figure, path: Path) -> None:
    """Write a figure as PNG, atomically, and close it."""
    dpi = 120 if figure.get_size_inches()[0] <= 12 else 80  # with many panels: fewer pixels
    write_atomic(path, lambda temporary: figure.savefig(temporary, dpi=dpi, format="png"))
    plt.close(figure)


def draw_timeline(axis: Axes, title: str, horizon: int, found: dict[str, Any]) -> None:
    """Draw which candidate was eliminated in which round, from ``found``, an elimination record.

    A dot is an elimination in one trial, larger the further the sum of errors was beyond its limit. A cross is a last
    survivor that failed its test and was kept. On the right stands the share of trials in which the candidate survived.
    """
    names, trials = found["candidates"], len(found["survivors"])
    for eliminated, marker, colour in ((True, "o", "C0"), (False, "x", "C3")):
        of = [row for row in found["eliminations"] if row["eliminated"] == eliminated]
        if of:
            beside = np.array([(row["trial"] + 0.5) / trials - 0.5 for row in of])
            axis.scatter(
                [row["round"] for row in of],
                np.array([row["hypothesis"] for row in of]) + SPREAD * beside,
                s=[12.0 * min(row["left"] / row["right"], 10.0) for row in of],
                marker=marker,
                color=colour,
                alpha=0.5 if eliminated else 1.0,
                linewidths=0 if eliminated else 1.2,
            )
    for u, name in enumerate(names):
        count = sum(name in row for row in found["survivors"])
        axis.text(
            1.01, u, f"{100 * count / trials:.0f} %", transform=axis.get_yaxis_transform(), va="center", fontsize=8
        )
    right = set(found["true"] or ())
    labels = [plain_text(name) + (" (true)" if right == {name} else "") for name in names]
    axis.set_yticks(range(len(names)), labels, fontsize=8)
    axis.set_ylim(len(names) - 0.5, -0.5)
    axis.set_xlim(0, horizon + 1)
    axis.set_xlabel("round of elimination (dot size: how far beyond the limit); right: trials survived", fontsize=8)
    axis.set_title(plain_text(title), fontsize=9)
    axis.grid(alpha=0.3)


def draw_certificate(axis: Axes, run: RunResults, panel: Any, looks: dict[str, dict[str, Any]]) -> None:
    """Draw medians of the methods that certify: certificate (solid), regret (dashed), bound 2 w sigma (dotted).

    Of ``looks`` (:func:`looks`) only the colour is used.
    """
    regrets, certificates, bounds = (run.curves(panel, name) for name in ("regret", "certificate", "bound"))
    for label in panel.labels:
        if np.isnan(certificates[label]).all():  # it certifies nothing
            continue
        colour = looks[label]["color"]
        axis.plot(np.median(certificates[label], 0), color=colour, label=plain_text(f"{label}: certificate"))
        # Bound and regret stand in the legend once, for the first method.
        bound = "2 w sigma at the point chosen" if len(axis.lines) == 1 else None
        # After the last round no point is chosen.
        axis.plot(np.median(bounds[label][:, :-1], 0), color=colour, linestyle=":", label=bound)
        true = "regret" if bound else None
        axis.plot(10.0 ** np.median(log_regret(regrets[label]), 0), color=colour, linestyle="--", label=true)
    if axis.lines:
        axis.set_yscale("log")
        axis.legend(fontsize=8)
    axis.set_xlabel("round")
    axis.set_title("how far from optimal it can still be, and is (medians)", fontsize=9)
    axis.grid(alpha=0.3)


def _regret(run: RunResults, path: Path) -> None:
    """Average regret R_t / t (above) and simple regret (below) by round, mean ± standard error."""
    columns = len(run.panels)
    figure, axes = plt.subplots(2, columns, figsize=(4.6 * columns + 1, 8), squeeze=False, layout="constrained")
    for j, panel in enumerate(run.panels):
        rounds = marks(panel.horizon)
        style = looks(panel.labels)
        average = {
            label: np.cumsum(regret, axis=1) / np.arange(1, panel.horizon + 1)
            for label, regret in run.curves(panel, "regret").items()
        }
        for axis, curves in ((axes[0, j], average), (axes[1, j], run.curves(panel, "simple_regret"))):
            for label, values in curves.items():
                at = values[:, rounds - 1]
                mean = at.mean(0)
                error = at.std(0, ddof=1) / np.sqrt(panel.trials) if panel.trials > 1 else 0.0 * mean
                axis.plot(rounds, mean, label=plain_text(label), **style[label])
                axis.fill_between(
                    rounds, mean - error, mean + error, alpha=0.15, color=style[label]["color"], linewidth=0
                )
            axis.set_xscale("log")
            axis.set_ylim(bottom=0.0)
            axis.grid(alpha=0.3)
        axes[0, j].set_title(plain_text(panel.name), fontsize=10)
        axes[0, j].set_ylabel("average regret" if j == 0 else "")
        axes[1, j].set_ylabel("simple regret" if j == 0 else "")
        axes[1, j].set_xlabel("round")
    if max(len(panel.algorithms) for panel in run.panels) <= MANY:
        axes[0, 0].legend(fontsize=8)
    else:
        handles, labels = axes[0, 0].get_legend_handles_labels()
        figure.legend(handles, labels, fontsize=8, loc="outside lower center", ncols=max(2, 2 * columns))
    save_figure(figure, path)


def _intervals(run: RunResults, path: Path) -> None:
    """Final confidence intervals and f in each algorithm's worst-covered trial, for panels that ask for them."""
    wanted = [panel for panel in run.panels if panel.intervals]
    columns = max(len(panel.algorithms) for panel in wanted)
    size = (4.6 * columns, 3.2 * len(wanted))
    figure, axes = plt.subplots(len(wanted), columns, figsize=size, squeeze=False, layout="constrained")
    for row, panel in zip(axes, wanted, strict=True):
        for axis, label in zip(row, panel.labels, strict=False):
            final = run.finals[panel.name, label]
            mean, reach, f = (final[name].numpy() for name in ("mean", "reach", "f"))
            x = np.arange(len(f))
            title = f"{panel.name}: {label}"
            if np.isfinite(reach).all():
                axis.fill_between(x, mean - reach, mean + reach, alpha=0.3, label="mean ± width · sigma")
                covered = 100 * np.mean(np.abs(f - mean) <= reach)
                title += f"\n(worst of {panel.trials} trials, {covered:.0f} % covered)"
            axis.plot(x, mean, label="posterior mean")
            axis.plot(x, f, "k--", label="f")
            axis.set_title(plain_text(title), fontsize=9)
            axis.set_xlabel("arm")
        row[0].legend(fontsize=8)
    save_figure(figure, path)


def _eliminations(timelines: list[tuple[str, int, dict[str, Any]]], path: Path) -> None:
    """One timeline per algorithm that eliminates."""
    columns = min(COLUMNS, len(timelines))
    rows = [timelines[i : i + columns] for i in range(0, len(timelines), columns)]
    heights = [1.2 + 0.25 * max(len(found["candidates"]) for _, _, found in row) for row in rows]
    figure, axes = plt.subplots(
        len(rows),
        columns,
        figsize=(5.6 * columns, sum(heights)),
        squeeze=False,
        layout="constrained",
        height_ratios=heights,
    )
    for axis in axes.flat[len(timelines) :]:
        axis.set_visible(False)
    for axis, timeline in zip(axes.flat, timelines, strict=False):
        draw_timeline(axis, *timeline)
    save_figure(figure, path)


def _picture_name(index: int, panel: str) -> str:
    """Such as ``00-branin-hoo-1-1.png``."""
    slug = re.sub(r"[^a-z0-9]+", "-", panel.lower()).strip("-")
    return f"{index:02d}-{slug or 'panel'}.png"


def _value_at_risk(run: RunResults, panel: Any, path: Path) -> None:
    """Regret, certificates and seconds per acquisition of one panel."""
    style = looks(panel.labels)
    figure, (regret, certificate, time) = plt.subplots(1, 3, figsize=(15, 4.4), layout="constrained")
    for label, values in run.curves(panel, "regret").items():
        mean, low, high = mean_interval(log_regret(values), CONFIDENCE)
        regret.plot(mean, label=plain_text(label), **style[label])
        regret.fill_between(np.arange(len(mean)), low, high, alpha=0.15, color=style[label]["color"], linewidth=0)
    regret.set_ylabel("log10 regret of the recommendation")
    regret.set_title(f"mean, {100 * CONFIDENCE:.0f} % confidence interval", fontsize=9)
    regret.legend(fontsize=8)
    draw_certificate(certificate, run, panel, style)
    for label, seconds in run.curves(panel, "seconds").items():
        time.plot(np.median(seconds[:, :-1], 0), label=plain_text(label), **style[label])
    time.set_yscale("log")
    time.set_title("seconds per acquisition (median)", fontsize=9)
    for axis in (regret, time):
        axis.set_xlabel("round")
        axis.grid(alpha=0.3)
    figure.suptitle(plain_text(f"{panel.name} ({panel.repetitions} repetitions)"), fontsize=11)
    save_figure(figure, path)
