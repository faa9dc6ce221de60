"""The units in which models see rewards."""

import pytest

from bo_robust.study.settings import CommonSettings
from bo_robust.study.units import spread_of, units_of, warn_of_spoilt_units


def units(rewards, **settings):
    found = units_of(rewards, CommonSettings(num_initial=3, **settings))
    return found.center, found.scale, found.sign


def test_rewards_are_centred_by_the_initial_design_and_scaled_by_the_largest_spread():
    """Refits at 3, 4, 6 rewards; at least one reward at either end does not count for the range."""
    assert units([1.0, 2.0, 6.0]) == (2.0, 1.4826, 1.0)  # median deviation 1
    # no spread at all: of the deviations that are not 0
    center, scale, _ = units([0.0, 0.0, 0.0, 10.0])
    assert (center, scale) == (0.0, pytest.approx(14.826))
    assert units([0.0, 0.0, 0.0, 10.0, 99.0]) == (center, scale, 1.0)
    # 0, 0, 0, 10, 99, 99 from the second to the fifth; median deviation 5
    assert units([0.0, 0.0, 0.0, 10.0, 99.0, 99.0])[:2] == (0.0, pytest.approx(99.0 / 2.0729))
    # it does not shrink where later rewards are alike
    assert units([0.0, 10.0, 20.0, 10.0, 10.0, 10.0])[:2] == (10.0, pytest.approx(14.826))
    # a reward in six that is an outlier moves nothing
    assert units([1.0, 2.0, 6.0, 3.0, 1e9, 2.0])[1] == pytest.approx(max(1.4826, (6.0 - 2.0) / 2.0729))


def test_units_given_are_kept_and_minimisation_turns_the_sign():
    assert units([1.0, 2.0, 6.0], center=5.0, scale=2.0, minimize=True) == (5.0, 2.0, -1.0)
    found = units_of([1.0, 2.0, 6.0], CommonSettings(num_initial=3, center=5.0, scale=2.0, minimize=True))
    assert found.of_model(3.0) == -1.0


def test_equal_rewards_have_no_scale_unless_it_is_given():
    assert not units_of([3.0] * 4, CommonSettings(num_initial=3)).known
    assert units_of([3.0] * 4, CommonSettings(num_initial=3)).scale == 1.0
    assert units_of([3.0] * 4, CommonSettings(num_initial=3, scale=2.0)).known
    assert units_of([3.0, 4.0], CommonSettings(num_initial=3)).known


def test_spoilt_units_are_warned_about_once_per_look():
    settings, rewards = CommonSettings(num_initial=3), [1e9, 1e9, 0.0, *(0.1 * i for i in range(17))]
    found = units_of(rewards, settings)
    with pytest.warns(UserWarning, match="center and scale of the first rewards"):
        looked = warn_of_spoilt_units(rewards, found, settings, 0)
    assert warn_of_spoilt_units(rewards, found, settings, looked) == looked
    given = CommonSettings(num_initial=3, center=0.0, scale=1.0)
    assert warn_of_spoilt_units(rewards, units_of(rewards, given), given, 0) == 0
    # of a minimisation those below count, and outliers above are no news
    small, turned = CommonSettings(num_initial=3, minimize=True), [-y for y in rewards]
    with pytest.warns(UserWarning, match="center and scale of the first rewards"):
        assert warn_of_spoilt_units(turned, units_of(turned, small), small, 0) == looked
    assert warn_of_spoilt_units(rewards, found, small, 0) == 0
    assert spread_of([0.0, 1.0, 2.0], 1.0) == 1.4826
