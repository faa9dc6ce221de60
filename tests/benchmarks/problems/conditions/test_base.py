import dataclasses
import math

import pytest
import torch

from benchmarks.problems.conditions.synthetic import Branin, unit_environment
from bo_robust.risk_measures.environments import FiniteEnvironment


def test_points_without_probabilities_weigh_the_same():
    environment = FiniteEnvironment(torch.zeros(4, 1, dtype=torch.float64))
    assert dataclasses.replace(Branin().make("cpu"), environment=environment).probabilities.tolist() == [0.25] * 4


@pytest.mark.parametrize(("dim", "w", "largest"), [(1, 100, 49 / 99), (2, 64, 3 / 7)])
def test_discrete_environment(dim, w, largest, device):
    found = unit_environment("discrete", dim, device)
    points, probabilities = found["environment"].z, found["environment"].probabilities
    assert points.shape == (w, dim)
    if dim == 1:  # effective support of the paper's probabilities, baselines.md
        assert 1.0 / float(probabilities.square().sum()) == pytest.approx(24.8, abs=0.05)
    assert points.device.type == device.type
    assert float(points.min()) == 0.0
    assert float(points.max()) == 1.0
    torch.testing.assert_close(probabilities.sum(), torch.ones((), dtype=torch.float64, device=device))
    # exp(-||z - 0.5||^2 / 0.1^2) by hand for two points, as a ratio.
    corner, middle = points[0], points[probabilities.argmax()]
    by_hand = math.exp((-0.25 * dim + sum((m - 0.5) ** 2 for m in middle.tolist())) / 0.01)
    assert float(probabilities[0] / probabilities.max()) == pytest.approx(by_hand, rel=1e-9)
    assert float(corner.sum()) == 0.0
    assert abs(float(middle[0]) - 0.5) == pytest.approx(abs(largest - 0.5), abs=1e-4)


@pytest.mark.parametrize("dim", [1, 2])
def test_truncated_normal(dim, device):
    found = unit_environment("continuous", dim, device)
    assert found["z_bounds"].tolist() == [[0.25] * dim, [0.75] * dim]
    z = found["environment"]
    # The density at the mean; tests/test_environments.py holds draws and density to each other.
    peak = math.exp(float(z.log_prob(torch.full((dim,), 0.5, dtype=torch.float64, device=device))))
    assert peak == pytest.approx((1 / (0.125 * math.sqrt(2 * math.pi) * math.erf(math.sqrt(2)))) ** dim)
    assert float(z.log_prob(torch.full((dim,), 0.2, dtype=torch.float64, device=device))) == -math.inf
