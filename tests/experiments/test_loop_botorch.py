import json
import math
import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from bo_robust.experiments import botorch_methods
from bo_robust.experiments import run as runs
from bo_robust.experiments.config import parse
from bo_robust.experiments.errors import RunError

from benchmarks.loops.designs import DesignsLoop
from benchmarks.methods.designs import BOTORCH_METHODS, winsorized
from benchmarks.problems import make_design_problem

BRANIN = make_design_problem("function", function="branin")
WRONG = {"kind": "shift", "share": 0.3, "size": 10.0, "side": "bad"}


def data(methods=("SingleTaskGP",), **over):
    panel = {"name": "B", "problem": {"kind": "function", "function": "branin"}}
    return {"loop": "botorch", "trials": 1, "horizon": 9, "methods": [*methods], "panels": [panel], **over}


def run(method, trial=1, **over):
    panel = parse(data([method], **over)).panels[0]
    return DesignsLoop().run_trial(BRANIN, panel.build_method(panel.methods[0]), panel, trial)


def errors(rows):
    """Readings less f, by evaluation."""
    return np.array(rows["y"]) - BRANIN.value(torch.tensor(rows["x"], dtype=torch.float64)).numpy()


@pytest.fixture(scope="module")
def plain():
    return run("SingleTaskGP", outliers=WRONG)


@pytest.mark.parametrize(
    "method",
    [
        pytest.param(name, marks=[pytest.mark.slow] * (name == "RobustRelevancePursuitSingleTaskGP"))
        for name in BOTORCH_METHODS
        if name != "SingleTaskGP"
    ],
)
def test_every_method_gets_the_start_and_readings_of_the_plain_loop(method, plain):
    other = run(method, outliers=WRONG)
    assert any(plain["outlier"])
    assert other["outlier"] == plain["outlier"]
    assert other["x"][:6] == plain["x"][:6]
    assert errors(other) == pytest.approx(errors(plain), abs=1e-9)
    assert errors(plain)[plain["outlier"]].max() < -9.0


def test_rows_are_those_of_evaluations(plain):
    assert plain["round"] == list(range(1, 10))
    assert np.isnan(plain["regret"][:5]).all()  # nothing is recommended within the initial design
    values = BRANIN.value(torch.tensor(plain["x"], dtype=torch.float64))
    for t in range(6, 10):
        assert min(abs(plain["regret"][t - 1] - (BRANIN.best - values[:t]))) < 1e-9
    assert not any(plain["flagged"])
    found = run("RobustGP", outliers={**WRONG, "share": 0.2}, horizon=14)
    assert sum(found["outlier"]) == 2
    assert found["flagged"] == found["outlier"]


def test_equal_models_choose_the_same():
    """Without outliers "known" is the plain model."""
    known, plain = run("known", horizon=8), run("SingleTaskGP", horizon=8)
    assert (known["x"], known["y"], known["regret"][5:]) == (plain["x"], plain["y"], plain["regret"][5:])


def test_a_trial_is_that_of_the_seed_it_counts_to():
    assert run("known", trial=2, horizon=7)["y"] == run("known", trial=0, seed=2, horizon=7)["y"]


def test_a_replicate_is_measured_in_place_of_the_acquisition(monkeypatch):
    again = torch.full((1, 2), 0.25).double()
    monkeypatch.setattr(botorch_methods, "suggest_replicates", lambda model, candidates: again)
    rows = run({"name": "RobustGP", "replicates": True}, horizon=8)
    assert rows["x"][6:] == [[0.25, 0.25]] * 2


def test_a_design_of_a_table_is_measured_once():
    panel = parse(data(panels=[{"name": "t", "problem": {"kind": "laboratory"}}], horizon=14)).panels[0]
    problem = make_design_problem("laboratory")
    rows = DesignsLoop().run_trial(problem, panel.build_method(panel.methods[0]), panel, 0)
    assert len({tuple(x) for x in rows["x"]}) == 14
    assert {tuple(x) for x in rows["x"]} <= {tuple(x) for x in problem.candidates.tolist()}


def test_a_warning_of_many_outliers_is_kept_with_its_evaluation(monkeypatch):
    real = botorch_methods.Plain.model

    def warning(self, X, Y, outliers):
        if len(X) == 7:
            warnings.warn("RobustGP flags 3 of 7 observations as outliers.", stacklevel=2)
        return real(self, X, Y, outliers)

    monkeypatch.setattr(botorch_methods.Plain, "model", warning)
    assert [t for t, warned in enumerate(run("SingleTaskGP", horizon=8)["warned"], 1) if warned] == [7]


def test_winsorized_rewards_lie_within_the_limits():
    Y = torch.tensor([[0.0], [1.0], [2.0], [3.0], [100.0], [-100.0]]).double()
    assert winsorized(Y).flatten().tolist() == [0.0, 1.0, 2.0, 3.0, 7.5, -4.5]
    assert torch.equal(winsorized(Y[:4]), Y[:4])


@pytest.mark.slow
def test_a_run_from_end_to_end_and_its_summary(tmp_path):
    methods, out = ["RobustGP", "SingleTaskGP"], tmp_path / "out"
    config = parse(data(methods, trials=2, horizon=8, compare=[methods], outliers=WRONG))
    summary = runs.start(config, out)
    assert {p.name for p in out.iterdir()} == {"summary.json", "traces.parquet", "00-b.png"}
    assert parse(summary["config"]) == config
    assert summary["settings"]["B"]["initial"] == 6
    assert summary["settings"]["B"]["methods"]["RobustGP"]["outlier_share"] == 0.05
    traces = pd.read_parquet(tmp_path / "out" / "traces.parquet")
    assert len(traces) == 2 * 2 * 8
    rows, entry = traces[traces["method"] == "RobustGP"], summary["panels"][0]["methods"]["RobustGP"]
    last = rows[rows["round"] == 8]["regret"].to_numpy()
    assert entry["simple_regret"] == pytest.approx([last.mean(), last.std(ddof=1) / math.sqrt(2)])
    assert entry["log10_regret"] == pytest.approx(np.log10(last).mean())
    assert entry["found"] == rows["flagged"][rows["outlier"]].mean()
    assert entry["false_alarms"] == rows["flagged"][~rows["outlier"]].mean()
    gap = summary["panels"][0]["comparisons"][0]["simple_regret"]["mean"]
    assert gap == pytest.approx(last.mean() - summary["panels"][0]["methods"]["SingleTaskGP"]["simple_regret"][0])
    json.dumps(summary)


def panels(**problem):
    return {"panels": [{"name": "B", "problem": problem}]}


@pytest.mark.parametrize(
    ("over", "device", "message"),
    [
        ({"horizon": 6}, "cpu", "panel 'B': horizon must be above the 6 points of the initial design"),
        ({"initial": 1}, "cpu", "initial of panel 'B' must be at least 2 points"),
        (panels(kind="laboratory") | {"horizon": 300}, "cpu", "at most the 247 designs"),
        (panels(kind="function", function="f"), "cpu", "unknown function 'f'"),
        ({}, "meta", "runs on a CPU, not on meta"),
    ],
)
def test_what_a_panel_cannot_run_is_refused_before_it_starts(over, device, message):
    with pytest.raises(RunError, match=message):
        DesignsLoop().settings_used(parse(data(**over)).panels[0], None, torch.device(device), None)
