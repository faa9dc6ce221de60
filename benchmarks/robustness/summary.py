"""From played cells to the lines of the report: paired differences of log10 regret with their intervals."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.robustness.contamination import CONTAMINATED, REGIMES
from benchmarks.robustness.models import METHODS, OURS, PEERS
from benchmarks.robustness.problems import FUNCTIONS, LAB, PEAKS, TUNING
from benchmarks.robustness.samplers import SAMPLERS
from benchmarks.robustness.split import FIRST_SEED, HALVES, half_of

__all__ = ["FLOOR", "Difference", "best_peer", "difference", "summarise"]

FLOOR = 1e-3  # of regret, in sd of f: below it differences are of no use to anybody
RESAMPLES = 4000
Row = dict[str, Any]
Pair = tuple[str, str, int]  # problem, regime, seed


@dataclass(frozen=True)
class Difference:
    """The mean of paired differences of two methods.

    Attributes:
        mean: First minus second.
        low: Lower end of the 95 % interval; infinite, as ``high``, with one cluster only.
        high: Upper end.
        pairs: Cells that both played.
        clusters: Their (problem, seed) pairs: what is resampled, for regimes of one pair share design and noise.
        problems: Means by problem.
    """

    mean: float
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


def by_method(rows: Iterable[Row]) -> dict[str, dict[Pair, Row]]:
    """Rows by method and by what they are paired by."""
    table: dict[str, dict[Pair, Row]] = defaultdict(dict)
    for row in rows:
        table[row["method"]][row["problem"], row["regime"], row["seed"]] = row
    return table


def difference(
    ours: dict[Pair, Row], theirs: dict[Pair, Row], of: Callable[[Row], float] = log_regret
) -> Difference | None:
    """Paired, with a percentile bootstrap over clusters; None without a common cell."""
    common = sorted(ours.keys() & theirs.keys())
    if not common:
        return None
    gaps: dict[tuple[str, int], list[float]] = defaultdict(list)
    problems: dict[str, list[float]] = defaultdict(list)
    for pair in common:
        gap = of(ours[pair]) - of(theirs[pair])
        gaps[pair[0], pair[2]].append(gap)
        problems[pair[0]].append(gap)
    sums = np.array([sum(part) for part in gaps.values()])
    sizes = np.array([len(part) for part in gaps.values()])
    drawn = np.random.default_rng(0).integers(len(sums), size=(RESAMPLES, len(sums)))
    means = sums[drawn].sum(1) / sizes[drawn].sum(1)
    low, high = np.quantile(means, [0.025, 0.975]) if len(sums) > 1 else (-math.inf, math.inf)
    return Difference(
        float(sums.sum() / sizes.sum()),
        float(low),
        float(high),
        len(common),
        len(sums),
        {name: statistics.fmean(part) for name, part in problems.items()},
    )


def best_peer(rows: list[Row]) -> tuple[str, dict[str, float]]:
    """The peer of the lowest mean log10 regret in contaminated cells against "plain", and that of every peer."""
    table = by_method(row for row in rows if row["regime"] in CONTAMINATED and row["problem"] in FUNCTIONS)
    against = {peer: difference(table[peer], table["plain"]) for peer in PEERS if peer in table}
    means = {peer: gap.mean for peer, gap in against.items() if gap is not None}
    return (min(means, key=lambda peer: means[peer]), means) if means else ("plain", {})


def _line(
    name: str, value: float, unit: str, detail: dict[str, Any], target: str | None = None, met: bool | None = None
) -> dict[str, Any]:
    return {"name": name, "value": value, "unit": unit, "target": target, "met": met, "detail": detail}


def summarise(rows: list[Row], acquisition: str) -> Iterator[dict[str, Any]]:
    """The arguments of ``benchmarks.common.report``, a line at a time."""
    rows = [row for row in rows if row["acquisition"] == acquisition]
    halves = {name: [row for row in rows if half_of(row) == name] for name in HALVES}
    split = {name: {"functions": HALVES[name], "seeds from": FIRST_SEED[name]} for name in HALVES}
    yield _line("cells", len(rows), "cells", {"acquisition": acquisition, "split": split, "floor": FLOOR})
    source = "choose" if any(row["problem"] in FUNCTIONS for row in halves["choose"]) else "report"
    peer, means = best_peer(halves[source])
    ranked = {name: round(value, 3) for name, value in sorted(means.items(), key=lambda item: item[1])}
    yield _line(
        f"best peer: {peer}", means.get(peer, 0.0), "log10 against plain", {"half": source, "contaminated": ranked}
    )
    yield from _functions([row for row in halves["report"] if row["problem"] in FUNCTIONS], peer)
    yield from _peaks([row for row in rows if row["problem"] in PEAKS])
    yield from _tables([row for row in halves["report"] if row["problem"] in (*LAB, *TUNING)], peer)
    yield from _costs(rows)


def _functions(rows: list[Row], peer: str) -> Iterator[dict[str, Any]]:
    regimes = [name for name in REGIMES if any(row["regime"] == name for row in rows)]
    unit = "log10 regret, paired mean"
    for label, chosen in (
        ("contaminated", CONTAMINATED),
        ("none", ("none",)),
        *((name, (name,)) for name in regimes if name != "none"),
    ):
        table = by_method(row for row in rows if row["regime"] in chosen)
        for ours in (*OURS, "known", *PEERS):
            for other in dict.fromkeys(("plain", peer, *PEERS)) if ours in OURS else ("plain",):
                if ours == other or (gap := difference(table[ours], table[other])) is None:
                    continue
                target, met = _target(label, ours, other, peer, gap)
                yield _line(f"{label}: {ours} against {other}", gap.mean, unit, gap.detail(), target, met)
        for method in [*METHODS, *SAMPLERS]:
            if table[method]:
                logs = [log_regret(row) for row in table[method].values()]
                detail = {"mean log10": round(statistics.fmean(logs), 3), "cells": len(logs)}
                median = statistics.median(row["regret"] for row in table[method].values())
                yield _line(f"{label}: {method}", median, "sd of f, median regret", detail)


def _peaks(rows: list[Row]) -> Iterator[dict[str, Any]]:
    """Clean narrow peaks: the mean against the plain model, and the worst end where that one finds the peak."""
    table = by_method(row for row in rows if row["regime"] == "none")
    for ours in OURS:
        gap = difference(table[ours], table["plain"])
        if gap is None:
            continue
        found = [pair for pair, row in table["plain"].items() if row["regret"] < 0.05 and pair in table[ours]]
        worst = max((float(table[ours][pair]["regret"]) for pair in found), default=0.0)
        detail = gap.detail() | {"worst end where plain is below .05 sd": worst, "such cells": len(found)}
        met = gap.mean <= 0.1 and worst <= 0.3
        yield _line(
            f"clean narrow peaks: {ours} against plain",
            gap.mean,
            "log10 regret, paired mean",
            detail,
            "<= .1, no end above .3",
            met,
        )


def _target(label: str, ours: str, other: str, peer: str, gap: Difference) -> tuple[str | None, bool | None]:
    """The issue's reach, for RobustGP only."""
    if ours != "robust" or label not in ("contaminated", "none"):
        return None, None
    if label == "none":
        if other != "plain":
            return None, None
        worst = max(gap.problems.values())
        return "-.05 ... +.03, no problem above +.1", -0.05 <= gap.mean <= 0.03 and worst <= 0.1
    if other == peer and peer != "plain":
        return "<= -.15, interval below 0", gap.mean <= -0.15 and gap.high < 0.0
    return ("<= -.6", gap.mean <= -0.6) if other == "plain" else (None, None)


def _tables(rows: list[Row], peer: str) -> Iterator[dict[str, Any]]:
    problems = [name for name in (*LAB, *TUNING) if any(row["problem"] == name for row in rows)]
    for regime in REGIMES:
        for problem in problems:
            table = by_method(row for row in rows if row["problem"] == problem and row["regime"] == regime)
            for ours in OURS:
                for other in dict.fromkeys(("plain", peer)):
                    if (gap := difference(table[ours], table[other], regret)) is None:
                        continue
                    asked = ours == "robust" and other == "plain" and regime == "none"
                    yield _line(
                        f"{problem}, {regime}: {ours} against {other}",
                        gap.mean,
                        "sd, paired mean of regret",
                        gap.detail(),
                        "not worse: interval reaches 0" if asked else None,
                        gap.low <= 0.0 if asked else None,
                    )
            for method in [*METHODS, *SAMPLERS]:
                if table[method]:
                    regrets = [regret(row) for row in table[method].values()]
                    detail = {"mean": round(statistics.fmean(regrets), 4), "cells": len(regrets)}
                    yield _line(f"{problem}, {regime}: {method}", statistics.median(regrets), "sd, median", detail)


def _costs(rows: list[Row]) -> Iterator[dict[str, Any]]:
    for method in [*METHODS, *SAMPLERS]:
        mine = [row for row in rows if row["method"] == method]
        if not mine:
            continue
        evaluations = sum(row["evaluations"] for row in mine)
        models = [row["fitting"] / row["evaluations"] for row in mine if row["fitting"] is not None]
        detail: dict[str, Any] = {"cells": len(mine)}
        detail["cpu_s a campaign"] = {
            problem: round(statistics.fmean(row["seconds"] for row in mine if row["problem"] == problem), 2)
            for problem in dict.fromkeys(row["problem"] for row in mine)
        }
        detail["model, s an evaluation"] = round(statistics.fmean(models), 4) if models else None
        detail["readings to verify, a campaign"] = {
            regime: round(statistics.fmean(row["verifying"] for row in mine if row["regime"] == regime), 2)
            for regime in REGIMES
            if any(row["verifying"] for row in mine if row["regime"] == regime)
        }
        seconds = sum(row["seconds"] for row in mine) / evaluations
        yield _line(f"cost: {method}", seconds, "CPU s an evaluation", detail)
