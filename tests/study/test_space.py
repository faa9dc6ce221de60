"""Spaces: values in their own units, coordinates in the unit cube, and what is refused."""

import json
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bo_robust.study import Arms, Box, Float, Integer
from bo_robust.study.space import as_space, space_from_json


def test_coordinates_by_hand():
    box = Box({"x": (2.0, 6.0), "lr": Float(1e-4, 1.0, log=True), "k": Integer(1, 4)})
    assert box.to_unit({"x": 3.0, "lr": 1e-2, "k": 2}) == pytest.approx([0.25, 0.5, 0.375])
    found = box.from_unit([0.25, 0.5, 0.49])
    assert found["x"] == 3.0
    assert found["lr"] == pytest.approx(1e-2)
    assert (found["k"], type(found["k"])) == (2, int)


def test_every_whole_number_has_an_equal_share():
    k = Integer(0, 3)
    counts = [k.from_unit((i + 0.5) / 1000) for i in range(1000)]
    assert [counts.count(v) for v in range(4)] == [250] * 4
    assert [k.from_unit(u) for u in (0.0, 1.0)] == [0, 3]


@settings(max_examples=50, deadline=None)
@given(st.floats(0, 1), st.floats(1e-6, 1e6), st.floats(1.01, 1e3))
def test_points_stay_in_the_space_and_come_back(u, low, factor):
    for p in (Float(low, low * factor), Float(low, low * factor, log=True)):
        value = p.from_unit(u)
        assert p.holds(value)
        assert p.to_unit(value) == pytest.approx(u, abs=1e-6)


def test_arms_are_scaled_by_column():
    arms = Arms([{"a": 0, "b": 5.0}, {"a": 4, "b": 5.0}, {"a": 1, "b": 5.0}])
    expected = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.25, 0.0]], dtype=torch.float64)
    assert torch.equal(arms.unit_points(), expected)
    assert arms.check({"b": 5.0, "a": 1}) == {"a": 1, "b": 5.0}


def test_json_gives_the_same_space():
    for space in (Box({"x": (0.1, 0.3), "k": Integer(1, 8, log=True)}), Arms([{"a": 0.1}, {"a": 0.2}])):
        assert space_from_json(space.to_json()) == space


def test_numbers_of_numpy_are_plain_ones():
    box = Box({"x": (np.float32(0.5), np.int64(2)), "k": Integer(np.int64(1), np.int32(4))})
    arms = Arms([{"a": np.int64(1)}, {"a": np.float32(2.5)}])
    assert json.loads(json.dumps([box.to_json(), arms.to_json()])) == [
        {"kind": "box", "parameters": {"x": ["float", 0.5, 2.0, False], "k": ["integer", 1, 4, False]}},
        {"kind": "arms", "points": [{"a": 1}, {"a": 2.5}]},
    ]
    assert arms.check({"a": np.float64(1.0)}) == {"a": 1}


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Float(1.0, 1.0), "low < high"),
        (lambda: Float(0.0, math.inf), "finite"),
        (lambda: Float(-1e308, 1e308), "overflows"),
        (lambda: Float(0.0, 1.0, log=True), "low > 0"),
        (lambda: Integer(0.5, 2), "whole"),
        (lambda: Float(1e10, 1e10 + 1e-5, log=True), "logarithms"),
        (lambda: Float(0.0, 10**400), "finite"),
        (lambda: Integer(0, 10**400), "finite"),
        (lambda: Arms(None), "arms are a list"),
        (lambda: Arms([{"a": 10**400}, {"a": 1.0}]), "arm 0: a"),
        (lambda: Arms([{"a": 1.0}, {"a": 2.0}]).check({"a": [1.0]}), "not one of the 2 arms"),
        (lambda: Arms([{"a": 1.0, "b": 0}, {"a": 2.0, "b": 0}]).check({"a": [1.0], "b": 0}), "not one of the 2 arms"),
        (lambda: Box({}), "at least one"),
        (lambda: Box({"x": 3.0}), "'x' must be Float"),
        (lambda: Arms([{"a": 1.0}]), "at least two"),
        (lambda: Arms([{"a": 1.0}, {"b": 1.0}]), "a point has a number for each of a"),
        (lambda: Arms([{"a": 1.0}, {"a": math.nan}]), "arm 1: a = nan"),
        (lambda: Arms([{"a": 1.0}, {"a": 1.0}, {"a": 2.0}]), "1 arms are there twice"),
        (lambda: as_space([0.0, 1.0]), "dict of parameters"),
        (lambda: Box({"x": (0.0, 1.0)}).check({"x": 1.5}), "x = 1.5 is not in"),
        (lambda: Box({"k": Integer(0, 3)}).check({"k": 1.5}), "k = 1.5 is not in"),
        (lambda: Box({"x": (0.0, 1.0)}).check({"y": 0.5}), "number for each of x"),
        (lambda: Arms([{"a": 1.0}, {"a": 2.0}]).check({"a": 1.5}), "not one of the 2 arms"),
    ],
)
def test_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()
