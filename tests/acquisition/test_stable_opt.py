import pytest
import torch
from botorch.acquisition.input_constructors import get_acqf_input_constructor
from botorch.models import SingleTaskGP
from botorch.optim import optimize_acqf

from bo_robust.acquisition.stable_opt import StableOpt
from bo_robust.acquisition.value_at_risk import ValueAtRiskUCB
from bo_robust.risk_measures.environments import FiniteEnvironment, PerturbationEnvironment
from tests.problems import conditions, rand


def gp(tkwargs):
    X = rand(tkwargs, 12, 2)
    return SingleTaskGP(X, torch.sin(6 * X).sum(-1, keepdim=True)).eval()


def test_is_v_ucb_for_small_alpha(tkwargs):
    model = gp(tkwargs)
    environment = conditions(tkwargs)
    stable = StableOpt(model, environment, 2.0)
    limit = ValueAtRiskUCB(model, environment, float(environment.probabilities.min()) / 2, 2.0)
    x = torch.rand(30, 1, **tkwargs)
    assert torch.equal(stable(x.unsqueeze(1)), limit(x.unsqueeze(1)))
    assert torch.equal(stable.select_condition(x).index, limit.select_condition(x).index)
    assert (stable.lacing_values(x).sum(-1) == 1).all()


def test_ball_prefers_the_broad_peak(tkwargs):
    """A high narrow peak at 0.2 and a broad one at 0.7: within 0.1 of x only the broad one is safe."""
    X = torch.linspace(0, 1, 60, **tkwargs).unsqueeze(-1)
    Y = 1.5 * torch.exp(-(((X - 0.2) / 0.03) ** 2)) + torch.exp(-(((X - 0.7) / 0.2) ** 2))
    model = SingleTaskGP(X, Y, torch.full_like(Y, 1e-4))
    model.covar_module.lengthscale = torch.tensor(0.04, **tkwargs)
    bounds = torch.tensor([[0.0], [1.0]], **tkwargs)
    torch.manual_seed(0)
    acqf = StableOpt(model.eval(), PerturbationEnvironment.ball(0.1, bounds, num_points=21), 1.0)
    x, _ = optimize_acqf(acqf, bounds, q=1, num_restarts=8, raw_samples=64)
    assert float(x) == pytest.approx(0.7, abs=0.02)
    choice = acqf.select_condition(x)
    assert abs(float(choice.z)) == pytest.approx(0.1)
    assert torch.allclose(choice.point, x + choice.z)


def test_input_constructor(tkwargs):
    model = gp(tkwargs)
    environment = FiniteEnvironment(torch.zeros(1, 1, **tkwargs))
    construct = get_acqf_input_constructor(StableOpt)
    acqf = StableOpt(**construct(model=model, training_data=None, environment=environment, width=1.5, t=2))
    assert float(acqf.width) == 1.5
    assert acqf.t == 2
