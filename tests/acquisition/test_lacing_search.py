import pytest
import torch
from botorch.models import SingleTaskGP
from torch.distributions import Normal

from bo_robust.acquisition.lnso import search_lacing_value
from bo_robust.acquisition.value_at_risk import ValueAtRiskUCB
from bo_robust.risk_measures.environments import ContinuousEnvironment
from bo_robust.risk_measures.functionals import ValueAtRisk
from tests.problems import rand

ALPHA = 0.1


def bell(tkwargs, d_z=1, num_points=256):
    """N(0.5, 0.125^2) cut at 2 sd, as in the paper's App. I."""
    box = torch.tensor([[0.25], [0.75]], **tkwargs).repeat(1, d_z)
    return ContinuousEnvironment(box, Normal(box.new_tensor(0.5), 0.125), num_points=num_points)


def gp(tkwargs, d=2):
    X = rand(tkwargs, 14, d)
    Y = torch.sin(6 * X[..., :1]) * torch.cos(7 * X[..., -1:]) + X[..., 1:2]
    return SingleTaskGP(X, Y, torch.full_like(Y, 0.01)).eval()


def var_of_draws(acqf, x, num_draws=4096, seed=0):
    """VaR of l and u at designs n x d_x over the draws of the search."""
    z = acqf.environment.sample(num_draws, torch.Generator(x.device).manual_seed(seed))
    points = torch.cat([x.unsqueeze(1).expand(-1, num_draws, -1), z.expand(len(x), -1, -1)], -1)
    lower, upper = acqf.bounds_of(points, acqf.pending_points)
    return ValueAtRisk(ALPHA)(lower), ValueAtRisk(ALPHA)(upper)


@pytest.mark.parametrize("d_z", [pytest.param(1, marks=pytest.mark.slow), 3])
def test_finds_denser_lacing_values_than_the_points(tkwargs, d_z):
    environment = bell(tkwargs, d_z, num_points=64)
    acqf = ValueAtRiskUCB(gp(tkwargs, 1 + d_z), environment, ALPHA, 0.5)
    x = torch.tensor([[0.1], [0.35], [0.9]], **tkwargs)
    found = search_lacing_value(acqf, x, num_starts=16, steps=40)
    assert found.z.shape == (3, d_z)
    assert torch.equal(found.point, torch.cat([x, found.z], -1))
    assert bool(((found.z >= 0.25) & (found.z <= 0.75)).all())
    with torch.no_grad():
        var_lower, var_upper = var_of_draws(acqf, x)
        lower, upper = (b.squeeze(-1) for b in acqf.bounds_of(found.point.unsqueeze(1), None))
        assert bool((lower <= var_lower + 1e-9).all())
        assert bool((upper >= var_upper - 1e-9).all())
        torch.testing.assert_close(found.regret_bound, upper - lower)
        # The best of the environment's own points, under the same VaR.
        l_z, u_z = acqf.bounds_at(x)
        mask = (l_z <= var_lower.unsqueeze(-1)) & (u_z >= var_upper.unsqueeze(-1))
        own = environment.log_prob(environment.z).expand_as(mask).masked_fill(~mask, -torch.inf).amax(-1)
    density = environment.log_prob(found.z)
    assert bool((density >= own).all())
    assert bool((density > own).any())


def test_finds_the_edge_of_the_lacing_set(tkwargs):
    """Against a fine grid of z: the density found is that of the best lacing value on it, up to the grid."""
    acqf = ValueAtRiskUCB(gp(tkwargs), bell(tkwargs, num_points=16), ALPHA, 2.0)
    x = torch.tensor([[0.2], [0.7]], **tkwargs)
    found = search_lacing_value(acqf, x, num_starts=8, steps=60)
    grid = torch.linspace(0.25, 0.75, 5001, **tkwargs).unsqueeze(-1)
    with torch.no_grad():
        points = torch.cat([x.unsqueeze(1).expand(-1, 5001, -1), grid.expand(2, -1, -1)], -1)
        lower, upper = acqf.bounds_of(points, None)
        var_lower, var_upper = (v.unsqueeze(-1) for v in var_of_draws(acqf, x))
        mask = (lower <= var_lower) & (upper >= var_upper)
        best = acqf.environment.log_prob(grid).expand_as(mask).masked_fill(~mask, -torch.inf).amax(-1)
    assert bool(mask.any(-1).all())
    torch.testing.assert_close(acqf.environment.log_prob(found.z), best, rtol=0.0, atol=5e-3)


def test_stays_in_the_box_where_the_density_rises_beyond_it(tkwargs):
    """All data are at z <= 0.4 and widths large, so that lacing values are those toward the edge z = 0.75."""
    box = torch.tensor([[0.25], [0.75]], **tkwargs)
    environment = ContinuousEnvironment(box, Normal(box.new_tensor(1.0), 0.25), num_points=16)
    X = rand(tkwargs, 14, 2)
    X[:, 1] = 0.4 * X[:, 1]
    model = SingleTaskGP(X, torch.sin(6 * X[:, :1]), torch.full_like(X[:, :1], 0.01)).eval()
    acqf = ValueAtRiskUCB(model, environment, ALPHA, 50.0)
    found = search_lacing_value(acqf, torch.tensor([0.4], **tkwargs), num_starts=4, steps=20, num_draws=64)
    assert float(found.z) == 0.75


def test_without_a_density_the_widest_interval_wins(tkwargs):
    box = torch.tensor([[0.0], [1.0]], **tkwargs)
    generator = torch.Generator(tkwargs["device"]).manual_seed(3)
    environment = ContinuousEnvironment(box, sampler=lambda n: torch.rand(n, 1, generator=generator, **tkwargs))
    acqf = ValueAtRiskUCB(gp(tkwargs), environment, ALPHA, 1.0)
    x = torch.tensor([0.4], **tkwargs)
    found = search_lacing_value(acqf, x, num_starts=4, steps=5)
    lower, upper = acqf.bounds_at(x)
    assert found.z.shape == (1,)
    assert found.regret_bound > 0.9 * (upper - lower)[acqf.lacing_values(x)].max()


def test_a_posterior_that_is_not_finite_bounds_nothing(tkwargs):
    acqf = ValueAtRiskUCB(gp(tkwargs), bell(tkwargs), ALPHA, 1.0)
    acqf.width.fill_(torch.nan)
    assert bool(search_lacing_value(acqf, torch.tensor([0.4], **tkwargs), 4, 2).regret_bound.isnan())
