"""A random pair takes the place of a repeated one, in every second round."""

import pytest
import torch

from bo_robust.acquisition import fresh_pair
from bo_robust.risk_measures.environments import FiniteEnvironment, PerturbationEnvironment

BOUNDS = torch.tensor([[0.0], [10.0]], dtype=torch.float64)
Z = FiniteEnvironment(torch.tensor([[100.0], [300.0]]).double(), torch.tensor([0.25, 0.75]).double())
OBSERVED = torch.tensor([[2.0, 100.0], [5.0, 300.0]], dtype=torch.float64)


def drawn(point, observed=OBSERVED, environment=Z, seed=0):
    point = torch.tensor([point], dtype=torch.float64)
    return point, fresh_pair(point, observed, BOUNDS, environment, torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("point", [[2.06, 100.0], [2.0, 102.0], [2.0, 300.0]])
def test_a_pair_that_is_new_stays(point):
    """0.5 % of the box is 0.05 of the design and 1 of the condition."""
    point, found = drawn(point)
    assert torch.equal(point, found)


@pytest.mark.parametrize("point", [[2.0, 100.0], [2.04, 100.0], [4.96, 299.0]])
def test_a_repeated_pair_is_replaced_in_every_second_round(point):
    point, found = drawn(point)
    assert not torch.equal(point, found)
    point, found = drawn(point[0].tolist(), torch.cat([OBSERVED, OBSERVED[:1] + 1.0]))
    assert torch.equal(point, found)


def test_random_pairs_are_uniform_designs_under_drawn_conditions():
    found = torch.cat([drawn([2.0, 100.0], seed=seed)[1] for seed in range(400)])
    assert found[:, 0].mean().item() == pytest.approx(5.0, abs=0.6)  # four standard errors
    assert found[:, 0].std().item() == pytest.approx(10.0 / 12.0**0.5, abs=0.4)
    assert (found[:, 1] == 300.0).double().mean().item() == pytest.approx(0.75, abs=0.09)
    assert set(found[:, 1].tolist()) == {100.0, 300.0}


def test_of_perturbed_designs_the_point_is_the_pair():
    environment = PerturbationEnvironment(torch.tensor([[-1.0], [1.0]]).double())
    point, found = drawn([5.0], OBSERVED[:, :1], environment)
    assert not torch.equal(point, found)
    assert found.shape == (1, 1)


def test_shapes_are_checked():
    with pytest.raises(ValueError, match="point must be 1 x 2 and observed n x 2"):
        drawn([2.0])
