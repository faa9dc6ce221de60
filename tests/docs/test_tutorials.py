"""Every tutorial runs with small settings; what the site shows of them was printed by the code that is there."""

import contextlib
import importlib.util
import io
import json
import re

import pytest
import torch

from docs.hooks import OUTPUTS, TUTORIALS, cells, code_hash
from docs.run_tutorials import execute

pytestmark = pytest.mark.filterwarnings("ignore")
NAMES = sorted(path.stem for path in TUTORIALS.glob("*.py"))


def small(name, **settings):
    """What a tutorial prints and defines with other numbers in the assignments of its capital names."""
    path = TUTORIALS / f"{name}.py"
    source = path.read_text(encoding="utf-8")
    for setting, value in settings.items():
        line = re.compile(rf"^((?:[A-Z]+, )*{setting}(?:, [A-Z]+)*) = ([\w_, ]+)$", flags=re.M)
        (found,) = line.findall(source)
        values = dict(zip(found[0].split(", "), found[1].split(", "), strict=True)) | {setting: str(value)}
        source = line.sub(f"{found[0]} = {', '.join(values.values())}", source)
    outputs, names = execute(path, source)
    return "".join(outputs.values()), names


@pytest.mark.parametrize("name", NAMES)
def test_what_is_shown_is_what_this_code_printed(name):
    stored = json.loads((OUTPUTS / f"{name}.json").read_text(encoding="utf-8"))
    source = (TUTORIALS / f"{name}.py").read_text(encoding="utf-8")
    assert cells(source)[0].text.startswith("# ")
    assert {cell.kind for cell in cells(source)} == {"prose", "code"}
    assert stored["code"] == code_hash(source), f"the code changed: run python -m docs.run_tutorials {name}"
    assert stored["seconds"] < 60
    assert {cells(source)[int(i)].kind for i in stored["outputs"]} == {"code"}


@pytest.mark.slow
def test_outliers(monkeypatch, capsys):
    printed, names = small("outliers", SEEDS=1, ROUNDS=12, TRIALS=7)
    rows = re.findall(r"^(.+?) +median regret \d\.\d\d, all: \[\d\.\d+\]$", printed, flags=re.M)
    assert rows == ["ordinary", "robust", "robust, replicates", "truncated"]
    assert re.search(r"row  3: f  0\.76, reading  30\.11, .*, outlier", printed)  # a spike of the initial design
    assert "readings [6.0], inliers [False], next: tensor([[0.9500, 0.0500]]" in printed
    assert "readings [6.0, 6.3, 5.8], inliers [True, True, True], next: None" in printed
    assert re.search(r"v \d+, alpha 1, lambda", printed)
    if importlib.util.find_spec("ax") is not None:
        assert re.search(r"Ax, 7 trials: recommends \[[01]\.\d+, [01]\.\d+\], where f is -?\d\.\d\d\n", printed)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert names["in_ax"]() is None
    assert "ax-platform is not installed" in capsys.readouterr().out


@pytest.mark.slow
def test_fine_tuning():
    pytest.importorskip("sklearn")
    printed, names = small("fine_tuning", ROUNDS=2)
    assert len(names["Y"]) == 22
    tail, mean = names["truth"](names["choice"].x.unsqueeze(0))[0].tolist()
    assert 0.0 < tail < mean < 1.0
    # The users whom the loop knows are not those by whom it is judged.
    assert not (names["others"].z[:, None] == names["environment"].z).all(-1).any()
    assert printed.count("accuracy in the worst 10 %") == 3


@pytest.mark.slow
def test_unknown_kernel_removes_wrong_periods():
    printed, names = small("unknown_kernel")
    active = names["elimination"].active
    assert active[3]  # the right one
    assert not active[4:].any()
    assert names["elimination"].map_candidate == 3
    assert len(re.findall(r"^round \d+: .+ removed$", printed, flags=re.M)) == int((~active).sum())


@pytest.mark.slow
def test_a_million_arms_with_fewer():
    printed, names = small("million_arms", ARMS=20_000, ROUNDS=25)
    assert "the same ten pulls: True" in printed
    assert sum(names["values"][-10:]) > sum(names["values"][:10])
    assert max(names["values"]) > names["best"] - 0.2  # of a range of 4


@pytest.mark.slow
def test_lunar_lander():
    pytest.importorskip("gymnasium")
    pytest.importorskip("Box2D")
    printed, names = small("lunar_lander", DESIGNS=3, LOOKS=4, INITIAL=16, ROUNDS=1, FLIGHTS=1, FRESH=8)
    assert len(re.findall(r"mean +-?\d\.\d\d ± ", printed)) == 3
    assert "of 3 pairs" in printed
    assert "observations true: 0 of 17 flagged, rows []" in printed
    assert re.search(r"partly in the wrong unit: \d of 17 flagged, rows \[0[],]", printed)  # row 0 is
    again = torch.full((6,), 0.5, dtype=torch.float64)
    assert names["fly"](again, 0.5, 3) == names["fly"](again, 0.5, 3)


def test_the_steering_is_gymnasiums_heuristic():
    lander = pytest.importorskip("gymnasium.envs.box2d.lunar_lander")
    pytest.importorskip("Box2D")
    gymnasium = pytest.importorskip("gymnasium")
    _, names = small("lunar_lander", DESIGNS=2, LOOKS=1, INITIAL=3, ROUNDS=0, FLIGHTS=1, FRESH=2)
    env = gymnasium.make("LunarLander-v3", enable_wind=True, wind_power=15.0)
    state, _ = env.reset(seed=0)
    for _ in range(100):
        ours = names["action"](state, names["GAINS"].tolist())
        assert ours == lander.heuristic(env, state)
        state, _, over, _, _ = env.step(ours)
        if over:
            break


def test_without_the_simulator_the_landing_says_so(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        printed, _ = small("lunar_lander")
    assert printed == 'gymnasium[box2d] is not installed: pip install "gymnasium[box2d]"\n'
