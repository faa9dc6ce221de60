"""Outlier detection for a GP: a set of inliers and hyperparameters, chosen together by marginal likelihood.

Names in lower case are numbers of :class:`OutlierPrior`.

**Objective.** Some observations S are inliers, the others D are outliers (gross errors). With the hyperparameters theta
they maximize

    J(S, theta) = log p(y_S | theta) + log p(theta) + sum_(i in D) log p_0(y_i) + o_1 + ... + o_|D| + strong [D empty],
    o_k = log(k / (b + n - k)),    b = 1 / share - 1,    p_0(y) = density / s min(1, (s / (4 density |y - m|))^2),

where m is the median and s the robust standard deviation of the observations, and strong = ``evidence_required``. The
share of outliers has the prior Beta(1, b), whose mean is ``share``. So o_k is the log odds of the k-th outlier, and
each further outlier costs less. The density p_0 of an outlier is flat up to s / (4 density), five s by default,
decays from there on as that of a Cauchy variable, and has mass 1: an outlier costs more the farther out it is, or a
good region far above many nearly equal observations would be flagged. A function that no kernel fits well gains less
than ``evidence_required`` by leaving rows out.

**Units.** The GP sees observations in units of the inliers, (y - mean_S) / sd_S, clipped to m +- clip s. Noise of
standard deviation noise max(1, s / sd_S) is added to that of the model: hyperparameters of few observations often leave
hardly any, so that everything that no kernel fits exactly would look like an outlier, and a cluster of nearly equal
observations would be the best S. A GP that sees observations in their own units has noise min(1, s).

**Search.** At fixed theta row i leaves S if log p(y_i | y_S without i) < o_(|D| + 1) + log p_0(y_i), and j enters if
log p(y_j | y_S) > o_|D| + log p_0(y_j). Leave-one-out moments are in closed form (Rasmussen & Williams 2006, equations
5.10 to 5.12). At least half of the rows stay. The search climbs over S and theta in turn from these initial sets: all
rows, and the n (1 - q) observations, at most n - 1, that lie closest together, for q in SPARSE. With fewer than
``min_observations`` all are inliers.

**Local deviations.** Next, outliers become inliers again where a local deviation of f is likelier than as many gross
errors; see :mod:`bo_robust.models.robust.local_deviation`. So two replicates that agree are inliers, however far out
they are, unless another one at their point is like all others; three that agree outvote it, and it is the outlier. The
deviations join the GP, and the rows are chosen once more. All observations are inliers if J of all is larger there.

**What the others foretell is no outlier.** Gross errors fall anywhere, so their values say nothing of each other. A
steep step or a plateau without noise also gives a cluster S of nearly equal observations a high J, and the rest of a
right function leaves. So the outliers D stay inliers if a GP fitted to all rows, without added noise, predicts them
from all others: let e be its leave-one-out residuals in D, and e_0 the residuals given S less their mean over the other
rows, which is what outliers of one side let the others know. If |D| log(rms e_0 / rms e), the log likelihood ratio of
normal errors, exceeds ``evidence_required``, all are inliers. If half of the observations would be outliers at the
end, which is the most, nothing tells which half is right, and all are inliers.

**Outcome scales.** Positive and skewed observations may be normal in another scale w = T(y), their logarithm or a
root (:mod:`bo_robust.models.robust.outcome_scale`). The search is then made in every scale that the inliers of the
given one allow, from these and from all rows. There p(y) = p(w) T'(y), while p_0 stays as it is, since a gross error
knows no scale, and an observation outside the domain of T is an outlier. The posterior of a scale is proportional to
exp(J), where J of all but the given scale is ``scale_evidence`` less. Inliers are the rows that are inliers with a
probability of at least 1/2 over the scales.

**A scale must predict.** J is of densities, and a density says little of means: E y of a logarithm grows by exp(v / 2).
So the scale of the model is the one with the largest J + log L, where L is the likelihood of its leave-one-out errors
in the units of y, normal errors of the variance that fits them best: n log rms less, over the n rows that are inliers
in it and in the given one. Only scales of a larger J than the given one compete, whose rms is at most ``WORST_RATIO``
times that of the given one: many rows where f is flat may gain J, and the few others be lost. The means are E T^-1(w)
over the variance of f, by hyperparameters fitted to the inliers without added noise.

A logarithm forgives a factor of ten, which is what people mistype. So an inlier is held if it is an outlier in the
given scale and an inlier in that of the largest J, which need not be the model's, lies beyond all rows that are inliers
in both, unless a replicate lies there, too, and agrees better with the others once it is divided or multiplied by ten.
None is where the learnt scale gains another ``DECISIVE`` times ``scale_evidence``.

**Limits.** Observations beyond the limits of the outcomes are outliers in every scale, and no local deviation explains
them. "D empty" then means that all outliers are beyond the limits.

**Rounding.** Where observations are equal, the search adds at least the noise of rounding, of variance c^2 / 12 for
cells of width c. They are at least as wide as the smallest difference of observations, and as the cell that holds as
many of n normal numbers of standard deviation s as are equal.

**Outlier statistics.** They have the noise that the search adds, which the fitted model has not. Let e be the
leave-one-out residual of an observation given the other inliers, v its variance, and h its o + log p_0. The
standardized residual is e / sqrt(v), its limit sqrt(2 max(0, log N(0; 0, v) - h)), and the log odds of an inlier are
log N(e; 0, v) - h.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch

from bo_robust.models.marginal_likelihood import IMPOSSIBLE, Array, Evidence, one_thread
from bo_robust.models.reward_units import Units, spread_units
from bo_robust.models.robust.conditioned_gp import LEAST_PIVOT, ConditionedGP, Rows
from bo_robust.models.robust.local_deviation import LocalDeviation, LocalDeviations
from bo_robust.models.robust.outcome_scale import IDENTITY, OutcomeScale, outcome_scales
from bo_robust.models.robust.posterior import mean_in_units
from bo_robust.models.robust.prior import OutlierPrior

STEPS = 50  # steps of L-BFGS for each set of rows
PASSES = 4  # alternations between rows and hyperparameters from each initial set
FIT_ROWS = 200  # largest number of rows that the hyperparameters of the search are fitted to
SPARSE = (0.0, 0.15, 0.3, 0.45)  # shares of rows, at least one, that the initial sets of close observations leave out
CENTERS = 6  # number of outliers, of the largest residuals, around which a local deviation is looked for
WORST_RATIO = 1.1  # of the error of a learnt scale to that of the given one
DECISIVE = 3.0  # multiples of ``scale_evidence`` beyond it from which on no row is held
LEAST_GAIN = 1e-9  # smallest gain of J for which a row is moved
LEAST_ERROR = 1e-300  # smallest error of which a logarithm is taken


class OutlierDetection(NamedTuple):
    """Statistics ``n`` as the attributes of ``RobustGP`` describe them, and more.

    Attributes:
        explained: Share of the variance of the inliers that the other inliers predict; NaN without a GP.
        log_evidence: J of the inliers, as a density of the observations in the units given.
        loo_mean: Leave-one-out means ``n`` of the observations given the other inliers, in the outcome scale.
        undecided: Number of outliers found where they are too many to leave out, so that all are inliers; else 0.
    """

    inlier_mask: Rows
    inlier_probability: Array
    loo_zscore: Array
    loo_zscore_limit: Array
    confirmed_by_replicate: Rows
    held_mask: Rows
    explained: float
    log_evidence: float = 0.0
    loo_mean: Array | None = None
    undecided: int = 0

    @classmethod
    def without_search(cls, inliers: Rows) -> OutlierDetection:
        """The state where nothing was looked for among observations ``n``."""
        n, none = len(inliers), np.zeros(len(inliers), dtype=bool)
        return cls(inliers, inliers.astype(float), np.zeros(n), np.full(n, math.inf), none, none, math.nan)


class SearchData(NamedTuple):
    """What a search is made in.

    Attributes:
        evidence: Evidence of the GP as a function of its hyperparameters.
        y: Observations, ``n``.
        places: The points in the box that they span, with sides of 1, ``n x d``.
        replicates: Which rows are of the same point, ``n x n`` bool; a row is no replicate of itself.
        prior: What is assumed about outliers.
        standardized: Whether the GP sees observations standardized by the inliers, or in their own units.
        possible: Which observations may be inliers, ``n`` bool: those within the limits of the outcomes.
    """

    evidence: Evidence
    y: Array
    places: Array
    replicates: Rows
    prior: OutlierPrior
    standardized: bool
    possible: Rows


def _in_scale(y: Array, scale: OutcomeScale) -> tuple[Rows, Array, Array]:
    """Which observations ``n`` have a value in the scale, the log slopes there, else 0, and the values, else +-inf."""
    values = torch.from_numpy(y)
    domain = scale.contains(values)
    slope = torch.where(domain, scale.log_slope(values), 0.0)
    end = torch.where(values < scale.upper, -scale.sign * math.inf, math.inf)
    return domain.numpy(), slope.numpy(), torch.where(domain, scale.transform(values), end).numpy()


def _rounding(y: Array, scale: float) -> float:
    """Standard deviation of the rounding of observations ``n`` of this robust scale; 0 if no two are equal."""
    values, count = np.unique(y, return_counts=True)
    if len(values) in (1, len(y)):
        return 0.0
    alike = math.sqrt(2.0 * math.pi) * scale * (int(count.max()) - 1) / len(y)
    return max(float(np.diff(values).min()), alike) / math.sqrt(12.0)


def find_outliers(
    data: SearchData, scale: OutcomeScale = IDENTITY, limits: tuple[float, float] | None = None
) -> tuple[OutcomeScale, OutlierDetection]:
    """The scale of the model, and the detection in it.

    Args:
        data: What is searched.
        scale: The given scale.
        limits: Limits of the outcomes, for other scales that may be learnt; None: none is.
    """
    given = OutlierSearch(data, scale)
    found = [given.fit()]
    scales = [] if limits is None else outcome_scales(torch.from_numpy(data.y[found[0].inlier_mask]), limits)[1:]
    searches = [given, *(OutlierSearch(data, other) for other in scales)]
    found += [search.fit(found[0].inlier_mask) for search in searches[1:]]
    chosen = 0
    detection = found[0]
    if len(found) > 1 and np.isfinite(found[0].log_evidence):
        chosen, detection = _over_scales(data, searches, found)
    outliers = int((~detection.inlier_mask & data.possible).sum())
    if given.is_most(outliers):
        return scale, given.statistics(given.domain.copy())._replace(undecided=outliers)
    return searches[chosen].scale, detection


def _over_scales(
    data: SearchData, searches: Sequence[OutlierSearch], found: Sequence[OutlierDetection]
) -> tuple[int, OutlierDetection]:
    """Which scale predicts, and the detection over all; the first is the given scale."""
    evidence = np.array([each.log_evidence for each in found])
    evidence[1:] -= data.prior.scale_evidence
    top = int(np.nanargmax(evidence))
    weights = np.nan_to_num(np.exp(evidence - evidence[top]))
    weights /= weights.sum()
    best = _predicting(data.y, searches, found, evidence)
    inlier = searches[best].domain & (weights @ np.stack([each.inlier_mask for each in found]) >= 0.5)
    probability = weights @ np.stack([each.inlier_probability for each in found])
    held = _held(data, inlier, found[0], searches[top], found[top])
    own = found[best] if np.array_equal(inlier, found[best].inlier_mask) else searches[best].statistics(inlier)
    return best, own._replace(inlier_probability=probability, held_mask=held)


def _predicting(y: Array, searches: Sequence[OutlierSearch], found: Sequence[OutlierDetection], evidence: Array) -> int:
    """The scale of the largest evidence plus log likelihood of its leave-one-out errors."""
    rivals = np.flatnonzero(evidence > evidence[0])
    if not len(rivals):
        return 0
    mask, errors = found[0].inlier_mask, y - searches[0].predictions(found[0].inlier_mask)
    scores = {0: float(evidence[0])}
    for k in rivals.tolist():
        both = mask & found[k].inlier_mask
        own = y - searches[k].predictions(found[k].inlier_mask)
        ratio = _rms(own[both]) / _rms(errors[both])
        if ratio <= WORST_RATIO:
            scores[k] = float(evidence[k]) - both.sum() * math.log(ratio)
    return max(scores, key=lambda k: scores[k])


def _rms(errors: Array) -> float:
    """Root mean square of errors; never 0."""
    return max(float(np.linalg.norm(errors)) / math.sqrt(len(errors)), LEAST_ERROR) if len(errors) else 1.0


def held_rows(data: SearchData, inliers: Rows, scale: OutcomeScale) -> Rows:
    """Which of the inliers of a scale are held, ``n`` bool, where nothing is known yet of the given scale."""
    if scale.is_identity:
        return np.zeros_like(inliers)
    given, learnt = OutlierSearch(data).fit(), OutlierSearch(data, scale)
    return _held(data, inliers, given, learnt, learnt.fit(given.inlier_mask))


def _held(
    data: SearchData, inliers: Rows, given: OutlierDetection, learnt: OutlierSearch, found: OutlierDetection
) -> Rows:
    """Which rows are inliers in a learnt scale alone, beyond all that are inliers in both, and look mistyped, ``n``.

    Two replicates that both lie there confirm each other. None is held where the evidence of the learnt scale is
    decisive: then it explains more than these rows.
    """
    both, alone = inliers & given.inlier_mask, inliers & ~given.inlier_mask
    held = np.zeros_like(inliers)
    if both.any():
        for beyond in (data.y > data.y[both].max(), data.y < data.y[both].min()):
            side = alone & beyond
            held |= side & ~np.any(data.replicates & side, axis=1)
    gain = found.log_evidence - data.prior.scale_evidence - given.log_evidence
    if gain >= DECISIVE * data.prior.scale_evidence or not held.any():
        return np.zeros_like(held)
    return held & learnt.mistyped(data.y, found)


class OutlierSearch:
    """The search for outliers in some :class:`SearchData`, where the GP sees observations in this scale."""

    def __init__(self, data: SearchData, scale: OutcomeScale = IDENTITY) -> None:
        self._evidence, self._replicates, self.prior = data.evidence, data.replicates, data.prior
        self._standardized, self._possible, self.scale = data.standardized, data.possible, scale
        n, prior, places = len(data.y), data.prior, data.places
        outliers = np.arange(1, n + 1)
        self._odds = np.log(outliers / (1.0 / prior.share - 1.0 + n - outliers))  # o_1, o_2, ...
        units = spread_units(data.y[data.possible], places[data.possible], prior.cluster_radius)
        out = np.minimum(np.abs(data.y - units.center) / units.scale, prior.clip)
        tail = -2.0 * np.log(np.maximum(4.0 * prior.density * out, 1.0))
        log_p0 = math.log(prior.density) - math.log(units.scale) + tail
        within, slope, w = _in_scale(data.y, scale)
        self.domain = within & data.possible
        self._log_slope, self._log_p0 = float(slope.sum()), log_p0 - slope
        self._rounding = np.exp(slope) * _rounding(data.y, units.scale)
        self._robust = spread_units(w[self.domain], places[self.domain], prior.cluster_radius)
        center, spread = self._robust
        self._y = np.clip(w, center - prior.clip * spread, center + prior.clip * spread)
        # Clipped observations are alike only because they are clipped, so no deviation explains them.
        explicable = (self._y == w) & data.possible
        self._deviations = LocalDeviations(places, np.where(explicable, self._log_p0, math.inf), prior)

    @one_thread
    def fit(self, first: Rows | None = None) -> OutlierDetection:
        """Choose inliers and hyperparameters together, starting from the hyperparameters of the model.

        The inliers ``first`` of another scale take the place of the initial sets that cost most.
        """
        if self._possible.sum() < self.prior.min_observations:
            return OutlierDetection.without_search(self._possible)
        visited: dict[bytes, tuple[float, Array, Rows]] = {}
        for inliers in self._initial_sets() if first is None else [self.domain, first & self.domain]:
            for _ in range(PASSES):
                if inliers.tobytes() in visited:
                    break
                theta = self._fit_theta(inliers)
                gp = self._gp(theta, inliers)
                visited[inliers.tobytes()] = self._objective(gp), theta, inliers
                inliers = self._climb(gp)
        _, theta, best = max(visited.values(), key=lambda visit: visit[0])
        inliers, deviations = self._with_deviations(theta, best)
        if self._foretold(theta, inliers, deviations):
            return self._result(visited[self.domain.tobytes()][1], self.domain.copy())
        return self._result(theta, inliers, deviations)

    @one_thread
    def statistics(self, inliers: Rows) -> OutlierDetection:
        """The statistics given these inliers, at hyperparameters fitted to them."""
        return self._result(self._fit_theta(inliers), inliers)

    def is_most(self, outliers: int) -> bool:
        """Whether no more than so many observations can be outliers."""
        n = int(self._possible.sum())
        return n >= self.prior.min_observations and 2 * (n - outliers - 1) < n

    @one_thread
    def predictions(self, inliers: Rows) -> Array:
        """Leave-one-out means ``n`` of f in the units of y, given these inliers without added noise."""
        gp = self._plain_gp(inliers)
        residual, variance = gp.loo_residuals()
        mean, variance = self._y - residual * gp.units.scale, np.maximum(variance - gp.noise, 0.0) * gp.units.scale**2
        return mean_in_units(torch.from_numpy(mean), torch.from_numpy(variance), self.scale).numpy()

    def mistyped(self, y: Array, found: OutlierDetection) -> Rows:
        """Which observations agree better with the others once they are divided or multiplied by ten, ``n`` bool."""
        if found.loo_mean is None:
            return np.zeros_like(found.inlier_mask)
        off = [np.abs(_in_scale(factor * y, self.scale)[2] - found.loo_mean) for factor in (1.0, 0.1, 10.0)]
        return np.minimum(off[1], off[2]) < off[0]

    def _foretold(self, theta: Array, inliers: Rows, deviations: Iterable[LocalDeviation] = ()) -> bool:
        """Whether a fit to all rows predicts the outliers among them, each from all others."""
        out = self.domain & ~inliers
        outliers, others = int(out.sum()), int(self.domain.sum()) - 1
        if not outliers:
            return False
        plain, gp = self._plain_gp(self.domain), self._gp(theta, inliers, deviations)
        deviation = np.where(self.domain, gp.loo_residuals()[0] * gp.units.scale, 0.0)
        chance = deviation - (deviation.sum() - deviation) / others
        foretold = plain.loo_residuals()[0] * plain.units.scale
        return outliers * math.log(_rms(chance[out]) / _rms(foretold[out])) > self.prior.evidence_required

    @one_thread
    def detect(self, known_inliers: Rows | None = None) -> OutlierDetection:
        """Choose inliers at the hyperparameters of the model.

        ``known_inliers`` is the choice of :meth:`fit` among the first ``m <= n`` rows. It stands if these are all.
        """
        if self._possible.sum() < self.prior.min_observations:
            return OutlierDetection.without_search(self._possible)
        theta, every = self._evidence.start, self.domain
        first = every.copy()
        if known_inliers is not None:
            first[: len(known_inliers)] &= known_inliers
            if len(known_inliers) == len(first):
                return self._result(theta, first)
        sets = [every, first, *(self._climb(self._gp(theta, start)) for start in (first, *self._initial_sets()))]
        best = max(sets, key=lambda rows: self._objective(self._gp(theta, rows)))
        inliers, deviations = self._with_deviations(theta, best)
        if self._foretold(theta, inliers, deviations) or self.is_most(int((self._possible & ~inliers).sum())):
            return self._result(theta, every)
        return self._result(theta, inliers, deviations)

    def _with_deviations(self, theta: Array, inliers: Rows) -> tuple[Rows, list[LocalDeviation]]:
        """The inliers, and the local deviations that at least two former outliers share, the likeliest first."""
        deviations: list[LocalDeviation] = []
        gp = self._gp(theta, inliers)
        while len(deviations) < self.prior.max_deviations:
            rows = np.flatnonzero(~gp.inliers)
            centers = rows[np.abs(gp.weights[rows]).argsort(kind="stable")[::-1][:CENTERS]]
            shared = [each for row in centers for each in self._around(int(row), gp) if len(each.rows) > 1]
            likeliest = max(shared, key=lambda each: each.log_odds, default=None)
            if likeliest is None or likeliest.log_odds <= 0.0:
                break
            deviations.append(likeliest)
            together = gp.inliers.copy()
            together[list(likeliest.rows)] = True
            together[list(likeliest.contradicting)] = False
            gp = self._gp(theta, together, deviations, gp.units)
            self._climb(gp)
        if deviations:
            gp = self._gp(theta, gp.inliers, deviations)  # in units of the inliers that there are now
            self._climb(gp)
            rest = np.flatnonzero(self.domain & ~gp.inliers)
            if gp.with_rows(rest)[1] + self.prior.evidence_required > self._outlier_terms(gp.inliers):
                return self.domain.copy(), deviations
        return gp.inliers, deviations

    def _around(self, row: int, gp: ConditionedGP) -> Iterator[LocalDeviation]:
        """Deviations around an outlier, given all inliers, or with those at its point as the gross errors.

        Two observations may share one error, so at least two more of the point must agree than contradict.
        """
        yield from self._deviations.about(row, gp, self._odds)
        contradicting = np.flatnonzero(gp.inliers & self._replicates[row])
        if len(contradicting):
            instead = self._deviations.instead_of(contradicting, row, gp, self._odds)
            yield from (e for e in instead if self._replicates[row][list(e.rows)].sum() > len(contradicting))

    def _units(self, inliers: Rows) -> Units:
        if not self._standardized:
            return Units(0.0, 1.0)
        y = self._y[inliers]
        scale = float(y.std(ddof=1))
        return Units(float(y.mean()), scale if scale > LEAST_PIVOT * self._robust.scale else self._robust.scale)

    def _added_noise(self, units: Units) -> Array:
        """Variances of the noise that the search adds, ``n``, in these units: at least that of rounded observations."""
        spread = self._robust.scale
        scale = max(spread / units.scale, 1.0) if self._standardized else min(spread, 1.0)
        return np.asarray(np.maximum(self.prior.noise * scale, self._rounding / units.scale) ** 2)

    def _gp(
        self, theta: Array, inliers: Rows, deviations: Iterable[LocalDeviation] = (), units: Units | None = None
    ) -> ConditionedGP:
        """The GP given these rows, with these local deviations; by default in the units of the inliers."""
        units = units or self._units(inliers)
        prior = self._evidence.prior(theta, units.scale, self._added_noise(units))
        for each in deviations:
            prior = prior._replace(covariance=prior.covariance + self._deviations.covariance(each, units.scale))
        return ConditionedGP(prior, self._y, inliers, units)

    def _outlier_terms(self, inliers: Rows) -> float:
        return float(self._odds[: (~inliers).sum()].sum() + self._log_p0[~inliers].sum())

    def _next_price(self, gp: ConditionedGP) -> Array:
        """o + log p_0 of each row, ``n``: of an inlier as one more outlier, of an outlier as the last one."""
        k = int((~gp.inliers).sum())
        return np.where(gp.inliers, self._odds[k], self._odds[k - 1]) + self._log_p0

    def _plain_gp(self, inliers: Rows) -> ConditionedGP:
        """The GP given these rows, fitted to them without added noise; with it where its matrix is indefinite."""
        units = self._units(inliers)
        theta = self._fit_theta(inliers, 0.0)
        gp = ConditionedGP(self._evidence.prior(theta, units.scale, 0.0), self._y, inliers, units)
        return gp if gp.log_evidence > -0.5 * IMPOSSIBLE else self._gp(self._fit_theta(inliers), inliers)

    def _fit_theta(self, inliers: Rows, added_noise: float | None = None) -> Array:
        units, rows = self._units(inliers), np.flatnonzero(inliers)
        targets = (self._y - units.center) / units.scale
        # some of each size, whatever the order and sign of the observations
        by_size = rows[np.abs(targets[rows]).argsort(kind="stable")]
        some = np.sort(by_size[np.linspace(0, len(rows) - 1, min(len(rows), FIT_ROWS)).round().astype(int)])
        noise = self._added_noise(units) if added_noise is None else added_noise
        return self._evidence.maximize(targets, some, STEPS, units.scale, noise)

    def _objective(self, gp: ConditionedGP) -> float:
        none = np.array_equal(gp.inliers, self._possible)
        return gp.log_evidence + (self.prior.evidence_required if none else self._outlier_terms(gp.inliers))

    def _initial_sets(self) -> Iterator[Rows]:
        yield self.domain.copy()
        rows = np.flatnonzero(self.domain)
        n, order = len(rows), rows[self._y[rows].argsort(kind="stable")]
        for share in SPARSE:
            left = max(1, int(share * n))
            if n - left >= self.prior.min_observations // 2:
                start = int((self._y[order[n - left - 1 :]] - self._y[order[: left + 1]]).argmin())
                yield np.isin(np.arange(len(self._y)), order[start : start + n - left])

    def _climb(self, gp: ConditionedGP) -> Rows:
        """Move the row that gains most until none gains; returns the inliers."""
        n = int(self._possible.sum())
        for _ in range(2 * len(gp.inliers)):
            gain = gp.log_densities() - self._next_price(gp)
            gain[gp.inliers] *= -1.0
            gain[~self.domain] = -math.inf
            if 2 * (gp.inliers.sum() - 1) < n:
                gain[gp.inliers] = -math.inf
            i = int(gain.argmax())
            if gain[i] < LEAST_GAIN:
                break
            gp.move(i)
        return gp.inliers

    def _result(self, theta: Array, inliers: Rows, deviations: Iterable[LocalDeviation] = ()) -> OutlierDetection:
        gp = self._gp(theta, inliers, deviations)
        residual, variance = gp.loo_residuals()
        zscore = residual / np.sqrt(variance)
        margin = -0.5 * (gp.log_norm + np.log(variance)) - self._next_price(gp)
        excess = np.clip(margin - 0.5 * zscore**2, -700.0, 700.0)
        probability, limit = 1.0 / (1.0 + np.exp(-excess)), np.sqrt(2.0 * np.maximum(margin, 0.0))
        spread = float(np.var((self._y / gp.units.scale)[inliers]))
        explained = 1.0 - float(np.mean(residual[inliers] ** 2)) / spread if spread > 0.0 else math.nan
        confirmed = self._by_replicate_only(inliers)
        objective, none = self._objective(gp) + self._log_slope, np.zeros_like(inliers)
        mean = self._y - residual * gp.units.scale
        return OutlierDetection(inliers, probability, zscore, limit, confirmed, none, explained, objective, mean)

    def _by_replicate_only(self, inliers: Rows) -> Rows:
        """Extreme inliers where two observations of one point stand against all others, by a fit without them."""
        rows, by_replicate_only = np.flatnonzero(inliers), np.zeros(len(inliers), dtype=bool)
        for row in rows[[self._y[rows].argmax(), self._y[rows].argmin()]]:
            pair = self._replicates[row] | (np.arange(len(inliers)) == row)
            rest = inliers & ~pair
            if pair.sum() == 2 and np.all(inliers[pair]) and rest.sum() >= self.prior.min_observations:
                gp = self._gp(self._fit_theta(rest), rest)
                price = self._odds[len(inliers) - inliers.sum()] + self._log_p0
                by_replicate_only |= pair & (gp.log_densities() < price)
        return by_replicate_only
