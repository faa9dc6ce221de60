"""Where trials fail: the model of failures, and what is asked beside a region that fails."""

import warnings

import pytest
import torch
from botorch.acquisition.logei import qLogNoisyExpectedImprovement
from botorch.exceptions import ModelFittingError
from botorch.models import SingleTaskGP

from bo_robust.study import FAILED, Arms, Study, failures
from bo_robust.study.failures import WhereTrialsSucceed, failure_model, stand_in

GRID = torch.linspace(0.0, 1.0, 21, dtype=torch.float64).unsqueeze(-1)


def told(*values):
    return [({"x": i}, value) for i, value in enumerate(values)]


def label(model, X):
    return model.posterior(X).mean.detach().squeeze(-1)


def test_a_value_that_stands_for_a_failure_is_told_of_once(tmp_path):
    """Two points have it, and it is farther from all others, at three points, than 100 of their ranges."""
    assert stand_in(told(-999.0, 0.1, 0.2, 0.3, -999.0)) == -999.0
    assert stand_in(told(1e6, 0.1, 0.2, 0.3, 1e6)) == 1e6
    for usual in ((-999.0, 0.1, 0.2, 0.3), (-9.0, 0.1, 0.2, 0.3, -9.0), (0.0, 0.0, 1.0), (0.0, 0.0, 9.0, 9.01)):
        assert stand_in(told(*usual)) is None
    again = [*told(0.1, 0.2, 0.3, -999.0), ({"x": 3}, -999.0)]  # one point, read twice
    assert stand_in(again) is None
    with Study.create(tmp_path / "a", {"x": (0.0, 1.0)}) as study:
        for i, value in enumerate((-999.0, 0.1, 0.2, 0.3, -999.0)):
            study.add({"x": i / 4}, value)
        with pytest.warns(UserWarning, match="-999 was told at several points, .* tell FAILED"):
            study.recommend()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            study.recommend()


def test_a_region_fails_as_a_whole_and_failures_by_chance_spoil_nothing_around_them():
    there = GRID[:, 0] > 0.7
    region = failure_model(GRID[~there], GRID[there])
    assert torch.equal(label(region, GRID) > 0.5, there)
    chance = torch.zeros(21, dtype=torch.bool)
    chance[[3, 12]] = True
    assert label(failure_model(GRID[~chance], GRID[chance]), GRID[~chance]).max() < 0.1


def test_a_fit_that_ends_nowhere_leaves_the_modes_of_the_priors(monkeypatch):
    def fails(*args, **options):
        raise ModelFittingError("nowhere")

    monkeypatch.setattr(failures, "fit_gpytorch_mll", fails)
    found = failure_model(GRID[:15], GRID[15:])
    prior = SingleTaskGP(GRID, torch.zeros(21, 1, dtype=torch.float64).index_fill(0, torch.arange(15, 21), 1.0)).eval()
    torch.testing.assert_close(label(found, GRID), label(prior, GRID))


def test_an_acquisition_is_as_it_is_where_success_is_likelier_and_falls_elsewhere():
    failing = failure_model(GRID[:15], GRID[15:])
    acqf = qLogNoisyExpectedImprovement(SingleTaskGP(GRID, GRID.sin()), GRID)
    value, excess = acqf(GRID.unsqueeze(-2)), (label(failing, GRID) - 0.5).clamp_min(0.0)
    torch.testing.assert_close(WhereTrialsSucceed(acqf, failing)(GRID.unsqueeze(-2)), value - 1e4 * excess**2)
    assert 0 < int((excess > 0.0).sum()) < 10


def test_a_study_closes_in_on_an_optimum_beside_a_region_that_fails(tmp_path):
    """f = 3 x, and no trial beyond .7 gives a value; before, such failures counted as faults and were asked again."""
    with Study.create(tmp_path / "a", {"x": (0.0, 1.0)}, seed=0) as study:
        failed = []
        for _ in range(14):
            (trial,) = study.ask()
            x = trial.x["x"]
            assert all(abs(x - other) > 1e-6 for other in failed)
            study.tell(trial.id, FAILED if x > 0.7 else 3.0 * x)
            failed += [x] if x > 0.7 else []
        best = study.recommend()
        assert 0.68 < best.x["x"] <= 0.7
        assert best.regret_bound is not None
        now = study._policy.round_model(study._history(14, 14, []))
        assert len(now.model.rewards) == 14 - len(failed)


def test_a_bound_in_large_units_sees_failures_as_the_worst_rewards(tmp_path):
    """An upper bound of 3e5 x outweighs any penalty that is in no units."""
    with Study.create(tmp_path / "a", {"x": (0.0, 1.0)}, width=2.0, noise_var=1e4) as study:
        for i in range(10):
            study.add({"x": i / 9}, FAILED if i > 6 else 3e5 * i / 9)
        assert study._policy.round_model(study._history(10, 10, [])).failing is None
        (trial,) = study.ask()
        assert trial.x["x"] < 0.7


def test_arms_of_a_region_that_failed_are_not_asked(tmp_path):
    with Study.create(tmp_path / "a", Arms([{"x": i / 20} for i in range(21)]), num_initial=2) as study:
        for i in range(0, 21, 3):
            study.add({"x": i / 20}, FAILED if i > 12 else float(i))
        assert all(trial.x["x"] < 0.75 for trial in study.ask(2))
