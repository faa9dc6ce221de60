"""Finds against their definition, what comes back, and the doubt that predictions keep."""

import math

import numpy as np
import pytest
import torch
from bo_robust.models.conditioned import Conditioned
from bo_robust.models.doubt import Doubt
from bo_robust.models.evidence import Prior
from bo_robust.models.finds import Find, Finds
from botorch.acquisition.logei import qLogNoisyExpectedImprovement
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from botorch.models.transforms import Normalize
from botorch.sampling import SobolQMCNormalSampler
from gpytorch.mlls import ExactMarginalLogLikelihood
from scipy import stats

from bo_robust import RobustGP
from bo_robust.models import marginal_moments
from bo_robust.models.reward_units import Units, robust_units, spread_units

CENTRE = torch.tensor([0.37, 0.62], dtype=torch.float64)


def fit(model):
    fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
    return model


def data_of(y, apart=0.5):
    """Rewards at points of the unit interval, the last two so far apart."""
    X = torch.tensor([*torch.linspace(0.0, 0.3, len(y) - 2).tolist(), 1.0 - apart, 1.0]).double().unsqueeze(-1)
    return X, torch.as_tensor(y).unsqueeze(-1)


def peak(n=40, sd=0.1, seed=0, near=0):
    """Points, of which some are near the peak, and rewards: one narrow peak on a plain, and little noise."""
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
    y[[3, 7]] += 6.0
    A = draws.normal(size=(n, n))
    prior = Prior(np.zeros(n), A @ A.T / n + np.eye(n), np.full(n, 0.1))
    believed = np.ones(n, dtype=bool)
    believed[[3, 7]] = False
    log_p0 = np.log(draws.uniform(0.01, 0.1, n))
    finds = Finds(places, log_p0)
    for find in finds.about(3, Conditioned(prior, y, believed, Units(0.0, 1.0)), odds):

        def log_density(rows, covariance):
            total = (covariance + 0.1 * np.eye(n))[np.ix_(rows, rows)]
            return stats.multivariate_normal(np.zeros(len(rows)), total).logpdf(y[rows])

        kept = np.flatnonzero(believed)
        together = np.sort([*kept, *find.rows])
        ball = math.pi * find.radius**2
        expected = log_density(together, prior.covariance + finds.covariance(find)) - log_density(
            kept, prior.covariance
        )
        faults = sum(odds[2 - len(find.rows)] + log_p0[row] for row in find.rows)
        expected += -faults + math.log(max(0.1 * ball, 0.01))
        expected += log_p0[3] + math.log(abs(find.deviation) * math.sqrt(2.0 * math.pi * math.e))
        assert find.log_odds == pytest.approx(expected, abs=2e-2)  # of what is far from the centre
        assert find.probability == pytest.approx(1.0 / (1.0 + math.exp(-find.log_odds)))
        assert 3 in find.rows


def test_a_clean_peak_that_several_rewards_show_is_kept():
    """Of about 170 rewards in six sets none is lost; without finds the peaks go."""
    lost = 0
    for seed in range(6):
        X, Y = peak(near=5, seed=seed)
        believed = fit(RobustGP(X, Y)).believed
        lost += int((~believed).sum())
        assert believed[Y.argmax()]
    assert lost == 0


@pytest.mark.parametrize("seed", range(6))
def test_clean_rewards_far_above_a_floor_of_near_zeros_are_kept(seed):
    """A sigmoid's edge without noise; where a fault's density was flat, three of these sets lost good rewards."""
    X = torch.rand(24, 2, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    Y = (30.0 * (X.mean(1, keepdim=True) - 0.8)).sigmoid() * (1.0 - (X[:, :1] - 0.9).square())
    assert fit(RobustGP(X, Y)).believed.all()


@pytest.mark.parametrize("seed", range(3))
def test_a_search_that_closes_in_on_an_optimum_loses_at_most_one_reward(seed):
    """The median absolute deviation is that of the cluster; the scale is that over the points."""
    draws = torch.Generator().manual_seed(seed)
    near = torch.logspace(-0.5, -2.5, 30, dtype=torch.float64).unsqueeze(1)
    X = 0.4 + near * torch.randn(30, 2, generator=draws, dtype=torch.float64)
    X = torch.cat([torch.rand(10, 2, generator=draws, dtype=torch.float64), X.clamp(0.0, 1.0)])
    Y = -((X - 0.4) * torch.tensor([1.0, 2.0])).square().sum(1, keepdim=True)
    places, y = X.numpy(), Y.numpy().ravel()
    assert spread_units(y, places).scale > 5.0 * robust_units(y).scale
    assert int((~fit(RobustGP(X, Y)).believed).sum()) <= 1


def test_twin_faults_stay_aside_where_a_find_comes_back():
    """The noise of the fit without them would confirm them."""
    draws = np.random.default_rng(5007)
    X, centre = draws.random((30, 2)), draws.random(2)
    X[:5] = centre + 0.06 * draws.normal(size=(5, 2))
    X[7::2][:4] = X[6:14:2]
    y = np.sin(3.0 * X).sum(1) + 0.1 * draws.normal(size=30)
    y += 6.0 * np.exp(-0.5 * ((X - centre) ** 2).sum(1) / 0.08**2)
    shift = draws.choice([-1, 1]) * draws.uniform(2.0, 6.0)
    y[6:8] += [shift, shift + draws.uniform(0.2, 1.0)]
    y[14:17] += 5.0 * draws.normal(size=3)
    believed = RobustGP(torch.tensor(X), torch.tensor(y).unsqueeze(-1))._search().fit().believed
    assert believed[:5].all()
    assert not believed[6:8].any()


class TestDoubt:
    def one(self):
        """One reading in a plain stands out."""
        return peak(near=1, seed=3)

    def test_the_mean_is_that_of_the_believed_and_the_variance_grows(self):
        X, Y = self.one()
        model, without = fit(RobustGP(X, Y)), fit(RobustGP(X, Y, maximize=None))
        best = int(Y.argmax())
        assert (~model.believed).nonzero().flatten().tolist() == [best]
        at, before = model.posterior(X[best:]), without.posterior(X[best:])
        assert float(at.mean) == pytest.approx(float(before.mean), abs=0.05)
        assert float(at.variance) > 100.0 * float(before.variance)
        far = X[(X - X[best]).norm(dim=1) > 0.5]
        torch.testing.assert_close(model.posterior(far).variance, without.posterior(far).variance, rtol=1e-3, atol=1e-6)
        plain = fit(SingleTaskGP(X[model.believed], Y[model.believed]))
        torch.testing.assert_close(without.posterior(X).variance, plain.posterior(X).variance, rtol=0.0, atol=0.0)

    def test_a_second_look_that_finds_nothing_ends_it(self):
        X, Y = self.one()
        best = int(Y.argmax())
        model = fit(RobustGP(X, Y))
        looked = fit(RobustGP(torch.cat([X, X[best:] + 0.002]), torch.cat([Y, 0.0 * Y[best:]])))
        assert not looked.believed[best]
        doubt, left = (float(one.posterior(X[best:]).stddev.detach()) for one in (model, looked))
        assert left < 0.1 * doubt

    def test_one_that_finds_it_too_is_believed(self):
        X, Y = self.one()
        best = int(Y.argmax())
        assert fit(RobustGP(torch.cat([X, X[best:] + 0.01]), torch.cat([Y, Y[best:] - 0.02]))).believed.all()

    def test_of_the_good_side_only(self):
        X, Y = self.one()
        best = int(Y.argmax())
        low, mirror = fit(RobustGP(X, -Y)), fit(RobustGP(X, -Y, maximize=False))
        assert float(mirror.posterior(X[best:]).variance) > 100.0 * float(low.posterior(X[best:]).variance)

    def test_fantasies_condition_it(self):
        X, Y = self.one()
        best = int(Y.argmax())
        model = fit(RobustGP(X, Y))
        before = model.posterior(X[best:]).variance
        model.posterior(X)
        after = model.condition_on_observations(X[best:], Y[:1]).posterior(X[best:]).variance
        assert float(after) < 0.1 * float(before)

    def test_inputs_may_have_any_units(self):
        X, Y = self.one()
        model = fit(RobustGP(X, Y))
        other = fit(RobustGP(100.0 * X - 50.0, Y, input_transform=Normalize(2)))
        torch.testing.assert_close(
            other.posterior(100.0 * X - 50.0).variance, model.posterior(X).variance, rtol=0.2, atol=1e-4
        )

    def test_moments_that_are_written_out_have_it(self):
        X, Y = self.one()
        model = fit(RobustGP(X, Y))
        posterior = model.posterior(X)
        mean, variance, *_ = marginal_moments(model, X)
        torch.testing.assert_close(variance, posterior.variance.squeeze(-1), rtol=1e-4, atol=1e-8)
        torch.testing.assert_close(mean, posterior.mean.squeeze(-1))

    @pytest.mark.parametrize(("near", "seed"), [(1, 1), (1, 3), (3, 2), (3, 6), (5, 2)])
    def test_a_loaded_model_predicts_what_the_saved_one_did(self, near, seed):
        """Also where a search at the fitted hyperparameters alone would choose other rows."""
        X, Y = peak(near=near, seed=seed)
        noise = torch.full_like(Y, 1e-4) if seed == 3 else None
        model, other = fit(RobustGP(X, Y, noise)), RobustGP(X, Y, noise)
        other.load_state_dict(model.state_dict())
        other.load_state_dict(model.state_dict())  # where rows are set aside already
        for name in ("believed", "surprise", "surprise_limit", "inlier_probability", "barely_believed"):
            assert torch.equal(getattr(model, name), getattr(other, name))
        first, second = model.posterior(X), other.posterior(X)
        assert torch.equal(first.mean, second.mean)
        assert torch.equal(first.variance, second.variance)
        assert torch.equal(model.get_extra_state(), other.get_extra_state())

    def test_only_readings_better_than_all_believed_leave_it(self):
        """One that lies below all of them, but above what the others let expect, is no find worth a look."""
        n, y = 8, np.array([0.0, 0.1, 0.2, 0.3, 0.4, 0.5, -3.0, 7.0])
        expected = np.array([0.0] * 6 + [-9.0, 0.0])
        prior, believed = Prior(expected, np.eye(n), np.full(n, 0.1)), np.arange(n) < 6
        X, Y = data_of(y)
        search = RobustGP(X, Y)._search()
        possible = search._possible(Conditioned(prior, y, believed, Units(0.0, 1.0)))
        assert [(find.row, find.deviation) for find in possible] == [(7, pytest.approx(7.0))]

    def test_neighbours_have_one(self):
        """A row within a likelier find adds no variance of its own."""
        n, y = 8, np.array([0.0, 0.1, 0.0, 0.1, 0.0, 0.1, 7.0, 7.2])
        prior, believed = Prior(np.zeros(n), np.eye(n), np.full(n, 0.1)), np.arange(n) < 6
        for apart, rows in ((0.001, 1), (0.5, 2)):
            X, Y = data_of(y, apart)
            possible = RobustGP(X, Y)._search()._possible(Conditioned(prior, y, believed, Units(0.0, 1.0)))
            assert len(possible) == rows

    def test_an_acquisition_goes_and_looks_there(self):
        """qLogNEI with the doubtful reading among its baseline: finite, largest near it, and not won by it."""
        X = torch.linspace(0.0, 1.0, 15, dtype=torch.float64).unsqueeze(-1)
        Y = 0.1 * torch.sin(3.0 * X)
        Y[10] += 3.0
        model = fit(RobustGP(X, Y))
        assert (~model.believed).nonzero().flatten().tolist() == [10]
        assert int(model.posterior(X).mean.argmax()) != 10  # what is best among the baseline
        acquisition = qLogNoisyExpectedImprovement(model, X, SobolQMCNormalSampler(torch.Size([128]), seed=0))
        x = torch.linspace(0.0, 1.0, 301, dtype=torch.float64).reshape(-1, 1, 1)
        value = acquisition(x)
        assert bool(value.isfinite().all())
        assert abs(float(x[value.argmax()]) - float(X[10])) < 0.1

    def test_new_data_have_none(self):
        X, Y = self.one()
        model = fit(RobustGP(X, Y))
        targets, _ = model.outcome_transform(Y)
        model.set_train_data(X, targets.squeeze(-1), strict=False)
        assert not model._doubt


def test_the_kernel_by_hand():
    X = torch.tensor([[0.0, 5.0], [2.0, 5.0], [1.0, 5.0]]).double()
    kernel = Doubt(X)
    assert not kernel
    kernel.set(X, [Find(2, (2,), 0.2, -3.0, 0.0)], scale=2.0)  # probability 1/2, at the middle of a box of side 2
    x = torch.tensor([[1.0, 5.0], [1.4, 5.0]]).double()
    near = math.exp(-0.5)
    expected = 0.5 * 1.5**2 * torch.tensor([[1.0, near * near], [near * near, near**2]]).double()
    torch.testing.assert_close(kernel(x).to_dense(), expected)
    torch.testing.assert_close(kernel(x, diag=True), expected.diagonal())
    assert not kernel.state_dict()


def test_a_find_has_its_size_in_the_units_that_its_rewards_bring():
    """The unit of the believed rewards grows many times when those of the peak come back."""
    torch.manual_seed(3)
    X = torch.rand(40, 2, dtype=torch.float64)
    Y = 10.0 * (-0.5 * (X - 0.5).square().sum(1, keepdim=True) / 0.06**2).exp()
    Y = Y + 0.02 * torch.randn(40, 1, dtype=torch.float64)
    model = fit(RobustGP(X, Y))
    assert bool(model.believed[Y.argmax()])
    assert float(model.inlier_probability[model.believed].min()) > 0.5


def test_many_columns_have_finds():
    draws = torch.Generator().manual_seed(0)
    X = torch.rand(12, 345, generator=draws, dtype=torch.float64)
    Y = X[:, :1].clone()
    Y[3] = 60.0
    assert not fit(RobustGP(X, Y)).believed[3]
