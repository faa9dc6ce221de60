"""A summary on a terminal: a table a panel, warnings, and the findings in words."""

from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

TABLE_WIDTH = 120  # at least: a terminal may wrap a line, but no digit is cut
LEGEND = {
    "arms": (
        "average regret: R_T / T; simple regret: of the arm recommended at the end, of largest posterior mean; best "
        "queried: of the best arm chosen; all mean ± standard error over trials. cover: share of arms whose mean lies "
        "in the interval, over all rounds; end: in the last round; of the likeliest candidate, where there are some. "
        "width: mean multiplier of the standard deviation; truncated: share of the rewards beyond their level; sec.: "
        "time run. Differences are paired by trial; 'lower' and 'higher' are t tests at 5 %, one at a time."
    ),
    "botorch": (
        "simple regret: f at its best less f at the recommendation after the last evaluation, in sd of f, mean ± "
        "standard error over trials; log10 regret: mean and 70 % confidence interval. found: share of the wrong "
        "readings that are flagged as outliers at the end; false: share of the right ones. sec.: time a trial."
    ),
    "environment": (
        "log10 regret: VaR(f) at its best less VaR(f) at the recommendation argmax VaR(mu), after the last round, mean "
        "and 70 % confidence interval of the mean over trials. regret bound: max_x VaR(u) - VaR(l) at the "
        "recommendation, median; held: share of all rounds in which no regret exceeded it. sec.: median per "
        "acquisition, without the fit."
    ),
}


def _cell(method: dict[str, Any], key: str, form: str) -> str:
    """A number of a method in a format of :meth:`str.format`, with its error or interval; a dash stands for None."""
    value = method[key]
    if value is None:
        return "-"
    if key == "log10_regret" and method["interval"] is not None:
        return "{:.2f} [{:.2f}, {:.2f}]".format(value, *method["interval"])
    if key == "truncated":
        return form.format(100.0 * value) if value else "-"
    if isinstance(value, list | tuple):
        mean, error = value
        return form.format(mean) if error is None else f"{form.format(mean)} ± {error:.2g}"
    return form.format(value)


# Columns of the table of a loop: the title, the key of a method of the summary, and its format.
COLUMNS: dict[str, dict[str, tuple[str, str]]] = {
    "arms": {
        "average regret": ("average_regret", "{:.3g}"),
        "simple regret": ("simple_regret", "{:.3g}"),
        "best queried": ("best_queried", "{:.3g}"),
        "cover": ("coverage", "{:.3f}"),
        "end": ("final_coverage", "{:.3f}"),
        "width": ("mean_width", "{:.3g}"),
        "truncated": ("truncated", "{:.2g}%"),
        "sec.": ("seconds", "{:.1f}"),
    },
    "botorch": {
        "simple regret": ("simple_regret", "{:.3g}"),
        "log10 regret": ("log10_regret", "{:.2f}"),
        "found": ("found", "{:.0%}"),
        "false": ("false_alarms", "{:.1%}"),
        "sec.": ("seconds", "{:.3g}"),
    },
    "environment": {
        "log10 regret": ("log10_regret", "{:.2f}"),
        "median regret": ("median_regret", "{:.3g}"),
        "regret bound": ("regret_bound", "{:.3g}"),
        "held": ("regret_bound_held", "{:.0%}"),
        "sec.": ("seconds", "{:.3g}"),
    },
}


def print_report(summary: dict[str, Any], console: Console) -> None:
    for panel in summary["panels"]:
        columns = COLUMNS[panel["loop"]]
        rounds = "evaluations" if panel["loop"] == "botorch" else "rounds"
        title = f"{panel['name']}: {panel['trials']} trials x {panel['horizon']} {rounds}"
        table = Table(title=escape(title), title_justify="left", pad_edge=False)
        table.add_column("method", no_wrap=True)
        for column in columns:
            table.add_column(column, justify="right", no_wrap=True)
        for label, method in panel["methods"].items():
            table.add_row(escape(label), *(_cell(method, *column) for column in columns.values()))
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
        best, methods, loop = panel["best"], panel["methods"], panel["loop"]
        measure = {"arms": "average_regret", "botorch": "simple_regret", "environment": "log10_regret"}[loop]
        value = format(_mean(methods[best][measure]), ".2f" if loop == "environment" else ".3g")
        line = f"{panel['name']}: lowest {measure.replace('_', ' ')} {value} by {best}"
        ties = panel["not_distinguishable_from_best"]
        lines.append(line + (f", not distinguishable from {', '.join(ties)}." if ties else "."))
        lines += ["  " + _in_words(comparison, methods) for comparison in panel["comparisons"]]
        if loop == "arms":
            lines += _arm_lines(panel)
        lines += [
            f"  {label}: {method['failed_fits']} fits failed; the last hyperparameters were kept."
            for label, method in methods.items()
            if method.get("failed_fits")
        ]
    return lines


def _arm_lines(panel: dict[str, Any]) -> list[str]:
    lines = []
    if panel["no_better_than_random"]:
        lines.append(f"  Not shown to be better than random arms: {', '.join(panel['no_better_than_random'])}.")
    for label, method in panel["methods"].items():
        if method["dictionary"] is not None:
            size, ratio = method["dictionary"]
            lines.append(f"  {label}: {size:.3g} arms in the dictionary at the end, {ratio:.3g} d_eff on average.")
        if method["eliminations"] is not None:
            lines.append(f"  {label}: {_elimination_line(method['eliminations'])}")
        if method["coverage"] is not None and method["coverage"] < 1.0 - panel["delta"]:
            lines.append(
                f"  {label}: intervals covered {method['coverage']:.3f} of the arms, below 1 - delta = "
                f"{1 - panel['delta']:.3g}; do not read them as guarantees."
            )
        if method["failed_pulls"]:
            trial, round_ = method["first_failed"]
            lines.append(
                f"  {label}: {method['failed_pulls']} failed pulls (rewards NaN or infinite), the first in trial "
                f"{trial}, round {round_}; they were ignored and the trials went on."
            )
    return lines


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
    return value[0] if isinstance(value, list | tuple) else value


def _elimination_line(eliminations: dict[str, Any]) -> str:
    of, right = f"of {eliminations['trials']} trials", eliminations["true_survived"]
    start = "no candidate is known to be right" if right is None else f"the true candidate survived in {right} {of}"
    if eliminations["mean_eliminated"] == 0.0:
        return f"{start}; none was ever eliminated."
    survived = ", ".join(f"{name} in {count}" for name, count in eliminations["survived"].items())
    gone = f"on average {eliminations['mean_eliminated']:.3g} of {eliminations['candidates']} were eliminated"
    return f"{start}; {gone}; left at the end ({of}): {survived}."
