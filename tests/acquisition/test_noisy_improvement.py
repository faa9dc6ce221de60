import pytest
import torch
from botorch.acquisition.input_constructors import get_acqf_input_constructor
from botorch.acquisition.logei import qLogNoisyExpectedImprovement
from botorch.acquisition.objective import GenericMCObjective, ScalarizedPosteriorTransform
from botorch.fit import fit_gpytorch_mll
from botorch.models import ModelListGP, SingleTaskGP
from botorch.models.transforms.input import Normalize
from botorch.optim import optimize_acqf
from botorch.sampling import SobolQMCNormalSampler
from botorch.utils.datasets import SupervisedDataset
from gpytorch.kernels import MaternKernel, RBFKernel, ScaleKernel
from gpytorch.mlls import ExactMarginalLogLikelihood

from bo_robust.acquisition import OnePointLogNoisyExpectedImprovement
from bo_robust.models import RobustGP
from bo_robust.utils.covariance import RADIALS

KERNELS = {RBFKernel: RBFKernel, MaternKernel: lambda **options: MaternKernel(nu=2.5, **options)}
DOUBLE = {"dtype": torch.float64}
MINUS = ScalarizedPosteriorTransform(torch.tensor([-2.0], **DOUBLE), offset=0.3)


def fitted(model):
    fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
    return model


def skewed(n=40, **options):
    """Outcomes that vary by factors, some of which are wrong."""
    g = torch.Generator().manual_seed(0)
    X = torch.rand(n, 2, generator=g, dtype=torch.float64)
    noise = 0.3 * torch.randn(n, 1, generator=g, dtype=torch.float64)
    Y = (4.0 * torch.sin(3.0 * X[:, :1]) - 6.0 * (X[:, 1:] - 0.4).square() + noise).exp()
    return fitted(RobustGP(X, Y, **options))


def readings(d=4, wrong=0):
    """Noisy readings of a function on [2, 3]^d, of which some are wrong."""
    g = torch.Generator().manual_seed(3)
    X = 2.0 + torch.rand(8 if d == 1 else 30, d, generator=g, **DOUBLE)
    Y = 10.0 * torch.sin(4.0 * X).sum(-1, keepdim=True) + torch.randn(len(X), 1, generator=g, **DOUBLE)
    Y[1 : 1 + wrong] += 200.0
    return X, Y


def designs(X, k=6, seed=1):
    return 2.0 + torch.rand(k, 1, X.shape[-1], generator=torch.Generator().manual_seed(seed), **DOUBLE)


def both(model, X, **options):
    """BoTorch's function and ours, of the same random numbers."""
    for kind in (qLogNoisyExpectedImprovement, OnePointLogNoisyExpectedImprovement):
        torch.manual_seed(0)
        yield kind(model, X, **options)


def check_equal(model, X, written_out=True, **options):
    plain, ours = both(model, X, **options)
    assert (ours.joint_samples is not None) == written_out
    assert torch.equal(ours.X_baseline, plain.X_baseline)
    x = designs(X).requires_grad_()
    values = plain(x), ours(x)
    torch.testing.assert_close(*values, rtol=1e-10, atol=0)
    first, second = (torch.autograd.grad(value.sum(), x)[0] for value in values)
    torch.testing.assert_close(first, second, rtol=0, atol=1e-8 * float(first.abs().max()))


@pytest.mark.parametrize("pending", [0, 3])
@pytest.mark.parametrize(("d", "wrong"), [(1, 0), (4, 0), (4, 2)])
@pytest.mark.parametrize("kernel", [kind for kind, _ in RADIALS])
def test_values_and_gradients_are_those_of_botorch(kernel, d, wrong, pending):
    X, Y = readings(d, wrong)
    options = {"X_pending": designs(X, pending, seed=2).squeeze(1)} if pending else {}
    for kind in (SingleTaskGP, RobustGP):
        covariance = KERNELS[kernel](ard_num_dims=d)
        model = fitted(kind(X, Y, covar_module=ScaleKernel(covariance) if wrong else covariance))
        assert kind is SingleTaskGP or model.num_outliers == wrong
        check_equal(model, X, **options)


@pytest.mark.parametrize(
    ("options", "of_acqf"),
    [
        ({"train_Yvar": torch.full((30, 1), 0.5, **DOUBLE)}, {}),
        ({"input_transform": Normalize(4), "outcome_transform": None}, {}),
        ({"batch": [i % 3 for i in range(30)]}, {"prune_baseline": False}),
        ({}, {"posterior_transform": MINUS, "X_pending": torch.full((1, 4), 2.5, **DOUBLE)}),
    ],
)
def test_options_of_the_model_and_of_the_function(options, of_acqf):
    X, Y = readings(wrong=2)
    check_equal(fitted(RobustGP(X, Y, **options)), X, **of_acqf)


@pytest.mark.parametrize(
    ("options", "of_acqf"),
    [
        ({"covar_module": MaternKernel(nu=1.5)}, {}),
        ({}, {"objective": GenericMCObjective(lambda Z, X=None: Z[..., 0].square())}),
        ({}, {"constraints": [lambda Z: Z[..., 0] - 20.0]}),
        ({}, {"fat": False}),
        ({}, {"incremental": False, "X_pending": torch.full((1, 4), 2.5, **DOUBLE)}),
    ],
)
def test_what_is_not_written_out_is_that_of_botorch(options, of_acqf):
    X, Y = readings()
    check_equal(SingleTaskGP(X, Y, **options), X, written_out=False, **of_acqf)


def test_several_outputs_and_designs_are_those_of_botorch():
    X, Y = readings()
    several = both(ModelListGP(SingleTaskGP(X, Y)), X)
    assert [getattr(acqf, "joint_samples", None) for acqf in several] == [None, None]
    plain, ours = both(SingleTaskGP(X, Y), X)
    one, two = designs(X), designs(X, 8).reshape(4, 2, 4)
    before = ours(one)
    torch.testing.assert_close(ours(two), plain(two))
    torch.testing.assert_close(ours(one), before, rtol=0, atol=0)
    pending = one[0]
    ours.set_X_pending(pending)
    assert not torch.equal(ours(one), before)
    ours.set_X_pending(None)
    torch.testing.assert_close(ours(one), before)


def test_it_moves_to_another_dtype():
    X, Y = readings()
    acqf, x = OnePointLogNoisyExpectedImprovement(SingleTaskGP(X, Y), X), designs(X)
    before = acqf(x)
    torch.testing.assert_close(acqf.float()(x.float()).double(), before, rtol=1e-2, atol=1e-2)


def test_searches_end_at_the_same_design():
    for wrong in (0, 2):
        X, Y = readings(wrong=wrong)
        ends = []
        for acqf in both(fitted(RobustGP(X, Y)), X):
            torch.manual_seed(1)
            box = torch.tensor([[2.0], [3.0]], **DOUBLE).expand(2, 4)
            ends.append(optimize_acqf(acqf, box, q=1, num_restarts=4, raw_samples=32)[0])
        torch.testing.assert_close(*ends, rtol=0, atol=1e-6)


def test_frameworks_make_it_by_its_input_constructor():
    X, Y = readings()
    data = SupervisedDataset(X, Y, feature_names=list("abcd"), outcome_names=["y"])
    construct = get_acqf_input_constructor(OnePointLogNoisyExpectedImprovement)
    inputs = construct(model=SingleTaskGP(X, Y), training_data=data, posterior_transform=MINUS, bounds=[(2.0, 3.0)] * 4)
    assert OnePointLogNoisyExpectedImprovement(**inputs).joint_samples is not None


def sampler():
    return SobolQMCNormalSampler(torch.Size([64]), seed=0)


@pytest.mark.parametrize("pending", [0, 3])
@pytest.mark.parametrize("prune", [False, True])
def test_learnt_scales_have_the_values_of_exact_samples(pending, prune):
    model = skewed()
    assert not model.outcome_scale.is_identity
    g = torch.Generator().manual_seed(1)
    X = torch.rand(20, 1, 2, generator=g, dtype=torch.float64, requires_grad=True)
    X_pending = torch.rand(pending, 2, generator=g, dtype=torch.float64) if pending else None
    options = {"sampler": sampler(), "X_pending": X_pending}
    fast = OnePointLogNoisyExpectedImprovement(model, model.train_X_all, prune_baseline=prune, **options)
    value = fast(X)
    baseline = fast.X_baseline[: len(fast.X_baseline) - pending]
    options = {"X_pending": X_pending, "prune_baseline": False, "cache_root": False}
    plain = qLogNoisyExpectedImprovement(model, baseline, sampler(), **options)
    plain.sampler.base_samples = fast.sampler.base_samples  # of the baseline and a design
    assert fast.joint_samples is not None
    torch.testing.assert_close(value, plain(X), rtol=1e-6, atol=1e-6)
    slopes = [torch.autograd.grad(values.sum(), X)[0] for values in (value, plain(X))]
    torch.testing.assert_close(*slopes, rtol=1e-4, atol=1e-4)


def test_pending_designs_that_are_no_part_of_the_baseline_count():
    X, Y = readings()
    model = fitted(SingleTaskGP(X, Y))
    plain, ours = both(model, X, incremental=False)
    for acqf in (plain, ours):
        acqf.set_X_pending(designs(X, 2).squeeze(1))
    torch.testing.assert_close(ours(designs(X)), plain(designs(X)))


@pytest.mark.parametrize("kind", [SingleTaskGP, RobustGP])
def test_a_model_that_changes_has_the_values_of_botorch(kind):
    """Training mode transforms inputs anew; other hyperparameters have another factor."""
    X, Y = readings()
    model = fitted(kind(X, Y, input_transform=Normalize(4)))
    plain, ours = both(model, X)
    ours.train()
    torch.testing.assert_close(ours(designs(X)), plain(designs(X)))
    assert torch.equal(model.input_transform.bounds, torch.stack([X.amin(0), X.amax(0)]))
    model.covar_module.lengthscale = 0.5 * model.covar_module.lengthscale.detach()
    model.train().eval()
    torch.testing.assert_close(ours(designs(X)), plain(designs(X)))


def test_a_weight_of_zero_is_that_of_botorch():
    X, Y = readings()
    options = {"posterior_transform": ScalarizedPosteriorTransform(torch.zeros(1, **DOUBLE))}
    plain, ours = both(fitted(SingleTaskGP(X, Y)), X, **options)
    assert torch.equal(ours(designs(X)), plain(designs(X)))
