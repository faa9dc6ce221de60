"""A summary on a terminal: a table a panel, warnings, and the findings in words."""

from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from bo_robust.experiments.loops import LOOPS

TABLE_WIDTH = 120  # at least: a terminal may wrap a line, but no digit is cut


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


def print_report(summary: dict[str, Any], console: Console) -> None:
    for panel in summary["panels"]:
        loop = LOOPS[panel["loop"]]
        columns = loop.columns
        title = f"{panel['name']}: {panel['trials']} trials x {panel['horizon']} {loop.unit}s"
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
    console.print(LOOPS[summary["panels"][0]["loop"]].legend, style="dim", markup=False)
    for line in closing_lines(summary):
        console.print(line, markup=False)


def closing_lines(summary: dict[str, Any]) -> list[str]:
    """The findings in words; lines that belong to the one before are indented."""
    lines = []
    for panel in summary["panels"]:
        best, methods, loop = panel["best"], panel["methods"], LOOPS[panel["loop"]]
        measure, form = next(iter(loop.columns.values()))
        value = form.format(_mean(methods[best][measure]))
        line = f"{panel['name']}: lowest {measure.replace('_', ' ')} {value} by {best}"
        ties = panel["not_distinguishable_from_best"]
        lines.append(line + (f", not distinguishable from {', '.join(ties)}." if ties else "."))
        lines += ["  " + _in_words(comparison, methods) for comparison in panel["comparisons"]]
        lines += ["  " + line for line in loop.lines(panel)]
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
