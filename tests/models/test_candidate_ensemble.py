import warnings

import pytest
import torch
from botorch.acquisition import UpperConfidenceBound
from botorch.models.transforms.input import AppendFeatures, ChainedInputTransform, Normalize
from botorch.models.transforms.outcome import Log, Standardize
from botorch.utils.transforms import is_ensemble
from gpytorch.kernels import Kernel, MaternKernel, MultitaskKernel, RBFKernel
from gpytorch.means import ConstantMean, LinearMean

from bo_robust.models import Candidate, CandidateEnsemble, candidate
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


def test_analytic_acquisitions_see_one_posterior(tkwargs):
    model = make(tkwargs)
    assert not is_ensemble(model)
    x = rand(tkwargs, 5, 1, 2, seed=2)
    expected = (model.posterior(x).mean + 2.0 * model.posterior(x).variance.sqrt())[..., 0, 0]
    torch.testing.assert_close(UpperConfidenceBound(model, beta=4.0)(x), expected)


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


class Indefinite(Kernel):
    """1 on the diagonal, -0.9 between points closer than 0.5."""

    def forward(self, x1, x2, diag=False, **params):
        distance = (x1.unsqueeze(-2) - x2.unsqueeze(-3)).norm(dim=-1)
        K = torch.where(distance < 1e-9, 1.0, torch.where(distance < 0.5, -0.9, 0.0)).to(x1)
        return K.diagonal(dim1=-2, dim2=-1) if diag else K


def test_kernels_that_are_not_positive_semi_definite_are_refused(tkwargs):
    candidates = [KINDS[0], Candidate(Indefinite(), 0.5, name="odd")]
    close, Y = torch.tensor([[0.0, 0.0], [0.1, 0.0], [0.0, 0.1]], **tkwargs), torch.ones(3, 1, **tkwargs)
    with pytest.raises(ValueError, match=r"candidate 1 \(odd\): its kernel is not positive semi-definite"):
        CandidateEnsemble(close, Y, candidates)
    model = CandidateEnsemble(close[:1], Y[:1], candidates)
    with pytest.raises(ValueError, match=r"candidate 1 \(odd\): its kernel is not positive semi-definite"):
        model.condition_on_observations(close[1:], Y[1:])


def test_hallucinated_points_keep_means_and_shrink_variances(tkwargs):
    model, X, pending = make(tkwargs), rand(tkwargs, 5, 1, 2, seed=3), rand(tkwargs, 3, 2, seed=4)
    hallucinated = model.hallucinate(pending)
    torch.testing.assert_close(hallucinated.member_moments(X)[0], model.member_moments(X)[0])
    expected = model.condition_on_observations(pending, f(pending)).member_moments(X)[1]
    torch.testing.assert_close(hallucinated.member_moments(X)[1], expected)
    assert torch.equal(hallucinated.weights, model.weights)


def test_standardised_rewards_may_have_any_units(tkwargs):
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


@pytest.mark.parametrize("rows", [0, 3])
@pytest.mark.parametrize(
    "wrong",
    [
        candidate("rbf", [0.1, 0.2, 0.3], 0.1),
        candidate("rbf", 0.1, 0.1, groups=[[0], [5]]),
        *(Candidate(kernel, 0.1) for kernel in (RBFKernel(active_dims=(7,)), MultitaskKernel(RBFKernel(), 2))),
        *(Candidate(RBFKernel(), 0.1, m) for m in (LinearMean(3), ConstantMean(batch_shape=torch.Size([2])))),
    ],
)
def test_candidates_that_do_not_fit_the_points_are_refused(tkwargs, wrong, rows):
    X, Y = rand(tkwargs, 3, 2)[:rows], rand(tkwargs, 3, 1)[:rows]
    with pytest.raises(ValueError, match=r"candidate 1 .* does not fit points of 2 columns"):
        CandidateEnsemble(X, Y, [Candidate(RBFKernel(), 0.1), wrong])


GOOD = {"kernel": "rbf", "lengthscale": 0.1, "noise_var": 0.1}
POINTS = torch.linspace(0.0, 1.0, 6, dtype=torch.float64).reshape(3, 2)


def ensemble(candidates=KINDS, **options):
    return CandidateEnsemble(POINTS, f(POINTS), candidates, **options)


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: ensemble([]), "U is empty"),
        *((lambda c=c: ensemble(c), "candidates must be a list .*, got") for c in ("smooth", 4)),
        *((lambda c=c: ensemble(c), "candidates") for c in (["rbf"], KINDS[0])),
        (lambda: ensemble([GOOD, GOOD | {"lengthscales": 0.1}]), "the settings of candidate 1 .*'lengthscales'"),
        (lambda: ensemble([GOOD, {"kernel": "rbf"}]), "the settings of candidate 1 .*'lengthscale'"),
        (lambda: ensemble(outcome_transform=Log()), r"outcome_transform must be Standardize\(m=1\) of BoTorch or None"),
        *(
            (lambda t=t: ensemble(input_transform=t), "input_transform must be one of BoTorch")
            for t in ("n", Normalize)
        ),
        (lambda: ensemble(input_transform=Normalize(d=2)), "learns its coefficients"),
        (lambda: ensemble(input_transform=ChainedInputTransform(a=Normalize(d=2))), "learns its coefficients"),
        (lambda: ensemble(input_transform=AppendFeatures(torch.zeros(2, 1).double())), "adds points"),
        (lambda: ensemble().condition_on_observations(POINTS[:, :1], f(POINTS)), "X must be ... x 2"),
        (lambda: ensemble().condition_on_observations(POINTS, f(POINTS), noise=f(POINTS)), "noise_var"),
        (lambda: ensemble().hallucinate(POINTS).condition_on_observations(POINTS, f(POINTS)), "hallucinated points"),
        (lambda: ensemble().posterior(POINTS.float()), "X is torch.float32"),
        (lambda: ensemble().posterior(POINTS[0]), "X must be ... x 2"),
        (lambda: ensemble().hallucinate(POINTS[0]), "X_pending"),
        (lambda: ensemble().subset([]), "at least one candidate"),
        (lambda: ensemble().subset_output([1]), "one output"),
        *(
            (lambda name=name: getattr(ensemble(), name)(POINTS.tolist()), "must be a torch tensor, got list")
            for name in ("posterior", "member_moments", "member_posterior", "hallucinate")
        ),
    ],
)
def test_refusals_say_what_to_change(call, match):
    with pytest.raises((ValueError, TypeError), match=match):
        call()


def test_the_design_of_largest_mean_is_one_argmax_away(tkwargs):
    model = make(tkwargs, n=30)
    best = model.posterior(model.train_inputs[0]).mean.argmax()
    assert float(f(model.train_inputs[0][best])) > float(f(model.train_inputs[0]).max()) - 0.1
