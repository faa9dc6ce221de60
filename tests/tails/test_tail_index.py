"""Tail index: hand-computed numbers, coverage on exact Pareto, behaviour on light tails, refusals."""

import math

import numpy as np
import pandas as pd
import pytest
import torch

from bo_robust.tails import default_k, hill, is_power_law, moment_index

# log-excesses over the third largest, e, are 3 and 1.
TINY = [math.e**2, -(math.e**4), 1.0, math.e]


def test_hill_by_hand():
    found = hill(TINY, k=2)
    assert found.index == pytest.approx(0.5)  # 1 over mean(3, 1)
    # chi-squared quantiles with 4 degrees of freedom over 2 * (3 + 1)
    assert (found.lower, found.upper) == (pytest.approx(0.484419 / 8, rel=1e-5), pytest.approx(11.143287 / 8, rel=1e-5))
    assert found.k == 2


def test_moment_index_by_hand():
    found = moment_index(TINY, k=2)
    # M1 = 2, M2 = 5: gamma = 2 + 1 - 0.5 / (1 - 4 / 5) = 0.5, standard error sqrt(1.25 / 2)
    assert found.index == pytest.approx(2.0)
    assert found.lower == pytest.approx(1.0 / (0.5 + 1.959964 * math.sqrt(0.625)), rel=1e-6)
    assert math.isinf(found.upper)


def test_moment_index_variance_below_zero_is_the_published_one():
    # log-excesses 1.2, 1, 0.8: M1 = 1, M2 = 3.08 / 3, gamma = 2 - 0.5 / (1 - 1 / M2) = -17.25
    y = np.exp([1.2, 1.0, 0.8, 0.0])
    g = 2.0 - 0.5 / (1.0 - 3.0 / 3.08)
    assert g == pytest.approx(-17.25)
    assert math.isinf(moment_index(y, k=3).index)
    # Dekkers, Einmahl & de Haan 1989, as printed
    bracket = 4 - 8 * (1 - 2 * g) / (1 - 3 * g) + (5 - 11 * g) * (1 - 2 * g) / ((1 - 3 * g) * (1 - 4 * g))
    variance = (1 - g) ** 2 * (1 - 2 * g) * bracket
    reach = 1.959964 * math.sqrt(variance / 3)
    assert moment_index(y, k=3).lower == pytest.approx(1.0 / (g + reach), rel=1e-5)


@pytest.mark.parametrize("index", [1.2, 3.0])
def test_hill_interval_covers_exact_pareto(index):
    rng = np.random.default_rng(0)
    intervals = [hill(1.0 + rng.pareto(index, 500), k=50) for _ in range(1000)]
    covered = np.mean([i.lower <= index <= i.upper for i in intervals])
    assert abs(covered - 0.95) < 0.021  # 3 standard errors of 1000 sets
    assert np.median([i.index for i in intervals]) == pytest.approx(index, rel=0.03)


def test_moment_interval_covers_pareto():
    rng = np.random.default_rng(1)
    intervals = [moment_index(1.0 + rng.pareto(1.5, 4000), k=200) for _ in range(300)]
    covered = np.mean([i.lower <= 1.5 <= i.upper for i in intervals])
    assert abs(covered - 0.95) < 0.04  # 3 standard errors of 300 sets; the interval is asymptotic


def test_student_t_and_gaussian():
    rng = np.random.default_rng(2)
    t3 = [hill(rng.standard_t(3, 5000)) for _ in range(100)]
    assert 2.6 < np.median([i.index for i in t3]) < 3.2
    assert np.mean([i.lower <= 3.0 <= i.upper for i in t3]) > 0.85
    gauss = [rng.standard_normal(5000) for _ in range(100)]
    assert min(hill(y).lower for y in gauss) > 2.0
    assert np.mean([math.isinf(moment_index(y).upper) for y in gauss]) > 0.9  # gamma = 0 is in the interval


def test_bounded_tail_has_infinite_index():
    assert math.isinf(moment_index(np.random.default_rng(3).random(5000)).index)


def test_spikes_are_no_power_law():
    rng = np.random.default_rng(4)
    for tail in (rng.standard_t(3, 5000), rng.pareto(1.3, 5000), rng.standard_normal(5000)):
        assert is_power_law(tail)
    assert not is_power_law(rng.standard_normal(5000) + 100.0 * (rng.random(5000) < 1 / 500))


def test_default_k():
    assert [default_k(n) for n in (100, 400, 900, 10_000)] == [20, 20, 30, 100]
    with pytest.raises(ValueError, match="99 rewards are too few"):
        default_k(99)


def test_scale_invariant_shift_is_not():
    y = np.random.default_rng(5).standard_t(2, 500)
    assert hill(7.0 * y).index == pytest.approx(hill(y).index)
    assert hill(y + 100.0).index > 2.0 * hill(y).index


def test_any_container(device):
    y = np.random.default_rng(6).standard_t(2, 500)
    expected = hill(y)
    assert hill(torch.from_numpy(y).to(device)) == expected
    assert hill(pd.Series(y, index=range(500, 1000))) == expected
    assert hill(y.reshape(5, 100).tolist()) == expected


@pytest.mark.parametrize("estimate", [hill, moment_index, is_power_law])
@pytest.mark.parametrize(
    ("y", "k", "message"),
    [
        ([1.0, 2.0, math.nan], 1, "1 NaN or infinite entries of 3"),
        ([1.0, math.inf, 2.0], 1, "NaN or infinite"),
        (["a", "b"], 1, "must be numbers"),
        ([], 1, "below the number of rewards"),
        ([1.0, 2.0, 3.0], 3, "below the number of rewards, 3"),
        ([1.0, 2.0, 3.0], 0, "k must be a whole number >= 1"),
        ([1.0, 2.0, 3.0], None, "too few to tell their tail"),
        ([0.0, 0.0, 0.0, 2.0], 2, "only 1 of the 3 largest"),
        ([5.0, -5.0, 5.0, 1.0], 2, "all equal to 5"),
        ([5.0] * 200, None, "all equal to 5"),
    ],
)
def test_refusals(estimate, y, k, message):
    with pytest.raises(ValueError, match=message):
        estimate(y, k)


def test_more_refusals():
    with pytest.raises(ValueError, match="the k = 2 largest"):
        moment_index([5.0, -5.0, 1.0, 0.5], k=2)
    for estimate in (hill, moment_index):
        with pytest.raises(ValueError, match="confidence"):
            estimate(TINY, k=2, confidence=1.0)
