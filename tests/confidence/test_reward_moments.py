import dataclasses
import math
import warnings

import numpy as np
import pandas as pd
import pytest
import torch

from benchmarks.problems.data import load_csv
from bo_robust.confidence import propose_constants
from bo_robust.confidence.truncation import TGPTruncation

N = 2000
SIGMA = 1.0 / 0.67449  # of a Gaussian, in median absolute deviations


def signs(rng, n=N):
    return rng.choice([-1.0, 1.0], n)


def test_constant_magnitudes_by_hand():
    # Median 7 and MAD 3; no tail, as the largest are equal; every block mean is 1.
    found = propose_constants(7.0 + 3.0 * np.tile([-1.0, 1.0], 50))
    assert (found.center, found.scale, found.tail_index, found.alpha) == (7.0, 3.0, math.inf, 1.0)
    assert found.moment_bound == pytest.approx(2.0)
    assert found.noise_var == pytest.approx(100 / 99)
    assert found.truncation == TGPTruncation(found.moment_bound, 1.0)


def test_power_tail_by_hand():
    # 20 Pareto quantiles of index 1.5 beyond 80 rewards of +-1: Hill's estimate is 20 over the sum of their logarithms.
    tail = (np.arange(1, 21) / 21.0) ** (-1 / 1.5)
    found = propose_constants(np.concatenate([tail, np.ones(80)]) * np.tile([-1.0, 1.0], 50))
    total = (20 * math.log(21) - math.lgamma(21)) / 1.5
    lower = 26.509303 / (2 * total)  # 5 % quantile of chi-squared with 40 degrees of freedom
    assert found.tail_index == pytest.approx(20 / total)
    assert found.alpha == pytest.approx(0.5 * (0.5 * (20 / total + lower) - 1.0))


# Equal rewards, and a clump beyond a gap.
@pytest.mark.parametrize("tail", [np.full(20, 10.0), np.exp(10.0 + np.arange(20) / 100.0)])
def test_no_power_tail_means_finite_variance(tail):
    found = propose_constants(np.concatenate([tail, np.ones(80)]) * np.tile([-1.0, 1.0], 50))
    assert (found.tail_index, found.alpha) == (math.inf, 1.0)


def test_gaussian_rewards():
    found = propose_constants(50.0 + 3.0 * np.random.default_rng(14).standard_normal(20_000))
    assert found.center == pytest.approx(50.0, abs=0.1)
    assert found.scale == pytest.approx(3.0 / SIGMA, rel=0.02)
    assert found.alpha == 1.0
    assert found.moment_bound == pytest.approx(2.0 * SIGMA**2, rel=0.05)
    assert found.noise_var == pytest.approx(SIGMA**2, rel=0.05)


def test_noise_var_is_that_of_clipped_rewards():
    rng = np.random.default_rng(15)
    y = signs(rng) * rng.pareto(1.7, N)
    found = propose_constants(y)
    assert 0.05 < found.alpha < 0.5
    b = 2.0 * found.truncation(1)
    assert found.noise_var == pytest.approx(np.clip((y - found.center) / found.scale, -b, b).var(ddof=1))


def test_alpha_seldom_exceeds_what_has_a_moment():
    rng = np.random.default_rng(27)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        found = [propose_constants(signs(rng, 1000) * rng.pareto(1.2, 1000)).alpha for _ in range(60)]
    assert np.mean(np.array(found) > 0.2) <= 0.1


def test_units_and_containers_do_not_matter():
    y = np.random.default_rng(16).standard_t(2, 600)
    arms = np.repeat(["a", "b", "c"], 200)
    found = propose_constants(y, arms)
    other = propose_constants(pd.Series(-7.0 + 64.0 * y), pd.Series(arms, index=range(600, 1200)))
    assert other.center == pytest.approx(64.0 * found.center - 7.0)
    assert other.scale == pytest.approx(64.0 * found.scale)
    for name in ("tail_index", "alpha", "moment_bound", "noise_var"):
        assert getattr(other, name) == pytest.approx(getattr(found, name))
    assert propose_constants(torch.from_numpy(y), torch.arange(3).repeat_interleave(200)) == found
    with pytest.raises(dataclasses.FrozenInstanceError):
        found.alpha = 1.0


def test_arms_take_f_out_of_the_noise():
    arms = np.repeat(np.arange(5), 400)
    y = 10.0 * arms + np.random.default_rng(17).standard_normal(2000)
    with_arms, pooled = propose_constants(y, arms), propose_constants(y)
    assert with_arms.noise_var * with_arms.scale**2 == pytest.approx(1.0, rel=0.1)
    assert pooled.noise_var * pooled.scale**2 > 100.0
    # v covers f at the arms farthest from the center, 20 away: twice the limit of 401 / scale^2.
    assert with_arms.moment_bound * with_arms.scale**2 == pytest.approx(2.0 * 401.0, rel=0.1)


def test_few_rewards_of_an_arm_are_pooled():
    y = np.random.default_rng(18).standard_normal(400)
    assert propose_constants(y, np.arange(400) % 20).moment_bound == propose_constants(y).moment_bound


def test_some_rewards_of_far_arms_are_pooled_around_medians():
    arms = np.repeat(np.arange(5), 50)
    y = 10.0 * arms + np.random.default_rng(26).standard_normal(250)
    found = propose_constants(y, arms)
    medians = np.array([np.median(y[arms == a]) for a in range(5)])
    noise = propose_constants(y - medians[arms])
    largest = np.abs(medians - found.center).max()
    expected = (largest + math.sqrt(noise.moment_bound) * noise.scale) ** 2 / found.scale**2
    assert found.moment_bound == pytest.approx(expected, rel=0.05)  # The rewards r have a center of their own.


@pytest.mark.parametrize("per_arm", [40, 50, 55])
def test_one_outlier_is_not_the_moment_of_its_arm(per_arm):
    rng, arms = np.random.default_rng(25), np.repeat(np.arange(20), per_arm)
    for _ in range(10):
        y = 0.5 * np.sin(arms) + rng.standard_normal(len(arms))
        y += 100.0 * signs(rng, len(y)) * (rng.random(len(y)) < 1 / 500)
        assert propose_constants(y, arms).moment_bound < 20.0


def test_rewards_without_a_mean_warn():
    y = signs(np.random.default_rng(21)) * np.random.default_rng(22).pareto(0.7, N)
    with pytest.warns(UserWarning, match="no method can find"):
        assert propose_constants(y).alpha == 0.05


def test_real_rewards(data_dir):
    prices = load_csv("djia29").iloc[:, 1:].to_numpy(dtype=np.float64)
    returns = propose_constants(np.diff(np.log(prices), axis=0), np.tile(np.arange(29), len(prices) - 1))
    assert 2.0 < returns.tail_index < 5.0
    assert returns.alpha == 1.0
