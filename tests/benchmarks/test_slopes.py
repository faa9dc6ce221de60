"""Slopes are exponents, and every method that has one can be run."""

import pytest

from benchmarks.slopes import WORKS, Measured, arms, slope


def test_the_slope_of_a_power_is_its_exponent():
    sizes = (20, 100, 500, 2000)
    assert slope(sizes, [3.0 * n**2.5 for n in sizes]) == pytest.approx(2.5)
    assert slope(sizes, [7.0] * 4) == pytest.approx(0.0)


@pytest.mark.parametrize("name", [name for name, work in WORKS.items() if work.T])
def test_every_method_is_played_and_costs_more_where_more_is_known(name):
    work = WORKS[name]
    run = arms(name, 30, 6)
    assert run.seconds > 0.0
    assert 0 < run.points <= 30
    assert (run.rebuilt > 0) == (name in ("bkb", "bbkb"))
    more = work.cost(60, 12, run._replace(points=2 * run.points, rebuilt=2 * run.rebuilt))
    assert all(a > b > 0 for a, b in zip(more, work.cost(30, 6, run), strict=True))


def test_the_cost_of_the_exact_posterior_is_that_of_its_rows():
    run = Measured(1.0, 1.0, points=64)
    assert WORKS["he-gp-ucb"].cost(100, 10, run) == (10 * 4 * 100 * 74, 4 * 100 * 74)
