"""Configuration of value-at-risk runs: what is refused, with the nearest valid key, and problems of panels."""

import pytest

from bo_robust.experiments.build import build_conditions_problem
from bo_robust.experiments.conditions.methods import build_method
from bo_robust.experiments.config import parse
from bo_robust.experiments.errors import RunError
from bo_robust.experiments.files import load_config


def data(**over):
    panel = {"name": "B", "problem": {"kind": "branin"}}
    return {"loop": "environment", "methods": ["v-ucb", "random"], "panels": [panel], **over}


@pytest.mark.parametrize(
    ("over", "message"),
    [
        ({"loop": "enviroment"}, "did you mean 'environment'"),
        ({"loop": ["conditions"]}, r"unknown `loop:` \['conditions'\]"),
        ({"dtype": "float64"}, "`dtype:` of panel 'B' is for `loop: arms` only"),
        ({"panels": [{"name": "B", "problem": {"kind": "gp_draw"}}]}, "it is a problem of `loop: arms`"),
        ({"methods": ["gp-ucb"]}, "'gp-ucb' is for `loop: arms`, this is `loop: environment`"),
        ({"methods": ["v-ucbb"]}, "did you mean 'v-ucb'"),
        ({"methods": [{"name": "rho-kg-apx", "fantasy": 3}]}, "did you mean 'fantasies'"),
        ({"methods": [{"name": "random", "restarts": 3}]}, "panel 'B': method 'random' has no 'restarts'"),
        ({"methods": [{"name": "rho-kg-apx", "fantasies": 0}]}, "fantasies must be a whole number >= 1"),
        ({"methods": [{"name": "mc-var", "samples": 1.5}]}, "samples of method 'mc-var' must be a whole number"),
        ({"panels": [{"name": "B", "problem": {"kind": "brannin"}}]}, "did you mean 'branin'"),
        ({"panels": [{"name": "B"}]}, "has no `problem:`"),
        ({"refit_every": 0}, "refit_every of panel 'B' must be a whole number >= 1"),
        ({"initial": 0}, "initial of panel 'B' must be at least 1 point"),
    ],
)
def test_mistakes_are_refused(over, message):
    with pytest.raises(RunError, match=message):
        parse(data(**over))


def test_options_of_a_problem():
    def problem(**options):
        panel = {"name": "B", "problem": {"kind": "branin", **options}}
        return build_conditions_problem(parse(data(panels=[panel])).panels[0], None, "cpu")

    assert problem(z="continuous").points is None
    with pytest.raises(RunError, match="'discrete' or 'continuous'"):
        problem(z="neither")
    with pytest.raises(RunError, match="has no 'zz'"):
        problem(zz="discrete")
    with pytest.raises(RunError, match="use --device"):
        problem(device="cpu")


def test_plain_data_and_back():
    config = parse(data(methods=[{"name": "rho-kg-apx", "label": "KG", "fantasies": 3}], horizon=7))
    assert build_method(config.panels[0].methods[0].name, config.panels[0].methods[0].options).fantasies == 3
    assert parse(config.to_dict()) == config


def test_loops_do_not_mix(tmp_path):
    (tmp_path / "a.yaml").write_text("loop: environment\nmethods: [random]\npanels: []\n")
    (tmp_path / "b.yaml").write_text("include: [a.yaml]\n")
    with pytest.raises(RunError, match="whose `loop:` is another"):
        load_config(tmp_path / "b.yaml")
