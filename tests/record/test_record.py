"""Proposals, statistics and texts are what they were; ``python -m tests.record`` stores them anew."""

import json

import pytest

from tests.record.record import FILE, QUICK, compute, scenarios
from tests.record.values import differences, place

SCENARIOS = scenarios()


@pytest.fixture(scope="module")
def stored():
    return json.loads(FILE.read_text(encoding="utf-8"))


@pytest.mark.cpu_only("the record is of a CPU")
@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in SCENARIOS]
)
def test_a_scenario_gives_what_is_stored(name, stored):
    """To the bit on the machine and versions of the record, elsewhere within the tolerances."""
    assert name in stored["scenarios"], "it is not stored; see python -m tests.record"
    exact = place() == stored["place"]
    found = differences(stored["scenarios"][name], compute(SCENARIOS[name]), exact, where=name)
    assert not found, "\n".join([f"{len(found)} values differ", *found[:8]])
