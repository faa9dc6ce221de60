"""The pictures of one panel, and the table of the designs that its methods recommend."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes

from bo_robust.algorithms import ALGORITHMS
from bo_robust.experiments.comparisons import mean_interval
from bo_robust.experiments.config import Panel
from bo_robust.experiments.report.pictures import INK, Looks, Picture, curves_picture, plain_text, rounds_axis
from bo_robust.experiments.results import RunResults
from bo_robust.experiments.summary import CONFIDENCE, elimination_line, log_regret
from bo_robust.experiments.traces import DICTIONARY_COLUMNS

BEST = "best design found"
# Trials lie side by side within this share of a candidate's row.
SPREAD = 0.6
INTERVAL = "Posterior mean (line) ± width · sigma (shaded) and f (dashed), last round of the worst-covered trial."
TIMELINE = (
    "Dots: eliminations, one a trial, larger the further beyond the limit; crosses: failed but kept; right: trials "
    "survived."
)
DICTIONARY = (
    "Arms in the dictionary (solid; the papers count copies too), and the method's own estimate of the effective "
    "dimension, as of its last rebuild (dashed): means."
)
CERTIFICATE = (
    "Medians: the certificate (solid), which no regret exceeds while f lies in its interval; the regret (dashed); "
    "2 w sigma at the point chosen (dotted), where it is a bound."
)
MEDIAN_TRIAL = (
    "Of the median trial of each method, by its regret after the last round (of an even number the better one of the "
    "middle two): the recommended x, its true value at risk, and mean, smallest and largest f over the points of Z."
)


class Table(NamedTuple):
    """A table: titles of its columns, the texts after the first by label; ``below`` explains the columns."""

    caption: str
    head: Sequence[str]
    rows: Mapping[str, Sequence[str]]
    below: str = ""
    lowest: str | None = None  # The label that is tagged


def pictures_of(run: RunResults, panel: Panel, summary: dict[str, Any], looks: Looks) -> list[Picture]:
    """The pictures of a panel; ``summary`` is that of the panel."""
    if not panel.over_arms:
        return regret_of_recommendations(run, panel, looks)
    return [
        *regret_of_rounds(run, panel, looks),
        *_coverage(run, panel, looks),
        *_truncated(run, panel, looks),
        *_dictionaries(run, panel, looks),
        *timelines(panel, summary),
        *(intervals(run, panel, looks) if panel.intervals else []),
    ]


def regret_of_rounds(run: RunResults, panel: Panel, looks: Looks) -> list[Picture]:
    """Average and simple regret of a panel over arms by round."""
    regrets = run.curves(panel, "regret")
    average = {label: values.cumsum(1) / np.arange(1, panel.horizon + 1) for label, values in regrets.items()}
    shaded = f"mean over {panel.trials} trials{', shaded ± standard error' if panel.trials > 1 else ''}."
    made = []
    for title, curves, caption in (
        ("average regret", average, f"R_t / t: {shaded}"),
        ("simple regret", run.curves(panel, "simple_regret"), f"Of the arm of largest posterior mean: {shaded}"),
    ):
        means, bands = {}, {}
        for label, values in curves.items():
            means[label] = mean = values.mean(0)
            error = values.std(0, ddof=1) / np.sqrt(panel.trials) if panel.trials > 1 else 0.0
            bands[label] = (mean - error, mean + error)
        made.append(
            curves_picture(title, panel.name, means, looks, caption, log_rounds=True, bands=bands, y=_from_zero)
        )
    return made


def _from_zero(axis: Axes) -> None:
    axis.set_ylim(bottom=0.0)


def _coverage(run: RunResults, panel: Panel, looks: Looks) -> list[Picture]:
    """How many arms lie in the intervals of the methods that have some; a method has no line in its initial design."""
    means = {label: values.mean(0) for label, values in run.curves(panel, "coverage").items()}
    means = {label: mean for label, mean in means.items() if not np.isnan(mean).all()}
    if not means:
        return []
    target = 1.0 - panel.delta
    caption = f"Share of arms whose mean lies in the interval before the round (dotted: 1 − delta = {target:g}): means."
    return [curves_picture("coverage", panel.name, means, looks, caption, log_rounds=True, line_at=target)]


def _truncated(run: RunResults, panel: Panel, looks: Looks) -> list[Picture]:
    """How many rewards were truncated so far by methods that truncated any."""
    counts = {label: values.mean(0).cumsum() for label, values in run.curves(panel, "truncated").items()}
    counts = {label: values for label, values in counts.items() if values[-1]}
    if not counts:
        return []
    caption = "Rewards truncated so far, per trial: means."
    return [curves_picture("truncated rewards", panel.name, counts, looks, caption, log_rounds=True, y=_from_zero)]


def _dictionaries(run: RunResults, panel: Panel, looks: Looks) -> list[Picture]:
    """How large dictionaries were, and the estimated effective dimension, of methods that keep one."""
    labels = [method.label for method in panel.methods if "dictionary" in ALGORITHMS[method.name].records]
    if not labels:
        return []
    curves = [run.curves(panel, column) for column in DICTIONARY_COLUMNS]
    sizes, estimates = ({label: by_label[label].mean(0) for label in labels} for by_label in curves)
    title = "dictionary size (solid), effective dimension (dashed)"
    return [
        curves_picture(title, panel.name, sizes, looks, DICTIONARY, log_rounds=True, dashed=estimates, y=_from_zero)
    ]


def intervals(run: RunResults, panel: Panel, looks: Looks) -> list[Picture]:
    """Final confidence intervals of every method's worst-covered trial by arm, where it has some, with f."""
    return [_interval(run, panel, label, looks) for label in panel.labels]


def _interval(run: RunResults, panel: Panel, label: str, looks: Looks) -> Picture:
    known = run.metadata[panel.name][label]
    final = {name: np.array(values) for name, values in known["intervals"].items() if values is not None}
    covered = f", {100.0 * known['covered']:.0f} % covered" if "reach" in final else ""

    def draw(axis: Axes) -> None:
        arms, mean, colour = final["arms"], final["mean"], looks[label]["color"]
        if "reach" in final:
            axis.fill_between(arms, mean - final["reach"], mean + final["reach"], color=colour, alpha=0.25, lw=0)
        axis.plot(arms, mean, color=colour)
        axis.plot(arms, final["f"], color=INK, linestyle="--", linewidth=1.0)
        axis.set_xlabel("arm")

    words = f"Final interval of {label} against f by arm{covered}."
    return Picture(f"{label}{covered}", draw, words, INTERVAL)


def timelines(panel: Panel, summary: dict[str, Any]) -> list[Picture]:
    """Which candidate was eliminated in which round, of every method that eliminates candidates."""
    return [
        _timeline(panel, label, method["eliminations"])
        for label, method in summary["methods"].items()
        if method["eliminations"] is not None
    ]


def _timeline(panel: Panel, label: str, record: dict[str, Any]) -> Picture:
    names, trials, right = list(record["survived"]), record["trials"], set(record["true"] or ())

    def draw(axis: Axes) -> None:
        for eliminated, marker, colour in ((True, "o", "C0"), (False, "x", "C3")):
            failed = [row for row in record["eliminations"] if row["eliminated"] == eliminated]
            axis.scatter(
                [row["round"] for row in failed],
                [names.index(row["name"]) + SPREAD * ((row["trial"] + 0.5) / trials - 0.5) for row in failed],
                s=[12.0 * min(row["left"] / row["right"], 10.0) for row in failed],
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
    return Picture(label, draw, words, TIMELINE, (5.4, 0.9 + 0.22 * len(names)))


def regret_of_recommendations(run: RunResults, panel: Panel, looks: Looks) -> list[Picture]:
    """log10 regret of a panel over (x, z), and the certificate where methods certify."""
    regrets, certificates, bounds = (run.curves(panel, name) for name in ("regret", "certificate", "bound"))
    spans = {label: mean_interval(log_regret(values), CONFIDENCE) for label, values in regrets.items()}
    means = {label: mean for label, (mean, _, _) in spans.items()}
    bands = {label: (low, high) for label, (_, low, high) in spans.items()}
    caption = f"Of the recommendation: mean and {100 * CONFIDENCE:.0f} % confidence interval of the mean."
    made = [curves_picture("log10 regret", panel.name, means, looks, caption, bands=bands)]
    certify = [label for label, values in certificates.items() if not np.isnan(values).all()]
    if certify:
        made.append(
            curves_picture(
                "certificate (solid), regret (dashed)",
                panel.name,
                {label: np.median(certificates[label], 0) for label in certify},
                looks,
                CERTIFICATE,
                dashed={label: 10.0 ** np.median(log_regret(regrets[label]), 0) for label in certify},
                # After the last round no point is chosen.
                dotted={label: np.median(bounds[label][:, :-1], 0) for label in certify},
                y=lambda axis: axis.set_yscale("log"),
            )
        )
    return made


def recommended_designs(run: RunResults, panel: Panel) -> Table:
    """How f varies over the environment at the design of every method's median trial, and at the best one found."""
    known, rows = run.metadata[panel.name][panel.labels[0]], {}
    for label in panel.labels:
        traces = run.rows(panel.name, label)
        last = traces[traces["round"] == panel.horizon].sort_values("regret", kind="stable")
        # The lower median, so that it is one of the trials.
        median = last.iloc[(len(last) - 1) // 2]
        value = known["value"] - median["regret"]
        design = _design(median["recommended"], value, median["values"], known["probabilities"])
        rows[label] = [str(median["trial"]), *design]
    rows[BEST] = ["-", *_design(known["x"], known["value"], known["values"], known["probabilities"])]
    head = ["method", "trial", "x", "value at risk", "mean", "smallest", "largest"]
    return Table(f"{panel.name}: recommended designs", head, rows, MEDIAN_TRIAL)


def _design(x: Sequence[float], value: float, f: Sequence[float], probabilities: Sequence[float]) -> list[str]:
    values, p = np.array(f, dtype=float), np.array(probabilities)
    within = values[p > 0.0]  # points of probability 0 do not belong to Z
    numbers = (value, values @ p, within.min(), within.max())
    return [f"({', '.join(f'{v:.4g}' for v in x)})", *(f"{number:.4g}" for number in numbers)]
