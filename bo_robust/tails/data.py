"""Rewards and arm labels as numpy arrays, from whatever holds them."""

from typing import Any

import numpy as np
import pandas as pd
import torch

from bo_robust.validation import is_number, quoted


def as_rewards(y: Any) -> np.ndarray:
    """Return rewards of any shape (numpy, torch, pandas or lists) as a flat float64 array.

    Raises ``ValueError`` if they are no numbers, or some are NaN or infinite.
    """
    if y is None:
        raise ValueError("y must be numbers, got None.")
    try:
        values = np.asarray(_host(y), dtype=np.float64).ravel()
    except (TypeError, ValueError) as error:
        raise ValueError(f"y must be numbers: {error}.") from None
    bad = int((~np.isfinite(values)).sum())
    if bad:
        raise ValueError(f"y has {bad} NaN or infinite entries of {len(values)}; remove or repair them first.")
    return values


def as_labels(arms: Any, count: int) -> np.ndarray:
    """Return arm labels (numbers or text) as ``count`` integers 0, 1, ...; None puts everything in one arm.

    Raises ``ValueError`` if there is not one label for each reward, or some are missing.
    """
    if arms is None:
        return np.zeros(count, dtype=np.int64)
    labels = np.asarray(_host(arms)).ravel()
    if len(labels) != count:
        raise ValueError(f"arms must name the arm of every reward: {len(labels)} labels for {count} rewards.")
    codes, _ = pd.factorize(labels)
    if (codes < 0).any():
        raise ValueError(f"arms has {int((codes < 0).sum())} missing labels; name every reward's arm.")
    return codes


def within_arms(y: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Return ``y`` minus the median of each reward's arm; ``labels`` are those of :func:`as_labels`."""
    medians = pd.Series(y).groupby(labels).median().to_numpy()
    return y - medians[labels]


def check_confidence(confidence: float) -> None:
    """Raise ``ValueError`` unless the confidence of an interval is in (0, 1)."""
    if not (is_number(confidence) and 0.0 < confidence < 1.0):
        said = quoted(confidence)
        raise ValueError(f"confidence of the interval must be strictly between 0 and 1, got {said}.")


def _host(x: Any) -> Any:
    return x.detach().cpu().numpy() if isinstance(x, torch.Tensor) else x
