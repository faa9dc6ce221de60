import itertools
import math

import pytest
import torch
from botorch.acquisition.objective import ScalarizedPosteriorTransform
from botorch.models import ModelListGP, SingleTaskGP
from botorch.models.transforms.input import Normalize
from botorch.models.transforms.outcome import Log

from bo_robust.models import information_gain, marginal_moments, sequential_moments
from tests.problems import rbf

pytestmark = pytest.mark.filterwarnings("ignore::botorch.exceptions.warnings.InputDataWarning")


def single(tkwargs, n=15, d=2, batch=(), seed=0, **kwargs):
    torch.manual_seed(seed)
    X = torch.rand(*batch, n, d, **tkwargs)
    Y = torch.sin(5 * X).sum(-1, keepdim=True) + 0.1 * torch.randn(*batch, n, 1, **tkwargs)
    return SingleTaskGP(X, Y, kwargs.pop("train_Yvar", torch.full_like(Y, 0.2)), **kwargs)


def direct(model, X, **kwargs):
    """Moments from BoTorch's own path, one t-batch per arm."""
    posterior = model.posterior(X, **kwargs)
    return posterior.mean.squeeze(-1), posterior.variance.squeeze(-1)


@pytest.mark.parametrize("shape", [(), (1,), (7,), (3, 4), (101,)])
@pytest.mark.parametrize("q", [1, 3])
def test_marginals_equal_the_posterior_whatever_the_blocks(tkwargs, shape, q):
    model = single(tkwargs)
    X = torch.rand(*shape, q, 2, **tkwargs)
    mean, variance = direct(model, X)
    for block in (1, 10, 256):
        m, v = marginal_moments(model, X, block=block)
        assert m.shape == v.shape == (*shape, q)
        torch.testing.assert_close(m, mean, atol=1e-12, rtol=0)
        torch.testing.assert_close(v, variance, atol=1e-12, rtol=0)


def test_gradients_are_those_of_the_posterior(tkwargs):
    model = single(tkwargs, input_transform=Normalize(d=2))
    X = torch.rand(9, 1, 2, **tkwargs, requires_grad=True)
    weights = torch.randn(9, 1, **tkwargs)
    expected = torch.autograd.grad(sum((weights * f).sum() for f in direct(model, X)), X)[0]
    got = torch.autograd.grad(sum((weights * f).sum() for f in marginal_moments(model, X, block=4)), X)[0]
    assert expected.abs().max() > 0.1
    torch.testing.assert_close(got, expected, atol=1e-10, rtol=0)


def test_gradients_through_pending_points_match_finite_differences(tkwargs):
    model = single(tkwargs, train_Yvar=None)
    pending = torch.rand(2, 2, **tkwargs)
    X = torch.rand(3, 1, 2, **tkwargs, requires_grad=True)
    torch.autograd.gradcheck(lambda x: marginal_moments(model, x, 2, X_pending=pending), X)
    X2 = torch.rand(2, 2, 2, **tkwargs, requires_grad=True)
    torch.autograd.gradcheck(lambda x: sequential_moments(model, x, X_pending=pending), X2)


@pytest.mark.parametrize("noise", ["fixed", "learned"])
def test_pending_points_are_hallucinated_observations(tkwargs, noise):
    model = single(tkwargs, train_Yvar=None) if noise == "learned" else single(tkwargs)
    pending, X = torch.rand(3, 2, **tkwargs), torch.rand(40, 1, 2, **tkwargs)
    given = {"noise": model.likelihood.noise[:1].expand(3).unsqueeze(-1)} if noise == "fixed" else {}
    conditioned = model.condition_on_observations(pending, model.posterior(pending).mean, **given)
    m, v = marginal_moments(model, X, block=16, X_pending=pending)
    torch.testing.assert_close(m, direct(model, X)[0], atol=1e-10, rtol=0)
    torch.testing.assert_close(v, direct(conditioned, X)[1], atol=1e-9, rtol=0)
    assert (v < direct(model, X)[1]).all()


def test_sequential_moments_condition_one_point_at_a_time(tkwargs):
    model = single(tkwargs)
    X, pending = torch.rand(5, 3, 2, **tkwargs), torch.rand(2, 2, **tkwargs)
    m, v = sequential_moments(model, X, X_pending=pending)
    torch.testing.assert_close(m, direct(model, X)[0], atol=1e-10, rtol=0)
    for b, j in itertools.product(range(5), range(3)):
        expected = marginal_moments(model, X[b, j : j + 1], X_pending=torch.cat([pending, X[b, :j]]))[1]
        torch.testing.assert_close(v[b, j : j + 1], expected, atol=1e-10, rtol=0)


def test_several_outputs_need_a_transform_to_one(tkwargs):
    models = [single(tkwargs, seed=1), single(tkwargs, seed=2, n=9)]
    both, X, pending = ModelListGP(*models), torch.rand(30, 1, 2, **tkwargs), torch.rand(2, 2, **tkwargs)
    transform = ScalarizedPosteriorTransform(torch.tensor([2.0, -1.0], **tkwargs))
    (m0, v0), (m1, v1) = (marginal_moments(model, X) for model in models)
    m, v = marginal_moments(both, X, block=7, posterior_transform=transform)
    torch.testing.assert_close(m, 2 * m0 - m1, atol=1e-10, rtol=0)
    torch.testing.assert_close(v, 4 * v0 + v1, atol=1e-10, rtol=0)
    m, _ = marginal_moments(both, X, posterior_transform=transform, X_pending=pending)
    torch.testing.assert_close(m, 2 * m0 - m1, atol=1e-10, rtol=0)  # hallucinated points leave means alone
    with pytest.raises(ValueError, match="posterior_transform"):
        marginal_moments(both, X)


def test_pending_points_change_the_moments_of_transformed_outcomes(tkwargs):
    X = torch.rand(8, 1, **tkwargs)
    log = SingleTaskGP(X, X + 1, outcome_transform=Log())
    mean, variance = marginal_moments(log, X)
    same, less = marginal_moments(log, X, X_pending=X[:1])
    assert (less < variance).all()
    assert (same <= mean).all()  # that of a lognormal variable grows with the variance


def test_repeated_points_keep_a_positive_variance(tkwargs):
    model = single(tkwargs, train_Yvar=torch.full((15, 1), 1e-6, **tkwargs), outcome_transform=None)
    x = model.train_inputs[0][:1].clone()
    X = x.expand(4, 3, 2).clone().requires_grad_()
    for _, v in (sequential_moments(model, X, X_pending=x), marginal_moments(model, X, X_pending=x)):
        assert (v > 0).all()
        assert (v < 1e-5).all()
        assert torch.autograd.grad(v.sqrt().sum(), X)[0].isfinite().all()


@pytest.mark.parametrize(
    ("noise", "determinant"), [((0.5, 0.5), 9.0 - 4.0 / math.e), ((0.5, 0.25), 15.0 - 8.0 / math.e)]
)
def test_information_gain_by_hand(tkwargs, noise, determinant):
    """Two points with k(x, x) = 1 and k(x, x') = exp(-1/2): det(I + 2K) = 9 - 4/e, and 3 * 5 - 8/e."""
    X, noise = torch.tensor([[0.0], [1.0]], **tkwargs), torch.tensor(noise, **tkwargs).unsqueeze(-1)
    model = SingleTaskGP(X, 0.0 * X, noise, covar_module=rbf(tkwargs, 1.0), outcome_transform=None)
    assert float(information_gain(model)) == pytest.approx(0.5 * math.log(determinant), abs=1e-12)
