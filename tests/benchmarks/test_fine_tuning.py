"""The benchmark plays each method once and the same, and its differences are those by hand."""

import json

import pytest
import torch
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from gpytorch.mlls import ExactMarginalLogLikelihood

from benchmarks import fine_tuning
from benchmarks.grid import load
from bo_robust.experiments.conditions_loop import initial_pairs
from bo_robust.experiments.problems import make_conditions_problem
from bo_robust.experiments.problems.conditions.fine_tuning import users

pytest.importorskip("sklearn")


@pytest.fixture
def short(monkeypatch):
    monkeypatch.setattr(fine_tuning, "HELD_OUT", 5)
    monkeypatch.setattr(fine_tuning, "HELD_OUT_RUNS", 2)


def test_held_out_scores_are_of_other_users_and_runs(short):
    problem = fine_tuning.problem_of(0, "cpu")
    X = torch.tensor([[-1.5, -1.0, 0.1], [-2.5, -2.0, 0.0]], dtype=torch.float64)
    found = fine_tuning.held_out(problem, 0, X)
    z = users(5, 0, X, "held out")
    rows = torch.cat([X[1].expand(2, -1), z[3].expand(2, -1)], -1)
    runs = torch.tensor([fine_tuning.FIRST_HELD_OUT, fine_tuning.FIRST_HELD_OUT + 1])
    assert found.shape == (2, 5)
    assert float(found[1, 3]) == pytest.approx(float(problem.f.scores(rows, runs).mean()), abs=1.5 / 597)


def test_play_appends_what_is_missing_and_repeats_itself(short, tmp_path):
    methods = list(fine_tuning.METHODS)
    first, second = tmp_path / "first.jsonl", tmp_path / "second.jsonl"
    fine_tuning.play(methods[:1], range(1), first, "cpu", rounds=1)
    fine_tuning.play(methods, range(1), first, "cpu", rounds=1)
    fine_tuning.play(methods[-1:], range(1), second, "cpu", rounds=1)
    lines, again = load(first), load(second)
    assert [line["method"] for line in lines] == methods
    for line in lines:
        assert 0.0 < min(line["tail"].values()) <= min(line["mean"].values()) < 1.0
    assert lines[-1] | {"seconds": 0.0} == again[0] | {"seconds": 0.0}
    # Only the functional differs: all start from the same observations.
    ours, theirs = (fine_tuning.played(fine_tuning.METHODS[m], 0, "cpu", 1)[1] for m in ("value at risk", "random"))
    assert torch.equal(ours.X[:20], theirs.X[:20])
    assert torch.equal(ours.Y[:20], theirs.Y[:20])


def test_priors_are_those_of_botorch_in_any_units():
    problem = make_conditions_problem("branin")
    X = initial_pairs(problem, 20, 0, 0)
    Y = problem.f(X)
    first, second = (fine_tuning.PriorGP(torch.tensor([[0.0, 0.0], [1.0, 1.0]]).to(X)) for _ in range(2))
    assert first.fit(X, Y)
    assert second.fit(X, 5.0 + 100.0 * Y)
    a, b = first.hyperparameters(), second.hyperparameters()
    assert a["lengthscale"] == pytest.approx(b["lengthscale"], rel=1e-4)
    assert b["mean"][0] == pytest.approx(5.0 + 100.0 * a["mean"][0], abs=0.1)
    model = SingleTaskGP(X, Y.unsqueeze(-1))
    fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
    points = initial_pairs(problem, 30, 1, 1)
    with torch.no_grad():
        ours, theirs = (one.posterior(points) for one in (first.model(X, Y), model))
    torch.testing.assert_close(ours.mean, theirs.mean, atol=1e-2, rtol=0)
    torch.testing.assert_close(ours.variance, theirs.variance, atol=1e-2, rtol=0)


def test_differences_by_hand(tmp_path, capsys):
    """0.1 and 0.3 better: 0.2 on average, with 12.706 (t of one degree of freedom) times 0.1 around it."""
    path = tmp_path / "lines.jsonl"
    rows = []
    for method, aim in fine_tuning.ENTRIES.values():
        for seed, tail in enumerate((0.5, 0.7) if method == "value at risk" else (0.4, 0.4)):
            rows.append({"method": method, "seed": seed, "tail": {aim: tail}, "mean": {aim: 0.8}})
    merged = {}
    for row in rows:
        kept = merged.setdefault((row["method"], row["seed"]), row)
        kept["tail"] |= row["tail"]
        kept["mean"] |= row["mean"]
    path.write_text("\n".join(json.dumps(row) for row in merged.values()))
    fine_tuning.summarise(path)
    found = {row["name"]: row for row in map(json.loads, capsys.readouterr().out.splitlines())}
    mean = found["held-out worst 10 %: mean"]
    assert mean["value"] == 0.4
    assert mean["detail"]["tail"]["value at risk less this"] == pytest.approx([0.2, -1.0706, 1.4706], abs=1e-4)
    assert mean["detail"]["mean"]["value at risk less this"] == [0.0, 0.0, 0.0]
    assert mean["met"] is False
    assert found["held-out worst 10 %: value at risk"]["met"] is None
    assert path.with_suffix(".png").stat().st_size > 1000
