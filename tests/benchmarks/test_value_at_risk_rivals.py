"""Rivals start alike, a study reads as often, and the summary is that by hand."""

import json

import pytest

from benchmarks import value_at_risk_rivals as rivals


def test_rivals_start_alike_and_record_every_round(monkeypatch):
    monkeypatch.setattr(rivals, "ROUNDS", 2)
    ours, theirs, study = (
        rivals.work(("branin continuous", 2, method, 0))["regret"] for method in ("v-ucb", "random", "Study")
    )
    assert len(ours) == len(theirs) == len(study) == 3
    assert ours[0] == theirs[0]
    assert ours != theirs
    assert min(*ours, *study) >= 0.0


def test_the_summary_by_hand(tmp_path, capsys, monkeypatch):
    """Ours is a decade below but on one smooth problem, where it is level; it has a third repetition."""
    monkeypatch.setattr(rivals, "LEAST", 2)
    path, rows = tmp_path / "rivals.jsonl", []
    for field, problems in rivals.FIELDS.items():
        for i, problem in enumerate(problems):
            for repetition in range(3):
                start = {"problem": problem, "seed": problems[problem], "repetition": repetition}
                ours = 0.01 if field == "bumpy" or i else 0.1
                rows.append({**start, "method": "v-ucb", "regret": [9.0, ours, ours * (1 + 0.1 * repetition)]})
                if repetition < 2:
                    rows.append({**start, "method": "random", "regret": [9.0, 0.1, 0.1]})
    rows[0]["regret"][-1] = 1e-9  # counts as 1e-3
    path.write_text("\n".join(json.dumps(row) for row in rows))
    rivals.summarise(path)
    found = {row["name"]: row for row in map(json.loads, capsys.readouterr().out.splitlines())}
    assert found["branin: random"]["detail"]["pairs"] == 2
    assert found["branin: random"]["value"] == pytest.approx(((-1 - 2) / 2 + (-1 - 1 + 0.0414) / 2) / 2, abs=1e-3)
    assert found["all smooth: random"]["detail"]["pairs"] == 8
    assert found["bumpy: lower than random"]["met"] is True
    assert found["smooth: lower than random"]["value"] == 3
    assert found["smooth: lower than random"]["met"] is False
    assert "bumpy: lower than MC-VaR" not in found
    assert found["v-ucb: stuck on bumpy"]["value"] == 0.0
    assert path.with_suffix(".png").stat().st_size > 1000
