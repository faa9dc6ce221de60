"""What the page shows of one panel of a run over (x, z)."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from bo_robust.experiments.comparisons import mean_interval
from bo_robust.experiments.config import Panel
from bo_robust.experiments.report.parts import Cell, Figure, Section, Table, number
from bo_robust.experiments.report.pictures import (
    INK,
    Looks,
    Picture,
    at_the_end,
    curves_picture,
    log_if_wide,
    rounds_axis,
)
from bo_robust.experiments.results import RunResults
from bo_robust.experiments.summary import CONFIDENCE, log_regret

BEST = "best design found"
# Points of a curve. The lower tail is drawn up to TAIL times alpha. The axis begins where CUT_OFF of the probability
# lies below.
DRAWN, TAIL, CUT_OFF = 300, 3.0, 1e-3
CERTIFICATES = (
    " Beside it, medians of the methods that certify: the certificate (solid), which no regret exceeds while f lies "
    "in its interval; the regret (dashed); 2 w sigma at the point chosen (dotted), where it is a bound."
)
SECONDS = "Seconds to choose a point, the fit not counted: medians over trials."
MEDIAN_TRIAL = (
    "Of the median trial of each method, by its regret after the last round (of an even number the better one of the "
    "middle two): the recommended x, its true value at risk, and mean, smallest and largest f over the points of Z."
)


def sections(run: RunResults, panel: Panel, summary: dict[str, Any], looks: Looks) -> list[Section]:
    """What the page shows of a panel between results and settings; ``summary`` is that of the panel."""
    best, pictures = summary["optimum"]["value"], regret(run, panel, looks)
    caption = (
        "Regret of the recommendation, mean and "
        f"{100 * CONFIDENCE:.0f} % confidence interval of the mean.{CERTIFICATES if len(pictures) > 1 else ''}"
    )
    return [
        Section("Regret and certificate", [Figure(pictures, caption, looks)]),
        _value(run, panel, best, looks),
        _environments(run, panel, looks),
        Section("Time per acquisition", [Figure([seconds(run, panel, looks)], SECONDS, looks)]),
    ]


def regret(run: RunResults, panel: Panel, looks: Looks) -> list[Picture]:
    """log10 regret of the recommendation, and the certificate where methods certify."""
    intervals = {label: mean_interval(log_regret(of), CONFIDENCE) for label, of in run.curves(panel, "regret").items()}
    means = {label: mean for label, (mean, _, _) in intervals.items()}
    bands = {label: (low, high) for label, (_, low, high) in intervals.items()}
    words = f"log10 regret of {panel.name} against the round."
    pictures = [curves_picture("log10 regret of the recommendation", words, means, looks, bands=bands)]
    certificates, regrets, bounds = (run.curves(panel, name) for name in ("certificate", "regret", "bound"))
    certify = [label for label, of in certificates.items() if not np.isnan(of).all()]
    if certify:

        def draw(axis: Axes) -> None:
            for label in certify:
                colour = looks[label]["color"]
                axis.plot(np.median(certificates[label], 0), color=colour)
                # After the last round no point is chosen.
                axis.plot(np.median(bounds[label][:, :-1], 0), color=colour, linestyle=":")
                axis.plot(10.0 ** np.median(log_regret(regrets[label]), 0), color=colour, linestyle="--")
            axis.set_yscale("log")
            rounds_axis(axis)
            axis.set_title("certificate (solid), regret (dashed), 2 w sigma (dotted) where it is a bound")

        last = at_the_end({label: float(np.median(certificates[label][:, -1])) for label in certify})
        words = f"Median certificate, bound and regret of {panel.name} against the round. {last}"
        pictures.append(Picture(draw, words))
    return pictures


def _value(run: RunResults, panel: Panel, best: float, looks: Looks) -> Section:
    """True value at risk of the recommended designs, and the length of its confidence interval."""
    values = {label: best - regrets for label, regrets in run.curves(panel, "regret").items()}
    medians = {label: np.median(value, 0) for label, value in values.items()}
    lengths = {label: np.median(length, 0) for label, length in run.curves(panel, "interval").items()}
    words = f"Value at risk of the recommendation of {panel.name} by round."
    value = curves_picture("value at risk (median)", words, medians, looks, line_at=best)
    words = f"Length of its interval of {panel.name} by round."
    length = curves_picture("length of its interval (median)", words, lengths, looks, y=log_if_wide)
    caption = (
        f"True value at risk of the recommended design (dotted: {best:.4g}, the largest found), and VaR(u) − VaR(l), "
        "the length of its confidence interval."
    )
    rows = {
        label: [number(np.median(value[:, -1])), number(value[:, -1].min()), number(value[:, -1].max())]
        for label, value in values.items()
    }
    title = "Value at risk of the recommended designs"
    below = f"Over {panel.trials} trials, after the last round; the largest value at risk is {best:.4g}."
    head = ["method", "median", "smallest", "largest"]
    table = Table(f"{panel.name}: {title[0].lower()}{title[1:]}", head, rows, below)
    return Section(title, [Figure([value, length], caption, looks), table])


def seconds(run: RunResults, panel: Panel, looks: Looks) -> Picture:
    """Medians of the time that the choice of a point takes."""
    # After the last round only methods that certify look for a point.
    medians = {label: np.median(of[:, :-1], 0) for label, of in run.curves(panel, "seconds").items()}
    words = f"Seconds per acquisition of {panel.name} by round, medians."
    return curves_picture("seconds per acquisition", words, medians, looks, y=lambda axis: axis.set_yscale("log"))


def _environments(run: RunResults, panel: Panel, looks: Looks) -> Section:
    """How f varies over the environment at the design of every method's median trial, and at the best one found."""
    known, designs = run.metadata[panel.name][panel.labels[0]], {}
    for label in panel.labels:
        rows = run.rows(panel.name, label)
        last = rows[rows["round"] == panel.horizon].sort_values("regret", kind="stable")
        # The lower median, so that it is one of the trials.
        median = last.iloc[(len(last) - 1) // 2]
        value = known["value"] - median["regret"]
        designs[label] = _spread(median["recommended"], value, median["values"], known["probabilities"])
        designs[label]["trial"] = median["trial"]
    designs[BEST] = _spread(known["x"], known["value"], known["values"], known["probabilities"])
    looks = {**looks, BEST: {"color": INK, "linestyle": "--"}}
    alpha, at_risk = known["alpha"], ", ".join(f"{label} {design['value']:.4g}" for label, design in designs.items())
    pictures = []
    for part, upto in (("", 1.0), (", the lower tail", min(1.0, TAIL * alpha))):
        words = f"Distribution of f over the environments of {panel.name}{part}. Values at risk: {at_risk}."
        pictures.append(Picture(partial(_distribution, designs=designs, looks=looks, alpha=alpha, upto=upto), words))
    caption = (
        "Distribution of f(x, Z), without noise, over the points of Z with their probabilities, at the design "
        f"recommended after the last round by the median trial of each method ({panel.trials} trials) and at the "
        f"best design found: the probability that f is at most the value on the axis, cut off below {CUT_OFF:g}. "
        f"Dotted: alpha = {alpha:g}; dots: values at risk. Right: the lower tail."
    )
    cells = {
        label: [
            number(design["trial"], "{}"),
            Cell(f"({', '.join(f'{v:.4g}' for v in design['x'])})"),
            *(number(value) for value in (design["value"], design["mean"], design["f"][0], design["f"][-1])),
        ]
        for label, design in designs.items()
    }
    head = ["method", "trial", "x", "value at risk", "mean", "smallest", "largest"]
    table = Table(f"{panel.name}: f over the environments", head, cells, MEDIAN_TRIAL)
    return Section("Across environments", [Figure(pictures, caption, looks), table])


def _spread(x: Sequence[float], value: float, f: Sequence[float], probabilities: Sequence[float]) -> dict[str, Any]:
    """f at a design ``x`` over the points of Z in rising order, its distribution function and mean."""
    values, p = np.array(f, dtype=float), np.array(probabilities)
    order = values.argsort(kind="stable")
    # Points of probability 0 do not belong to the distribution.
    order = order[p[order] > 0.0]
    values, p = values[order], p[order]
    return {
        "trial": None,
        "x": x,
        "value": value,
        "f": values,
        "below": np.minimum(p.cumsum(), 1.0),
        "mean": values @ p,
    }


def _distribution(axis: Axes, designs: Mapping[str, Any], looks: Looks, alpha: float, upto: float) -> None:
    begin = []
    for label, design in designs.items():
        below, last = design["below"], len(design["below"]) - 1
        drawn = np.unique(np.searchsorted(below, np.linspace(0.0, upto, DRAWN)).clip(max=last))
        f, share = design["f"][drawn], below[drawn]
        axis.step(np.append(f[0], f), np.append(0.0, share), where="post", **looks[label])
        begin.append(design["f"][np.searchsorted(below, CUT_OFF).clip(max=last)])
        axis.plot([design["value"]], [alpha], marker="o", markersize=4.0, color=looks[label]["color"])
    axis.axhline(alpha, color=INK, linestyle=":", linewidth=1.0)
    end = axis.get_xlim()[1]
    axis.set_xlim(min(begin) - 0.05 * (end - min(begin)), end)
    axis.set_ylim(0.0, 1.02 * upto)
    axis.set_xlabel("f")
    axis.set_title("probability that f is at most this" + (", lower tail" if upto < 1.0 else ""))
