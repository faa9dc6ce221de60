import math

import numpy as np
import pytest
import torch
from botorch.models import SingleTaskGP
from scipy import stats

from bo_robust import RobustGP
from bo_robust.models import OutlierPrior
from bo_robust.models.evidence_fit import fit_evidence
from bo_robust.models.marginal_likelihood import Prior
from bo_robust.models.reward_units import Units, robust_units, spread_units, spread_weights
from bo_robust.models.robust.conditioned_gp import ConditionedGP
from bo_robust.models.robust.local_deviation import LocalDeviations
from tests.problems import fit, outliers

CENTRE = torch.tensor([0.37, 0.62], dtype=torch.float64)


def peak(n=40, sd=0.1, seed=0, near=0):
    """One narrow peak above a flat f, with little noise; ``near`` of the points are close to the peak."""
    draws = torch.Generator().manual_seed(seed)
    X = torch.rand(n, 2, generator=draws, dtype=torch.float64)
    far = (X - CENTRE).norm(dim=1) > 3.5 * sd
    X = X[far]
    close = CENTRE + 0.7 * sd * torch.randn(near, 2, generator=draws, dtype=torch.float64)
    X = torch.cat([X, close])
    f = (-0.5 * (X - CENTRE).square().sum(1, keepdim=True) / sd**2).exp()
    return X, f + 0.01 * torch.randn(len(X), 1, generator=draws, dtype=torch.float64)


def test_log_odds_are_those_of_dense_densities():
    draws = np.random.default_rng(0)
    n, odds = 12, np.array([-4.0, -3.0])
    places, y = draws.random((n, 2)), draws.normal(size=n)
    y[[3, 7]] += 6.0, 5.0
    places[7] = places[3] + 0.02
    A = draws.normal(size=(n, n))
    prior = Prior(np.zeros(n), A @ A.T / n + np.eye(n), np.full(n, 0.1))
    inliers = np.ones(n, dtype=bool)
    inliers[[3, 7]] = False
    log_p0 = np.log(draws.uniform(0.01, 0.1, n))
    deviations = LocalDeviations(places, log_p0, OutlierPrior.share)
    found = deviations.about(3, ConditionedGP(prior, y, inliers, Units(0.0, 1.0)), odds)
    assert {each.rows for each in found} == {(3, 7)}  # one outlier alone decides nothing
    for each in found:

        def log_density(rows, covariance):
            total = (covariance + 0.1 * np.eye(n))[np.ix_(rows, rows)]
            return stats.multivariate_normal(np.zeros(len(rows)), total).logpdf(y[rows])

        kept = np.flatnonzero(inliers)
        together = np.sort([*kept, *each.rows])
        ball = math.pi * each.radius**2
        expected = log_density(together, prior.covariance + deviations.covariance(each))
        expected -= log_density(kept, prior.covariance)
        as_outliers = sum(odds[2 - len(each.rows)] + log_p0[row] for row in each.rows)
        expected += -as_outliers + math.log(max(0.1 * ball, 0.01))
        expected += log_p0[3] + math.log(abs(each.size) * math.sqrt(2.0 * math.pi * math.e))
        assert each.log_odds == pytest.approx(expected, abs=2e-2)  # of what is far from the center
        assert 3 in each.rows


def test_log_odds_with_a_contradicting_inlier_are_those_of_dense_densities():
    """Two observations agree at a point and a third there does not: the two are outliers, or it is."""
    draws = np.random.default_rng(1)
    n, odds = 9, np.array([-4.0, -3.0, -2.5])
    places, y = draws.random((n, 2)), draws.normal(size=n)
    places[[3, 7]], y[[3, 7]] = places[5], [6.1, 5.9]
    near = ((places[:, None] - places) ** 2).sum(-1)
    prior = Prior(np.zeros(n), np.exp(-2.0 * near), np.full(n, 0.1))
    log_p0 = np.log(draws.uniform(0.01, 0.1, n))
    before = np.ones(n, dtype=bool)
    before[[3, 7]] = False
    deviations = LocalDeviations(places, log_p0, OutlierPrior.share)
    given = ConditionedGP(prior, y, before, Units(0.0, 1.0))

    def log_density(rows, covariance):
        total = (covariance + 0.1 * np.eye(n))[np.ix_(rows, rows)]
        return stats.multivariate_normal(np.zeros(len(rows)), total).logpdf(y[rows])

    *_, each = deviations.instead_of(np.array([5]), 3, given, odds)
    assert (each.radius, each.rows, each.contradicting) == (0.01, (3, 7), (5,))
    assert each.size == pytest.approx(given.with_rows(np.array([5]))[0].weights[3])
    after = np.flatnonzero(np.arange(n) != 5)
    expected = log_density(after, prior.covariance + deviations.covariance(each)) + odds[2] + log_p0[5]
    expected -= log_density(np.flatnonzero(before), prior.covariance) + 2.0 * odds[1] + log_p0[[3, 7]].sum()
    expected += math.log(0.01) + log_p0[3] + math.log(each.size * math.sqrt(2.0 * math.pi * math.e))
    assert each.log_odds == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(
    ("good", "like_the_rest", "flagged"),
    [(2, 1, "good"), (3, 1, "rest"), (3, 2, "good"), (4, 2, "rest"), (2, 3, "good")],
)
def test_replicates_outvote_an_observation_that_is_like_the_rest(good, like_the_rest, flagged):
    draws = torch.Generator().manual_seed(0)
    X = torch.rand(20, 2, generator=draws, dtype=torch.float64)
    f = 60.0 + 8.0 * (5.0 * X[:, :1]).sin() + 4.0 * (4.0 * X[:, 1:]).cos()
    Y = f + 0.5 * torch.randn(20, 1, generator=draws, dtype=torch.float64)
    at, k = torch.tensor([[0.43, 0.57]], dtype=torch.float64), good + like_the_rest
    rest = torch.arange(k) < like_the_rest
    replicates = torch.where(rest, 62.0, 150.0) + 0.5 * torch.randn(k, generator=draws, dtype=torch.float64)
    model = fit(RobustGP(torch.cat([X, at.expand(k, 2)]), torch.cat([Y, replicates.unsqueeze(1)])))
    expected = rest if flagged == "rest" else ~rest
    assert outliers(model) == (20 + expected.nonzero().flatten()).tolist()


def test_outliers_at_other_points_have_no_vote():
    """Four wrong observations near each other do not make an outlier of a replicate that contradicts one of them."""
    for seed in range(4):
        draws = torch.Generator().manual_seed(seed)
        X = torch.rand(20, 2, generator=draws, dtype=torch.float64)
        Y = 60.0 + 8.0 * (5.0 * X[:, :1]).sin() + 0.5 * torch.randn(20, 1, generator=draws, dtype=torch.float64)
        wrong = CENTRE + 0.1 * (torch.rand(4, 2, generator=draws, dtype=torch.float64) - 0.5)
        high = 150.0 + 0.5 * torch.randn(4, 1, generator=draws, dtype=torch.float64)
        right = 60.0 + 8.0 * (5.0 * wrong[high.argmax()][:1]).sin()
        X, Y = torch.cat([X, wrong, wrong[high.argmax()].unsqueeze(0)]), torch.cat([Y, high, right.unsqueeze(0)])
        assert bool(fit(RobustGP(X, Y)).inlier_mask[-1])


def test_a_clipped_observation_is_no_error_instead():
    places, y = np.array([[0.1], [0.5], [0.5], [0.5], [0.5], [0.9]]), np.array([0.0, 1.0, 9.0, 9.1, 8.9, 0.0])
    prior = Prior(np.zeros(6), np.exp(-2.0 * (places - places.T) ** 2), np.full(6, 0.1))
    given = ConditionedGP(prior, y, np.array([1, 1, 0, 0, 0, 1], dtype=bool), Units(0.0, 1.0))
    log_p0 = np.where(np.arange(6) == 1, math.inf, -3.0)
    deviations = LocalDeviations(places, log_p0, OutlierPrior.share)
    odds = np.linspace(-4.0, -1.0, 6)
    assert {each.log_odds for each in deviations.instead_of(np.array([1]), 2, given, odds)} == {-math.inf}


def test_a_clean_peak_that_several_observations_show_is_kept():
    """None of about 170 observations in six sets is flagged; without local deviations the peaks are."""
    flagged = 0
    for seed in range(6):
        X, Y = peak(near=5, seed=seed)
        inliers = fit(RobustGP(X, Y)).inlier_mask
        flagged += int((~inliers).sum())
        assert inliers[Y.argmax()]
    assert flagged == 0


@pytest.mark.parametrize("seed", range(6))
def test_clean_observations_far_above_many_near_zero_are_kept(seed):
    """A sigmoid's edge without noise; with a flat density of outliers, three of these sets lost good observations."""
    X = torch.rand(24, 2, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    Y = (30.0 * (X.mean(1, keepdim=True) - 0.8)).sigmoid() * (1.0 - (X[:, :1] - 0.9).square())
    assert fit(RobustGP(X, Y)).inlier_mask.all()


@pytest.mark.parametrize("seed", range(3))
def test_a_search_near_an_optimum_flags_at_most_one_observation(seed):
    """The median absolute deviation is that of the cluster; the scale is that over the points."""
    draws = torch.Generator().manual_seed(seed)
    near = torch.logspace(-0.5, -2.5, 30, dtype=torch.float64).unsqueeze(1)
    X = 0.4 + near * torch.randn(30, 2, generator=draws, dtype=torch.float64)
    X = torch.cat([torch.rand(10, 2, generator=draws, dtype=torch.float64), X.clamp(0.0, 1.0)])
    Y = -((X - 0.4) * torch.tensor([1.0, 2.0])).square().sum(1, keepdim=True)
    places, y = X.numpy(), Y.numpy().ravel()
    assert spread_units(y, spread_weights(places, 0.1)).scale > 5.0 * robust_units(y).scale
    assert int((~fit(RobustGP(X, Y)).inlier_mask).sum()) <= 1


@pytest.fixture(scope="module")
def one():
    """One observation, the last, stands out above a flat f."""
    X, Y = peak(near=1, seed=3)
    assert int(Y.argmax()) == len(Y) - 1
    return fit(RobustGP(X, Y))


def test_one_that_stands_out_alone_is_an_outlier(one):
    X, Y = one.train_X_all, one.train_Y_all
    assert outliers(one) == [len(X) - 1]
    other = fit(SingleTaskGP(X[one.inlier_mask], Y[one.inlier_mask]), optimizer=fit_evidence)
    found, expected = one.posterior(X), other.posterior(X)
    assert torch.equal(found.mean, expected.mean)
    assert torch.equal(found.variance, expected.variance)


def test_a_second_one_nearby_decides(one):
    X, Y = one.train_X_all, one.train_Y_all
    assert fit(RobustGP(torch.cat([X, X[-1:] + 0.01]), torch.cat([Y, Y[-1:] - 0.02]))).inlier_mask.all()
    assert not fit(RobustGP(torch.cat([X, X[-1:] + 0.002]), torch.cat([Y, 0.0 * Y[-1:]]))).inlier_mask[-2]
