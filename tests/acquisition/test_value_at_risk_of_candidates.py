"""V-UCB over candidates in continuous space against HE-GP-UCB over V-UCB on the same finite pairs."""

import pytest
import torch
from botorch.models import SingleTaskGP
from gpytorch.means import ZeroMean

from bo_robust.acquisition import EliminationUCB, StableOpt, ValueAtRiskUCB, recommend_design
from bo_robust.algorithms import VUCB
from bo_robust.algorithms.he_gp_ucb import HEGPUCB
from bo_robust.confidence import BayesianFiniteWidth, ConstantWidth
from bo_robust.covariance import SquaredExponential
from bo_robust.environments import FiniteEnvironment, PerturbationEnvironment
from bo_robust.functionals import CVaR, Mean, MeanVariance, ValueAtRisk, WorstCase
from bo_robust.models import CandidateEnsemble, candidate
from bo_robust.posteriors.candidates import candidate_kernel

LENGTHSCALES, NOISE_VAR, DELTA = (0.25, 0.7, 2.0), 0.01, 0.1
WIDTH = BayesianFiniteWidth(40, DELTA, scale=0.3)
P = (0.3, 0.05, 0.25, 0.1, 0.3)
FUNCTIONALS = [0.3, CVaR(0.4), WorstCase(), Mean(), MeanVariance(0.5)]


def objective(points):
    return torch.sin(5 * points[..., :1]) * torch.cos(3 * points[..., -1:]) + points[..., 1:2]


def conditions(tkwargs):
    return FiniteEnvironment(torch.linspace(0, 1, 5, **tkwargs).unsqueeze(-1), torch.tensor(P, **tkwargs))


def made(X, Y, environment, functional, width=WIDTH, **options):
    kinds = [candidate("rbf", scale, NOISE_VAR) for scale in LENGTHSCALES]
    return CandidateEnsemble(X, Y, kinds, width, 0.1, DELTA, environment=environment, functional=functional, **options)


def observed(tkwargs, n=8, functional=0.3, d=3, **options):
    X = torch.rand(n, d, generator=torch.Generator().manual_seed(0), dtype=torch.float64).to(**tkwargs)
    return made(X, objective(X), conditions(tkwargs), functional, **options)


@pytest.mark.filterwarnings("ignore:every candidate failed")
@pytest.mark.parametrize("functional", FUNCTIONALS)
def test_plays_and_eliminates_as_he_gp_ucb_over_v_ucb(tkwargs, functional):
    rounds = 30
    pairs = torch.cartesian_prod(*[torch.linspace(0, 1, k, **tkwargs) for k in (8, 5)])
    designs, environment = pairs[::5, :1], conditions(tkwargs)
    kernel = candidate_kernel([SquaredExponential(scale) for scale in LENGTHSCALES], pairs)
    draws = torch.Generator().manual_seed(1)
    root = torch.linalg.cholesky(kernel.matrix[0] + 1e-9 * torch.eye(40, **tkwargs))
    # Larger than any candidate expects, so that some are eliminated.
    f = 3.0 * root @ torch.randn(40, generator=draws, dtype=torch.float64).to(**tkwargs)
    noise = 0.1 * torch.randn(rounds, generator=draws, dtype=torch.float64).to(**tkwargs)
    algorithm = HEGPUCB(WIDTH, 0.1, DELTA, base=VUCB(WIDTH, functional, 5, P))
    state, uniform = algorithm.init(kernel, NOISE_VAR), torch.zeros(1, **tkwargs)
    grown = made(pairs[:0], f[:0].unsqueeze(-1), environment, functional)
    seen, Y = [], []
    for t in range(rounds):
        selection = algorithm.select(state, uniform)
        acqf = ValueAtRiskUCB(grown, environment, functional)
        x = designs[acqf(designs.unsqueeze(1)).argmax()]
        choice = acqf.select_condition(x)
        assert torch.equal(choice.point, pairs[selection.arms[0]]), t
        seen.append(int(selection.arms))
        Y.append(f[seen[-1]] + noise[t])
        info = algorithm.observe(state, selection.arms, Y[-1].unsqueeze(0), uniform)
        grown, said = grown.observe(choice.point, Y[-1])
        assert said.tested == int(info.candidate)
        assert said.left == pytest.approx(float(info.left), rel=1e-6, abs=1e-9)
        assert said.right == pytest.approx(float(info.right), rel=1e-6)
        assert torch.equal(grown.alive, state.posterior.alive[0])
    rebuilt = made(pairs[seen], torch.stack(Y).unsqueeze(-1), environment, functional)
    assert torch.equal(rebuilt.alive, grown.alive)
    assert not grown.alive.all()


@pytest.mark.parametrize("functional", FUNCTIONALS)
def test_gradients_and_the_largest_bound_of_those_alive(tkwargs, functional):
    """The value is the largest that V-UCB has with one of the candidates."""
    model = observed(tkwargs, functional=functional)
    X = torch.rand(6, 1, 2, generator=torch.Generator().manual_seed(1), dtype=torch.float64).to(**tkwargs)
    acqf = ValueAtRiskUCB(model, conditions(tkwargs), functional)

    def alone(u):
        others = [v for v in range(len(LENGTHSCALES)) if v != u]
        one = model
        for v in others:
            one = one.eliminate(v)
        return ValueAtRiskUCB(one, conditions(tkwargs), functional)

    single = [alone(u) for u in range(len(LENGTHSCALES))]
    values = torch.stack([one(X) for one in single])
    torch.testing.assert_close(acqf(X), values.amax(0))
    for x, u in zip(X, values.argmax(0).tolist(), strict=True):
        assert torch.equal(acqf.select_condition(x).point, single[u].select_condition(x).point)
        torch.testing.assert_close(acqf.bounds_at(x)[1], single[u].bounds_at(x)[1])
        # Whoever is right, its bounds are in between.
        ends = [one.certificate(x, 0.0) for one in single]
        torch.testing.assert_close(acqf.certificate(x, 0.0), torch.stack(ends).amax(0))
    X.requires_grad_(True)
    assert torch.autograd.gradcheck(acqf, X)


def plain(model, index):
    """BoTorch's GP with the prior of one candidate."""
    c, Y = model.candidates[index], model.train_targets.unsqueeze(-1)
    noise, X = torch.full_like(Y, c.noise_var), model.train_inputs[0]
    return SingleTaskGP(X, Y, noise, covar_module=c.covar_module, mean_module=ZeroMean(), outcome_transform=None)


def _bounds(model, index, points):
    mean, variance = (x[index] for x in model.moments(points))
    reach = model.widths[index] * variance.sqrt()
    return mean - reach, mean + reach


def test_the_leader_recommends(tkwargs):
    model = observed(tkwargs, n=20)
    designs = model.train_inputs[0][:, :2]
    found = recommend_design(model, conditions(tkwargs), 0.3, designs)
    mean = model.moments(conditions(tkwargs).points(designs))[0][:, model.leader]
    values = ValueAtRisk(0.3)(mean, torch.tensor(P, **tkwargs))
    assert int(found.index) == int(values.argmax())
    assert float(found.value) == pytest.approx(float(values.max()))


def test_stable_opt_and_another_dtype(tkwargs):
    model, environment, x = (
        observed(tkwargs, functional=WorstCase()),
        conditions(tkwargs),
        torch.rand(4, 1, 2).to(**tkwargs),
    )
    acqf = StableOpt(model, environment)
    torch.testing.assert_close(acqf(x), ValueAtRiskUCB(model, environment, WorstCase())(x))
    before = acqf(x)
    torch.testing.assert_close(acqf.float()(x.float()).double(), before, atol=1e-2, rtol=1e-2)


def test_mistakes_are_refused(tkwargs):
    environment, model = conditions(tkwargs), observed(tkwargs)
    other = FiniteEnvironment(environment.z + 0.1)
    for given, functional in ((environment, 0.2), (other, 0.3)):
        with pytest.raises(ValueError, match="another bound"):
            ValueAtRiskUCB(model, given, functional)
    with pytest.raises(ValueError, match="unless the model is a CandidateEnsemble"):
        ValueAtRiskUCB(model, environment, 0.3, 2.0)
    with pytest.raises(ValueError, match="build it without environment"):
        EliminationUCB(model)
    X, Y = model.train_inputs[0], model.train_targets.unsqueeze(-1)
    with pytest.raises(ValueError, match="a risk needs"):
        made(X, Y, environment, None)
    with pytest.raises(ValueError, match="a risk needs"):
        made(X, Y, environment, 0.3, maximize=False)
    with pytest.raises(ValueError, match="from which x can be read"):
        made(X, Y, PerturbationEnvironment(torch.zeros(2, 3, **tkwargs)), 0.3)
    plain = CandidateEnsemble(X, Y, [candidate("rbf", 0.2, 0.1)], ConstantWidth(2.0), 0.1, 0.1)
    with pytest.raises(ValueError, match="another bound"):
        ValueAtRiskUCB(plain, environment, 0.3)
