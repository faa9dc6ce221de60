"""From the cells that were run to the lines of the report."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.robustness.methods import GRID, OURS
from bo_robust.experiments.problems.designs import FUNCTIONS, LAB
from bo_robust.experiments.summary import log_regret

__all__ = ["FAULTY", "MAIN", "REGIMES", "Difference", "difference", "reported", "summarise"]

# By name, what a configuration says of its outliers.
REGIMES: dict[str, dict[str, Any] | None] = {
    "clean": None,
    "10% 10sd either": {"kind": "shift", "share": 0.1, "size": 10.0, "side": "either"},
    "30% 10sd either": {"kind": "shift", "share": 0.3, "size": 10.0, "side": "either"},
    "10% 10sd good": {"kind": "shift", "share": 0.1, "size": 10.0, "side": "good"},
    "10% 10sd bad": {"kind": "shift", "share": 0.1, "size": 10.0, "side": "bad"},
    "10% 3sd either": {"kind": "shift", "share": 0.1, "size": 3.0, "side": "either"},
    "student-t": {"kind": "student_t", "scale": 0.3},
    "20% cauchy": {"kind": "cauchy", "share": 0.2, "scale": 1.0},
    "dead sensor": {"kind": "dead_sensor", "share": 0.15},
}
MAIN = tuple(REGIMES)[:3]  # of the whole grid
FAULTY = MAIN[1:]
SETTINGS = ("branin", "levy4", "bump1")  # settings are chosen on these, so that they are not reported
PEAKS = ("bump2", "bumps4", "michalewicz2", "needle2", "bump3")  # they first show as one reading far above all others
PLAIN, BASELINE = "SingleTaskGP", "relevance pursuit"
LOG, SD = "log10 regret, paired mean", "sd of f, paired mean of regret"
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
        pairs: Cells that all methods ran.
        clusters: Their (problem, seed) pairs: what is resampled, for regimes of one pair share design and noise.
    """

    value: float
    low: float
    high: float
    pairs: int
    clusters: int

    def line(self, name: str, unit: str, **more: Any) -> dict[str, Any]:
        """The arguments of ``benchmarks.common.report``."""
        interval = [round(end, 3) if math.isfinite(end) else None for end in (self.low, self.high)]
        detail = {"95 %": interval, "pairs": self.pairs, "clusters": self.clusters, **more}
        return {"name": name, "value": self.value, "unit": unit, "target": None, "met": None, "detail": detail}


def log10(row: Row) -> float:
    """log10 of the regret, not below the floor of summaries."""
    return float(log_regret(row["regret"]))


def regret(row: Row) -> float:
    """As it is, for tables, where it is often exactly zero."""
    return float(row["regret"])


def reported(rows: Iterable[Row], regimes: Iterable[str] = REGIMES, problems: Iterable[str] | None = None) -> Table:
    """Rows of some regimes and problems (default: the functions that are reported), by method and pair."""
    names = [name for name in FUNCTIONS if name not in SETTINGS] if problems is None else list(problems)
    chosen, table = list(regimes), defaultdict[str, dict[Pair, Row]](dict)
    for row in rows:
        if row["problem"] in names and row["regime"] in chosen:
            table[row["method"]][row["problem"], row["regime"], row["seed"]] = row
    return table


def difference(
    table: Table, ours: str, theirs: str = PLAIN, of: Callable[[Row], float] = log10, known: str | None = None
) -> Difference | None:
    """Paired, with a percentile bootstrap over clusters; None without a common cell.

    With ``known``, the share in what that method gains on ``theirs``; None where it gains nothing.
    """
    common = sorted(set.intersection(*(set(table[name]) for name in (ours, theirs, known or ours))))
    if not common:
        return None
    parts: dict[tuple[str, int], list[tuple[float, float]]] = defaultdict(list)
    for pair in common:
        gap = of(table[ours][pair]) - of(table[theirs][pair])
        whole = of(table[known][pair]) - of(table[theirs][pair]) if known else 1.0
        parts[pair[0], pair[2]].append((gap, whole))
    sums = np.array([np.sum(part, 0) for part in parts.values()])
    drawn = np.random.default_rng(0).integers(len(sums), size=(RESAMPLES, len(sums)))
    with np.errstate(divide="ignore", invalid="ignore"):  # where nothing is gained
        ratios = np.divide(*sums[drawn].sum(1).T)
        value = float(np.divide(*sums.sum(0)))
    if not math.isfinite(value):
        return None
    ratios = ratios[np.isfinite(ratios)]
    low, high = np.quantile(ratios, [0.025, 0.975]) if len(sums) > 1 and len(ratios) else (-math.inf, math.inf)
    return Difference(value, float(low), float(high), len(common), len(sums))


def summarise(rows: list[Row], seeds: range) -> Iterator[dict[str, Any]]:
    """The arguments of ``benchmarks.common.report``, a line at a time.

    ``seeds`` weigh alike on all functions; others count for clean narrow peaks, tables and every faulty regime only.
    """
    whole = [row for row in rows if row["seed"] in seeds]
    for ours in OURS:
        if gap := difference(reported(rows, ["clean"], PEAKS), ours):
            yield gap.line(f"clean narrow peaks: {ours} against {PLAIN}", LOG)
        yield from _share("contaminated", reported(whole, FAULTY), ours)
        yield from _many_outliers(reported(whole, ["30% 10sd either"]), ours)
    for method, problem, regime in ((m, p, r) for m in (*OURS, "known") for p in LAB for r in REGIMES):
        if gap := difference(reported(rows, [regime], [problem]), method, of=regret):
            yield gap.line(f"{problem}, {regime}: {method} against {PLAIN}", SD)
    yield from _every_regime(rows)
    for ours in OURS[1:]:
        if gap := difference(reported(whole, MAIN), ours, OURS[0]):
            yield gap.line(f"{ours} against {OURS[0]}", LOG)
    for regime in ("contaminated", *REGIMES):
        table = reported(whole, FAULTY if regime == "contaminated" else [regime])
        for method in GRID:
            gap = difference(table, method)
            if gap and gap.clusters > 1 and method != PLAIN:
                yield gap.line(f"{regime}: {method} against {PLAIN}", LOG)
        if gap := difference(table, OURS[0], BASELINE):
            yield gap.line(f"{regime}: {OURS[0]} against {BASELINE}", LOG)


def _share(where: str, table: Table, method: str) -> Iterator[dict[str, Any]]:
    """The share of what knowing the outliers gains."""
    if share := difference(table, method, known="known"):
        yield share.line(f"{where}: {method}, share of what knowing the outliers gains", "share")


def _every_regime(rows: list[Row]) -> Iterator[dict[str, Any]]:
    """The share of what knowing the outliers gains, over problems and seeds that were run in every such regime."""
    regimes = [name for name, outliers in REGIMES.items() if outliers and "share" in outliers]
    table = reported(rows, regimes)
    seen = Counter((problem, seed) for problem, _, seed in table[PLAIN].keys() & table["known"].keys())
    for method in (name for name in GRID if name not in (PLAIN, "known")):
        mine = Counter((problem, seed) for problem, _, seed in table[method])
        whole = {at for at, count in (seen & mine).items() if count == len(regimes)}
        even = {name: {p: row for p, row in part.items() if (p[0], p[2]) in whole} for name, part in table.items()}
        yield from _share("every regime with outliers", defaultdict(dict, even), method)


def _many_outliers(table: Table, ours: str) -> Iterator[dict[str, Any]]:
    """At 30 % outliers: the share of what knowing them gains, and how many runs that end badly warn."""
    if share := difference(table, ours, known="known"):
        bad = [row for row in table[ours].values() if row["regret"] > 0.5]
        warned = sum(row["warned"] is not None and row["warned"] > row["evaluations"] - LATE for row in bad)
        more = {"runs that end above .5 sd": len(bad), "of them with a warning": warned}
        yield share.line(f"30% outliers: {ours}, share of what knowing them gains", "share", **more)
