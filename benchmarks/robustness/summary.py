"""From the cells that were run to the lines of the report."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.common import report
from benchmarks.loops.outliers import SomeWrong
from benchmarks.problems.designs import FUNCTIONS, LAB
from benchmarks.problems.skewed import SKEWED
from benchmarks.robustness.grid import ALL, FACTOR, FAULTY, MAIN, METHODS, OURS, REGIMES
from benchmarks.statistics import log_regret

SETTINGS = ("branin", "levy4", "bump1")  # settings are chosen on these, so that they are not reported
PEAKS = ("bump2", "bumps4", "michalewicz2", "needle2", "bump3")  # they first show as one reading far above all others
PLAIN, BASELINE = "SingleTaskGP", "relevance pursuit"
REPORTED = tuple(name for name in FUNCTIONS if name not in SETTINGS)
LOG, SD = "log10 regret, paired mean", "sd of f, paired mean of regret"
RESAMPLES = 4000
LATE = 5  # a warning counts if it came within the last so many evaluations
Row = dict[str, Any]


def reported(rows: Iterable[Row], regimes: Collection[str] = ALL, problems: Collection[str] = REPORTED) -> pd.DataFrame:
    """Regrets of some regimes and problems: a line for a problem, regime and seed, a column for a method."""
    chosen = [row for row in rows if row["problem"] in problems and row["regime"] in regimes]
    cell = ["problem", "regime", "seed", "method"]
    return pd.DataFrame(chosen, columns=[*cell, "regret"]).set_index(cell)["regret"].unstack("method")


def difference(
    table: pd.DataFrame,
    ours: str,
    theirs: str = PLAIN,
    of: Callable[[Any], Any] = log_regret,
    known: str | None = None,
) -> dict[str, Any] | None:
    """Mean of ours less theirs, over pairs, with a percentile bootstrap; None without a common pair.

    What is resampled are clusters, a problem and a seed each, for regimes of one share design and noise. The interval
    is None with one cluster. With ``known``, the share in what that method gains on ``theirs``; None where it gains
    nothing.
    """
    names = {ours, theirs, known or ours}
    common = table[list(names)].dropna() if names <= set(table) else table[:0]
    if common.empty:
        return None
    regrets = {name: of(common[name]) for name in names}
    parts = pd.DataFrame({"gap": regrets[ours] - regrets[theirs], "whole": 1.0}, common.index)
    if known:
        parts["whole"] = regrets[known] - regrets[theirs]
    sums = parts.groupby(["problem", "seed"]).sum().to_numpy()
    drawn = np.random.default_rng(0).integers(len(sums), size=(RESAMPLES, len(sums)))
    with np.errstate(divide="ignore", invalid="ignore"):  # where nothing is gained
        ratios = np.divide(*sums[drawn].sum(1).T)
        value = float(np.divide(*sums.sum(0)))
    if not math.isfinite(value):
        return None
    ratios = ratios[np.isfinite(ratios)]
    ends = np.quantile(ratios, [0.025, 0.975]).round(3).tolist() if len(sums) > 1 and len(ratios) else [None, None]
    return {"value": value, "detail": {"95 %": ends, "pairs": len(common), "clusters": len(sums)}}


def summarize(rows: list[Row], seeds: range) -> None:
    """Report.

    ``seeds`` weigh alike on all functions; others count for clean narrow peaks, tables and every faulty regime only.
    """
    whole = [row for row in rows if row["seed"] in seeds]
    for ours in OURS:
        if gap := difference(reported(rows, ["clean"], PEAKS), ours):
            report(f"clean narrow peaks: {ours} against {PLAIN}", unit=LOG, **gap)
        _share("contaminated", reported(whole, FAULTY), ours)
        _many_outliers(whole, ours)
    for method, problem, regime in ((m, p, r) for m in (*OURS, "known") for p in LAB for r in REGIMES):
        # Regret as it is: on a table it is often exactly zero.
        if gap := difference(reported(rows, [regime], [problem]), method, of=lambda regret: regret):
            report(f"{problem}, {regime}: {method} against {PLAIN}", unit=SD, **gap)
    _every_regime(rows)
    _skewed(rows)
    for ours in OURS[1:]:
        if gap := difference(reported(whole, MAIN), ours, OURS[0]):
            report(f"{ours} against {OURS[0]}", unit=LOG, **gap)
    for regime in ("contaminated", *REGIMES):
        table = reported(whole, FAULTY if regime == "contaminated" else [regime])
        for method in (name for name in METHODS if name != PLAIN):
            if (gap := difference(table, method)) and gap["detail"]["clusters"] > 1:
                report(f"{regime}: {method} against {PLAIN}", unit=LOG, **gap)
        if gap := difference(table, OURS[0], BASELINE):
            report(f"{regime}: {OURS[0]} against {BASELINE}", unit=LOG, **gap)


def _share(where: str, table: pd.DataFrame, method: str) -> None:
    """The share of what knowing the outliers gains."""
    if share := difference(table, method, known="known"):
        report(f"{where}: {method}, share of what knowing the outliers gains", unit="share", **share)


def _skewed(rows: list[Row]) -> None:
    """Positive, skewed functions."""
    for regime in ("clean", FAULTY[0], FACTOR):
        if gap := difference(reported(rows, [regime], SKEWED), OURS[1]):
            report(f"skewed functions, {regime}: {OURS[1]} against {PLAIN}", unit=LOG, **gap)


def _every_regime(rows: list[Row]) -> None:
    """The share of what knowing the outliers gains, over problems and seeds that were run in every such regime."""
    regimes = [name for name, outliers in REGIMES.items() if isinstance(outliers, SomeWrong)]
    table = reported(rows, regimes)
    for method in (name for name in METHODS if name not in (PLAIN, "known") and name in table):
        ran = table.reindex(columns=[PLAIN, "known", method]).dropna()
        _share(
            "every regime with outliers",
            ran.groupby(["problem", "seed"]).filter(lambda part: len(part) == len(regimes)),
            method,
        )


def _many_outliers(rows: list[Row], ours: str) -> None:
    """At 30 % outliers: the share of what knowing them gains, and how many runs that end badly warn."""
    regime = "30% 10sd either"
    if share := difference(reported(rows, [regime]), ours, known="known"):
        ran = [row for row in rows if (row["method"], row["regime"]) == (ours, regime) and row["problem"] in REPORTED]
        bad = [row for row in ran if row["regret"] > 0.5]
        warned = sum(row["warned"] is not None and row["warned"] > row["evaluations"] - LATE for row in bad)
        share["detail"] |= {"runs that end above .5 sd": len(bad), "of them with a warning": warned}
        report(f"30% outliers: {ours}, share of what knowing them gains", unit="share", **share)
