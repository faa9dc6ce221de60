"""The reproduction of the papers: its claims are about what is shipped, its verdicts by hand, its page."""

import json

import pytest

from benchmarks import reproduce
from benchmarks.reproduce import CLAIMS, Claim, config_of, verdict

CONFIGS = sorted({claim.config for claim in CLAIMS})


@pytest.mark.parametrize("name", CONFIGS)
def test_claims_are_about_shipped_methods_and_panels(name):
    claims = [claim for claim in CLAIMS if claim.config == name]
    config = config_of(name, claims)
    for claim in claims:
        panel = config.panels[claim.panel]
        for ours, relation, theirs in claim.compared():
            assert relation in ("<", "<=")
            assert [ours, theirs] in panel.compare
    if claims[0].pairs:
        assert {m.label for m in config.panels[0].methods} == {x for pair in config.panels[0].compare for x in pair}


def panel(difference, significant):
    found = {"mean": difference, "error": 0.1, "significant": significant}
    return {
        "comparisons": [{"pair": ["a", "b"], "average_regret": found}],
        "methods": {"a": {"average_regret": [1.0 + difference, 0.1]}, "b": {"average_regret": [1.0, 0.1]}},
    }


@pytest.mark.parametrize(
    ("relation", "difference", "significant", "agrees"),
    [
        ("<", -0.5, True, True),
        ("<", -0.1, False, None),
        ("<", 0.5, True, False),
        ("<=", 0.1, False, True),
        ("<=", 0.5, True, False),
    ],
)
def test_verdicts_by_hand(relation, difference, significant, agrees):
    claim = Claim("paper", "1", "a is lower", "x", pairs=(f"a {relation} b",))
    said, found = verdict(claim, panel(difference, significant))
    assert found is agrees
    word = "level" if not significant else "lower" if difference < 0 else "higher"
    assert said == f"a {1 + difference:.3g}, b 1 ({word})"


def test_a_run_ends_in_a_table_and_a_page(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(reproduce, "CLAIMS", [c for c in CLAIMS if c.config == "unknown_hyperparameters/mean"])
    monkeypatch.setattr(reproduce, "PICTURES", {"one": ("unknown_hyperparameters/mean", "00-d-mean-k-x-x-1.png")})
    monkeypatch.setattr(reproduce, "FEWER", {"unknown_hyperparameters/mean": ("trials=3", "horizon=5")})
    monkeypatch.setattr(reproduce, "PAGE", tmp_path / "papers.md")
    monkeypatch.setattr(reproduce, "RAW", tmp_path / "raw")
    arguments = ["--folder", str(tmp_path / "runs"), "--workers", "1"]
    for _ in range(2):  # the second time nothing is run again
        reproduce.main(arguments)
        rows = [json.loads(line) for line in capsys.readouterr().out.splitlines() if line.startswith("{")]
        assert [row["scale"] for row in rows] == ["3 x 5"] * 2
    kept = json.loads((tmp_path / "raw" / "papers.json").read_text())
    assert kept["rows"] == rows
    assert kept["environment"]["minutes"] > 0.0
    assert (tmp_path / "raw" / "one.png").stat().st_size > 1000
    text = (tmp_path / "papers.md").read_text()
    assert "## Ziomek et al. 2024" in text
    assert text.count("| 2 (d) |") == 2
