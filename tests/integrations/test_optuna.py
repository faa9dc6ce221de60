import datetime
import math
import os
import statistics
import subprocess
import sys
from pathlib import Path

import pytest
import torch

pytest.importorskip("optuna")

import optuna

from bo_robust.integrations.optuna import RobustSampler, candidates_func
from bo_robust.study.policy import Policy

ROOT = Path(__file__).resolve().parents[2]
SEARCH = {"restarts": 2, "raw_samples": 32}
METHODS = {
    "robust": {},
    "tgp-ucb": {},
    "he-gp-ucb": {"candidates": [{"kernel": "rbf", "lengthscale": ell, "noise_var": 0.01} for ell in (0.2, 0.5)]},
    "gp-ucb": {},
}
optuna.logging.set_verbosity(optuna.logging.WARNING)


def sampler(method="gp-ucb", seed=0, **settings):
    return RobustSampler(method, seed=seed, **SEARCH, **settings)


def make(method="gp-ucb", direction="maximize", seed=0, **settings):
    return optuna.create_study(sampler=sampler(method, seed, **settings), direction=direction)


def f(a, b):
    """At most 0, at (1, 0.1)."""
    return -((a - 1.0) ** 2) - (math.log10(b) + 1.0) ** 2


def objective(trial):
    return f(trial.suggest_float("a", -1.0, 3.0), trial.suggest_float("b", 1e-3, 10.0, log=True))


def params(study):
    return [t.params for t in study.trials]


@pytest.fixture
def histories(monkeypatch):
    """What the method was told before every proposal."""
    seen, original = [], Policy.propose
    monkeypatch.setattr(Policy, "propose", lambda self, h, trial: seen.append((trial, h)) or original(self, h, trial))
    return seen


@pytest.mark.parametrize("method", METHODS)
def test_finds_the_best_and_mirrors_when_minimising(method):
    up, down = make(method, **METHODS[method]), make(method, "minimize", **METHODS[method])
    # The fit of the default method turns rounding into another local optimum, so only the sign is changed there.
    shift, scale = (0.0, 1.0) if method == "robust" else (10.0, 3.0)
    up.optimize(objective, n_trials=22)
    down.optimize(lambda trial: shift - scale * objective(trial), n_trials=22)
    assert up.best_value > -0.15  # of a range of 8
    assert down.best_value < shift + 0.15 * scale
    # rewards in units of the initial design: shift, scale and sign do not matter
    for p, q in zip(params(up)[:9], params(down)[:9], strict=True):
        assert p == pytest.approx(q, abs=1e-2)
    assert all(-1.0 <= p["a"] <= 3.0 and 1e-3 <= p["b"] <= 10.0 for p in params(up))


def test_rewards_that_leave_floating_point_hardly_any_room():
    """Powers of 1024 change nothing, so that the proposals are the same; a range that overflows is refused."""
    one, large = make("robust"), make("robust")
    one.optimize(objective, n_trials=9)
    large.optimize(lambda trial: 2.0**1020 * objective(trial), n_trials=9)
    assert params(large) == params(one)
    assert large.sampler.recommend(large).value == 2.0**1020 * one.sampler.recommend(one).value

    with pytest.raises(ValueError, match="too large for their unit, inf: give a `scale`"):
        make().optimize(lambda trial: math.copysign(1.7e308, 2.0 + objective(trial)), n_trials=9)


def far_too_good(trial):
    """The objective, with one reading in five absurdly good at first sight only."""
    known = [t.params for t in trial.study.get_trials(deepcopy=False)[: trial.number]]
    value = objective(trial)
    return value + 1e3 * (trial.number % 5 == 3 and trial.params not in known)


def test_a_suspect_is_asked_again_as_it_was_and_not_for_ever():
    study = make("robust", seed=3)
    assert study.sampler.set_aside(study) == []
    study.optimize(far_too_good, n_trials=16)
    assert {t.number for t in study.sampler.set_aside(study)} >= {t.number for t in study.trials if t.value > 100.0}
    rows = [tuple(p.values()) for p in params(study)]
    again = [i for i, row in enumerate(rows) if row in rows[:i]]
    assert again
    assert max(rows.count(row) for row in rows) == 2
    assert all(study.trials[rows.index(rows[i])].value > 100.0 for i in again)  # the same to the last bit
    twice = make("robust", seed=3, verify=False)
    twice.optimize(far_too_good, n_trials=16)
    assert len({tuple(p.values()) for p in params(twice)}) == 16


def test_the_recommendation_is_not_the_luckiest_observation():
    study = make("robust")
    with pytest.raises(ValueError, match="nothing to recommend"):
        study.sampler.recommend(study)

    def measure(trial):
        trial.suggest_float("unseen", 0.0, 1.0 + trial.number)  # another distribution each time: not modelled
        return far_too_good(trial)

    study.optimize(measure, n_trials=16)
    best = study.sampler.recommend(study)
    assert study.best_value > 100.0
    assert best.value < 1.0
    assert best.x in [t.params for t in study.trials]
    assert best.x != study.best_params
    assert f(best.x["a"], best.x["b"]) > -0.5  # of a range of 8
    assert study.sampler.recommend(study) == best
    fresh = sampler("robust")  # another process
    assert fresh.recommend(study).x == best.x


def test_combinations_of_discrete_parameters_are_recommended():
    study = make("robust", direction="minimize")
    study.optimize(lambda t: abs(t.suggest_int("n", 1, 4) - 2) + float(t.suggest_categorical("c", "ab") == "b"), 10)
    assert study.sampler.recommend(study).x == {"n": 2, "c": "a"}


def test_outliers_do_not_lead_tgp_ucb_away():
    """Median of f over the last ten of 26 trials, after two outliers: -0.2."""
    study = make("tgp-ucb", rule="zero", moment_bound=16.0)
    study.optimize(lambda t: objective(t) + 1e4 * (t.number in (3, 9)), n_trials=26)
    assert statistics.median(f(**p) for p in params(study)[-10:]) > -0.6


def test_seeds():
    runs = []
    for seed in (0, 0, 1):
        study = make(seed=seed)
        study.optimize(objective, n_trials=9)
        runs.append(params(study))
    assert runs[0] == runs[1]
    assert all(p != q for p, q in zip(runs[0], runs[2], strict=True))
    RobustSampler("gp-ucb").reseed_rng()


WORKER = """
import sys, optuna, torch
sys.path.insert(0, sys.argv[2])
from test_optuna import objective, sampler
torch.set_num_threads(1)
study = optuna.load_study(study_name="s", storage=sys.argv[1], sampler=sampler("robust"))
study.optimize(objective, n_trials=5)
"""


def test_a_stored_study_goes_on_in_a_new_process(tmp_path):
    url = f"sqlite:///{tmp_path}/study.db"
    study = optuna.create_study(study_name="s", storage=url, sampler=sampler("robust"), direction="maximize")
    study.optimize(objective, n_trials=8)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", WORKER, url, str(Path(__file__).parent)],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    whole = make("robust")
    whole.optimize(objective, n_trials=13)
    again = optuna.load_study(study_name="s", storage=url)
    assert len(again.trials) == 13
    for p, q in zip(params(again), params(whole), strict=True):
        assert p == pytest.approx(q, rel=1e-6)


def test_every_kind_of_parameter_and_values_that_never_leave_their_grid(histories):
    def measure(trial):
        x = trial.suggest_float("x", 1e-3, 10.0, log=True)
        n = trial.suggest_int("n", 2, 32, log=True)
        m = trial.suggest_int("m", 0, 10, step=5)
        s = trial.suggest_float("s", 0.0, 1.0, step=0.25)
        c = trial.suggest_categorical("c", ["relu", None, 3])
        trial.suggest_int("only", 4, 4)
        worse = {"relu": 0.0, None: 0.6, 3: 1.2}[c]
        return (math.log10(x) + 1) ** 2 + (math.log2(n) - 3) ** 2 / 4 + (s - 0.5) ** 2 + (m != 5) + worse

    study = make(direction="minimize", kernel="rbf", lengthscale=0.5, noise_var=0.01, outputscale=1.0)
    study.optimize(measure, n_trials=34)
    assert study.best_value < 0.5
    for p in params(study):
        assert 1e-3 <= p["x"] <= 10.0
        assert p["n"] in range(2, 33)
        assert p["m"] in (0, 5, 10)
        assert p["s"] in (0.0, 0.25, 0.5, 0.75, 1.0)
        assert p["c"] in ("relu", None, 3)
        assert p["only"] == 4
    # x, n, m, s and one column per choice, in the order of their names
    x, y = histories[-1][1].told[0]
    p = study.trials[0].params
    columns = study.sampler._last[1].space.encode(x)
    assert len(columns) == 7
    assert columns[:3] == [float(p["c"] == v) for v in ("relu", None, 3)]
    assert columns[3] == pytest.approx((p["m"] + 2.5) / 15.0)
    assert columns[4] == pytest.approx(math.log(p["n"] / 1.5) / math.log(32.5 / 1.5))
    assert columns[5] == pytest.approx((p["s"] + 0.125) / 1.25)
    assert columns[6] == pytest.approx(math.log(p["x"] / 1e-3) / math.log(1e4))
    assert y == study.trials[0].value


def test_combinations_of_discrete_parameters_are_played_again():
    def measure(trial):
        return float(trial.suggest_int("n", 1, 3) == 2) + float(trial.suggest_categorical("c", "ab") == "b")

    study = make()
    study.optimize(measure, n_trials=20)
    assert [p for p in params(study)[12:] if p == {"n": 2, "c": "b"}] != []
    assert params(study)[12:].count({"n": 2, "c": "b"}) >= 3


def test_conditional_parameters_are_drawn_and_not_modelled(histories):
    def measure(trial):
        a = trial.suggest_float("a", 0.0, 1.0)
        if a > 0.5:
            trial.suggest_float("deep", 5.0, 6.0)
        trial.suggest_float("moving", 0.0, 1.0 + trial.number)
        return -((a - 0.7) ** 2)

    study = make()
    study.optimize(measure, n_trials=10)
    assert all(len(x) == 1 for x, _ in histories[-1][1].told)
    assert len(histories[-1][1].told) == 9
    deep = [p["deep"] for p in params(study) if "deep" in p]
    assert len(set(deep)) == len(deep) >= 2
    assert all(5.0 <= d <= 6.0 for d in deep)


def bounded(low, high, **options):
    return {"x": optuna.distributions.FloatDistribution(low, high, **options)}


def add(study, x, distributions, **given):
    """Add a trial; unless a value or state is given it is completed, and best at 0.8."""
    given = given or {"value": -((x - 0.8) ** 2)}
    study.add_trial(optuna.trial.create_trial(params={"x": x}, distributions=distributions, **given))


def proposed(study):
    """What the model would propose next."""
    trial = optuna.trial.create_trial(state=optuna.trial.TrialState.WAITING)
    trial.number = len(study.trials)
    return study.sampler.sample_relative(study, trial, study.sampler.infer_relative_search_space(study, trial))


NARROW, WIDE = bounded(-1.0, 0.7), bounded(-1.0, 2.0)


@pytest.mark.parametrize(("before", "now"), [(NARROW, WIDE), (WIDE, NARROW)], ids=["widened", "narrowed"])
def test_changed_bounds_are_modelled_once_a_trial_has_them(histories, before, now):
    study, narrowed = make("robust"), now == NARROW
    beyond = (1.0, 1.5) if narrowed else ()
    for x in (-1.0, -0.75, -0.25, 0.0, 0.25, 0.5, *beyond):
        add(study, x, before)
    faults = [(-0.5, 50.0)] + [(1.25, 50.0)] * narrowed
    for x, value in faults:
        add(study, x, before, value=value)
    for state in (optuna.trial.TrialState.FAIL, optuna.trial.TrialState.RUNNING):
        for x in (0.1, 1.75) if narrowed else (0.1,):
            add(study, x, before, state=state)
    assert study.sampler.infer_relative_search_space(study) == before
    add(study, 0.6, now)
    assert study.sampler.infer_relative_search_space(study) == now

    assert proposed(study) == {"x": -0.5}  # a suspect, measured again
    add(study, -0.5, now)
    history = histories[-1][1]
    assert [x["x"] for x, _ in history.told] == [-1.0, -0.75, -0.25, 0.0, 0.25, 0.5, -0.5, 0.6]
    assert history.failed == history.pending == [{"x": 0.1}]
    assert [t.value for t in study.sampler.set_aside(study)] == [50.0]
    assert 0.5 <= study.sampler.recommend(study).x["x"] <= 0.7
    for _ in range(3):
        x = proposed(study)["x"]
        assert (x <= 0.7) == narrowed
        add(study, x, now)
    assert len(histories[-1][1].told) == 11


def test_a_resumed_study_with_other_bounds_goes_on_with_the_model(tmp_path, monkeypatch):
    proposals, original = {}, Policy.propose

    def propose(self, history, number):
        proposals[number] = original(self, history, number)
        return proposals[number]

    monkeypatch.setattr(Policy, "propose", propose)
    url = f"sqlite:///{tmp_path}/study.db"
    for low, high in ((0.0, 1.0), (0.0, 2.0), (0.5, 1.0)):
        study = optuna.create_study(study_name="s", storage=url, sampler=sampler(), load_if_exists=True)
        first = len(study.trials)
        study.optimize(lambda t, low=low, high=high: (t.suggest_float("x", low, high) - 0.8) ** 2, n_trials=6)
        assert all(low <= t.params["x"] <= high for t in study.trials[first:])
        assert all(t.params == proposals[t.number] for t in study.trials[first + 1 :])


@pytest.mark.parametrize(
    ("ranges", "modelled"),
    [
        ("AAAB", True),
        ("AB", False),  # too few to tell
        ("ABB", True),
        ("AABBAA", True),  # undone
        ("AABBCC", True),
        ("AABBAABBBBB", False),  # back and forth
        ("ABCDE", False),
        ("AABC", False),
    ],
)
def test_ranges_that_come_and_go_are_not_modelled(ranges, modelled):
    study = make()
    for i, letter in enumerate(ranges):
        add(study, i / 100, bounded(0.0, 1.0 + "ABCDE".index(letter)))
    expected = bounded(0.0, 1.0 + "ABCDE".index(ranges[-1])) if modelled else {}
    assert study.sampler.infer_relative_search_space(study) == expected


@pytest.mark.filterwarnings("ignore:Fixed parameter")
def test_a_point_that_a_user_put_outside_the_range_counts(histories):
    study = make()
    study.enqueue_trial({"x": 1.5})
    study.optimize(lambda trial: -((trial.suggest_float("x", 0.0, 1.0) - 0.8) ** 2), n_trials=2)
    assert [x["x"] for x, _ in histories[-1][1].told] == [1.5]


def test_values_that_are_not_on_the_new_grid_are_left_out(histories):
    study = make()
    for x in (0.0, 0.25, 0.5, 1.0):
        add(study, x, bounded(0.0, 1.0, step=0.25))
    add(study, 1.5, bounded(0.0, 2.0, step=0.5))
    assert proposed(study)["x"] in (0.0, 0.5, 1.0, 1.5, 2.0)
    assert [x["x"] for x, _ in histories[-1][1].told] == [0.0, 0.5, 1.0, 1.5]


def test_trials_that_failed_count_as_the_worst_and_those_that_run_are_pending(histories):
    study = make()
    study.optimize(objective, n_trials=7)

    def bad(trial):
        value = objective(trial)
        if trial.number == 7:
            raise RuntimeError
        if trial.number == 8:
            trial.report(value, 0)
            raise optuna.TrialPruned
        return math.nan if trial.number == 9 else -math.inf

    study.optimize(bad, n_trials=4, catch=RuntimeError)
    running = study.ask()
    objective(running)
    study.enqueue_trial({"a": 0.0, "b": 1.0})  # waits, is not yet tried
    second = study.ask(study.trials[0].distributions)
    assert second.params == {"a": 0.0, "b": 1.0}
    study.ask(study.trials[0].distributions)
    number, history = histories[-1]
    assert number == 13
    assert [y for _, y in history.told] == [t.value for t in study.trials[:7]]
    assert history.failed == [t.params for t in study.trials[7:11]]
    assert history.pending == [t.params for t in study.trials[11:13]]
    points = [tuple(t.params.values()) for t in study.trials[7:]]
    assert len(set(points)) == len(points)  # not the same point for ever
    study.tell(running, 0.5)
    study.ask(study.trials[0].distributions)
    assert histories[-1][1].told[-1][1] == 0.5


def test_rewards_are_in_the_order_of_completion(histories):
    study = make()
    trials = [study.ask() for _ in range(3)]
    for trial in trials:
        objective(trial)
    for trial in (trials[2], trials[0], trials[1]):
        study.tell(trial, float(trial.number))
    objective(study.ask())
    assert [y for _, y in histories[-1][1].told] == [2.0, 0.0, 1.0]


def test_trials_that_were_completed_earlier_and_come_later():
    """By a worker whose clock is behind: the first rewards are no longer those that were fitted to."""
    study = make()
    study.optimize(objective, 9)
    old = datetime.datetime.now() - datetime.timedelta(hours=1)
    for trial in study.get_trials()[:2]:
        trial.datetime_start = trial.datetime_complete = old
        trial.value = -5.0
        study.add_trial(trial)
    number = study.ask().number
    running = study.get_trials()[number]
    space = running.distributions or study.trials[0].distributions
    proposals = [of.sample_relative(study, running, space) for of in (study.sampler, sampler())]
    assert proposals[0] == proposals[1]


def test_where_no_value_is_finite_there_is_nothing_to_recommend():
    study = make()
    study.optimize(lambda trial: math.inf * (3.0 + objective(trial)), n_trials=7)
    with pytest.raises(ValueError, match="no value was told yet"):
        study.sampler.recommend(study)


def test_before_anything_is_completed():
    study = make()
    points = []
    for _ in range(4):
        trial = study.ask()
        objective(trial)
        points.append(tuple(trial.params.values()))
    assert len(set(points)) == 4


def test_bad_settings_are_refused():
    with pytest.raises(
        ValueError, match=r"v-ucb needs conditions.* one of robust, gp-ucb, tgp-ucb, ata-gp-ucb, he-gp-ucb, bkb"
    ):
        RobustSampler("v-ucb")
    with pytest.raises(ValueError, match="maximize is the direction"):
        RobustSampler(maximize=True)
    with pytest.raises(ValueError, match="minimize is the direction"):
        RobustSampler("gp-ucb", minimize=True)
    with pytest.raises(ValueError, match="seed"):
        RobustSampler(seed=-1)
    with pytest.raises(TypeError, match="takes a study of Optuna, got None"):
        sampler().recommend(None)
    study = optuna.create_study(sampler=sampler(), directions=["minimize", "maximize"])
    with pytest.raises(ValueError, match="one objective"):
        objective(study.ask())
    study = make()
    study.ask().set_constraint("c", 1.0)
    study.tell(0, 1.0)
    with pytest.raises(ValueError, match="takes no constraints; for these use Ax"):
        objective(study.ask())
    study = make(lengthscale=[0.1, 0.2, 0.3])
    with pytest.raises(ValueError, match="3 lengthscales for 2 columns"):
        study.optimize(objective, n_trials=2)


def test_a_sampler_serves_several_studies():
    shared = sampler()
    runs = []
    for sign in (1.0, -1.0):
        study = optuna.create_study(sampler=shared, direction="maximize" if sign > 0 else "minimize")
        study.optimize(lambda t, sign=sign: sign * objective(t), n_trials=9)
        runs.append(params(study))
    for p, q in zip(*runs, strict=True):
        assert p == pytest.approx(q, abs=1e-2)


def test_candidates_for_the_botorch_sampler():
    """By the contract of ``optuna_integration.BoTorchSampler``: its own units, rewards to be maximised."""
    propose = candidates_func("tgp-ucb", seed=0, **SEARCH)
    bounds = torch.tensor([[-1.0, 0.0], [3.0, 10.0]], dtype=torch.float64)
    x = bounds[0] + (bounds[1] - bounds[0]) * torch.rand(6, 2, generator=torch.Generator().manual_seed(0)).double()

    def value(x):
        return -((x[:, :1] - 1.0) ** 2) - 0.1 * (x[:, 1:] - 4.0) ** 2

    for _ in range(14):
        new = propose(x, value(x), None, bounds, None)
        assert new.shape == (1, 2)
        assert new.dtype == torch.float64
        assert bool(((new >= bounds[0]) & (new <= bounds[1])).all())
        x = torch.cat([x, new])
    assert float(value(x).max()) > -0.1
    assert torch.equal(propose(x, value(x), None, bounds, None), propose(x, value(x), None, bounds, None))
    first = propose(x, value(x), None, bounds, None)
    assert float((propose(x, value(x), None, bounds, first) - first).norm()) > 1e-3
    with pytest.raises(ValueError, match="no constraints"):
        propose(x, value(x), value(x), bounds, None)
    with pytest.raises(ValueError, match="unknown method 'ei'"):
        candidates_func("ei")


def test_in_the_botorch_sampler():
    integration = pytest.importorskip("optuna_integration")
    botorch = integration.BoTorchSampler(candidates_func=candidates_func(**SEARCH), n_startup_trials=5, seed=0)
    study = optuna.create_study(sampler=botorch, direction="maximize")
    study.optimize(objective, n_trials=16)
    assert study.best_value > -0.3
