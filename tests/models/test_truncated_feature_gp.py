import math
import warnings

import pytest
import torch
from botorch.cross_validation import loo_cv
from botorch.exceptions import UnsupportedError
from gpytorch.kernels import MaternKernel
from gpytorch.means import ZeroMean

from bo_robust.confidence.truncation import ATAFourierTruncation
from bo_robust.models import FeatureGP, FourierMap, NystromMap, TruncatedFeatureGP, TruncationWarning
from tests.problems import assert_same, fit, moments, points, rbf

MAPS = ["fourier", "nystrom"]

pytestmark = pytest.mark.filterwarnings("ignore:Non-strict enforcement of botorch tensor conventions")


def heavy(X, seed=0):
    """Rewards of which a few are far out."""
    noise = torch.randn(*X.shape[:-1], 1, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(X)
    return torch.sin(5.0 * X[..., :1]) + 0.5 * noise**5


def chosen_map(tkwargs, kind, nodes=6):
    return FourierMap(nodes) if kind == "fourier" else NystromMap(points(tkwargs, 8, seed=2))


def make(tkwargs, kind="fourier", n=14, truncation=0.4, **kwargs):
    X = points(tkwargs, n, seed=1)
    kwargs = {"noise_var": 0.3, "covar_module": rbf(tkwargs) if kind == "fourier" else MaternKernel(2.5)} | kwargs
    return TruncatedFeatureGP(X, heavy(X), chosen_map(tkwargs, kind), truncation, **kwargs)


def directions(model):
    """R and U = R Phi^T of the data, from the definition; and phi of any points."""
    dictionary, _ = model._posterior_weights()
    Phi = model.features(model.train_inputs[0], model.covar_module, dictionary).detach()
    V = Phi.mT @ Phi + 0.3 * torch.eye(Phi.shape[-1]).to(Phi)
    if model.root == "symmetric":
        values, vectors = torch.linalg.eigh(V)
        R = (vectors * values.rsqrt()) @ vectors.mT
    else:
        R = torch.linalg.inv(torch.linalg.cholesky(V))
    return R, R @ Phi.mT, lambda X: model.features(X, model.covar_module, dictionary).detach()


@pytest.mark.parametrize("kind", MAPS)
@pytest.mark.parametrize("root", ["symmetric", "cholesky"])
@pytest.mark.parametrize("rule", ["zero", "clip"])
def test_the_mean_from_its_definition(tkwargs, kind, root, rule):
    model, X = make(tkwargs, kind, root=root, rule=rule), points(tkwargs, 9)
    R, U, phi = directions(model)
    products = U * model.train_targets
    assert 0 < int((products.abs() > 0.4).sum()) < products.numel()
    assert model.truncated_share == pytest.approx(float((products.abs() > 0.4).double().mean()), abs=1e-12)
    kept = products.clamp(-0.4, 0.4) if rule == "clip" else torch.where(products.abs() > 0.4, 0.0, products)
    mean = phi(X) @ (R.mT @ kept.sum(-1))
    torch.testing.assert_close(moments(model, X)[0].squeeze(-1), mean, atol=1e-9, rtol=0)
    plain = make(tkwargs, kind, truncation=math.inf, root=root)
    torch.testing.assert_close(moments(model, X)[1], moments(plain, X)[1], atol=1e-9, rtol=0)
    assert float((moments(model, X)[0] - moments(plain, X)[0]).abs().max()) > 0.1
    with pytest.raises(UnsupportedError, match="leave-one-out"):
        loo_cv(model)
    wanted = points(tkwargs, 2, 2).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: model.posterior(x).mean, wanted)


def test_the_level_is_that_of_the_number_of_rewards(tkwargs):
    schedule = ATAFourierTruncation(moment_bound=4.0, alpha=0.5, delta=0.1, horizon=100, num_features=36)
    model = make(tkwargs, truncation=schedule)
    assert model.truncation_level == schedule(14)
    assert_same(model, make(tkwargs, truncation=schedule(14)), points(tkwargs, 5), tol=0.0)
    grown = model.condition_on_observations(points(tkwargs, 2), torch.ones(2, 1, **tkwargs))
    assert grown.truncation_level == schedule(16) > schedule(14)


def test_all_rewards_truncated_is_said(tkwargs):
    model = make(tkwargs, truncation=1e-9)
    scale = float(model.train_targets.abs().median())
    with pytest.warns(UserWarning, match=rf"100% of the rewards are truncated.* b_t is 1e-09.*{scale:.2g}"):
        mean, variance = moments(model, points(tkwargs, 5))
    assert not mean.any()
    assert (variance > 0).all()
    assert model.truncated_share == 1.0
    with pytest.warns(TruncationWarning, match="100% of the rewards"):
        assert moments(make(tkwargs, truncation=1e-9, rule="clip"), points(tkwargs, 5))[0].any()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        X = points(tkwargs, 3)
        zeros = TruncatedFeatureGP(X, torch.zeros(3, 1, **tkwargs), FourierMap(6), 1.0, covar_module=rbf(tkwargs))
        assert not moments(zeros, X)[0].any()


def test_fitting_is_not_led_by_outliers(tkwargs):
    g = torch.Generator().manual_seed(0)
    X = torch.rand(150, 1, generator=g, dtype=torch.float64).to(**tkwargs)
    clean = torch.sin(8.0 * X) + 0.2 * torch.randn(150, 1, generator=g, dtype=torch.float64).to(**tkwargs)
    Y = clean.clone()
    Y[::30] = 100.0
    fits = []
    for y in (clean, Y):
        model = fit(TruncatedFeatureGP(X, y, FourierMap(32), 5.0))
        fits.append((model.covar_module.lengthscale.item(), model.likelihood.noise.item()))
    (lengthscale, noise), (lengthscale_out, noise_out) = fits
    assert noise == pytest.approx(0.04, rel=0.3)
    assert lengthscale_out == pytest.approx(lengthscale, rel=0.5)
    assert noise_out < 1.0  # of rewards with variance 330


def test_evidence_is_that_of_winsorized_rewards(tkwargs):
    X = points(tkwargs, 7)
    Y = torch.tensor([-1.0, 0.0, 1.0, 2.0, 3.0, 50.0, -40.0], **tkwargs).unsqueeze(-1)  # median 1, MAD 2
    model = TruncatedFeatureGP(X, Y, FourierMap(6), 1.0, noise_var=0.3, covar_module=rbf(tkwargs))
    spread = 3.0 * 1.4826 * 2.0
    winsorized = torch.tensor([-1.0, 0.0, 1.0, 2.0, 3.0, 1.0 + spread, 1.0 - spread], **tkwargs).unsqueeze(-1)
    options = {"mean_module": ZeroMean(), "outcome_transform": None}
    plain = FeatureGP(X, winsorized, FourierMap(6), noise_var=0.3, covar_module=rbf(tkwargs), **options)
    torch.testing.assert_close(model.log_evidence(), plain.log_evidence(), atol=1e-8, rtol=0)
    mostly = torch.tensor([2.0, 2.0, 2.0, 2.0, 2.0, 7.0, -9.0], **tkwargs)  # MAD 0
    model.set_train_data(targets=mostly)
    plain.set_train_data(targets=mostly)
    torch.testing.assert_close(model.log_evidence(), plain.log_evidence(), atol=1e-8, rtol=0)


def test_setting_train_data(tkwargs):
    schedule = ATAFourierTruncation(moment_bound=4.0, alpha=0.5, delta=0.1, horizon=100, num_features=36)
    model, other = make(tkwargs, truncation=schedule), make(tkwargs, n=17, truncation=schedule)
    model.set_train_data(other.train_inputs[0], other.train_targets, strict=False)
    assert model.drawn.shape == (17,)
    assert_same(model, other, points(tkwargs, 4), tol=0.0)
