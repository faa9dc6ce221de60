import math
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("optuna")

import optuna

from bo_robust.integrations import optuna as ours
from bo_robust.integrations.optuna import RobustSampler
from bo_robust.proposals.suggest import suggest

ROOT = Path(__file__).resolve().parents[2]
SEARCH = {"restarts": 2, "raw_samples": 32}
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
def calls(monkeypatch):
    """Trial and arguments of every call of ``suggest``, and what it returned."""
    seen = []

    def call(data, space, **given):
        seen.append({**vars(data), **vars(space), **given, "found": suggest(data, space=space, **given)})
        return seen[-1]["found"]

    monkeypatch.setattr(ours, "suggest", call)
    return seen


def first_parameters(call):
    """The first parameter of every completed trial."""
    return [row[0] for row in call["X"]]


def test_values_that_leave_floating_point_hardly_any_room():
    """A range that overflows is refused."""
    with pytest.raises(ValueError, match="differ by more than floating point holds"):
        make().optimize(lambda trial: math.copysign(1.7e308, 2.0 + objective(trial)), n_trials=9)


def test_combinations_of_discrete_parameters_are_recommended():
    study = make("robust", direction="minimize")
    study.optimize(lambda t: abs(t.suggest_int("n", 1, 4) - 2) + float(t.suggest_categorical("c", "ab") == "b"), 10)
    assert study.sampler.recommend(study).x == {"n": 2, "c": "a"}


PROCESS = """
import os, signal, sys, optuna, torch
sys.path.insert(0, sys.argv[2])
from test_optuna import constrained, objective, sampler
torch.set_num_threads(1)
study = optuna.load_study(study_name="s", storage=sys.argv[1], sampler=sampler("robust"))
"""
KILLED = """
def killed(trial):
    value = constrained(trial)
    if trial.number == 8:
        os.kill(os.getpid(), getattr(signal, "SIGKILL", signal.SIGTERM))  # on Windows, which has one, it kills
    return value

study.optimize(killed, n_trials=20)
"""


def in_a_new_process(url, code):
    """Goes on with the study "s", and returns the ended process."""
    command = [sys.executable, "-W", "ignore", "-c", PROCESS + code, url, str(Path(__file__).parent)]
    env = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, capture_output=True, text=True, env=env)


def test_a_study_goes_on_with_a_fresh_sampler():
    """Random numbers depend on the number of the trial alone."""
    whole, parts = make("robust"), make("robust")
    whole.optimize(objective, n_trials=11)
    parts.optimize(objective, n_trials=8)
    parts.sampler = sampler("robust")
    parts.sampler.reseed_rng()
    parts.optimize(objective, n_trials=3)
    assert params(parts) == params(whole)
    assert parts.sampler.recommend(parts) == whole.sampler.recommend(whole)


def test_every_kind_of_parameter_is_a_column_of_its_own(calls):
    def measure(trial):
        trial.suggest_int("only", 4, 4)
        trial.suggest_int("m", 0, 10, step=5)
        trial.suggest_float("s", 0.0, 1.0, step=0.25)
        trial.suggest_categorical("c", ["relu", None, 3])
        return math.log(trial.suggest_float("x", 1e-3, 10.0, log=True) * trial.suggest_int("n", 2, 32, log=True))

    study = make("robust")
    study.optimize(measure, n_trials=2)
    # c, m, n, s, x: a column each, in the order of their names; whole numbers and steps have an equal share each
    p, call = study.trials[0].params, calls[-1]
    category = ["relu", None, 3].index(p["c"])
    assert call["X"][0] == pytest.approx([category, p["m"], math.log(p["n"]), p["s"], math.log(p["x"])])
    low, high = call["bounds"].tolist()
    assert low == pytest.approx([0.0, -2.5, math.log(1.5), -0.125, math.log(1e-3)])
    assert high == pytest.approx([2.0, 12.5, math.log(32.5), 1.125, math.log(10.0)])
    assert call["categorical"] == {0: [0.0, 1.0, 2.0]}
    assert call["discrete"][1] == [0.0, 5.0, 10.0]
    assert len(call["discrete"][2]) == 31
    assert call["Y"][0] == [study.trials[0].value]


def test_conditional_parameters_are_drawn_and_not_modeled(calls):
    def measure(trial):
        a = trial.suggest_float("a", 0.0, 1.0)
        if a > 0.5:
            trial.suggest_float("deep", 5.0, 6.0)
        trial.suggest_float("moving", 0.0, 1.0 + trial.number)
        return -((a - 0.7) ** 2)

    study = make()
    study.optimize(measure, n_trials=10)
    assert all(len(row) == 1 for row in calls[-1]["X"])
    assert len(calls[-1]["X"]) == 9


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
def test_changed_bounds_are_modeled_once_a_trial_has_them(calls, before, now):
    study, narrowed = make("robust"), now == NARROW
    beyond = (1.0, 1.5) if narrowed else ()
    for x in (-1.0, -0.75, -0.25, 0.0, 0.25, 0.5, *beyond):
        add(study, x, before)
    for x in (-0.5, *((1.25,) if narrowed else ())):
        add(study, x, before, value=50.0)
    for state in (optuna.trial.TrialState.FAIL, optuna.trial.TrialState.RUNNING):
        for x in (0.1, 1.75) if narrowed else (0.1,):
            add(study, x, before, state=state)
    assert study.sampler.infer_relative_search_space(study) == before
    add(study, 0.6, now)
    assert study.sampler.infer_relative_search_space(study) == now

    for _ in range(3):
        x = proposed(study)["x"]
        assert -1.0 <= x <= (0.7 if narrowed else 2.0)
        add(study, x, now)
    assert first_parameters(calls[0]) == [-1.0, -0.75, -0.25, 0.0, 0.25, 0.5, -0.5, 0.6]
    assert calls[0]["X_failed"] == calls[0]["X_pending"] == [[0.1]]
    assert [t.value for t in study.sampler.outlier_trials(study)] == [50.0]
    assert 0.5 <= study.sampler.recommend(study).x["x"] <= 1.1


def test_slips_have_the_trials_they_concern():
    study, space = make("robust"), {"x": optuna.distributions.FloatDistribution(0.0, 1.0)}
    for k in range(16):
        x = 0.618 * k % 1.0
        add(study, x, space, value=round(50.0 + 40.0 * math.sin(5.0 * x), 1) * (10.0 if k == 9 else 1.0))
    assert [t.number for t in study.sampler.outlier_trials(study)] == [9]
    ((kind, trials),) = study.sampler.slips(study)
    assert (kind, [t.number for t in trials]) == ("decimal point", [9])


@pytest.mark.parametrize(
    ("ranges", "modeled"),
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
def test_ranges_that_come_and_go_are_not_modeled(ranges, modeled):
    study = make()
    for i, letter in enumerate(ranges):
        add(study, i / 100, bounded(0.0, 1.0 + "ABCDE".index(letter)))
    expected = bounded(0.0, 1.0 + "ABCDE".index(ranges[-1])) if modeled else {}
    assert study.sampler.infer_relative_search_space(study) == expected


@pytest.mark.filterwarnings("ignore:Fixed parameter")
def test_a_point_that_a_user_put_outside_the_range_counts(calls):
    study = make()
    study.enqueue_trial({"x": 1.5})
    study.optimize(lambda trial: -((trial.suggest_float("x", 0.0, 1.0) - 0.8) ** 2), n_trials=2)
    assert first_parameters(calls[-1]) == [1.5]


def test_values_that_are_not_on_the_new_grid_are_left_out(calls):
    study = make()
    for x in (0.0, 0.25, 0.5, 1.0):
        add(study, x, bounded(0.0, 1.0, step=0.25))
    add(study, 1.5, bounded(0.0, 2.0, step=0.5))
    assert proposed(study)["x"] in (0.0, 0.5, 1.0, 1.5, 2.0)
    assert first_parameters(calls[-1]) == [0.0, 0.5, 1.0, 1.5]


def test_trials_that_failed_are_avoided_and_those_that_run_are_pending(calls):
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
    call = calls[-1]
    assert call["trial"] == 13
    assert call["Y"] == [t.values for t in study.trials[:7]]
    assert [row[0] for row in call["X_failed"]] == [t.params["a"] for t in study.trials[7:11]]
    assert [row[0] for row in call["X_pending"]] == [t.params["a"] for t in study.trials[11:13]]
    points = [tuple(t.params.values()) for t in study.trials[7:]]
    assert len(set(points)) == len(points)  # not the same point for ever
    study.tell(running, 0.5)
    study.ask(study.trials[0].distributions)
    assert calls[-1]["Y"][-1] == [0.5]


def test_readings_are_in_the_order_of_completion(calls):
    study = make()
    trials = [study.ask() for _ in range(3)]
    for trial in trials:
        objective(trial)
    for trial in (trials[2], trials[0], trials[1]):
        study.tell(trial, float(trial.number))
    objective(study.ask())
    assert calls[-1]["Y"] == [[2.0], [0.0], [1.0]]


def test_where_no_value_is_finite_there_is_nothing_to_recommend():
    study = make()
    study.optimize(lambda trial: math.inf * (3.0 + objective(trial)), n_trials=7)
    with pytest.raises(ValueError, match="nothing to recommend"):
        study.sampler.recommend(study)


def test_before_anything_is_completed():
    study = make()
    trials = [study.ask() for _ in range(4)]
    assert len({objective(trial) for trial in trials}) == 4


def test_a_study_of_another_sampler_is_recommended_from():
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0), direction="maximize")
    study.optimize(objective, n_trials=12)
    found = RobustSampler(seed=0).recommend(study)
    assert found.x in [trial.params for trial in study.trials]
    assert found.value == pytest.approx(f(**found.x), abs=1.0)


def two_objectives(method):
    optuna.create_study(sampler=sampler(method), directions=["minimize"] * 2).optimize(lambda t: 2 * [objective(t)], 2)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: RobustSampler("v-ucb"), "v-ucb is not in Optuna, .* observed ones: call"),
        (
            lambda: RobustSampler(equality_constraints=[]),
            "equality_constraints is not in Optuna",
        ),
        (lambda: RobustSampler(fixed=["a"]), "fixed must give values by name"),
        (lambda: RobustSampler(restart=3), r"robust has no setting 'restart'; did you mean 'restarts'"),
        (lambda: RobustSampler(sed=1), "'seed'"),
        (lambda: RobustSampler(maximize=True), "maximize is the direction"),
        (lambda: RobustSampler("gp-ucb", minimize=True), "minimize is the direction"),
        (lambda: RobustSampler(seed=-1), "seed"),
        (lambda: RobustSampler(num_initial=-1), "num_initial"),
        (lambda: RobustSampler(restarts=0), "restarts"),
        (lambda: RobustSampler(raw_samples=7), "raw_samples"),
        (lambda: RobustSampler(repeats="always"), "repeats must be"),
        (lambda: RobustSampler(device="gpu"), "gpu"),
        (lambda: make(fixed={"a": 7.0}).optimize(objective, 1), r"fixed\['a'\] must be a value of Float.*, got 7.0"),
        (lambda: sampler().recommend(None), "takes a study of Optuna, got None"),
        (lambda: make("robust").sampler.recommend(make("robust")), "nothing to recommend"),
        (lambda: two_objectives("gp-ucb"), "gp-ucb takes one objective and no constraints"),
    ],
)
def test_bad_settings_are_refused(call, message):
    with pytest.raises((ValueError, TypeError), match=message):
        call()


def test_constraints_of_the_older_format_are_read(calls):
    study = make("robust")
    for a in (0.0, 0.25, 0.5, 0.75, 1.0):
        distributions = {"a": optuna.distributions.FloatDistribution(0.0, 1.0)}
        old = {"params": {"a": a}, "distributions": distributions, "system_attrs": {"constraints": [a - 0.6]}}
        study.add_trial(optuna.trial.create_trial(value=a, **old))
    assert study.sampler.recommend(study).x == {"a": 0.5}
    assert list(calls[-1]["constraints"]) == [[t.params["a"] - 0.6] for t in study.trials]


def constrained(trial):
    a, z = trial.suggest_float("a", 0.0, 1.0), trial.suggest_float("z", 0.0, 1.0)
    trial.set_constraint("circle", a**2 + z**2 - 0.5)
    return a + z + 30.0 * (trial.number in (2, 5))


@pytest.mark.slow
def test_a_study_with_outliers_and_a_constraint_goes_on_after_kill_9(tmp_path):
    """The killed trial stays RUNNING until its heartbeat is missed; then it is failed, and enqueued again."""
    url = f"sqlite:///{tmp_path}/study.db"
    optuna.create_study(study_name="s", storage=url, direction="maximize")
    assert in_a_new_process(url, KILLED).returncode in (-9, signal.SIGTERM)
    state = optuna.trial.TrialState
    retry = {"heartbeat_stale_trial_callback": optuna.storages.RetryHeartbeatStaleTrialCallback(max_retry=1)}
    storage = optuna.storages.RDBStorage(url, heartbeat_interval=1, grace_period=1, **retry)
    study = optuna.load_study(study_name="s", storage=storage, sampler=sampler("robust"))
    assert [t.state for t in study.trials] == [state.COMPLETE] * 8 + [state.RUNNING]
    killed = study.trials[8].params
    study.optimize(constrained, n_trials=7)
    # A trial without a heartbeat of its own stays RUNNING: the worker that died had none.
    assert study.trials[8].state == state.RUNNING
    study.tell(8, state=state.FAIL)
    assert killed not in [t.params for t in study.trials[9:]]
    x, value = study.sampler.recommend(study)
    assert x["a"] ** 2 + x["z"] ** 2 < 0.52
    assert value < 1.5
    assert {t.number for t in study.sampler.outlier_trials(study)} == {2, 5}


def test_trials_that_run_are_pending_before_they_ask_for_a_parameter():
    study = make("robust", num_initial=4)
    study.optimize(lambda t: f(t.suggest_int("a", -1, 3), t.suggest_float("b", 0.01, 1.0, step=0.33)), n_trials=5)
    trials = [study.ask() for _ in range(4)]
    chosen = [(t.suggest_int("a", -1, 3), t.suggest_float("b", 0.01, 1.0, step=0.33)) for t in trials]
    assert len(set(chosen)) == 4


def test_a_fixed_parameter_that_no_trial_has_is_named():
    study = make(num_initial=2, fixed={"aa": 1.0})
    with pytest.warns(UserWarning, match="no trial has the fixed aa; their parameters are a, b"):
        study.optimize(objective, 2)


@pytest.mark.parametrize("kind", ["box", "grid"])
def test_fixed_parameters_keep_their_values(kind):
    def objective(trial):
        x = trial.suggest_float("x", 0.0, 1.0) if kind == "box" else trial.suggest_int("x", 0, 20) / 20
        z = trial.suggest_categorical("z", ["a", "b"])
        return (x - (0.3 if z == "a" else 0.7)) ** 2

    study = optuna.create_study(sampler=RobustSampler(seed=0, num_initial=4))
    study.optimize(objective, n_trials=8)
    study.sampler = RobustSampler(seed=0, num_initial=4, fixed={"z": "b"})
    study.optimize(objective, n_trials=6)
    late = study.trials[8:]
    assert {trial.params["z"] for trial in late} == {"b"}
    scale = 1 if kind == "box" else 20
    assert min(abs(trial.params["x"] / scale - 0.7) for trial in late) < 0.06
