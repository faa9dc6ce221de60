"""The posterior in a learnt scale, against hand-computed moments, quadrature and what SingleTaskGP's offers."""

import math

import pytest
import torch
from botorch.acquisition.joint_entropy_search import qJointEntropySearch
from botorch.acquisition.knowledge_gradient import qKnowledgeGradient
from botorch.acquisition.logei import qLogNoisyExpectedImprovement
from botorch.acquisition.max_value_entropy_search import qMaxValueEntropy
from botorch.acquisition.objective import ExpectationPosteriorTransform, LinearMCObjective, ScalarizedPosteriorTransform
from botorch.acquisition.risk_measures import VaR
from botorch.acquisition.utils import get_optimal_samples
from botorch.models import ModelListGP
from botorch.models.transforms.input import InputPerturbation
from botorch.posteriors import GPyTorchPosterior
from gpytorch.distributions import MultivariateNormal
from torch import Tensor

from bo_robust import RobustGP, ValueAtRiskUCB
from bo_robust.acquisition import recommend_design
from bo_robust.models.moments import marginal_quantiles
from bo_robust.models.robust.outcome_scale import OutcomeScale
from bo_robust.models.robust.posterior import ScaledPosterior
from bo_robust.risk_measures.environments import FiniteEnvironment
from bo_robust.risk_measures.functionals import CVaR, Mean, ValueAtRisk, WorstCase
from tests.problems import fit

LOGARITHM, LOGIT = OutcomeScale(0.0, 1.0, 0.3), OutcomeScale(0.0, 1.0, 0.0, 100.0)
SCALES = [LOGARITHM, OutcomeScale(0.0, -1.0, 0.3), OutcomeScale(0.5), OutcomeScale(0.25, -1.0), LOGIT]


def latent() -> GPyTorchPosterior:
    """A Gaussian posterior of w at three points."""
    mean = torch.tensor([0.3, 1.0, 2.0], dtype=torch.float64)
    covariance = torch.tensor([[0.5, 0.3, -0.1], [0.3, 0.8, 0.0], [-0.1, 0.0, 0.2]], dtype=torch.float64)
    return GPyTorchPosterior(MultivariateNormal(mean, covariance))


def test_moments_of_a_logarithm_by_hand():
    """E y = exp(m + s^2 / 2) - shift and Cov = E u_i E u_j (exp C_ij - 1)."""
    found = ScaledPosterior(latent(), LOGARITHM)
    u = [math.exp(0.3 + 0.25), math.exp(1.0 + 0.4), math.exp(2.0 + 0.1)]
    torch.testing.assert_close(found.mean.flatten(), torch.tensor(u, dtype=torch.float64) - 0.3)
    covariance = found.distribution.covariance_matrix
    assert float(covariance[0, 1]) == pytest.approx(u[0] * u[1] * math.expm1(0.3))
    assert float(covariance[2, 2]) == pytest.approx(u[2] ** 2 * math.expm1(0.2))
    assert float(found.variance[2]) == pytest.approx(u[2] ** 2 * math.expm1(0.2))


def test_moments_of_a_square_root_by_hand():
    """y = w^2 / 4 has E y = (m^2 + s^2) / 4 and Cov = (4 m_i m_j C_ij + 2 C_ij^2) / 16, where w is surely positive."""
    mean = torch.tensor([20.0, 30.0], dtype=torch.float64)
    C = torch.tensor([[0.5, 0.3], [0.3, 0.8]], dtype=torch.float64)
    found = ScaledPosterior(GPyTorchPosterior(MultivariateNormal(mean, C)), OutcomeScale(0.5))
    torch.testing.assert_close(found.mean.flatten(), (mean.square() + C.diagonal()) / 4.0)
    expected = (4.0 * mean.unsqueeze(1) * mean * C + 2.0 * C.square()) / 16.0
    torch.testing.assert_close(found.distribution.covariance_matrix, expected)


@pytest.mark.parametrize("scale", SCALES, ids=str)
def test_moments_are_those_of_exact_samples(scale):
    torch.manual_seed(0)
    found = ScaledPosterior(latent(), scale)
    samples = found.rsample(torch.Size([400_000])).squeeze(-1)
    torch.testing.assert_close(found.mean.flatten(), samples.mean(0), rtol=0.01, atol=0.0)
    covariance, sampled = found.distribution.covariance_matrix, torch.cov(samples.mT)
    size = sampled.diagonal().sqrt()
    assert float(((covariance - sampled) / (size * size.unsqueeze(1))).abs().max()) < 0.03
    torch.testing.assert_close(found.variance.flatten(), covariance.diagonal(), rtol=1e-4, atol=0.0)
    assert float(torch.linalg.eigvalsh(covariance).min()) > 0.0


@pytest.mark.parametrize("scale", SCALES, ids=str)
def test_quantiles_and_densities_are_exact(scale):
    found = ScaledPosterior(latent(), scale)
    levels = torch.linspace(0.001, 0.999, 999, dtype=torch.float64)
    y = found.quantile(levels)[:, 1, 0]
    torch.testing.assert_close(y, scale.untransform(latent().quantile(levels)[:, 1, 0]))
    slope = (levels[2:] - levels[:-2]) / (y[2:] - y[:-2])  # of the distribution function
    middle = slice(300, 900)
    torch.testing.assert_close(found.density(y)[1:-1, 1, 0][middle], slope[middle], rtol=1e-3, atol=0.0)
    if scale.power == 0.0:
        assert float(found.density(torch.tensor(-0.3 * scale.sign if scale.upper > 1e9 else -1.0))[1, 0]) == 0.0


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_gradients_pass_through_the_moments(dtype):
    m = torch.tensor([0.3, 1.0], dtype=dtype, requires_grad=True)
    C = torch.tensor([[0.5, 0.2], [0.2, 0.4]], dtype=dtype)
    for scale in SCALES:
        found = ScaledPosterior(GPyTorchPosterior(MultivariateNormal(m, C)), scale)
        assert found.dtype == dtype
        (slope,) = torch.autograd.grad(found.mean.sum() + found.distribution.covariance_matrix.sum(), m)
        assert bool(slope.isfinite().all())


def skewed() -> tuple[Tensor, Tensor]:
    draws = torch.Generator().manual_seed(2)
    X = torch.rand(24, 2, generator=draws, dtype=torch.float64)
    noise = 0.1 * torch.randn(24, 1, generator=draws, dtype=torch.float64)
    return X, (4.0 * torch.sin(4.0 * X[:, :1]) + 3.0 * X[:, 1:] + noise).exp()


@pytest.fixture(scope="module")
def model():
    model = fit(RobustGP(*skewed()))
    assert not model.outcome_scale.is_identity
    return model


BOX = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=torch.float64)
HALF = torch.tensor([0.5, 0.5], dtype=torch.float64)


@pytest.mark.parametrize(
    "use",
    [
        lambda m, X: m.posterior(X[:2]).quantile(HALF),
        lambda m, X: torch.stack(m.posterior(X[:2]).mvn.confidence_region()),
        lambda m, X: m.posterior(X[:4], posterior_transform=ExpectationPosteriorTransform(2)).mean,
        lambda m, X: qMaxValueEntropy(m, X)(X[:1].unsqueeze(1)),
        lambda m, X: qJointEntropySearch(m, *get_optimal_samples(m, BOX, 2))(X[:1].unsqueeze(1)),
        lambda m, X: (
            ModelListGP(m, m).posterior(X[:2], posterior_transform=ScalarizedPosteriorTransform(HALF)).variance
        ),
        lambda m, X: qKnowledgeGradient(ModelListGP(m, m), num_fantasies=2, objective=LinearMCObjective(HALF))(
            X[:3].unsqueeze(0)
        ),
    ],
    ids=["quantile", "mvn", "expectation", "qMES", "qJES", "weighted sum", "qKG of a list"],
)
def test_it_serves_where_single_task_gp_does(model, use):
    torch.manual_seed(0)
    assert bool(use(model, model.train_X_all).isfinite().all())


def test_risk_measures_over_perturbed_designs_work():
    X, Y = skewed()
    perturbed = InputPerturbation(0.05 * torch.randn(4, 2, generator=torch.Generator().manual_seed(0)).double())
    model = fit(RobustGP(X, Y, input_transform=perturbed))
    acquisition = qLogNoisyExpectedImprovement(model, X, objective=VaR(alpha=0.5, n_w=4), prune_baseline=False)
    assert bool(acquisition(X[:1].unsqueeze(0)).isfinite().all())


def test_quantiles_of_a_model_are_those_of_its_posterior(model):
    """Also of -f; points under evaluation leave the median, and bring the others nearer."""
    X = torch.rand(5, 2, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    low, median, high = marginal_quantiles(model, X, (-1.96, 0.0, 1.96))
    exact = model.posterior(X).quantile(torch.tensor([0.025, 0.5, 0.975]).double()).squeeze(-1)
    torch.testing.assert_close(torch.stack([low, median, high]), exact, rtol=1e-4, atol=0.0)
    turn = ScalarizedPosteriorTransform(torch.tensor([-1.0]).double())
    ends = marginal_quantiles(model, X, (1.96, 0.0, -1.96), posterior_transform=turn, X_pending=BOX)
    torch.testing.assert_close(-ends[1], median)
    assert bool(((low < -ends[0]) & (-ends[2] < high)).all())


@pytest.mark.parametrize("functional", [ValueAtRisk(0.4), WorstCase(), Mean(), CVaR(0.4)])
def test_a_value_at_risk_is_that_of_the_learnt_scale(model, functional):
    """A monotone scale commutes with a value at risk, of which it takes medians; of others the model takes means."""
    environment = FiniteEnvironment(torch.tensor([[0.1], [0.5], [0.9]]).double())
    designs = model.train_X_all[:, :1]
    found = recommend_design(model, environment, functional, designs)
    posteriors = [model.posterior(environment.points(x)) for x in designs]
    values = [model.outcome_scale.untransform(functional(one.latent.mean.squeeze(-1))) for one in posteriors]
    if not functional.selects:
        values = [functional(one.mean.squeeze(-1)) for one in posteriors]
    assert int(found.index) == int(torch.stack(values).argmax())
    assert float(found.value) == pytest.approx(max(values).item())
    ends = posteriors[int(found.index)].quantile(torch.tensor([0.025, 0.975]).double()).squeeze(-1)
    torch.testing.assert_close(torch.stack(found.interval), functional(ends), rtol=1e-4, atol=0.0)
    bounds = ValueAtRiskUCB(model, environment, functional, width=1.96)
    assert bounds(found.x.unsqueeze(0)).item() == pytest.approx(float(found.interval[1]))


def test_expected_improvement_sees_exact_samples(model):
    """Samples of a cached root would be Gaussian: below the domain of the logarithm, for one."""
    X = model.train_X_all
    acquisition = qLogNoisyExpectedImprovement(model, X)
    assert not acquisition._cache_root
    far = torch.tensor([[[0.0, 0.0]]], dtype=torch.float64)
    samples, _ = acquisition._get_samples_and_objectives(far)
    assert bool((samples > 0.0).all())
    assert not qLogNoisyExpectedImprovement(model.to_standard_model(), X)._cache_root
    assert qLogNoisyExpectedImprovement(fit(RobustGP(X, X[:, :1])), X)._cache_root
