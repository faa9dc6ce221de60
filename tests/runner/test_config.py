"""Configuration files: defaults, includes, overrides, and errors that name the nearest key."""

import pytest
import yaml

from bo_robust.runner.build import build_algorithm, build_problem
from bo_robust.runner.config import RunConfig, load
from bo_robust.runner.errors import RunError


def base():
    return {
        "name": "demo",
        "trials": 3,
        "horizon": 10,
        "algorithms": [{"name": "gp-ucb", "label": "A"}, {"name": "random", "label": "B"}],
        "panels": [{"name": "p", "problem": {"kind": "gp_draw", "num_arms": 12}}],
    }


def write(tmp_path, data, name="c.yaml"):
    path = tmp_path / name
    path.write_text(yaml.safe_dump(data))
    return path


def test_defaults_reach_panels_and_panels_win(tmp_path):
    data = base()
    data["panels"].append({"name": "q", "problem": {"kind": "gp_draw"}, "horizon": 7})
    config = load(write(tmp_path, data))
    assert [(p.trials, p.horizon) for p in config.panels] == [(3, 10), (3, 7)]
    assert [a.label for a in config.panels[1].algorithms] == ["A", "B"]
    assert config.panels[0].delta == 0.1


def test_round_trip_and_digest(tmp_path):
    config = load(write(tmp_path, base()))
    again = RunConfig.from_dict(config.to_dict())
    assert again == config
    assert again.digest == config.digest
    assert load(write(tmp_path, base()), ["trials=4"]).digest != config.digest


def test_include_takes_panels_and_overrides_them(tmp_path):
    write(tmp_path, base(), "a.yaml")
    config = load(write(tmp_path, {"name": "both", "include": ["a.yaml"], "trials": 2}, "b.yaml"))
    assert config.name == "both"
    assert config.panels[0].trials == 2
    assert config.panels[0].horizon == 10
    assert len(config.panels[0].algorithms) == 2


def test_overrides(tmp_path):
    path = write(tmp_path, base())
    config = load(path, ["seed=5", "panels.0.problem.num_arms=30", "algorithms.1.label=C"], trials=9)
    panel = config.panels[0]
    assert (panel.seed, panel.trials, panel.problem["num_arms"]) == (5, 9, 30)
    assert panel.algorithms[1].label == "C"


def change(data, path, value):
    *steps, last = path
    for step in steps:
        data = data[step]
    data[last] = value


BAD = [
    (["trails"], 3, "did you mean 'trials'"),
    (["trials"], "many", "trials of panel 'p' must be a whole number"),
    (["trials"], 0, "trials must be a whole number >= 1"),
    (["trials"], True, "must be a whole number"),
    (["horizon"], 0, "horizon must be a whole number >= 1"),
    (["delta"], 1.5, "delta"),
    (["seed"], -1, "seed"),
    (["dtype"], "float16", "float64 or float32"),
    (["noise_var"], -0.1, "noise_var must be > 0"),
    (["algorithms"], [], "has no algorithms"),
    (["algorithms", 0, "name"], "gp_ucb", "did you mean 'gp-ucb'"),
    (["algorithms", 0, "widht"], {"kind": "finite"}, "did you mean 'width'"),
    (["algorithms", 0, "width"], {"scale": 1.0}, "has no `kind:`"),
    (["algorithms", 1, "label"], "A", "two algorithms labelled 'A'"),
    (["panels"], [], "has no panels"),
    (["panels"], {"name": "p"}, "must be a list"),
    (["panels", 0], {"problem": {"kind": "gp_draw"}}, "has no `name:`"),
    (["panels", 0, "problem"], {"num_arms": 3}, "has no `kind:`"),
    (["compare"], [["A", "Z"]], "compares 'Z'"),
    (["compare"], [["A"]], "pairs of labels"),
    (["compare"], "A", "list of pairs"),
]


@pytest.mark.parametrize(("path", "value", "message"), BAD)
def test_bad_configurations_say_what_to_change(tmp_path, path, value, message):
    data = base()
    change(data, path, value)
    with pytest.raises(RunError, match=message):
        load(write(tmp_path, data))


def test_two_panels_of_one_name(tmp_path):
    data = base()
    data["panels"] *= 2
    with pytest.raises(RunError, match="two panels named 'p'"):
        load(write(tmp_path, data))


def test_unreadable_files(tmp_path):
    with pytest.raises(RunError, match="cannot read"):
        load(tmp_path / "none.yaml")
    (tmp_path / "bad.yaml").write_text("a: [1,")
    with pytest.raises(RunError, match="not valid YAML"):
        load(tmp_path / "bad.yaml")
    (tmp_path / "list.yaml").write_text("- 1")
    with pytest.raises(RunError, match="mapping"):
        load(tmp_path / "list.yaml")
    write(tmp_path, {"include": ["loop.yaml"]}, "loop.yaml")
    with pytest.raises(RunError, match="includes itself"):
        load(tmp_path / "loop.yaml")
    (tmp_path / "object.yaml").write_text("a: !!python/object/apply:os.system ['true']")
    with pytest.raises(RunError, match="not valid YAML"):
        load(tmp_path / "object.yaml")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("trials", "key=value"),
        ("panels.3.trials=1", "there is no '3'"),
        ("panels.0.problme.x=1", "did you mean 'problem'"),
    ],
)
def test_bad_overrides(tmp_path, text, message):
    with pytest.raises(RunError, match=message):
        load(write(tmp_path, base()), [text])


SCHEDULES = [
    ({"name": "gp-ucb", "width": {"kind": "finit"}}, "did you mean 'finite'"),
    ({"name": "gp-ucb", "width": {"kind": "finite", "sclae": 2}}, "did you mean 'scale'"),
    ({"name": "gp-ucb", "width": {"kind": "finite", "scale": -1.0}}, "scale"),
    ({"name": "gp-ucb", "width": {"kind": "compact"}}, "needs 'dim'"),
    ({"name": "gp-ucb", "margin": 0.1}, "takes no margin"),
    ({"name": "ei", "width": {"kind": "finite"}}, "takes no width"),
    ({"name": "pi", "margin": -1.0}, "margin"),
    ({"name": "tgp-ucb", "truncation": {"kind": "tgp", "moment_bound": -2.0, "alpha": 1.0}}, "moment_bound"),
    ({"name": "tgp-ucb", "truncation": {"kind": "tgp", "moment_bound": 2.0, "alpha": 1.5}}, "alpha"),
]


@pytest.mark.parametrize(("algorithm", "message"), SCHEDULES)
def test_bad_schedules_are_named(tmp_path, device, algorithm, message):
    data = base()
    data["algorithms"] = [algorithm]
    panel = load(write(tmp_path, data)).panels[0]
    problem = build_problem(panel, range(2), None, device)
    with pytest.raises(RunError, match=message):
        build_algorithm(panel.algorithms[0], panel, problem)


def test_schedules_take_their_constants_from_problem_and_panel(tmp_path, device):
    data = base()
    data["delta"] = 0.05
    data["algorithms"] = [
        {"name": "gp-ucb", "width": {"kind": "finite", "scale": 0.5}},
        {"name": "tgp-ucb", "width": {"kind": "finite", "delta": 0.2}, "truncation": {"kind": "none"}},
    ]
    panel = load(write(tmp_path, data)).panels[0]
    problem = build_problem(panel, range(2), None, device)
    first, second = (build_algorithm(a, panel, problem) for a in panel.algorithms)
    assert (first.width.num_arms, first.width.delta, first.width.scale) == (12, 0.05, 0.5)
    assert second.width.delta == 0.2


def test_unknown_problem_and_parameter(tmp_path, device):
    for problem, message in (
        ({"kind": "gp_drew"}, "did you mean 'gp_draw'"),
        ({"kind": "gp_draw", "num_arm": 3}, "did you mean 'num_arms'"),
    ):
        data = base()
        data["panels"][0]["problem"] = problem
        with pytest.raises(RunError, match=message):
            build_problem(load(write(tmp_path, data)).panels[0], range(2), None, device)
