"""The table and the closing words: what was found, with its uncertainty."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from bo_robust.runner.eliminations import elimination_line

__all__ = ["closing_lines", "optional", "print_report", "with_error"]

# Tables are never narrower than this: a terminal may wrap a line, but no digit is cut.
TABLE_WIDTH = 96
LEGEND = (
    "average regret: R_T / T; simple regret: of the arm of largest posterior mean after the last round; both mean ± "
    "standard error over trials. cover: share of arms whose mean lies in the interval, over all rounds; end: in the "
    "last round; of the likeliest candidate, where there are some. Differences are paired by trial; 'lower' and "
    "'higher' are t tests at 5 %, one at a time."
)


def print_report(summary: dict[str, Any], console: Console) -> None:
    """Print one table per panel, then warnings and closing lines."""
    for panel in summary["panels"]:
        title = f"{panel['name']}: {panel['trials']} trials x {panel['horizon']} rounds"
        table = Table(title=escape(title), title_justify="left", pad_edge=False)
        table.add_column("algorithm", no_wrap=True)
        for column in ("average regret", "simple regret", "cover", "end", "width", "trunc.", "sec."):
            table.add_column(column, justify="right", no_wrap=True)
        for label, entry in panel["algorithms"].items():
            table.add_row(
                escape(label),
                with_error(entry["average_regret"]),
                with_error(entry["simple_regret"]),
                optional(entry["coverage"], "{:.3f}"),
                optional(entry["final_coverage"], "{:.3f}"),
                optional(entry["mean_width"], "{:.3g}"),
                f"{100 * entry['truncated']:.2g}%" if entry["truncated"] else "-",
                f"{entry['seconds']:.1f}",
            )
        width, console.width = console.width, max(console.width, TABLE_WIDTH)
        console.print(table)
        console.width = width
        if panel["notes"]:
            console.print(panel["notes"], style="dim", markup=False)
        for line in panel["warnings"]:
            console.print(f"Warning: {line}", style="yellow", markup=False)
    console.print(LEGEND, style="dim", markup=False)
    for line in closing_lines(summary):
        console.print(line, markup=False)


def closing_lines(summary: dict[str, Any]) -> list[str]:
    """What was found, in words."""
    lines = []
    for panel in summary["panels"]:
        entries, best = panel["algorithms"], panel["best"]
        line = f"{panel['name']}: lowest average regret {entries[best]['average_regret'][0]:.3g} by {best}"
        ties = panel["not_distinguishable_from_best"]
        lines.append(line + (f", not distinguishable from {', '.join(ties)}." if ties else "."))
        lines += ["  " + _in_words(comparison, entries) for comparison in panel["comparisons"]]
        if panel["no_better_than_random"]:
            lines.append(f"  Not shown to be better than random arms: {', '.join(panel['no_better_than_random'])}.")
        for label, entry in entries.items():
            if entry["eliminations"] is not None:
                lines.append(f"  {label}: {elimination_line(entry['eliminations'])}")
            if entry["coverage"] is not None and entry["coverage"] < 1.0 - panel["delta"]:
                lines.append(
                    f"  {label}: intervals covered {entry['coverage']:.3f} of the arms, below 1 - delta = "
                    f"{1 - panel['delta']:.3g}; do not read them as guarantees."
                )
            if entry["failed_pulls"]:
                trial, round_ = entry["first_failed"]
                lines.append(
                    f"  {label}: {entry['failed_pulls']} failed pulls (rewards NaN or infinite), the first in trial "
                    f"{trial}, round {round_}; they taught nothing and the trials went on."
                )
    return lines


def _in_words(comparison: dict[str, Any], entries: dict[str, Any]) -> str:
    ours, theirs = comparison["pair"]
    parts = []
    for measure in ("average_regret", "simple_regret"):
        mean, error = comparison[measure]["mean"], comparison[measure]["error"]
        a, b = entries[ours][measure][0], entries[theirs][measure][0]
        name = measure.replace("_", " ")
        if mean == 0.0 and not error:
            parts.append(f"{name} {a:.3g}, identical in every trial")
            continue
        verdict = "no difference beyond noise"
        if error is None:
            verdict = "a single trial, no verdict"
        elif comparison[measure]["significant"]:
            verdict = ("lower" if mean < 0 else "higher") + (f" by {100 * abs(mean) / b:.0f} %" if b > 0 else "")
        difference = f"difference {mean:.2g}" + ("" if error is None else f" ± {error:.2g}")
        parts.append(f"{name} {a:.3g} against {b:.3g} ({verdict}; {difference})")
    return f"{ours} against {theirs}: " + "; ".join(parts) + "."


def with_error(value: list[float] | tuple[float, float | None]) -> str:
    """A mean and its standard error, if it has one."""
    mean, error = value
    return f"{mean:.3g}" if error is None else f"{mean:.3g} ± {error:.2g}"


def optional(value: float | None, form: str) -> str:
    """A number in a format of :meth:`str.format`, or a dash."""
    return "-" if value is None else form.format(value)
