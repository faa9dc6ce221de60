"""Means over trials, their errors, and differences of methods."""

from typing import Any

import numpy as np
from scipy import stats

FLOOR = 1e-4  # in logarithms, regrets below count as this much, to which the value at risk of a continuous Z is known
CONFIDENCE = 0.7  # of the intervals around means of log10 regret, as in the figures of Nguyen et al. 2021


def mean_and_error(values: np.ndarray) -> tuple[float, float | None]:
    """Mean and standard error over trials; a single trial has no error."""
    return float(values.mean()), float(stats.sem(values)) if len(values) > 1 else None


def mean_interval(values: np.ndarray, confidence: float | None = None) -> tuple[Any, Any, Any]:
    """Mean over the first axis, and both ends of its Student-t confidence interval; all equal for one value.

    Without a ``confidence`` the interval reaches one standard error to both sides.
    """
    mean, n = values.mean(0), len(values)
    quantile = 1.0 if confidence is None else stats.t.ppf(0.5 + confidence / 2.0, n - 1)
    reach = quantile * stats.sem(values) if n > 1 else 0.0
    return mean, mean - reach, mean + reach


def difference(ours: np.ndarray, theirs: np.ndarray) -> dict[str, Any]:
    """Paired difference ours - theirs: ``mean``, its standard ``error``, and ``significant``, by a t test at 5 %.

    A single trial has error None and is never significant.
    """
    mean, error = mean_and_error(ours - theirs)
    significant = error is not None and abs(mean) > float(stats.t.ppf(0.975, len(ours) - 1)) * error
    return {"mean": mean, "error": error, "significant": bool(significant)}


def log_regret(regret: Any) -> np.ndarray:
    """log10 of regrets, with regrets below :data:`FLOOR` replaced by it."""
    return np.log10(np.maximum(np.asarray(regret, dtype=float), FLOOR))


def log_mean(final: np.ndarray) -> dict[str, Any]:
    """Mean of log10 regret over trials, and its 70 % interval, None for one trial."""
    mean, low, high = mean_interval(log_regret(final), CONFIDENCE)
    return {"log10_regret": float(mean), "interval": [float(low), float(high)] if len(final) > 1 else None}
