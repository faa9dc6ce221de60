"""What a run shows: the numbers of a panel, a table, warnings, and the findings in words."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from benchmarks.panel import Metadata, Panel
from benchmarks.statistics import difference

LINE = 110  # of text below a table


def summarize(panel: Panel, rows: Mapping[str, pd.DataFrame], metadata: Metadata) -> dict[str, Any]:
    """Numbers of every method of a panel, comparisons and warnings, as plain data; which numbers is up to the panel.

    ``rows`` are the traces and ``metadata`` those of the jobs, joined, by label.
    """
    methods, measures, others = panel.summary(rows, metadata)
    by = next(iter(measures.values()))
    best = min(by, key=lambda label: by[label].mean())
    compared = [
        {"pair": [a, b], **{name: difference(of[a], of[b]) for name, of in measures.items()}} for a, b in panel.compare
    ]
    ties = [label for label in by if label != best and not difference(by[label], by[best])["significant"]]
    return {
        "name": panel.name,
        "trials": panel.trials,
        "rounds": panel.rounds,
        "notes": metadata[panel.labels[0]]["notes"],
        "methods": methods,
        "best": best,
        "not_distinguishable_from_best": ties,
        "comparisons": compared,
        "warnings": [],
        **others,
    }


def print_report(panels: Sequence[Panel], summary: Mapping[str, Any]) -> None:
    """Print a table a panel, then what its columns are, and the findings."""
    for panel, found in zip(panels, summary["panels"], strict=True):
        print(f"{panel.name}: {panel.trials} trials x {panel.rounds} {panel.unit}s")
        print(table(panel, found["methods"]))
        for line in filter(None, [found["notes"], *(f"Warning: {line}" for line in found["warnings"])]):
            print(textwrap.fill(line, LINE))
        print()
    for legend in dict.fromkeys(panel.legend for panel in panels):
        print(textwrap.fill(legend, LINE))
    for panel, found in zip(panels, summary["panels"], strict=True):
        print("\n".join(findings(panel, found)))


def table(panel: Panel, methods: Mapping[str, Any]) -> str:
    """A line for each method, columns aligned."""
    rows = [["method", *panel.columns]]
    rows += [[label, *(_cell(of, *column) for column in panel.columns.values())] for label, of in methods.items()]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    aligned = [
        [row[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(row[1:], widths[1:], strict=True))] for row in rows
    ]
    return "\n".join("  ".join(row).rstrip() for row in aligned)


def _cell(method: Mapping[str, Any], key: str, form: str) -> str:
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


def findings(panel: Panel, found: Mapping[str, Any]) -> list[str]:
    """The findings of a panel in words; lines that belong to the first are indented."""
    best, methods, ties = found["best"], found["methods"], found["not_distinguishable_from_best"]
    measure, form = next(iter(panel.columns.values()))
    value = form.format(_mean(methods[best][measure]))
    line = f"{panel.name}: lowest {measure.replace('_', ' ')} {value} by {best}"
    lines = [line + (f", not distinguishable from {', '.join(ties)}." if ties else ".")]
    lines += ["  " + _in_words(comparison, methods) for comparison in found["comparisons"]]
    return lines + ["  " + line for line in panel.lines(found)]


def _in_words(comparison: Mapping[str, Any], methods: Mapping[str, Any]) -> str:
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
