"""The sections of one panel of a value-at-risk run."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes

from bo_robust.runner.html.elements import figure, number, paragraph, section, table, text
from bo_robust.runner.html.environments import environments
from bo_robust.runner.html.load import Stored
from bo_robust.runner.html.pictures import INK, legend, picture, rounds_axis, scale_for, styles
from bo_robust.runner.html.settings import settings
from bo_robust.runner.robust.config import RobustPanelConfig
from bo_robust.runner.robust.plot import plot_certificate
from bo_robust.runner.robust.report import LEGEND, with_interval
from bo_robust.runner.robust.results import CONFIDENCE, curves, log_regret, mean_interval

__all__ = ["panel_sections"]

Curves = dict[str, np.ndarray]


def panel_sections(stored: Stored, index: int) -> str:
    """Everything about one of ``stored.panels``, as markup."""
    panel: RobustPanelConfig = stored.panels[index]
    entry = stored.summary["panels"][index]
    looks = styles([m.label for m in panel.methods])
    best = entry["optimum"]
    where = ", ".join(f"{v:.4g}" for v in best["x"])
    facts = (
        f"{entry['repetitions']} repetitions × {entry['rounds']} rounds. Value at risk at level alpha = "
        f"{entry['alpha']:g}; the largest found is {best['value']:.4g}, at x = ({where})."
    )
    parts = [
        paragraph(facts, "facts"),
        paragraph(entry["notes"] or ""),
        section("Results", _results(entry)),
        section("Regret and certificate", _regret(stored, panel, looks)),
        section("Value at risk of the recommended designs", _value(stored, panel, entry, looks)),
        section("Across environments", environments(stored, index, looks)),
        section("Time per acquisition", _seconds(stored, panel, looks)),
        section("Settings", settings(stored, index)),
    ]
    return "".join(parts)


def _results(entry: dict[str, Any]) -> str:
    rows = []
    for label, one in entry["methods"].items():
        certified = one["certificate"] is not None
        rows.append(
            [
                text(label) + (' <span class="tag">lowest</span>' if label == entry["best"] else ""),
                number(with_interval(one["log10_regret"], one["interval"]), one["log10_regret"]),
                number(f"{one['median_regret']:.3g}", one["median_regret"]),
                number(f"{one['certificate']:.3g}" if certified else "-", one["certificate"]),
                number(f"{100 * one['certificate_held']:.0f}%" if certified else "-", one["certificate_held"]),
                number(f"{one['seconds']:.3g}", one["seconds"]),
            ]
        )
    head = ["method", "log10 regret", "median regret", "certificate", "held", "sec."]
    return table(f"{entry['name']}: results", head, rows, LEGEND)


def _regret(stored: Stored, panel: RobustPanelConfig, looks: dict[str, Any]) -> str:
    rows = stored.rows(panel.name)
    logs = {label: log_regret(values) for label, values in curves(rows, panel, "regret").items()}
    pictures = [
        picture(
            lambda axis: _banded(axis, logs, looks, "log10 regret of the recommendation"),
            f"log10 regret of {panel.name} against the round. {_at_the_end(logs)}",
        )
    ]
    certificates = {m.label: curves(rows, panel, "certificate")[m.label] for m in panel.methods if m.build().certifies}
    caption = f"Regret of the recommendation, mean and {100 * CONFIDENCE:.0f} % confidence interval of the mean."
    if certificates:

        def certificate(axis: Axes) -> None:
            plot_certificate(axis, panel, rows, looks)
            if (found := axis.get_legend()) is not None:
                found.remove()
            rounds_axis(axis)
            axis.set_title("how far from optimal it can be, and is")

        alt = f"Median certificate, bound and regret of {panel.name} against the round. {_at_the_end(certificates)}"
        pictures.append(picture(certificate, alt))
        caption += (
            " Beside it, medians of the methods that certify: the certificate (solid), which no regret exceeds while "
            "f lies in its interval; the regret (dashed); the bound 2 w sigma at the point chosen (dotted)."
        )
    return figure(pictures, caption, legend(looks))


def _value(stored: Stored, panel: RobustPanelConfig, entry: dict[str, Any], looks: dict[str, Any]) -> str:
    rows, best = stored.rows(panel.name), entry["optimum"]["value"]
    values = {label: best - regret for label, regret in curves(rows, panel, "regret").items()}
    lengths = {label: np.median(of, 0, keepdims=True) for label, of in curves(rows, panel, "interval").items()}

    def value(axis: Axes) -> None:
        axis.axhline(best, color=INK, linestyle=":", linewidth=1.0)
        for label, of in values.items():
            axis.plot(np.median(of, 0), **looks[label])
        rounds_axis(axis)
        axis.set_title("value at risk (median)")

    def length(axis: Axes) -> None:
        for label, of in lengths.items():
            axis.plot(of[0], **looks[label])
        scale_for(axis, np.concatenate([of[0] for of in lengths.values()]))
        rounds_axis(axis)
        axis.set_title("length of its interval (median)")

    pictures = [
        picture(value, f"Value at risk of the recommendation of {panel.name} by round. {_at_the_end(values)}"),
        picture(length, f"Length of its interval of {panel.name} by round. {_at_the_end(lengths)}"),
    ]
    caption = (
        f"True value at risk of the recommended design (dotted: {best:.4g}, the largest found), and VaR(u) − VaR(l), "
        "the length of its confidence interval."
    )
    at_end = {label: of[:, -1] for label, of in values.items()}
    body = [
        [text(label), *(number(f"{v:.4g}", v) for v in (float(np.median(of)), float(of.min()), float(of.max())))]
        for label, of in at_end.items()
    ]
    head = ["method", "median", "smallest", "largest"]
    below = f"Over {panel.repetitions} repetitions, after the last round; the largest value at risk is {best:.4g}."
    content = figure(pictures, caption, legend(looks))
    return content + table(f"{panel.name}: value at risk of the recommended designs", head, body, below)


def _seconds(stored: Stored, panel: RobustPanelConfig, looks: dict[str, Any]) -> str:
    seconds = {k: v[:, :-1] for k, v in curves(stored.rows(panel.name), panel, "seconds").items()}
    medians = {label: np.median(of, 0, keepdims=True) for label, of in seconds.items()}

    def draw(axis: Axes) -> None:
        for label, of in medians.items():
            axis.plot(of[0], **looks[label])
        axis.set_yscale("log")
        rounds_axis(axis)
        axis.set_title("seconds per acquisition")

    shown = picture(draw, f"Seconds per acquisition of {panel.name} by round, medians. {_at_the_end(medians)}")
    return figure([shown], "Seconds to choose a point, the fit not counted: medians over repetitions.", legend(looks))


def _banded(axis: Axes, of: Curves, looks: dict[str, Any], title: str) -> None:
    for label, values in of.items():
        mean, low, high = mean_interval(values)
        axis.plot(mean, **looks[label])
        axis.fill_between(np.arange(len(mean)), low, high, color=looks[label]["color"], alpha=0.15, lw=0)
    rounds_axis(axis)
    axis.set_title(title)


def _at_the_end(of: Curves) -> str:
    """Last values, smallest first, in words for those who do not see the picture."""
    last = sorted((float(values[:, -1].mean()), label) for label, values in of.items())
    return "At the end: " + ", ".join(f"{label} {value:.3g}" for value, label in last) + "."
