import math

import pytest
import torch

from bo_robust.confidence.elimination import (
    HALF_A_BIT,
    acquisition_set,
    largest_bound,
    run_error_test,
    shrinkage,
    untested,
)


def vector(device, *values):
    return torch.tensor(values, dtype=torch.float64, device=device)


def test_a_removed_candidate_is_not_tested_again(device):
    """HE-StableOpt may test one candidate twice in a round."""
    active = torch.tensor([[False, True]], device=device)
    sums, failures = untested(torch.zeros(1, 2, dtype=torch.float64, device=device))
    one = torch.ones(1, dtype=torch.bool, device=device)
    chosen = torch.tensor([0], device=device)
    both = vector(device, 9.0, 9.0).unsqueeze(0)
    outcome = run_error_test(active, sums, failures, chosen, both, 0.0 * both, 1.0, 1, one)
    assert not outcome.failed.any()
    assert outcome.failures.at.tolist() == [[0, 0]]
    assert torch.equal(outcome.active, active)


def test_the_largest_bound_of_the_active_is_tested(device):
    bounds = torch.tensor([[1.0, 3.0, 3.0], [2.0, 5.0, 2.0 + 1e-9]], dtype=torch.float64, device=device)
    active = torch.tensor([[True, True, True], [True, False, True]], device=device)
    assert largest_bound(bounds, active).tolist() == [1, 2]
    assert largest_bound(bounds, active, rounding=1e-8).tolist() == [1, 0]  # equal up to rounding: the first


def test_the_likeliest_chooses_while_it_learns(device):
    """Half a bit is the gain of a reward where sigma^2 = lambda; a removed candidate is not the MAP one."""
    assert pytest.approx(0.5 * math.log(2.0)) == HALF_A_BIT
    active = torch.tensor([[True, False, True]] * 2, device=device)
    evidence = torch.stack([vector(device, -2.0, 0.0, -1.0)] * 2)
    last_gain = torch.stack([vector(device, 0.0, 0.0, HALF_A_BIT), vector(device, 9.0, 9.0, 0.99 * HALF_A_BIT)])
    assert acquisition_set(active, evidence, last_gain).tolist() == [[False, False, True], [True, False, True]]


def test_widths_shrink_to_nothing_at_the_bound(device):
    """w^2 falls linearly: 1, 3/4 and 0 of it at gaps of 0, 1 and 4 or more nats if the bound is 4."""
    factor = shrinkage(torch.stack([vector(device, -1.0, -2.0, -5.0, -9.0)]), 4.0)
    assert factor[0].tolist() == pytest.approx([1.0, math.sqrt(0.75), 0.0, 0.0])
