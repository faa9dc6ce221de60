import math

import pytest
import torch
from botorch.test_functions import Branin, Hartmann

from benchmarks.problems import make_conditions_problem as make

SYNTHETIC = ["branin", "goldstein_price", "hartmann3_12", "hartmann3_21"]
SHAPES = {"branin": (1, 1), "goldstein_price": (1, 1), "hartmann3_12": (1, 2), "hartmann3_21": (2, 1)}


def test_a_setting_of_another_problem_is_refused():
    with pytest.raises(ValueError, match="has no 'z'"):
        make("portfolio", z="continuous")


@pytest.mark.parametrize("z", ["discrete", "continuous"])
@pytest.mark.parametrize("name", SYNTHETIC)
def test_constants_of_the_paper(name, z, device):
    problem = make(name, z=z, device=device)
    assert problem.name == name
    assert (problem.dim_x, problem.dim_z) == SHAPES[name]
    assert problem.x_bounds.tolist() == [[0.0] * problem.dim_x, [1.0] * problem.dim_x]
    assert (problem.noise_var, problem.alpha) == (0.01, 0.1)
    assert problem.initial == (10 if name.startswith("hartmann") else 3)
    assert problem.notes
    if z == "discrete":
        assert problem.points.shape == (64 if name == "hartmann3_12" else 100, problem.dim_z)
    else:
        assert problem.points is None
        draws = problem.environment.sample(8, torch.Generator(device).manual_seed(0))
        assert draws.device.type == device.type
        assert bool(torch.isfinite(problem.environment.log_prob(draws)).all())


@pytest.mark.parametrize("name", SYNTHETIC)
def test_shape_dtype_and_gradient(name, device):
    problem = make(name, device=device)
    d = problem.dim_x + problem.dim_z
    X = torch.rand(2, 5, d, generator=torch.Generator().manual_seed(0)).to(problem.x_bounds).requires_grad_()
    y = problem.f(X)
    assert (y.shape, y.dtype, y.device.type) == ((2, 5), torch.float64, device.type)
    torch.testing.assert_close(problem.f(X[1, 3]), y[1, 3])
    (gradient,) = torch.autograd.grad(y.sum(), X)
    assert bool(torch.isfinite(gradient).all())


def unit(d, seed=0):
    return torch.rand(50, d, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def test_branin_is_botorch_branin_rescaled(device):
    X = unit(2).to(device)
    u = torch.stack([15 * X[:, 0] - 5, 15 * X[:, 1]], -1)
    expected = -(Branin().to(u)(u) - 10.0 - 44.81) / 51.95
    torch.testing.assert_close(make("branin", device=device).f(X), expected)
    # Its global maximum: minus the known minimum 0.397887 of Branin.
    peak = torch.tensor([[(math.pi + 5) / 15, 2.275 / 15]], dtype=torch.float64, device=device)
    assert float(make("branin", device=device).f(peak)) == pytest.approx((54.81 - 0.397887) / 51.95, abs=1e-6)


def test_goldstein_price_at_its_minimum(device):
    # GP(0, -1) = 3 is the minimum: f = 8.693 - log 3.
    best = torch.tensor([0.5, 0.25], dtype=torch.float64, device=device)
    assert float(make("goldstein_price", device=device).f(best)) == pytest.approx(8.693 - math.log(3.0), abs=1e-12)
    # GP(1, 1) = (1 + 9 * 3) * (30 + 1 * (-13 + 10)) = 1876.
    other = torch.tensor([0.75, 0.75], dtype=torch.float64, device=device)
    assert float(make("goldstein_price", device=device).f(other)) == pytest.approx(8.693 - math.log(1876.0), abs=1e-9)


@pytest.mark.parametrize("name", ["hartmann3_12", "hartmann3_21"])
def test_hartmann_is_botorch_hartmann_negated(name, device):
    X = unit(3).to(device)
    # BoTorch keeps the constants in single precision.
    torch.testing.assert_close(make(name, device=device).f(X), -Hartmann(dim=3).to(X)(X), atol=1e-4, rtol=1e-4)
