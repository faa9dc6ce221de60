"""Median of means for v."""

import math

import numpy as np
import pytest

from bo_robust.tails import moment_bound


def test_constant_rewards():
    found = moment_bound(np.full(100, -2.0), alpha=0.5, blocks=10)
    assert found.estimate == found.upper == pytest.approx(2.0**1.5)
    assert found.blocks == 10


def test_five_blocks_by_hand():
    # The largest of 5 means is the limit: P(Bin(5, 1/2) >= 5) = 1/32 <= 0.05 < 6/32 = P(Bin(5, 1/2) >= 4).
    y = np.random.default_rng(0).standard_normal(200)
    found = moment_bound(y, alpha=1.0, blocks=5, confidence=0.95, seed=3)
    order = np.random.default_rng(3).permutation(200)
    means = np.sort((y[order] ** 2).reshape(5, 40).mean(axis=1))
    assert found.estimate == pytest.approx(means[2])
    assert found.upper == pytest.approx(means[4])


def test_default_blocks():
    y = np.random.default_rng(0).standard_normal(5000)
    assert [moment_bound(y[:n], 1.0).blocks for n in (40, 100, 1000, 5000)] == [8, 12, 24, 100]
    for n in range(40, 200):  # the limit is below the largest block mean, which one fault can make
        y = np.ones(n)
        y[7] = 1e6
        assert moment_bound(y, 1.0, confidence=0.9).upper == moment_bound(y, 1.0).upper == 1.0


@pytest.mark.parametrize(
    ("draw", "alpha", "moment"),
    [
        (lambda rng: rng.standard_normal(1000), 1.0, 1.0),
        (lambda rng: rng.standard_t(3, 1000), 1.0, 3.0),
        # E L^1.25 of Pareto II, index 1.5: Gamma(2.25) Gamma(0.25) / Gamma(1.5)
        (lambda rng: rng.pareto(1.5, 1000), 0.25, math.gamma(2.25) * math.gamma(0.25) / math.gamma(1.5)),
    ],
)
def test_twice_the_limit_holds_the_moment(draw, alpha, moment):
    rng = np.random.default_rng(7)
    uppers = np.array([moment_bound(draw(rng), alpha).upper for _ in range(200)])
    assert np.mean(2.0 * uppers >= moment) >= 0.9
    assert np.median(uppers) < 1.5 * moment


def test_limit_covers_the_median_of_a_block_mean():
    # Gaussian squares in 25 blocks of 40: chi-squared(40) / 40 has median 0.98340.
    rng = np.random.default_rng(8)
    uppers = [moment_bound(rng.standard_normal(1000), 1.0, blocks=25, confidence=0.9).upper for _ in range(500)]
    # P(Bin(25, 1/2) >= 17) = 0.054, >= 16 is 0.115: the limit is the 17-th, coverage 0.946.
    assert abs(np.mean(np.array(uppers) >= 0.98340) - 0.946) < 0.03


def test_rare_faults_do_not_count():
    rng = np.random.default_rng(9)
    y = rng.standard_normal(5000)
    y[rng.random(5000) < 1 / 500] = 1000.0
    assert np.mean(y**2) > 1000.0
    assert moment_bound(y, 1.0).upper < 1.5


def test_largest_arm_counts():
    rng = np.random.default_rng(10)
    quiet, loud = rng.standard_normal(300), 5.0 + rng.standard_normal(300)
    few = np.full(39, 100.0)
    y, arms = np.concatenate([quiet, loud, few]), ["quiet"] * 300 + ["loud"] * 300 + ["few"] * 39
    found = moment_bound(y, 1.0, arms)
    assert found.estimate == pytest.approx(26.0, rel=0.1)
    assert found.upper > moment_bound(quiet, 1.0).upper


def test_same_seed_same_blocks():
    y = np.random.default_rng(11).standard_t(2, 500)
    assert moment_bound(y, 0.5) == moment_bound(y, 0.5)
    assert moment_bound(y, 0.5) != moment_bound(y, 0.5, seed=1)


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"alpha": 0.0}, "alpha must be in"),
        ({"alpha": 1.0, "confidence": 0.0}, "confidence"),
        ({"alpha": 1.0, "blocks": 4}, "blocks must be a whole number >= 5"),
        ({"alpha": 1.0, "blocks": 51}, "at most half the rewards of an arm, 50"),
        ({"alpha": 1.0, "blocks": 5, "confidence": 0.99}, "5 blocks give no limit at confidence 0.99"),
        ({"alpha": 1.0, "arms": np.arange(100)}, "at least 40 rewards of an arm, the most have 1"),
        ({"alpha": 1.0, "arms": [1, 2]}, "2 labels for 100 rewards"),
        ({"alpha": 1.0, "arms": [None] + ["a"] * 99}, "1 missing labels"),
    ],
)
def test_refusals(kwargs, message):
    with pytest.raises(ValueError, match=message):
        moment_bound(np.linspace(-1.0, 1.0, 100), **kwargs)


def test_no_rewards():
    with pytest.raises(ValueError, match="the most have 0"):
        moment_bound([], 1.0)
    with pytest.raises(ValueError, match="NaN or infinite"):
        moment_bound([math.nan] * 50, 1.0)
