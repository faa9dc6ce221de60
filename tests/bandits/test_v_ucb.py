import math

import pytest
import torch
from botorch.models import SingleTaskGP
from gpytorch.kernels import RBFKernel

from bo_robust.acquisition import ValueAtRiskUCB, recommend_design
from bo_robust.bandits.posteriors.arms import ArmKernel
from bo_robust.bandits.stable_opt import StableOpt
from bo_robust.bandits.v_ucb import VUCB
from bo_robust.confidence import BayesianFiniteWidth, ConstantWidth, FiniteWidth, RandomizedWidth, SelfNormalizedWidth
from bo_robust.risk_measures.environments import FiniteEnvironment
from bo_robust.risk_measures.functionals import CVaR, Mean, WorstCase
from bo_robust.utils.covariance import SquaredExponential
from tests.bandits import problems
from tests.bandits.problems import draw_from_prior

DESIGNS, W, NOISE_VAR = 8, 5, 0.05
P = (0.3, 0.05, 0.25, 0.3, 0.1)


def pairs(tkwargs):
    return torch.cartesian_prod(*(torch.linspace(0, 1, count, **tkwargs) for count in (DESIGNS, W)))


def kernel(tkwargs):
    return ArmKernel.from_covariance(SquaredExponential(0.3), pairs(tkwargs))


def table(tkwargs, s, rounds):
    """Means s x n of draws from the prior, noise and uniforms rounds x s."""
    return draw_from_prior(kernel(tkwargs).matrix, s, rounds, math.sqrt(NOISE_VAR), tkwargs["device"])


def run_rounds(algorithm, tkwargs, f, noise, uniforms, before=None):
    return problems.run_rounds(algorithm, kernel(tkwargs), f, noise, uniforms, NOISE_VAR, before=before)


def regret_bound(posterior, selection):
    """2 w_t sigma_{t-1}(x_t, z_t), Lemma 3: of the posterior before the round's rewards."""
    return 2.0 * selection.width * posterior.variance.gather(1, selection.arms[:, None])[:, 0].sqrt()


@pytest.mark.parametrize("width", [FiniteWidth(40, 0.1), SelfNormalizedWidth(1.0, 0.2, 0.1), RandomizedWidth(40)])
@pytest.mark.parametrize("probabilities", [None, P])
def test_small_alpha_is_stable_opt(tkwargs, width, probabilities):
    f, noise, uniforms = table(tkwargs, 6, 40)
    a, first = run_rounds(VUCB(width, 1e-6, W, probabilities), tkwargs, f, noise, uniforms)
    b, second = run_rounds(StableOpt(width, W), tkwargs, f, noise, uniforms)
    assert torch.equal(a, b)
    assert torch.equal(first.posterior.mean, second.posterior.mean)
    assert torch.equal(VUCB(width, 1e-6, W, probabilities).recommend(first), StableOpt(width, W).recommend(second))


def test_the_botorch_interface_chooses_the_same_pairs(tkwargs):
    f, noise, uniforms = table(tkwargs, 1, 15)
    width, points = FiniteWidth(40, 0.1), pairs(tkwargs)
    z, designs = points[:W, 1:], points[::W, :1]
    environment = FiniteEnvironment(z, torch.tensor(P, **tkwargs))
    algorithm, seen, rewards = VUCB(width, 0.2, W, P), [], []

    def model_of():
        rbf = RBFKernel().to(**tkwargs)
        rbf.lengthscale = torch.tensor(0.3, **tkwargs)
        Y = torch.stack(rewards).view(-1, 1)
        model = SingleTaskGP(points[seen], Y, torch.full_like(Y, NOISE_VAR), covar_module=rbf, outcome_transform=None)
        model.mean_module.initialize(constant=0.0)
        return model.eval()

    def check(state, selection):
        if seen:
            model = model_of()
            acqf = ValueAtRiskUCB(model, environment, 0.2, width)
            with torch.no_grad():
                x = designs[acqf(designs.unsqueeze(1)).argmax()]
            assert torch.allclose(acqf.select_condition(x).point, points[selection.arms[0]])
            queried = designs[sorted({arm // W for arm in seen})]
            found = recommend_design(model, environment, 0.2, queried)
            assert torch.equal(found.x, designs[algorithm.recommend(state)[0]])
            bound = acqf.select_condition(x).regret_bound
            assert float(bound) == pytest.approx(float(regret_bound(state.posterior, selection)), abs=1e-7)
        arm = int(selection.arms)
        seen.append(arm)
        rewards.append(f[0, arm] + noise[len(rewards), 0])

    run_rounds(algorithm, tkwargs, f, noise, uniforms, check)
    assert len(set(seen)) > 5


def test_a_functional_by_name():
    assert VUCB(ConstantWidth(2.0), {"kind": "cvar", "alpha": 0.4}, W).functional == CVaR(0.4)
    assert VUCB(ConstantWidth(2.0), "worst", W).functional == WorstCase()


@pytest.mark.parametrize("functional", [0.2, CVaR(0.4), WorstCase(), Mean()])
@pytest.mark.parametrize("selection_rule", ["probable", "uniform"])
def test_regret_is_bounded_where_the_intervals_hold(tkwargs, functional, selection_rule):
    f, noise, uniforms = table(tkwargs, 20, 30)
    algorithm = VUCB(BayesianFiniteWidth(40, 0.1), functional, W, P, selection_rule)
    p = torch.tensor(P, **tkwargs)
    truth = algorithm.functional(f.view(-1, DESIGNS, W), p)
    held = []

    def check(state, selection):
        posterior = state.posterior
        inside = ((f - posterior.mean).abs() <= selection.width * posterior.variance.sqrt() + 1e-9).all(1)
        regret = truth.max(1).values - truth.gather(1, (selection.arms // W)[:, None])[:, 0]
        bound = regret_bound(posterior, selection)
        assert (regret <= bound + 1e-8)[inside].all()
        held.append(inside)

    _, state = run_rounds(algorithm, tkwargs, f, noise, uniforms, check)
    assert torch.stack(held).all(0).double().mean() >= 0.9  # delta = 0.1, 20 trials
    regret = truth.max(1).values - truth.gather(1, algorithm.recommend(state)[:, None])[:, 0]
    middling = truth.max(1).values - truth.median(1).values
    assert regret.mean() < 0.3 * middling.mean()


def test_drawn_conditions_follow_their_probabilities(tkwargs):
    f, noise, uniforms = table(tkwargs, 60, 40)
    arms, _ = run_rounds(VUCB(ConstantWidth(2.0), 0.2, W, P, "drawn"), tkwargs, f, noise, uniforms)
    share = (arms % W).flatten().bincount(minlength=W).double() / arms.numel()
    assert (share.cpu() - torch.tensor(P, dtype=torch.float64)).abs().max() < 0.03


def test_observed_conditions_are_taken_as_they_come(tkwargs):
    """Any pair may be observed, whatever was selected."""
    algorithm = VUCB(ConstantWidth(2.0), 0.2, W, P)
    state = algorithm.init(kernel(tkwargs), NOISE_VAR, 2)
    assert algorithm.recommend(state).tolist() == [0, 0]
    u = torch.zeros(2, **tkwargs)
    algorithm.observe(state, torch.tensor([7, 33], device=u.device), torch.tensor([1.0, -1.0], **tkwargs), u)
    assert algorithm.recommend(state).tolist() == [1, 6]
