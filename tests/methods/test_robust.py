"""The default method at the front door: units, verification, the kept judgement, and what it wins."""

import math
import random
import statistics
import warnings

import pytest
import torch

from bo_robust.methods import create_method
from bo_robust.study import FAILED, Arms, Float, Study, hyperparameters

BOX = {"a": (0.0, 1.0), "b": Float(1e-3, 1.0, log=True)}
FAST = {"restarts": 2, "raw_samples": 32}
OUTLIER = 1e4
UNITS = ".*(truncated|moment_bound|center|scale)"  # of warnings that only other methods give


def f(x):
    """At most 1; of order one."""
    return math.exp(-(((x["a"] - 0.7) / 0.3) ** 2) - (math.log10(x["b"]) + 1.5) ** 2)


def told(path, n=9, outliers=(2,), scale=1.0, shift=0.0, **settings):
    """A study with n rewards of its own asks, some of them absurdly good."""
    study = Study.create(path, BOX, seed=1, **FAST, **settings)
    for i in range(n):
        (trial,) = study.ask()
        study.tell(trial.id, shift + scale * (f(trial.x) + OUTLIER * (i in outliers)))
    return study


def test_a_suspect_is_asked_again_once_and_then_refuted(tmp_path):
    with told(tmp_path / "a", n=6) as study:
        asked = study.results()[2][0].x
        first, second = study.ask(2)
        assert first.x == asked  # to the last bit
        assert second.x != asked  # it is on its way
        assert (first.repeats, second.repeats) == (2, None)
        assert [(trial.id, value > OUTLIER / 2) for trial, value in study.set_aside()] == [(2, True)]
        assert study.replay(first.id) == first.x
        study.tell(first.id, f(asked))
        study.tell(second.id, f(second.x))
        rows = []
        for _ in range(5):
            (trial,) = study.ask()
            rows.append(trial.x)
            study.tell(trial.id, f(trial.x))
        assert asked not in rows
        best = study.recommend()
        assert best.value < 2.0
        assert f(best.x) > 0.2
        assert best.regret_bound < 100.0  # a refuted reward certifies nothing away


def test_a_suspect_that_is_confirmed_is_believed(tmp_path):
    with told(tmp_path / "a", n=6) as study:
        (trial,) = study.ask()
        study.tell(trial.id, f(trial.x) + OUTLIER)
        assert study.recommend().x == trial.x
        assert study.recommend().value > 0.5 * OUTLIER


def test_a_suspect_that_failed_or_is_on_its_way_lets_the_others_be_asked(tmp_path):
    with told(tmp_path / "a", n=8, outliers=()) as study:
        for a, b in ((0.15, 0.9), (0.9, 0.002), (0.5, 0.5)):
            study.add({"a": a, "b": b}, OUTLIER * (1.0 + a))
        best, second, third = ({"a": a, "b": b} for a, b in ((0.9, 0.002), (0.5, 0.5), (0.15, 0.9)))
        trials = study.ask(2)
        assert [trial.x for trial in trials] == [best, second]
        study.tell(trials[0].id, FAILED)
        assert study.ask()[0].x == third
        assert study.ask()[0].x not in (best, second, third)


def test_a_failed_second_reading_settles_nothing(tmp_path):
    with told(tmp_path / "a", n=6) as study:
        (trial,) = study.ask()
        study.tell(trial.id, FAILED)
        assert study.recommend().value < 2.0
        assert study.ask()[0].x != trial.x  # it may fail for ever


def test_verification_can_be_switched_off(tmp_path):
    with told(tmp_path / "a", n=10, verify=False) as study:
        assert len({tuple(t.x.values()) for t, _ in study.results()}) == 10
        found = study.recommend()
        assert found.value < 2.0
        assert (found.worst, found.regret_bound) == (None, None)  # the best there is may have been set aside


def test_a_study_that_is_opened_again_asks_the_same(tmp_path):
    with told(tmp_path / "a", n=6) as study:
        again = study.ask(2)
        study.release()
        study.tell(again[0].id, f(again[0].x))
        (third,) = study.ask(2)[1:]
        known = [study.replay(trial) for trial in range(third.id + 1)]
    with Study.open(tmp_path / "a") as study:
        assert [study.replay(trial) for trial in range(third.id + 1)] == known


def test_what_the_fit_believed_stands_until_there_are_more_rewards(tmp_path, monkeypatch):
    monkeypatch.setattr(hyperparameters, "FEW", 8)  # the next fit is at 9 rewards, then at 10, 11, 13
    fitted, fit = [], hyperparameters.fit_gpytorch_mll

    def counted(mll, **options):
        fit(mll, **options)
        fitted.append(mll.model.believed)

    monkeypatch.setattr(hyperparameters, "fit_gpytorch_mll", counted)
    with told(tmp_path / "a", n=12, verify=False) as study:
        assert study.status().told == 12
        assert [len(believed) for believed in fitted] == [2, 6, 7, 8, 9, 10, 11]  # two when it was created
        model = study._policy.round_model(study._history(12, 12, [])).model
        assert len(fitted) == 7
        assert torch.equal(model.believed[:11], fitted[-1])
        assert not model.believed[2]
        assert float(model.mean_module.constant) != 0.0
    with Study.open(tmp_path / "a") as study:
        again = study._policy.round_model(study._history(12, 12, [])).model
        assert torch.equal(again.believed, model.believed)
        assert torch.equal(again.train_targets, model.train_targets)


@pytest.mark.parametrize(("scale", "shift"), [(1e-9, 0.0), (1e9, -3e9)])
def test_units_do_no_harm_and_come_back(scale, shift, tmp_path):
    with told(tmp_path / "a", scale=scale, shift=shift) as study, warnings.catch_warnings():
        warnings.filterwarnings("error", UNITS)
        found = study.recommend()
    assert f(found.x) > 0.2
    assert (found.value - shift) / scale == pytest.approx(f(found.x), abs=0.3)
    assert found.worst is None or found.worst < found.value


def test_outliers_among_the_first_rewards_warn_of_no_units_and_no_moment_bound(tmp_path):
    with warnings.catch_warnings():
        warnings.filterwarnings("error", UNITS)
        told(tmp_path / "a", n=12, outliers=(0, 2)).close()


def test_many_rewards_set_aside_are_warned_about(tmp_path):
    arms = Arms([{"a": i / 20} for i in range(21)])
    with Study.create(tmp_path / "a", arms) as study:
        for i in range(21):
            study.add({"a": i / 20}, math.sin(3.0 * i / 20) + 1e3 * i * (i % 3 == 1))
        with pytest.warns(UserWarning, match=r"of 21 rewards are not believed: .*set_aside lists those"):
            study.ask()


def test_minimising_asks_the_mirror_image_of_maximising(tmp_path):
    found = []
    for sign in (1.0, -1.0):
        with told(tmp_path / str(sign), scale=sign, minimize=sign < 0) as study:
            best = study.recommend()
            found.append(([t.x for t, _ in study.results()], best.x, sign * best.value))
    assert found[0] == found[1]


def test_a_region_that_fails_is_avoided_and_a_suspect_is_still_asked(tmp_path):
    with told(tmp_path / "a", n=8, outliers=()) as study:
        for i in range(4):
            study.add({"a": 0.1 * i, "b": 0.5}, FAILED)
        study.add({"a": 0.9, "b": 0.5}, OUTLIER)
        now = study._policy.round_model(study._history(13, 10, []))
        assert len(now.model.rewards) == 9  # failures are none
        assert now.suspects == [8]
        (trial,) = study.ask(2)[:1]
        assert trial.x == {"a": 0.9, "b": 0.5}


@pytest.mark.parametrize("seed", [0, 1])
def test_one_failure_near_the_optimum_does_not_move_the_recommendation(tmp_path, seed):
    with Study.create(tmp_path / "a", {"x": (0.0, 1.0)}, seed=seed) as study:
        for i in range(14):
            (trial,) = study.ask()
            study.tell(trial.id, FAILED if i == 9 else -((trial.x["x"] - 0.3) ** 2))
        assert abs(study.recommend().x["x"] - 0.3) < 0.03


def test_a_value_that_is_no_number_is_refused_and_the_objective_that_returns_it_failed(tmp_path):
    with told(tmp_path / "a", n=2) as study:
        (trial,) = study.ask()
        with pytest.raises(ValueError, match=r"got nan; if the objective gave none, tell FAILED"):
            study.tell(trial.id, math.nan)
        with pytest.raises(ValueError, match=r"one number, .* for several outcomes use Ax with .*strategy\(\)"):
            study.tell(trial.id, (1.0, 0.5))
        study.release()
        with pytest.warns(UserWarning, match="counts as FAILED"):
            study.optimize(lambda x: math.nan, 3)
        assert study.status().failed == 1


def test_given_noise_is_in_units_of_the_rewards():
    X = torch.rand(8, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    Y = 100.0 * X.sum(-1, keepdim=True)
    model = create_method("robust", {"noise_var": 4.0}).model(X, Y)
    model.judge()
    assert model.believed.all()
    torch.testing.assert_close(model.likelihood.noise, (4.0 / Y.var()).expand(8))


@pytest.mark.parametrize("unit", [2.0**-60, 1e-12, 1e12, 1e200])
def test_a_study_asks_the_same_in_any_units(tmp_path, unit):
    def asked(path, unit):
        points = []
        with Study.create(path, {"a": (0.0, 1.0), "b": (0.0, 1.0)}, seed=3, **FAST) as study:
            for _ in range(10):
                (trial,) = study.ask()
                study.tell(trial.id, unit * branin(trial.x))
                points.append(list(trial.x.values()))
            best = study.recommend()
        return points, best.value / unit, best.worst / unit

    for one, other in zip(asked(tmp_path / "a", 1.0), asked(tmp_path / "b", unit), strict=True):
        torch.testing.assert_close(torch.tensor(other), torch.tensor(one), atol=1e-3, rtol=1e-3)


def branin(x):
    a, b = 15.0 * x["a"] - 5.0, 15.0 * x["b"]
    parabola = (b - 5.1 / (4.0 * math.pi**2) * a * a + 5.0 / math.pi * a - 6.0) ** 2
    return -(parabola + 10.0 * (1.0 - 1.0 / (8.0 * math.pi)) * math.cos(a) + 10.0)


def regret(method, seed, path):
    """Of the recommendation after 30 readings of Branin, three of them 10 standard deviations off."""
    sd, noise = 51.3, random.Random(1000 + seed)
    with Study.create(path, {"a": (0.0, 1.0), "b": (0.0, 1.0)}, method, seed=seed, **FAST) as study:
        for i in range(30):
            (trial,) = study.ask()
            outlier = {4: 10.0, 14: -10.0, 24: 10.0}.get(i, 0.0)
            study.tell(trial.id, branin(trial.x) + sd * (0.1 * noise.gauss(0.0, 1.0) + outlier))
        return -0.397887 - branin(study.recommend().x)


@pytest.mark.slow
def test_it_ends_clearly_better_than_gp_ucb_under_outliers(tmp_path):
    ours, theirs = (
        [regret(method, seed, tmp_path / f"{method}{seed}") for seed in range(300, 306)]
        for method in ("robust", "gp-ucb")
    )
    assert statistics.median(ours) < 0.5 * statistics.median(theirs), (ours, theirs)
    assert sum(a < b for a, b in zip(ours, theirs, strict=True)) >= 5, (ours, theirs)


def test_nothing_is_set_aside_where_nothing_is_told_or_every_reward_is_seen(tmp_path):
    with Study.create(tmp_path / "a", BOX) as study:
        study.tell(study.ask()[0].id, FAILED)
        assert study.set_aside() == []
    with told(tmp_path / "b", n=5, method="gp-ucb") as study:
        assert study.set_aside() == []
