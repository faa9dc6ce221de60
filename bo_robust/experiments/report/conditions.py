"""What the page shows of one panel of a run over (x, z)."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from bo_robust.experiments.comparisons import mean_interval
from bo_robust.experiments.config import Panel
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


def sections(run: RunResults, panel: Panel, numbers: dict[str, Any], looks: Looks) -> dict[str, Any]:
    """Everything that ``conditions.html.j2`` shows of a panel beside its summary, ``numbers``."""
    best = numbers["optimum"]["value"]
    values = {label: best - regret for label, regret in run.curves(panel, "regret").items()}
    return {
        "confidence": CONFIDENCE,
        "regret": regret(run, panel, looks),
        "value": _value(run, panel, values, best, looks),
        "final_values": {label: of[:, -1] for label, of in values.items()},
        "environments": environments(run, panel, looks),
        "seconds": seconds(run, panel, looks),
    }


def regret(run: RunResults, panel: Panel, looks: Looks) -> list[Picture]:
    """log10 regret of the recommendation, and the certificate where methods certify."""
    intervals = {label: mean_interval(log_regret(of), CONFIDENCE) for label, of in run.curves(panel, "regret").items()}
    means = {label: mean for label, (mean, _, _) in intervals.items()}
    bands = {label: (low, high) for label, (_, low, high) in intervals.items()}
    said = f"log10 regret of {panel.name} against the round."
    pictures = [curves_picture("log10 regret of the recommendation", said, means, looks, bands=bands)]
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
        said = f"Median certificate, bound and regret of {panel.name} against the round. {last}"
        pictures.append(Picture(draw, said))
    return pictures


def _value(run: RunResults, panel: Panel, values: dict[str, np.ndarray], best: float, looks: Looks) -> list[Picture]:
    """True value at risk of the recommended designs, and the length of its confidence interval."""
    medians = {label: np.median(of, 0) for label, of in values.items()}
    lengths = {label: np.median(of, 0) for label, of in run.curves(panel, "interval").items()}
    said = f"Value at risk of the recommendation of {panel.name} by round."
    value = curves_picture("value at risk (median)", said, medians, looks, rule=best)
    said = f"Length of its interval of {panel.name} by round."
    return [value, curves_picture("length of its interval (median)", said, lengths, looks, y=log_if_wide)]


def seconds(run: RunResults, panel: Panel, looks: Looks) -> Picture:
    """Medians of the time that the choice of a point takes."""
    # After the last round only methods that certify look for a point.
    medians = {label: np.median(of[:, :-1], 0) for label, of in run.curves(panel, "seconds").items()}
    said = f"Seconds per acquisition of {panel.name} by round, medians."
    return curves_picture("seconds per acquisition", said, medians, looks, y=lambda axis: axis.set_yscale("log"))


def environments(run: RunResults, panel: Panel, looks: Looks) -> dict[str, Any]:
    """Numbers and pictures of every method's median trial, and of the best design found."""
    known, found = run.metadata[panel.name][panel.labels[0]], {}
    for label in panel.labels:
        rows = run.rows(panel.name, label)
        last = rows[rows["round"] == panel.horizon].sort_values("regret", kind="stable")
        # The lower median, so that it is one of the trials.
        median = last.iloc[(len(last) - 1) // 2]
        value = known["value"] - median["regret"]
        found[label] = _spread(median["recommended"], value, median["values"], known["probabilities"])
        found[label]["trial"] = median["trial"]
    found[BEST] = _spread(known["x"], known["value"], known["values"], known["probabilities"])
    looks = {**looks, BEST: {"color": INK, "linestyle": "--"}}
    at_risk = ", ".join(f"{label} {one['value']:.4g}" for label, one in found.items())
    pictures = []
    for part, upto in (("", 1.0), (", the lower tail", min(1.0, TAIL * known["alpha"]))):
        said = f"Distribution of f over the environments of {panel.name}{part}. Values at risk: {at_risk}."
        pictures.append(
            Picture(partial(_distribution, found=found, looks=looks, alpha=known["alpha"], upto=upto), said)
        )
    return {"found": found, "pictures": pictures, "looks": looks}


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


def _distribution(axis: Axes, found: Mapping[str, Any], looks: Looks, alpha: float, upto: float) -> None:
    begin = []
    for label, one in found.items():
        below, last = one["below"], len(one["below"]) - 1
        drawn = np.unique(np.searchsorted(below, np.linspace(0.0, upto, DRAWN)).clip(max=last))
        f, share = one["f"][drawn], below[drawn]
        axis.step(np.append(f[0], f), np.append(0.0, share), where="post", **looks[label])
        begin.append(one["f"][np.searchsorted(below, CUT_OFF).clip(max=last)])
        axis.plot([one["value"]], [alpha], marker="o", markersize=4.0, color=looks[label]["color"])
    axis.axhline(alpha, color=INK, linestyle=":", linewidth=1.0)
    end = axis.get_xlim()[1]
    axis.set_xlim(min(begin) - 0.05 * (end - min(begin)), end)
    axis.set_ylim(0.0, 1.02 * upto)
    axis.set_xlabel("f")
    axis.set_title("probability that f is at most this" + (", lower tail" if upto < 1.0 else ""))
