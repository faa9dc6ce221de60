"""Draws of hyperparameters against a dense grid of two of them, and the Gaussian of their mixture."""

import math

import pytest
import torch
from botorch.acquisition import qUpperConfidenceBound
from botorch.models import SingleTaskGP
from botorch.models.transforms.outcome import Standardize
from torch.distributions import MultivariateNormal

from bo_robust.acquisition import GPUCB, StableOpt
from bo_robust.confidence import ConstantWidth
from bo_robust.environments import FiniteEnvironment
from bo_robust.functionals import WorstCase
from bo_robust.models import AveragedGP, CandidateEnsemble, marginal_moments, posterior_candidates
from bo_robust.models import hyperparameter_draws as draws
from tests.worlds import points, rewards

KINDS = [{"kernel": "rbf", "lengthscale": scale, "noise_var": 0.05} for scale in (0.2, 0.5, 1.0)]


def data(tkwargs, n=9, d=1):
    """Points, and rewards of mean 0 and standard deviation 1 as a column."""
    X = points(tkwargs, n, d=d)
    Y = rewards(X)
    return X, (Y - Y.mean()) / Y.std()


def on_a_grid(X, y, at):
    """Posterior means of log lengthscale and log noise variance, and mean and variance of f at points ``m x 1``.

    BoTorch's priors, read from a ``SingleTaskGP``, the evidence of its GP with a standard normal mean, and sums.
    """
    gp = SingleTaskGP(X, y.unsqueeze(-1))
    lengthscale, noise = gp.covar_module.lengthscale_prior, gp.likelihood.noise_covar.noise_prior
    total, sums = 0.0, 0.0
    for a in torch.linspace(math.log(draws.SHORTEST) + 1e-9, 8.0, 80, dtype=torch.float64).tolist():
        K = torch.exp(-0.5 * torch.cdist(X, X).square() / math.exp(2 * a)) + 1.0  # with the prior of the mean
        cross = torch.exp(-0.5 * torch.cdist(X, at).square() / math.exp(2 * a)) + 1.0
        for b in torch.linspace(math.log(draws.LEAST_NOISE) + 1e-9, 0.0, 60, dtype=torch.float64).tolist():
            C = K + math.exp(b) * torch.eye(len(X)).to(X)
            log_density = MultivariateNormal(torch.zeros_like(y), C).log_prob(y)
            for prior, value in ((lengthscale, a), (noise, b)):  # of logarithms
                log_density = log_density + prior.log_prob(torch.tensor(value).exp()) + value
            solved = torch.linalg.solve(C, torch.cat([y.unsqueeze(-1), cross], -1))
            mean, variance = cross.mT @ solved[:, 0], 2.0 - (cross * solved[:, 1:]).sum(0)
            row = torch.cat([mean.new_tensor([a, b, a * a, b * b]), mean, variance + mean.square()])
            total, sums = total + log_density.exp(), sums + log_density.exp() * row
    values = sums / total
    (a, b, aa, bb), (mean, square) = values[:4], values[4:].split(len(at))
    return (a, b), ((aa - a**2).sqrt(), (bb - b**2).sqrt()), mean, square - mean.square()


def test_draws_and_their_mixture_are_those_of_a_dense_grid(tkwargs):
    X, Y = data(tkwargs)
    at = torch.linspace(-0.5, 1.5, 5, **tkwargs).unsqueeze(-1)
    centers, spreads, mean, variance = on_a_grid(X, Y[:, 0], at)
    num = 2048
    lengthscale, noise_var, _ = draws.draw_hyperparameters(X, Y[:, 0], num)
    for drawn, center, spread in zip((lengthscale[:, 0].log(), noise_var.log()), centers, spreads, strict=True):
        assert abs(float(drawn.mean() - center)) < 0.1 * float(spread)  # 6 standard errors of independent draws
        assert float(drawn.std()) == pytest.approx(float(spread), rel=0.1)
    model = AveragedGP(CandidateEnsemble(X, Y, posterior_candidates(X, Y, 512), elimination=None))
    model.ensemble._known_to_draws = model.ensemble.evidence.cpu()  # as "posterior" has it, for more draws
    found = model.posterior(at)
    assert float((found.mean[:, 0] - mean).abs().max()) < 0.1
    torch.testing.assert_close(found.variance[:, 0], variance, rtol=0.15, atol=0.02)


def test_the_evidence_is_that_of_a_gp_with_a_standard_normal_mean(tkwargs):
    X, Y = data(tkwargs, d=3)
    evidence, theta = draws._Evidence(X, Y[:, 0]), torch.randn(5, 4, generator=torch.Generator().manual_seed(0)).to(X)
    lengthscale, noise_var = evidence.hyperparameters(theta)
    for value, scales, noise in zip(evidence(theta), lengthscale, noise_var, strict=True):
        C = torch.exp(-0.5 * torch.cdist(X / scales, X / scales).square()) + 1.0 + noise * torch.eye(len(X)).to(X)
        torch.testing.assert_close(value, MultivariateNormal(torch.zeros_like(Y[:, 0]), C).log_prob(Y[:, 0]))
    gp = SingleTaskGP(X, Y)  # whose priors have these medians
    middle = evidence.hyperparameters(torch.zeros(1, 4).to(X))
    for prior, median in (
        (gp.covar_module.lengthscale_prior, middle[0][0]),
        (gp.likelihood.noise_covar.noise_prior, middle[1]),
    ):
        torch.testing.assert_close(median, prior.loc.exp().to(X).expand_as(median), rtol=1e-6, atol=0)


def test_the_step_of_the_exponent_leaves_half_of_the_particles():
    value = torch.linspace(-50.0, 0.0, 64, dtype=torch.float64)
    step = draws._step(value, 1.0)
    assert float(1.0 / (step * value).softmax(0).square().sum()) == pytest.approx(32.0, rel=1e-4)
    assert draws._step(0.01 * value, 1.0) == 1.0


@pytest.mark.parametrize("n", [0, 1, 2, 130])
def test_few_and_many_rows(n, tkwargs, monkeypatch):
    monkeypatch.setattr(draws, "MOST", 20)
    X, Y = points(tkwargs, n, d=2), rewards(points(tkwargs, n, d=2))
    lengthscale, noise_var, mean = draws.draw_hyperparameters(X, Y[:, 0], 5)
    assert (lengthscale.shape, noise_var.shape, mean.shape) == ((5, 2), (5,), (5,))
    assert bool((lengthscale >= draws.SHORTEST).all() and (noise_var >= draws.LEAST_NOISE).all())
    again = draws.draw_hyperparameters(X, Y[:, 0], 5)
    assert all(torch.equal(a, b) for a, b in zip((lengthscale, noise_var, mean), again, strict=True))


def test_draws_follow_the_units_of_the_rewards(tkwargs):
    X, Y = data(tkwargs, d=2)
    plain = AveragedGP(CandidateEnsemble(X, Y, "posterior", elimination=None)).marginal(X + 0.1)
    for transform, center, scale in ((None, 50.0, 20.0), (Standardize(m=1), 50.0, 20.0), (None, 0.0, 1e-9)):
        rewards = center + scale * Y
        ensemble = CandidateEnsemble(X, rewards, "posterior", elimination=None, outcome_transform=transform)
        mean, variance = AveragedGP(ensemble).marginal(X + 0.1)
        torch.testing.assert_close(((mean - center) / scale, variance / scale**2), plain, atol=1e-6, rtol=0)


def test_weights_are_alike_until_rewards_come_that_were_not_drawn_by(tkwargs):
    X, Y = data(tkwargs, 12, d=2)
    ensemble = CandidateEnsemble(X[:8], Y[:8], "posterior", elimination=None)
    torch.testing.assert_close(ensemble.weights, torch.full((16,), 1 / 16, **tkwargs))
    grown = ensemble.condition_on_observations(X[8:], Y[8:])
    expected = (grown.evidence - ensemble.evidence).softmax(0)
    torch.testing.assert_close(grown.weights, expected)
    assert float(grown.weights.max()) > 0.1
    given = CandidateEnsemble(X, Y, KINDS, elimination=None)
    torch.testing.assert_close(given.weights, given.evidence.softmax(0))


def test_an_average_has_the_moments_of_its_mixture(tkwargs):
    X, Y = data(tkwargs, d=2)
    ensemble = CandidateEnsemble(X, Y, KINDS, elimination=None)
    at, weights = points(tkwargs, 4, 3, seed=1), ensemble.weights
    members = [CandidateEnsemble(X, Y, [kind], elimination=None).posterior(at) for kind in KINDS]
    mean = sum(w * m.mean[:, 0] for w, m in zip(weights, members, strict=True))
    second = sum(
        w * (m.distribution.covariance_matrix[:, 0] + m.mean[:, 0] @ m.mean[:, 0].mT)
        for w, m in zip(weights, members, strict=True)
    )
    posterior = AveragedGP(ensemble).posterior(at)
    torch.testing.assert_close(posterior.mean, mean)
    torch.testing.assert_close(posterior.distribution.covariance_matrix, second - mean @ mean.mT, atol=1e-9, rtol=0)
    torch.testing.assert_close(marginal_moments(AveragedGP(ensemble), at), AveragedGP(ensemble).marginal(at))
    torch.testing.assert_close(AveragedGP(ensemble).marginal(at)[1].unsqueeze(-1), posterior.variance)


def test_acquisitions_of_one_posterior_take_an_average(tkwargs):
    X, Y = data(tkwargs, d=2)
    model, x = AveragedGP(CandidateEnsemble(X, Y, "posterior", elimination=None)), points(tkwargs, 5, 1, seed=2)
    mean, variance = model.marginal(x)
    torch.testing.assert_close(GPUCB(model, ConstantWidth(2.0))(x), (mean + 2.0 * variance.sqrt())[:, 0])
    environment = FiniteEnvironment(torch.linspace(0, 1, 3, **tkwargs).unsqueeze(-1))
    mean, variance = model.marginal(environment.points(x[:, 0, :1]))
    value = WorstCase()(mean + 2.0 * variance.sqrt(), None)
    torch.testing.assert_close(StableOpt(model, environment, 2.0)(x[:, :, :1]), value)
    assert qUpperConfidenceBound(model, 2.0)(x).shape == (5,)


def test_an_average_learns_as_its_ensemble_does(tkwargs):
    X, Y = data(tkwargs)
    at = points(tkwargs, 4, d=1, seed=2)
    model = AveragedGP(CandidateEnsemble(X[:7], Y[:7], KINDS, elimination=None))
    assert model.subset_output([0]) is model
    model.posterior(at)
    later = model.condition_on_observations(X[7:], Y[7:])
    whole = AveragedGP(CandidateEnsemble(X, Y, KINDS, elimination=None))
    torch.testing.assert_close(later.marginal(at), whole.marginal(at))


def test_mistakes_are_told(tkwargs):
    X, Y = data(tkwargs)
    with pytest.raises(ValueError, match="draws have seen the rewards"):
        CandidateEnsemble(X, Y, "posterior", elimination="likelihood")
    with pytest.raises(ValueError, match="takes a CandidateEnsemble, got SingleTaskGP"):
        AveragedGP(SingleTaskGP(X, Y))
