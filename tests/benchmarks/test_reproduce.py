"""The reproduction of the papers: its claims are about what is shipped, its findings by hand, its page."""

import json
import math
import subprocess
from types import SimpleNamespace

import pytest
import torch

from benchmarks import reproduce
from benchmarks.claims import CLAIMS, Claim, beyond_alpha, exact_variance
from benchmarks.problems.base import Trials
from benchmarks.problems.synthetic import GPDraw
from benchmarks.reproduce import panels_of
from benchmarks.verdicts import AVERAGE, BEST, END, LATE, MEASURES, SAYS, compared, decide, tolerance_of

CONFIGS = sorted({claim.config for claim in CLAIMS})


@pytest.mark.parametrize("name", CONFIGS)
def test_claims_are_about_methods_and_panels_of_configurations(name):
    claims = [claim for claim in CLAIMS if claim.config == name]
    shipped, panels = panels_of(name, []), panels_of(name, claims, seed=3)
    assert panels[0].seed == shipped[0].seed + 3
    for claim in claims:
        assert claim.says in SAYS
        labels = {*shipped[claim.panel].labels, *(["delta = 0.1"] if claim.values is beyond_alpha else [])}
        assert {claim.ours, claim.theirs} <= labels


@pytest.mark.parametrize(
    ("low", "high", "found"),
    [
        (-2.0, -0.01, "better"),
        (0.01, 2.0, "worse"),
        (-0.3, 0.3, "level"),
        (-0.29, -0.01, "level"),  # in both directions alike
        (0.01, 0.29, "level"),
        (-0.31, 0.2, "open"),
        (-math.inf, math.inf, "open"),
    ],
)
def test_findings_by_hand(low, high, found):
    assert decide(low, high, tolerance=0.3) == found


def test_a_pair_by_hand():
    """Differences -1 and -3: mean -2, standard error 1, t(0.975, 1) = 12.706."""
    found = compared(AVERAGE, {0: 1.0, 1: 1.0}, {0: 2.0, 1: 4.0, 2: 9.0}, tolerance=0.1)
    assert found["less"] == "-2 [-14.7, 10.7]"
    assert (found["ours"], found["theirs"], found["ratio"], found["half_width"]) == ("1", "3", "0.333", "13")
    assert (found["found"], found["trials"]) == ("open", 2)


def test_tolerances_are_in_units_of_the_picture():
    by_method = {"a": {0: 1.0, 1: 3.0}, "b": {0: 5.0, 1: 7.0}}
    assert tolerance_of(AVERAGE, by_method, extent=9.0) == pytest.approx(0.06)  # of b's mean
    assert tolerance_of(BEST, by_method, extent=9.0) == pytest.approx(0.09)
    assert tolerance_of(LATE, by_method, extent=9.0) == 0.3


def test_the_exact_variance_by_hand():
    """One arm pulled twice: k / (1 + 2 k / lambda) at k = 1 and lambda = 0.5."""
    problem = GPDraw(num_arms=3, noise_var=0.5).make(Trials(range(1), 0))
    variance = exact_variance(problem, torch.tensor([[2.0, 0.0, 0.0]], dtype=torch.float64))
    assert variance[0, 0].item() == pytest.approx(0.2)


def test_the_table_of_differences_by_hand():
    """Two trials in two parts: differences -1 and -3, as above; ρKG has one of them, and takes four times as long."""
    seconds = {"p": {"V-UCB-PROB": [0.5], "RHO-KG-APX": [2.0]}}
    parts = [
        {"regrets": {LATE: {"p": {}}, END: {"p": {"V-UCB-PROB": [-1.5], "RANDOM": [-0.5]}}}},
        {"regrets": {END: {"p": {"V-UCB-PROB": [-2.0], "RANDOM": [1.0], "RHO-KG-APX": [0.0]}}, "seconds": seconds}},
    ]
    *_, row = reproduce.differences({"value_at_risk/x": parts})
    assert row == "| p | the last | V-UCB Prob |  |  |  |  |  |  |  | -2.00 [-14.71, 10.71] (2) | 4 | 50% |"


def row(claim, found="better", **more):
    return {
        "paper": claim.paper,
        "figure": claim.figure,
        "claim": claim.text,
        "measure": "",
        "question": claim.question,
        "as_claimed": found in SAYS[claim.says][1],
        "rounds": 60,
        "found": found,
        "ours": "1",
        "theirs": "2",
        "less": "-1 [-2, 0]",
        "ratio": "0.5",
        "within": "0.3",
        "half_width": "1",
        "trials": 40,
        "config": claim.config,
        "revision": "abc",
        "date": "2026-11-29",
        "minutes": 1.0,
    } | more


def test_the_page_counts_the_papers_pairs_apart_and_names_what_is_open_or_missing():
    mine = Claim("P", "1", "srinivas/synthetic", "a", "<", "b")
    asked = Claim("P", "1", "srinivas/synthetic", "a", "<", "c", question=True)
    about = {"cores": 2, "processor": "x", "versions": {"torch": "1", "botorch": "2"}}
    rows = [row(mine), row(mine, "open"), row(asked, "worse")]
    text = reproduce.page({"rows": rows, "environment": about, "parts": {}})
    assert "Of 2 pairs that the papers claim 1 are as claimed: 1 better, 0 level, 0 worse, 1 open." in text
    assert "Of 1 pairs of questions of ours: 0 better, 0 level, 1 worse, 0 open." in text
    assert "Open, with half of their intervals: 1 a below b (± 1, level within 0.3)." in text
    assert "Not run yet at this revision: srinivas/temperature" in text
    assert "at revision abc" in text


def test_stored_parts_outlive_a_page_that_was_written_before_all_were_added(tmp_path, monkeypatch):
    monkeypatch.setattr(reproduce, "RAW", tmp_path)
    monkeypatch.setattr(reproduce, "PAGE", tmp_path / "papers.md")
    claim = next(claim for claim in CLAIMS if claim.config == "value_at_risk/discrete")
    stored = [{"revision": "abc", "regrets": {LATE: {"p": {"RANDOM": [x]}}}} for x in (-1.0, -2.0, -3.0)]
    about = row(claim, measure=MEASURES[LATE].words)
    run = SimpleNamespace(name=claim.config, parts=stored[:1], stored=stored, rows=lambda: [about])
    reproduce.write({claim.config: run}, {"rows": []})
    assert json.loads((tmp_path / "papers.json").read_text())["parts"] == {claim.config: stored}


def test_another_revision_is_refused(tmp_path, monkeypatch):
    """What was added, and what only reads traces, does not matter."""

    def git(*arguments):
        options = ["-c", "user.name=a", "-c", "user.email=a@b"]
        return subprocess.run(["git", "-C", tmp_path, *options, *arguments], check=True, capture_output=True, text=True)

    def write(name, text):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)

    for name in ("bo_robust/a.py", "benchmarks/run.py", "benchmarks/claims.py", "configs/c.py"):
        write(name, "1\n")
    git("init", "-q")
    git("add", "-A")
    git("commit", "-qm", "a")
    revision = git("rev-parse", "--short", "HEAD").stdout.strip()
    monkeypatch.setattr(reproduce, "ROOT", tmp_path)
    same = reproduce.same_code.__wrapped__
    assert same(revision)
    assert not same("0" * 40)
    assert not same(f"{revision}-dirty")
    write("benchmarks/claims.py", "2\n")
    write("bo_robust/b.py", "2\n")
    assert same(revision)
    for name in ("bo_robust/a.py", "benchmarks/run.py", "configs/c.py"):
        write(name, "2\n")
        assert not same(revision)
        write(name, "1\n")
