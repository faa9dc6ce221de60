"""RobustGP: what it believes, that it is SingleTaskGP on these rewards, and its place in BoTorch's loops."""

import io
import math
import warnings

import pandas as pd
import pytest
import torch
from botorch.acquisition import qExpectedImprovement, qKnowledgeGradient
from botorch.acquisition.logei import qLogNoisyExpectedImprovement
from botorch.exceptions.errors import ModelFittingError
from botorch.fit import fit_gpytorch_mll
from botorch.models import ModelListGP, SingleTaskGP
from botorch.models.transforms import Log, Normalize
from botorch.models.transforms.input import Log10, Warp
from botorch.optim import optimize_acqf
from botorch.sampling import SobolQMCNormalSampler
from gpytorch.kernels import MaternKernel, RBFKernel, ScaleKernel
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood
from gpytorch.mlls import ExactMarginalLogLikelihood, SumMarginalLogLikelihood
from gpytorch.priors import GammaPrior

from bo_robust import GPUCB, CandidateEnsemble, RobustGP, ValueAtRiskUCB, verify
from bo_robust.confidence import ConstantWidth
from bo_robust.environments import FiniteEnvironment
from bo_robust.models import marginal_moments

pytestmark = pytest.mark.filterwarnings("ignore::botorch.exceptions.InputDataWarning")


def data(n=20, d=2, seed=0, wild=0, size=10.0, noise=0.1):
    """Points, rewards and the rows of the wild ones, which are ``size`` standard deviations off."""
    draws = torch.Generator().manual_seed(seed)
    X = torch.rand(n, d, generator=draws, dtype=torch.float64)
    Y = torch.sin(4.0 * X).sum(1, keepdim=True) + noise * torch.randn(n, 1, generator=draws, dtype=torch.float64)
    rows = torch.randperm(n, generator=draws)[:wild].sort().values
    Y[rows] += size * Y.std() * torch.sign(torch.randn(wild, 1, generator=draws, dtype=torch.float64))
    return X, Y, rows.tolist()


def fit(model):
    fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
    return model


def lost(model):
    return (~model.believed).nonzero().flatten().tolist()


def moments(model, d=2):
    X = torch.rand(7, d, generator=torch.Generator().manual_seed(99), dtype=torch.float64)
    posterior = model.posterior(X.to(model.rewards if isinstance(model, RobustGP) else X))
    return posterior.mean.detach(), posterior.variance.detach()


def assert_equal(model, other, d=2, tol=0.0):
    torch.testing.assert_close(moments(model, d), moments(other, d), atol=tol, rtol=0)


OPTIONS = {
    "default": lambda d: {},
    "no outcome transform": lambda d: {"outcome_transform": None},
    "normalised": lambda d: {"input_transform": Normalize(d)},
    "warped": lambda d: {"input_transform": Warp(d, [0])},
    "other kernel": lambda d: {"covar_module": ScaleKernel(MaternKernel(1.5), outputscale_prior=GammaPrior(2.0, 0.15))},
}


@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize(("n", "d", "seed"), [(4, 1, 0), (25, 3, 2)])
@pytest.mark.parametrize("known", [False, True])
def test_clean_data_give_single_task_gp_bit_for_bit(name, n, d, seed, known):
    X, Y, _ = data(n, d, seed)
    noise = torch.full_like(Y, 0.01) if known else None
    model = fit(RobustGP(X, Y, noise, **OPTIONS[name](d)))
    assert lost(model) == []
    assert_equal(model, fit(SingleTaskGP(X, Y, noise, **OPTIONS[name](d))), d)


@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize(("n", "d", "seed"), [(10, 1, 0), (25, 3, 2)])
@pytest.mark.parametrize("known", [False, True])
def test_wild_rewards_are_as_if_they_were_not_there(name, n, d, seed, known):
    X, Y, rows = data(n, d, seed, wild=n // 7)
    noise = 0.01 + 0.001 * torch.arange(n, dtype=Y.dtype).unsqueeze(-1) if known else None
    model = fit(RobustGP(X, Y, noise, maximize=None, **OPTIONS[name](d)))
    assert lost(model) == rows
    keep = model.believed
    plain = SingleTaskGP(X[keep], Y[keep], noise[keep] if known else None, **OPTIONS[name](d))
    if name == "normalised":  # its box is that of all points until the fit
        plain.input_transform.load_state_dict(SingleTaskGP(X, Y, **OPTIONS[name](d)).input_transform.state_dict())
    assert_equal(model, fit(plain), d)
    assert bool((model.inlier_probability[rows] < 0.5).all())
    assert bool((model.surprise.abs()[rows] > model.surprise_limit[rows]).all())


@pytest.mark.filterwarnings("ignore::linear_operator.utils.warnings.NumericalWarning")
@pytest.mark.parametrize("variance", [1e-12, 0.01])
@pytest.mark.parametrize("size", [0.0, 1e6])
def test_known_noise_far_below_the_spread(variance, size):
    """GPyTorch rounds up noise far below the rewards' variance: the model does as SingleTaskGP, the search does not."""
    X, Y, _ = data(20, noise=0.0)
    X, Y = torch.cat([X, X[:1]]), torch.cat([Y, Y[:1]])
    Y[7] += size
    noise = torch.full_like(Y, variance)
    model = fit(RobustGP(X, Y, noise, maximize=None))
    assert lost(model) == ([7] if size else [])
    keep = model.believed
    assert_equal(model, fit(SingleTaskGP(X[keep], Y[keep], noise[keep])))


def test_before_a_fit_all_are_believed():
    X, Y, _ = data(wild=3)
    model = RobustGP(X, Y)
    assert_equal(model, SingleTaskGP(X, Y))
    assert lost(model) == []
    assert not model.judged
    with pytest.raises(ValueError, match="call fit_gpytorch_mll"):
        model.recommendable()
    with pytest.raises(ValueError, match="call fit_gpytorch_mll before verify"):
        verify(model)
    assert fit(model).judged


def test_a_logarithm_is_judged_in_its_units():
    X, Y, rows = data(wild=2)
    model = fit(RobustGP(X, Y.exp(), outcome_transform=Log(), maximize=None))
    assert lost(model) == rows
    assert_equal(model, fit(SingleTaskGP(X[model.believed], Y[model.believed].exp(), outcome_transform=Log())))


@pytest.mark.parametrize("n", [20, 40])
def test_units_order_and_precision_do_not_matter(n):
    X, Y, rows = data(n, 2, 5, wild=n // 8, size=4.0)
    order = torch.randperm(n, generator=torch.Generator().manual_seed(0))
    for scaled in (Y, 1e12 * Y, 1e-12 * Y, Y + 1e6, -Y):
        assert lost(fit(RobustGP(X, scaled))) == rows
    assert torch.equal(fit(RobustGP(X[order], Y[order])).believed[order.argsort()], fit(RobustGP(X, Y)).believed)
    single = fit(RobustGP(X.float(), Y.float()))
    assert lost(single) == rows
    assert single.surprise.dtype == torch.float32


def test_tiny_rewards_are_standardised():
    X, Y, _ = data()
    tiny, plain = fit(RobustGP(X, 1e-12 * Y)), fit(SingleTaskGP(X, Y))
    torch.testing.assert_close(moments(tiny)[0] * 1e12, moments(plain)[0], atol=1e-4, rtol=0)


def test_units_that_botorch_would_round_are_said_and_those_beyond_numbers_refused():
    X, Y, _ = data()
    for tiny, dtype in ((1e-5, torch.float64), (1e-2, torch.float32)):
        with pytest.warns(UserWarning, match=r"BoTorch rounds variances below 1e-\d+ up: multiply .* by \de\+0\d, or"):
            RobustGP(X.to(dtype), tiny * Y.to(dtype))
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        RobustGP(X, 0.05 * Y)
        RobustGP(X, 0.0 * Y)
    with pytest.raises(ValueError, match=r"rewards differ by about .e.1[56]., whose square overflows"):
        RobustGP(X, 1e160 * Y)


@pytest.mark.parametrize("unit", [1e12, 100.0, 1e-6])
def test_units_that_nothing_standardises_are_said(unit):
    X, Y, _ = data()
    with pytest.warns(UserWarning, match="leave `outcome_transform` out") as found:
        RobustGP(X, unit * Y, outcome_transform=None)
    factor = float(str(found[0].message).split("multiply rewards by ")[1].rstrip("."))
    assert 0.3 < factor * unit * float(Y.std()) < 3.0
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        RobustGP(X, unit * Y.abs(), outcome_transform=Log())
        RobustGP(X, Y, outcome_transform=None)
        RobustGP(X, unit * Y, outcome_transform=None, covar_module=ScaleKernel(RBFKernel()))


def test_bounds_do_not_depend_on_units():
    X, Y, _ = data()
    found = [marginal_moments(fit(RobustGP(X, unit * Y)), X.roll(1, 1))[1].detach() / unit**2 for unit in (1.0, 1e-9)]
    torch.testing.assert_close(found[1], found[0], rtol=1e-3, atol=0.0)


def test_points_are_one_where_the_kernel_sees_one():
    """Small numbers under a logarithm are apart; a change of units rounds."""
    X = torch.tensor([[1e-9], [1e-8], [1e-8 * (1.0 + 1e-15)], [0.1], [1.0]]).double()
    twins = RobustGP(X, torch.arange(5.0).double().unsqueeze(-1), input_transform=Log10([0])).twins()
    assert twins.nonzero().tolist() == [[1, 2], [2, 1]]
    X = torch.tensor([[0.0], [2e-4], [0.3], [0.3 + 3e-8], [1.0]])
    twins = RobustGP(X, torch.arange(5.0).unsqueeze(-1)).twins()
    assert twins.nonzero().tolist() == [[2, 3], [3, 2]]


def test_a_round_counts_all_rewards():
    X, Y, rows = data(20, wild=2)
    model = fit(RobustGP(X, Y))
    assert model.num_set_aside == len(rows) == 2
    assert GPUCB(model, ConstantWidth(2.0)).t == 21


def test_no_outliers_as_the_limit():
    X, Y, rows = data(wild=2)
    assert lost(fit(RobustGP(X, Y, outlier_share=0.02))) == rows
    model = fit(RobustGP(X, Y, outlier_share=1e-300))
    assert lost(model) == []
    assert_equal(model, fit(SingleTaskGP(X, Y)))


def test_fits_are_repeatable():
    X, Y, rows = data(wild=3)
    model, again = fit(RobustGP(X, Y)), fit(RobustGP(X, Y))
    assert_equal(model, again)
    fit(model)
    assert lost(model) == rows
    assert_equal(model, again, tol=1e-3)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_a_point_read_too_badly_to_be_believed_is_not_recommended(sign):
    X, Y, _ = data(20)
    best = int(Y.argmax())
    Y[best] -= 30.0
    model = fit(RobustGP(X, sign * Y))
    assert lost(model) == [best]
    assert int((sign * model.posterior(X).mean).argmax()) == best  # only its neighbours speak for it
    assert model.recommendable(maximize=sign > 0).logical_not().nonzero().flatten().tolist() == [best]


class TestVerify:
    def spiked(self, size=8.0):
        X, Y, _ = data()
        Y[7] += size
        return X, Y

    def test_the_best_suspect_is_measured_again(self):
        X, Y = self.spiked()
        Y[3] += 30.0
        Y[4] -= 30.0
        model = fit(RobustGP(X, Y))
        assert lost(model) == [3, 4, 7]
        assert model.suspects().tolist() == [3, 7]
        assert model.suspects(maximize=False).tolist() == [4]
        assert torch.equal(verify(model), X[3:4])
        assert torch.equal(verify(model, maximize=False), X[4:5])

    def test_a_confirmed_find_is_believed_and_a_refuted_one_never_asked_for_again(self):
        X, Y = self.spiked()
        again = torch.cat([X, X[7:8]])
        confirmed = fit(RobustGP(again, torch.cat([Y, Y[7:8] + 0.1])))
        assert lost(confirmed) == []
        assert confirmed.barely_believed.nonzero().squeeze(-1).tolist() == [7, len(X)]
        assert torch.equal(verify(confirmed), X[7:8])
        thrice, readings = torch.cat([again, X[7:8]]), torch.cat([Y, Y[7:8] + 0.1])
        sure = fit(RobustGP(thrice, torch.cat([readings, Y[7:8] - 0.1])))
        assert lost(sure) == []
        assert verify(sure) is None
        fault = fit(RobustGP(thrice, torch.cat([readings, Y[7:8] - 8.0])))
        assert lost(fault) == [7, len(X)]
        assert verify(fault) is None
        refuted = fit(RobustGP(again, torch.cat([Y, Y[7:8] - 8.0])))
        assert lost(refuted) == [7]
        assert verify(refuted) is None

    def test_two_readings_that_differ_and_are_both_too_good_get_a_third_which_decides(self):
        X, Y = self.spiked()
        X, Y = torch.cat([X, X[7:8]]), torch.cat([Y, Y[7:8] - 4.0])
        open_question = fit(RobustGP(X, Y))
        assert lost(open_question) == [7, 20]
        assert open_question.suspects().tolist() == [7, 20]
        assert torch.equal(verify(open_question), X[7:8])
        thrice = torch.cat([X, X[7:8]])
        farther = fit(RobustGP(thrice, torch.cat([Y, Y[20:] + 0.1])))
        assert lost(farther) == [7]  # the fault is beyond the two that agree
        assert verify(farther) is None
        nearer = fit(RobustGP(thrice, torch.cat([Y, Y[7:8] - 8.0])))
        assert lost(nearer) == [7, 20]
        assert verify(nearer) is None

    @pytest.mark.parametrize("others", [[], [0.3, 0.5]])
    def test_a_reward_that_stands_out_of_a_floor_is_measured_again(self, others):
        """Alone it is believed: it may be the find. So are two readings of a size, but none that is refuted."""
        X, _, _ = data(20)
        Y = torch.tensor([9.0, *others, *([0.0] * (19 - len(others)))], dtype=torch.float64).unsqueeze(-1)
        once = fit(RobustGP(X, Y))
        assert lost(once) == ([0] if others else [])
        assert torch.equal(verify(once), X[:1])
        again = torch.cat([X, X[:1]])
        refuted = fit(RobustGP(again, torch.cat([Y, 0.0 * Y[:1]])))
        assert lost(refuted) == [0]
        assert verify(refuted) is None
        confirmed = fit(RobustGP(again, torch.cat([Y, Y[:1]])))
        assert lost(confirmed) == []
        if others:  # the rest says no: a third reading makes sure
            assert torch.equal(verify(confirmed), X[:1])
        sure = fit(RobustGP(torch.cat([again, X[:1]]), torch.cat([Y, Y[:1], Y[:1]])))
        assert lost(sure) == []
        assert verify(sure) is None

    def test_no_more_is_verified_than_outliers_are_expected(self):
        """One of 21 rewards refuted a suspect."""
        X, Y = self.spiked()
        X, Y = torch.cat([X, X[7:8]]), torch.cat([Y, Y[7:8] - 8.0])
        Y[3] += 30.0
        model = fit(RobustGP(X, Y))
        assert model.suspects().tolist() == [3]
        assert torch.equal(verify(model), X[3:4])
        model.outlier_share = 0.04
        assert verify(model) is None

    def test_a_batch_has_several_and_those_under_way_are_passed_over(self):
        X, Y = self.spiked()
        Y[3] += 30.0
        model = fit(RobustGP(X, Y))
        assert model.suspects().tolist() == [3, 7]
        assert torch.equal(verify(model, q=2), X[[3, 7]])
        assert torch.equal(verify(model, q=5), X[[3, 7]])
        assert torch.equal(verify(model, X_pending=X[[0, 3]] * (1.0 + 1e-15)), X[7:8])
        assert verify(model, q=2, X_pending=X[[3, 7]]) is None
        for q in (0, 2.5):
            with pytest.raises(ValueError, match=f"q must be a whole number of at least 1, got {q}"):
                verify(model, q=q)
        with pytest.raises(ValueError, match=r"X_pending is torch\.float32 .* convert one of them"):
            verify(model, X_pending=X[[3]].float())
        with pytest.raises(ValueError, match=r"X_pending must be m x \d, got \(1, 3\)"):
            verify(model, X_pending=X.new_zeros(1, 3))
        with pytest.raises(ValueError, match="X_pending has 1 NaN"):
            verify(model, X_pending=X[[3]] + X.new_tensor([math.nan] + [0.0] * (X.shape[1] - 1)))

    def test_a_batch_is_filled_up_away_from_its_suspect(self):
        """The suspect is a fault at a bad place; with doubt the acquisition goes there as well."""
        torch.manual_seed(5)
        X = torch.rand(20, 2, dtype=torch.float64)
        Y = torch.sin(6.0 * X).sum(1, keepdim=True) + 0.05 * torch.randn_like(X[:, :1])
        Y[(X - 0.78).norm(dim=1).argmin()] += 15.0
        box = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=torch.float64)
        apart = []
        for sides in ({}, {"maximize": None}):
            model = fit(RobustGP(X, Y, **sides))
            batch = verify(model, maximize=True, q=2)
            acqf = qLogNoisyExpectedImprovement(model, X, X_pending=batch)
            x, _ = optimize_acqf(acqf, box, q=1, num_restarts=4, raw_samples=64)
            apart.append(float(torch.cdist(x, batch)))
        assert apart[0] < 0.1 < 0.5 < apart[1]

    def test_a_fault_on_the_bad_side_refutes_nothing(self):
        """Its point was read twice, and it is no refuted suspect."""
        X, Y = self.spiked()
        X, Y = torch.cat([X, X[4:5]]), torch.cat([Y, Y[4:5] - 30.0])
        model = fit(RobustGP(X, Y))
        assert lost(model) == [7, 20]
        assert torch.equal(verify(model), X[7:8])

    def test_minimising_mirrors_maximising_bit_for_bit(self):
        X, Y, _ = data(30, wild=4)
        model, mirror = fit(RobustGP(X, Y)), fit(RobustGP(X, -Y, maximize=torch.tensor(False)))
        (mean, variance), (other, same) = moments(model), moments(mirror)
        assert torch.equal(mean, -other)
        assert torch.equal(variance, same)
        for side in torch.tensor([True, False]):  # a comparison of tensors gives no Python bools
            assert torch.equal(model.suspects(side), mirror.suspects(not side))
        assert torch.equal(model.suspects(), mirror.suspects())
        assert torch.equal(model.recommendable(), mirror.recommendable())
        assert torch.equal(verify(model), verify(mirror))
        assert len(model.suspects(True)) + len(model.suspects(False)) > 0

    def test_other_models_have_no_suspects(self):
        X, Y = self.spiked()
        assert verify(fit(SingleTaskGP(X, Y))) is None
        assert verify(ModelListGP(SingleTaskGP(X, Y))) is None


class TestBadInput:
    @pytest.mark.parametrize("n", [1, 2, 3])
    def test_few_rewards_are_all_believed(self, n):
        X, Y, _ = data(n)
        Y[0] = 1e4
        model = fit(RobustGP(X, Y))
        assert lost(model) == []
        assert bool(moments(model)[0].isfinite().all())

    @pytest.mark.parametrize("level", [0.0, 0.1, 1e12])
    def test_equal_rewards(self, level):
        X, Y, _ = data()
        model = fit(RobustGP(X, torch.full_like(Y, level)))
        assert lost(model) == []
        torch.testing.assert_close(moments(model)[0], torch.full((7, 1), level, dtype=Y.dtype), rtol=1e-6, atol=1e-6)

    @pytest.mark.parametrize(("dtype", "huge"), [(torch.float64, 1e300), (torch.float32, 1e38)])
    def test_huge_rewards(self, dtype, huge):
        X, Y, _ = data()
        Y[3], Y[5] = huge, -huge
        model = fit(RobustGP(X.to(dtype), Y.to(dtype)))
        assert lost(model) == [3, 5]
        plain = fit(SingleTaskGP(X[model.believed], Y[model.believed]))
        torch.testing.assert_close(moments(model)[0].double(), moments(plain)[0], atol=1e-2, rtol=0)

    def test_replicates_that_disagree_are_judged_by_the_others(self):
        X, Y, _ = data()
        model = fit(RobustGP(torch.cat([X, X[:3]]), torch.cat([Y, Y[:3] + torch.tensor([[0.05], [5.0], [-8.0]])])))
        assert bool(model.believed[[0, 1, 2, 20]].all())
        assert not bool(model.believed[[21, 22]].any())

    def test_many_outliers_give_a_warning(self):
        X, Y, rows = data(40, wild=14, size=30.0)
        with pytest.warns(UserWarning, match="RobustGP sets 14 of 40 rewards aside; look at them with"):
            model = fit(RobustGP(X, Y))
        assert lost(model) == rows

    def test_rewards_that_do_not_explain_each_other_give_a_warning(self):
        X, Y, _ = data(40)
        noise = torch.randn(40, 1, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
        with pytest.warns(UserWarning, match=r"the others explain \d+% of the variance of a reward"):
            fit(RobustGP(X, noise))
        with warnings.catch_warnings():
            warnings.simplefilter("error", UserWarning)
            fit(RobustGP(X, Y))
            fit(RobustGP(X[:39], noise[:39]))

    def test_a_needle_in_equal_rewards_is_believed(self):
        X, _, _ = data(50)
        distance = (X - 0.4).norm(dim=1, keepdim=True)
        model = fit(RobustGP(X, (distance.flatten().sort().values[5] - distance).clamp_min(0.0)))
        assert lost(model) == []

    def test_what_has_to_change_is_said(self):
        X, Y, _ = data()
        with pytest.raises(TypeError, match=r"torch\.as_tensor\(x\.to_numpy\(\)\)"):
            RobustGP(pd.DataFrame(X.numpy()), Y)
        with pytest.raises(ValueError, match=r"make a column of a vector with \.unsqueeze\(-1\)"):
            RobustGP(X, Y[:, 0])
        with pytest.raises(ValueError, match="one model for each data set of a batch"):
            RobustGP(X.expand(2, 20, 2), Y.expand(2, 20, 1))
        with pytest.raises(ValueError, match="ModelListGP"):
            RobustGP(X, torch.cat([Y, Y], -1))
        with pytest.raises(ValueError, match="maximize must be True, False or None, got 'no'"):
            RobustGP(X, Y, maximize="no")
        with pytest.raises(ValueError, match=r"outlier_share must be in \(0, .5\)"):
            RobustGP(X, Y, outlier_share=0.5)
        with pytest.raises(ValueError, match=r"outlier_share must be in \(0, .5\), got 'a'"):
            RobustGP(X, Y, outlier_share="a")
        with pytest.raises(ValueError, match="outlier_density"):
            RobustGP(X, Y, outlier_density=0.0)
        for variances, message in (
            (0.1, "train_Yvar must be a torch tensor, got float"),
            (torch.ones(20), "train_Yvar is torch.float32 on cpu, train_Y torch.float64"),
            (Y[:, 0].square(), r"train_Yvar has a variance for each reward, \(20, 1\), got \(20,\)"),
            (Y[:19].square(), r"got \(19, 1\)"),
            (Y * math.nan, "train_Yvar has 20 NaN or infinite entries of 20"),
            (-torch.ones_like(Y), "train_Yvar has variances, which are not negative, got -1"),
        ):
            with pytest.raises((TypeError, ValueError), match=message):
                RobustGP(X, Y, variances)
        with pytest.raises(ValueError, match="train_Yvar"):
            RobustGP(X, Y, likelihood=FixedNoiseGaussianLikelihood(torch.ones(20)))


class TestState:
    def test_a_saved_state_gives_the_same_posterior(self):
        X, Y, rows = data(30, seed=1, wild=3)
        model = fit(RobustGP(X, Y, input_transform=Normalize(2)))
        file = io.BytesIO()
        torch.save(model.state_dict(), file)
        file.seek(0)
        other = RobustGP(X, Y, input_transform=Normalize(2))
        other.load_state_dict(torch.load(file, weights_only=True))
        assert lost(other) == rows
        assert_equal(model, other, tol=1e-9)

    def test_a_state_of_single_task_gp_judges(self):
        X, Y, rows = data(30, seed=1, wild=3)
        model = RobustGP(X, Y)
        model.load_state_dict(fit(RobustGP(X, Y)).state_dict(), strict=True)
        state = {key: value for key, value in model.state_dict().items() if "extra" not in key}
        other = RobustGP(X, Y)
        other.load_state_dict(state)
        assert lost(other) == rows

    @pytest.mark.parametrize("keep", [True, False])
    def test_a_state_judges_other_rewards(self, keep):
        """Rows that it was not fitted to: the wild one is found without a fit."""
        X, Y, _ = data(30, seed=1)
        model = fit(RobustGP(X[:20], Y[:20]))
        Y[25] += 8.0
        other = RobustGP(X, Y)
        other.load_state_dict(model.state_dict(), keep_transforms=keep)
        assert lost(other) == [25]
        assert not other.training

    def test_new_training_data_are_believed_until_the_next_fit(self):
        X, Y, rows = data(30, seed=1, wild=3)
        model = fit(RobustGP(X[:20], Y[:20]))
        targets, _ = model.outcome_transform(Y)
        model.set_train_data(X, targets.squeeze(-1), strict=False)
        assert lost(model) == []
        torch.testing.assert_close(model.rewards, Y)
        assert lost(fit(model)) == rows

    def test_new_targets_under_an_input_transform(self):
        X, Y, rows = data(20, wild=2)
        model = RobustGP(4.0 * X, Y * 0.0 + X[:, :1], input_transform=Normalize(2), outcome_transform=None).eval()
        model.set_train_data(targets=Y.squeeze(-1))
        torch.testing.assert_close(model.points, 4.0 * X)
        assert lost(fit(model)) == rows

    @pytest.mark.parametrize("predicting", [True, False])
    def test_new_data_under_an_input_transform(self, predicting):
        """Given to a model that predicts too: BoTorch keeps transformed inputs there, and brings the old ones back."""
        X, Y, rows = data(30, seed=1, wild=3)
        bounds = torch.tensor([[0.0, 0.0], [4.0, 4.0]], dtype=X.dtype)
        made = {"input_transform": Normalize(2, bounds=bounds), "outcome_transform": None}
        model = RobustGP(4.0 * X[:20], Y[:20], **made).train(not predicting)
        model.set_train_data(4.0 * X, Y.squeeze(-1), strict=False)
        assert model.training is not predicting
        torch.testing.assert_close(model.points, 4.0 * X)
        assert_equal(model, RobustGP(4.0 * X, Y, **made))
        assert lost(fit(model)) == rows

    def test_known_noise_keeps_its_data(self):
        X, Y, _ = data()
        with pytest.raises(ValueError, match="make a new one"):
            RobustGP(X, Y, torch.full_like(Y, 0.01)).set_train_data(X, Y.squeeze(-1))

    def test_added_observations_are_believed_and_no_fit_forgets_them(self):
        X, Y, _ = data(24, wild=2)
        model = fit(RobustGP(X[:20], Y[:20], maximize=None))
        plain = fit(SingleTaskGP(X[:20][model.believed], Y[:20][model.believed]))
        moments(model), moments(plain)
        added, expected = (one.condition_on_observations(X[20:], Y[20:]) for one in (model, plain))
        assert_equal(added, expected)
        with pytest.raises(ValueError, match="make and fit a new one"):
            fit(added)

    def test_added_observations_are_checked(self):
        X, Y, _ = data(24)
        model = fit(RobustGP(X[:20], Y[:20]))
        both = ModelListGP(model, model)
        both.posterior(X)
        with pytest.raises(ValueError, match="1 NaN or infinite entries of 4"):
            model.condition_on_observations(X[20:], Y[20:] * torch.tensor([[1.0], [1.0], [float("nan")], [1.0]]))
        with pytest.raises(ValueError, match="NaN or infinite"):
            both.condition_on_observations([X[20:]] * 2, torch.full((4, 2), float("nan"), dtype=Y.dtype))
        with pytest.raises(ValueError, match=r"Y must be \.\.\. x n' x 1"):
            model.condition_on_observations(X[20:], Y[20:, 0])

    def test_moving_to_single_precision_and_back(self):
        X, Y, rows = data(30, seed=1, wild=3)
        model = fit(RobustGP(X, Y, input_transform=Normalize(2)))
        before = moments(model)
        model.float()
        torch.testing.assert_close(moments(model)[0].double(), before[0], atol=1e-2, rtol=0)
        model.double()
        torch.testing.assert_close(moments(model)[0], before[0], atol=1e-2, rtol=0)
        assert lost(fit(model)) == rows
        assert model.believed.dtype == torch.bool

    def test_a_failed_fit_leaves_a_model_that_can_be_fitted(self):
        X, Y, _ = data(20, wild=2)
        model = RobustGP(X, Y)
        mll = ExactMarginalLogLikelihood(model.likelihood, model)

        def fails(mll, **_):
            raise ModelFittingError("no")

        with pytest.raises(ModelFittingError, match="no"):
            fit_gpytorch_mll(mll, optimizer=fails)
        assert type(model) is RobustGP
        assert_equal(fit(model), fit(RobustGP(X, Y)), tol=1e-9)


class TestLoops:
    def test_acquisitions_see_single_task_gp_on_the_believed(self):
        X, Y, _ = data(20, wild=2)
        model = fit(RobustGP(X, Y, maximize=None))
        keep = model.believed
        plain = fit(SingleTaskGP(X[keep], Y[keep]))
        box = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=torch.float64)
        sampler = SobolQMCNormalSampler(torch.Size([16]), seed=0)
        for make in (
            lambda of: qLogNoisyExpectedImprovement(of, X, sampler, prune_baseline=False),
            lambda of: qExpectedImprovement(of, best_f=0.5, sampler=sampler, X_pending=X[:2]),
            lambda of: qKnowledgeGradient(of, num_fantasies=4, sampler=SobolQMCNormalSampler(torch.Size([4]), seed=0)),
        ):
            found = []
            for one in (model, plain):
                torch.manual_seed(0)
                found.append(optimize_acqf(make(one), box, q=1, num_restarts=2, raw_samples=8, options={"maxiter": 5}))
            torch.testing.assert_close(found[0], found[1], atol=1e-6, rtol=0)

    def test_a_list_of_models_is_fitted_one_by_one(self):
        X, Y, rows = data(20, wild=2)
        W, Z, others = data(20, seed=4, wild=1)
        both = ModelListGP(RobustGP(X, Y), RobustGP(W, Z), SingleTaskGP(X, Y))
        fit_gpytorch_mll(SumMarginalLogLikelihood(both.likelihood, both))
        assert [lost(model) for model in both.models[:2]] == [rows, others]
        assert_equal(both.models[0], fit(RobustGP(X, Y)))
        again = ModelListGP(RobustGP(X, Y), RobustGP(W, Z), SingleTaskGP(X, Y))
        again.load_state_dict(both.state_dict())
        assert [lost(model) for model in again.models[:2]] == [rows, others]

    def test_construct_inputs_takes_what_ax_adds(self):
        from botorch.utils.datasets import SupervisedDataset

        X, Y, _ = data()
        training = SupervisedDataset(X, Y, feature_names=["a", "b"], outcome_names=["y"])
        inputs = RobustGP.construct_inputs(training, outlier_share=0.1, categorical_features=[0])
        model = RobustGP(**inputs)
        assert model.outlier_share == 0.1
        assert model.outlier_density == 0.05
        assert torch.equal(model.points, X)


class TestWithTheOtherMethods:
    """Heavy tails x value at risk x unknown kernel, in continuous space."""

    def test_value_at_risk(self):
        X, Y, rows = data(25, wild=3, size=20.0)
        environment = FiniteEnvironment(torch.linspace(0.0, 1.0, 5, dtype=torch.float64).unsqueeze(-1))
        model = fit(RobustGP(X, Y, maximize=None))
        assert lost(model) == rows
        keep = model.believed
        x = torch.rand(4, 1, 1, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
        bound, expected, wild = (
            ValueAtRiskUCB(one, environment, 0.2, width=2.0)(x)
            for one in (model, fit(SingleTaskGP(X[keep], Y[keep])), fit(SingleTaskGP(X, Y)))
        )
        torch.testing.assert_close(bound, expected, atol=1e-12, rtol=0)
        assert float((bound - wild).abs().max()) > 0.3

    def test_candidates_see_believed_rewards(self):
        X, Y, _ = data(25, wild=3, size=20.0)
        kinds = [{"kernel": "rbf", "lengthscale": scale, "noise_var": 0.01} for scale in (0.5, 0.3)]

        def alive(points, rewards):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return CandidateEnsemble(points, rewards, kinds, ConstantWidth(2.0), 0.1, 0.1)

        keep = fit(RobustGP(X, Y)).believed
        truth = torch.sin(4.0 * X).sum(1, keepdim=True)

        def error(ensemble):
            return float((ensemble.posterior(X).mixture_mean - truth).abs().mean())

        assert error(alive(X[keep], Y[keep])) < 0.3 < 1.0 < error(alive(X, Y))
