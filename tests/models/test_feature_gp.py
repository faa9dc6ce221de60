import copy
import io
import math
import pickle
import warnings

import pytest
import torch
from botorch.acquisition import (
    PosteriorMean,
    UpperConfidenceBound,
    qKnowledgeGradient,
    qLogNoisyExpectedImprovement,
    qUpperConfidenceBound,
)
from botorch.acquisition.objective import ScalarizedPosteriorTransform
from botorch.exceptions.warnings import InputDataWarning
from botorch.fit import fit_gpytorch_mll
from botorch.models import ModelListGP, SingleTaskGP
from botorch.models.transforms.input import Normalize
from botorch.models.transforms.outcome import Standardize
from botorch.optim import optimize_acqf, optimize_acqf_discrete, optimize_acqf_mixed
from botorch.sampling import IIDNormalSampler, SobolQMCNormalSampler
from botorch.utils.datasets import SupervisedDataset
from gpytorch.kernels import MaternKernel, RBFKernel, ScaleKernel
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood, GaussianLikelihood
from gpytorch.means import ZeroMean
from gpytorch.mlls import ExactMarginalLogLikelihood, SumMarginalLogLikelihood
from linear_operator.operators import DiagLinearOperator

from bo_robust.acquisition import GPUCB
from bo_robust.confidence import ConstantWidth, FiniteWidth, SelfNormalisedWidth
from bo_robust.models import FeatureGP, FourierMap, NystromMap, information_gain, marginal_moments, sequential_moments

MAPS = ["fourier", "nystrom"]

pytestmark = [
    pytest.mark.filterwarnings("ignore:Data .outcome observations. is not standardized"),
    pytest.mark.filterwarnings("ignore:Non-strict enforcement of botorch tensor conventions"),
]


def points(tkwargs, *shape, seed=7):
    return torch.rand(*shape, 2, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(**tkwargs)


def rewards(X, seed=0):
    noise = torch.randn(*X.shape[:-1], 1, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return torch.sin(5.0 * X[..., :1]) * torch.cos(3.0 * X[..., 1:]) + 0.3 * noise.to(X)


def rbf(tkwargs, lengthscale=0.5):
    kernel = RBFKernel().to(**tkwargs)
    kernel.lengthscale = torch.tensor(lengthscale, **tkwargs)  # a plain number is rounded to float32
    return kernel


def make(tkwargs, kind="fourier", n=12, nodes=16, **kwargs):
    X = kwargs.pop("X") if "X" in kwargs else points(tkwargs, n, seed=1)
    kwargs.setdefault("covar_module", rbf(tkwargs) if kind == "fourier" else ScaleKernel(MaternKernel(2.5)))
    if "likelihood" not in kwargs:
        kwargs.setdefault("noise_var", 0.3)
    Z = points(tkwargs, 8, seed=2)
    return FeatureGP(X, rewards(X), FourierMap(nodes) if kind == "fourier" else NystromMap(Z), **kwargs)


def exact(model, **kwargs):
    """The exact GP with the data and hyperparameters of the model."""
    Y = model.train_targets.unsqueeze(-1)
    noise = torch.full_like(Y, float(model.likelihood.noise))
    kwargs = {"covar_module": model.covar_module, "mean_module": ZeroMean(), "outcome_transform": None} | kwargs
    return SingleTaskGP(model.train_inputs[0], Y, noise, **kwargs)


def moments(model, X):
    posterior = model.posterior(X)
    return posterior.mean.detach(), posterior.variance.detach()


def assert_same(model, other, X, tol=1e-9):
    for a, b in zip(moments(model, X), moments(other, X), strict=True):
        torch.testing.assert_close(a, b, atol=tol, rtol=0)


def mll_of(model):
    return ExactMarginalLogLikelihood(model.likelihood, model)


# ---------------------------------------------------------------------------------------------- the posterior


def test_enough_nodes_give_the_exact_gp(tkwargs):
    for covar_module in (rbf(tkwargs), ScaleKernel(rbf(tkwargs)), RBFKernel(ard_num_dims=2)):
        model = make(tkwargs, nodes=24, covar_module=covar_module)
        gp = exact(model)
        for X in (points(tkwargs, 7), points(tkwargs, 4, 3), points(tkwargs, 5, 2, 1)):
            assert_same(model, gp, X)
        covariance = model.posterior(points(tkwargs, 4, 3)).distribution.covariance_matrix
        other = gp.posterior(points(tkwargs, 4, 3)).distribution.covariance_matrix
        torch.testing.assert_close(covariance, other, atol=1e-9, rtol=0)
        torch.testing.assert_close(model.information_gain, information_gain(gp), atol=1e-9, rtol=0)


def test_all_points_in_the_dictionary_give_the_exact_gp(tkwargs):
    X = points(tkwargs, 12, seed=1)
    model = FeatureGP(X, rewards(X), NystromMap(X), noise_var=0.3, covar_module=MaternKernel(2.5))
    gp = exact(model)
    for test_X in (points(tkwargs, 7), points(tkwargs, 4, 3), points(tkwargs, 5, 2, 1)):
        assert_same(model, gp, test_X)
    covariance = model.posterior(points(tkwargs, 4, 3)).distribution.covariance_matrix
    other = gp.posterior(points(tkwargs, 4, 3)).distribution.covariance_matrix
    torch.testing.assert_close(covariance, other, atol=1e-9, rtol=0)
    torch.testing.assert_close(model.information_gain, information_gain(gp), atol=1e-9, rtol=0)


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
    monkeypatch.setattr("bo_robust.models.feature_posterior.CPU_BLOCK", 4)
    monkeypatch.setattr("bo_robust.models.feature_posterior.CUDA_BLOCK", 4)
    posterior = model.posterior(X)
    assert isinstance(posterior.distribution.lazy_covariance_matrix, DiagLinearOperator)
    for a, b in zip(whole, (posterior.mean, posterior.variance), strict=True):
        torch.testing.assert_close(a, b, atol=1e-13, rtol=0)


@pytest.mark.parametrize("kind", MAPS)
def test_noise_and_posterior_transform(tkwargs, kind):
    model = make(tkwargs, kind)
    double = ScalarizedPosteriorTransform(torch.tensor([-2.0], **tkwargs))
    for X in (points(tkwargs, 4), points(tkwargs, 6, 1)):
        clean, noisy = model.posterior(X), model.posterior(X, observation_noise=True)
        torch.testing.assert_close(noisy.variance, clean.variance + 0.3)
        noise = torch.linspace(0.1, 0.4, X.shape[-2], **tkwargs).unsqueeze(-1)
        given = model.posterior(X, observation_noise=noise)
        torch.testing.assert_close(given.variance, clean.variance + noise)
        scaled = model.posterior(X, posterior_transform=double)
        torch.testing.assert_close(scaled.mean, -2.0 * clean.mean)
        torch.testing.assert_close(scaled.variance, 4.0 * clean.variance)
        assert IIDNormalSampler(torch.Size([3]))(clean).shape == (3, *X.shape[:-1], 1)


@pytest.mark.parametrize("kind", MAPS)
def test_gradients_in_the_points(tkwargs, kind):
    model = make(tkwargs, kind, nodes=6, covar_module=rbf(tkwargs))

    def joint(X):
        posterior = model.posterior(X)
        return posterior.mean, posterior.distribution.covariance_matrix

    def single(X):
        posterior = model.posterior(X)
        return posterior.mean, posterior.variance

    assert torch.autograd.gradcheck(joint, points(tkwargs, 2, 3).requires_grad_())
    assert torch.autograd.gradcheck(single, points(tkwargs, 4, 1).requires_grad_())


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
    model = make(tkwargs, kind, outcome_transform=Standardize(m=1))
    X = model.train_inputs[0]
    y = rewards(X)
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
    fit_gpytorch_mll(mll_of(model), optimizer_kwargs={"options": {"maxiter": 2}})
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
    mll = mll_of(model)  # no priors here: SingleTaskGP's convention, -evidence / n
    torch.testing.assert_close(model.compute_custom_loss(mll), -mll(prior, model.train_targets), atol=1e-9, rtol=0)
    gradients = []
    for loss in (model.compute_custom_loss(mll), -mll(model(model.train_inputs[0]), model.train_targets)):
        model.zero_grad()
        loss.backward()
        gradients.append(torch.cat([p.grad.flatten() for p in model.parameters()]))
    torch.testing.assert_close(*gradients, atol=1e-7, rtol=0)


def test_evidence_at_many_nodes_is_the_exact_one_with_priors(tkwargs):
    model = make(tkwargs, nodes=24, noise_var=None, covar_module=None)
    model.covar_module.lengthscale = torch.tensor([0.5, 0.7], **tkwargs)
    gp = SingleTaskGP(
        model.train_inputs[0],
        model.train_targets.unsqueeze(-1),
        likelihood=model.likelihood,
        covar_module=model.covar_module,
        mean_module=ZeroMean(),
        outcome_transform=None,
    )
    gp.train()
    mll = mll_of(gp)
    expected = -mll(gp(gp.train_inputs[0]), gp.train_targets)
    model.train()
    assert len(list(model.named_priors())) == 2
    torch.testing.assert_close(model.compute_custom_loss(mll_of(model)), expected, atol=1e-9, rtol=0)


@pytest.mark.parametrize("kind", MAPS)
def test_fitting_recovers_lengthscale_and_noise(tkwargs, kind):
    g = torch.Generator().manual_seed(0)
    X = torch.rand(400, 1, generator=g, dtype=torch.float64)
    truth = RBFKernel().double()
    truth.lengthscale = torch.tensor(0.2, dtype=torch.float64)
    root = torch.linalg.cholesky(truth(X).to_dense() + 1e-9 * torch.eye(400)).detach()
    Y = root @ torch.randn(400, 1, generator=g, dtype=torch.float64)
    Y = Y + 0.3 * torch.randn(400, 1, generator=g, dtype=torch.float64)
    Z = torch.linspace(0.0, 1.0, 15, dtype=torch.float64).unsqueeze(-1)
    features = FourierMap(48) if kind == "fourier" else NystromMap(Z)
    model = FeatureGP(X.to(**tkwargs), Y.to(**tkwargs), features)
    before = model.log_evidence().item()
    fit_gpytorch_mll(mll_of(model))
    assert not model.training
    assert model.log_evidence().item() > before + 1.0
    assert model.covar_module.lengthscale.item() == pytest.approx(0.2, rel=0.35)
    assert model.likelihood.noise.item() == pytest.approx(0.09, rel=0.25)


def test_a_fixed_noise_variance_stays(tkwargs):
    model = make(tkwargs, noise_var=0.123)
    fit_gpytorch_mll(mll_of(model))
    assert float(model.likelihood.noise) == 0.123
    assert model.covar_module.lengthscale.item() != pytest.approx(0.5, abs=1e-3)


# ---------------------------------------------------------------------------------------------- new observations


@pytest.mark.parametrize("kind", MAPS)
def test_conditioning_equals_construction_on_all_data(tkwargs, kind):
    whole = make(tkwargs, kind, n=20)
    X, Y = whole.train_inputs[0], whole.train_targets.unsqueeze(-1)
    part = make(tkwargs, kind, X=X[:12])
    part.set_train_data(targets=Y[:12, 0])
    grown = part.condition_on_observations(X[12:17], Y[12:17]).condition_on_observations(X[17:], Y[17:])
    assert isinstance(grown, FeatureGP)
    assert_same(grown, whole, points(tkwargs, 6, 3))
    assert_same(grown, whole, points(tkwargs, 6, 1))
    torch.testing.assert_close(grown.information_gain, whole.information_gain, atol=1e-9, rtol=0)
    assert torch.equal(grown.train_inputs[0], X)
    assert torch.equal(grown.train_targets, Y[:, 0])
    assert part.train_targets.shape == (12,)
    grown.train()
    assert_same(grown, whole, points(tkwargs, 6, 3))  # again from the data


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
def test_fantasies_and_look_ahead(tkwargs, kind):
    model, X = make(tkwargs, kind, nodes=8), points(tkwargs, 3, 2)
    fantasies = model.fantasize(X, SobolQMCNormalSampler(torch.Size([5]), seed=0))
    assert fantasies.train_targets.shape == (5, 3, 14)
    assert fantasies.posterior(points(tkwargs, 4)).mean.shape == (5, 3, 4, 1)
    twice = fantasies.fantasize(points(tkwargs, 3, 1, seed=3), SobolQMCNormalSampler(torch.Size([2]), seed=0))
    assert twice.batch_shape == (2, 5, 3)
    nothing = model.fantasize(points(tkwargs, 3, 0), SobolQMCNormalSampler(torch.Size([2]), seed=0))
    assert_same(nothing, model.condition_on_observations(X[:, :0], X[:, :0, :1].expand(2, 3, 0, 1)), X, tol=1e-12)


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


def test_conditioning_refuses_bad_data(tkwargs):
    model = make(tkwargs, nodes=6)
    X, Y = points(tkwargs, 2), torch.ones(2, 1, **tkwargs)
    for bad in (math.nan, math.inf):
        with pytest.raises(ValueError, match="Y has 1 NaN"):
            model.condition_on_observations(X, torch.tensor([[1.0], [bad]], **tkwargs))
        with pytest.raises(ValueError, match="X has 1 NaN"):
            model.condition_on_observations(torch.tensor([[0.1, 0.2], [0.1, bad]], **tkwargs), Y)
    with pytest.raises(ValueError, match="n' x 1"):
        model.condition_on_observations(X, torch.ones(2, 2, **tkwargs))
    with pytest.raises(ValueError, match="outside the box"):
        model.condition_on_observations(X + 1.0, Y)
    with pytest.raises(ValueError, match="noise cannot be given"):
        model.condition_on_observations(X, Y, noise=Y)
    with pytest.warns(InputDataWarning), pytest.raises(ValueError, match=r"float32.*float64"):
        model.condition_on_observations(X.float(), Y.float())


# ---------------------------------------------------------------------------------------------- acquisition


@pytest.mark.parametrize("kind", MAPS)
def test_optimisers(tkwargs, kind):
    torch.manual_seed(0)
    model = make(tkwargs, kind, nodes=6)
    bounds = torch.tensor([[0.0, 0.0], [1.0, 1.0]], **tkwargs)
    options = {"num_restarts": 2, "raw_samples": 16, "options": {"maxiter": 8}}
    sampler = SobolQMCNormalSampler(torch.Size([8]), seed=0)
    for acqf in (
        GPUCB(model, SelfNormalisedWidth(norm_bound=1.0, noise_scale=0.5, delta=0.1)),
        qUpperConfidenceBound(model, beta=4.0, sampler=sampler),
        qLogNoisyExpectedImprovement(model, model.train_inputs[0], sampler=sampler),
    ):
        x, value = optimize_acqf(acqf, bounds, q=1, **options)
        assert float(value) >= float(acqf(points(tkwargs, 64, 1)).detach().max()) - 0.05
        batch, _ = optimize_acqf(acqf, bounds, q=3, sequential=True, **options)
        assert batch.shape == (3, 2)
        assert float(torch.pdist(batch).min()) > 1e-3
        arms = points(tkwargs, 50)
        chosen, values = optimize_acqf_discrete(acqf, q=3, choices=arms)
        assert chosen.unique(dim=0).shape == (3, 2)
        mixed, _ = optimize_acqf_mixed(acqf, bounds, q=2, fixed_features_list=[{0: 0.25}, {0: 0.75}], **options)
        assert set(mixed[:, 0].tolist()) <= {0.25, 0.75}
        assert ((x >= 0) & (x <= 1)).all()
        assert values.shape == (3,)


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


def test_widths_get_the_information_gain_and_the_round(tkwargs):
    model = make(tkwargs, nodes=6)
    width = SelfNormalisedWidth(norm_bound=1.0, noise_scale=0.5, delta=0.1)
    expected = width(13, information_gain=float(model.information_gain))
    assert float(GPUCB(model, width).width) == pytest.approx(expected, abs=1e-12)
    assert float(GPUCB(model, FiniteWidth(100, 0.1)).width) == pytest.approx(float(FiniteWidth(100, 0.1)(13)))
    X = points(tkwargs, 5, 1)
    acqf, stock = GPUCB(model, ConstantWidth(2.0)), UpperConfidenceBound(model, beta=4.0)
    torch.testing.assert_close(acqf(X), stock(X))


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
def test_member_of_a_model_list(tkwargs, kind):
    model, X = make(tkwargs, kind, nodes=6, noise_var=None), points(tkwargs, 4)
    plain = SingleTaskGP(model.train_inputs[0], model.train_targets.unsqueeze(-1))
    both = ModelListGP(model, plain)
    torch.testing.assert_close(both.posterior(X).mean[:, :1], model.posterior(X).mean)
    torch.testing.assert_close(both.posterior(X).variance[:, 1:], plain.posterior(X).variance)
    fantasies = both.fantasize(X, SobolQMCNormalSampler(torch.Size([3]), seed=0))
    assert fantasies.models[0].train_targets.shape == (3, 16)
    grown = both.condition_on_observations([X, X], torch.ones(4, 2, **tkwargs)).models[0]
    assert_same(grown, model.condition_on_observations(X, torch.ones(4, 1, **tkwargs)), X, tol=1e-12)
    assert both.subset_output([0]) is model
    assert model.subset_output([0]) is model
    assert model.subset_output([-1]) is model
    with pytest.raises(ValueError, match="one output"):
        model.subset_output([1])
    before = model.posterior(X).mean
    state = copy.deepcopy(both.state_dict())
    mll = SumMarginalLogLikelihood(both.likelihood, both)
    fit_gpytorch_mll(mll, optimizer_kwargs={"options": {"maxiter": 3}})
    assert not torch.equal(model.posterior(X).mean, before)
    both.load_state_dict(state)
    torch.testing.assert_close(model.posterior(X).mean, before, atol=1e-12, rtol=0)


@pytest.mark.parametrize("copier", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
@pytest.mark.parametrize("kind", MAPS)
def test_copies(tkwargs, copier, kind):
    bounds = torch.tensor([[0.0, 0.0], [2.0, 3.0]], **tkwargs)
    model = make(tkwargs, kind, nodes=6, input_transform=Normalize(d=2, bounds=bounds))
    model.posterior(points(tkwargs, 1))
    copied, X = copier(model), points(tkwargs, 2)
    assert_same(copied, model, X, tol=0.0)
    grown = [m.condition_on_observations(X, rewards(X)) for m in (copied, model)]
    assert_same(*grown, X, tol=1e-12)
    assert_same(copier(grown[0]), grown[1], X, tol=1e-12)
    copied.likelihood.noise = 0.9
    copied.train()
    assert not torch.equal(moments(copied, X)[0], moments(model, X)[0])


@pytest.mark.parametrize("kind", MAPS)
def test_state_dict(tkwargs, kind):
    fitted, X = make(tkwargs, kind, nodes=6, noise_var=None), points(tkwargs, 4)
    base = fitted.covar_module if kind == "fourier" else fitted.covar_module.base_kernel
    base.lengthscale = 0.6
    fitted.likelihood.noise = 0.456
    fresh = make(tkwargs, kind, nodes=6, noise_var=None)
    assert float((moments(fresh, X)[0] - moments(fitted, X)[0]).abs().max()) > 1e-3
    fresh.load_state_dict(fitted.state_dict())
    assert_same(fresh, fitted, X, tol=0.0)
    longer = make(tkwargs, kind, n=15, nodes=8, noise_var=None)  # other data, other features
    longer.load_state_dict(fitted.state_dict())
    assert longer.likelihood.noise.item() == pytest.approx(0.456)
    fixed, other = make(tkwargs, kind, noise_var=0.7), make(tkwargs, kind, noise_var=0.2)
    other.load_state_dict(fixed.state_dict())
    assert other.likelihood.noise.item() == 0.7
    scaled = [make(tkwargs, kind, noise_var=None, outcome_transform=Standardize(m=1)) for _ in range(2)]
    scaled[0].likelihood.noise = 0.1
    scaled[1].load_state_dict(scaled[0].state_dict())
    assert_same(*scaled, X, tol=1e-12)
    file = io.BytesIO()
    torch.save(fitted, file)
    file.seek(0)
    assert_same(torch.load(file, weights_only=False), fitted, X, tol=0.0)


@pytest.mark.parametrize("kind", MAPS)
def test_moving_to_float32_and_back(tkwargs, kind):
    bounds = torch.tensor([[0.0, 0.0], [2.0, 3.0]], **tkwargs)
    model = make(tkwargs, kind, nodes=6, input_transform=Normalize(d=2, bounds=bounds))
    X = points(tkwargs, 4)
    before = moments(model, X)
    model.to(torch.float32)
    for a, b in zip(moments(model, X.float()), before, strict=True):
        assert a.dtype == torch.float32
        torch.testing.assert_close(a.double(), b, atol=1e-3, rtol=0)
    model.train()
    assert model.train_inputs[0].dtype == torch.float32
    model.double()
    for a, b in zip(moments(model, X), before, strict=True):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=0)
    with pytest.raises(ValueError, match=r"X is torch.float32.*convert"):
        model.posterior(X.float())


def test_float32_construction(device):
    tkwargs = {"dtype": torch.float32, "device": device}
    double = {"dtype": torch.float64, "device": device}
    for kind in MAPS:
        with pytest.warns(InputDataWarning):
            single = make(tkwargs, kind, nodes=6)
        for a, b in zip(
            moments(single, points(tkwargs, 5)), moments(make(double, kind, nodes=6), points(double, 5)), strict=True
        ):
            torch.testing.assert_close(a.double(), b, atol=1e-3, rtol=0)


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
    assert FeatureGP(**inputs).likelihood.noise.item() == 0.1
    assert FeatureGP.construct_inputs(noisy, {"kind": "fourier", "nodes": 4}, noise_var=0.5)["noise_var"] == 0.5
    inputs = FeatureGP.construct_inputs(data, {"kind": "nystrom", "inducing_points": X.tolist()})
    torch.testing.assert_close(FeatureGP(**inputs).features.inducing_points, X)
    differing = SupervisedDataset(X, rewards(X), Yvar=torch.rand(5, 1, **tkwargs), **names)
    with pytest.raises(ValueError, match="one noise variance for all observations; pass noise_var"):
        FeatureGP.construct_inputs(differing, chosen)


def test_bad_arguments_are_refused(tkwargs):
    X, Y = points(tkwargs, 3), torch.tensor([[1.0], [2.0], [3.0]], **tkwargs)

    def refuse(match, X=X, Y=Y, features=None, **kwargs):
        with pytest.raises(ValueError, match=match):
            FeatureGP(X, Y, features or FourierMap(4), **kwargs)

    nan, inf = Y.clone(), X.clone()
    nan[1], inf[0, 0] = math.nan, -math.inf
    refuse("train_Y has 1 NaN", Y=nan)
    refuse("train_X has 1 NaN", X=inf)
    refuse("ModelListGP", Y=Y.expand(3, 2))
    refuse("n x 1", Y=Y.squeeze(-1))
    refuse("n x d", X=X.expand(2, 3, 2), Y=Y.expand(2, 3, 1))
    refuse("n >= 1", X=X[:0], Y=Y[:0])
    refuse("train_Y must be floating point, float32 or float64, got torch.int64", Y=Y.long())
    refuse("features must be FourierMap", features=4)
    refuse("outside the box", X=X + 0.8, covar_module=RBFKernel())
    refuse("noise_var must be", noise_var=0.0)
    refuse("at least 1e-06", noise_var=9e-7)
    refuse("give one of", noise_var=0.1, likelihood=GaussianLikelihood())
    refuse("one noise variance", likelihood=FixedNoiseGaussianLikelihood(torch.ones(3)))
    refuse("one noise variance", likelihood=GaussianLikelihood(batch_shape=torch.Size([2])))
    refuse("no batch shape", covar_module=RBFKernel(batch_shape=torch.Size([2])))
    refuse("use NystromMap", covar_module=MaternKernel())
    with pytest.raises(ValueError, match="outside the box"):
        make(tkwargs, nodes=6).posterior(points(tkwargs, 2) + 1.0)
    for kind in MAPS:
        for bad in (X[:, :1], X.repeat(1, 2), X[0]):
            with pytest.raises(ValueError, match=r"X must be ... x n x 2 like the training points"):
                make(tkwargs, kind, nodes=6).posterior(bad)
