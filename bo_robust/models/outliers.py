"""Which rewards a GP believes: a set of rows and hyperparameters, chosen together by the evidence.

**What is best.** Some rewards S are believed, the others D are faults. With the hyperparameters theta they maximise

    J(S, theta) = log p(y_S | theta) + log p(theta) + sum_(i in D) log p_0(y_i) + o_1 + ... + o_|D| + STRONG [D empty],
    o_k = log(k / (b + n - k)),    b = 1 / share - 1,    p_0(y) = density / s min(1, (s / (4 density |y - m|))^2),

m being the median and s the robust standard deviation of the rewards. The share of faults is Beta(1, b) beforehand,
with mean ``share``: so o_k is the k-th fault's log odds, and where there are many, one more costs less. A fault's
density p_0 is flat up to s / (4 density), five s by default, falls as that of a Cauchy variable from there on, and has
mass 1. So a fault is the dearer the farther out it is, up to CLIP s: else a good region, far above a floor of nearly
equal rewards, would be faults. Functions that no kernel fits well gain less than STRONG by leaving rows out.

**What the GP sees.** It sees rewards in units of the believed ones, (y - mean_S) / sd_S. Those beyond m +- CLIP s look
as if they were there. Noise of sd BLUR max(1, s / sd_S) is added to that of the model. Hyperparameters
of few rewards often leave hardly any: all that no kernel fits exactly would look like an outlier, and a cluster of
nearly equal rewards would be the best S. A GP that sees rewards as they are has BLUR min(1, s).

**The search.** At fixed theta row i leaves if log p(y_i | y_S without i) < o_(|D| + 1) + log p_0(y_i), and j enters if
log p(y_j | y_S) > o_|D| + log p_0(y_j): leave-one-out in closed form (Rasmussen & Williams 2006, equations 5.10 to
5.12). At least half of the rows stay. The search climbs over S and theta in turn, from these first sets: all rows; at
the hyperparameters of the model now those within FAR sd of what is expected, if they are half, and all but the
n UNLIKELY least likely; the n (1 - q) rewards that lie closest together, for q in SPARSE.

**Readings of one point.** Two agree if |y - y'| <= min(AGREE sd, CLOSE max(|y - m|, |y' - m|)), with sd that of the
difference of their noise. One that does not agree with y is contrary to it, unless it lies beyond y, seen from m. A
reading that a > 0 agree with and c are contrary to is confirmed if c = 0 or a >= max(2, c); it stays. So two outvote a
third one that is beyond them. Two faults of one size do not outvote one that is like the others; three readings do.

**Finds.** Then rows come back together where a find, a region in which f deviates, is likelier than as many faults; see
:mod:`bo_robust.models.finds`. With the finds as part of the GP the rows are chosen once more. All are believed if J of
all is larger after all: in that GP, or each at the hyperparameters that it fits.

**Without the GP.** Of fewer than FEWEST rewards all are believed. Where more than half are equal, let z_1 <= ... <= z_r
be the |y - m| > 0, and k >= r / 2 + 1 the first with z_k > FAR z_(k-1). Rewards with |y - m| >= z_k are not believed,
unless another reading confirms them. Here two agree that are both so far, on one side, and less than FAR times apart;
one that does not agree is contrary unless it is larger. If r = 1, that reward is believed until it is refuted.

**What is told.** Let e be a reward's distance from what the other believed ones let expect, v its variance, and h its
o + log p_0. The surprise is e / sqrt(v), its limit sqrt(2 max(0, log N(0; 0, v) - h)), and the log odds
of no outlier are log N(e; 0, v) - h.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import NamedTuple

import numpy as np

from bo_robust.models.conditioned import LEAST_PIVOT, Conditioned, Rows
from bo_robust.models.evidence import Array, Evidence, one_thread
from bo_robust.models.finds import Find, Finds
from bo_robust.models.reward_units import Units, spread_units

CLIP = 50.0  # robust standard deviations beyond which all rewards look alike
FEWEST = 4  # rewards from which on one can be judged by the others
STEPS, PASSES = 50, 4  # of L-BFGS in each pass; of passes over rows and hyperparameters in turn
FIT_ROWS = 200  # hyperparameters of the search are fitted to at most so many rows
FAR = 8.0  # standard deviations from what is expected, and of sizes a multiple
UNLIKELY, SPARSE = 0.1, (0.15, 0.3, 0.45)  # shares of rewards that first sets leave out
BLUR = 0.1  # standard deviation of the noise that the search adds
AGREE = 3.0  # standard deviations of their difference up to which two rewards of one point confirm each other
CLOSE = 0.25  # of the distance from the median of all rewards: a difference up to which they do
MOST_FINDS, CENTRES = 4, 6  # of finds in a search; of rows, the most deviating, about which each is looked for
HALF = 0.5  # of a find's height: rows where it is larger have no doubt of their own
STRONG = 5.0  # nats by which J of outliers must exceed that of none: very strong evidence (Kass & Raftery 1995)


class Judgement(NamedTuple):
    """What is thought of each reward, ``n`` each, as attributes of ``RobustGP`` say, and two things more.

    Attributes:
        explained: Share of the believed rewards' variance that the others let expect; NaN without a look.
        finds: The likeliest finds about rows that are set aside and larger or smaller than all believed rewards, with
            deviations in the units of the rewards; none of a fit, whose hyperparameters are not the last ones.
    """

    believed: Rows
    inlier_probability: Array
    surprise: Array
    surprise_limit: Array
    barely_believed: Rows
    explained: float
    finds: tuple[Find, ...]

    @classmethod
    def all_believed(cls, n: int) -> Judgement:
        """Without a look at the rewards."""
        none = np.zeros(n, dtype=bool)
        return cls(~none, np.ones(n), np.zeros(n), np.full(n, math.inf), none, math.nan, ())


class OutlierSearch:
    """The search among rewards ``y``, ``n``.

    Args:
        evidence: Of the GP as a function of its hyperparameters.
        places: The points in the box that they span, with sides of 1, ``n x d``.
        twins: Which rows are of the same point, ``n x n`` bool; a row is no twin of itself.
        share: Of all rewards that are outliers, before they are seen, in (0, .5).
        density: Of an outlier, per robust standard deviation of the rewards.
        standardised: Whether the GP sees rewards standardised by the believed ones, or as they are.
    """

    def __init__(
        self, evidence: Evidence, y: Array, places: Array, twins: Rows, share: float, density: float, standardised: bool
    ) -> None:
        self._evidence, self._twins, self._standardised = evidence, twins, standardised
        faults = np.arange(1, len(y) + 1)
        self._robust = spread_units(y, places)
        center, scale = self._robust
        self._away = y - center
        self._y = np.clip(y, center - CLIP * scale, center + CLIP * scale)
        self._odds = np.log(faults / (1.0 / share - 1.0 + len(y) - faults))  # o_1, o_2, ...
        out = np.maximum(4.0 * density * np.abs(self._y - center) / scale, 1.0)
        self._log_p0 = math.log(density) - math.log(scale) - 2.0 * np.log(out)
        self._finds = Finds(places, self._log_p0)
        # Where most rewards are equal the GP would take the others for outliers: its noise is too small to be true.
        self._gp_tells = len(y) >= FEWEST and 2 * np.count_nonzero(y == self._robust.center) <= len(y)

    @one_thread
    def fit(self) -> Judgement:
        """Choose rows and hyperparameters, from those that the model has."""
        if not self._gp_tells:
            return self._by_size()
        met: dict[bytes, tuple[float, Array, Rows]] = {}
        for believed in self._first_sets():
            for _ in range(PASSES):
                if believed.tobytes() in met:
                    break
                theta = self._fit_theta(believed)
                given = self._given(theta, believed)
                met[believed.tobytes()] = self._plausibility(given), theta, believed
                believed = self._climb(given)
        _, theta, best = max(met.values(), key=lambda found: found[0])
        believed, finds = self._with_finds(theta, best)
        if finds:
            every = np.ones(len(best), dtype=bool)
            own = self._plausibility(self._given(self._fit_theta(believed), believed))
            if -math.inf < own <= met[every.tobytes()][0]:  # infinite: the noise of that fit would confirm twin faults
                believed = every
        return self._judgement(theta, believed, finds)

    @one_thread
    def judge(self, known: Rows | None = None, doubts: bool = True) -> Judgement:
        """Choose rows at the hyperparameters that the model has; ``doubts`` says whether to look for finds.

        ``known`` is what :meth:`fit` chose of the first ``m <= n`` rows. Without later rows it stands.
        """
        if not self._gp_tells:
            return self._by_size()
        theta, every = self._evidence.start, np.ones(len(self._y), dtype=bool)
        first = every.copy()
        if known is not None:
            first[: len(known)] = known
            if len(known) == len(first):
                return self._judgement(theta, first, doubts=doubts)
        starts = [first, *islice(self._first_sets(), 1, 2)]
        sets = [every, first, *(self._climb(self._given(theta, start)) for start in starts)]
        best = max(sets, key=lambda rows: self._plausibility(self._given(theta, rows)))
        return self._judgement(theta, *self._with_finds(theta, best), doubts)

    def _with_finds(self, theta: Array, believed: Rows) -> tuple[Rows, list[Find]]:
        """Rows, and the finds that at least two that were set aside share, the likeliest first."""
        finds: list[Find] = []
        given = self._given(theta, believed)
        while len(finds) < MOST_FINDS:
            rows = np.flatnonzero(~given.believed)
            centres = rows[np.abs(given.weights[rows]).argsort(kind="stable")[::-1][:CENTRES]]
            about = (self._finds.about(int(row), given, self._odds) for row in centres)
            shared = [find for finds_of_row in about for find in finds_of_row if len(find.rows) > 1]
            likeliest = max(shared, key=lambda find: find.log_odds, default=None)
            if likeliest is None or likeliest.log_odds <= 0.0:
                break
            finds.append(likeliest)
            together = given.believed.copy()
            together[list(likeliest.rows)] = True
            given = self._given(theta, together, finds, given.units)
            self._climb(given)
        rest = np.flatnonzero(~given.believed)
        if finds and given.with_rows(rest)[1] + STRONG > self._faults(given.believed):
            return np.ones(len(believed), dtype=bool), finds
        return given.believed, finds

    def _by_size(self) -> Judgement:
        """Without the GP."""
        judged, away, size = Judgement.all_believed(len(self._y)), self._away, np.abs(self._away)
        ordered = np.sort(size[size > 0.0])
        gaps = np.flatnonzero(ordered[1:] > FAR * ordered[:-1]) + 1
        gaps = np.array([0]) if len(ordered) == 1 else gaps[2 * gaps >= len(ordered)]
        if len(size) < FEWEST or not len(gaps):
            return judged
        far, readings = size >= ordered[gaps[0]], 1 + self._twins.sum(axis=1)
        agree = far & far[:, None] & (np.sign(away) == np.sign(away)[:, None])
        agree &= np.maximum(size, size[:, None]) <= FAR * np.minimum(size, size[:, None])
        confirmed = self._carried(agree, ~agree & (size <= size[:, None]))
        believed = ~far | confirmed | ((len(ordered) == 1) & (readings == 1))
        barely, probability = far & believed & (readings <= 2), believed.astype(np.float64)
        return judged._replace(believed=believed, inlier_probability=probability, barely_believed=barely)

    def _units(self, believed: Rows) -> Units:
        if not self._standardised:
            return Units(0.0, 1.0)
        y = self._y[believed]
        scale = float(y.std(ddof=1))
        return Units(float(y.mean()), scale if scale > LEAST_PIVOT * self._robust.scale else self._robust.scale)

    def _blur(self, units: Units) -> float:
        """Variance, in these units, of the noise that the search adds."""
        spread = self._robust.scale
        return (BLUR * (max(spread / units.scale, 1.0) if self._standardised else min(spread, 1.0))) ** 2

    def _given(
        self, theta: Array, believed: Rows, finds: Iterable[Find] = (), units: Units | None = None
    ) -> Conditioned:
        """The GP given these rows, with these finds; by default in the units of the believed rewards."""
        units = units or self._units(believed)
        prior = self._evidence.prior(theta, units.scale, self._blur(units))
        for find in finds:
            prior = prior._replace(covariance=prior.covariance + self._finds.covariance(find, units.scale))
        return Conditioned(prior, self._y, believed, units)

    def _faults(self, believed: Rows) -> float:
        """What the rows set aside add to J."""
        return float(self._odds[: (~believed).sum()].sum() + self._log_p0[~believed].sum())

    def _next_price(self, given: Conditioned) -> Array:
        """o + log p_0 of each row, ``n``: as one more of those set aside, or as the last of them."""
        k = int((~given.believed).sum())
        return np.where(given.believed, self._odds[k], self._odds[k - 1]) + self._log_p0

    def _fit_theta(self, believed: Rows) -> Array:
        """Hyperparameters for these rows."""
        units, rows = self._units(believed), np.flatnonzero(believed)
        targets = (self._y - units.center) / units.scale
        # some of each size, whatever the order and sign of the rewards
        by_size = rows[np.abs(targets[rows]).argsort(kind="stable")]
        some = np.sort(by_size[np.linspace(0, len(rows) - 1, min(len(rows), FIT_ROWS)).round().astype(int)])
        return self._evidence.maximise(targets, some, STEPS, units.scale, self._blur(units))

    def _plausibility(self, given: Conditioned) -> float:
        """J; minus infinity for rows that lack a confirmed one."""
        if np.any(self._confirmed(given) & ~given.believed):
            return -math.inf
        return given.log_evidence + (STRONG if given.believed.all() else self._faults(given.believed))

    def _first_sets(self) -> Iterator[Rows]:
        n = len(self._y)
        given = self._given(self._evidence.start, np.ones(n, dtype=bool), units=self._robust)
        residual, variance = given.expected()
        yield given.believed.copy()
        near = residual**2 < FAR**2 * variance
        if 2 * near.sum() >= n:
            yield near
        while n - given.believed.sum() < math.ceil(UNLIKELY * n):
            given.move(int(np.where(given.believed, given.log_densities(), math.inf).argmin()))
        yield given.believed
        order = self._y.argsort(kind="stable")
        for share in SPARSE:
            left = int(share * n)
            start = int((self._y[order[n - left - 1 :]] - self._y[order[: left + 1]]).argmin())
            yield np.isin(np.arange(n), order[start : start + n - left])

    def _climb(self, given: Conditioned) -> Rows:
        """Add what is confirmed, then drop or add the row that gains most, until none gains: the rows then believed."""
        confirmed, n = self._confirmed(given), len(given.believed)
        for row in np.flatnonzero(confirmed & ~given.believed):
            given.move(int(row))
        for _ in range(2 * n):
            gain = given.log_densities() - self._next_price(given)
            gain[given.believed] *= -1.0
            stay = given.believed if 2 * (given.believed.sum() - 1) < n else given.believed & confirmed
            gain[stay] = -math.inf
            i = int(gain.argmax())
            if gain[i] < 1e-9:
                break
            given.move(i)
        return given.believed

    def _confirmed(self, given: Conditioned) -> Rows:
        """Rows that other readings of their point confirm."""
        noise, away = given.noise, self._away / given.units.scale
        apart, size = away - away[:, None], np.abs(away)
        near = np.minimum(AGREE * np.sqrt(noise[:, None] + noise), CLOSE * np.maximum(size[:, None], size))
        agree = np.abs(apart) <= near
        return self._carried(agree, ~agree & (np.sign(apart) * away[:, None] <= 0.0))

    def _carried(self, agree: Rows, contrary: Rows) -> Rows:
        """Rows that others of their point carry; which of them agree and are contrary, ``n x n``."""
        others, against = ((self._twins & votes).sum(axis=1) for votes in (agree, contrary))
        return (others > 0) & ((against == 0) | ((others >= 2) & (others >= against)))

    def _judgement(self, theta: Array, believed: Rows, finds: Iterable[Find] = (), doubts: bool = False) -> Judgement:
        given = self._given(theta, believed, finds)
        residual, variance = given.expected()
        surprise = residual / np.sqrt(variance)
        margin = -0.5 * (given.log_norm + np.log(variance)) - self._next_price(given)
        excess = np.clip(margin - 0.5 * surprise**2, -700.0, 700.0)
        probability, limit = 1.0 / (1.0 + np.exp(-excess)), np.sqrt(2.0 * np.maximum(margin, 0.0))
        spread = float(np.var((self._y / given.units.scale)[believed]))
        explained = 1.0 - float(np.mean(residual[believed] ** 2)) / spread if spread > 0.0 else math.nan
        barely, possible = self._barely_believed(believed), self._possible(given) if doubts else ()
        return Judgement(believed, probability, surprise, limit, barely, explained, possible)

    def _possible(self, given: Conditioned) -> tuple[Find, ...]:
        """The likeliest finds about rows that are set aside, beyond all believed rewards and beyond what is expected.

        A row within a likelier find has none of its own: it would count the same variance twice.
        """
        inside = self._y[given.believed]
        above = (self._y > inside.max()) & (given.weights > 0.0)
        below = (self._y < inside.min()) & (given.weights < 0.0)
        about = (self._finds.about(int(row), given, self._odds) for row in np.flatnonzero(above | below))
        likeliest = [max(finds, key=lambda find: find.log_odds) for finds in about]
        kept: list[Find] = []
        for find in sorted(likeliest, key=lambda find: -find.log_odds):
            if not any(self._finds.nearness(other.row, other.radius)[find.row] > HALF for other in kept):
                kept.append(find)
        return tuple(kept)

    def _barely_believed(self, believed: Rows) -> Rows:
        """The largest or smallest rewards, where two readings of one point stand against all others.

        They are judged at hyperparameters fitted without them, because their own fit would bend to them.
        """
        rows, barely_believed = np.flatnonzero(believed), np.zeros(len(believed), dtype=bool)
        for row in rows[[self._y[rows].argmax(), self._y[rows].argmin()]]:
            pair = self._twins[row] | (np.arange(len(believed)) == row)
            rest = believed & ~pair
            if pair.sum() == 2 and np.all(believed[pair]) and rest.sum() >= FEWEST:
                given = self._given(self._fit_theta(rest), rest)
                price = self._odds[len(believed) - believed.sum()] + self._log_p0
                barely_believed |= pair & (given.log_densities() < price)
        return barely_believed
