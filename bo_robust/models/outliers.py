"""Which rewards a GP believes: a set of rows and hyperparameters, chosen together by the evidence.

A reward is judged by what the model expects of it from the others: leave-one-out in closed form (Rasmussen & Williams
2006, equations 5.10 to 5.12). The data set all scales. The page "Heavy tails" of the documentation has the formulas.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from bo_robust.models.evidence import LOG_2PI, Array, Evidence, Prior

CLIP = 50.0  # robust standard deviations beyond which all rewards look alike
FEWEST = 4  # rewards from which on one can be judged by the others
STEPS, PASSES = 50, 4  # of L-BFGS in each pass; of passes over rows and hyperparameters in turn
FIT_ROWS = 200  # hyperparameters of the search are fitted to at most so many rows
FAR = 8.0  # standard deviations from what is expected; those beyond it are left out of one first set
SHARES = (0.1, 0.25)  # least likely rewards that are left out of other first sets; the larger: the least dense
# Noise, in standard deviations of the rewards, that the search adds: where hyperparameters of few rewards leave hardly
# any, all that no kernel fits exactly would look like an outlier.
BLUR = 0.1
AGREE = 3.0  # standard deviations of their difference up to which two rewards of one point confirm each other
CLOSE = 0.25  # of the distance from the median of all rewards: a difference up to which they do
STRONG = 5.0  # nats by which J of outliers must exceed that of none: very strong evidence (Kass & Raftery 1995)
TINY, HUGE = 1e-12, 1e300  # the latter: size of rewards whose differences do not overflow

Rows = NDArray[np.bool_]


class Judgement(NamedTuple):
    """What is thought of each reward; fields are ``n``.

    Attributes:
        believed: Whether the model believes it.
        probability: That it is no outlier.
        surprise: Its distance from what the other believed rewards let expect, in standard deviations.
        level: The size of the surprise at which it might as well be an outlier.
        doubted: Whether it is the largest or smallest, and only a second reading of its point supports it.
        explained: Share of the believed rewards' variance that the others let expect, a number; NaN without a look.
    """

    believed: Rows
    probability: Array
    surprise: Array
    level: Array
    doubted: Rows
    explained: float

    @classmethod
    def all_believed(cls, n: int) -> Judgement:
        """Without a look at the rewards."""
        none = np.zeros(n, dtype=bool)
        return cls(~none, np.ones(n), np.zeros(n), np.full(n, math.inf), none, math.nan)


class Units(NamedTuple):
    """The GP sees (y - center) / scale."""

    center: float
    scale: float


def robust_units(y: Array) -> Units:
    """Median and 1.4826 times the median absolute deviation; that of the deviating rewards where most are equal."""
    center = float(np.median(y))
    deviations = np.abs(y - center)
    deviations = deviations if np.median(deviations) > 0 else deviations[deviations > 0]
    return Units(center, 1.4826 * float(np.median(deviations)) if len(deviations) else 1.0)


def coarse_unit(y: Array) -> float:
    """The power of 1024 that brings deviations of rewards nearest to 1; dividing by it rounds nothing."""
    deviation = robust_units(y / 4.0).scale  # differences of quarters do not overflow
    return float(1024.0 ** max(-100, min(round(math.log(deviation, 1024.0) + math.log(4.0, 1024.0)), 102)))


class OutlierSearch:
    """The search among rewards ``y``, ``n``.

    J(S, theta) = log p(y_S | theta) + log p(theta) + (n - |S|) h climbs over the rows S and the hyperparameters in
    turn, from several first sets; the largest J counts. h = log(share / (1 - share) density) is what a row pays to
    leave. Rows leave only if J gets clearly larger, by STRONG: for functions that no kernel fits well it gains less.
    At least half of the rows stay, and so do rewards that another reward of their point confirms. All stay if they are
    fewer than four. Where more than half are equal, no GP judges: only those leave that deviate FAR times as much as
    all that deviate less.

    Args:
        evidence: Of the GP as a function of its hyperparameters.
        twins: Which rows are of the same point, ``n x n`` bool; a row is no twin of itself.
        share: Of all rewards that are outliers, before they are seen, in (0, .5).
        density: Of an outlier, per robust standard deviation of the rewards.
        scale: Of the rewards, now, where the GP sees them standardised by the believed ones; None where it sees them as
            they are.
    """

    def __init__(
        self, evidence: Evidence, y: Array, twins: Rows, share: float, density: float, scale: float | None
    ) -> None:
        self._evidence, self._twins, self._scale = evidence, twins, scale
        self._price = math.log(share / (1.0 - share) * density)
        self._robust = robust_units(y)
        evidence.blur = BLUR**2 * (1.0 if scale is not None else min(self._robust.scale, 1.0) ** 2)
        reach = CLIP * self._robust.scale
        self._y = np.clip(y, self._robust.center - reach, self._robust.center + reach)
        self._readings = np.clip(y, -HUGE, HUGE)
        # Where most rewards are equal the GP would take the others for outliers: its noise is too small to be true.
        self._most_equal = 2 * np.count_nonzero(y == self._robust.center) > len(y)

    def fit(self) -> Judgement:
        """Choose rows and hyperparameters, from those that the model has."""
        start, n = self._evidence.start, len(self._y)
        if n < FEWEST or self._most_equal:
            return self._by_size()
        best, theta_best, top = np.ones(n, dtype=bool), start, -math.inf
        tried = set()
        for believed in self._first_sets():
            for _ in range(PASSES):
                if believed.tobytes() in tried:
                    break
                tried.add(believed.tobytes())
                theta = self._fit_theta(believed)
                plausibility = self._plausibility(theta, believed)
                if plausibility > top:
                    best, theta_best, top = believed, theta, plausibility
                believed = self._climb(theta, believed)
        return self._judgement(theta_best, best)

    def judge(self, known: Rows | None = None) -> Judgement:
        """Choose rows at the hyperparameters that the model has.

        ``known`` is what :meth:`fit` chose of the first ``m <= n`` rows. Without later rows it stands.
        """
        theta, n = self._evidence.start, len(self._y)
        if n < FEWEST or self._most_equal:
            return self._by_size()
        every = np.ones(n, dtype=bool)
        first = every.copy()
        if known is not None:
            first[: len(known)] = known
            if len(known) == n:
                return self._judgement(theta, first)
        starts = _different([first, *islice(self._first_sets(), 1, 2)])
        sets = _different([every, first, *(self._climb(theta, start) for start in starts)])
        return self._judgement(theta, max(sets, key=lambda believed: self._plausibility(theta, believed)))

    def _by_size(self) -> Judgement:
        """Without the GP: doubt at most half of the deviating rewards, those FAR times as large as all smaller ones.

        Another reward of their point can confirm them. The only one that deviates is believed until it is refuted.
        """
        judged, away = Judgement.all_believed(len(self._y)), self._readings - self._robust.center
        size = np.abs(away)
        ordered = np.sort(size[size > 0.0])
        gaps = np.flatnonzero(ordered[1:] > FAR * ordered[:-1]) + 1
        gaps = np.array([0]) if len(ordered) == 1 else gaps[2 * gaps >= len(ordered)]
        if len(size) < FEWEST or not len(gaps):
            return judged
        far, readings = size >= ordered[gaps[0]], 1 + self._twins.sum(axis=1)
        # Noise is unknown here: two readings agree that are far on one side, and less than FAR times apart.
        agree = far & far[:, None] & (np.sign(away) == np.sign(away)[:, None])
        agree &= np.maximum(size, size[:, None]) <= FAR * np.minimum(size, size[:, None])
        confirmed = self._carried(agree, ~agree & (size <= size[:, None]))
        believed = ~far | confirmed | ((len(ordered) == 1) & (readings == 1))
        doubted = far & believed & (readings <= 2)
        return judged._replace(believed=believed, probability=believed.astype(np.float64), doubted=doubted)

    def _units(self, believed: Rows) -> Units:
        if self._scale is None:
            return Units(0.0, 1.0)
        y = self._y[believed]
        scale = float(y.std(ddof=1))
        return Units(float(y.mean()), scale if scale > TINY * self._robust.scale else self._robust.scale)

    def _unit(self, units: Units) -> float:
        """Unit of the targets, in that of the model now."""
        return 1.0 if self._scale is None else units.scale / self._scale

    def _given(self, theta: Array, believed: Rows, units: Units) -> Conditioned:
        prior = self._evidence.prior(theta, self._unit(units))
        return Conditioned(prior, (self._y - units.center) / units.scale, believed)

    def _level(self, units: Units) -> float:
        """Log density, in these units, of a reward that might as well be an outlier."""
        return self._price + math.log(units.scale / self._robust.scale)

    def _fit_theta(self, believed: Rows) -> Array:
        """Hyperparameters for these rows."""
        units, rows = self._units(believed), np.flatnonzero(believed)
        targets = (self._y - units.center) / units.scale
        # some of each size, whatever the order and sign of the rewards
        some = np.sort(rows[np.abs(targets[rows]).argsort(kind="stable")][:: math.ceil(len(rows) / FIT_ROWS)])
        return self._evidence.maximise(self._evidence.start, targets, some, STEPS, self._unit(units))

    def _plausibility(self, theta: Array, believed: Rows) -> float:
        """J, with a bonus for all rows; minus infinity for rows that lack a confirmed one."""
        units, rows = self._units(believed), np.flatnonzero(believed)
        if np.any(self._confirmed(theta, units) & ~believed):
            return -math.inf
        loss, _ = self._evidence.loss(theta, (self._y - units.center) / units.scale, rows, self._unit(units))
        found = -loss - len(rows) * math.log(units.scale / self._robust.scale)
        dropped = len(believed) - len(rows)
        return found + (dropped * self._price if dropped else STRONG)

    def _first_sets(self) -> Iterator[Rows]:
        """All rows; those not far from what is expected; all but a share of the least likely; the densest rewards."""
        n = len(self._y)
        given = self._given(self._evidence.start, np.ones(n, dtype=bool), self._robust)
        residual, variance = given.expected()
        yield given.believed.copy()
        near = residual**2 < FAR**2 * variance
        if 2 * near.sum() >= n:
            yield near
        for share in SHARES:
            while n - given.believed.sum() < math.ceil(share * n):
                given.move(int(np.where(given.believed, given.log_densities(), math.inf).argmin()))
            if 2 * given.believed.sum() >= n:
                yield given.believed.copy()
        left, order = int(max(SHARES) * n), self._y.argsort(kind="stable")
        start = int((self._y[order[n - left - 1 :]] - self._y[order[: left + 1]]).argmin())
        yield np.isin(np.arange(n), order[start : start + n - left])

    def _climb(self, theta: Array, believed: Rows) -> Rows:
        """Drop or add the row that gains most, until none gains."""
        units, n = self._units(believed), len(believed)
        given, confirmed = self._given(theta, believed, units), self._confirmed(theta, units)
        for row in np.flatnonzero(confirmed & ~believed):
            given.move(int(row))
        for _ in range(2 * n):
            gain = given.log_densities() - self._level(units)
            gain[given.believed] *= -1.0
            stay = given.believed if 2 * (given.believed.sum() - 1) < n else given.believed & confirmed
            gain[stay] = -math.inf
            i = int(gain.argmax())
            if gain[i] < 1e-9:
                break
            given.move(i)
        return given.believed

    def _confirmed(self, theta: Array, units: Units) -> Rows:
        """Rows that agree with another reading of their point, and with all of them that are not beyond them.

        Two agree that are no more apart than noise is, and than CLOSE. Two readings outvote a third one that is beyond
        them, seen from the median of all rewards. Two faults of one size do not outvote one that is like the others;
        three readings do.
        """
        if not self._twins.any():
            return np.zeros(len(self._y), dtype=bool)
        noise, y = self._evidence.prior(theta, self._unit(units)).noise, self._readings / units.scale
        away = y - self._robust.center / units.scale
        apart, size = y - y[:, None], np.abs(away)
        near = np.minimum(AGREE * np.sqrt(noise[:, None] + noise), CLOSE * np.maximum(size[:, None], size))
        agree = np.abs(apart) <= near
        return self._carried(agree, ~agree & (np.sign(apart) * away[:, None] <= 0.0))

    def _carried(self, agree: NDArray[np.bool_], contrary: NDArray[np.bool_]) -> Rows:
        """Rows that another reading of their point agrees with, and that no contrary ones outvote; ``n x n`` each."""
        others, against = ((self._twins & votes).sum(axis=1) for votes in (agree, contrary))
        return (others > 0) & ((against == 0) | ((others >= 2) & (others >= against)))

    def _judgement(self, theta: Array, believed: Rows) -> Judgement:
        units = self._units(believed)
        residual, variance = self._given(theta, believed, units).expected()
        surprise = residual / np.sqrt(variance)
        # log density of a reward that is as expected, above that of an outlier
        margin = -0.5 * (LOG_2PI + np.log(variance)) - self._level(units)
        excess = np.clip(margin - 0.5 * surprise**2, -700.0, 700.0)
        level = np.sqrt(2.0 * np.maximum(margin, 0.0))
        spread = float(np.var((self._y / units.scale)[believed]))
        explained = 1.0 - float(np.mean(residual[believed] ** 2)) / spread if spread > 0.0 else math.nan
        return Judgement(believed, 1.0 / (1.0 + np.exp(-excess)), surprise, level, self._doubted(believed), explained)

    def _doubted(self, believed: Rows) -> Rows:
        """The largest or smallest rewards, where two readings of one point stand against all others.

        They are judged at hyperparameters fitted without them, because their own fit would bend to them.
        """
        doubted = np.zeros(len(believed), dtype=bool)
        inside = np.where(believed, self._y, math.nan)
        for row in (int(np.nanargmax(inside)), int(np.nanargmin(inside))):
            pair = self._twins[row].copy()
            pair[row] = True
            rest = believed & ~pair
            if pair.sum() == 2 and np.all(believed[pair]) and rest.sum() >= FEWEST:
                units = self._units(rest)
                densities = self._given(self._fit_theta(rest), rest, units).log_densities()
                doubted |= pair & (densities < self._level(units))
        return doubted


def _different(sets: Iterable[Rows]) -> list[Rows]:
    """Each set once, in the order of their first."""
    return list({believed.tobytes(): believed for believed in sets}.values())


def _inverse(covariance: Array) -> Array:
    """Lower half of the inverse of a covariance matrix, also of one that rounding has made indefinite."""
    root, failed = linalg.lapack.dpotrf(covariance, lower=True)
    if failed:
        return np.asarray(np.linalg.inv(covariance), dtype=np.float64)
    found: Array = linalg.lapack.dpotri(root, lower=True)[0]
    return found


class Conditioned:
    """The GP given the believed rewards, at fixed hyperparameters; rows leave and enter by rank-one updates.

    ``swept`` is the covariance of all rewards, swept (Beaton's operator) on the believed rows: minus the inverse of
    their covariance, and for the others the covariance that is left given the believed ones. Its lower half counts.
    ``weights`` is the residual, swept likewise: weights of the believed rows, and of others what is left of them.
    """

    def __init__(self, prior: Prior, y: Array, believed: Rows) -> None:
        residual, self.believed = y - prior.mean, believed.copy()
        total = prior.covariance + np.diag(prior.noise)
        rows, others = np.flatnonzero(believed), np.flatnonzero(~believed)
        inverse = _inverse(total[np.ix_(rows, rows)])
        cross = linalg.blas.dsymm(
            1.0, inverse, np.column_stack([total[np.ix_(rows, others)], residual[rows]]), lower=True
        )
        self.swept, self.weights = np.zeros_like(total, order="F"), residual
        self.swept[np.ix_(rows, rows)] = -inverse
        self.weights[rows] = cross[:, -1]
        if len(others):
            known = total[np.ix_(others, rows)]
            self.swept[np.ix_(others, rows)], self.swept[np.ix_(rows, others)] = cross[:, :-1].T, cross[:, :-1]
            self.swept[np.ix_(others, others)] = total[np.ix_(others, others)] - known @ cross[:, :-1]
            self.weights[others] -= known @ cross[:, -1]

    def expected(self) -> tuple[Array, Array]:
        """Each reward's distance ``n`` from what the other believed ones let expect, and its variance ``n``."""
        diagonal = np.maximum(np.where(self.believed, -1.0, 1.0) * self.swept.diagonal(), TINY)
        variance = np.where(self.believed, 1.0 / diagonal, diagonal)
        return np.where(self.believed, self.weights * variance, self.weights), variance

    def log_densities(self) -> Array:
        """Log density ``n`` of each reward given the other believed ones."""
        residual, variance = self.expected()
        densities: Array = -0.5 * (LOG_2PI + np.log(variance) + residual**2 / variance)
        return densities

    def move(self, i: int) -> None:
        """Believe row i no more if it is believed, or else believe it too."""
        sign = -1.0 if self.believed[i] else 1.0
        column = np.concatenate([self.swept[i, :i], self.swept[i:, i]])
        pivot = sign * max(sign * column[i], TINY)
        column[i], own = 0.0, self.weights[i]
        self.swept = linalg.blas.dsyr(-1.0 / pivot, column, lower=True, a=self.swept, overwrite_a=True)
        self.weights -= column * (own / pivot)
        self.swept[i, :i], self.swept[i:, i] = sign * column[:i] / pivot, sign * column[i:] / pivot
        self.swept[i, i], self.weights[i] = -1.0 / pivot, sign * own / pivot
        self.believed[i] = not self.believed[i]
