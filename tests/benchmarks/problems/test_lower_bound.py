import math

import numpy as np
import pytest
import torch
from scipy import integrate

from benchmarks.problems.base import Trials
from benchmarks.problems.synthetic import HardInstance, spectral_density
from bo_robust.utils.covariance import SquaredExponential


def all_places(**params):
    """f of each place once, ordered by its peak."""
    f = HardInstance(**params).make(Trials(range(200), 0)).f
    return torch.unique(f, dim=0)


def test_bumps_are_high_at_one_place_only():
    peaks, gap = 5, 0.1
    f = all_places(num_arms=1001, peaks=peaks, gap=gap)
    assert len(f) == peaks
    x = torch.linspace(0, 1, 1001, dtype=torch.float64)
    assert sorted(x[f.argmax(dim=1)].tolist()) == pytest.approx([0.1, 0.3, 0.5, 0.7, 0.9], abs=1e-3)
    torch.testing.assert_close(f.max(dim=1).values, torch.full((peaks,), 2 * gap, dtype=torch.float64))
    assert float(f.abs().max()) <= 2 * gap * (1 + 1e-12)
    for row in f:  # down to gap at distance 1 / (2 peaks) = 0.1, and nowhere above it further away
        distance = (x - x[row.argmax()]).abs()
        assert row[(distance - 0.1).abs() < 1e-9].numpy() == pytest.approx(gap, rel=1e-6)
        assert float(row[distance > 0.1 + 1e-9].max()) < gap
    assert int(((f > gap + 1e-9).sum(dim=0)).max()) == 1  # no arm is within gap of the best for two places


@pytest.mark.parametrize("r", [0.0, 0.17, 0.5])
def test_spectral_density_transforms_to_the_covariance(r):
    covariance = SquaredExponential(0.2)

    def integrand(w):
        return 2 * float(spectral_density(covariance, np.array(w))) * math.cos(2 * math.pi * w * r)

    value = integrate.quad(integrand, 0.0, 20.0, limit=4000)[0]
    expected = float(covariance(torch.zeros(1, 1).double(), torch.full((1, 1), r).double()))
    assert value == pytest.approx(expected, abs=1e-5)


def test_norm_bounds_the_norm_of_the_interpolant():
    """sqrt(f^T K^-1 f) on ever more points grows to the norm on [0, 1], at most that on the line."""
    norms = []
    for n in (4, 8, 12):
        problem = HardInstance(num_arms=n, peaks=3).make(Trials([0], 2))
        K = problem.kernel(problem.arms, problem.arms)
        f = problem.f[0]
        norms.append(math.sqrt(float(f @ torch.linalg.solve(K, f))))
    assert norms == sorted(norms)
    assert 0.9 * problem.norm_bound < norms[-1] <= problem.norm_bound


def test_constants_scale_with_the_gap():
    one, two = (HardInstance(gap=gap).make(Trials([0], 0)) for gap in (0.05, 0.1))
    assert two.norm_bound == pytest.approx(2 * one.norm_bound)
    assert two.norm_bound == pytest.approx(1.7414, abs=1e-4)
    assert (two.moment_bound, two.alpha) == (1.0, 1.0)
    assert two.noise_scale == pytest.approx(2.5)  # rewards in {0, 5}
