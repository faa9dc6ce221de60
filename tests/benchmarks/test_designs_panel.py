import dataclasses
import warnings

import numpy as np
import pytest
import torch

from benchmarks.loops.designs import DesignsPanel
from benchmarks.loops.outliers import Shift
from benchmarks.methods import designs
from benchmarks.methods.designs import Known, Plain, RelevancePursuit, Robust, Winsorized, winsorized
from benchmarks.problems.designs import Function, Laboratory

PANEL = DesignsPanel("B", Function("branin"), {"SingleTaskGP": Plain()}, trials=1, rounds=9)
BRANIN = PANEL.problem.make()
WRONG = Shift(0.3, 10.0, "bad")


def run(method, trial=1, **over):
    return dataclasses.replace(PANEL, **over).run_trial(BRANIN, method, trial)


def errors(rows):
    """Readings less f, by evaluation."""
    return np.array(rows["y"]) - BRANIN.value(torch.tensor(rows["x"], dtype=torch.float64)).numpy()


@pytest.fixture(scope="module")
def plain():
    return run(Plain(), outliers=WRONG)


@pytest.mark.parametrize(
    "method", [Known(), Robust(), Winsorized(), pytest.param(RelevancePursuit(), marks=pytest.mark.slow)], ids=str
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
    found = run(Robust(), outliers=Shift(0.2, 10.0, "bad"), rounds=14)
    assert sum(found["outlier"]) == 2
    assert found["flagged"] == found["outlier"]


def test_equal_models_choose_the_same():
    """Without outliers "known" is the plain model."""
    known, plain = run(Known(), rounds=8), run(Plain(), rounds=8)
    assert (known["x"], known["y"], known["regret"][5:]) == (plain["x"], plain["y"], plain["regret"][5:])


def test_a_replicate_is_measured_in_place_of_the_acquisition(monkeypatch):
    again = torch.full((2,), 0.25).double()
    monkeypatch.setattr(designs, "replicates", lambda models, listed: iter([again]))
    rows = run(Robust(replicates=True), rounds=8)
    assert rows["x"][6:] == [[0.25, 0.25]] * 2


def test_a_design_of_a_table_is_measured_once():
    panel = dataclasses.replace(PANEL, problem=Laboratory(), rounds=14)
    problem = panel.built(torch.device("cpu"))
    rows = panel.run_trial(problem, Plain(), 0)
    assert len({tuple(x) for x in rows["x"]}) == 14
    assert {tuple(x) for x in rows["x"]} <= {tuple(x) for x in problem.candidates.tolist()}


def test_a_warning_of_many_outliers_is_kept_with_its_evaluation(monkeypatch):
    real = designs.Plain.model

    def warning(self, X, Y, outliers):
        if len(X) == 7:
            warnings.warn("RobustGP flags 3 of 7 observations as outliers.", stacklevel=2)
        return real(self, X, Y, outliers)

    monkeypatch.setattr(designs.Plain, "model", warning)
    assert [t for t, warned in enumerate(run(Plain(), rounds=8)["warned"], 1) if warned] == [7]


def test_winsorized_rewards_lie_within_the_limits():
    Y = torch.tensor([[0.0], [1.0], [2.0], [3.0], [100.0], [-100.0]]).double()
    assert winsorized(Y).flatten().tolist() == [0.0, 1.0, 2.0, 3.0, 7.5, -4.5]
    assert torch.equal(winsorized(Y[:4]), Y[:4])


@pytest.mark.parametrize(
    ("over", "device", "message"),
    [
        ({"rounds": 6}, "cpu", "panel 'B': give two points or more .*more rounds than that"),
        ({"initial": 1}, "cpu", r"give two points or more to the initial design \(now 1\)"),
        ({"problem": Laboratory(), "rounds": 300}, "cpu", "not more than there are designs .247"),
        ({"problem": Function("f")}, "cpu", "unknown function 'f'"),
        ({}, "meta", "runs on a CPU, not on meta"),
    ],
)
def test_what_a_panel_cannot_run_is_refused_before_it_starts(over, device, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(PANEL, **over).made(torch.device(device))
