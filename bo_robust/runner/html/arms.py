"""The sections of one panel of a run over arms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from bo_robust.runner.config import PanelConfig
from bo_robust.runner.html.dictionaries import dictionaries
from bo_robust.runner.html.elements import details, figure, note, number, paragraph, section, table, text
from bo_robust.runner.html.eliminations import eliminations
from bo_robust.runner.html.load import Stored
from bo_robust.runner.html.pictures import INK, legend, picture, rounds_axis, scale_for, styles
from bo_robust.runner.html.settings import settings
from bo_robust.runner.html.truncation import truncation
from bo_robust.runner.plot import marks
from bo_robust.runner.report import LEGEND, optional, with_error
from bo_robust.runner.results import load_final

__all__ = ["panel_sections"]

# Of more arms so many are drawn, evenly spaced.
DRAWN_ARMS = 300
Curves = dict[str, np.ndarray]


def panel_sections(stored: Stored, index: int) -> str:
    """Everything about one of ``stored.panels``, as markup."""
    panel: PanelConfig = stored.panels[index]
    entry = stored.summary["panels"][index]
    looks = styles([a.label for a in panel.algorithms])
    parts = [
        paragraph(f"{entry['trials']} trials × {entry['horizon']} rounds.", "facts"),
        paragraph(entry["notes"] or ""),
        *(note(line) for line in entry["warnings"]),
        section("Results", _results(entry)),
        section("Regret", _regret(stored, panel, looks)),
        _confidence(stored, panel, entry, looks),
        truncation(stored, panel, looks),
        eliminations(panel, entry),
        dictionaries(stored, panel, looks),
        section("Settings", settings(stored, index)),
    ]
    return "".join(parts)


def curves(stored: Stored, panel: PanelConfig, column: str) -> Curves:
    """A column of the traces by label, ``trials x rounds``."""
    rows = stored.rows(panel.name)
    shape = (panel.trials, panel.horizon)
    return {
        a.label: rows.loc[rows["algorithm"] == a.label, column].to_numpy(dtype=float).reshape(shape)
        for a in panel.algorithms
    }


def _results(entry: dict[str, Any]) -> str:
    rows = []
    for label, one in entry["algorithms"].items():
        name = text(label) + (' <span class="tag">lowest</span>' if label == entry["best"] else "")
        rows.append(
            [
                name,
                number(with_error(one["average_regret"]), one["average_regret"][0]),
                number(with_error(one["simple_regret"]), one["simple_regret"][0]),
                number(optional(one["coverage"], "{:.3f}"), one["coverage"]),
                number(optional(one["final_coverage"], "{:.3f}"), one["final_coverage"]),
                number(optional(one["mean_width"], "{:.3g}"), one["mean_width"]),
                number(f"{100 * one['truncated']:.2g}%" if one["truncated"] else "-", one["truncated"]),
                number(f"{one['seconds']:.1f}", one["seconds"]),
            ]
        )
    head = ["algorithm", "average regret", "simple regret", "cover", "end", "width", "truncated", "sec."]
    return table(f"{entry['name']}: results", head, rows, LEGEND)


def _regret(stored: Stored, panel: PanelConfig, looks: dict[str, Any]) -> str:
    regret = curves(stored, panel, "regret")
    average = {k: np.cumsum(v, axis=1) / np.arange(1, panel.horizon + 1) for k, v in regret.items()}
    simple = curves(stored, panel, "simple_regret")
    pictures = [
        picture(_banded(of, looks, name), f"{name} of {panel.name} against the round. {_at_the_end(of)}")
        for name, of in (("average regret", average), ("simple regret", simple))
    ]
    band = ", shaded ± standard error" if panel.trials > 1 else ""
    caption = (
        f"Average regret R_t / t, and simple regret of the arm of largest posterior mean, against the round: mean over "
        f"{panel.trials} trials{band}."
    )
    return figure(pictures, caption, legend(looks))


def _banded(of: Curves, looks: dict[str, Any], name: str) -> Any:
    def draw(axis: Axes) -> None:
        for label, values in of.items():
            rounds = marks(values.shape[1])
            values = values[:, rounds - 1]
            mean = values.mean(0)
            axis.plot(rounds, mean, **looks[label])
            if len(values) > 1:
                error = values.std(0, ddof=1) / np.sqrt(len(values))
                axis.fill_between(rounds, mean - error, mean + error, color=looks[label]["color"], alpha=0.15, lw=0)
        axis.set_ylim(bottom=0.0)
        rounds_axis(axis, log=True)
        axis.set_title(name)

    return draw


def _at_the_end(of: Curves) -> str:
    """Last values, best first, in words for those who do not see the picture."""
    last = sorted((float(values[:, -1].mean()), label) for label, values in of.items())
    return "At the end: " + ", ".join(f"{label} {value:.3g}" for value, label in last) + "."


def _confidence(stored: Stored, panel: PanelConfig, entry: dict[str, Any], looks: dict[str, Any]) -> str:
    labels = [label for label, one in entry["algorithms"].items() if one["mean_width"] is not None]
    if not labels:
        return ""
    means = {
        column: {k: v.mean(0, keepdims=True) for k, v in curves(stored, panel, column).items() if k in labels}
        for column in ("coverage", "width")
    }
    target = 1.0 - panel.delta

    def coverage(axis: Axes) -> None:
        axis.axhline(target, color=INK, linestyle=":", linewidth=1.0)
        _lines(axis, means["coverage"], looks)
        low = min(axis.get_ylim()[0], 0.99)
        axis.set_ylim(low, 1.0 + 0.04 * (1.0 - low))
        axis.set_title("coverage")

    def width(axis: Axes) -> None:
        _lines(axis, means["width"], looks)
        scale_for(axis, np.concatenate([v[0] for v in means["width"].values()]))
        axis.set_title("width")

    alts = [
        f"Coverage of {panel.name} against the round, with 1 - delta = {target:g}. {_at_the_end(means['coverage'])}",
        f"Width of {panel.name} against the round. {_at_the_end(means['width'])}",
    ]
    pictures = [picture(draw, alt) for draw, alt in zip((coverage, width), alts, strict=True)]
    caption = (
        f"Share of arms whose mean lies in the interval (dotted: 1 − delta = {target:g}), and the confidence width "
        f"that multiplies sigma, before each round: means over {panel.trials} trials. No line before the end of an "
        "initial design."
    )
    content = figure(pictures, caption, legend({label: looks[label] for label in labels}))
    worst = _intervals(stored, panel, labels, looks)
    if worst:
        content += worst if panel.intervals else details("Confidence intervals of the worst-covered trials", worst)
    return section("Confidence", content)


def _lines(axis: Axes, of: Curves, looks: dict[str, Any]) -> None:
    for label, values in of.items():
        rounds = marks(values.shape[1])
        axis.plot(rounds, values[0, rounds - 1], **looks[label])
    rounds_axis(axis, log=True)


def _intervals(stored: Stored, panel: PanelConfig, labels: Sequence[str], looks: dict[str, Any]) -> str:
    pictures, num_arms = [], 0
    for label in labels:
        final = {k: v.double().numpy() for k, v in load_final(stored.folder, *stored.places[panel.name, label]).items()}
        num_arms = len(final["f"])
        if np.isfinite(final["reach"]).all():
            share = 100.0 * np.mean(np.abs(final["f"] - final["mean"]) <= final["reach"])
            alt = f"Final interval of {label} against f by arm: {share:.0f} % of the arms are covered."
            title = f"{share:.0f} % covered"
            shown = picture(_interval(final, looks[label]["color"], title), alt, (3.6, 2.4))
            pictures.append(f"<h4>{text(label)}</h4>{shown}")
    if not pictures:
        return ""
    drawn = f" {DRAWN_ARMS} of {num_arms} arms are drawn, evenly spaced." if num_arms > DRAWN_ARMS else ""
    caption = (
        f"After the last round, of the trial of {panel.trials} whose interval covers least: posterior mean (line) ± "
        f"width · sigma (shaded) and the true f (dashed), by arm.{drawn}"
    )
    return figure(pictures, caption, kind="small")


def _interval(final: Curves, colour: str, title: str) -> Any:
    def draw(axis: Axes) -> None:
        n = len(final["f"])
        arms = np.unique(np.linspace(0, n - 1, min(n, DRAWN_ARMS)).round().astype(int))
        mean, reach, f = (final[key][arms] for key in ("mean", "reach", "f"))
        axis.fill_between(arms, mean - reach, mean + reach, color=colour, alpha=0.25, lw=0)
        axis.plot(arms, mean, color=colour)
        axis.plot(arms, f, color=INK, linestyle="--", linewidth=1.0)
        axis.set_xlabel("arm")
        axis.set_title(title, fontsize=9)

    return draw
