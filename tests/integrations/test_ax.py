import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

pytest.importorskip("ax")

from ax.api.client import Client
from ax.api.configs import ChoiceParameterConfig, RangeParameterConfig
from ax.utils.common.random import with_rng_seed

from bo_robust.acquisition import OnePointLogNoisyExpectedImprovement
from bo_robust.confidence.truncation import NoTruncation, TGPTruncation
from bo_robust.integrations.ax import (
    RobustAcquisition,
    complete_observed,
    generation_strategy,
    outlier_trials,
    recommend,
    slips,
)
from bo_robust.proposals.methods import METHODS as DECLARED

ROOT = Path(__file__).resolve().parents[2]
TAIL = {"moment_bound": 1.0, "alpha": 1.0, "noise_var": 0.01}
POINTS = [{"z": z} for z in (0.0, 0.25, 0.5, 0.75, 1.0)]
KINDS = [{"kernel": "rbf", "lengthscale": ell, "noise_var": 0.01} for ell in (0.2, 0.5)]
METHODS = {
    "robust": {"noise_var": 0.01},
    "gp-ucb": {"noise_var": 0.01},
    "tgp-ucb": TAIL,
    "ata-gp-ucb": TAIL
    | {"moment_bound": 4.0, "horizon": 50, "width": 1.0}
    | {"features": {"kind": "fourier", "nodes": 8}, "num_features": 64},
    "v-ucb": {"environment": {"points": POINTS}, "noise_var": 0.01},
    "knowledge-gradient": {"environment": {"points": POINTS}, "noise_var": 0.01},
    "he-gp-ucb": {"candidates": KINDS, "noise_scale": 0.1, "width": 1.0},
    "bkb": {"noise_var": 0.01},
}
CLASSES = {name: (row.model, row.acquisition or OnePointLogNoisyExpectedImprovement) for name, row in DECLARED.items()}
SEARCH = {"num_restarts": 2, "raw_samples": 16, "seed": 0}


def f(p):
    """At most 0.5, at x = 1, z = 0.5; the worst conditions of x are z = 0 and 1."""
    return 0.5 - 0.3 * (p["x"] - 1.0) ** 2 - (p["z"] - 0.5) ** 2


def box(**bounds):
    return [RangeParameterConfig(name=name, parameter_type="float", bounds=b) for name, b in bounds.items()]


def choices(name, values):
    return ChoiceParameterConfig(name=name, values=values, parameter_type="float", is_ordered=True)


def client_of(strategy, parameters, objective="y", constraints=()):
    client = Client(random_seed=0)
    client.configure_experiment(parameters)
    client.configure_optimization(objective=objective, outcome_constraints=constraints)
    client.set_generation_strategy(strategy)
    return client


def make(method, objective="y", parameters=None, initial=5, **settings):
    if method == "he-gp-ucb":
        settings = {"maximize": objective == "y"} | settings
    strategy = generation_strategy(method, initial=initial, **SEARCH, **METHODS[method] | settings)
    return client_of(strategy, parameters or box(x=(-1.0, 3.0), z=(0.0, 1.0)), objective)


def ask(client, **given):
    """Index and parameters of the next trial."""
    (found,) = client.get_next_trials(max_trials=1, **given).items()
    return found


def run(client, rounds, sign=1.0, at_once=1, outlier=None):
    """Parameters of every trial."""
    measured = []
    for _ in range(rounds):
        for index, p in [ask(client) for _ in range(at_once)]:
            y = -50.0 if index == outlier else f(p)
            client.complete_trial(trial_index=index, raw_data={"y": sign * y})
            measured.append(p)
    return measured


def fitted(client):
    return client._generation_strategy.adapter.generator


CONTINUE = """
import json, sys, torch
from ax.api.client import Client
from bo_robust.integrations import ax
torch.set_num_threads(1)
clients = [Client.load_from_json_file(file) for file in sys.argv[1:]]
asked = [next(iter(client.get_next_trials(max_trials=1).values())) for client in clients]
models = [type(c._generation_strategy.adapter.generator.surrogate.model).__name__ for c in clients]
print("RESULT" + json.dumps([asked, models]))
"""


@pytest.mark.slow
def test_a_stored_client_goes_on_in_a_new_process(tmp_path):
    """Every method's classes are found, and asked for the same."""
    clients = {method: make(method, initial=5) for method in METHODS}
    files = {method: str(tmp_path / f"{method}.json") for method in METHODS}
    for method, client in clients.items():
        run(client, 6, outlier=2)
        client.save_to_json_file(files[method])
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", CONTINUE, *files.values()],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    asked, models = json.loads(done.stdout.split("RESULT")[1])
    for there, kind, (method, client) in zip(asked, models, clients.items(), strict=True):
        here = ask(client)[1]
        model, acqf = CLASSES[method]
        generator = fitted(client)
        assert kind == type(generator.surrogate.model).__name__ == model.__name__
        assert type(generator._acquisition) is RobustAcquisition
        inner = generator._acquisition.acqf
        assert type(getattr(inner, "acqf", inner)) is acqf  # of designs alone
        assert there.keys() == here.keys()
    model = fitted(clients["tgp-ucb"]).surrogate.model
    assert model.truncation == TGPTruncation(1.0, 1.0)
    assert model.truncated[:, 0].nonzero().tolist() == [[2]]
    assert isinstance(fitted(clients["gp-ucb"]).surrogate.model.truncation, NoTruncation)


def test_a_loaded_client_asks_the_same_with_the_seed_that_its_file_lacks(tmp_path):
    client = make("robust")
    run(client, 6)
    client.save_to_json_file(str(tmp_path / "client.json"))
    loaded = Client.load_from_json_file(str(tmp_path / "client.json"))
    with with_rng_seed(0):
        (again,) = run(loaded, 1)
    assert again == pytest.approx(run(client, 1)[0], abs=1e-6)


def unordered(name, values):
    return ChoiceParameterConfig(name=name, values=values, parameter_type="str", is_ordered=False)


def whole(name, low, high):
    return RangeParameterConfig(name=name, parameter_type="int", bounds=(low, high))


FLAG = ChoiceParameterConfig(name="b", values=[False, True], parameter_type="bool")


def finite(parameters, initial=3, objective="y", constraints=()):
    client = Client(random_seed=0)
    client.configure_experiment(parameters, parameter_constraints=list(constraints))
    client.configure_optimization(objective=objective)
    client.set_generation_strategy(generation_strategy(initial=initial, **SEARCH))
    return client


def measure(client, rounds, at_once=1, **given):
    """The arms of these trials, as tuples; values differ between all arms."""
    arms = []
    for _ in range(rounds):
        for index, p in [ask(client, **given) for _ in range(at_once)]:
            arms.append(tuple(p[name] for name in sorted(p)))
            values = ["uvwx".index(v) ** 1.5 if isinstance(v, str) else 0.7 * v - 0.2 * v**2 for v in p.values()]
            client.complete_trial(index, raw_data={"y": sum(values)})
    return arms


@pytest.mark.parametrize(
    ("parameters", "arms", "at_once", "constraints"),
    [
        ([unordered("s", list("uvwx")), FLAG], 8, 4, ()),
        ([unordered("s", list("uvw")), unordered("r", list("uvw"))], 9, 3, ()),
        ([unordered("s", list("uvw")), whole("k", 1, 3), whole("m", 1, 2)], 9, 1, ["k + m <= 3"]),
        ([whole("k", 1, 3), FLAG], 6, 1, ()),
    ],
)
def test_a_finite_space_is_tried_whole_before_an_arm_is_repeated(parameters, arms, at_once, constraints):
    client = finite(parameters, constraints=constraints)
    tried = measure(client, arms // at_once, at_once)
    assert len(set(tried)) == arms
    assert set(measure(client, 1)) <= set(tried)  # all are known, and one is measured again


def test_several_points_at_once_are_different_arms():
    client = finite([unordered("s", list("uvwx")), whole("k", 1, 2)])
    known = measure(client, 3)
    adapter = client._generation_strategy.fit(client._experiment)
    options = {"optimizer_kwargs": {"num_restarts": 2, "raw_samples": 16}}
    chosen = [arm.parameters for arm in adapter.gen(n=5, model_gen_options=options).arms]
    assert len({(p["k"], p["s"]) for p in chosen} | set(known)) == 8


def test_acquisition_gets_the_foremost_of_many_pending_trials():
    client = finite(box(x=(-1.0, 3.0), z=(0.0, 1.0)), initial=3)
    run(client, 6)
    for x, z in torch.rand(60, 2, generator=torch.Generator().manual_seed(0)).tolist():
        client.attach_trial(parameters={"x": 4.0 * x - 1.0, "z": z})
    ask(client)
    acquisition = fitted(client)._acquisition
    assert len(acquisition.X_pending) == 60
    assert len(acquisition.known_pending) == 50
    adapter = client._generation_strategy.fit(client._experiment)
    options = {"optimizer_kwargs": {"num_restarts": 2, "raw_samples": 16}}
    assert len({tuple(arm.parameters.values()) for arm in adapter.gen(n=2, model_gen_options=options).arms}) == 2


def test_fixed_values_of_an_unordered_choice_are_obeyed():
    client = finite([unordered("s", list("uvwx")), whole("k", 1, 3)])
    before = measure(client, 4)
    arms = measure(client, 4, fixed_parameters={"s": "w"})
    assert {s for _, s in arms} == {"w"}
    assert {*before, arms[0]} >= {(k, "w") for k in (1, 2, 3)}


def test_more_arms_than_are_listed_are_searched_without_known_ones():
    client = finite([unordered(name, list("uvwx")) for name in "abcdefg"])  # 16,384 arms
    assert len(set(measure(client, 6))) == 6


def test_fixed_parameters_are_obeyed():
    for method, initial, given in (("robust", 6, {"noise_var": None}), ("v-ucb", 3, {})):
        client = make(method, initial=initial, **given)
        run(client, initial + 2)
        for z in (0.0, 0.5):
            assert ask(client, fixed_parameters={"z": z})[1]["z"] == z


def test_ax_cross_validates_the_default():
    from ax.adapter.cross_validation import cross_validate

    client = make("robust", initial=13, noise_var=None)
    with with_rng_seed(0):  # the folds are random
        run(client, 14, outlier=4)
        results = cross_validate(client._generation_strategy.adapter, folds=7)
    pairs = torch.tensor([(one.observed.data.means[0], one.predicted.means[0]) for one in results]).T
    inliers = pairs[0] > -10.0
    assert (~inliers).sum() == 1
    assert pairs[1].min() > -10.0
    assert torch.corrcoef(pairs[:, inliers])[0, 1] > 0.7  # above .9 on most folds


def test_a_metric_that_is_only_tracked_is_left_out():
    client = make("robust", initial=5)
    for _ in range(7):
        index, p = ask(client)
        client.complete_trial(index, raw_data={"y": f(p), "z": 100.0 * p["x"]})
    x, value = recommend(client)
    assert value == pytest.approx(f(x), abs=0.3)
    assert isinstance(outlier_trials(client), list)


def test_limits_of_a_metric_are_stored_and_named(tmp_path):
    client = make("robust", initial=5, outcome_limits={"y": (-9, 9)})
    run(client, 7, outlier=2)
    client.save_to_json_file(str(tmp_path / "client.json"))
    for one in (client, Client.load_from_json_file(str(tmp_path / "client.json"))):
        assert outlier_trials(one) == [2]
    with pytest.warns(UserWarning, match="outcome_limits name yield, but the metrics modeled are y"):
        run(make("robust", initial=2, outcome_limits={"yield": (0, 100)}), 3)
    for limits in ((0, 100), {"y": 100}, None):
        with pytest.raises(ValueError, match="outcome_limits must give the ends of each metric"):
            generation_strategy(outcome_limits=limits)


def test_slips_have_the_trials_they_concern():
    client = make("robust", initial=20)
    for index in range(20):
        _, p = ask(client)
        client.complete_trial(trial_index=index, raw_data={"y": (10.0 if index == 9 else 1.0) * (5.0 + f(p))})
    ask(client)
    assert outlier_trials(client) == [9]
    assert slips(client) == [("decimal point", [9])]


def test_nothing_is_recommended_without_a_model_or_by_another_strategy():
    with pytest.raises(ValueError, match="no model yet: 0 of"):
        recommend(make("gp-ucb"))
    other = Client()
    other.configure_experiment(box(x=(0.0, 1.0)))
    other.configure_optimization(objective="y")
    other.configure_generation_strategy()
    with pytest.raises(ValueError, match="strategy is generation_strategy"):
        recommend(other)


def several(method, objective, constraints=()):
    strategy = generation_strategy(method, initial=6, **SEARCH, **METHODS[method] | {"noise_var": None})
    return client_of(strategy, box(a=(0.0, 1.0), z=(0.0, 1.0)), objective, constraints)


def run_outcomes(client, rounds, outcomes, outliers):
    """Points measured; ``outliers`` are added to what trials report."""
    rows = []
    for _ in range(rounds):
        index, p = ask(client)
        given = {name: value + outliers.get((index, name), 0.0) for name, value in outcomes(p).items()}
        client.complete_trial(index, raw_data=given)
        rows.append(p)
    return rows


@pytest.mark.parametrize("objective", ["u, v", "2*u + v"])
def test_two_skewed_metrics_are_optimized(objective):
    """Both are modeled in a learnt scale, which BoTorch's lists and weighted sums take, and Ax' Pareto front."""
    client = several("robust", objective)

    def outcomes(p):
        return {"u": math.exp(6.0 * p["a"] + p["z"]), "v": math.exp(4.0 - 5.0 * p["a"] + 3.0 * p["z"] ** 2)}

    for a, z in torch.rand(14, 2, generator=torch.Generator().manual_seed(0)).tolist():
        p = {"a": a, "z": z}
        client.complete_trial(client.attach_trial(parameters=p), raw_data=outcomes(p))
    ask(client)
    models = fitted(client).surrogate.model.models
    assert not all(model.outcome_scale.is_identity for model in models)
    assert outlier_trials(client) == []
    if objective == "u, v":
        for p, predicted, *_ in client.get_pareto_frontier():
            assert {name: float(mean) for name, (mean, _) in predicted.items()} == pytest.approx(outcomes(p), rel=0.5)


@pytest.mark.parametrize("method", ["gp-ucb", "v-ucb"])
def test_other_methods_refuse_constraints_and_several_objectives(method):
    for objective, constraints in (("y", ["g <= 0.5"]), ("y, g", [])):
        client = several(method, objective, constraints)
        run_outcomes(client, 6, lambda p: {"y": p["a"], "g": p["z"]}, {})
        with pytest.raises(ValueError, match="takes one objective and no constraints on outcomes"):
            ask(client)


@pytest.mark.parametrize("method", ["gp-ucb", "he-gp-ucb"])
def test_finite_arms_are_measured_again(method):
    arms = [choices("x", [-1.0, 1.0, 3.0]), choices("z", [0.0, 0.5])]
    client = make(method, parameters=arms, initial=3, width=0.5)
    measured = run(client, 8) + run(client, 2, at_once=2)
    rows = [(p["x"], p["z"]) for p in measured]
    assert set(rows) <= {(x, z) for x in (-1.0, 1.0, 3.0) for z in (0.0, 0.5)}
    assert rows[3:].count((1.0, 0.5)) >= 3  # six arms, twelve trials


def test_initial_design_larger_than_the_set_of_arms():
    client = make("gp-ucb", parameters=[choices("x", [0.0, 1.0]), choices("z", [0.5, 1.0])], initial=6)
    assert len(run(client, 8)) == 8


def test_many_arms_are_searched_locally_and_measured_again():
    values = [i / 150 for i in range(151)]  # 22,801 arms, more than Ax enumerates
    parameters = [choices("x", values), choices("z", values)]
    client = make("gp-ucb", parameters=parameters, initial=4, width=0.0)
    rows = [(p["x"], p["z"]) for p in run(client, 14)]
    assert all(x in values and z in values for x, z in rows)
    assert len(set(rows[4:])) < 10  # where nothing is explored


@pytest.mark.parametrize("method", ["v-ucb", "knowledge-gradient"])
def test_batches_are_chosen_one_after_the_other(method):
    """n > 1 points at once: the condition of every one is chosen, and the acquisition is as before."""
    client = make(method, initial=3)
    run(client, 5)
    adapter = client._generation_strategy.fit(client._experiment)
    generated = adapter.gen(n=3, model_gen_options={"optimizer_kwargs": {"num_restarts": 2, "raw_samples": 32}})
    assert len(generated.arms) == 3
    assert {a.parameters["z"] for a in generated.arms} <= {p["z"] for p in POINTS}
    assert adapter.generator._acquisition.acqf.X_pending is None
    assert len({a.parameters["x"] for a in generated.arms}) >= 2


@pytest.mark.parametrize(
    ("method", "objective", "sign"),
    [("v-ucb", "-y", -1.0), ("v-ucb", "y", 4000.0), ("knowledge-gradient", "-y", -1.0)],
)
def test_value_at_risk_where_conditions_are_chosen(method, objective, sign):
    """Simulator mode: Ax' own loop; what it proposes for z is a point of the environment where the tail is."""
    client = make(method, objective, noise_var=0.01 if sign**2 == 1.0 else None)
    measured = run(client, 10, sign)
    assert {p["z"] for p in measured[5:]} <= {p["z"] for p in POINTS}
    assert {p["z"] for p in measured[5:]} & {0.0, 1.0}
    x, value = recommend(client)
    assert set(x) == {"x"}
    assert x["x"] == pytest.approx(1.0, abs=0.25)
    # the worst tenth of five conditions is the worst condition
    assert value / sign == pytest.approx(f(x | {"z": 0.0}), abs=0.1)


@pytest.mark.parametrize(("objective", "sign"), [("-y", -1.0), ("y", 1.0)])
def test_a_value_at_risk_keeps_limits_and_leaves_out_what_is_flagged(objective, sign):
    client = make("v-ucb", objective, outcome_limits={"y": sorted((sign * -9.0, sign * 0.5))})
    for x in (-0.9, 0.0, 0.9, 1.1, 2.0, 2.9, 1.8):
        p = {"x": x, "z": x % 0.5}
        client.complete_trial(client.attach_trial(p), {"y": sign * (50.0 if x == 1.8 else f(p))})
    ask(client)
    assert outlier_trials(client) == [6]
    assert recommend(client)[0]["x"] in (0.9, 1.1)
    fitted(client).surrogate.model.outcome_limits = tuple(sorted((sign * -9.0, sign * -0.1)))
    assert recommend(client)[1] == sign * -0.1


def test_a_repeated_pair_is_replaced_in_every_second_round(monkeypatch):
    """Of v-ucb; the random design keeps sums of parameters."""
    client = Client(random_seed=0)
    client.configure_experiment(box(x=(0.0, 1.0), w=(0.0, 1.0), z=(0.0, 1.0)), parameter_constraints=["x + w <= 0.4"])
    client.configure_optimization(objective="y")
    client.set_generation_strategy(generation_strategy("v-ucb", initial=4, **SEARCH, **METHODS["v-ucb"]))
    measured = run(client, 4)
    first = torch.tensor([[measured[0][name] for name in ("x", "w", "z")]]).double()
    monkeypatch.setattr(RobustAcquisition, "_search", lambda self, *_, **__: (first.clone(), first.new_zeros(1)))
    monkeypatch.setattr(RobustAcquisition, "_with_condition", lambda self, x, *_: x)
    fresh, repeated, *_, again = run(client, 5)
    assert again["x"] != pytest.approx(measured[0]["x"], abs=1e-3)
    assert fresh["x"] != pytest.approx(measured[0]["x"], abs=0.005)
    assert fresh["x"] + fresh["w"] <= 0.4 + 1e-6
    assert fresh["z"] in {p["z"] for p in POINTS}
    assert repeated == pytest.approx(measured[0])


def test_value_at_risk_where_conditions_come_on_their_own():
    """Field mode: trials are completed under the condition that came."""
    client = make("v-ucb")
    with pytest.raises(ValueError, match="no model yet: 0 of"):
        recommend(client)
    came = torch.rand(11, generator=torch.Generator().manual_seed(0)).tolist()
    for z in came:
        index, p = ask(client)
        new = complete_observed(client, index, {"z": z}, {"y": f(p | {"z": z})})
        trial = client._experiment.trials[new]
        assert trial.arm.parameters == {"x": p["x"], "z": z}
        assert trial.status.is_completed
        assert client._experiment.trials[index].status.is_failed
    assert client._generation_strategy.current_node_name == "v-ucb"
    data = fitted(client).surrogate.training_data[0]
    assert data.X[:, 1].tolist() == pytest.approx(came[:10])
    assert fitted(client)._acquisition.acqf.X_pending is None  # failed trials are forgotten
    x, value = recommend(client)
    assert x["x"] == pytest.approx(1.0, abs=0.25)
    assert value == pytest.approx(0.25, abs=0.2)
    index, _ = ask(client)
    with pytest.raises(ValueError, match="conditions must give z"):
        complete_observed(client, index, {"wind": 0.1}, {"y": 0.0})
    with pytest.raises(ValueError, match="generation_strategy\\('v-ucb'"):
        complete_observed(make("gp-ucb"), 0, {"z": 0.5}, {"y": 0.0})


WHOLE = RangeParameterConfig(name="z", parameter_type="int", bounds=(0, 1))


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        (box(z=(0.0, 1.0), x=(0.0, 1.0)), r"last parameters of the search space must be the conditions z.*z, x"),
        (box(x=(0.0, 1.0), z=(0.0, 0.6)), "must lie in the search space"),
        ([*box(x=(0.0, 1.0)), WHOLE], "no values of the parameter 'z'"),
    ],
)
def test_conditions_and_search_space_that_do_not_fit(parameters, message):
    client = make("v-ucb", parameters=parameters, initial=2)
    run(client, 2)
    with pytest.raises(ValueError, match=message):
        ask(client)


def test_sums_of_parameters_are_kept_and_have_no_conditions():
    for method, constraint in (("v-ucb", "x + w <= 1"), ("v-ucb", "x + z <= 1"), ("knowledge-gradient", "x + w <= 1")):
        client = Client(random_seed=0)
        client.configure_experiment(box(x=(0.0, 1.0), w=(0.0, 1.0), z=(0.0, 1.0)), parameter_constraints=[constraint])
        client.configure_optimization(objective="y")
        client.set_generation_strategy(generation_strategy(method, initial=2, **SEARCH, **METHODS[method]))
        run(client, 2)
        if "z" in constraint:
            with pytest.raises(ValueError, match="parameter_constraints cannot have conditions"):
                ask(client)
        else:
            for _, p in (ask(client), ask(client)):
                assert p["x"] + p["w"] <= 1.0 + 1e-6
    with pytest.raises(ValueError, match=r"equality_constraints is not for Ax, .* parameter_constraints of"):
        generation_strategy(equality_constraints=[])


def test_the_wrong_sense_is_an_error():
    client = make("he-gp-ucb", "-y", maximize=True, initial=2)
    run(client, 2, -1.0)
    with pytest.raises(ValueError, match="build it with maximize=False"):
        ask(client)


def test_failed_trials_teach_nothing_and_are_replaced_in_the_initial_design():
    client = make("gp-ucb", initial=3)
    for i in range(5):
        index, p = ask(client)
        if i in (1, 4):
            client.mark_trial_failed(index)
        else:
            client.complete_trial(index, raw_data={"y": f(p)})
    ask(client)
    assert client._generation_strategy.current_node_name == "gp-ucb"
    assert len(fitted(client).surrogate.training_data[0].Y) == 3
    assert fitted(client)._acquisition.acqf.X_pending is None


def test_bad_settings_are_refused():
    """As ``choose`` does, whose refusals are in ``tests/test_methods.py``."""
    for method, settings, message in (
        ("ei", {}, r"unknown method 'ei'; .*one of: ata-gp-ucb, bkb, gp-ucb"),
        ("tgp-ucb", {}, "tgp-ucb needs alpha, moment_bound"),
        ("gp-ucb", {"initial": 0}, "initial"),
        ("robust", {"device": "cuda:99"}, "device cuda:99 was asked for, but torch"),
        ("robust", {"seed": "a"}, "seed must be a whole number >= 0, got 'a'"),
        ("robust", {"num_restarts": 2.5}, "num_restarts must be a whole number >= 1, got 2.5"),
        ("robust", {"num_restarts": 8, "raw_samples": 4}, "raw_samples must be a whole number >= 8, got 4"),
        ("gp-ucb", {**METHODS["gp-ucb"], "outcome_limits": {"y": (0, 100)}}, "outcome_limits"),
        ("robust", {"outcome_limits": (0, 100)}, r"outcome_limits .* by its name, such as .* got \(0, 100\)"),
    ):
        with pytest.raises(ValueError, match=message):
            generation_strategy(method, **settings)
    generation_strategy("tgp-ucb", **TAIL, width={"kind": "tgp", "norm_bound": 1.0})  # the rest comes from the settings
