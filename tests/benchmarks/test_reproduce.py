"""The reproduction of the papers: its claims are about what is shipped, its verdicts by hand, its page."""

import math

import pytest

from benchmarks import reproduce
from benchmarks.claims import CLAIMS, Claim, decide, verdict
from benchmarks.reproduce import panels_of

CONFIGS = sorted({claim.config for claim in CLAIMS})


@pytest.mark.parametrize("name", CONFIGS)
def test_claims_are_about_methods_and_panels_of_configurations(name):
    claims = [claim for claim in CLAIMS if claim.config == name]
    panels = panels_of(name, claims, seed=3)
    assert panels[0].seed == 3
    for claim in claims:
        labels = panels[claim.panel].labels
        for ours, relation, theirs in claim.compared():
            assert relation in ("<", "<=")
            assert {ours, theirs} <= set(labels)


@pytest.mark.parametrize(
    ("relation", "low", "high", "found"),
    [
        ("<", -2.0, -0.01, "yes"),
        ("<", 0.01, 2.0, "no"),
        ("<", -0.3, 0.3, "no"),  # no difference
        ("<", -0.31, 0.2, "open"),
        ("<=", -2.0, 0.3, "yes"),
        ("<=", 0.1, 0.31, "no"),
        ("<=", -0.1, 0.31, "open"),
        ("<", -math.inf, math.inf, "open"),
    ],
)
def test_decisions_by_hand(relation, low, high, found):
    assert decide(relation, low, high, tolerance=0.3) == found


def test_a_verdict_by_hand():
    """Differences -1 and -3: mean -2, standard error 1, t(0.975, 1) = 12.706."""
    claim = Claim("paper", "1", "a is lower", "x", pairs=("a < b",))
    shown, found, trials = verdict(claim, {"a": {0: 1.0, 1: 1.0}, "b": {0: 2.0, 1: 4.0, 2: 9.0}})
    assert shown == "a 1, b 3: -2 [-14.7, 10.7], open"
    assert (found, trials) == ("open", 2)


def test_the_table_of_differences_by_hand():
    """Two trials in two parts: differences -1 and -3, as above; ρKG has one of them, and takes four times as long."""
    parts = [
        {"regrets": {"log10_regret": {"p": {"V-UCB-PROB": [1.0], "RANDOM": [2.0]}}}},
        {"regrets": {"log10_regret": {"p": {"V-UCB-PROB": [1.0], "RANDOM": [4.0], "RHO-KG-APX": [0.0]}}}},
    ]
    parts[1]["regrets"]["seconds"] = {"p": {"V-UCB-PROB": [0.5], "RHO-KG-APX": [2.0]}}
    *_, row = reproduce.differences({"value_at_risk/x": parts})
    assert row == "| p | the last | V-UCB Prob |  |  |  |  | -2.00 [-14.71, 10.71] (2) | 4 |"
