"""Slopes are exponents, and every method that has one can be run."""

import pytest

from benchmarks.slopes import WORKS, Played, slope


def test_the_slope_of_a_power_is_its_exponent():
    sizes = (20, 100, 500, 2000)
    assert slope(sizes, [3.0 * n**2.5 for n in sizes]) == pytest.approx(2.5)
    assert slope(sizes, [7.0] * 4) == pytest.approx(0.0)


def test_the_cost_of_the_exact_posterior_is_that_of_its_rows():
    run = Played(1.0, 1.0, points=64)
    assert WORKS["he-gp-ucb"].cost(100, 10, run) == (10 * 4 * 100 * 74, 4 * 100 * 74)
