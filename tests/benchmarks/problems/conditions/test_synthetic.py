import math

import pytest
import torch
from botorch import test_functions

from benchmarks.problems.conditions.synthetic import Branin, GoldsteinPrice, Hartmann3OneTwo, Hartmann3TwoOne

SHAPES = {Branin: (1, 1), GoldsteinPrice: (1, 1), Hartmann3OneTwo: (1, 2), Hartmann3TwoOne: (2, 1)}


@pytest.mark.parametrize("kind", list(SHAPES))
def test_constants_of_the_paper(kind):
    problem = kind().make("cpu")
    assert (problem.dim_x, problem.dim_z) == SHAPES[kind]
    assert problem.x_bounds.tolist() == [[0.0] * problem.dim_x, [1.0] * problem.dim_x]
    assert (problem.noise_var, problem.alpha) == (0.01, 0.1)
    assert problem.initial == (10 if kind in (Hartmann3OneTwo, Hartmann3TwoOne) else 3)
    assert problem.points.shape == (64 if kind is Hartmann3OneTwo else 100, problem.dim_z)


def unit(d, seed=0):
    return torch.rand(50, d, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def test_branin_is_botorch_branin_rescaled(device):
    X = unit(2).to(device)
    u = torch.stack([15 * X[:, 0] - 5, 15 * X[:, 1]], -1)
    expected = -(test_functions.Branin().to(u)(u) - 10.0 - 44.81) / 51.95
    torch.testing.assert_close(Branin().make(device).f(X), expected)
    # Its global maximum: minus the known minimum 0.397887 of Branin.
    peak = torch.tensor([[(math.pi + 5) / 15, 2.275 / 15]], dtype=torch.float64, device=device)
    assert float(Branin().make(device).f(peak)) == pytest.approx((54.81 - 0.397887) / 51.95, abs=1e-6)


def test_goldstein_price_at_its_minimum(device):
    # GP(0, -1) = 3 is the minimum: f = 8.693 - log 3.
    best = torch.tensor([0.5, 0.25], dtype=torch.float64, device=device)
    assert float(GoldsteinPrice().make(device).f(best)) == pytest.approx(8.693 - math.log(3.0), abs=1e-12)
    # GP(1, 1) = (1 + 9 * 3) * (30 + 1 * (-13 + 10)) = 1876.
    other = torch.tensor([0.75, 0.75], dtype=torch.float64, device=device)
    assert float(GoldsteinPrice().make(device).f(other)) == pytest.approx(8.693 - math.log(1876.0), abs=1e-9)


@pytest.mark.parametrize("kind", [Hartmann3OneTwo, Hartmann3TwoOne])
def test_hartmann_is_botorch_hartmann_negated(kind, device):
    X = unit(3).to(device)
    # BoTorch keeps the constants in single precision.
    torch.testing.assert_close(kind().make(device).f(X), -test_functions.Hartmann(dim=3).to(X)(X), atol=1e-4, rtol=1e-4)
