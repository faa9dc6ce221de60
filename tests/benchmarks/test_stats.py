"""Benchmarks report one JSON object a line, judged by the median of at least five pairs and its interval of ranks."""

import json
import math

import pytest

from benchmarks.common import report
from benchmarks.stats import Paired, cpu_times, differences, ratios, report_paired, report_ratio


def printed(capsys):
    return json.loads(capsys.readouterr().out)


def test_report_prints_the_agreed_keys(capsys):
    report("a", 1.23456, "x", ">= 1", True, {"k": 1})
    assert printed(capsys) == {
        "name": "a",
        "value": 1.235,
        "unit": "x",
        "target": ">= 1",
        "met": True,
        "detail": {"k": 1},
    }


def test_alternatives_are_timed_in_turns():
    calls = []
    times = cpu_times(3, lambda: calls.append("a"), lambda: calls.append("b"))
    assert calls == ["a", "b"] * 4
    assert [len(column) for column in times] == [3, 3]
    assert all(t >= 0 for column in times for t in column)


@pytest.mark.parametrize(
    ("n", "first", "last"),
    [(4, -math.inf, math.inf), (5, 1, 5), (6, 1, 6), (8, 1, 8), (9, 2, 8), (11, 2, 10), (20, 6, 15)],
)
def test_intervals_are_those_of_tables_of_ranks(n, first, last):
    """Confidence of at least 93.75 %: P(B(n, 1/2) < first) is at most 1/32, by the tables of the sign test."""
    assert Paired(tuple(float(i) for i in range(n, 0, -1))).interval == (first, last)


def test_a_speed_and_a_quality_are_judged_alike(capsys):
    report_ratio("speed", [4.0, 6.0, 9.0, 2.0, 2.0], [2.0, 2.0, 3.0, 1.0, 2.0], 2.0)
    row = printed(capsys)
    assert (row["value"], row["target"], row["met"]) == (2.0, ">= 2", True)
    assert row["detail"] == {"interval": [1.0, 3.0], "pairs": 5}
    report_paired("regret", differences([1.0] * 5, [2.0, 3.0, 2.0, 0.0, 5.0]), "less", most=-2.0)
    row = printed(capsys)
    assert (row["value"], row["target"], row["met"]) == (-1.0, "<= -2", False)
    report_ratio("chosen differ", [4.0] * 5, [1.0] * 5, 2.0, also=False)
    assert printed(capsys)["met"] is False


def test_few_pairs_are_not_judged(capsys):
    report_paired("few", ratios([4.0] * 4, [1.0] * 4), "x", least=2.0)
    row = printed(capsys)
    assert (row["value"], row["met"], row["detail"]["interval"]) == (4.0, None, [None, None])
