"""The search for outliers in one outcome scale, as :mod:`bo_robust.models.robust.detection` describes it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial

import numpy as np
import torch

from bo_robust.models.marginal_likelihood import IMPOSSIBLE, Array, Evidence, one_thread
from bo_robust.models.reward_units import Units, spread_units, spread_weights
from bo_robust.models.robust.conditioned_gp import LEAST_PIVOT, ConditionedGP, Rows
from bo_robust.models.robust.decided import Detection
from bo_robust.models.robust.device_gp import DeviceGP
from bo_robust.models.robust.local_deviation import LocalDeviation, LocalDeviations
from bo_robust.models.robust.outcome_scale import IDENTITY, OutcomeScale
from bo_robust.models.robust.posterior import mean_in_units
from bo_robust.models.robust.prior import CLIP, OutlierPrior

EVIDENCE_REQUIRED = 5.0  # nats by which outliers must improve on no outliers: very strong (Kass & Raftery 1995)
NOISE = 0.1  # standard deviation of the noise that the search adds to that of the model
CLUSTER_RADIUS = 0.1  # sides of the box within which observations count as about one for the scale s
MIN_OBSERVATIONS = 4  # number of observations from which on outliers are detected
MAX_DEVIATIONS = 4  # largest number of local deviations that turn outliers into inliers
TOLERANCE = 1e-4  # share of J, some 1e-2 nats, that the last of these may gain
STEPS = 50  # steps of L-BFGS for each set of rows
PASSES = 4  # alternations between rows and hyperparameters from each initial set
FIT_ROWS = 200  # largest number of rows that the hyperparameters of the search are fitted to
SPARSE = (0.0, 0.15, 0.3, 0.45)  # shares of rows, at least one, that the initial sets of close observations leave out
CENTERS = 6  # number of outliers, of the largest residuals, around which a local deviation is looked for
LEAST_GAIN = 1e-9  # smallest gain of J for which a row is moved
HOPELESS = 50.0  # nats of J by which a scale may be behind another one for its outliers to matter
LEAST_ERROR = 1e-300  # smallest error of which a logarithm is taken


@dataclass(frozen=True)
class SearchData:
    """What a search is made in.

    Attributes:
        evidence: Evidence of the GP as a function of its hyperparameters.
        y: Observations, ``n``.
        places: The points in the box that they span, with sides of 1, ``n x d``.
        replicates: Which rows are of the same point, ``n x n`` bool; a row is no replicate of itself.
        prior: What is assumed about outliers.
        standardized: Whether the GP sees observations standardized by the inliers, or in their own units.
        possible: Which observations may be inliers, ``n`` bool: those within the limits of the outcomes.
        batched: Whether observations share the deviations of batches.
        device: Where the GP has its matrices; None: in arrays of the host.
    """

    evidence: Evidence
    y: Array
    places: Array
    replicates: Rows
    prior: OutlierPrior
    standardized: bool
    possible: Rows
    batched: bool = False
    device: torch.device | None = None
    _searches: dict[OutcomeScale, OutlierSearch] = field(default_factory=dict, init=False, repr=False)

    @cached_property
    def weights(self) -> Array:
        """What the observations that are possible weigh, where a cluster counts as one."""
        return spread_weights(self.places[self.possible], CLUSTER_RADIUS)

    def search(self, scale: OutcomeScale = IDENTITY) -> OutlierSearch:
        """The search in a scale, one for all that ask: it remembers its fits."""
        if scale not in self._searches:
            self._searches[scale] = OutlierSearch(self, scale)
        return self._searches[scale]


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


def rms(errors: Array) -> float:
    """Root mean square of errors; never 0."""
    return max(float(np.linalg.norm(errors)) / math.sqrt(len(errors)), LEAST_ERROR) if len(errors) else 1.0


class OutlierSearch:
    """The search for outliers in some :class:`SearchData`, where the GP sees observations in this scale."""

    def __init__(self, data: SearchData, scale: OutcomeScale = IDENTITY) -> None:
        self._evidence, self._replicates = data.evidence, data.replicates
        self._conditioned = ConditionedGP if data.device is None else partial(DeviceGP, data.device)
        self._standardized, self._possible, self.scale = data.standardized, data.possible, scale
        n, prior, places = len(data.y), data.prior, data.places
        outliers = np.arange(1, n + 1)
        self._odds = np.log(outliers / (1.0 / prior.share - 1.0 + n - outliers))  # o_1, o_2, ...
        units = spread_units(data.y[data.possible], data.weights)
        self.log_p0 = log_p0 = prior.log_density(data.y, units)
        within, slope, w = _in_scale(data.y, scale)
        self.domain = within & data.possible
        self._log_slope, self._log_p0 = float(slope.sum()), log_p0 - slope
        self._rounding = np.exp(slope) * _rounding(data.y, units.scale)
        all_within = np.array_equal(self.domain, data.possible)
        weights = data.weights if all_within else spread_weights(places[self.domain], CLUSTER_RADIUS)
        self._robust = spread_units(w[self.domain], weights)
        center, spread = self._robust
        self._y = np.clip(w, center - CLIP * spread, center + CLIP * spread)
        # Clipped observations are alike only because they are clipped, so no deviation explains them.
        explicable = (self._y == w) & data.possible
        self._fits: dict[tuple[bytes, float | None], Array] = {}
        self._deviations = LocalDeviations(places, np.where(explicable, self._log_p0, math.inf), prior.share)

    @one_thread
    def fit(self, other: Detection | None = None) -> Detection:
        """Choose inliers and hyperparameters together, starting from the hyperparameters of the model.

        The inliers of an ``other`` scale take the place of the initial sets that cost most.
        """
        if self._possible.sum() < MIN_OBSERVATIONS:
            return Detection.without_search(self._possible, self.scale)
        visited: dict[bytes, tuple[float, Array, Rows]] = {}
        for inliers in self._initial_sets() if other is None else [self.domain, other.inliers & self.domain]:
            for _ in range(PASSES):
                if inliers.tobytes() in visited:
                    break
                theta = self._fit_theta(inliers)
                gp = self._gp(theta, inliers)
                visited[inliers.tobytes()] = self._objective(gp), theta, inliers
                inliers = self._climb(gp)
        _, theta, best = max(visited.values(), key=lambda visit: visit[0])
        gp = self._with_deviations(theta, best)
        # All rows have a smaller J, so nothing depends on them where the other scale is far likelier anyway.
        hopeless = other is not None and self._log_evidence(gp) < other.log_evidence - HOPELESS
        if not hopeless and self._foretold(gp):
            return self._result(self._gp(visited[self.domain.tobytes()][1], self.domain))
        return self._result(gp)

    @one_thread
    def statistics(self, inliers: Rows) -> Detection:
        """The statistics given these inliers, at hyperparameters fitted to them."""
        return self._result(self._gp(self._fit_theta(inliers), inliers))

    def is_most(self, outliers: int) -> bool:
        """Whether no more than so many observations can be outliers."""
        n = int(self._possible.sum())
        return n >= MIN_OBSERVATIONS and 2 * (n - outliers - 1) < n

    @one_thread
    def predictions(self, inliers: Rows) -> Array:
        """Means ``n`` of f in the units of y, given these inliers at other points, without added noise."""
        gp = self._plain_gp(inliers)
        residual, variance = gp.residuals_without(self._replicates)
        mean, variance = self._y - residual * gp.units.scale, np.maximum(variance - gp.noise, 0.0) * gp.units.scale**2
        return mean_in_units(torch.from_numpy(mean), torch.from_numpy(variance), self.scale).numpy()

    def mistyped(self, y: Array, found: Detection) -> Rows:
        """Which observations agree better with the others once they are divided or multiplied by ten, ``n`` bool."""
        if found.loo_mean is None:
            return np.zeros_like(found.inliers)
        off = [np.abs(_in_scale(factor * y, self.scale)[2] - found.loo_mean) for factor in (1.0, 0.1, 10.0)]
        return np.minimum(off[1], off[2]) < off[0]

    @one_thread
    def exchange_gains(self, inliers: Rows) -> Array:
        """What log p(y) of all rows gains where two are exchanged, ``n x n``, at hyperparameters of these inliers."""
        gains = self._gp(self._fit_theta(inliers), self.domain).exchange_gains(self._y)
        return np.asarray(np.where(np.triu(np.outer(self.domain, self.domain), 1), gains, -math.inf))

    @one_thread
    def objective_with(self, inliers: Rows, rows: Sequence[int]) -> float:
        """J, as of observations in the units given, at its maximum near these inliers, where ``rows`` are inliers, too.

        What outliers must improve on no outliers by is not in it.
        """
        every = inliers.copy()
        every[list(rows)] = True
        if not self.domain[list(rows)].all():
            return -math.inf
        gp = self._gp(self._fit_theta(every & self.domain), every & self.domain)
        self._climb(gp)
        if not gp.inliers[list(rows)].all():
            return -math.inf
        return gp.log_evidence + self._outlier_terms(gp.inliers) + self._log_slope

    def _foretold(self, gp: ConditionedGP) -> bool:
        """Whether a fit to all rows predicts the outliers among them, each from all others."""
        out = self.domain & ~gp.inliers
        outliers, others = int(out.sum()), int(self.domain.sum()) - 1
        if not outliers:
            return False
        plain = self._plain_gp(self.domain)
        deviation = np.where(self.domain, gp.loo_residuals()[0] * gp.units.scale, 0.0)
        chance = deviation - (deviation.sum() - deviation) / others
        foretold = plain.loo_residuals()[0] * plain.units.scale
        return outliers * math.log(rms(chance[out]) / rms(foretold[out])) > EVIDENCE_REQUIRED

    @one_thread
    def at_present(self, inliers: Rows | None = None) -> Detection:
        """Choose inliers at the hyperparameters of the model, or the statistics given these."""
        if self._possible.sum() < MIN_OBSERVATIONS:
            return Detection.without_search(self._possible, self.scale)
        theta = self._evidence.start
        if inliers is not None:
            return self._result(self._gp(theta, inliers & self.domain))
        sets = [self.domain, *(self._climb(self._gp(theta, start)) for start in self._initial_sets())]
        best = max(sets, key=lambda rows: self._objective(self._gp(theta, rows)))
        gp = self._with_deviations(theta, best)
        if self._foretold(gp) or self.is_most(int((self._possible & ~gp.inliers).sum())):
            gp = self._gp(theta, self.domain)
        return self._result(gp)

    def _with_deviations(self, theta: Array, inliers: Rows) -> ConditionedGP:
        """The GP of these inliers, with the local deviations that former outliers share, the likeliest first."""
        deviations: list[LocalDeviation] = []
        gp = self._gp(theta, inliers)
        while len(deviations) < MAX_DEVIATIONS:
            rows = np.flatnonzero(~gp.inliers)
            centers = rows[np.abs(gp.weights[rows]).argsort(kind="stable")[::-1][:CENTERS]]
            shared = [each for row in centers for each in self._around(int(row), gp)]
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
            none = gp.with_rows(rest)[1] + EVIDENCE_REQUIRED > self._outlier_terms(gp.inliers)
            gp = self._gp(theta, self.domain if none else gp.inliers, deviations)
        return gp

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
        return np.asarray(np.maximum(NOISE * scale, self._rounding / units.scale) ** 2)

    def _gp(
        self, theta: Array, inliers: Rows, deviations: Iterable[LocalDeviation] = (), units: Units | None = None
    ) -> ConditionedGP:
        """The GP given these rows, with these local deviations; by default in the units of the inliers."""
        units = units or self._units(inliers)
        prior = self._evidence.prior(theta, units.scale, self._added_noise(units))
        for each in deviations:
            prior = prior._replace(covariance=prior.covariance + self._deviations.covariance(each, units.scale))
        return self._conditioned(prior, self._y, inliers, units)

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
        gp = self._conditioned(self._evidence.prior(theta, units.scale, 0.0), self._y, inliers, units)
        return gp if gp.log_evidence > -0.5 * IMPOSSIBLE else self._gp(self._fit_theta(inliers), inliers)

    def _fit_theta(self, inliers: Rows, added_noise: float | None = None) -> Array:
        key = inliers.tobytes(), added_noise
        if key not in self._fits:
            self._fits[key] = self._fitted(inliers, added_noise)
        return self._fits[key]

    def _fitted(self, inliers: Rows, added_noise: float | None) -> Array:
        units, rows = self._units(inliers), np.flatnonzero(inliers)
        targets = (self._y - units.center) / units.scale
        # some of each size, whatever the order and sign of the observations
        by_size = rows[np.abs(targets[rows]).argsort(kind="stable")]
        some = np.sort(by_size[np.linspace(0, len(rows) - 1, min(len(rows), FIT_ROWS)).round().astype(int)])
        noise = self._added_noise(units) if added_noise is None else added_noise
        return self._evidence.maximize(targets, some, STEPS, units.scale, noise, TOLERANCE)

    def _objective(self, gp: ConditionedGP) -> float:
        none = np.array_equal(gp.inliers, self._possible)
        return gp.log_evidence + (EVIDENCE_REQUIRED if none else self._outlier_terms(gp.inliers))

    def _initial_sets(self) -> Iterator[Rows]:
        yield self.domain.copy()
        rows = np.flatnonzero(self.domain)
        n, order = len(rows), rows[self._y[rows].argsort(kind="stable")]
        for share in SPARSE:
            left = max(1, int(share * n))
            if n - left >= MIN_OBSERVATIONS // 2:
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

    def _log_evidence(self, gp: ConditionedGP) -> float:
        """J as of observations in the units given."""
        return self._objective(gp) + self._log_slope

    def _result(self, gp: ConditionedGP) -> Detection:
        inliers, (residual, variance) = gp.inliers, gp.loo_residuals()
        zscore = residual / np.sqrt(variance)
        margin = -0.5 * (gp.log_norm + np.log(variance)) - self._next_price(gp)
        excess = np.clip(margin - 0.5 * zscore**2, -700.0, 700.0)
        probability, limit = 1.0 / (1.0 + np.exp(-excess)), np.sqrt(2.0 * np.maximum(margin, 0.0))
        spread = float(np.var((self._y / gp.units.scale)[inliers]))
        explained = 1.0 - float(np.mean(residual[inliers] ** 2)) / spread if spread > 0.0 else math.nan
        objective, none = self._log_evidence(gp), np.zeros_like(inliers)
        mean, variance = self._y - residual * gp.units.scale, variance * gp.units.scale**2
        told = (explained, objective, mean, variance)
        return Detection(self.scale, inliers, none, probability, zscore, limit, self._by_replicate_only(inliers), *told)

    def _by_replicate_only(self, inliers: Rows) -> Rows:
        """Extreme inliers where two observations of one point stand against all others, by a fit without them."""
        rows, by_replicate_only = np.flatnonzero(inliers), np.zeros(len(inliers), dtype=bool)
        for row in rows[[self._y[rows].argmax(), self._y[rows].argmin()]]:
            pair = self._replicates[row] | (np.arange(len(inliers)) == row)
            rest = inliers & ~pair
            if pair.sum() == 2 and np.all(inliers[pair]) and rest.sum() >= MIN_OBSERVATIONS:
                gp = self._gp(self._fit_theta(rest), rest)
                price = self._odds[len(inliers) - inliers.sum()] + self._log_p0
                by_replicate_only |= pair & (gp.log_densities() < price)
        return by_replicate_only
