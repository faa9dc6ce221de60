"""Ask and tell: what is asked is a function of what was told, whatever interrupted it."""

import itertools
import math
import random
import sqlite3
import threading
import time
import warnings
from fractions import Fraction

import numpy as np
import pytest
import torch

import bo_robust.study
from benchmarks.study import kills
from bo_robust.study import FAILED, Arms, Categorical, Float, Integer, Study
from bo_robust.study.policy import History, Policy
from bo_robust.study.settings import complete
from bo_robust.study.space import all_points

BOX = {"x": (0.0, 1.0), "lr": Float(1e-3, 1.0, log=True), "k": Integer(1, 4)}
LINE = {"x": (0.0, 1.0)}
ENVIRONMENT = {"points": [{"z": 0.0}, {"z": 0.5}, {"z": 1.0}], "probabilities": [0.25, 0.5, 0.25]}
FAST = {"restarts": 2, "raw_samples": 8, "num_initial": 3}
FIXED = FAST | {"lengthscale": 0.2, "outputscale": 1.0, "noise_var": 0.1}
METHODS = {
    "robust": {},
    "gp-ucb": {},
    "tgp-ucb": {"moment_bound": 4.0},
    "ata-gp-ucb": {},
    "bkb": {"min_size": 4, "max_size": 8},
    "he-gp-ucb": {},
    "v-ucb": {"environment": ENVIRONMENT},
}


def f(x):
    return math.sin(5.0 * x.get("x", 0.0)) + math.log10(x.get("lr", 1.0)) / 3 - 0.1 * x.get("k", 0) + x.get("z", 0.0)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "a.study"


# On the box hyperparameters and the search take seconds: one method stands for all.
@pytest.mark.parametrize(
    ("method", "space"),
    [
        *(pytest.param(method, Arms([{"x": i / 20} for i in range(21)]), id=f"{method}-arms") for method in METHODS),
        pytest.param("robust", BOX, id="robust-box"),
        *(pytest.param(m, BOX, id=f"{m}-box", marks=pytest.mark.slow) for m in METHODS if m != "robust"),
    ],
)
def test_interrupted_asks_are_those_of_an_uninterrupted_run(method, space, tmp_path):
    learned = method in ("gp-ucb", "he-gp-ucb")  # that hyperparameters are learned again, one is enough for
    known = FAST if learned else FIXED

    if method == "v-ucb" and isinstance(space, dict):
        space = LINE  # faster

    def play(path, reopen):
        study = Study.create(path, space, method, seed=3, **known, **METHODS[method])
        for _ in range(3):
            study.tell(0, f(study.ask(2)[0].x)) if not study.results() else None
            if reopen:
                study.close()
                study = Study.open(path)
                torch.manual_seed(17)  # the global generator has no say
            study.release()
            for trial in study.ask(2):
                value = FAILED if trial.id == 4 else f(trial.x)
                study.tell(trial.id, value)
        last = study.ask()
        replayed = all(study.replay(t.id) == t.x for t, _ in study.results()) and study.replay(last[0].id) == last[0].x
        told, recommended = study.results(), study.recommend()
        study.close()
        return told, last, recommended, replayed

    whole, interrupted = play(tmp_path / "whole", False), play(tmp_path / "interrupted", True)
    assert whole == interrupted
    assert whole[3]
    assert len({tuple(t.x.values()) for t, _ in whole[0]}) > 4
    if method == "v-ucb":
        assert {t.x["z"] for t, _ in whole[0]} <= {0.0, 0.5, 1.0}


def test_asking_two_is_asking_twice_and_seeds_differ(tmp_path):
    asked = []
    for name, seed, batches in (("a", 0, (1, 1, 1, 1, 1)), ("b", 0, (2, 3)), ("c", 1, (5,))):
        with Study.create(tmp_path / name, LINE, "gp-ucb", seed=seed, **FIXED) as study:
            study.add({"x": 0.5}, 1.0)
            asked.append([t.x for n in batches for t in study.ask(n)])
    assert asked[0] == asked[1]
    assert asked[0] != asked[2]


def test_pending_and_failed_points_are_not_asked_again(path):
    with Study.create(path, LINE, "gp-ucb", width={"kind": "constant", "value": 2.0}, **FIXED) as study:
        for i in range(3):
            study.add({"x": i / 2}, 0.0)
        first, second = study.ask(2)
        study.tell(first.id, FAILED)
        study.tell(second.id, FAILED)
        (third,) = study.ask()
        gaps = [abs(a.x["x"] - b.x["x"]) for a, b in ((first, second), (first, third), (second, third))]
        assert min(gaps) > 0.02
        assert third.round == 4


def test_leases_run_out_and_the_trial_is_handed_out_again(path):
    with Study.create(path, LINE, lease_seconds=0.2, **FIXED) as study:
        a, b = study.ask(2)
        assert [t.id for t in study.ask()] == [2]
        time.sleep(0.25)
        assert study.status().expired == 3
        assert study.ask(2) == [a, b]
        study.tell(a.id, 1.0)  # by whichever worker comes first
        study.release([2])
        assert [t.id for t in study.ask(2)] == [2, 3]
        with pytest.raises(ValueError, match="trial 0 is not open"):
            study.release([0])


def test_leases_are_renewed_where_they_are_half_over(path, monkeypatch):
    with Study.create(path, LINE, lease_seconds=60.0, **FIXED) as study:
        a, b, c = study.ask(3)
        study.tell(c.id, 1.0)
        before, now = study._store.leases(), time.time()
        study.renew([a.id])
        assert study._store.leases() == before  # nothing written
        monkeypatch.setattr("bo_robust.study.study.time.time", lambda: now + 45.0)
        study.renew([a.id, c.id, 99])  # the last two are not open
        assert study._store.leases() == {a.id: now + 105.0, b.id: before[b.id]}
        monkeypatch.setattr("bo_robust.study.study.time.time", lambda: now + 70.0)
        assert study.status().expired == 1


def test_tells_are_taken_once_and_nonsense_never(path):
    with Study.create(path, LINE, **FIXED) as study:
        a, b, c = study.ask(3)
        study.tell(a.id, 0.1)
        study.tell(a.id, 0.1)
        study.tell(a.id, Fraction(1, 10))
        study.tell(np.int64(b.id), np.array([2.0]))
        with pytest.raises(ValueError, match=r"trial 0 was told 0\.1 before and now 0\.2"):
            study.tell(a.id, 0.2)
        with pytest.raises(ValueError, match=r"told 0\.1 before and now FAILED; the first stands"):
            study.tell(a.id, FAILED)
        (failed,) = study.ask()
        study.tell(failed.id, FAILED)
        study.tell(failed.id, FAILED)
        with pytest.raises(ValueError, match=r"told FAILED before and now 0\.0; the first stands"):
            study.tell(failed.id, 0.0)
        for bad in (math.nan, math.inf, -math.inf, 1e308, 10**400, None, "3", True, torch.ones(2)):
            with pytest.raises(ValueError, match="tell FAILED"):
                study.tell(c.id, bad)
        for unknown in (17, -1, 2**63, 2**70, 0.0, "0", True):
            with pytest.raises(ValueError, match="never asked"):
                study.tell(unknown, 1.0)
        with pytest.raises(ValueError, match="never asked"):
            study.tell_many([(c.id, 1.0), (99, 1.0)])
        assert [(t.id, v) for t, v in study.results()] == [(0, 0.1), (1, 2.0), (failed.id, FAILED)]
        study.tell(c.id, 1e300)
        assert study.status().told == 3
    with pytest.raises(ValueError, match="closed"):
        study.ask()


def test_names_that_load_on_first_use_are_listed():
    assert set(bo_robust.study.__all__) <= set(dir(bo_robust.study))


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_a_point_read_too_badly_to_be_believed_is_not_recommended(path, sign):
    """Its neighbours would make it the best of all."""
    with Study.create(path, {"x": (0.0, 1.0)}, seed=0, minimize=sign < 0) as study:
        for i in range(15):
            study.add({"x": i / 14}, sign * (-300.0 if i == 7 else -10.0 * (i / 14 - 0.5) ** 2))
        assert [trial.id for trial, _ in study.set_aside()] == [7]
        assert study.recommend().x["x"] in (6 / 14, 8 / 14)


def test_recommendation_is_not_the_luckiest_observation_and_carries_its_certificate(path):
    # Arm 3 is seen once with 2.0, arm 1 ten times with about 1.0; lambda = 1, arms nearly independent.
    arms = Arms([{"a": i} for i in range(5)])
    settings = FIXED | {"lengthscale": 0.02, "noise_var": 1.0, "center": 0.0, "scale": 1.0}
    certificate = {"kind": "constant", "value": 1.5}
    with Study.create(path, arms, "gp-ucb", certificate=certificate, **settings) as study:
        assert not study.should_stop(1e6)
        with pytest.raises(ValueError, match="nothing to recommend"):
            study.recommend()
        study.add({"a": 3}, 2.0)
        for i in range(10):
            study.add({"a": 1}, 0.9 + 0.02 * i)
        found = study.recommend()
        assert found.x == {"a": 1}
        # posterior of arm 1: mean sum(y) / 11, variance 1 / 11; the largest upper bound is arm 3's, 1 + 1.5 sqrt(1/2)
        assert found.value == pytest.approx(9.9 / 11)
        assert found.worst == pytest.approx(9.9 / 11 - 1.5 / math.sqrt(11))
        assert found.regret_bound == pytest.approx(1 + 1.5 * math.sqrt(0.5) - found.worst)
        assert study.should_stop(found.regret_bound * 1.01)
        assert not study.should_stop(found.regret_bound * 0.99)


def test_the_regret_bound_counts_the_points_told_where_the_search_misses_them(path, monkeypatch):
    """As by hand above, on a line, with a search that finds nothing."""
    poor = (torch.tensor([[0.5]], dtype=torch.float64), torch.tensor(-1e9, dtype=torch.float64))
    monkeypatch.setattr("bo_robust.study.search.optimize_acqf", lambda *given, **options: poor)
    settings = FIXED | {"lengthscale": 0.02, "noise_var": 1.0, "center": 0.0, "scale": 1.0}
    with Study.create(path, LINE, "gp-ucb", certificate={"kind": "constant", "value": 1.5}, **settings) as study:
        study.add({"x": 0.0}, 2.0)
        for i in range(10):
            study.add({"x": 1.0}, 0.9 + 0.02 * i)
        found = study.recommend()
        assert found.x == {"x": 1.0}
        assert found.regret_bound == pytest.approx(1 + 1.5 * math.sqrt(0.5) - found.worst)


def test_minimising_is_maximising_the_negative(tmp_path):
    found = []
    for minimize in (False, True):
        with Study.create(tmp_path / str(minimize), LINE, "gp-ucb", minimize=minimize, **FIXED) as study:
            sign = -1.0 if minimize else 1.0
            r = study.optimize(lambda x, sign=sign: sign * f(x), 8)
            found.append(([t.x for t, _ in study.results()], r.x, sign * r.value, sign * r.worst, r.regret_bound))
    assert found[0] == found[1]
    assert found[0][2] > found[0][3]


@pytest.mark.slow
@pytest.mark.parametrize("method", ["robust", "tgp-ucb"])
def test_the_optimum_is_found_under_spikes(method, path):
    noise = random.Random(1)

    def spiky(x):
        return f(x) + 0.1 * noise.gauss(0, 1) + (30 * noise.choice((-1, 1)) if noise.random() < 0.05 else 0)

    with Study.create(path, LINE, method, restarts=2, raw_samples=16, num_initial=8) as study:
        found = study.optimize(spiky, 30)
    assert f(found.x) > 0.9  # the maximum is 1


@pytest.mark.parametrize(("method", "settings"), [("robust", {"noise_var": 1.0}), ("gp-ucb", {"scale": 1.0})])
def test_rewards_far_beyond_the_unit_given_are_refused(path, method, settings):
    with Study.create(path, LINE, method, **settings) as study:
        for i in range(5):
            study.add({"x": i / 4}, 1e200 * i)
        for answer in (study.ask, study.recommend):
            with pytest.raises(ValueError, match="too large for their unit, 1: give a `scale`"):
                answer()


@pytest.mark.parametrize("method", ["robust", "tgp-ucb"])
@pytest.mark.parametrize("values", [(0, 0, 0, 0, 1e300), (1, 1, 1, 1, 1), (5e-320, 0, 0, 1e300, -1e300)])
def test_absurd_values_do_not_stop_a_study(path, values, method):
    with Study.create(path, LINE, method, **FIXED) as study:
        for i, value in enumerate(values):
            study.add({"x": i / 4}, value)
        (trial,) = study.ask()
        study.tell(trial.id, min(values))
        assert 0 <= study.ask()[0].x["x"] <= 1
        worst = study.recommend().worst
        if len(set(values)) == 1:
            assert worst is None
        elif worst is not None or method != "robust":  # which may believe none but equal rewards
            assert math.isfinite(worst)


@pytest.mark.parametrize("method", ["robust", "gp-ucb", "tgp-ucb"])
def test_equal_rewards_are_searched_on_and_certify_nothing(method, path):
    """Of a narrow peak nothing was seen yet: no hyperparameters are fitted to that, no scale is known."""
    with Study.create(path, LINE, method, restarts=2, raw_samples=16) as study:
        for _ in range(14):
            (trial,) = study.ask()
            study.tell(trial.id, 3.0)
        assert len({round(trial.x["x"], 2) for trial, _ in study.results()}) >= 12
        assert study.recommend().regret_bound is None
        assert not study.should_stop(1e9)


def test_a_reward_beside_which_others_are_rounded_away_certifies_nothing(path):
    arms = Arms([{"x": i / 10} for i in range(11)])
    with Study.create(path, arms, "gp-ucb", **FIXED) as study:
        for i in range(16):
            study.add({"x": (i % 11) / 10}, 1e300 if i == 9 else random.Random(i).random())
        assert study.recommend().regret_bound is None
        assert not study.should_stop(0.1)


def test_outliers_that_made_the_units_are_warned_about(path):
    with Study.create(path, LINE, "tgp-ucb", **FIXED) as study:
        for i in range(30):
            study.add({"x": i / 29}, 1e12 if i in (0, 2) else random.Random(i).random())
        with pytest.warns(UserWarning, match="outliers among them. If so, give `center` and `scale`"):
            study.ask()


def test_threads_do_not_change_what_is_asked(path):
    with Study.create(path, LINE, "gp-ucb", restarts=2, raw_samples=16) as study:
        study.optimize(lambda x: math.sin(7 * x["x"]), 5)
        done = threading.Event()

        def recommend():
            while not done.is_set():
                study.recommend()

        thread = threading.Thread(target=recommend)
        thread.start()
        try:
            for i in range(4):
                (trial,) = study.ask()
                study.tell(trial.id, 0.1 * i)
        finally:
            done.set()
            thread.join()
        assert [study.replay(trial.id) for trial, _ in study.results()] == [trial.x for trial, _ in study.results()]


def test_minus_zero_is_zero(path):
    with Study.create(path, LINE, **FIXED) as study:
        study.tell(study.ask()[0].id, -0.0)
    with Study.open(path) as study:
        assert [value for _, value in study.results()] == [0.0]


def test_a_steep_objective_is_no_outlier(path):
    with Study.create(path, {"x": (-10.0, 10.0)}, "tgp-ucb", **FIXED) as study, warnings.catch_warnings():
        warnings.simplefilter("error")
        for i in range(30):  # it converges
            study.add({"x": 3.0 + 7.0 * (-0.6) ** i}, -((7.0 * 0.6**i) ** 6))
        study.recommend()


@pytest.mark.parametrize("tolerance", ["a", None, 0, math.nan, -1.0])
def test_a_tolerance_is_a_number(tolerance, path):
    with Study.create(path, LINE, **FIXED) as study, pytest.raises(ValueError, match="tolerance must be"):
        study.should_stop(tolerance)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["robust", "tgp-ucb"])
def test_a_peak_above_a_flat_initial_design_is_found_not_truncated(method, path):
    def bump(x):
        return math.exp(-sum(((v - 0.7) / 0.2) ** 2 for v in x.values()))

    with Study.create(path, {"x": (0.0, 1.0), "y": (0.0, 1.0)}, method, restarts=2, raw_samples=32) as study:
        found = study.optimize(bump, 18)
        assert found.value > 0.9
        assert bump(found.x) > 0.9
        assert found.worst < bump(found.x) < found.worst + found.regret_bound


@pytest.mark.parametrize("method", ["tgp-ucb", "ata-gp-ucb"])
def test_no_certificate_where_a_better_reward_was_truncated(method, path):
    with Study.create(path, LINE, method, center=0.0, scale=1.0, **FIXED) as study:
        for i in range(12):
            study.add({"x": (i % 6) / 5}, 0.1 * (i % 6))
        assert study.recommend().regret_bound < 10.0
        study.add({"x": 0.1}, -1e4)  # worse: truncated, and no matter
        assert study.should_stop(1e3)
        study.add({"x": 0.1}, 1e4)
        found = study.recommend()
        assert (found.worst, found.regret_bound) == (None, None)
        assert found.value < 10.0
        assert not study.should_stop(1e9)


@pytest.mark.parametrize("method", [name for name in METHODS if name != "robust"])
def test_failed_points_are_the_worst_reward(method, path):
    arms = Arms([{"x": i / 10} for i in range(11)])
    settings = FIXED | METHODS[method] | {"center": 0.0, "scale": 1.0}
    if method == "he-gp-ucb":
        settings = {k: v for k, v in settings.items() if k not in ("lengthscale", "outputscale", "noise_var")}
    at = {"z": 0.5} if method == "v-ucb" else {}
    with Study.create(path, arms, method, **settings) as study:
        for i in range(6):
            study.add({"x": i / 10} | at, 0.4 * i - 1.0)
        history = study._history(6, 6, [])
        before = study._policy.round_model(history).bounds(all_points(arms))[0]
        for i in range(4):
            study.add({"x": (6 + i) / 10} | at, FAILED)
        after = study._policy.round_model(study._history(10, 10, [])).bounds(all_points(arms))[0]
        assert after[7:10].max() < min(-0.2, float(before[7:10].min()))
        assert after[3:5].min() > after[7:10].max() + 0.2


def test_a_region_that_fails_does_not_change_what_is_known_of_the_others(path):
    """The best told stands beside the region where f would be larger; no bound says that nothing is better there."""
    best = -math.inf
    with Study.create(path, {"x": (0.0, 1.0), "y": (0.0, 1.0)}, seed=2) as study:
        for x, y in itertools.product((i / 20 for i in range(0, 20, 3)), (0.0, 0.4, 0.9)):
            value = 3.0 * x + (y - 0.5) ** 2
            study.add({"x": x, "y": y}, FAILED if x > 0.7 else value)
            best = best if x > 0.7 else max(best, value)
        found = study.recommend()
        assert 3.0 * found.x["x"] + (found.x["y"] - 0.5) ** 2 == pytest.approx(best)
        assert found.worst <= best + 1e-6
        assert found.regret_bound > 0.1


def test_an_arm_that_only_failed_is_not_recommended(path):
    with Study.create(path, Arms([{"x": i / 10} for i in range(4)]), seed=0) as study:
        for i, value in enumerate((0.0, 1.0, 2.0, FAILED)):
            study.add({"x": i / 10}, value)
        assert study.recommend().x == {"x": 0.2}


def test_a_lease_that_ends_too_late_is_over(path, monkeypatch):
    with Study.create(path, LINE, lease_seconds=60.0, **FIXED) as study:
        study.ask()
        now = time.time()
        monkeypatch.setattr("bo_robust.study.study.time.time", lambda: now - 3600.0)  # the clock was an hour fast
        assert study.status().expired == 1
        assert [t.id for t in study.ask(2)] == [0, 1]


def test_an_ask_that_fails_leases_nothing(path, monkeypatch):
    with Study.create(path, LINE, **FIXED) as study:
        study.ask()
        study.release()
        monkeypatch.setattr(study._policy, "propose", lambda *given: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            study.ask(2)
        assert study.status().expired == 1


def test_nonsense_is_refused_in_words(path):
    for given, message in (
        ({"seed": "a"}, "seed must be a whole"),
        ({"seed": -1}, "seed must be a whole"),
        ({"method": ["gp-ucb"]}, "unknown method"),
        ({"lease_seconds": "1"}, "lease_seconds must be"),
    ):
        with pytest.raises(ValueError, match=message):
            Study.create(path, LINE, **given)
    with Study.create(path, LINE, **FIXED) as study:
        for n in (2.5, 0, "2", None):
            with pytest.raises(ValueError, match="n must be a whole"):
                study.ask(n)
        for bad in ({0: 1.0}, 3, [0, 1.0]):
            with pytest.raises(ValueError, match="pairs"):
                study.tell_many(bad)
        for call in (
            lambda: study.tell(0, "y" * 999),
            lambda: study.tell("y" * 999, 0),
            lambda: study.tell_many("y" * 999),
        ):
            with pytest.raises(ValueError, match=r"y{70,80}\.\.\.") as error:
                call()
            assert len(str(error.value)) < 300
        with pytest.raises(ValueError, match=r"takes one number, got \[1\.5\]; for several outcomes use Ax"):
            study.tell(0, [1.5])
        for call in (study.release, study.renew):
            with pytest.raises(ValueError, match=r"ids of trials in a list, such as \[0\], got 13"):
                call(13)
        with pytest.raises(TypeError, match=r"executor must have submit\(fn, x\), .* got 3"):
            study.optimize(lambda x: 0.0, 4, executor=3)
    with Study.open(path, readonly=True) as study, pytest.raises(OSError, match="opened with readonly=True"):
        study.ask()
    with pytest.raises(TypeError, match="path must be a text or a Path, got None"):
        Study.create(None, LINE)


def test_added_points_must_be_in_the_space_and_are_no_asks(path):
    with Study.create(path, LINE, "v-ucb", environment=ENVIRONMENT, **FIXED) as study:
        trial = study.add({"x": 0.5, "z": 0.5}, 1.0)
        assert (trial.id, trial.round) == (0, 0)
        for bad, message in (
            ({"x": 0.5}, "a condition has a value for each of z"),
            ({"x": 0.5, "z": 1.1}, r"z = 1\.1 is no number from 0\.0 to 1\.0, the range of the environment"),
            ({"x": 0.5, "z": math.nan}, "z = nan is no number"),
            ({"x": 2.0, "z": 0.5}, "x = 2.0 is not in"),
            (0.5, "a point has a value for each of x"),
        ):
            with pytest.raises(ValueError, match=message):
                study.add(bad, 1.0)
        assert study.add({"x": 0.5, "z": 0.7}, 1.0).x == {"x": 0.5, "z": 0.7}  # none of the environment's points
        with pytest.raises(ValueError, match="not asked by the method"):
            study.replay(trial.id)
        assert study.status().asked == 2


TEMPERATURES = {"points": [{"temp": t, "wind": w} for t in (10, 20, 30) for w in (0.0, 4.0)]}


@pytest.mark.parametrize("space", [LINE, Arms([{"x": i / 20} for i in range(21)])], ids=["box", "arms"])
def test_the_model_has_the_value_where_it_was_observed(path, tmp_path, space):
    """By hand: of 10 to 30 degrees 15 is a quarter, of 0 to 4 m/s 3 are three quarters."""

    def play(path, observed, reopen=False):
        study, points = Study.create(path, space, "v-ucb", environment=TEMPERATURES, seed=2, **FIXED), []
        for i in range(6):
            (trial,) = study.ask()
            assert {name: trial.x[name] for name in ("temp", "wind")} in TEMPERATURES["points"]
            points.append(trial.x)
            value = FAILED if i == 4 else f(trial.x) + i / 10
            study.tell(trial.id, value, observed if i > 0 else None)
            if reopen:
                study.close()
                study = Study.open(path)
        (last,) = study.ask()
        with study:
            model = study._policy.round_model(study._history(6, 6, [])).model
            seen = [[round(u, 9) for u in row] for row in model.points.tolist()]
            assert [study.replay(i) for i in range(7)] == [*points, last.x]
            return points, seen, study.results(), last, study.recommend()

    points, seen, results, last, recommended = play(tmp_path / "a", {"wind": 3, "temp": 15.0})
    xs = [round(p["x"], 9) for p in points]
    first = [points[0]["temp"] / 20 - 0.5, points[0]["wind"] / 4]
    assert seen == [[xs[0], *first], *([xs[i], 0.25, 0.75] for i in (1, 2, 3, 5, 4))]  # failures come last
    assert [t.x for t, _ in results] == [points[0], *(p | {"temp": 15.0, "wind": 3} for p in points[1:])]
    assert list(recommended.x) == ["x"]
    assert play(tmp_path / "b", {"wind": 3, "temp": 15.0}, reopen=True) == (points, seen, results, last, recommended)
    assert play(tmp_path / "c", None)[3] != last
    with Study.create(path, space, "v-ucb", environment=TEMPERATURES, seed=2, **FIXED) as other:  # what was is data
        for trial, value in results:
            other.add(trial.x, value)
        assert other.ask()[0].x == last.x


def test_a_wrong_condition_is_refused_in_words_and_loses_nothing(path):
    with Study.create(path, LINE, "v-ucb", environment=TEMPERATURES, **FIXED) as study:
        first, second = study.ask(2)
        condition = {"temp": 15.0, "wind": 3.0}
        for bad, message in (
            ({"temp": 15.0}, "a condition has a value for each of temp, wind"),
            (condition | {"x": 0.5}, "a condition has a value for each of temp, wind"),
            (15.0, "a condition has a value for each of temp, wind"),
            (condition | {"temp": 31}, r"temp = 31 is no number from 10 to 30.*a new study.*`add` these results"),
            (condition | {"temp": "hot"}, "temp = 'hot' is no number from 10 to 30"),
            (condition | {"wind": math.nan}, "wind = nan is no number"),
        ):
            with pytest.raises(ValueError, match=message):
                study.tell_many([(first.id, 1.0), (second.id, 2.0, bad)])
        with pytest.raises(ValueError, match="pairs"):
            study.tell_many([(first.id, 1.0, condition, 3)])
        with pytest.raises(ValueError, match="never asked"):
            study.tell(2, 1.0, condition)
        assert study.status().open == 2
        study.tell_many([(first.id, 1.0), (second.id, 2.0, condition)])
        asked = {name: first.x[name] for name in ("temp", "wind")}
        study.tell_many([(first.id, 1.0, asked), (second.id, 2.0, condition)])  # the same again
        for trial, value, other in ((first, 1.0, condition), (second, 2.0, None), (second, FAILED, condition)):
            with pytest.raises(ValueError, match=r"was told .* before and now .*; the first stands"):
                study.tell(trial.id, value, other)
        assert [(t.x, value) for t, value in study.results()] == [(first.x, 1.0), (second.x | condition, 2.0)]
    with Study.create(f"{path}.b", LINE, **FIXED) as study:
        (trial,) = study.ask()
        with pytest.raises(ValueError, match="a study of robust has no conditions: leave `condition` out"):
            study.tell(trial.id, 1.0, {"temp": 15.0})
        assert study.status().open == 1


def test_another_reading_is_one_under_the_same_condition(path):
    with Study.create(path, LINE, "v-ucb", environment=ENVIRONMENT, **FIXED) as study:
        (first,) = study.ask()
        study.tell(first.id, 1.0, {"z": 0.3})
        assert study.add(first.x, 1.0).repeats is None
        assert study.add(first.x | {"z": 0.3}, 1.0).repeats == first.id


@pytest.mark.parametrize(
    "space",
    [
        {"x": (0.0, 1.0), "n": Integer(1, 5)},
        {"x": (0.0, 1.0), "kind": Categorical(["a", "b"])},
        Arms([{"x": i / 40, "n": n} for i in range(41) for n in range(1, 6)]),
    ],
    ids=["integers", "choices", "arms"],
)
def test_a_search_warns_of_nothing_that_a_user_cannot_change(space, path):
    """Without noise points come close, and covariances are singular to rounding."""
    with Study.create(path, space) as study, warnings.catch_warnings():
        warnings.simplefilter("error")
        study.optimize(lambda x: -((x["x"] - 0.7) ** 2) - abs(x.get("n", 3) - 3) / 10 + (x.get("kind") == "b"), 14)


def test_killed_writers_lose_nothing(tmp_path):
    found = kills(5, tmp_path, longest=0.2, least=(0, 3, 6))
    assert found["acknowledged"] >= 6  # as many as one writer waits for
    assert (found["lost"], found["corrupt"], found["mismatches"]) == (0, 0, 0)


def test_an_ask_knows_the_last_tell(path):
    """The proposal is that of all tells, and the file says so."""
    space, settings = Arms([{"x": i / 20} for i in range(21)]), FIXED | {"center": 0.0, "scale": 1.0, "width": 0.1}
    with Study.create(path, space, "gp-ucb", seed=3, **settings) as study:
        for value in (-1.0, -1.0, -1.0, -3.0):
            study.tell(study.ask()[0].id, value)
        told = [(trial.x, value) for trial, value in study.results()]
        asked = study.ask()[0]
    policy = Policy(space, complete("gp-ucb", settings, space), 3)
    assert asked.x == policy.propose(History(told, [], []), 4)
    assert asked.x != policy.propose(History(told[:-1], [], []), 4)
    assert sqlite3.connect(path).execute("SELECT asked_after FROM trials").fetchall() == [(i,) for i in range(5)]


@pytest.mark.parametrize("space", [{"deep": {"if": "kind", "range": (0.0, 1.0)}}, {"kind": ({}, "tanh")}])
def test_conditional_parameters_are_refused_with_the_way_to_optuna(space, path):
    with pytest.raises(ValueError, match=r"for conditional parameters use Optuna with .*\.RobustSampler"):
        Study.create(path, LINE | space)


@pytest.mark.parametrize("method", ["robust", "v-ucb"])
def test_a_box_with_choices_and_steps_is_searched_and_opened_again(path, method):
    """The default also sees through an outlier; the best is kind b, n = 20, x = .7."""
    space = {"kind": Categorical(["a", "b", "c"]), "x": (0.0, 1.0), "n": Integer(0, 30, step=10)}

    def objective(x):
        return (x["kind"] == "b") - (x["x"] - 0.7) ** 2 - abs(x["n"] - 20) / 20 + x.get("z", 0.0)

    with Study.create(path, space, method, restarts=2, raw_samples=16, **METHODS[method]) as study:
        for _ in range(10):
            (trial,) = study.ask()
            study.tell(trial.id, objective(trial.x))
    with Study.open(path) as study:
        study.optimize(lambda x: objective(x) + 50.0 * (method == "robust" and len(study.results()) == 12), 20)
        xs = [trial.x for trial, _ in study.results()]
        assert all(x["kind"] in ("a", "b", "c") and x["n"] in (0, 10, 20, 30) and 0.0 <= x["x"] <= 1.0 for x in xs)
        best = study.recommend().x
        assert study.replay(15) == xs[15]
    assert (best["kind"], best["n"]) == ("b", 20)
    assert abs(best["x"] - 0.7) < (0.15 if method == "robust" else 0.4)


def test_combinations_of_a_finite_box_are_all_looked_at(path):
    space = {"n": Integer(1, 4), "c": Categorical(["a", "b"])}
    with Study.create(path, space, minimize=True) as study:
        found = study.optimize(lambda x: abs(x["n"] - 2) + (x["c"] == "b"), 12)
        assert found.x == {"n": 2, "c": "a"}
        first = [tuple(trial.x.values()) for trial, _ in study.results()][:8]
        assert len(set(first)) == 8  # the initial design has no point twice
