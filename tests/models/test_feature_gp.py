import copy
import math
import warnings

import pytest
import torch
from botorch.acquisition import (
    PosteriorMean,
    qKnowledgeGradient,
)
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from botorch.models.transforms.input import Normalize
from botorch.models.transforms.outcome import Standardize
from botorch.sampling import SobolQMCNormalSampler
from botorch.utils.datasets import SupervisedDataset
from gpytorch.kernels import MaternKernel, ScaleKernel
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.means import ZeroMean
from gpytorch.mlls import ExactMarginalLogLikelihood
from linear_operator.operators import DiagLinearOperator

from bo_robust.models import FeatureGP, FourierMap, NystromMap, marginal_moments, sequential_moments
from bo_robust.models.feature_gp import gaussian_weights, log_evidence, precision_matrix
from tests.problems import assert_same, moments, points, rbf, rewards

MAPS = ["fourier", "nystrom"]

pytestmark = [
    pytest.mark.filterwarnings("ignore:Data .outcome observations. is not standardized"),
    pytest.mark.filterwarnings("ignore:Non-strict enforcement of botorch tensor conventions"),
]


def make(tkwargs, kind="fourier", n=12, nodes=16, **kwargs):
    X = kwargs.pop("X") if "X" in kwargs else points(tkwargs, n, seed=1)
    kwargs.setdefault("covar_module", rbf(tkwargs) if kind == "fourier" else ScaleKernel(MaternKernel(2.5)))
    if "likelihood" not in kwargs:
        kwargs.setdefault("noise_var", 0.3)
    kwargs = {"mean_module": ZeroMean(), "outcome_transform": None} | kwargs
    Z = points(tkwargs, 8, seed=2)
    return FeatureGP(X, rewards(X), FourierMap(nodes) if kind == "fourier" else NystromMap(Z), **kwargs)


def exact(model, **kwargs):
    """The exact GP with the data and hyperparameters of the model."""
    Y = model.train_targets.unsqueeze(-1)
    noise = torch.full_like(Y, float(model.likelihood.noise))
    kwargs = {"covar_module": model.covar_module, "mean_module": ZeroMean(), "outcome_transform": None} | kwargs
    return SingleTaskGP(model.train_inputs[0], Y, noise, **kwargs)


# ---------------------------------------------------------------------------------------------- the regression


def regression(tkwargs, n, p):
    g = torch.Generator().manual_seed(0)
    Phi, y = (torch.randn(shape, generator=g, dtype=torch.float64).to(**tkwargs) for shape in ((n, p), (n,)))
    return Phi, y, torch.tensor(0.3, **tkwargs)


@pytest.mark.parametrize(("n", "p"), [(7, 3), (3, 7), (1, 1)])
def test_evidence_against_dense_matrices(tkwargs, n, p):
    Phi, y, noise_var = regression(tkwargs, n, p)
    covariance = Phi @ Phi.mT + noise_var * torch.eye(n, **tkwargs)
    dense = torch.distributions.MultivariateNormal(torch.zeros(n, **tkwargs), covariance).log_prob(y)
    torch.testing.assert_close(log_evidence(Phi, y, noise_var), dense, atol=1e-10, rtol=0)


def test_evidence_by_hand(tkwargs):
    # One feature of 2 and one reward of 3: y ~ N(0, 4 + 0.5).
    value = log_evidence(*(torch.tensor(x, **tkwargs) for x in ([[2.0]], [3.0], 0.5)))
    assert float(value) == pytest.approx(-0.5 * (9.0 / 4.5 + math.log(4.5) + math.log(2.0 * math.pi)), abs=1e-14)


def test_observing_in_parts_equals_observing_at_once(tkwargs):
    Phi, y, noise_var = regression(tkwargs, 12, 4)

    def weights(rows):
        return gaussian_weights(precision_matrix(Phi[rows], noise_var), Phi[rows].mT @ y[rows], noise_var)

    whole, parts = weights(slice(None)), weights(slice(5)).observe(Phi[5:9], y[5:9]).observe(Phi[9:], y[9:])
    for a, b in zip(whole, parts, strict=True):
        torch.testing.assert_close(a, b, atol=1e-12, rtol=0)
    V = Phi.mT @ Phi + noise_var * torch.eye(4, **tkwargs)
    torch.testing.assert_close(whole.mean, torch.linalg.solve(V, Phi.mT @ y), atol=1e-12, rtol=0)
    torch.testing.assert_close(whole.root.mT @ whole.root, torch.linalg.inv(V), atol=1e-12, rtol=0)
    mean, spread = whole.predict(Phi)
    torch.testing.assert_close(mean, Phi @ whole.mean, atol=1e-12, rtol=0)
    torch.testing.assert_close(spread @ spread.mT, noise_var * Phi @ torch.linalg.solve(V, Phi.mT), atol=1e-12, rtol=0)


def test_float32_features_keep_the_noise_variance(device):
    """20,000 copies of one of two rows: noise_var = 1e-4 is below the rounding of 20,000 in float32."""
    Phi = torch.tensor([[0.8, 0.6]], device=device).repeat(20_000, 1)
    y, noise_var = torch.ones(20_000, device=device), torch.tensor(1e-4, device=device)
    weights = gaussian_weights(precision_matrix(Phi, noise_var), Phi.double().mT @ y.double(), noise_var)
    other = torch.tensor([[-0.6, 0.8]], device=device)  # orthogonal: nothing is known
    spread = weights.observe(Phi[:1], y[:1]).predict(other)[1]
    assert spread.dtype == weights.mean.dtype == torch.float32
    assert float(spread.square().sum()) == pytest.approx(1.0, abs=1e-4)
    exact = log_evidence(Phi.double(), y.double(), noise_var.double())
    assert float(log_evidence(Phi, y, noise_var)) == pytest.approx(float(exact), rel=1e-6)


# ---------------------------------------------------------------------------------------------- the posterior


def test_nystrom_against_dense_matrices(tkwargs):
    """DTC (Quinonero-Candela & Rasmussen 2005): Q for every covariance but the prior's own."""
    model, X = make(tkwargs, "nystrom"), points(tkwargs, 7)
    Z, k = model.features.inducing_points, lambda a, b: model.covar_module(a, b).to_dense().detach()
    train = model.train_inputs[0]

    def q(a, b):
        return k(a, Z) @ torch.linalg.solve(k(Z, Z), k(Z, b))

    C = q(train, train) + 0.3 * torch.eye(12, **tkwargs)
    mean = q(X, train) @ torch.linalg.solve(C, model.train_targets)
    covariance = k(X, X) - q(X, train) @ torch.linalg.solve(C, q(train, X))
    posterior = model.posterior(X)
    torch.testing.assert_close(posterior.mean.squeeze(-1), mean, atol=1e-9, rtol=0)
    torch.testing.assert_close(posterior.distribution.covariance_matrix, covariance, atol=1e-9, rtol=0)
    single = model.posterior(X.unsqueeze(-2))
    torch.testing.assert_close(single.mean.flatten(), mean, atol=1e-9, rtol=0)
    torch.testing.assert_close(single.variance.flatten(), covariance.diagonal(), atol=1e-9, rtol=0)
    far = model.posterior(torch.full((1, 2), 50.0, **tkwargs)).variance  # no variance starvation
    torch.testing.assert_close(far, k(X[:1], X[:1]), atol=1e-9, rtol=0)


@pytest.mark.parametrize("kind", MAPS)
def test_many_points_are_evaluated_in_blocks(tkwargs, kind, monkeypatch):
    model, X = make(tkwargs, kind, nodes=8), points(tkwargs, 5, 7, 1)
    whole = moments(model, X)
    monkeypatch.setattr("bo_robust.models.feature_gp.CPU_BLOCK", 4)
    monkeypatch.setattr("bo_robust.models.feature_gp.CUDA_BLOCK", 4)
    posterior = model.posterior(X)
    assert isinstance(posterior.distribution.lazy_covariance_matrix, DiagLinearOperator)
    for a, b in zip(whole, (posterior.mean, posterior.variance), strict=True):
        torch.testing.assert_close(a, b, atol=1e-13, rtol=0)


@pytest.mark.parametrize("features", [FourierMap(12), NystromMap(torch.rand(60, 2, generator=torch.Generator()))])
def test_thousands_of_observations(tkwargs, features):
    X, test_X = points(tkwargs, 3000, seed=1), points(tkwargs, 50)
    model = FeatureGP(X, rewards(X), features, noise_var=0.09, covar_module=rbf(tkwargs))
    mean, variance = moments(model, test_X)
    truth = torch.sin(5.0 * test_X[..., :1]) * torch.cos(3.0 * test_X[..., 1:])
    assert float((mean - truth).abs().max()) < 0.1
    assert ((mean - truth).abs() < 4.0 * variance.sqrt()).all()
    assert float(variance.max()) < 0.01


# ---------------------------------------------------------------------------------------------- transforms


@pytest.mark.parametrize("kind", MAPS)
def test_outcome_transform(tkwargs, kind):
    X = points(tkwargs, 12, seed=1)
    y = rewards(X)
    model = make(tkwargs, kind, noise_var=0.3 * float(y.var()), outcome_transform=Standardize(m=1))
    scaled = make(tkwargs, kind)
    scaled.set_train_data(targets=((y - y.mean()) / y.std()).squeeze(-1))
    mean, variance = moments(scaled, points(tkwargs, 5))
    got = moments(model, points(tkwargs, 5))
    torch.testing.assert_close(got[0], mean * y.std() + y.mean(), atol=1e-12, rtol=0)
    torch.testing.assert_close(got[1], variance * y.var(), atol=1e-12, rtol=0)
    new_X = points(tkwargs, 3, seed=9)
    grown = model.condition_on_observations(new_X, rewards(new_X))
    torch.testing.assert_close(grown.train_targets[12:], ((rewards(new_X) - y.mean()) / y.std()).squeeze(-1))


@pytest.mark.parametrize("kind", MAPS)
def test_input_transform(tkwargs, kind):
    bounds = torch.tensor([[-1.0, 0.0], [3.0, 0.5]], **tkwargs)
    raw = points(tkwargs, 12, seed=1) * (bounds[1] - bounds[0]) + bounds[0]
    normalize = Normalize(d=2, bounds=bounds)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = make(tkwargs, kind, X=raw, input_transform=normalize)
    plain = make(tkwargs, kind)
    plain.set_train_data(targets=rewards(raw).squeeze(-1))
    X = points(tkwargs, 5)
    test_X = X * (bounds[1] - bounds[0]) + bounds[0]

    def check(a, b):
        for left, right in zip(moments(a, test_X), moments(b, X), strict=True):
            torch.testing.assert_close(left, right, atol=1e-12, rtol=0)

    check(model, plain)
    grown, other = (m.condition_on_observations(x[:2], rewards(x[:2])) for m, x in ((model, test_X), (plain, X)))
    other.set_train_data(targets=grown.train_targets)
    check(grown, other)
    grown.train()
    torch.testing.assert_close(grown.train_inputs[0][12:], test_X[:2])
    check(grown, other)
    fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model), optimizer_kwargs={"options": {"maxiter": 2}})
    torch.testing.assert_close(model.train_inputs[0], plain.train_inputs[0])


# ---------------------------------------------------------------------------------------------- fitting


@pytest.mark.parametrize("kind", MAPS)
def test_evidence(tkwargs, kind):
    model = make(tkwargs, kind, n=9, nodes=8, likelihood=GaussianLikelihood())
    model.train()
    prior = model(model.train_inputs[0])
    dense = model.likelihood(prior).covariance_matrix
    expected = torch.distributions.MultivariateNormal(torch.zeros(9, **tkwargs), dense).log_prob(model.train_targets)
    torch.testing.assert_close(model.log_evidence(), expected, atol=1e-9, rtol=0)
    mll = ExactMarginalLogLikelihood(
        model.likelihood, model
    )  # no priors here: SingleTaskGP's convention, -evidence / n
    torch.testing.assert_close(model.compute_custom_loss(mll), -mll(prior, model.train_targets), atol=1e-9, rtol=0)
    gradients = []
    for loss in (model.compute_custom_loss(mll), -mll(model(model.train_inputs[0]), model.train_targets)):
        model.zero_grad()
        loss.backward()
        gradients.append(torch.cat([p.grad.flatten() for p in model.parameters()]))
    torch.testing.assert_close(*gradients, atol=1e-7, rtol=0)


# ---------------------------------------------------------------------------------------------- new observations


@pytest.mark.parametrize("kind", MAPS)
def test_conditioning_a_batch(tkwargs, kind):
    model, new_X = make(tkwargs, kind, nodes=8), points(tkwargs, 3, 2, seed=5)
    Y = torch.stack([rewards(new_X, seed) for seed in range(4)])  # 4 outcomes of each of 3 batches of 2 points
    many = model.condition_on_observations(new_X, Y)
    assert many.batch_shape == (4, 3)
    assert many.train_inputs[0].shape == (4, 3, 14, 2)
    assert many.train_targets.shape == (4, 3, 14)
    assert many.information_gain.shape == (4, 3)
    for q in (1, 3):
        own, shared = points(tkwargs, 4, 3, q), points(tkwargs, q, seed=6)
        mean, variance = moments(many, own)
        for i in range(4):
            for j in range(3):
                one = model.condition_on_observations(new_X[j], Y[i, j])
                for a, b in zip((mean[i, j], variance[i, j]), moments(one, own[i, j]), strict=True):
                    torch.testing.assert_close(a, b, atol=1e-10, rtol=0)
                for a, b in zip(moments(many, shared), moments(one, shared), strict=True):
                    torch.testing.assert_close(a[i, j], b, atol=1e-10, rtol=0)
    rebuilt = copy.deepcopy(many)
    rebuilt.train()
    assert_same(many, rebuilt, points(tkwargs, 4, 3, 2), tol=1e-10)
    fewer = model.condition_on_observations(new_X, Y[0, 0])  # the same outcomes for all batches of points
    assert fewer.batch_shape == (3,)
    assert_same(
        fewer, model.condition_on_observations(new_X, Y[0, 0].expand(3, 2, 1)), points(tkwargs, 3, 2), tol=1e-12
    )


@pytest.mark.parametrize("kind", MAPS)
def test_knowledge_gradient_of_the_exact_gp(tkwargs, kind):
    candidates = points(tkwargs, 4, 4)
    model = make(tkwargs, kind, nodes=24)
    if kind == "nystrom":  # every point involved is in the dictionary
        Z = torch.cat([model.train_inputs[0], candidates.reshape(-1, 2)])
        model = FeatureGP(
            model.train_inputs[0],
            model.train_targets.unsqueeze(-1),
            NystromMap(Z),
            noise_var=0.3,
            covar_module=model.covar_module,
            mean_module=ZeroMean(),
            outcome_transform=None,
        )
    candidates.requires_grad_()
    values = []
    for m in (model, exact(model)):
        sampler = SobolQMCNormalSampler(torch.Size([3]), seed=0)
        value = qKnowledgeGradient(m, num_fantasies=3, sampler=sampler)(candidates)
        values.append((value, *torch.autograd.grad(value.sum(), candidates)))
    for a, b in zip(*values, strict=True):
        torch.testing.assert_close(a, b, atol=1e-6, rtol=0)
    assert float(values[0][1].abs().max()) > 1e-3


# ---------------------------------------------------------------------------------------------- acquisition


@pytest.mark.parametrize("kind", MAPS)
def test_moments_for_acquisition_functions(tkwargs, kind):
    model = make(tkwargs, kind, nodes=8)
    X, pending = points(tkwargs, 9, 1), points(tkwargs, 2, seed=3)
    mean, variance = marginal_moments(model, X)
    for a, b in zip((mean, variance), moments(model, X), strict=True):
        torch.testing.assert_close(a, b.squeeze(-1), atol=1e-14, rtol=0)
    mean, after = marginal_moments(model, X, X_pending=pending)
    assert ((after < variance) & (after > 0)).all()
    if kind == "nystrom":  # hallucinated observations also tell about what the features miss of k
        return
    hallucinated = model.condition_on_observations(pending, model.posterior(pending).mean)
    torch.testing.assert_close(mean, moments(hallucinated, X)[0].squeeze(-1), atol=1e-8, rtol=0)
    torch.testing.assert_close(after, moments(hallucinated, X)[1].squeeze(-1), atol=1e-8, rtol=0)
    mean, variance = sequential_moments(model, torch.cat([pending, X[0]]))
    torch.testing.assert_close(variance[-1:], moments(hallucinated, X[0])[1].squeeze(-1), atol=1e-8, rtol=0)
    batch = model.condition_on_observations(pending, torch.stack([rewards(pending, s) for s in range(3)]))
    assert marginal_moments(batch, X.unsqueeze(-3))[0].shape == (9, 3, 1)


def test_stock_analytic_acquisition_keeps_the_cache(tkwargs):
    model = make(tkwargs, nodes=6)
    acqf = PosteriorMean(model)  # moves the model to X on every call
    acqf(points(tkwargs, 2, 1))
    cache = model._cache
    acqf(points(tkwargs, 2, 1))
    assert cache is not None
    assert model._cache is cache


# ---------------------------------------------------------------------------------------------- module


@pytest.mark.parametrize("kind", MAPS)
def test_state_dict_holds_a_fixed_noise_and_fits_transformed_outcomes(tkwargs, kind):
    fixed, other = make(tkwargs, kind, noise_var=0.7), make(tkwargs, kind, noise_var=0.2)
    other.load_state_dict(fixed.state_dict())
    assert other.likelihood.noise.item() == 0.7
    scaled = [make(tkwargs, kind, noise_var=None, outcome_transform=Standardize(m=1)) for _ in range(2)]
    scaled[0].likelihood.noise = 0.1
    scaled[1].load_state_dict(scaled[0].state_dict())
    assert_same(*scaled, points(tkwargs, 4), tol=1e-12)


def test_setting_train_data(tkwargs):
    model, other = make(tkwargs, nodes=6), make(tkwargs, n=15, nodes=6)
    model.posterior(points(tkwargs, 1))
    model.set_train_data(other.train_inputs[0], other.train_targets, strict=False)
    assert_same(model, other, points(tkwargs, 4), tol=0.0)
    model.set_train_data((other.train_inputs[0],), 2.0 * other.train_targets)
    torch.testing.assert_close(moments(model, points(tkwargs, 4))[0], 2.0 * moments(other, points(tkwargs, 4))[0])
    with pytest.raises(ValueError, match=r"targets are .* pass strict=False"):
        model.set_train_data(targets=torch.ones(3, **tkwargs))
    with pytest.raises(ValueError, match="targets has 15 NaN"):
        model.set_train_data(targets=torch.full((15,), math.nan, **tkwargs))


def test_construct_inputs(tkwargs):
    X = points(tkwargs, 5)
    names = {"feature_names": ["a", "b"], "outcome_names": ["y"]}
    data = SupervisedDataset(X, rewards(X), **names)
    noisy = SupervisedDataset(X, rewards(X), Yvar=torch.full((5, 1), 0.1, **tkwargs), **names)
    chosen = FourierMap(4)
    assert FeatureGP.construct_inputs(data, chosen).keys() == {"train_X", "train_Y", "features"}
    inputs = FeatureGP.construct_inputs(noisy, chosen, task_feature=0, categorical_features={0: 2})
    assert inputs["features"] is chosen
    noise = FeatureGP(**inputs).likelihood.noise.item()  # of standardised rewards
    assert noise == pytest.approx(0.1 / float(rewards(X).var()))
    assert FeatureGP.construct_inputs(noisy, {"kind": "fourier", "nodes": 4}, noise_var=0.5)["noise_var"] == 0.5
    inputs = FeatureGP.construct_inputs(data, {"kind": "nystrom", "inducing_points": X.tolist()})
    torch.testing.assert_close(FeatureGP(**inputs).features.inducing_points, X)
    differing = SupervisedDataset(X, rewards(X), Yvar=torch.rand(5, 1, **tkwargs), **names)
    with pytest.raises(ValueError, match="one noise variance for all observations; pass noise_var"):
        FeatureGP.construct_inputs(differing, chosen)
