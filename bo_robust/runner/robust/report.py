"""The table of a robust run and what was found, in words."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

__all__ = ["closing_lines", "print_report", "with_interval"]

TABLE_WIDTH = 100
LEGEND = (
    "log10 regret: VaR(f) at its best less VaR(f) at the recommendation argmax VaR(mu), after the last round, mean and "
    "70 % confidence interval of the mean over repetitions. certificate: max_x VaR(u) - VaR(l) at the recommendation, "
    "median; held: share of all rounds in which no regret exceeded it. sec.: median per acquisition, without the fit."
)


def print_report(summary: dict[str, Any], console: Console) -> None:
    """Print one table per panel, then closing lines."""
    for panel in summary["panels"]:
        title = f"{panel['name']}: {panel['repetitions']} repetitions x {panel['rounds']} rounds"
        table = Table(title=escape(title), title_justify="left", pad_edge=False)
        table.add_column("method", no_wrap=True)
        for column in ("log10 regret", "median regret", "certificate", "held", "sec."):
            table.add_column(column, justify="right", no_wrap=True)
        for label, entry in panel["methods"].items():
            certified = entry["certificate"] is not None
            table.add_row(
                escape(label),
                with_interval(entry["log10_regret"], entry["interval"]),
                f"{entry['median_regret']:.3g}",
                f"{entry['certificate']:.3g}" if certified else "-",
                f"{100 * entry['certificate_held']:.0f}%" if certified else "-",
                f"{entry['seconds']:.3g}",
            )
        width, console.width = console.width, max(console.width, TABLE_WIDTH)
        console.print(table)
        console.width = width
    console.print(LEGEND, style="dim", markup=False)
    for line in closing_lines(summary):
        console.print(line, markup=False)


def closing_lines(summary: dict[str, Any]) -> list[str]:
    """What was found, in words."""
    lines = []
    for panel in summary["panels"]:
        entries, best = panel["methods"], panel["best"]
        line = f"{panel['name']}: lowest log10 regret {entries[best]['log10_regret']:.2f} by {best}"
        ties = panel["not_distinguishable_from_best"]
        line += " (a single repetition)" if panel["repetitions"] == 1 else ""
        lines.append(line + (f", not distinguishable from {', '.join(ties)}." if ties else "."))
        for comparison in panel["comparisons"]:
            ours, theirs = comparison["pair"]
            a, b = entries[ours]["log10_regret"], entries[theirs]["log10_regret"]
            error = comparison["error"]
            verdict = "a single repetition, no verdict"
            if error is not None:
                word = "lower" if comparison["difference"] < 0 else "higher"
                verdict = word if comparison["significant"] else "no difference beyond noise"
            difference = f"{comparison['difference']:.2f}" + ("" if error is None else f" ± {error:.2f}")
            lines.append(f"  {ours} against {theirs}: {a:.2f} against {b:.2f} ({verdict}; difference {difference}).")
        for label, entry in entries.items():
            if entry["failed_fits"]:
                lines.append(f"  {label}: {entry['failed_fits']} fits failed; the last hyperparameters were kept.")
    return lines


def with_interval(mean: float, interval: list[float] | None) -> str:
    """A mean and its confidence interval, if it has one."""
    return f"{mean:.2f}" if interval is None else f"{mean:.2f} [{interval[0]:.2f}, {interval[1]:.2f}]"
