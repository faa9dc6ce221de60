"""What may have happened to a reading that looks wrong: the slips of people who write readings down.

A reading y that is an outlier is a gross error, of density p_0 (:mod:`bo_robust.models.robust.detection`), or one of
the slips of :meth:`Readings.corrected`. A slip has written y for another value z, at which the others predict the
density p. Its log odds against a gross error are

    log(share / GROSS) + log p(z) + log |dz / dy| - log p_0(y),

where ``share`` is its prior probability. A reading copied from another row says nothing of z, but y is a value that
there is: its density is 1 / r, for readings in steps of r.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch

from bo_robust.models.marginal_likelihood import LOG_2PI, Array, Indices
from bo_robust.models.robust.outcome_scale import OutcomeScale

# Prior probabilities of what a wrong reading is, a quarter of them decimal points.
GROSS = 0.37
POINTS = {0.1: 0.15, 10.0: 0.1, 0.01: 0.02, 100.0: 0.01, 1e-3: 0.01, 1e3: 0.01}  # by the factor that corrects them
FRACTION, SIGN, DIGITS, COPIED, EXCHANGED = 0.05, 0.05, 0.03, 0.1, 0.1
ASKED = -math.log(2.0)  # log odds from which on a slip is named: it is a question, and may be wrong two times of three
DIGITS_KEPT = 11  # significant digits of a reading that a change of units keeps
BY_HAND = 8  # characters of a number from which on nobody typed it


class Slip(NamedTuple):
    """What may have happened to some readings.

    Attributes:
        kind: "decimal point", "fraction" (of a percentage), "sign", "digits" (two exchanged), "copied" (from the row
            before), "exchanged" (two readings), or "same row" (twice, and counted once).
        rows: The rows concerned, in order; of a copy, its source is the first.
        value: The reading that would fit; NaN where the slip says nothing of it.
        log_odds: Log odds against gross errors, in nats.
        outcome: Number of the outcome, of objectives and then constraints.
    """

    kind: str
    rows: tuple[int, ...]
    value: float
    log_odds: float
    outcome: int = 0

    @property
    def several(self) -> bool:
        """Whether it is of several readings, each of which may look right alone."""
        return len(self.rows) > 1 and self.kind != "copied"


class Readings:
    """Readings ``n`` of a model, and how they are written: ``unit`` times y, in digits.

    Attributes:
        y: The readings, as the model has them.
        texts: The readings as they were written; none where these have more digits than people write.
    """

    def __init__(self, y: Array, unit: float) -> None:
        self.y, self.unit = y, unit
        written = unit * y
        most = float(np.abs(written).max(initial=0.0))
        # A change of units leaves rounding errors of the largest.
        rounded = np.round(written, DIGITS_KEPT - math.floor(math.log10(most))) if most else written
        texts = [f"{value:.{DIGITS_KEPT}g}" for value in rounded.tolist()]
        self.texts = texts if max(map(len, texts), default=0) <= BY_HAND else []

    @cached_property
    def decimals(self) -> Indices:
        return np.array([len(text.partition(".")[2]) for text in self.texts])

    @property
    def log_step(self) -> float:
        """Logarithm of the step of readings, in the units of the model."""
        return -math.log(10.0 ** int(self.decimals.max(initial=0)) * abs(self.unit))

    @property
    def fractions(self) -> Indices:
        """Which may be fractions among percentages: up to 1, and with more decimals than the others.

        Where readings have as many digits, each ten times smaller has one decimal more, so fractions have two.
        """
        written, count = self.unit * self.y, self.decimals
        small, large = (written > 0.0) & (written <= 1.0), written > 10.0
        if not self.texts or not large.any():
            return np.flatnonzero([])
        most, between = int(count[~small].max()), count[~small & ~large].max(initial=0)
        return np.flatnonzero(small & (count > most + int(between > count[large].max())))

    def corrected(self, row: int) -> Iterator[tuple[str, float, float, float]]:
        """Kind, corrected value, prior probability and log |dz / dy| of each slip of one reading."""
        y = float(self.y[row])
        for factor, share in POINTS.items():
            yield "decimal point", factor * y, share, math.log(factor)
        if 0.0 < self.unit * y <= 1.0:
            yield "fraction", 100.0 * y, FRACTION, math.log(100.0)
        if y:
            yield "sign", -y, SIGN, 0.0
        others = _exchanged_digits(self.texts[row]) if self.texts else []
        for z in others:
            yield "digits", z / self.unit, DIGITS / len(others), 0.0


class Expected(NamedTuple):
    """What the others predict of readings ``n``, in an outcome scale: means and variances there, and log p_0."""

    scale: OutcomeScale
    mean: Array
    variance: Array
    log_p0: Array

    def log_density(self, row: int, z: float) -> float:
        """Of a value at a row, in the units of the readings; -inf beyond the domain of the scale."""
        value = torch.tensor(z, dtype=torch.float64)
        if not self.scale.contains(value):
            return -math.inf
        w, slope = float(self.scale.transform(value)), float(self.scale.log_slope(value))
        variance = float(self.variance[row])
        return slope - 0.5 * (LOG_2PI + math.log(variance) + (w - float(self.mean[row])) ** 2 / variance)


def slip_of(row: int, readings: Readings, expected: Expected, least: float = ASKED) -> Slip | None:
    """The likeliest slip of a reading, if its log odds against a gross error exceed ``least``."""
    known, y = float(expected.log_p0[row]) + math.log(GROSS), readings.y
    found = [
        Slip(kind, (row,), readings.unit * z, math.log(share) + expected.log_density(row, z) + slope - known)
        for kind, z, share, slope in readings.corrected(row)
    ]
    if row and readings.texts and y[row] == y[row - 1]:
        found.append(Slip("copied", (row - 1, row), math.nan, math.log(COPIED) - readings.log_step - known))
    best = max(found, key=lambda slip: slip.log_odds, default=None)
    return best if best is not None and best.log_odds > least else None


def _exchanged_digits(text: str) -> list[float]:
    """The numbers that two neighboring digits make, exchanged."""
    places = [i for i, character in enumerate(text) if character.isdigit()]
    swapped = {
        float(text[:i] + text[j] + text[i + 1 : j] + text[i] + text[j + 1 :])
        for i, j in pairwise(places)
        if text[i] != text[j]
    }
    return sorted(swapped)


def exchange_log_priors(n: int, expected_errors: float) -> Array:
    """Log prior probability of each pair to be exchanged, ``n x n``: half of the time neighbors, else any two."""
    neighbors = np.abs(np.subtract.outer(np.arange(n), np.arange(n))) == 1
    pairs = 0.5 * EXCHANGED * expected_errors * (neighbors / max(n - 1, 1) + 2.0 / max(n * (n - 1), 1))
    return np.asarray(np.log(np.minimum(pairs, 0.5)))
