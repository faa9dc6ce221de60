"""The sum that the parts of a mixture have in every row, or in all rows but one or two."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np

from bo_robust.proposals.constraints import WEIGHED
from bo_robust.tables.formulas import BROKEN
from bo_robust.tables.relations import SURE

PARTS = 20.0  # times the difference of sums, at least, is the range of each part


class Mixture(NamedTuple):
    """Places of the parts, their sum, by how much rows differ from it, and the rows that break it, with their sums."""

    parts: tuple[int, ...]
    total: float
    off: float
    broken: dict[int, float]


def mixture(table: np.ndarray, given: Sequence[set[int]]) -> Mixture | None:
    """The sum of the fewest columns, not all of them in a ``given`` one; in every row, if there is such a sum."""
    n, width = table.shape
    if len(np.unique(table, axis=0)) <= width:
        return None
    some = [s for size in range(2, width + 1) for s in combinations(range(width), size)]
    some = [s for s in some if not any({*s} <= names for names in given)]
    for left_out in range(1 + min(BROKEN, n // 8)):
        for parts in some:
            X = table[:, parts]
            order = np.argsort(np.abs(X.sum(-1) - np.median(X.sum(-1))), kind="stable")
            kept, broken = order[: n - left_out], order[n - left_out :]
            totals = X[kept].sum(-1)
            whole = _sum_of(totals, np.ptp(X[kept], axis=0).min())
            if whole is not None and (not left_out or _beyond_chance(X[kept], left_out, len(some))):
                off = float(np.abs(totals - whole).max())
                return Mixture(parts, whole, off, {int(row): float(X[row].sum()) for row in sorted(broken)})
    return None


def _beyond_chance(X: np.ndarray, broken: int, tried: int) -> bool:
    """Whether columns of several values have one sum by more than chance, without the rows that break it."""
    X = np.unique(X, axis=0)
    shares = [np.unique(column, return_counts=True)[1] / len(X) for column in X.T]
    evidence = (len(X) - X.shape[1]) * min(-math.log((share**2).sum()) for share in shares)
    return min(map(len, shares)) > 2 and evidence - broken * math.log(len(X)) - math.log(tried) > SURE


def _sum_of(totals: np.ndarray, least_range: float) -> float | None:
    """The sum that all rows share up to errors of weighing, the roundest in their range; None where they differ."""
    median = float(np.median(totals))
    off = float(np.abs(totals - median).max())
    exact = 1e-6 * max(1.0, float(np.abs(totals).max()))
    if off > exact and (off > WEIGHED * abs(median) or least_range < PARTS * off):
        return None
    low, high = float(totals.min()) - exact, float(totals.max()) + exact
    return next((x for k in range(1, 9) if low <= (x := float(f"{median:.{k}g}")) <= high), float(f"{median:.9g}"))
