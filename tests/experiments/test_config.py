import json
import re
from pathlib import Path

import pytest
import torch
import yaml

from bo_robust.confidence import information_gain
from bo_robust.experiments import files
from bo_robust.experiments.build import build_algorithm, build_problem, resolved
from bo_robust.experiments.config import parse
from bo_robust.experiments.errors import RunError
from bo_robust.experiments.files import load_config
from bo_robust.features.leverage import theory_oversampling


def base():
    return {
        "name": "demo",
        "trials": 3,
        "horizon": 10,
        "methods": [{"name": "gp-ucb", "label": "A"}, {"name": "random", "label": "B"}],
        "panels": [{"name": "p", "problem": {"kind": "gp_draw", "num_arms": 12}}],
    }


def conditions(**over):
    panel = {"name": "B", "problem": {"kind": "branin"}}
    return {"loop": "conditions", "methods": ["v-ucb", "random"], "panels": [panel], **over}


def botorch(**over):
    panel = {"name": "B", "problem": {"kind": "function", "function": "branin"}}
    return {"loop": "botorch", "horizon": 9, "methods": ["SingleTaskGP"], "panels": [panel], **over}


def write(tmp_path, data, name="c.yaml"):
    path = tmp_path / name
    path.write_text(yaml.safe_dump(data))
    return path


def test_defaults_reach_panels_and_panels_win():
    data = base()
    data["panels"].append({"name": "q", "problem": {"kind": "gp_draw"}, "horizon": 7})
    config = parse(data)
    assert [(p.trials, p.horizon) for p in config.panels] == [(3, 10), (3, 7)]
    assert [a.label for a in config.panels[1].methods] == ["A", "B"]
    assert config.panels[0].delta == 0.1


def test_plain_data_and_back(tmp_path):
    config = load_config(write(tmp_path, base()))
    assert parse(config.model_dump(mode="json")) == config
    assert load_config(write(tmp_path, base()), ["trials=4"]) != config
    config = parse(conditions(methods=[{"name": "rho-kg-apx", "label": "KG", "fantasies": 3}], horizon=7))
    assert config.panels[0].build_method(config.panels[0].methods[0]).fantasies == 3
    assert parse(config.model_dump(mode="json")) == config


def test_include_takes_panels_and_overrides_them(tmp_path):
    write(tmp_path, base(), "a.yaml")
    config = load_config(write(tmp_path, {"name": "both", "include": ["a.yaml"], "trials": 2}, "b.yaml"))
    assert config.name == "both"
    assert (config.panels[0].trials, config.panels[0].horizon, len(config.panels[0].methods)) == (2, 10, 2)
    write(tmp_path, {"loop": "conditions", "methods": ["random"], "panels": []}, "a.yaml")
    with pytest.raises(RunError, match="whose `loop:` is another"):
        load_config(tmp_path / "b.yaml")


def test_overrides(tmp_path):
    path = write(tmp_path, base())
    config = load_config(path, ["seed=5", "panels.0.problem.num_arms=30", "methods.1.label=C"], trials=9)
    panel = config.panels[0]
    assert (panel.seed, panel.trials, panel.problem["num_arms"]) == (5, 9, 30)
    assert panel.methods[1].label == "C"


def change(data, path, value):
    *steps, last = path
    inner = data
    for step in steps:
        inner = inner[step]
    inner[last] = value
    return data


BAD = [
    (["trails"], 3, "did you mean 'trials'"),
    (["repetitions"], 3, "unknown key 'repetitions' in the run; did you mean 'trials'"),
    (["methods", 0, "name"], "mc-var", "'mc-var' is for `loop: conditions`, this is `loop: arms`"),
    (["panels", 0, "problem"], {"name": "gp_draw"}, "has no `kind`; write kind: 'gp_draw'"),
    *((["trials"], n, f"panel 'p': trials: input should be a valid integer, got {n!r}") for n in ("a", True)),
    *((["name"], name, "becomes a folder") for name in ("", ".hidden", "a/b", "a\nb")),
    ([7], 3, "7: keys should be strings, got 7"),
    (["panels", 0], 3, "panels.0: input should be a valid mapping"),
    (["panels", 0, "problem"], "gp_draw", "panel 'p': problem: input should be a valid mapping, got 'gp_draw'"),
    (["methods"], [], "has no methods"),
    (["methods", 1, "label"], "A", "two methods labeled 'A'"),
    (["panels"], [], "has no panels"),
    (["panels"], [{"name": "p", "problem": {"kind": "gp_draw"}}] * 2, "two panels named 'p'"),
    (["panels", 0], {"problem": {"kind": "gp_draw"}}, "name: field required"),
    (["panels", 0, "problem"], {"num_arms": 3}, "`problem` of panel 'p' has no `kind`"),
    (["compare"], [["A", "Z"]], "compares 'Z'"),
]


BAD_OF_A_LOOP = [
    (conditions, {"loop": "condition"}, "did you mean 'conditions'"),
    (conditions, {"loop": ["conditions"]}, r"unknown `loop:` \['conditions'\]"),
    (conditions, {"dtype": "float64"}, "`dtype:` of panel 'B' is for `loop: arms` only"),
    (conditions, {"panels": [{"name": "B", "problem": {"kind": "gp_draw"}}]}, "problem 'gp_draw' is for `loop: arms`"),
    (conditions, {"methods": ["gp-ucb"]}, "'gp-ucb' is for `loop: arms`, this is `loop: conditions`"),
    (conditions, {"methods": [{"name": "rho-kg-apx", "fantasy": 3}]}, "did you mean 'fantasies'"),
    (conditions, {"methods": [{"name": "rho-kg-apx", "fantasies": 0}]}, "fantasies must be a whole number >= 1"),
    (conditions, {"initial": 0}, "initial of panel 'B' must be at least 1 point"),
    (botorch, {"methods": ["RobustGp"]}, "panel 'B': unknown method 'RobustGp'; did you mean 'RobustGP'"),
    (botorch, {"delta": 0.1}, "`delta:` of panel 'B' is for `loop: arms` only"),
    (botorch, {"outliers": {"kind": "shfit", "share": 0.1}}, "panel 'B': outliers: .* 'shfit'; did you mean 'shift'"),
    (botorch, {"outliers": {"kind": "cauchy", "share": 0.1, "size": 3}}, "key 'outliers.cauchy.size' in panel 'B'"),
    (botorch, {"initial": 9}, "initial must be below the horizon"),
]


ALL_BAD = [(change(base(), path, value), message) for path, value, message in BAD]
ALL_BAD += [(data(**over), message) for data, over, message in BAD_OF_A_LOOP]


@pytest.mark.parametrize(("data", "message"), ALL_BAD)
def test_bad_configurations_say_what_to_change(data, message):
    with pytest.raises(RunError, match=message):
        parse(data)


def test_a_key_that_nothing_knows_is_named_before_one_that_is_missing():
    data = base()
    data["algorithms"] = data.pop("methods")
    with pytest.raises(RunError, match="unknown key 'algorithms' in the run; did you mean 'methods'"):
        parse(data)
    with pytest.raises(RunError, match="`problem:` is a key of a panel; write it there, under `panels:`"):
        parse({**data.pop("panels")[0], "methods": ["gp-ucb"], "trials": 3})


INVALID = (b"a: [1,", b"[" * 3000, b"description: 2020-13-45", b"a: !!python/object/apply:os.system ['true']")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "cannot read"),
        (b"- 1", "mapping"),
        (b"\xff\xfe\xff", "no text in UTF-8"),
        *((content, "must be a list of files") for content in (b"include: a.yaml", b"include: [3]")),
        (b"include: [c.yaml]", "includes itself"),
        (b"trials: 3\nhorizon: 2\ntrials: 4\n", "key 'trials' stands twice"),
        *((content, "not valid YAML") for content in INVALID),
    ],
)
def test_unreadable_files(tmp_path, content, message):
    if content is not None:
        (tmp_path / "c.yaml").write_bytes(content)
    with pytest.raises(RunError, match=message):
        load_config(tmp_path / "c.yaml")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("trials", "key=value"),
        ("panels.3.trials=1", "there is no '3'"),
        ("panels.0.problme.x=1", "did you mean 'problem'"),
        ("panels.0.name.x=1", "there is no|has no keys"),
        ("panels.0.name.x.y=1", "has no keys"),
        *((text, "there is no '-1'") for text in ("panels.-1.trials=1", "panels.-1=1")),
        ("panels.0=1", "should be a valid mapping"),
        ("panels=5", "panels: input should be a valid list, got 5"),
        ("x=[", "the value of --set 'x=.' is not valid YAML"),
        ("panels.0.problem={kind: gp_draw, kind: sp500}", "key 'kind' stands twice"),
    ],
)
def test_bad_overrides(tmp_path, text, message):
    with pytest.raises(RunError, match=message):
        load_config(write(tmp_path, base()), [text])


@pytest.mark.parametrize("panels", [5, None, {"name": "p"}])
def test_panels_of_a_wrong_shape(tmp_path, panels):
    path = write(tmp_path, {**base(), "panels": panels})
    outer = write(tmp_path, {"include": ["c.yaml"]}, "outer.yaml")
    for file, given in ((path, {}), (path, {"trials": 3}), (outer, {}), (outer, {"trials": 3})):
        with pytest.raises(RunError, match=r"panels.* be a (valid )?list"):
            load_config(file, **given)
    with pytest.raises(RunError, match="must be a mapping"):
        parse([])


@pytest.mark.parametrize("text", ["1e-3", "+1e-3", "1.E-3", "1E-3", ".1e-2", "0.001", "10e-4"])
def test_numbers_with_an_exponent_are_numbers(tmp_path, text):
    path = tmp_path / "c.yaml"
    path.write_text(yaml.safe_dump(base()) + f"delta: {text}\n")
    assert load_config(path).panels[0].delta == pytest.approx(1e-3)
    assert load_config(path, [f"delta={text}"]).panels[0].delta == pytest.approx(1e-3)
    assert load_config(path, ["description=1e3x"]).description == "1e3x"


def test_merged_keys_may_be_overridden(tmp_path):
    path = tmp_path / "c.yaml"
    path.write_text(
        "methods: [random]\npanels:\n"
        "  - {name: a, problem: &p {kind: gp_draw, num_arms: 9}}\n"
        "  - {name: b, problem: {<<: *p, num_arms: 8}}\n"
    )
    assert load_config(path).panels[1].problem == {"kind": "gp_draw", "num_arms": 8}


def test_the_shipped_configurations_load_by_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    named = files.named_configurations()
    assert len(named) >= 15
    assert {*named.values()} == {*(Path(__file__).resolve().parents[2] / "configs").rglob("*.yaml")}
    assert load_config("quickstart") == load_config(named["quickstart"])
    with pytest.raises(RunError, match="did you mean 'quickstart'"):
        load_config("quickstrat")
    (tmp_path / "quickstart").write_text("panels: 5")  # a file goes first
    with pytest.raises(RunError, match="valid list"):
        load_config("quickstart")
    for name, path in named.items():
        config = load_config(path if name == "quickstart" else name)
        assert config.panels
        loops = {"value_at_risk": "conditions", "robustness": "botorch"}
        expected = "botorch" if name == "quickstart" else loops.get(path.parent.name, "arms")
        assert {panel.loop for panel in config.panels} == {expected}


SCHEDULES = [
    ({"name": "gp-ucb", "width": {"kind": "finit"}}, "did you mean 'finite'"),
    ({"name": "gp-ucb", "width": {"kind": "compact"}}, "needs 'dim'"),
    ({"name": "gp-ucb", "margin": 0.1}, "panel 'p': method 'gp-ucb' has no 'margin'"),
    ({"name": "bkb", "epsilon": 0.5, "oversampling": 5.0}, "in place of oversampling"),
    ({"name": "gp-ucb", "epsilon": 0.5}, "panel 'p': method 'gp-ucb' has no 'epsilon'"),
    ({"name": "bbkb"}, "panel 'p': method 'bbkb' needs 'oversampling' and 'batch_constant', which must be given"),
    ({"name": "bbkb", "epsilon": 0.5}, "method 'bbkb' needs 'batch_constant', which"),
    ({"name": "tgp-ucb", "truncation": {"kind": "tgp", "moment_bound": -2.0, "alpha": 1.0}}, "moment_bound"),
]


@pytest.mark.parametrize(("algorithm", "message"), SCHEDULES)
def test_bad_schedules_are_named(device, algorithm, message):
    def built():
        panel = parse({**base(), "methods": [algorithm]}).panels[0]
        return build_algorithm(panel.methods[0], panel, build_problem(panel, range(2), None, device))

    with pytest.raises(RunError, match=message):
        built()


def test_schedules_take_their_constants_from_problem_and_panel(device):
    data = base()
    data["delta"] = 0.05
    data["methods"] = [
        {"name": "gp-ucb", "width": {"kind": "finite", "scale": 0.5}},
        {"name": "tgp-ucb", "width": {"kind": "finite", "delta": 0.2}, "truncation": {"kind": "none"}},
        {"name": "bkb", "epsilon": 0.5},
    ]
    panel = parse(data).panels[0]
    problem = build_problem(panel, range(2), None, device)
    first, second, third = (build_algorithm(a, panel, problem) for a in panel.methods)
    assert third.oversampling == theory_oversampling(panel.horizon, 0.05, 0.5)
    assert (first.width.num_arms, first.width.delta, first.width.scale) == (12, 0.05, 0.5)
    assert second.width.delta == 0.2


def on(problem):
    """A panel of ``problem``, from a file's data."""
    data = conditions() if problem["kind"] == "branin" else base()
    return parse({**data, "panels": [{"name": "p", "problem": problem}]}).panels[0]


RKHS = {"kind": "rkhs_function", "num_arms": 10}
PARAMETERS = [
    ({"kind": "gp_drew"}, "did you mean 'gp_draw'"),
    (RKHS | {"num_arms": 0}, "panel 'p': num_arms must be at least 1"),
    ({"kind": "hard_instance", "alpha": 1e-9}, "panel 'p': a parameter is too large or too small"),
    ({**RKHS, "noise": {"kind": "studentt"}}, "panel 'p': .*did you mean 'student_t'"),
    ({"kind": "branin", "z": "neither"}, "'discrete' or 'continuous'"),
]


@pytest.mark.parametrize(("problem", "message"), PARAMETERS)
def test_bad_parameters_name_panel_and_key(device, problem, message):
    with pytest.raises(RunError, match=message):
        build_problem(on(problem), range(2), None, device)


def test_whole_numbers_are_numbers(device):
    problem = build_problem(on({**RKHS, "noise": {"kind": "student_t", "df": 3}, "noise_var": 2}), [0], None, device)
    assert (problem.noise_var, problem.rewards.df) == (2.0, 3.0)


def test_unreadable_data_and_memory(tmp_path, device, monkeypatch):
    def refuse(self):
        raise PermissionError(13, "Permission denied", str(self))

    file = tmp_path / "intel_lab" / "intel_lab_30min.npz"
    file.parent.mkdir()
    file.touch()
    monkeypatch.setattr(Path, "read_bytes", refuse)
    with pytest.raises(RunError, match=r"panel 'p': .*Permission denied.*intel_lab_30min.npz"):
        build_problem(on({"kind": "intel_lab"}), range(2), tmp_path, device)
    with pytest.raises(RunError, match=r"panel 'p': .*not fit into memory"):
        build_problem(on({"kind": "rkhs_function", "num_arms": 10**8}), range(2), None, device)


def test_resolved_states_class_kind_and_constants(device):
    panel = on({"kind": "rkhs_function", "num_arms": 20, "noise": {"kind": "gaussian", "noise_var": 0.25}})
    problem = build_problem(panel, [0], None, device)

    def used(**algorithm):
        panel = parse({**base(), "methods": [algorithm]}).panels[0]
        found = resolved(build_algorithm(panel.methods[0], panel, problem))
        assert json.loads(json.dumps(found)) == found
        return panel.methods[0].label, found

    label, found = used(name="tgp-ucb", width={"kind": "finite", "scale": 0.5})
    assert (label, found.pop("class"), found.pop("rule")) == ("TGP-UCB", "TGPUCB", "zero")
    assert found == {
        "width": {"kind": "finite", "scale": 0.5, "num_arms": 20, "delta": 0.1},
        "truncation": {"kind": "tgp", "moment_bound": 1.25, "alpha": 1.0, "scale": 1.0},
    }
    # no width given: the label stays, the record says which width it was
    label, found = used(name="gp-ucb")
    assert label == "GP-UCB"
    assert found["width"] == {"kind": "randomized", "scale": 5.0**-0.5, "num_arms": 20}
    assert used(name="pi", margin=0.2)[1] == {"class": "ProbabilityOfImprovement", "margin": 0.2}
    assert used(name="random")[1] == {"class": "RandomArm"}


VALUES = {
    "text": "x" * 5000,
    "list": ["x" * 5000] * 50,
    "kind": {"kind": "x" * 5000},
    "key": {"x" * 5000: 1},
    "number": 10**4000,
    "more digits than Python writes": 10**5000,
    "deep": [[[["x"] * 30] * 30] * 30] * 30,
}


@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES)
def test_no_value_of_a_configuration_is_repeated_at_length(value, device):
    """In the run, a panel, its problem, the noise of that, an algorithm, its width and its truncation."""
    places = [(), ("panels", 0), ("panels", 0, "problem"), ("panels", 0, "problem", "noise")]
    places += [("methods", 0), ("methods", 0, "width"), ("methods", 0, "truncation")]
    keys = {"name", "kind", "label", "num_arms", "df", "scale", "alpha", "trials", "seed", "delta", "dtype", "compare"}
    refused = []
    for place in places:
        for key in sorted(keys | {"loop", "panels", "problem", "noise", "methods", "rule", "unknown", "x" * 5000}):
            data = base()
            data["methods"][0] = {"name": "tgp-ucb", "width": {"kind": "finite"}, "truncation": {"kind": "tgp"}}
            data["panels"][0]["problem"] = {**RKHS, "noise": {"kind": "student_t", "df": 3}}
            try:
                panel = parse(change(data, (*place, key), value)).panels[0]
                build_algorithm(panel.methods[0], panel, build_problem(panel, range(1), None, device))
            except RunError as error:
                refused.append(str(error))
    assert len(refused) > 60
    assert max(len(run) for text in refused for run in re.findall("x+|[0-9]+", text)) <= 80


def test_the_rkhs_width_of_a_run_has_bounds_on_the_maximum_gain():
    data = {"problem": {"kind": "rkhs_function"}, "methods": [{"name": "gp-ucb", "width": {"kind": "rkhs"}}]}
    panel = parse({"horizon": 20, "panels": [{"name": "p", **data}]}).panels[0]
    problem = build_problem(panel, range(2), None, torch.device("cpu"))
    width = build_algorithm(panel.methods[0], panel, problem).width
    K = problem.kernel(problem.arms, problem.arms)
    bound = information_gain.greedy_bound(K, problem.noise_var, 20)
    assert width.max_gain == pytest.approx(bound.tolist())
    assert width.norm_bound_squared == problem.norm_bound**2
