"""Proposals, statistics and texts are what they were; ``python -m tests.record`` stores them anew."""

import json

import pytest

from tests.record.record import FILE, QUICK, compute, scenarios
from tests.record.values import RTOL, SINGLE, differences, place

SCENARIOS = scenarios()


@pytest.fixture(scope="module")
def stored():
    return json.loads(FILE.read_text(encoding="utf-8"))


@pytest.mark.cpu_only("the record is of a CPU")
@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in SCENARIOS]
)
def test_a_scenario_gives_what_is_stored(name, stored):
    """To the bit where processor and versions round as those of the record.

    With another rounding an optimizer may end elsewhere, so that only statistics of models are compared.
    """
    assert name in stored["scenarios"], "it is not stored; see python -m tests.record"
    here, there = place(), stored["place"]
    if {**here, "rounding": ""} != {**there, "rounding": ""}:
        pytest.skip("the record is of other versions")
    if here != there and not name.startswith("statistics"):
        pytest.skip("it is rounded otherwise here; set OMP_NUM_THREADS=1 if the processor is the same")
    tolerance = 0.0 if here == there else SINGLE if "single precision" in name else RTOL
    found = differences(stored["scenarios"][name], compute(SCENARIOS[name]), tolerance)
    assert not found, "\n".join([f"{len(found)} values differ", *found[:8]])
