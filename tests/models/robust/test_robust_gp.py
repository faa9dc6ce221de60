import io
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from botorch.exceptions.errors import ModelFittingError
from botorch.fit import fit_gpytorch_mll
from botorch.models import ModelListGP, SingleTaskGP
from botorch.models.transforms import Log, Normalize
from botorch.models.transforms.input import (
    AppendFeatures,
    FilterFeatures,
    InputPerturbation,
    Log10,
    NumericToCategoricalEncoding,
    OneHotToNumeric,
    Warp,
)
from gpytorch.kernels import MaternKernel, RBFKernel, ScaleKernel
from gpytorch.lazy import LazyEvaluatedKernelTensor
from gpytorch.mlls import ExactMarginalLogLikelihood, SumMarginalLogLikelihood
from gpytorch.priors import GammaPrior
from gpytorch.settings import max_eager_kernel_size
from torch.nn import ModuleDict
from torch.nn.functional import one_hot

from bo_robust import GPUCB, RobustGP
from bo_robust.confidence import ConstantWidth
from bo_robust.models import marginal_moments
from bo_robust.models.evidence_fit import fit_evidence
from bo_robust.models.robust.replication import replication_candidates
from tests.problems import fit, outliers

pytestmark = pytest.mark.filterwarnings("ignore::botorch.exceptions.InputDataWarning")


def data(n=20, d=2, seed=0, wrong=0, size=10.0, noise=0.1):
    """Points, observations and the rows of the wrong ones, which are ``size`` standard deviations off."""
    draws = torch.Generator().manual_seed(seed)
    X = torch.rand(n, d, generator=draws, dtype=torch.float64)
    Y = torch.sin(4.0 * X).sum(1, keepdim=True) + noise * torch.randn(n, 1, generator=draws, dtype=torch.float64)
    rows = torch.randperm(n, generator=draws)[:wrong].sort().values
    Y[rows] += size * Y.std() * torch.sign(torch.randn(wrong, 1, generator=draws, dtype=torch.float64))
    return X, Y, rows.tolist()


def moments(model, d=2):
    X = torch.rand(7, d, generator=torch.Generator().manual_seed(99), dtype=torch.float64)
    posterior = model.posterior(X.to(model.train_targets))
    return posterior.mean.detach(), posterior.variance.detach()


def assert_equal(model, other, d=2, tol=0.0):
    torch.testing.assert_close(moments(model, d), moments(other, d), atol=tol, rtol=0)


OPTIONS = {
    "default": lambda d: {},
    "no outcome transform": lambda d: {"outcome_transform": None},
    "normalized": lambda d: {"input_transform": Normalize(d)},
    "warped": lambda d: {"input_transform": Warp(d, [0])},
    "other kernel": lambda d: {"covar_module": ScaleKernel(MaternKernel(1.5), outputscale_prior=GammaPrior(2.0, 0.15))},
}


CASES = [("default", 4, 1, 0), ("default", 25, 3, 0), ("default", 10, 1, 1), *((name, 25, 3, 3) for name in OPTIONS)]


@pytest.mark.parametrize(("name", "n", "d", "wrong"), CASES)
@pytest.mark.parametrize("known", [False, True])
def test_outliers_leave_no_trace(name, n, d, wrong, known):
    """Without them it is SingleTaskGP, bit for bit where that is fitted alike."""
    X, Y, rows = data(n, d, 2 if n == 25 else 0, wrong)
    noise = 0.01 + 0.001 * torch.arange(n, dtype=Y.dtype).unsqueeze(-1) if known else None
    model = fit(RobustGP(X, Y, noise, **OPTIONS[name](d)))
    assert outliers(model) == rows
    keep = model.inlier_mask
    other = SingleTaskGP(X[keep], Y[keep], noise[keep] if known else None, **OPTIONS[name](d))
    assert_equal(model, fit(other, optimizer=fit_evidence), d)
    assert bool((model.inlier_probability[rows] < 0.5).all())
    assert bool((model.loo_zscore.abs()[rows] > model.loo_zscore_limit[rows]).all())
    for standard in (model.to_standard_model(), model.train().to_standard_model()):
        assert type(standard) is SingleTaskGP
        assert_equal(standard, other, d)


def test_before_a_fit_all_are_inliers():
    X, Y, _ = data(wrong=3)
    model = RobustGP(X, Y)
    assert_equal(model, SingleTaskGP(X, Y))
    assert outliers(model) == []
    assert not model.outliers_detected
    assert fit(model).outliers_detected


def test_a_logarithm_is_detected_in_its_units():
    X, Y, rows = data(wrong=2)
    model = fit(RobustGP(X, Y.exp(), outcome_transform=Log()))
    assert outliers(model) == rows
    keep = model.inlier_mask
    assert_equal(model, fit(SingleTaskGP(X[keep], Y[keep].exp(), outcome_transform=Log()), optimizer=fit_evidence))


@pytest.mark.parametrize("n", [20, 40])
def test_units_order_and_precision_do_not_matter(n):
    X, Y, rows = data(n, 2, 5, wrong=n // 8, size=4.0)
    order = torch.randperm(n, generator=torch.Generator().manual_seed(0))
    for scaled in (Y, 1e12 * Y, 1e-12 * Y, Y + 1e6, -Y):
        assert outliers(fit(RobustGP(X, scaled))) == rows
    assert torch.equal(fit(RobustGP(X[order], Y[order])).inlier_mask[order.argsort()], fit(RobustGP(X, Y)).inlier_mask)
    single = fit(RobustGP(X.float(), Y.float()))
    assert outliers(single) == rows
    assert single.loo_zscore.dtype == torch.float32


def test_tiny_observations_are_standardized():
    X, Y, _ = data()
    tiny, other = fit(RobustGP(X, 1e-12 * Y)), fit(SingleTaskGP(X, Y))
    torch.testing.assert_close(moments(tiny)[0] * 1e12, moments(other)[0], atol=1e-4, rtol=0)
    found = [marginal_moments(fit(RobustGP(X, unit * Y)), X.roll(1, 1))[1].detach() / unit**2 for unit in (1.0, 1e-9)]
    torch.testing.assert_close(found[1], found[0], rtol=1e-3, atol=0.0)


def test_units_that_botorch_would_round_give_a_warning():
    X, Y, _ = data()
    for tiny, dtype in ((1e-5, torch.float64), (1e-2, torch.float32)):
        with pytest.warns(UserWarning, match=r"BoTorch rounds variances below 1e-\d+ up: multiply .* by \de\+0\d, or"):
            RobustGP(X.to(dtype), tiny * Y.to(dtype))
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        RobustGP(X, 0.05 * Y)
        RobustGP(X, 0.0 * Y)
    with pytest.raises(ValueError, match=r"train_Y differ by about .e.1[56]., whose square overflows"):
        RobustGP(X, 1e160 * Y)


@pytest.mark.parametrize("unit", [1e12, 100.0, 1e-6])
def test_units_that_nothing_standardizes_give_a_warning(unit):
    X, Y, _ = data()
    with pytest.warns(UserWarning, match="leave `outcome_transform` out") as caught:
        RobustGP(X, unit * Y, outcome_transform=None)
    factor = float(str(caught[0].message).split("multiply them by ")[1].rstrip("."))
    assert 0.3 < factor * unit * float(Y.std()) < 3.0
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        RobustGP(X, unit * Y.abs(), outcome_transform=Log())
        RobustGP(X, Y, outcome_transform=None)
        RobustGP(X, unit * Y, outcome_transform=None, covar_module=ScaleKernel(RBFKernel()))


def test_replicates_are_points_that_the_kernel_sees_as_one():
    """Small numbers under a logarithm are apart; a change of units rounds; a filtered column does not count."""
    X = torch.tensor([[1e-9], [1e-8], [1e-8 * (1.0 + 1e-15)], [0.1], [1.0]]).double()
    same = RobustGP(X, torch.arange(5.0).double().unsqueeze(-1), input_transform=Log10([0])).replicate_mask()
    assert same.nonzero().tolist() == [[1, 2], [2, 1]]
    X = torch.tensor([[0.0], [2e-4], [0.3], [0.3 + 3e-8], [1.0]])
    same = RobustGP(X, torch.arange(5.0).unsqueeze(-1)).replicate_mask()
    assert same.nonzero().tolist() == [[2, 3], [3, 2]]
    X = torch.tensor([[0.0, 1.0], [0.0, 2.0], [1.0, 1.0]])
    same = RobustGP(X, X[:, 1:], input_transform=FilterFeatures(torch.tensor([0]))).replicate_mask()
    assert same.nonzero().tolist() == [[0, 1], [1, 0]]


CHANGES_OF_SHAPE = {
    "perturbed": lambda X: InputPerturbation(0.02 * torch.ones(4, 3).to(X)),
    "appended": lambda X: AppendFeatures(torch.rand(4, 1).to(X)),
    "filtered": lambda X: FilterFeatures(torch.tensor([0, 1])),
    "encoded": lambda X: NumericToCategoricalEncoding(3, {2: 3}, encoders={2: lambda x: one_hot(x.long(), 3).to(X)}),
    "one-hot": lambda X: OneHotToNumeric(dim=5, categorical_features={2: 3}),
}


@pytest.mark.parametrize("name", CHANGES_OF_SHAPE)
def test_input_transforms_may_change_shapes(name):
    X, Y, rows = data(20, 3, wrong=2)
    X[:, 2] = (3.0 * X[:, 2]).floor()
    if name == "one-hot":
        X = torch.cat([X[:, :2], one_hot(X[:, 2].long(), 3).double()], 1)
    clean = [row for row in range(20) if row not in rows]
    Y[clean] = torch.sin(4.0 * X[clean, :2]).sum(1, keepdim=True)
    model = fit(RobustGP(X, Y, input_transform=CHANGES_OF_SHAPE[name](X)))
    assert outliers(model) == rows
    if name != "appended":  # which supposes that training data have the features already
        keep = model.inlier_mask
        other = fit(SingleTaskGP(X[keep], Y[keep], input_transform=CHANGES_OF_SHAPE[name](X)), optimizer=fit_evidence)
        assert torch.equal(model.posterior(X).mean, other.posterior(X).mean)


def test_a_round_counts_outliers():
    model = fit(RobustGP(*data(20, wrong=2)[:2]))
    assert model.num_outliers == 2
    assert GPUCB(model, ConstantWidth(2.0)).t == 21


def test_no_outliers_as_the_limit():
    X, Y, rows = data(wrong=2)
    assert outliers(fit(RobustGP(X, Y, outlier_share=0.02))) == rows
    model = fit(RobustGP(X, Y, outlier_share=1e-300))
    assert outliers(model) == []
    assert_equal(model, fit(SingleTaskGP(X, Y), optimizer=fit_evidence))


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_a_point_observed_to_be_bad_is_not_recommended(sign):
    X, Y, _ = data(20)
    best = int(Y.argmax())
    Y[best] -= 30.0
    model = fit(RobustGP(X, sign * Y))
    assert outliers(model) == [best]
    assert int((sign * model.posterior(X).mean).argmax()) == best  # only its neighbors speak for it
    assert model.recommendable(maximize=sign > 0).logical_not().nonzero().flatten().tolist() == [best]


def test_minimizing_mirrors_maximizing_bit_for_bit():
    X, Y, _ = data(30, wrong=4)
    model, mirror = fit(RobustGP(X, Y)), fit(RobustGP(X, -Y, maximize=torch.tensor(False)))
    (mean, variance), (other, same) = moments(model), moments(mirror)
    assert torch.equal(mean, -other)
    assert torch.equal(variance, same)
    for side in torch.tensor([True, False]):  # a comparison of tensors gives no Python bools
        assert torch.equal(replication_candidates(model, side), replication_candidates(mirror, not side))
    assert torch.equal(replication_candidates(model), replication_candidates(mirror))
    assert torch.equal(model.recommendable(), mirror.recommendable())
    assert len(replication_candidates(model, True)) + len(replication_candidates(model, False)) > 0


class TestBadInput:
    @pytest.mark.parametrize("n", [1, 2, 3])
    def test_few_observations_are_inliers(self, n):
        X, Y, _ = data(n)
        Y[0] = 1e4
        model = fit(RobustGP(X, Y))
        assert outliers(model) == []
        assert bool(moments(model)[0].isfinite().all())

    @pytest.mark.parametrize(("dtype", "huge"), [(torch.float64, 1e300), (torch.float32, 1e38)])
    def test_huge_observations(self, dtype, huge):
        X, Y, _ = data()
        Y[3], Y[5] = huge, -huge
        model = fit(RobustGP(X.to(dtype), Y.to(dtype)))
        assert outliers(model) == [3, 5]
        other = fit(SingleTaskGP(X[model.inlier_mask], Y[model.inlier_mask]))
        torch.testing.assert_close(moments(model)[0].double(), moments(other)[0], atol=1e-2, rtol=0)

    def test_the_other_points_decide_between_replicates_that_disagree(self):
        X, Y, _ = data()
        model = fit(RobustGP(torch.cat([X, X[:3]]), torch.cat([Y, Y[:3] + torch.tensor([[0.05], [5.0], [-8.0]])])))
        assert bool(model.inlier_mask[[0, 1, 2, 20]].all())
        assert not bool(model.inlier_mask[[21, 22]].any())

    def test_many_outliers_give_a_warning(self):
        X, Y, rows = data(40, wrong=14, size=30.0)
        with pytest.warns(UserWarning, match="RobustGP flags 14 of 40 observations as outliers; look at them with"):
            model = fit(RobustGP(X, Y))
        assert outliers(model) == rows

    def test_observations_that_do_not_predict_each_other_give_a_warning(self):
        X, Y, _ = data(40)
        noise = torch.randn(40, 1, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
        with pytest.warns(UserWarning, match=r"the others explain \d+% of the variance of an observation"):
            fit(RobustGP(X, noise))
        with warnings.catch_warnings():
            warnings.simplefilter("error", UserWarning)
            fit(RobustGP(X, Y))
            fit(RobustGP(X[:39], noise[:39]))


class TestState:
    @pytest.mark.parametrize(
        "nest",
        [
            lambda model: model,
            lambda model: ExactMarginalLogLikelihood(model.likelihood, model),
            lambda model: ModuleDict({"yield": model}),
            lambda model: ModelListGP(model),
            lambda model: ModuleDict({"list": ModelListGP(model, SingleTaskGP(*data()[:2]))}),
            lambda model: GPUCB(model, ConstantWidth(2.0)),
        ],
    )
    def test_a_loaded_state_knows_its_outliers_wherever_it_is_nested(self, nest):
        X, Y, rows = data(30, seed=1, wrong=3)
        model, other = (RobustGP(X, Y, input_transform=Normalize(2)) for _ in range(2))
        fit(model)
        file = io.BytesIO()
        torch.save(nest(model).state_dict(), file)
        file.seek(0)
        nest(other).load_state_dict(torch.load(file, weights_only=True))
        assert outliers(other) == rows
        assert_equal(model, other)
        assert all(torch.equal(value, other.state_dict()[name]) for name, value in model.state_dict().items())

    @pytest.mark.parametrize("known", ["hyperparameters", "nothing of outliers", "other data"])
    def test_outliers_are_detected_where_the_state_has_none(self, known):
        """A state of SingleTaskGP, of a model that was not fitted, and of 20 of the 30 observations."""
        X, Y, rows = data(30, seed=1, wrong=3)
        saved = fit(RobustGP(X[:20], Y[:20]) if known == "other data" else RobustGP(X, Y))
        state = saved.state_dict()
        if known == "hyperparameters":
            state = saved.to_standard_model().state_dict()
        elif known == "nothing of outliers":
            state["_extra_state"] = torch.empty(0)
        for nest in (lambda model: model, lambda model: ModuleDict({"yield": model})):
            other, prefix = RobustGP(X, Y), "yield." if nest(saved) is not saved else ""
            nest(other).load_state_dict({prefix + name: value for name, value in state.items()}, strict=True)
            assert outliers(other) == rows
            assert other.outliers_detected
            assert not other.training
            for name, value in saved.named_parameters():
                assert torch.equal(other.get_parameter(name), value)

    @pytest.mark.parametrize("keep", [True, False])
    def test_a_state_may_be_assigned_and_transforms_are_its_own(self, keep):
        X, Y, _ = data(30, seed=1, wrong=3)
        model, other = fit(RobustGP(X, Y)), RobustGP(X, Y)
        other.load_state_dict(model.state_dict(), keep_transforms=keep, assign=True)
        assert_equal(model, other)

    def test_new_training_data_are_inliers_until_the_next_fit(self):
        X, Y, rows = data(30, seed=1, wrong=3)
        model = fit(RobustGP(X[:20], Y[:20]))
        targets, _ = model.outcome_transform(Y)
        model.set_train_data(X, targets.squeeze(-1), strict=False)
        assert outliers(model) == []
        assert not model.outliers_detected
        torch.testing.assert_close(model.train_Y_all, Y)
        assert outliers(fit(model)) == rows

    def test_new_targets_under_an_input_transform(self):
        X, Y, rows = data(20, wrong=2)
        model = RobustGP(4.0 * X, Y * 0.0 + X[:, :1], input_transform=Normalize(2), outcome_transform=None).eval()
        model.set_train_data(targets=Y.squeeze(-1))
        torch.testing.assert_close(model.train_X_all, 4.0 * X)
        assert outliers(fit(model)) == rows

    def test_added_observations_are_inliers_and_no_fit_forgets_them(self):
        X, Y, _ = data(24, wrong=2)
        model = fit(RobustGP(X[:20], Y[:20]))
        other = fit(SingleTaskGP(X[:20][model.inlier_mask], Y[:20][model.inlier_mask]), optimizer=fit_evidence)
        moments(model), moments(other)
        added, expected = (one.condition_on_observations(X[20:], Y[20:]) for one in (model, other))
        assert_equal(added, expected)
        for refuse in (fit, RobustGP.to_standard_model):
            with pytest.raises(ValueError, match="make and fit a new one"):
                refuse(added)

    def test_observations_added_to_a_list_are_checked(self):
        X, Y, _ = data(24)
        both = ModelListGP(*[fit(RobustGP(X[:20], Y[:20]))] * 2)
        both.posterior(X)
        with pytest.raises(ValueError, match="NaN or infinite"):
            both.condition_on_observations([X[20:]] * 2, torch.full((4, 2), float("nan"), dtype=Y.dtype))

    def test_a_model_can_be_fitted_in_single_precision_and_back(self):
        X, Y, rows = data(30, seed=1, wrong=3)
        model = fit(RobustGP(X, Y, input_transform=Normalize(2))).float()
        assert outliers(fit(model)) == rows
        assert outliers(fit(model.double())) == rows
        assert model.inlier_mask.dtype == torch.bool

    def test_a_failed_fit_leaves_a_model_that_can_be_fitted(self):
        X, Y, _ = data(20, wrong=2)
        model = RobustGP(X, Y)

        def fails(mll, **_):
            raise ModelFittingError("no")

        with pytest.raises(ModelFittingError, match="no"):
            fit(model, optimizer=fails)
        assert_equal(fit(model), fit(RobustGP(X, Y)), tol=1e-9)


class TestLoops:
    def test_a_list_of_models_is_fitted_one_by_one(self):
        X, Y, rows = data(20, wrong=2)
        W, Z, others = data(20, seed=4, wrong=1)
        both = ModelListGP(RobustGP(X, Y), RobustGP(W, Z), SingleTaskGP(X, Y))
        fit_gpytorch_mll(SumMarginalLogLikelihood(both.likelihood, both))
        assert [outliers(model) for model in both.models[:2]] == [rows, others]
        assert_equal(both.models[0], fit(RobustGP(X, Y)))


@pytest.fixture(scope="module")
def skewed():
    """A model with outliers and a learnt scale."""
    X = torch.rand(30, 2, generator=torch.Generator().manual_seed(0)).double()
    Y = (3.0 * torch.sin(5.0 * X[:, :1]) + 2.0 * X[:, 1:]).exp()
    Y[3] *= 1000.0
    model = fit(RobustGP(X, Y))
    assert outliers(model) == [3]
    assert model.outcome_scale.is_logarithm
    return model


class TestThreads:
    """GPyTorch's settings and its lazy kernels are global; ``SingleTaskGP`` differs in the last digits."""

    @staticmethod
    def moments_at(model, seed):
        with torch.no_grad():
            posterior = model.posterior(torch.rand(4, 2, generator=torch.Generator().manual_seed(seed)).double())
            return torch.cat([posterior.mean, posterior.variance])

    def test_threads_get_what_one_gets(self, skewed):
        expected = [self.moments_at(skewed, seed) for seed in range(20)]
        with ThreadPoolExecutor(4) as pool:
            found = list(pool.map(lambda k: self.moments_at(skewed, k % 20), range(400)))
        assert all(torch.equal(one, expected[k % 20]) for k, one in enumerate(found))

    def test_a_thread_held_inside_changes_nothing(self, skewed, monkeypatch):
        expected, inside, goes_on = self.moments_at(skewed, 0), threading.Event(), threading.Event()
        forward = skewed.covar_module.forward

        def waiting(*args, **options):
            if threading.current_thread() is not threading.main_thread() and not inside.is_set():
                inside.set()
                assert goes_on.wait(20.0)
            return forward(*args, **options)

        monkeypatch.setattr(skewed.covar_module, "forward", waiting)
        with ThreadPoolExecutor(1) as pool:
            held = pool.submit(self.moments_at, skewed, 1)
            assert inside.wait(20.0)
            assert torch.equal(self.moments_at(skewed, 0), expected)
            goes_on.set()
            assert torch.equal(held.result(20.0), self.moments_at(skewed, 1))


@pytest.mark.parametrize(("n", "d"), [(8, 1), (25, 3), (40, 2)])
def test_without_outliers_it_predicts_as_single_task_gp_fitted_by_botorch(n, d):
    X, Y, _ = data(n, d, wrong=0)
    (mean, variance), (theirs, their_variance) = (moments(fit(make(X, Y)), d) for make in (RobustGP, SingleTaskGP))
    assert float(((mean - theirs) / their_variance.sqrt()).abs().max()) < 0.01
    torch.testing.assert_close(variance, their_variance, rtol=0.01, atol=0.0)


def test_variances_of_many_points_take_no_covariance_of_them(monkeypatch):
    X, Y, _ = data(20, wrong=2)
    model, points = fit(RobustGP(X, Y)), torch.rand(max_eager_kernel_size.value(), 2, dtype=torch.float64)
    expected = torch.cat([model.posterior(part).variance.detach() for part in points.split(64)])
    evaluated = []
    whole = LazyEvaluatedKernelTensor.evaluate_kernel
    monkeypatch.setattr(
        LazyEvaluatedKernelTensor, "evaluate_kernel", lambda lazy: evaluated.append(lazy.shape) or whole(lazy)
    )
    with torch.no_grad():
        torch.testing.assert_close(model.posterior(points).variance, expected)
    assert torch.Size([len(points), len(points)]) not in evaluated
