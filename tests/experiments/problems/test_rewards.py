"""Spikes at one arm, the hard rewards of the lower bound, and tables, against exact values."""

import math

import numpy as np
import pytest
import torch

from bo_robust.experiments.problems.rewards import HardRewards, OnePointSpikes, TableRewards


def test_spikes_only_at_the_trials_own_arm(device):
    model = OnePointSpikes(torch.tensor([2, 0, 1]), magnitude=10.0).to(device, torch.float64)
    f = torch.tensor([[0.1, 0.2, 0.3]] * 3, dtype=torch.float64, device=device)
    draws = torch.tensor([[1.0], [-1.0], [1.0]], dtype=torch.float64, device=device)
    rewards = torch.stack([model(f, torch.full((3,), arm, device=device), draws) for arm in range(3)], dim=1)
    expected = [[0.1, 0.2, 10.3], [-9.9, 0.2, 0.3], [0.1, 10.2, 0.3]]
    torch.testing.assert_close(rewards.cpu(), torch.tensor(expected, dtype=torch.float64))


def test_spikes_are_fair():
    signs = OnePointSpikes(torch.tensor([0])).draw(np.random.default_rng(0), 10_000)
    assert set(np.unique(signs)) == {-1.0, 1.0}
    assert abs(signs.mean()) < 0.04  # 4 standard errors


@pytest.mark.parametrize(("gap", "v", "alpha"), [(0.1, 1.0, 1.0), (0.1, 1.0, 0.5), (0.25, 3.0, 0.3)])
def test_hard_rewards_have_mean_f_and_bounded_moment(gap, v, alpha, device):
    """Exactly, from the two values and the probability found by bisecting the uniform variate."""
    model = HardRewards(gap, v, alpha)
    value = (v / (2 * gap)) ** (1 / alpha)
    for mean in (2 * gap, 0.7 * gap, -gap, 0.0):
        probability = (2 * gap / v) ** (1 / alpha) * abs(mean)
        f = torch.tensor([[mean]], dtype=torch.float64, device=device)
        arm = torch.zeros(1, dtype=torch.long, device=device)
        for u, paid in [(probability * (1 - 1e-9), True), (probability * (1 + 1e-9) + 1e-300, False)]:
            draws = torch.tensor([[u]], dtype=torch.float64, device=device)
            expected = math.copysign(value, mean) if paid and mean != 0 else 0.0
            assert float(model(f, arm, draws)) == pytest.approx(expected, rel=1e-12)
        assert probability * math.copysign(value, mean) == pytest.approx(mean, abs=1e-15)
        assert probability * value ** (1 + alpha) <= v * (1 + 1e-12)


def test_hard_rewards_sampled(device):
    model = HardRewards(0.1, 1.0, 1.0)  # 5 with probability 0.04 at the peak
    rounds = 100_000
    draws = torch.from_numpy(model.draw(np.random.default_rng(0), rounds)).to(device)
    f = torch.full((rounds, 1), 0.2, dtype=torch.float64, device=device)
    y = model(f, torch.zeros(rounds, dtype=torch.long, device=device), draws)
    assert set(y.unique().tolist()) == {0.0, 5.0}
    assert float(y.mean()) == pytest.approx(0.2, abs=0.0125)  # 4 standard errors
    assert float((y**2).mean()) == pytest.approx(1.0, abs=0.0625)


def test_hard_rewards_refuse_what_is_no_probability():
    with pytest.raises(ValueError, match="smaller gap"):
        HardRewards(gap=0.6, v=1.0, alpha=1.0)  # 1.2 * 1.2 > 1
    with pytest.raises(ValueError, match="gap must be"):
        HardRewards(gap=0.0, v=1.0, alpha=1.0)
    with pytest.raises(ValueError, match="alpha must be"):
        HardRewards(gap=0.1, v=1.0, alpha=0.0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_table_rewards_are_the_entries(dtype, device):
    table = torch.arange(12.0, dtype=torch.float64).reshape(4, 3)
    model = TableRewards(table).to(device, dtype)
    draws = torch.tensor([[0.0], [3.0], [1.0]], dtype=dtype, device=device)
    y = model(torch.zeros(3, 3, device=device), torch.tensor([2, 0, 1], device=device), draws)
    assert y.dtype == dtype
    assert y.tolist() == [2.0, 9.0, 4.0]


def test_table_rows_are_uniform():
    rows = TableRewards(torch.zeros(5, 2)).draw(np.random.default_rng(0), 50_000)
    counts = np.bincount(rows[:, 0].astype(int), minlength=5)
    assert rows.shape == (50_000, 1)
    assert np.abs(counts - 10_000).max() < 4 * math.sqrt(8_000)


def test_bad_tables_are_refused():
    with pytest.raises(ValueError, match="m x n"):
        TableRewards(torch.zeros(3))
    with pytest.raises(ValueError, match="1 NaN"):
        TableRewards(torch.tensor([[0.0, math.nan]]))
