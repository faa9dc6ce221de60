"""The table and the closing words: what was found, with its uncertainty."""

from __future__ import annotations

import math
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

__all__ = ["closing_lines", "print_report"]


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
                _with_error(entry["average_regret"]),
                _with_error(entry["simple_regret"]),
                _optional(entry["coverage"], "{:.3f}"),
                _optional(entry["final_coverage"], "{:.3f}"),
                _optional(entry["mean_width"], "{:.3g}"),
                f"{100 * entry['truncated']:.2g}%" if entry["truncated"] else "-",
                f"{entry['seconds']:.1f}",
            )
        console.print(table)
        if panel["notes"]:
            console.print(panel["notes"], style="dim", markup=False)
        for line in panel["warnings"]:
            console.print(f"Warning: {line}", style="yellow", markup=False)
    console.print(
        "average regret: R_T / T; simple regret: of the arm of largest posterior mean after the last round; both mean "
        "± standard error over trials. cover: share of arms whose mean lies in the interval, over all rounds; end: in "
        "the last round.",
        style="dim",
        markup=False,
    )
    for line in closing_lines(summary):
        console.print(line, markup=False)


def closing_lines(summary: dict[str, Any]) -> list[str]:
    """What was found, in words; differences within two standard errors are called noise."""
    lines = []
    for panel in summary["panels"]:
        entries = panel["algorithms"]
        best = min(entries, key=lambda label: entries[label]["average_regret"][0])
        mean = entries[best]["average_regret"][0]
        lines.append(f"{panel['name']}: lowest average regret {mean:.3g} by {best}.")
        for comparison in panel["comparisons"]:
            lines.append("  " + _in_words(comparison, entries))
        for label, entry in entries.items():
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
        saved, error = comparison[f"{measure}_saved"]
        a, b = entries[ours][measure][0], entries[theirs][measure][0]
        if saved == 0.0 and error == 0.0:
            parts.append(f"{measure.replace('_', ' ')} {a:.3g}, identical in every trial")
            continue
        verdict = "no difference beyond noise"
        if not math.isnan(error) and abs(saved) > 2.0 * error:
            verdict = ("lower" if saved > 0 else "higher") + (f" by {100 * abs(saved) / b:.0f} %" if b > 0 else "")
        elif math.isnan(error):
            verdict = "a single trial, no verdict"
        difference = f"paired difference {saved:.2g} ± {error:.1g}"
        parts.append(f"{measure.replace('_', ' ')} {a:.3g} against {b:.3g} ({verdict}; {difference})")
    return f"{ours} against {theirs}: " + "; ".join(parts) + "."


def _with_error(value: list[float] | tuple[float, float]) -> str:
    mean, error = value
    return f"{mean:.3g}" if math.isnan(error) else f"{mean:.3g} ± {error:.2g}"


def _optional(value: float | None, form: str) -> str:
    return "-" if value is None else form.format(value)
