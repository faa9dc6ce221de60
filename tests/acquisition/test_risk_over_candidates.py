import pytest
import torch

from bo_robust.acquisition import StableOpt, ValueAtRiskUCB, eliminate, recommend_design
from bo_robust.bandits import HEStableOpt
from bo_robust.bandits.elimination_algorithm import eliminations
from bo_robust.bandits.posteriors.candidates import candidate_kernel
from bo_robust.confidence import BayesianFiniteWidth, SelfNormalizedWidth
from bo_robust.models import CandidateEnsemble, candidate
from bo_robust.risk_measures.environments import FiniteEnvironment
from bo_robust.risk_measures.functionals import CVaR, Mean, MeanVariance, ValueAtRisk, WorstCase
from bo_robust.utils.covariance import SquaredExponential
from tests.problems import gp_of_candidate, rand

LENGTHSCALES, NOISE_VAR, DELTA = (0.25, 0.7, 2.0), 0.01, 0.1
WIDTH = BayesianFiniteWidth(40, DELTA, scale=0.3)
P = (0.3, 0.05, 0.25, 0.1, 0.3)
FUNCTIONALS = [0.3, CVaR(0.4), WorstCase(), Mean(), MeanVariance(0.5)]


def objective(points):
    return torch.sin(5 * points[..., :1]) * torch.cos(3 * points[..., -1:]) + points[..., 1:2]


def conditions(tkwargs):
    return FiniteEnvironment(torch.linspace(0, 1, 5, **tkwargs).unsqueeze(-1), torch.tensor(P, **tkwargs))


def made(X, Y):
    return CandidateEnsemble(X, Y, [candidate("rbf", scale, NOISE_VAR) for scale in LENGTHSCALES])


def observed(tkwargs, n=8):
    X = rand(tkwargs, n, 3)
    return made(X, objective(X))


def run_test(model, width=WIDTH, **options):
    return eliminate(model, width=width, noise_scale=0.1, **options)


@pytest.mark.filterwarnings("ignore:every candidate failed")
@pytest.mark.parametrize("width", [WIDTH, SelfNormalizedWidth(0.5, 0.1, 0.05)], ids=["bayesian", "gain"])
def test_stable_opt_is_he_stable_opt_over_arms(tkwargs, width):
    """Designs, conditions, who chose either, both tests, and who is active after them, round by round."""
    rounds, uniform = 30, torch.zeros(1, **tkwargs)
    pairs = torch.cartesian_prod(*[torch.linspace(0, 1, k, **tkwargs) for k in (8, 5)])
    designs, environment = pairs[::5, :1], FiniteEnvironment(pairs[:5, 1:])
    kernel = candidate_kernel([SquaredExponential(scale) for scale in LENGTHSCALES], pairs)
    draws = torch.Generator().manual_seed(1)
    root = torch.linalg.cholesky(kernel.matrix[0] + 1e-9 * torch.eye(40, **tkwargs))
    # Larger than any candidate expects, so that some are removed.
    f = 3.0 * root @ torch.randn(40, generator=draws, dtype=torch.float64).to(**tkwargs)
    noise = 0.1 * torch.randn(rounds, generator=draws, dtype=torch.float64).to(**tkwargs)
    algorithm = HEStableOpt(width, 0.1, DELTA, 5)
    state, model = algorithm.init(kernel, NOISE_VAR), made(pairs[:0], f[:0].unsqueeze(-1))
    chosen, apart = torch.zeros(0, 2, dtype=torch.long), 0
    for t in range(rounds):
        left = run_test(model, width, chosen=chosen)
        assert torch.equal(left.active, state.posterior.active[0]), t
        selection = algorithm.select(state, uniform)
        acqf = StableOpt(model, environment, elimination=left)
        x = designs[acqf(designs.unsqueeze(1)).argmax()]
        choice = acqf.select_condition(x)
        assert torch.equal(choice.point, pairs[selection.arms[0]]), t
        assert choice.candidates.tolist() == [int(selection.candidate), int(selection.lower_candidate)], t
        apart += len(set(choice.candidates.tolist())) - 1
        chosen = torch.cat([chosen, choice.candidates.cpu().unsqueeze(0)])
        y = f[selection.arms] + noise[t]
        algorithm.observe(state, selection.arms, y, uniform)
        model = model.condition_on_observations(choice.point.unsqueeze(0), y.unsqueeze(0))
    left = run_test(model, width, chosen=chosen)
    assert apart > 0
    assert not left.active.all()
    for ours, theirs in zip(left.removed, eliminations(state), strict=True):
        assert [ours[key] for key in ("candidate", "round")] == [theirs[key] for key in ("candidate", "round")]
        assert (ours["left"], ours["right"]) == pytest.approx((theirs["left"], theirs["right"]), rel=1e-6)


@pytest.mark.parametrize("functional", FUNCTIONALS)
def test_the_largest_bound_of_the_active_and_gradients(tkwargs, functional):
    """The value is the largest that V-UCB has with one of the candidates."""
    model, environment = observed(tkwargs), conditions(tkwargs)
    X = rand(tkwargs, 6, 1, 2, seed=1)
    acqf = ValueAtRiskUCB(model, environment, functional, elimination=run_test(model))
    w = float(WIDTH(model.train_targets.shape[0] + 1))
    single = [ValueAtRiskUCB(gp_of_candidate(model, u), environment, functional, w) for u in range(len(LENGTHSCALES))]
    values = torch.stack([one(X) for one in single])
    torch.testing.assert_close(acqf(X), values.amax(0))
    for x, u in zip(X, values.argmax(0).tolist(), strict=True):
        choice = acqf.select_condition(x)
        assert torch.equal(choice.point, single[u].select_condition(x).point)
        assert choice.candidates.tolist() == [[u]]
        torch.testing.assert_close(acqf.bounds_at(x)[1], single[u].bounds_at(x)[1])
        # Whichever candidate is right, its bounds are in between.
        ends = [one.regret_bound(x, 0.0) for one in single]
        torch.testing.assert_close(acqf.regret_bound(x, 0.0), torch.stack(ends).amax(0))
    X.requires_grad_(True)
    assert torch.autograd.gradcheck(acqf, X)


def test_a_test_by_likelihood_needs_no_record_of_who_chose(tkwargs):
    model, environment = observed(tkwargs, n=20), conditions(tkwargs)
    left = eliminate(model, "likelihood")
    assert 0 < int(left.acquisition_set.sum()) < len(LENGTHSCALES)
    X = rand(tkwargs, 6, 1, 2, seed=1)
    acqf = ValueAtRiskUCB(model, environment, 0.3, elimination=left)
    among = left.acquisition_set.nonzero().flatten().tolist()
    values = [ValueAtRiskUCB(gp_of_candidate(model, u), environment, 0.3, float(left.widths[u]))(X) for u in among]
    torch.testing.assert_close(acqf(X), torch.stack(values).amax(0))
    assert {int(u) for u in acqf.select_condition(X.squeeze(1)).candidates} <= set(among)


@pytest.mark.parametrize("functional", [ValueAtRisk(0.3), CVaR(0.3)])
@pytest.mark.parametrize("model_of", [lambda mixture: mixture, gp_of_candidate], ids=["mixture", "plain"])
def test_the_design_of_largest_risk_of_the_mean_is_recommended(tkwargs, functional, model_of):
    model, environment = model_of(observed(tkwargs, n=20)), conditions(tkwargs)
    designs = model.train_inputs[0][:, :2]
    found = recommend_design(model, environment, functional, designs)
    means = [model.posterior(environment.points(x)).mean.squeeze(-1) for x in designs]
    values = torch.stack([functional(mean, environment.probabilities) for mean in means])
    assert int(found.index) == int(values.argmax())
    assert float(found.value) == pytest.approx(float(values.max()), abs=1e-8)
