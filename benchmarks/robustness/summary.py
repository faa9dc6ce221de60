"""From the cells that were run to the lines of the report."""

from __future__ import annotations

import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.robustness.contamination import FAULTY, MAIN, REGIMES
from benchmarks.robustness.loops import GRID, OURS, PEERS
from benchmarks.robustness.problems import FUNCTIONS, LAB, PEAKS, SETTINGS

__all__ = ["FLOOR", "Difference", "difference", "log_regret", "reported", "revisions", "summarise"]

FLOOR = 1e-3  # of regret, in sd of f: below it differences are of no use to anybody
RESAMPLES = 4000
LATE = 5  # a warning counts if it came within the last so many evaluations
Row = dict[str, Any]
Pair = tuple[str, str, int]  # problem, regime, seed
Table = dict[str, dict[Pair, Row]]  # by method


@dataclass(frozen=True)
class Difference:
    """The mean of paired differences of two methods, or its share in that of two others.

    Attributes:
        value: First minus second, or the share.
        low: Lower end of the 95 % interval; infinite, as ``high``, with one cluster only.
        high: Upper end.
        pairs: Cells that all methods played.
        clusters: Their (problem, seed) pairs: what is resampled, for regimes of one pair share design and noise.
        problems: Means by problem.
    """

    value: float
    low: float
    high: float
    pairs: int
    clusters: int
    problems: dict[str, float]

    def detail(self) -> dict[str, Any]:
        """For the report."""
        interval = [round(end, 3) if math.isfinite(end) else None for end in (self.low, self.high)]
        by_problem = {name: round(value, 3) for name, value in self.problems.items()}
        return {"95 %": interval, "pairs": self.pairs, "clusters": self.clusters, "by problem": by_problem}


def log_regret(row: Row) -> float:
    """log10 of the regret, not below the floor."""
    return math.log10(max(row["regret"], FLOOR))


def regret(row: Row) -> float:
    """As it is, for tables, where it is often exactly zero."""
    return float(row["regret"])


def reported(rows: Iterable[Row], regimes: Iterable[str] = REGIMES, problems: Iterable[str] | None = None) -> Table:
    """Rows of some regimes and problems (default: the functions that are reported), by method and pair."""
    wanted = [name for name in FUNCTIONS if name not in SETTINGS] if problems is None else list(problems)
    chosen, table = list(regimes), defaultdict[str, dict[Pair, Row]](dict)
    for row in rows:
        if row["problem"] in wanted and row["regime"] in chosen:
            table[row["method"]][row["problem"], row["regime"], row["seed"]] = row
    return table


def difference(
    table: Table, ours: str, theirs: str, of: Callable[[Row], float] = log_regret, known: str | None = None
) -> Difference | None:
    """Paired, with a percentile bootstrap over clusters; None without a common cell.

    With ``known``, the share in what that method gains on ``theirs``; None where it gains nothing.
    """
    common = sorted(set.intersection(*(set(table[name]) for name in (ours, theirs, known or ours))))
    if not common:
        return None
    parts: dict[tuple[str, int], list[tuple[float, float]]] = defaultdict(list)
    problems: dict[str, list[float]] = defaultdict(list)
    for pair in common:
        gap = of(table[ours][pair]) - of(table[theirs][pair])
        whole = of(table[known][pair]) - of(table[theirs][pair]) if known else 1.0
        parts[pair[0], pair[2]].append((gap, whole))
        problems[pair[0]].append(gap)
    sums = np.array([np.sum(part, 0) for part in parts.values()])
    drawn = np.random.default_rng(0).integers(len(sums), size=(RESAMPLES, len(sums)))
    with np.errstate(divide="ignore", invalid="ignore"):  # where nothing is gained
        ratios = np.divide(*sums[drawn].sum(1).T)
        value = float(np.divide(*sums.sum(0)))
    if not math.isfinite(value):
        return None
    ratios = ratios[np.isfinite(ratios)]
    low, high = np.quantile(ratios, [0.025, 0.975]) if len(sums) > 1 and len(ratios) else (-math.inf, math.inf)
    means = {name: statistics.fmean(part) for name, part in problems.items()}
    return Difference(value, float(low), float(high), len(common), len(sums), means)


DECADES, SD = "log10 regret, paired mean", "sd of f, paired mean of regret"


def _line(name: str, value: float, unit: str, detail: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "value": value, "unit": unit, "target": None, "met": None, "detail": detail}


def revisions(rows: list[Row], earlier: list[Row]) -> Iterator[dict[str, Any]]:
    """Our loops in ``rows`` against the same loops in ``earlier``, by regime; arguments as of :func:`summarise`."""
    for regime in REGIMES:
        now, before = reported(rows, [regime]), reported(earlier, [regime])
        for ours in OURS:
            if gap := difference({ours: now[ours], "before": before[ours]}, ours, "before"):
                yield _line(f"{regime}: {ours} against the earlier revision", gap.value, DECADES, gap.detail())


def summarise(rows: list[Row], seeds: range) -> Iterator[dict[str, Any]]:
    """The arguments of ``benchmarks.common.report``, a line at a time.

    ``seeds`` weigh alike on all functions; others count for clean narrow peaks, tables and every faulty regime only.
    """
    yield from _run(rows, seeds)
    whole = [row for row in rows if row["seed"] in seeds]
    faulty = reported(whole, FAULTY)
    for ours in OURS:
        yield from _peaks(reported(rows, ["clean"], PEAKS), ours)
        yield from _share("contaminated", faulty, ours)
        yield from _many_outliers(reported(whole, ["30% 10sd either"]), ours)
    for method in (*OURS, "known"):
        yield from _tables(rows, method)
    yield from _every_regime(rows)
    both = reported(whole, MAIN)
    for ours in OURS[1:]:
        if gap := difference(both, ours, OURS[0]):
            yield _line(f"{ours} against {OURS[0]}", gap.value, DECADES, gap.detail())
    for regime in ("contaminated", *REGIMES):
        table = faulty if regime == "contaminated" else reported(whole, [regime])
        for method in GRID:
            gap = difference(table, method, "plain")
            if gap and gap.clusters > 1 and method != "plain":
                yield _line(f"{regime}: {method} against SingleTaskGP", gap.value, DECADES, gap.detail())
    for method in GRID:
        if took := [row["seconds"] for row in rows if row["method"] == method]:
            yield _line(f"cost: {method}", statistics.fmean(took), "CPU s a campaign", {"cells": len(took)})


def _run(rows: list[Row], seeds: range) -> Iterator[dict[str, Any]]:
    """How many cells of the grid there are, and by regime and method which are missing."""
    grid = {(name, seed) for name in FUNCTIONS if name not in SETTINGS for seed in seeds}
    there, missing = 0, dict[str, dict[str, str]]()
    for regime in MAIN:
        table = reported(rows, [regime])
        counts = {method: len({(p, s) for p, _, s in table[method]} & grid) for method in GRID}
        there += sum(counts.values())
        short = {method: f"{n} of {len(grid)}" for method, n in counts.items() if n < len(grid)}
        missing |= {regime: short} if short else {}
    detail = {"missing": missing, "by": sorted({row["by"] for row in rows}), "floor": FLOOR}
    yield _line("cells of functions reported", there, f"of {len(grid) * len(MAIN) * len(GRID)} cells", detail)


def _share(where: str, table: Table, method: str) -> Iterator[dict[str, Any]]:
    """The share of what knowing the outliers gains."""
    if share := difference(table, method, "plain", known="known"):
        yield _line(
            f"{where}: {method}, share of what knowing the outliers gains", share.value, "share", share.detail()
        )


def _every_regime(rows: list[Row]) -> Iterator[dict[str, Any]]:
    """The share of what knowing the outliers gains, over problems and seeds that were run in every such regime."""
    regimes = [name for name, regime in REGIMES.items() if regime.kind not in ("none", "student")]
    table = reported(rows, regimes)
    seen = Counter((problem, seed) for problem, _, seed in table["plain"].keys() & table["known"].keys())
    for method in (*OURS, *PEERS):
        mine = Counter((problem, seed) for problem, _, seed in table[method])
        whole = {at for at, count in (seen & mine).items() if count == len(regimes)}
        even = {name: {p: row for p, row in part.items() if (p[0], p[2]) in whole} for name, part in table.items()}
        yield from _share("every regime with outliers", even, method)


def _peaks(table: Table, ours: str) -> Iterator[dict[str, Any]]:
    """Clean narrow peaks: the mean against the plain model, and the worst end where that one finds the peak."""
    gap = difference(table, ours, "plain")
    if gap is None:
        return
    found = [pair for pair, row in table["plain"].items() if row["regret"] < 0.05 and pair in table[ours]]
    worst = max((float(table[ours][pair]["regret"]) for pair in found), default=0.0)
    detail = gap.detail() | {"worst end where plain is below .05 sd": worst, "such cells": len(found)}
    yield _line(f"clean narrow peaks: {ours} against SingleTaskGP", gap.value, DECADES, detail)


def _many_outliers(table: Table, ours: str) -> Iterator[dict[str, Any]]:
    """At 30 % outliers: the share of what knowing them gains, and how many runs that end badly warn."""
    share = difference(table, ours, "plain", known="known")
    if share is None:
        return
    bad = [row for row in table[ours].values() if row["regret"] > 0.5]
    warned = sum(row["warned"] is not None and row["warned"] > row["evaluations"] - LATE for row in bad)
    detail = share.detail() | {"runs that end above .5 sd": len(bad), "of them with a warning": warned}
    yield _line(f"30% outliers: {ours}, share of what knowing them gains", share.value, "share", detail)


def _tables(rows: list[Row], ours: str) -> Iterator[dict[str, Any]]:
    """Laboratory tables by regime."""
    for problem in LAB:
        for regime in REGIMES:
            if gap := difference(reported(rows, [regime], [problem]), ours, "plain", regret):
                yield _line(f"{problem}, {regime}: {ours} against SingleTaskGP", gap.value, SD, gap.detail())
