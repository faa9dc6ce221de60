import gpytorch
import pytest
import torch
from botorch.models import ModelListGP, SingleTaskGP
from botorch.models.map_saas import EnsembleMapSaasSingleTaskGP
from botorch.models.transforms.input import AppendFeatures, Normalize, Warp
from botorch.models.transforms.outcome import Log, Standardize
from gpytorch.kernels import AdditiveKernel, LinearKernel, MaternKernel, PeriodicKernel, RBFKernel, ScaleKernel
from gpytorch.priors import LogNormalPrior

from bo_robust.confidence.truncation import NoTruncation
from bo_robust.models import RobustGP, TruncatedGP
from bo_robust.models.exact_moments import exact_moments
from tests.problems import rand


@pytest.fixture
def data(tkwargs):
    X = rand(tkwargs, 12, 2)
    return X, 3.0 + torch.sin(5.0 * X[:, :1]) + X[:, 1:], rand(tkwargs, 4, 3, 2, seed=1)


def models(X, Y):
    bounds = torch.tensor([[-1.0, 0.0], [2.0, 3.0]]).to(X)
    warp = Warp(d=2, indices=[0], concentration1_prior=LogNormalPrior(0.0, 0.1)).to(X)
    sums = AdditiveKernel(PeriodicKernel(active_dims=(0,)), LinearKernel(), MaternKernel(1.5)).to(X)
    yield "standardized", SingleTaskGP(X, Y, input_transform=Normalize(2, bounds=bounds))
    yield "plain", SingleTaskGP(X, Y, outcome_transform=None, covar_module=ScaleKernel(RBFKernel(ard_num_dims=2)).to(X))
    matern = ScaleKernel(MaternKernel(2.5, ard_num_dims=2)).to(X)
    yield "Matern", SingleTaskGP(1e3 + X, Y, covar_module=matern, input_transform=Normalize(2, bounds=1e3 + bounds))
    yield "noise known", SingleTaskGP(X, Y, train_Yvar=0.01 * Y.square())
    yield "sum of kernels, warped", SingleTaskGP(X, Y, covar_module=sums, input_transform=warp)
    yield "truncated", TruncatedGP(X, Y, NoTruncation(), noise_var=0.1)
    robust = RobustGP(X, Y + 30.0 * (torch.arange(len(X)) == 3).to(Y).unsqueeze(-1))
    robust.detect_outliers()
    assert robust.num_outliers == 1
    yield "with an outlier", robust


def close(model, X):
    mean, variance = exact_moments(model, X)
    posterior = model.posterior(X)
    torch.testing.assert_close(mean, posterior.mean.squeeze(-1), rtol=1e-8, atol=1e-10)
    torch.testing.assert_close(variance, posterior.variance.squeeze(-1), rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("which", range(7))
def test_equals_the_posterior(data, which):
    X, Y, points = data
    name, model = list(models(X, Y))[which]
    points = 1e3 + points if name == "Matern" else points
    with torch.no_grad():
        close(model, points)
        close(model, points[0])
    points = points.clone().requires_grad_()
    posterior = model.posterior(points)
    for moment, expected in zip(exact_moments(model, points), (posterior.mean, posterior.variance), strict=True):
        ours, theirs = (torch.autograd.grad(x.sum(), points, retain_graph=True)[0] for x in (moment, expected))
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-7)


def test_blocks_change_nothing(data, monkeypatch):
    X, Y, points = data
    model = SingleTaskGP(X, Y)
    with torch.no_grad():
        whole = exact_moments(model, points)
        monkeypatch.setattr("bo_robust.models.exact_moments.BLOCK_ENTRIES", (30, 30))
        parts = exact_moments(model, points)
    for a, b in zip(whole, parts, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)


def test_never_stale(data):
    """New data, new hyperparameters, loaded state and conditioning are all seen."""
    X, Y, points = data
    model = SingleTaskGP(X, Y, outcome_transform=None)
    with torch.no_grad():
        before = exact_moments(model, points)[0]
        model.set_train_data(X, 2.0 * Y.squeeze(-1), strict=False)
        close(model, points)
        assert not torch.allclose(exact_moments(model, points)[0], before)
        model.train()
        model.covar_module.lengthscale = 0.05
        close(model, points)
        model.load_state_dict(SingleTaskGP(X, Y, outcome_transform=None).state_dict())
        close(model, points)
        close(model.condition_on_observations(points[0], points[0, :, :1]), points)


def test_other_models_are_left_to_themselves(data):
    X, Y, points = data

    class Inherited(RobustGP):
        """It need not have the posterior of its parent."""

    class Own(SingleTaskGP):
        def posterior(self, X, *args, **kwargs):
            return super().posterior(X.clamp(0.2, 0.8), *args, **kwargs)

    own = SingleTaskGP(X, Y, covar_module=gpytorch.kernels.RFFKernel(num_samples=5, num_dims=2).to(X))
    assert exact_moments(own, points) is None  # a prediction strategy of its own
    appended = SingleTaskGP(X, Y, input_transform=AppendFeatures(X[:2, :1]))
    for model in (
        Own(X, Y),
        Inherited(X, Y),
        SingleTaskGP(X, Y.exp(), outcome_transform=Log()),
        SingleTaskGP(X, torch.cat([Y, Y], -1), outcome_transform=Standardize(2)),
        SingleTaskGP(X.expand(3, 12, 2), Y.expand(3, 12, 1)),
        ModelListGP(SingleTaskGP(X, Y)),
        EnsembleMapSaasSingleTaskGP(X, Y),
    ):
        assert exact_moments(model, points) is None
    with torch.no_grad():
        assert exact_moments(appended, points[..., :1]) is None
