"""The report on a terminal: tables of results with their uncertainty, and closing words."""

from collections.abc import Callable
from typing import Any, NamedTuple

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from bo_robust.experiments.summary import elimination_line

# Tables are never narrower than this: a terminal may wrap a line, but no digit is cut.
TABLE_WIDTH = 100
LEGEND = {
    "arms": (
        "average regret: R_T / T; simple regret: of the arm of largest posterior mean after the last round; both mean "
        "± standard error over trials. cover: share of arms whose mean lies in the interval, over all rounds; end: in "
        "the last round; of the likeliest candidate, where there are some. width: mean multiplier of the standard "
        "deviation; truncated: share of the rewards beyond their level; sec.: time played. Differences are paired by "
        "trial; 'lower' and 'higher' are t tests at 5 %, one at a time."
    ),
    "conditions": (
        "log10 regret: VaR(f) at its best less VaR(f) at the recommendation argmax VaR(mu), after the last round, mean "
        "and 70 % confidence interval of the mean over trials. certificate: max_x VaR(u) - VaR(l) at the "
        "recommendation, median; held: share of all rounds in which no regret exceeded it. sec.: median per "
        "acquisition, without the fit."
    ),
}


class Column(NamedTuple):
    """A column of a table of results: its title, and the text for a method of the summary."""

    title: str
    text: Callable[[dict[str, Any]], str]


def _column(title: str, key: str, form: str) -> Column:
    """A column of numbers in a format of :meth:`str.format`; a dash stands for None."""
    return Column(title, lambda e: "-" if e[key] is None else form.format(e[key]))


def _with_error(title: str, key: str) -> Column:

    def text(method: dict[str, Any]) -> str:
        mean, error = method[key]
        return f"{mean:.3g}" if error is None else f"{mean:.3g} ± {error:.2g}"

    return Column(title, text)


def _log_regret(method: dict[str, Any]) -> str:
    """A mean and its confidence interval, if it has one."""
    mean, interval = method["log10_regret"], method["interval"]
    return f"{mean:.2f}" if interval is None else f"{mean:.2f} [{interval[0]:.2f}, {interval[1]:.2f}]"


def _truncated(method: dict[str, Any]) -> str:
    return f"{100 * method['truncated']:.2g}%" if method["truncated"] else "-"


COLUMNS: dict[str, list[Column]] = {
    "arms": [
        _with_error("average regret", "average_regret"),
        _with_error("simple regret", "simple_regret"),
        _column("cover", "coverage", "{:.3f}"),
        _column("end", "final_coverage", "{:.3f}"),
        _column("width", "mean_width", "{:.3g}"),
        Column("truncated", _truncated),
        _column("sec.", "seconds", "{:.1f}"),
    ],
    "conditions": [
        Column("log10 regret", _log_regret),
        _column("median regret", "median_regret", "{:.3g}"),
        _column("certificate", "certificate", "{:.3g}"),
        _column("held", "certificate_held", "{:.0%}"),
        _column("sec.", "seconds", "{:.3g}"),
    ],
}


def size_of(panel: dict[str, Any]) -> str:
    """Trials and rounds of a panel of the summary, in words."""
    return f"{panel['trials']} trials x {panel['horizon']} rounds"


def print_report(summary: dict[str, Any], console: Console) -> None:
    """Print one table per panel, then warnings and closing lines."""
    for panel in summary["panels"]:
        columns = COLUMNS[panel["loop"]]
        title = f"{panel['name']}: {size_of(panel)}"
        table = Table(title=escape(title), title_justify="left", pad_edge=False)
        table.add_column("method", no_wrap=True)
        for column in columns:
            table.add_column(column.title, justify="right", no_wrap=True)
        for label, method in panel["methods"].items():
            table.add_row(escape(label), *(column.text(method) for column in columns))
        # Only for the table: rich would cut it to the console, but should wrap the lines below.
        width, console.width = console.width, max(console.width, TABLE_WIDTH)
        console.print(table)
        console.width = width
        if panel["notes"]:
            console.print(panel["notes"], style="dim", markup=False)
        for line in panel["warnings"]:
            console.print(f"Warning: {line}", style="yellow", markup=False)
    console.print(LEGEND[summary["panels"][0]["loop"]], style="dim", markup=False)
    for line in closing_lines(summary):
        console.print(line, markup=False)


def closing_lines(summary: dict[str, Any]) -> list[str]:
    """The findings in words; lines that belong to the one before are indented."""
    lines = []
    for panel in summary["panels"]:
        best, methods, over_arms = panel["best"], panel["methods"], panel["loop"] == "arms"
        if over_arms:
            line = f"{panel['name']}: lowest average regret {methods[best]['average_regret'][0]:.3g} by {best}"
        else:
            line = f"{panel['name']}: lowest log10 regret {methods[best]['log10_regret']:.2f} by {best}"
        ties = panel["not_distinguishable_from_best"]
        lines.append(line + (f", not distinguishable from {', '.join(ties)}." if ties else "."))
        lines += ["  " + _in_words(comparison, methods) for comparison in panel["comparisons"]]
        lines += _arm_lines(panel) if over_arms else _fit_lines(methods)
    return lines


def _arm_lines(panel: dict[str, Any]) -> list[str]:
    lines = []
    if panel["no_better_than_random"]:
        lines.append(f"  Not shown to be better than random arms: {', '.join(panel['no_better_than_random'])}.")
    for label, method in panel["methods"].items():
        if method["eliminations"] is not None:
            lines.append(f"  {label}: {elimination_line(method['eliminations'])}")
        if method["coverage"] is not None and method["coverage"] < 1.0 - panel["delta"]:
            lines.append(
                f"  {label}: intervals covered {method['coverage']:.3f} of the arms, below 1 - delta = "
                f"{1 - panel['delta']:.3g}; do not read them as guarantees."
            )
        if method["failed_pulls"]:
            trial, round_ = method["first_failed"]
            lines.append(
                f"  {label}: {method['failed_pulls']} failed pulls (rewards NaN or infinite), the first in trial "
                f"{trial}, round {round_}; they taught nothing and the trials went on."
            )
    return lines


def _fit_lines(methods: dict[str, Any]) -> list[str]:
    return [
        f"  {label}: {method['failed_fits']} fits failed; the last hyperparameters were kept."
        for label, method in methods.items()
        if method["failed_fits"]
    ]


def _in_words(comparison: dict[str, Any], methods: dict[str, Any]) -> str:
    ours, theirs = comparison["pair"]
    parts = []
    for measure, found in comparison.items():
        if measure == "pair":
            continue
        mean, error = found["mean"], found["error"]
        a, b = (_mean(methods[label][measure]) for label in (ours, theirs))
        name = measure.replace("_", " ")
        if mean == 0.0 and not error:
            parts.append(f"{name} {a:.3g}, identical in every trial")
            continue
        verdict = "no difference beyond noise"
        if error is None:
            verdict = "a single trial, no verdict"
        elif found["significant"]:
            share = f" by {100 * abs(mean) / b:.0f} %" if b > 0 and not measure.startswith("log") else ""
            verdict = ("lower" if mean < 0 else "higher") + share
        gap = f"difference {mean:.2g}" + ("" if error is None else f" ± {error:.2g}")
        parts.append(f"{name} {a:.3g} against {b:.3g} ({verdict}; {gap})")
    return f"{ours} against {theirs}: " + "; ".join(parts) + "."


def _mean(value: Any) -> float:
    """The mean of a measure, which stands alone or with its error."""
    return value[0] if isinstance(value, list | tuple) else value
