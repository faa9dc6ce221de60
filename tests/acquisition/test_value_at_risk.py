import numpy as np
import pytest
import torch
from botorch.acquisition.input_constructors import get_acqf_input_constructor
from botorch.models import SingleTaskGP
from botorch.optim import optimize_acqf
from botorch.utils.datasets import SupervisedDataset

from bo_robust.acquisition import GPUCB, StableOpt, ValueAtRiskUCB
from bo_robust.acquisition.condition_choice import choose_condition
from bo_robust.confidence import FiniteWidth
from bo_robust.risk_measures.environments import FiniteEnvironment, PerturbationEnvironment
from bo_robust.risk_measures.functionals import CVaR, ValueAtRisk, WorstCase
from tests.problems import conditions, dense_posterior, rand, rbf

NOISE_VAR, LENGTHSCALE, W = 0.05, 0.4, 6


def objective(points):
    return torch.sin(5 * points[..., :1]) * torch.cos(3 * points[..., -1:]) + points[..., 1:2]


def make(tkwargs, n=12, d=3, batch=()):
    """A GP over two columns of x and one of z (d = 3)."""
    X = rand(tkwargs, *batch, n, d)
    kernel = rbf(tkwargs, LENGTHSCALE, batch)
    Y = objective(X)
    model = SingleTaskGP(X, Y, torch.full_like(Y, NOISE_VAR), covar_module=kernel, outcome_transform=None)
    model.mean_module.initialize(constant=0.0)
    return model.eval()


def quantile(values, p, alpha):
    for v in np.sort(values):
        if p[values <= v].sum() >= alpha - 1e-9:
            return v
    raise AssertionError


def test_value_bounds_and_lacing_values_against_a_dense_solve(tkwargs):
    model, environment = make(tkwargs), conditions(tkwargs)
    acqf = ValueAtRiskUCB(model, environment, 0.3, 1.5)
    x, p = rand(tkwargs, 5, 2, seed=2), environment.probabilities.cpu().numpy()
    values = acqf(x.unsqueeze(-2)).detach().cpu()
    lower, upper = acqf.bounds_at(x)
    mask = acqf.lacing_values(x)
    choice = acqf.select_condition(x)
    assert lower.shape == mask.shape == (5, W)
    for i in range(5):
        pairs = np.array([[*x[i].tolist(), float(z)] for z in environment.z])
        mean, variance = dense_posterior(
            torch.tensor(pairs), model.train_inputs[0], model.train_targets, NOISE_VAR, LENGTHSCALE
        )
        low, high = mean - 1.5 * np.sqrt(variance), mean + 1.5 * np.sqrt(variance)
        np.testing.assert_allclose(lower[i].detach().cpu(), low, atol=1e-8)
        np.testing.assert_allclose(upper[i].detach().cpu(), high, atol=1e-8)
        var_low, var_high = quantile(low, p, 0.3), quantile(high, p, 0.3)
        assert float(values[i]) == pytest.approx(var_high, abs=1e-8)
        lacing = (low <= var_low) & (high >= var_high)
        assert mask[i].tolist() == lacing.tolist()
        best = int(np.argmax(np.where(lacing, p + 1e-9 * (high - low), -1)))  # ties of p: the widest
        assert int(choice.index[i]) == best
        assert choice.z[i].tolist() == environment.z[best].tolist()
        assert choice.point[i].tolist() == pairs[best].tolist()
        assert float(choice.regret_bound[i]) == pytest.approx((high - low)[best], abs=1e-8)
        assert float(choice.regret_bound[i]) >= var_high - var_low - 1e-9
    regret_bound = acqf.regret_bound(x)
    f = ValueAtRisk(0.3)
    expected = f(upper, environment.probabilities) - f(lower, environment.probabilities)
    assert torch.allclose(regret_bound, expected)
    best = acqf(x.unsqueeze(-2)).max()
    assert (acqf.regret_bound(x, best) >= regret_bound - 1e-12).all()


@pytest.mark.parametrize("functional", [ValueAtRisk(0.3), WorstCase()])
@pytest.mark.parametrize("batch", [(), (2,)])
def test_gradient_through_the_selected_condition_is_that_through_all(tkwargs, functional, batch):
    acqf = ValueAtRiskUCB(make(tkwargs, batch=batch), conditions(tkwargs), functional, 1.5)
    x = rand(tkwargs, 4, *(1 for _ in batch), 1, 2, seed=2).requires_grad_()
    value = acqf(x)
    lower, upper = acqf.bounds_at(x.squeeze(-2))
    expected = functional.upper_bound(lower, upper, acqf.environment.probabilities)
    assert torch.allclose(value, expected, rtol=1e-12)
    gradient, through_all = (torch.autograd.grad(of.sum(), x)[0] for of in (value, expected))
    assert torch.allclose(gradient, through_all, rtol=1e-10, atol=1e-12)


def test_a_batched_model_has_a_choice_per_member(tkwargs):
    model, environment, x = make(tkwargs, batch=(2,)), conditions(tkwargs), rand(tkwargs, 5, 1, 2, seed=8)
    acqf = ValueAtRiskUCB(model, environment, 0.3, 1.5)
    choice = acqf.select_condition(x)
    assert choice.point.shape == (5, 2, 3)
    for i in range(2):
        X, Y = model.train_inputs[0][i], model.train_targets[i].unsqueeze(-1)
        kernel = rbf(tkwargs, LENGTHSCALE)
        one = SingleTaskGP(X, Y, torch.full_like(Y, NOISE_VAR), covar_module=kernel, outcome_transform=None)
        alone = ValueAtRiskUCB(one.eval(), environment, 0.3, 1.5)
        assert torch.equal(alone.select_condition(x[:, 0]).index, choice.index[:, i])


def test_input_constructor(tkwargs):
    model, environment = make(tkwargs), conditions(tkwargs)
    X = model.train_inputs[0]
    data = SupervisedDataset(X, objective(X), feature_names=["a", "b", "z"], outcome_names=["y"])
    construct = get_acqf_input_constructor(ValueAtRiskUCB)
    common = {"model": model, "training_data": data, "X_baseline": X, "objective": None, "environment": environment}
    acqf = ValueAtRiskUCB(**construct(**common, functional=0.2, width={"kind": "finite", "num_arms": 9}))
    assert torch.equal(acqf.width, GPUCB(model, FiniteWidth(9, 0.1)).width)
    assert acqf.functional == ValueAtRisk(0.2)
    acqf = ValueAtRiskUCB(**construct(**common, functional=CVaR(0.2), width=2, X_pending=X[:1], t=3))
    assert float(acqf.width) == 2.0
    assert torch.equal(acqf.X_pending, X[:1])
    plain = {"points": [{"z": 0.0}, {"z": 0.5}, {"z": 1.0}], "probabilities": [0.2, 0.3, 0.5]}
    given = common | {"functional": 0.2, "width": 1.0, "environment": plain, "bounds": [(0.0, 1.0)] * 3}
    made = construct(**given)["environment"]
    assert made.z.tolist() == [[0.0], [0.5], [1.0]]
    assert made.probabilities.tolist() == pytest.approx([0.2, 0.3, 0.5])
    assert made.z.dtype == X.dtype


def test_points_under_evaluation_certify_nothing(tkwargs):
    """Hallucinated variances are no confidence bounds: the regret bound is that of the observations alone."""
    model, environment, x = make(tkwargs), conditions(tkwargs), rand(tkwargs, 1, 2, seed=2)
    plain, pending = (ValueAtRiskUCB(model, environment, 0.2, 2.0, X_pending=p) for p in (None, x.repeat(3, 1)))
    assert float(pending(x.unsqueeze(0))) < float(plain(x.unsqueeze(0)))
    torch.testing.assert_close(pending.regret_bound(x), plain.regret_bound(x))


def test_random_choices_by_hand(tkwargs):
    """alpha = 0.3: row 0 offers point 0, row 1 points 0 and 1; all of them have positive probability."""
    z, p = torch.tensor([[0.1], [0.2], [0.3]], **tkwargs), torch.tensor([0.4, 0.3, 0.3], **tkwargs)
    lower = torch.tensor([[0.0, 1.0, 2.0], [0.0, 0.0, 2.0]], **tkwargs)
    upper = torch.tensor([[1.5, 4.0, 3.0], [5.0, 6.0, 7.0]], **tkwargs)
    x, draws = torch.tensor([[7.0], [8.0]], **tkwargs), torch.tensor([0.0, 0.9], **tkwargs)
    for rule, index in (("probable", [0, 0]), ("uniform", [0, 1]), ("drawn", [0, 2])):
        choice = choose_condition(x, FiniteEnvironment(z, p), ValueAtRisk(0.3), lower, upper, rule, draws)
        assert choice.index.tolist() == index


def plain_gp(tkwargs):
    X = rand(tkwargs, 12, 2)
    return SingleTaskGP(X, torch.sin(6 * X).sum(-1, keepdim=True)).eval()


def test_stable_opt_in_a_ball_prefers_the_broad_peak(tkwargs):
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


def test_input_constructor_of_stable_opt(tkwargs):
    model = plain_gp(tkwargs)
    environment = FiniteEnvironment(torch.zeros(1, 1, **tkwargs))
    construct = get_acqf_input_constructor(StableOpt)
    acqf = StableOpt(**construct(model=model, training_data=None, environment=environment, width=1.5, t=2))
    assert float(acqf.width) == 1.5
    assert acqf.t == 2
