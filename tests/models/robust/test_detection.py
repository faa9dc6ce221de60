import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from botorch.models import SingleTaskGP
from gpytorch.kernels import RBFKernel, ScaleKernel
from scipy import special, stats
from threadpoolctl import threadpool_info, threadpool_limits

from bo_robust import RobustGP
from bo_robust.models.marginal_likelihood import Prior, evidence_of
from bo_robust.models.reward_units import Units, rescaling_unit, robust_units, spread_units, spread_weights
from bo_robust.models.robust.conditioned_gp import ConditionedGP
from bo_robust.models.robust.detection import _predicting
from bo_robust.models.robust.outcome_scale import OutcomeScale
from bo_robust.models.robust.prior import OutlierPrior
from bo_robust.models.robust.search import CLUSTER_RADIUS, OutlierSearch, SearchData
from tests.problems import fit

N = 9


def data(n=N, seed=0, noise=0.05):
    draws = torch.Generator().manual_seed(seed)
    X = torch.rand(n, 1, generator=draws, dtype=torch.float64)
    return X, torch.sin(6.0 * X) + noise * torch.randn(n, 1, generator=draws, dtype=torch.float64)


def boxed(X):
    """Points in the box that they span."""
    low, high = X.amin(0), X.amax(0)
    return ((X - low) / (high - low)).numpy()


def search(X, Y, share=0.02, standardized=False, yvar=None):
    model = SingleTaskGP(X, Y, yvar, outcome_transform=None)
    replicates = (X.unsqueeze(1) == X).all(-1).numpy() & ~np.eye(len(X), dtype=bool)
    evidence = evidence_of(model)
    prior = OutlierPrior(share)
    possible = np.ones(len(X), dtype=bool)
    found = SearchData(evidence, Y.numpy().ravel(), boxed(X), replicates, prior, standardized, possible)
    return OutlierSearch(found), evidence


def spread(X, y):
    """The robust standard deviation of the search."""
    return spread_units(y, spread_weights(boxed(X), CLUSTER_RADIUS)).scale


def naive_loo(prior, y, inliers):
    """Residual and variance of each observation given the other inliers, one inversion each."""
    total = prior.covariance + np.diag(prior.noise)
    found = []
    for i in range(len(y)):
        rest = [j for j in np.flatnonzero(inliers) if j != i]
        weights = np.linalg.solve(total[np.ix_(rest, rest)], total[rest, i])
        mean = prior.mean[i] + weights @ (y - prior.mean)[rest]
        found.append((y[i] - mean, total[i, i] - weights @ total[rest, i]))
    return np.array(found).T


def price(X, y, k, share=0.02):
    """Log density of k outliers whose share is Beta(1, 1 / share - 1), over that of none."""
    n, b = len(y), 1.0 / share - 1.0
    of_size = math.log(0.05 / spread(X, y))
    return special.betaln(1 + k, b + n - k) - special.betaln(1, b + n) + k * of_size


def prior_of(evidence, X, y):
    """The prior at the hyperparameters that the model has, with the noise that the search adds."""
    return evidence.prior(evidence.start, extra_noise=(0.1 * min(spread(X, y), 1.0)) ** 2)


def objective(evidence, X, y, inliers):
    """J up to the log prior, from a dense normal density."""
    prior = prior_of(evidence, X, y)
    rows = np.flatnonzero(inliers)
    total = (prior.covariance + np.diag(prior.noise))[np.ix_(rows, rows)]
    return stats.multivariate_normal(prior.mean[rows], total).logpdf(y[rows]) + price(X, y, len(y) - len(rows))


@pytest.mark.filterwarnings("ignore::botorch.exceptions.InputDataWarning")
class TestSearch:
    @pytest.mark.parametrize(
        ("replicates", "inliers"),  # of one point, beside ten observations of median 0
        [
            ([5.0], []),
            ([5.0, 5.01], [0, 1]),
            ([5.0, -5.0], []),
            ([5.0, 5.01, 9.0], [0, 1]),  # an error beyond two that agree
            ([5.0, 5.01, 0.1], [2]),  # two equal errors, and one that is like the rest
            ([5.0, 5.01, 9.0, 9.01], [0, 1]),
            ([200.0, 300.0], []),  # two huge errors
            ([1e3, 1e9], []),
            ([-30.0, -1e9], []),
            ([1e8, 1e9], []),  # beyond what is computed
            ([-5.0, -5.01, -9.0], [0, 1]),
        ],
    )
    def test_which_replicates_are_inliers(self, replicates, inliers):
        X = torch.cat([torch.full((len(replicates), 1), 0.55), torch.linspace(0.0, 1.0, 10).unsqueeze(-1)]).double()
        Y = torch.cat([torch.tensor(replicates), torch.linspace(-0.2, 0.2, 10)]).unsqueeze(-1).double()
        found = search(X, Y)[0].fit().inliers
        assert np.flatnonzero(found[: len(replicates)]).tolist() == inliers
        assert found[len(replicates) :].all()

    def test_residual_and_limit_are_those_of_refitting_without_the_row(self):
        X, Y = data()
        Y[4] += 3.0
        found, evidence = search(X, Y)
        result, y = found.at_present(), Y.numpy().ravel()
        residual, variance = naive_loo(prior_of(evidence, X, y), y, result.inliers)
        assert not result.inliers[4]
        assert result.inliers.sum() == N - 1
        np.testing.assert_allclose(result.zscore, residual / np.sqrt(variance), atol=1e-9)
        # It is the first outlier, and any other one would be the second.
        first, second = (math.exp(price(X, y, k) - price(X, y, k - 1)) for k in (1, 2))
        height = np.where(result.inliers, second, first)
        inlier = stats.norm.pdf(residual, 0.0, np.sqrt(variance))
        np.testing.assert_allclose(result.probability, inlier / (inlier + height), atol=1e-12)
        at_limit = stats.norm.pdf(result.limit * np.sqrt(variance), 0.0, np.sqrt(variance))
        np.testing.assert_allclose(at_limit, height)
        np.testing.assert_array_equal(result.inliers, np.abs(result.zscore) < result.limit)

    def test_an_outlier_costs_more_the_farther_out_it_is(self):
        """Median 0 and robust standard deviation s = 1.4826: density / s up to 5 s, a quarter at 10 s."""
        y = torch.tensor([-1.0, -1.0, -1.0, -1.0, 0.0, 1.0, 1.0, 5.0, 10.0, 50.0, 1e4]).double()
        y[5:7], y[7:] = 1.0, y[7:] * 1.4826
        X = torch.linspace(0.0, 10.0, 11).unsqueeze(-1).double()
        found, _ = search(X, (y - y.median()).unsqueeze(-1))
        s = spread(X, y.numpy())
        z = (y - y.median()).abs().numpy() / s
        expected = 0.05 / s * np.minimum(1.0, (5.0 / np.maximum(z, 1e-9)) ** 2)
        np.testing.assert_allclose(np.exp(found._log_p0), expected)
        assert expected[4] * s == pytest.approx(0.05)

    @pytest.mark.parametrize("seed", range(5))
    def test_no_single_move_gains_where_the_search_ends(self, seed):
        """At fixed hyperparameters and units, J of the rows found is at least that of all their neighbors."""
        X, Y = data(seed=seed, noise=0.3)
        Y[seed] += 4.0
        found, evidence = search(X, Y)
        result, y = found.at_present(), Y.numpy().ravel()
        best = objective(evidence, X, y, result.inliers)
        for i in range(N):
            other = result.inliers.copy()
            other[i] = not other[i]
            if 2 * other.sum() >= N:
                assert objective(evidence, X, y, other) <= best + 1e-6

    def test_two_outliers_are_the_best_of_all_sets(self):
        """The climb finds the best of all sets of at least half of the rows."""
        X, Y = data()
        Y[[1, 6]] += torch.tensor([[4.0], [-5.0]], dtype=torch.float64)
        found, evidence = search(X, Y)
        y = Y.numpy().ravel()
        sets = [np.array(rows) for rows in itertools.product([True, False], repeat=N) if 2 * sum(rows) >= N]
        best = max(sets, key=lambda rows: objective(evidence, X, y, rows))
        np.testing.assert_array_equal(found.at_present().inliers, best)
        np.testing.assert_array_equal(np.flatnonzero(~best), [1, 6])

    @pytest.mark.parametrize("zeros", [5, 12])
    def test_a_needle_in_zeros_is_no_outlier(self, zeros):
        X, _ = data(20)
        Y = (X - X.sort(0).values[-(20 - zeros)]).clamp_min(0.0) * 50.0 + (0.0 if zeros == 12 else X)
        assert search(X, Y)[0].fit().inliers.all()

    def test_outliers_where_most_observations_are_equal(self):
        """A small bump on a flat function, and two readings far above it."""
        X = torch.linspace(0.0, 1.0, 30, dtype=torch.float64).unsqueeze(-1)
        Y = (torch.exp(-0.5 * ((X - 0.5) / 0.1) ** 2) - 0.3).clamp_min(0.0)
        assert (Y == 0.0).sum() > 15
        Y[[3, 25], 0] += torch.tensor([5.0, -4.0], dtype=torch.float64)
        for result in (search(X, Y)[0].fit(), search(X, -Y)[0].fit()):
            assert np.flatnonzero(~result.inliers).tolist() == [3, 25]

    @pytest.mark.parametrize("seed", [3, 8, 32])
    def test_half_stay_where_more_than_half_are_wrong(self, seed):
        draws = torch.Generator().manual_seed(seed)
        X = torch.rand(12, 1, generator=draws, dtype=torch.float64)
        scale = torch.tensor([0.1] * 5 + [40.0] * 7, dtype=torch.float64).unsqueeze(1)
        Y = scale * torch.cat([torch.randn(k, 1, generator=draws, dtype=torch.float64) for k in (5, 7)])
        found, _ = search(X, Y, share=0.4, yvar=torch.full_like(Y, 1e-4))
        assert 6 <= found.at_present().inliers.sum() < 12


def test_a_search_has_one_thread(monkeypatch):
    found, evidence = search(*data())
    threads = []
    monkeypatch.setattr(
        type(evidence), "maximize", lambda *arguments: threads.append(threads_of_blas()) or evidence.start
    )
    with threadpool_limits(limits=2, user_api="blas"):
        found.fit()
        assert set(threads_of_blas()) == {2}
    assert {count for counts in threads for count in counts} == {1}


def threads_of_blas():
    return [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]


def test_gains_of_exchanges_are_those_of_exchanged_observations():
    draws = np.random.default_rng(1)
    A, y, units = draws.normal(size=(N, N)), draws.normal(size=N), Units(0.4, 2.5)
    prior, every = Prior(draws.normal(size=N), A @ A.T, draws.uniform(0.2, 0.5, N)), np.ones(N, dtype=bool)
    given = ConditionedGP(prior, y, every, units)
    gains = given.exchange_gains(y)
    for i, j in itertools.combinations(range(N), 2):
        exchanged = y.copy()
        exchanged[[i, j]] = y[[j, i]]
        after = ConditionedGP(prior, exchanged, every, units).log_evidence
        assert gains[i, j] == pytest.approx(after - given.log_evidence)


def test_moves_are_refits():
    """Rows leave and come back, and all is as after conditioning anew on the inliers."""
    draws = np.random.default_rng(0)
    A, y = draws.normal(size=(N, N)), draws.normal(size=N)
    prior = Prior(draws.normal(size=N), A @ A.T, np.full(N, 0.3), log_density=-4.0)
    given = ConditionedGP(prior, y, draws.random(N) < 0.6, Units(0.0, 1.0))
    for row in (0, 3, 3, 7, 1, 2, 8, 0, 5):
        given.move(row)
        for of in (given, ConditionedGP(prior, y, given.inliers, given.units)):
            np.testing.assert_allclose(of.loo_residuals(), naive_loo(prior, y, given.inliers), rtol=1e-8)
            rows = np.flatnonzero(given.inliers)
            total = prior.covariance + np.diag(prior.noise)
            density = stats.multivariate_normal(prior.mean[rows], total[np.ix_(rows, rows)])
            assert of.log_evidence == pytest.approx(density.logpdf(y[rows]) + prior.log_density)
            for few in (rows[1:2], rows[1:]):
                extra = total[np.ix_(few, few)]
                wider = prior.covariance + np.diag(prior.noise)
                wider[np.ix_(few, few)] += extra
                wider = stats.multivariate_normal(prior.mean[rows], wider[np.ix_(rows, rows)]).logpdf(y[rows])
                assert of.gain(few, extra) == pytest.approx(wider - density.logpdf(y[rows]))


def test_rows_of_one_point_are_left_out_together():
    draws = np.random.default_rng(2)
    A, y = draws.normal(size=(N, N)), draws.normal(size=N)
    prior = Prior(draws.normal(size=N), A @ A.T, np.full(N, 0.3))
    inliers, alike = np.ones(N, dtype=bool), np.zeros((N, N), dtype=bool)
    inliers[4] = False
    for i, j in ((0, 2), (0, 4), (2, 4), (5, 6)):
        alike[i, j] = alike[j, i] = True
    gp = ConditionedGP(prior, y, inliers, Units(0.0, 1.0))
    found, expected = gp.residuals_without(alike), np.array(gp.loo_residuals())
    for row, twin in ((0, 2), (2, 0), (5, 6), (6, 5)):
        others = inliers.copy()
        others[[row, twin]] = False
        residual, variance = naive_loo(prior, y, others)
        expected[:, row] = residual[row], variance[row]
    np.testing.assert_allclose(found, expected)


def test_robust_units_by_hand():
    assert robust_units(np.array([1.0, 2.0, 3.0, 4.0, 1000.0])) == (3.0, pytest.approx(1.4826))
    assert robust_units(np.array([0.0, 0.0, 0.0, 5.0, 9.0])) == (0.0, pytest.approx(1.4826 * 7.0))
    assert robust_units(np.full(4, 7.0)) == (7.0, 1.0)


@pytest.mark.parametrize("y", [[0.0, 1.0, 3.0, 7.0, 7.5, 20.0], [0.0, 0.0, 0.0, 1.0, 1.0, 5.0]])
def test_the_spread_does_not_depend_on_the_sign(y):
    """Far apart all points weigh the same, and the units are those of the observations alone."""
    y, far = np.array(y), np.arange(len(y))[:, None] * 10.0
    near = np.array([0.0, 0.02, 0.04, 1.0, 1.02, 1.04])[:, None]  # two clusters alike
    assert spread_units(y, spread_weights(far, 0.1)) == robust_units(y)
    for weights in (spread_weights(far, 0.1), spread_weights(near, 0.1)):
        assert spread_units(-y, weights).scale == spread_units(y, weights).scale


@pytest.mark.parametrize("exponent", [-990, -30, 0, 1, 30, 1000, 1022])
def test_the_rescaling_unit_reaches_the_ends_of_floating_point(exponent):
    y = np.array([-1.9, -1.0, 0.0, 1.0, 1.9]) * 2.0**exponent
    assert abs(math.log2(1.4826) + exponent - math.log2(rescaling_unit(y))) <= 5.0
    assert math.log2(rescaling_unit(y)) % 10 == 0


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # singular matrices overflow
def test_a_matrix_that_rounding_makes_indefinite_does_not_win():
    """Large observations without noise: an indefinite inverse and infinite odds once made every error an inlier."""
    g = torch.Generator().manual_seed(81)
    X = torch.rand(300, 1, generator=g, dtype=torch.float64)
    torch.randn(300, 1, generator=g, dtype=torch.float64)
    Y = torch.sin(6 * X) + 0.5 * torch.cos(11 * X)
    wrong = torch.randperm(300, generator=g)[:15]
    size = 8 * (1 + torch.rand(15, 1, generator=g, dtype=torch.float64))
    Y[wrong] += size * torch.sign(torch.randn(15, 1, generator=g, dtype=torch.float64))
    model = fit(RobustGP(X, 1e6 * Y, covar_module=ScaleKernel(RBFKernel()), outcome_transform=None))
    assert int((~model.inlier_mask[wrong]).sum()) > 8


def test_predictions_are_leave_one_out_means_in_the_units_of_y():
    """In a logarithm the mean is exp(m + v / 2), with m and v of f by a GP that has no added noise."""
    X, Y = data()
    y = (2.0 * Y).exp().numpy().ravel()
    evidence = evidence_of(SingleTaskGP(X, Y, outcome_transform=None))
    evidence.maximize = lambda *arguments: evidence.start
    none = np.zeros((N, N), dtype=bool)
    searched = SearchData(evidence, y, boxed(X), none, OutlierPrior(), False, np.ones(N, dtype=bool))
    found = OutlierSearch(searched, OutcomeScale(0.0)).predictions(np.ones(N, dtype=bool))
    prior = evidence.prior(evidence.start)
    residual, variance = naive_loo(prior, np.log(y), np.ones(N, dtype=bool))
    expected = np.exp(np.log(y) - residual + 0.5 * (variance - prior.noise))
    np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_a_scale_that_predicts_badly_is_not_the_models(monkeypatch):
    """Evidence of .5 nats more against errors of 1.08 times the size in each of ten rows: .5 - 10 log 1.08 < 0."""
    X, Y = data(10)
    y = (3.0 + Y).numpy().ravel()
    searches = [search(X, 3.0 + Y)[0], search(X, 3.0 + Y)[0]]
    found = [replace(each.at_present(), inliers=np.ones(10, dtype=bool)) for each in searches]
    for errors, gain, chosen in ((1.08, 0.5, 0), (1.08, 1.0, 1), (1.2, 99.0, 0)):
        for each, size in zip(searches, (1.0, errors), strict=True):
            monkeypatch.setattr(each, "predictions", lambda inliers, size=size: y - size)
        assert _predicting(y, searches, found, np.array([0.0, gain])) == chosen
    assert _predicting(y, searches, found, np.array([0.0, -1.0])) == 0


@pytest.mark.parametrize("noise", [0.0, 1e-3])
def test_right_readings_of_a_steep_step_stay(noise):
    draws = torch.Generator().manual_seed(0)
    X = torch.rand(30, 2, generator=draws, dtype=torch.float64)
    Y = torch.tanh(25.0 * (X[:, :1] - 0.8)) - 0.2
    model = fit(RobustGP(X, Y + noise * torch.randn(30, 1, generator=draws, dtype=torch.float64)))
    assert model.inlier_mask.all()


def test_best_readings_that_cross_zero_stay():
    for seed in range(3):
        draws = torch.Generator().manual_seed(seed)
        X = torch.rand(60, 3, generator=draws, dtype=torch.float64)
        y = -(6.0 * (X - 0.6).norm(dim=-1)).exp()
        y = y - y.sort().values[-4:-2].mean()
        model = fit(RobustGP(X, y.unsqueeze(-1)))
        assert model.inlier_mask[y > 0.0].all()
        assert not model.held_mask.any()
        assert model.loo_zscore.abs().max() < 100.0


def test_where_half_look_like_outliers_all_are_inliers():
    draws = torch.Generator().manual_seed(0)
    X = torch.rand(20, 1, generator=draws, dtype=torch.float64)
    Y = torch.sin(6.0 * X) + 0.01 * torch.randn(20, 1, generator=draws, dtype=torch.float64)
    wrong = torch.randperm(20, generator=draws)[:10]
    Y[wrong] += 60.0 * torch.randn(10, 1, generator=draws, dtype=torch.float64)
    with pytest.warns(UserWarning, match="10 of 20 .* nothing tells which are right"):
        model = fit(RobustGP(X, Y, outcome_scale=None))
    assert model.inlier_mask.all()


def test_a_state_in_other_data_leaves_a_steep_step_in():
    for seed in range(4):
        draws = torch.Generator().manual_seed(seed)
        X = torch.rand(30, 2, generator=draws, dtype=torch.float64)
        Y = torch.tanh(25.0 * (X[:, :1] - 0.8)) - 0.2
        other = RobustGP(X[:-1], Y[:-1], outcome_scale=None)
        other.load_state_dict(fit(RobustGP(X, Y, outcome_scale=None)).state_dict())
        assert other.inlier_mask.all()
