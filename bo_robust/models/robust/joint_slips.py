"""Slips of several readings at once, which leave no outlier where noise hides them: readings exchanged, and fractions.

Each is a hypothesis with its own readings y'. With the J of :mod:`bo_robust.models.robust.detection`, it is likelier
than the present detection if

    max_theta J(S', theta; y') + log |dy' / dy| + log prior > J(S, theta; y),

where all rows concerned are inliers, and J is without ``strong``. What exchanging two readings gains at fixed
hyperparameters is in closed form (:meth:`ConditionedGP.exchange_gains`). The pairs that gain most are fitted anew.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from bo_robust.models.marginal_likelihood import Array
from bo_robust.models.robust.decided import Detection
from bo_robust.models.robust.detection import detect, with_single_slips
from bo_robust.models.robust.outcome_scale import OutcomeScale
from bo_robust.models.robust.search import EVIDENCE_REQUIRED, MIN_OBSERVATIONS, SearchData
from bo_robust.models.robust.slips import COPIED, FRACTION, Expected, Readings, Slip, exchange_log_priors

SURE = math.log(19.0)  # log odds from which on a slip leaves readings out, which all others may take for right
MOST = 3  # slips of several readings in one table
NEAREST = 2  # of the other readings, counted from 0, whose distance says how dense readings are
PAIRS = 2  # of readings, fitted anew, of each set of inliers
FEW = 100  # observations up to which they are, whatever they gain at first; of more, that gain says enough
PERCENT = 100.0


def detect_with_slips(
    data: SearchData, scale: OutcomeScale, limits: tuple[float, float] | None, unit: float
) -> Detection:
    """The :func:`detect` of the rows that no slip of several readings explains better; ``unit`` times y was written."""
    found, possible = detect(data, scale, limits), data.possible
    slips: tuple[Slip, ...] = ()
    while len(slips) < MOST:
        alone = {slip.rows[-1]: slip.log_odds for slip in with_single_slips(data, found, unit).slips}
        likely = [
            slip._replace(log_odds=slip.log_odds - sum(alone.get(row, 0.0) for row in slip.rows))
            for slip in _likely(data, found, unit)
        ]
        best = max(likely, key=lambda slip: slip.log_odds, default=None)
        if best is None or best.log_odds <= SURE:
            break
        wrong = best.rows[1:] if best.kind == "copied" else best.rows
        data = replace(data, possible=data.possible & ~np.isin(np.arange(len(data.y)), wrong))
        if 2 * data.possible.sum() < possible.sum():
            break
        found, slips = detect(data, scale, limits), (*slips, best)
    return replace(found, slips=slips) if slips else found


def _likely(data: SearchData, found: Detection, unit: float) -> Iterator[Slip]:
    """Slips of several readings, with their log odds against the present detection."""
    if found.undecided or data.possible.sum() < MIN_OBSERVATIONS or not np.isfinite(found.log_evidence):
        return
    n, readings = len(data.y), Readings(data.y, unit)
    yield from _copies(data, found, readings)
    log_prior = exchange_log_priors(n, data.prior.share * n)
    present = data.search(found.scale)
    sets = {rows.tobytes(): rows for rows in (present.domain, found.inliers)}
    gains = [present.exchange_gains(rows) + log_prior for rows in sets.values()]
    pairs = dict.fromkeys(pair for each in gains for pair in _largest(each))
    fractions = readings.fractions[data.possible[readings.fractions]]
    if not pairs and len(fractions) < 2:
        return
    # Of the same search, which may leave rows out that the detection did not, because the others foretell them.
    none = EVIDENCE_REQUIRED if np.array_equal(found.inliers, data.possible) else 0.0
    objective = max(found.log_evidence - none, present.objective_with(found.inliers, ()))
    for i, j in pairs:
        y = data.y.copy()
        y[[i, j]] = y[[j, i]]
        yield Slip("exchanged", (i, j), math.nan, _gain(data, found, objective, y, (i, j)) + float(log_prior[i, j]))
    if len(fractions) > 1:
        y = data.y.copy()
        y[fractions] *= PERCENT
        rows, prior = tuple(fractions.tolist()), math.log(FRACTION * min(data.prior.share * n, 1.0))
        gain = _gain(data, found, objective, y, rows) + len(rows) * math.log(PERCENT) + prior
        yield Slip("fraction", rows, math.nan, gain)


def _copies(data: SearchData, found: Detection, readings: Readings) -> Iterator[Slip]:
    """Inliers that repeat the reading of the row before them to the last digit, at another point."""
    if not readings.texts or len(data.y) < NEAREST + 3 or found.loo_mean is None or found.loo_variance is None:
        return
    y, n = data.y, len(data.y)
    expected = Expected(found.scale, found.loo_mean, found.loo_variance, np.zeros(n))
    step = math.exp(readings.log_step)
    prior = math.log(COPIED * min(data.prior.share, 0.5))
    for row in (np.flatnonzero(found.inliers[1:] & (y[1:] == y[:-1]) & data.possible[:-1]) + 1).tolist():
        if not data.replicates[row, row - 1]:
            # Where other readings are close, as at the end of a range, this one may be by chance.
            width = max(2.0 * np.partition(np.abs(np.delete(y, [row - 1, row]) - y[row]), NEAREST)[NEAREST], step)
            by_chance = max(expected.log_density(row, float(y[row])), math.log((NEAREST + 1) / n / width))
            yield Slip("copied", (row - 1, row), math.nan, prior - by_chance - math.log(step))


def _largest(values: Array) -> list[tuple[int, int]]:
    """The pairs of the largest values, as far as they are worth a fit."""
    worth = np.flatnonzero(values > (-math.inf if len(values) <= FEW else 0.0))  # few of n^2 numbers are to be sorted
    largest = worth[values.ravel()[worth].argsort()[::-1][:PAIRS]]
    return [(int(i), int(j)) for i, j in zip(*np.unravel_index(largest, values.shape), strict=True)]


def _gain(data: SearchData, found: Detection, present: float, y: Array, rows: tuple[int, ...]) -> float:
    """J with these readings, of which ``rows`` were corrected, less that at ``present``."""
    return replace(data, y=y).search(found.scale).objective_with(found.inliers, rows) - present
