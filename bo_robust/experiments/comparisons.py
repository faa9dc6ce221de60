"""Statistics of trials: means, paired differences, and who is best."""

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from scipy import stats


def mean_and_error(values: np.ndarray) -> tuple[float, float | None]:
    """Mean and standard error over trials; a single trial has no error."""
    mean = float(np.mean(values))
    return mean, float(np.std(values, ddof=1) / math.sqrt(len(values))) if len(values) > 1 else None


def mean_interval(values: np.ndarray, confidence: float) -> tuple[Any, Any, Any]:
    """Mean over the first axis and both ends of its Student-t confidence interval; all equal for one value."""
    mean, n = values.mean(0), len(values)
    reach = 0.0 * mean
    if n > 1:
        reach = stats.t.ppf(0.5 + confidence / 2.0, n - 1) * values.std(0, ddof=1) / math.sqrt(n)
    return mean, mean - reach, mean + reach


def difference(ours: np.ndarray, theirs: np.ndarray) -> dict[str, Any]:
    """Paired difference ours - theirs: ``mean``, its standard ``error``, and ``significant``, by a t test at 5 %.

    A single trial has error None and is never significant.
    """
    mean, error = mean_and_error(ours - theirs)
    significant = error is not None and abs(mean) > float(stats.t.ppf(0.975, len(ours) - 1)) * error
    return {"mean": mean, "error": error, "significant": bool(significant)}


def best_and_ties(values: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """The label of lowest mean and those not significantly different; ``values`` has one number per trial."""
    best = min(values, key=lambda label: values[label].mean())
    others = [label for label in values if label != best]
    ties = [label for label in others if not difference(values[label], values[best])["significant"]]
    return {"best": best, "not_distinguishable_from_best": ties}


def compare_pairs(
    pairs: Iterable[tuple[str, str]], measures: Mapping[str, Mapping[str, np.ndarray]]
) -> list[dict[str, Any]]:
    """The paired difference, first label minus second, of every pair in every measure.

    ``measures`` holds one number per trial, by name of the measure and label.
    """
    return [
        {"pair": [ours, theirs], **{name: difference(by[ours], by[theirs]) for name, by in measures.items()}}
        for ours, theirs in pairs
    ]
