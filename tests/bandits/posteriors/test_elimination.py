"""The elimination test by hand: sums, limits, removals, the last active candidate."""

import math

import pytest
import torch

from bo_robust.bandits.posteriors.elimination import (
    HALF_A_BIT,
    acquisition_set,
    evidence_bound,
    largest_bound,
    noise_allowance,
    plausible,
    run_error_test,
    run_likelihood_test,
    shrinkage,
    timeline,
    untested,
    violated,
)


def vector(device, *values):
    return torch.tensor(values, dtype=torch.float64, device=device)


def test_noise_allowance_by_hand():
    # 2 * 0.25 * log(3 * pi^2 * 16 / (3 * 0.1)) = 0.5 * log(1579.1367)
    assert noise_allowance(4, 0.5, 3, 0.1) == pytest.approx(0.5 * math.log(1579.1367041742973), rel=1e-14)


def test_a_hand_made_sequence(device):
    """Two trials, three candidates: sums go to who chose, limits grow, removals are recorded once, the last is kept."""
    active = torch.ones(2, 3, dtype=torch.bool, device=device)
    sums, failures = untested(torch.zeros(2, 3, dtype=torch.float64, device=device))
    ok = torch.ones(2, dtype=torch.bool, device=device)

    who = [0, 0]

    def by_trial(values):  # of the candidate tested; what the others say does not count
        others = torch.full((2, 3), 7.0, dtype=torch.float64, device=device)
        return others.scatter(1, torch.tensor(who, device=device).unsqueeze(1), vector(device, *values).unsqueeze(1))

    def round_(t, chosen, error, reach, xi, ok=ok):
        nonlocal active, sums, failures, who
        who = chosen
        before = (active.clone(), sums.clone(), failures.sides.clone())
        given = (active, sums, failures)
        outcome = run_error_test(
            active, sums, failures, torch.tensor(chosen, device=device), by_trial(error), by_trial(reach), xi, t, ok
        )
        assert torch.equal(given[0], before[0])
        assert torch.equal(given[1], before[1])
        assert torch.equal(given[2].sides, before[2])
        active, sums, failures = outcome.active, outcome.sums, outcome.failures
        return outcome

    v = round_(1, [0, 2], [3.0, -1.0], [1.0, 0.5], 4.0)  # 3 <= 2 + 1; 1 <= 2 + 0.5
    assert v.left.tolist() == [3.0, 1.0]
    assert v.right.tolist() == [3.0, 2.5]
    assert v.failed.tolist() == [False, False]
    v = round_(2, [0, 2], [-1.0, -5.0], [0.0, 0.0], 4.5)  # |3 - 1| <= sqrt(9) + 1; |-1 - 5| > 3 + 0.5
    assert v.left.tolist() == [2.0, 6.0]
    assert v.right.tolist() == [4.0, 3.5]
    assert active.tolist() == [[True, True, True], [True, True, False]]
    assert not violated(active, failures).any()
    v = round_(3, [1, 1], [9.0, math.nan], [0.0, 0.0], 1.0, torch.tensor([True, False], device=device))  # a failed pull
    assert v.failed.tolist() == [True, False]
    assert sums[1].tolist() == [[2.0, 1.0, 0.0], [0.0, 0.0, 2.0]]
    assert sums.isfinite().all()
    round_(4, [2, 1], [9.0, 9.0], [0.0, 0.0], 1.0)
    assert active.tolist() == [[True, False, False], [True, False, False]]
    v = round_(5, [0, 0], [9.0, 0.5], [0.0, 0.0], 3.0)  # 11 > sqrt(9) + 1, but the last of its trial; 0.5 is fine
    assert v.failed.tolist() == [True, False]
    assert active.tolist() == [[True, False, False], [True, False, False]]
    assert violated(active, failures).tolist() == [True, False]
    round_(6, [0, 0], [9.0, 0.5], [0.0, 0.0], 3.0)  # the first failure is the one on record
    assert [tuple(row.values()) for row in timeline(active, failures)] == [
        (0, 1, 3, 9.0, 1.0, 9.0, True),
        (0, 2, 4, 9.0, 1.0, 9.0, True),
        (0, 0, 5, 11.0, 4.0, (11.0 - 1.0) / 3.0, False),
        (1, 2, 2, 6.0, 3.5, (6.0 - 0.5) / 3.0, True),
        (1, 1, 4, 9.0, 1.0, 9.0, True),
    ]


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


def test_plausible_by_hand(device):
    """log(3 / 0.1) = 3.4012 nats for three candidates; a bound of 0 leaves the first of the likeliest."""
    bound = evidence_bound("likelihood", 3, 0.1)
    assert bound == pytest.approx(3.4011973816621555, rel=1e-14)
    evidence = torch.stack([vector(device, -5.0, -1.7, -5.2), vector(device, 0.0, 0.0, -3.5)])
    assert plausible(evidence, bound).tolist() == [[True, True, False], [True, True, False]]
    assert plausible(evidence, evidence_bound("likeliest", 3, 0.1)).tolist() == [
        [False, True, False],
        [True, False, False],
    ]


def test_the_likeliest_chooses_while_it_learns(device):
    """Half a bit is the gain of a reward where sigma^2 = lambda; a removed candidate is not the MAP one."""
    assert pytest.approx(0.5 * math.log(2.0)) == HALF_A_BIT
    active = torch.tensor([[True, False, True]] * 2, device=device)
    evidence = torch.stack([vector(device, -2.0, 0.0, -1.0)] * 2)
    last_gain = torch.stack([vector(device, 0.0, 0.0, HALF_A_BIT), vector(device, 9.0, 9.0, 0.99 * HALF_A_BIT)])
    assert acquisition_set(active, evidence, last_gain).tolist() == [[False, False, True], [True, False, True]]


def test_failures_by_likelihood_say_since_when(device):
    evidence = torch.stack([vector(device, -6.0, -1.0)])
    _, failures = untested(evidence)
    out, back = (torch.tensor([[first, True]], device=device) for first in (False, True))
    failures = run_likelihood_test(out, failures, evidence, 3.0, 4)
    failures = run_likelihood_test(out, failures, evidence - 9.0, 3.0, 5)
    assert [tuple(row.values()) for row in timeline(out, failures)] == [(0, 0, 4, 5.0, 3.0, 5.0 / 3.0, True)]
    assert timeline(back, run_likelihood_test(back, failures, evidence, 3.0, 6)) == []


def test_widths_shrink_to_nothing_at_the_bound(device):
    """w^2 falls linearly: 1, 3/4 and 0 of it at gaps of 0, 1 and 4 or more nats if the bound is 4."""
    factor = shrinkage(torch.stack([vector(device, -1.0, -2.0, -5.0, -9.0)]), 4.0)
    assert factor[0].tolist() == pytest.approx([1.0, math.sqrt(0.75), 0.0, 0.0])
