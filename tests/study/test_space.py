"""Spaces: values in their own units, coordinates in the unit cube, and what is refused."""

import json
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bo_robust.study import Arms, Box, Categorical, Float, Integer
from bo_robust.study.space import all_points, space_from_json


def test_coordinates_by_hand():
    box = Box({"x": (2.0, 6.0), "lr": Float(1e-4, 1.0, log=True), "k": Integer(1, 4)})
    assert box.encode({"x": 3.0, "lr": 1e-2, "k": 2}) == pytest.approx([0.25, 0.5, 0.375])
    found = box.decode([0.25, 0.5, 0.49])
    assert found["x"] == 3.0
    assert found["lr"] == pytest.approx(1e-2)
    assert (found["k"], type(found["k"])) == (2, int)


def test_every_whole_number_has_an_equal_share():
    k = Integer(0, 3)
    counts = [k.decode([(i + 0.5) / 1000]) for i in range(1000)]
    assert [counts.count(v) for v in range(4)] == [250] * 4
    assert [k.decode([u]) for u in (0.0, 1.0)] == [0, 3]


@settings(max_examples=50, deadline=None)
@given(st.floats(0, 1), st.floats(1e-6, 1e6), st.floats(1.01, 1e3))
def test_points_stay_in_the_space_and_come_back(u, low, factor):
    for p in (Float(low, low * factor), Float(low, low * factor, log=True)):
        value = p.decode([u])
        assert p.check(value) == value
        assert p.encode(value)[0] == pytest.approx(u, abs=1e-6)


def test_a_categorical_parameter_has_a_column_per_choice():
    box = Box({"kind": Categorical(["relu", None, 3, True]), "x": (0.0, 2.0)})
    assert box.columns == ("kind=relu", "kind=None", "kind=3", "kind=True", "x")
    assert box.encode({"kind": None, "x": 0.5}) == [0.0, 1.0, 0.0, 0.0, 0.25]
    assert box.decode([0.2, 0.1, 0.7, 0.3, 0.25]) == {"kind": 3, "x": 0.5}
    assert box.check({"kind": np.int64(3), "x": 0.5}) == {"kind": 3, "x": 0.5}
    assert box.points is None
    with pytest.raises(ValueError, match="kind = 'tanh' is not in"):
        box.check({"kind": "tanh", "x": 0.5})


def test_steps_have_equal_shares_and_all_combinations_are_known():
    box = Box({"s": Float(0.0, 0.3, step=0.1), "n": Integer(0, 10, step=5), "c": Categorical(["a", "b"])})
    assert len(box.points) == 4 * 3 * 2
    assert {p["n"] for p in box.points} == {0, 5, 10}
    assert box.encode({"s": 0.0, "n": 5, "c": "a"}) == pytest.approx([0.125, 0.5, 1.0, 0.0])
    assert all(box.decode(box.encode(p)) == p == box.check(p) for p in box.points)
    assert box.check({"s": 0.3, "n": 5, "c": "a"})["s"] == pytest.approx(0.3)
    with pytest.raises(ValueError, match=r"s = 0\.25 is not in"):
        box.check({"s": 0.25, "n": 5, "c": "a"})
    assert Box({"s": Float(0.0, 1.0, step=1e-4)}).points is None  # more than are all looked at


def test_arms_are_scaled_by_column():
    arms = Arms([{"a": 0, "b": 5.0}, {"a": 4, "b": 5.0}, {"a": 1, "b": 5.0}])
    expected = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.25, 0.0]], dtype=torch.float64)
    assert torch.equal(all_points(arms), expected)
    assert arms.check({"b": 5.0, "a": 1}) == {"a": 1, "b": 5.0}


def test_json_gives_the_same_space():
    box = Box(
        {"x": (0.1, 0.3), "k": Integer(1, 8, log=True), "c": Categorical(["a", None, 2]), "s": Float(0, 1, step=0.1)}
    )
    for space in (box, Arms([{"a": 0.1}, {"a": 0.2}])):
        assert space_from_json(space.to_json()) == space


def test_numbers_of_numpy_are_plain_ones():
    box = Box({"x": (np.float32(0.5), np.int64(2)), "k": Integer(np.int64(1), np.int32(4))})
    arms = Arms([{"a": np.int64(1)}, {"a": np.float32(2.5)}])
    assert json.loads(json.dumps([box.to_json(), arms.to_json()])) == [
        {
            "kind": "box",
            "parameters": {
                "x": {"kind": "float", "low": 0.5, "high": 2.0, "log": False, "step": None},
                "k": {"kind": "integer", "low": 1, "high": 4, "log": False, "step": 1},
            },
        },
        {"kind": "arms", "points": [{"a": 1}, {"a": 2.5}]},
    ]
    assert arms.check({"a": np.float64(1.0)}) == {"a": 1}


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Float(0.0, math.inf), "finite"),
        (lambda: Box({"x": (0, math.nan)}), "finite bounds with low < high, got 0 and nan"),
        (lambda: Box({"x": np.array([1.0, 0.0])}), "low < high, got 1.0 and 0.0"),
        (lambda: Float(-1e308, 1e308), "overflows"),
        (lambda: Float(1e10, 1e10 + 1e-5, log=True), "logarithms"),
        (lambda: Float(0.0, 10**400), "finite"),
        (lambda: Integer(0, 10**400), "finite"),
        (lambda: Box({"x": (1.0, 0.0)}), "parameter 'x': Float needs finite bounds with low < high, got 1.0 and 0.0"),
        (lambda: Float(0.0, 1.0, step=0.3), "step"),
        (lambda: Float(0.0, 1.0, step=-0.5), "step"),
        (lambda: Integer(1, 9, log=True, step=2), "step"),
        (lambda: Categorical(["a"]), "choices"),
        (lambda: Categorical([1, 2.5, None, True]), "in Python 1 == True: make one a text"),
        (lambda: Categorical([[1], [2]]), "choices"),
        (lambda: Categorical("ab"), "choices"),
        (lambda: Arms(None), "arms are a list"),
        (lambda: Arms([{"a": 10**400}, {"a": 1.0}]), "arm 0: a"),
        (lambda: Arms([{"a": 1.0}, {"a": 2.0}]).check({"a": [1.0]}), "not one of the 2 arms"),
        (lambda: Arms([{"a": 1.0, "b": 0}, {"a": 2.0, "b": 0}]).check({"a": [1.0], "b": 0}), "not one of the 2 arms"),
        (lambda: Arms([{"a": 1.0}, {"a": math.nan}]), "arm 1: a = nan"),
        (lambda: Arms([{"a": 1.0}, {"a": 1.0}, {"a": 2.0}]), "1 arms are there twice"),
        (lambda: Box({"x": (0.0, 1.0)}).check({"x": 1.5}), "x = 1.5 is not in"),
        (lambda: Box({"k": Integer(0, 3)}).check({"k": 1.5}), "k = 1.5 is not in"),
        (lambda: Box({"x": (0.0, 1.0)}).check({"y": 0.5}), "value for each of x"),
        (lambda: Arms([{"a": 1.0}, {"a": 2.0}]).check({"a": 1.5}), "not one of the 2 arms"),
    ],
)
def test_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()
