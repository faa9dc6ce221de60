"""Benchmarks report one JSON object a line, judged by the median of at least five pairs and its interval of ranks."""

import json
import math
from pathlib import Path

import pytest

from benchmarks.common import options, report
from benchmarks.stats import Paired, differences, ratios


def printed(capsys):
    return json.loads(capsys.readouterr().out)


def test_report_prints_the_agreed_keys(capsys):
    report("a", 1.23456, "x", {"k": 1}, least=1.0)
    row = {"name": "a", "value": 1.235, "unit": "x", "target": ">= 1", "met": True, "detail": {"k": 1}}
    assert printed(capsys) == row
    assert report("b", 3.0, "x", most=2.0)["met"] is False
    assert report("b", 1.0, "x", most=2.0, valid=False)["met"] is False
    assert report("b", 1.0, "x", most=2.0, judged=False)["met"] is None
    assert report("b", None, "x", most=2.0)["met"] is None


def test_options_are_given_by_their_defaults():
    defaults = {"n": 3, "quick": False, "names": {"a": 1, "b": 2}, "sizes": (1, 2), "file": Path}
    none = options("", ("p", "q"), [], **defaults)
    assert vars(none) == {"parts": [], "n": 3, "quick": False, "names": ["a", "b"], "sizes": [1, 2], "file": None}
    some = options("", ("p", "q"), ["q", "--quick", "--names", "b", "--sizes", "4", "--file", "x"], **defaults)
    assert vars(some) | {"n": 3} == vars(none) | {
        "parts": ["q"], "quick": True, "names": ["b"], "sizes": [4], "file": Path("x")
    }  # fmt: skip
    with pytest.raises(SystemExit):
        options("", ("p", "q"), ["r"])


@pytest.mark.parametrize(
    ("n", "first", "last"),
    [(4, -math.inf, math.inf), (5, 1, 5), (6, 1, 6), (8, 1, 8), (9, 2, 8), (11, 2, 10), (20, 6, 15)],
)
def test_intervals_are_those_of_tables_of_ranks(n, first, last):
    """Confidence of at least 93.75 %: P(B(n, 1/2) < first) is at most 1/32, by the tables of the sign test."""
    assert Paired(tuple(float(i) for i in range(n, 0, -1))).interval == (first, last)


def test_five_pairs_are_judged_and_fewer_are_not(capsys):
    ratios([4.0, 6.0, 9.0, 2.0, 2.0], [2.0, 2.0, 3.0, 1.0, 2.0]).report("speed", least=2.0)
    row = printed(capsys)
    assert (row["value"], row["target"], row["met"]) == (2.0, ">= 2", True)
    assert row["detail"] == {"interval": [1.0, 3.0], "pairs": 5}
    differences([1.0] * 5, [2.0, 3.0, 2.0, 0.0, 5.0]).report("regret", "less", most=-2.0)
    row = printed(capsys)
    assert (row["value"], row["target"], row["met"]) == (-1.0, "<= -2", False)
    ratios([4.0] * 4, [1.0] * 4).report("few", least=2.0)
    row = printed(capsys)
    assert (row["value"], row["met"], row["detail"]["interval"]) == (4.0, None, [None, None])
