"""How a pair of methods compares: one rule for all claims of :mod:`benchmarks.claims`.

A pair is decided by the 95 % interval of the paired difference over trials, ours less theirs, of what is better where
it is lower. It is **level** where the interval lies within a tolerance on either side of 0; else **better** where it
lies below 0, **worse** where it lies above, and **open** otherwise. The tolerance is in units of the picture, so that
what cannot be seen there decides nothing:

- average regret: 1 % of the axis, which reaches to the largest mean regret of the methods that claims name;
- best queried: 1 % of the range of f;
- log10 regret of the value at risk: 0.3, a factor of two, in the mean of the last ten rounds;
- shares (of arms, of trials): 1 %.

These were fixed before any of the trials they decide were run.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import pandas as pd

from benchmarks.statistics import log_regret, mean_interval

BETTER, LEVEL, WORSE, OPEN = "better", "level", "worse", "open"
# What a claim says, in words, and which findings are as it says.
SAYS = {
    "<": ("below", (BETTER,)),
    "<=": ("at most level with", (BETTER, LEVEL)),
    "=": ("level with", (LEVEL,)),
}
SHARE = 0.01  # of the axis, of f's range, of arms
RISK = 0.3  # in log10
ROUNDING = 1e-9  # regrets that differ by less are equal
LAST = 10  # rounds whose mean is that of the end: its spread is a third less than that of the last one


class Measure(NamedTuple):
    """What pairs are compared by: of a trial's trace, in which units it is level, and how it is written."""

    of: Callable[[pd.DataFrame], float]
    within: str  # "axis", "range", or "" where the tolerance is absolute
    absolute: float
    form: str
    words: str


def _regret(start: int, stop: int | None) -> Callable[[pd.DataFrame], float]:
    return lambda trial: float(trial["regret"].iloc[start:stop].mean())


def _log10_regret(start: int, stop: int | None) -> Callable[[pd.DataFrame], float]:
    return lambda trial: float(log_regret(trial["regret"].iloc[start:stop]).mean())


AVERAGE, BEST, COVER = "average_regret", "best_queried", "missed"
LATE, END, EARLY, SECONDS = "log10_regret_51_60", "log10_regret", "log10_regret_20", "seconds"
FIRST_10, FIRST_20 = "average_regret_10", "average_regret_20"
AFTER_10, AFTER_20 = "average_regret_10_after_10", "average_regret_20_after_10"
MEASURES = {
    AVERAGE: Measure(_regret(0, None), "axis", 0.0, ".3g", "average regret"),
    FIRST_10: Measure(_regret(0, 10), "axis", 0.0, ".3g", "average regret, 10 rounds"),
    FIRST_20: Measure(_regret(0, 20), "axis", 0.0, ".3g", "average regret, 20 rounds"),
    AFTER_10: Measure(_regret(10, 20), "axis", 0.0, ".3g", "average regret, 10 rounds after 10 random arms"),
    AFTER_20: Measure(_regret(10, 30), "axis", 0.0, ".3g", "average regret, 20 rounds after 10 random arms"),
    BEST: Measure(lambda trial: float(trial["regret"].min()), "range", 0.0, ".3g", "best queried"),
    COVER: Measure(lambda trial: 1.0 - float(trial["coverage"].iloc[-1]), "", SHARE, ".3f", "share missed"),
    LATE: Measure(_log10_regret(-LAST, None), "", RISK, ".2f", "log10 regret, last ten rounds"),
    END: Measure(_log10_regret(-1, None), "", RISK, ".2f", "log10 regret, last round"),
    EARLY: Measure(_log10_regret(20, 21), "", RISK, ".2f", "log10 regret, round 20"),
    # To choose a point.
    SECONDS: Measure(lambda trial: float(trial["seconds"].iloc[1:].median()), "", 0.0, ".2g", "seconds"),
}


def decide(low: float, high: float, tolerance: float) -> str:
    """The word for the 95 % interval of ours less theirs."""
    if -tolerance <= low and high <= tolerance:
        return LEVEL
    return BETTER if high < 0.0 else WORSE if low > 0.0 else OPEN


def paired(ours: Mapping[Any, float], theirs: Mapping[Any, float]) -> tuple[pd.Series, pd.Series, float, float, float]:
    """Both in the trials that they share, the mean of ours - theirs, and its 95 % interval."""
    a, b = pd.Series(ours, dtype=float).align(pd.Series(theirs, dtype=float), join="inner")
    difference, low, high = (float(x) for x in mean_interval((a - b).to_numpy(), 0.95))
    return (a, b, difference, low, high) if len(a) > 1 else (a, b, difference, -math.inf, math.inf)


def tolerance_of(name: str, by_method: Mapping[str, Mapping[Any, float]], extent: float) -> float:
    """Of a measure, given its values by method and trial, and the range of f."""
    measure = MEASURES[name]
    if measure.within == "axis":
        return max(SHARE * max(float(pd.Series(of, dtype=float).mean()) for of in by_method.values() if of), ROUNDING)
    return max(SHARE * extent if measure.within == "range" else measure.absolute, ROUNDING)


def compared(
    name: str, ours: Mapping[Any, float], theirs: Mapping[Any, float], tolerance: float
) -> dict[str, str | int | float]:
    """What a row of the page says of a pair in a measure."""
    form = MEASURES[name].form
    a, b, difference, low, high = paired(ours, theirs)
    # Logarithms have no ratio, and a mean of 0 none either.
    with_ratio = name not in (LATE, END, EARLY) and float(b.mean()) > 0.0
    return {
        "found": decide(low, high, tolerance),
        "ours": f"{a.mean() + 0.0:{form}}",
        "theirs": f"{b.mean() + 0.0:{form}}",
        "less": f"{difference + 0.0:{form}} [{low + 0.0:{form}}, {high + 0.0:{form}}]",
        "ratio": f"{a.mean() / b.mean():.3g}" if with_ratio else "",
        "within": f"{tolerance:.2g}",
        "half_width": f"{(high - low) / 2.0:.2g}",
        "trials": len(a),
    }
