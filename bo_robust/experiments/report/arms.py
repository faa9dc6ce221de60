"""What the page shows of one panel of a run over arms."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes

from bo_robust.experiments.config import PanelConfig
from bo_robust.experiments.report.dictionaries import dictionaries
from bo_robust.experiments.report.eliminations import eliminations
from bo_robust.experiments.report.pictures import (
    INK,
    Looks,
    Picture,
    curves_picture,
    from_zero,
    log_if_wide,
    marks,
)
from bo_robust.experiments.report.truncation import truncation
from bo_robust.experiments.results import RunResults

# Where there are more arms, so many are drawn, evenly spaced.
DRAWN_ARMS = 300


def sections(run: RunResults, panel: PanelConfig, entry: dict[str, Any], looks: Looks) -> dict[str, Any]:
    """Everything that ``arms.html.j2`` shows of a panel beside its summary, ``entry``."""
    return {
        "regret": regret(run, panel, looks),
        "confidence": _confidence(run, panel, entry, looks),
        "truncation": truncation(run, panel, looks),
        "eliminations": eliminations(panel, entry),
        "dictionaries": dictionaries(run, panel, looks),
    }


def regret(run: RunResults, panel: PanelConfig, looks: Looks) -> list[Picture]:
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


def _confidence(run: RunResults, panel: PanelConfig, entry: dict[str, Any], looks: Looks) -> dict[str, Any] | None:
    """Coverage and width of the algorithms that have confidence intervals; None if there are none."""
    labels = [label for label, one in entry["algorithms"].items() if one["mean_width"] is not None]
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
        "num_arms": len(run.finals[panel.name, labels[-1]]["f"]),
        "drawn_arms": DRAWN_ARMS,
        "intervals": [
            interval(run, panel, label, looks)
            for label in labels
            if run.finals[panel.name, label]["reach"].isfinite().all()
        ],
    }


def interval(run: RunResults, panel: PanelConfig, label: str, looks: Looks) -> Picture:
    """Final confidence intervals of an algorithm's worst-covered trial by arm, if it has any, with f."""
    final = {name: of.double().numpy() for name, of in run.finals[panel.name, label].items()}
    has_any = np.isfinite(final["reach"]).all()
    share = 100.0 * np.mean(np.abs(final["f"] - final["mean"]) <= final["reach"])

    def draw(axis: Axes) -> None:
        n = len(final["f"])
        arms = np.unique(np.linspace(0, n - 1, min(n, DRAWN_ARMS)).round().astype(int))
        mean, reach, f = (final[key][arms] for key in ("mean", "reach", "f"))
        if has_any:
            colour = looks[label]["color"]
            axis.fill_between(arms, mean - reach, mean + reach, color=colour, alpha=0.25, lw=0, label="its interval")
            axis.set_title(f"{share:.0f} % covered", fontsize=9)
        axis.plot(arms, mean, color=looks[label]["color"], label="posterior mean")
        axis.plot(arms, f, color=INK, linestyle="--", linewidth=1.0, label="f")
        axis.set_xlabel("arm")

    said = f"Final interval of {label} against f by arm: {share:.0f} % of the arms are covered."
    return Picture(draw, said, (3.6, 2.4), heading=label)
