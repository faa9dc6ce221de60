import warnings

import pytest
import torch
from botorch.models.transforms.input import Normalize
from botorch.models.transforms.outcome import Standardize
from botorch.utils.transforms import is_ensemble
from gpytorch.kernels import MaternKernel

from bo_robust.models import Candidate, CandidateEnsemble
from tests.problems import gp_of_candidate, rand

NOISE_VAR = 0.01
KINDS = [
    {"kernel": "rbf", "lengthscale": 0.3, "noise_var": NOISE_VAR},
    {"kernel": "matern", "lengthscale": [0.5, 0.2], "nu": 1.5, "noise_var": 0.02},
    {"kernel": "periodic", "lengthscale": 0.5, "period": 0.4, "noise_var": NOISE_VAR, "outputscale": 0.5},
    {"kernel": "rbf", "lengthscale": 0.3, "noise_var": NOISE_VAR, "groups": [[0], [1]], "name": "additive"},
]


def f(X):
    return torch.sin(5 * X).sum(-1, keepdim=True)


def make(tkwargs, n=12, candidates=KINDS, **options):
    X = rand(tkwargs, n, 2)
    return CandidateEnsemble(X, f(X), candidates, **options)


@pytest.mark.parametrize("index", range(4))
def test_every_member_is_the_exact_gp(tkwargs, index):
    model, X = make(tkwargs), rand(tkwargs, 5, 3, 2, seed=1)
    c, Y = model.candidates[index], model.train_targets.unsqueeze(-1)
    expected = gp_of_candidate(model, index).posterior(X)
    mean, variance = model.member_moments(X)
    assert mean.shape == variance.shape == (5, 4, 3)
    torch.testing.assert_close(mean[:, index], expected.mean.squeeze(-1), atol=1e-9, rtol=1e-9)
    torch.testing.assert_close(variance[:, index], expected.variance.squeeze(-1), atol=1e-9, rtol=1e-9)
    joint = model.member_posterior(X)
    assert joint.mean.shape == (5, 4, 3, 1)
    torch.testing.assert_close(joint.mean[:, index], expected.mean, atol=1e-9, rtol=1e-9)
    covariance = joint.distribution.covariance_matrix[:, index]
    torch.testing.assert_close(covariance, expected.distribution.covariance_matrix, atol=1e-9, rtol=1e-9)
    # evidence and gain by their definitions
    K = c.covar_module(model.train_inputs[0]).to_dense() + c.noise_var * torch.eye(12, **tkwargs)
    normal = torch.distributions.MultivariateNormal(torch.zeros(12, **tkwargs), K)
    assert float(model.evidence[index]) == pytest.approx(float(normal.log_prob(Y[:, 0])), rel=1e-9)
    gain = model.predictions().gain[:, index].sum()
    assert float(gain) == pytest.approx(float(torch.logdet(K / c.noise_var)) / 2, rel=1e-9)


def test_predictions_are_those_before_each_reward(tkwargs):
    model = make(tkwargs, n=6)
    X, Y, said = model.train_inputs[0], model.train_targets, model.predictions()
    for i in range(6):
        before = CandidateEnsemble(X[:i], Y[:i].unsqueeze(-1), KINDS)
        mean, variance = (x[:, 0].cpu() for x in before.member_moments(X[i : i + 1]))
        torch.testing.assert_close(said.mean[i], mean, atol=1e-9, rtol=1e-9)
        torch.testing.assert_close(said.error[i], Y[i].cpu() - mean, atol=1e-9, rtol=1e-9)
        torch.testing.assert_close(said.sd[i].square(), variance, atol=1e-9, rtol=1e-9)
        total = variance + torch.tensor([c.noise_var for c in model.candidates], dtype=torch.float64)
        density = torch.distributions.Normal(mean, total.sqrt()).log_prob(Y[i].cpu())
        torch.testing.assert_close(said.log_density[i], density, atol=1e-9, rtol=1e-9)


@pytest.mark.parametrize("q", [1, 3])
def test_the_posterior_has_the_moments_of_the_mixture(tkwargs, q):
    """Against draws of the mixture: a candidate by its weight, then f under it."""
    model, X = make(tkwargs, n=3), rand(tkwargs, q, 2, seed=1)
    assert not is_ensemble(model)  # BoTorch's analytic acquisitions see one posterior
    weights = model.weights
    assert float(weights.sum()) == pytest.approx(1.0)
    torch.testing.assert_close(weights.log() - weights[0].log(), model.evidence - model.evidence[0])
    assert float(weights.max()) < 0.7  # several count
    assert model.map_candidate == int(weights.argmax())
    posterior, members = model.posterior(X), model.member_posterior(X).distribution
    roots = torch.linalg.cholesky(members.covariance_matrix + 1e-12 * torch.eye(q, **tkwargs))
    draws = torch.Generator().manual_seed(0)
    who = torch.multinomial(weights.cpu(), 400_000, replacement=True, generator=draws).to(X.device)
    normal = torch.randn(len(who), q, generator=draws, dtype=torch.float64).to(X)
    sample = members.mean[who] + torch.einsum("nij,nj->ni", roots[who], normal)
    assert posterior.mean.shape == posterior.variance.shape == (q, 1)
    torch.testing.assert_close(posterior.mean.squeeze(-1), sample.mean(0), atol=0.01, rtol=0)
    covariance = posterior.distribution.covariance_matrix
    torch.testing.assert_close(covariance, torch.cov(sample.T).reshape(q, q), atol=0.01, rtol=0)
    torch.testing.assert_close(posterior.variance.squeeze(-1), covariance.diagonal(), atol=1e-10, rtol=0)


def test_means_and_variances_of_a_grid_need_no_covariances(tkwargs):
    """Those of 60,000 points would take 29 GB a candidate."""
    model, X = make(tkwargs), rand(tkwargs, 60_000, 2, seed=1)
    posterior = model.posterior(X, observation_noise=True)
    assert posterior.mean.shape == posterior.variance.shape == (60_000, 1)
    alone = model.posterior(X[-1:], observation_noise=True)
    torch.testing.assert_close(posterior.variance[-1:], alone.variance, atol=1e-10, rtol=0)


def test_a_subset_is_the_ensemble_of_these_candidates(tkwargs):
    model, X = make(tkwargs), rand(tkwargs, 5, 2, seed=1)
    some = CandidateEnsemble(model.train_inputs[0], f(model.train_inputs[0]), [KINDS[1], KINDS[3]])
    for members in ([1, 3], torch.tensor([False, True, False, True]), torch.tensor([1, 3])):
        left = model.subset(members)
        torch.testing.assert_close(left.posterior(X).mean, some.posterior(X).mean)
        torch.testing.assert_close(left.weights, some.weights)
        assert left.names == some.names
    assert make(tkwargs, candidates=[Candidate(MaternKernel(), 0.1)]).names == ("candidate 0",)


def test_input_transforms(tkwargs):
    bounds = torch.tensor([[0.0, 0.0], [2.0, 3.0]], **tkwargs)
    transform = Normalize(d=2, bounds=bounds)
    model, X = make(tkwargs, input_transform=transform), rand(tkwargs, 4, 2, seed=2)
    plain = CandidateEnsemble(transform(model.train_inputs[0]), f(model.train_inputs[0]), KINDS)
    for mode in (model.train, model.eval):
        mode()
        for a, b in zip(model.member_moments(X), plain.member_moments(transform(X)), strict=True):
            torch.testing.assert_close(a, b)
    one = torch.ones(1, 1, **tkwargs)
    grown, also = (m.condition_on_observations(x[:1], one) for m, x in ((model, X), (plain, transform(X))))
    torch.testing.assert_close(grown.posterior(X).mean, also.posterior(transform(X)).mean)


def test_candidates_that_are_the_same_are_warned_of(tkwargs):
    twice = [KINDS[0], KINDS[1], {**KINDS[0], "name": "again"}]
    with pytest.warns(UserWarning, match=r"candidates 0 \(rbf.* and 2 \(again\) are the same"):
        make(tkwargs, candidates=twice)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        make(tkwargs, n=1, candidates=[{**KINDS[1], "nu": nu} for nu in (1.5, 2.5)])  # cannot be told apart yet
        make(tkwargs, candidates=[{**KINDS[1], "nu": nu} for nu in (0.5, 1.5)])
        make(tkwargs, candidates=[KINDS[0], {**KINDS[0], "noise_var": 0.5}])


def test_hallucinated_points_keep_means_and_shrink_variances(tkwargs):
    model, X, pending = make(tkwargs), rand(tkwargs, 5, 1, 2, seed=3), rand(tkwargs, 3, 2, seed=4)
    hallucinated = model.hallucinate(pending)
    torch.testing.assert_close(hallucinated.member_moments(X)[0], model.member_moments(X)[0])
    expected = model.condition_on_observations(pending, f(pending)).member_moments(X)[1]
    torch.testing.assert_close(hallucinated.member_moments(X)[1], expected)
    assert torch.equal(hallucinated.weights, model.weights)


def test_standardized_rewards_may_have_any_units(tkwargs):
    """Evidence does not depend on the units; means and variances are in them."""
    X = rand(tkwargs, 20, 2)
    seen = []
    for center, scale in ((0.0, 1.0), (-40.0, 1e-3), (7e5, 3e4)):
        model = CandidateEnsemble(X[:12], center + scale * f(X[:12]), KINDS, outcome_transform=Standardize(m=1))
        model = model.condition_on_observations(X[12:], center + scale * f(X[12:]))
        posterior = model.posterior(X[:3], observation_noise=True)
        covariance = posterior.distribution.covariance_matrix / scale**2
        seen.append((model.evidence, (posterior.mean - center) / scale, covariance, model.member_noise / scale**2))
    for other in seen[1:]:
        torch.testing.assert_close(other, seen[0], atol=1e-5, rtol=1e-5)
    Y = model.train_targets.unsqueeze(-1)
    by_hand = CandidateEnsemble(X, (Y - Y.mean()) / Y.std(), KINDS)
    torch.testing.assert_close(by_hand.evidence, model.evidence)
    torch.testing.assert_close(Y.mean() + Y.std() * by_hand.posterior(X).mean, model.posterior(X).mean)
    constant = CandidateEnsemble(X[:3], torch.full((3, 1), 0.1, **tkwargs), KINDS, outcome_transform=Standardize(m=1))
    assert constant.evidence.isfinite().all()
