"""What a user copies from the README is run here; the README stays one page, and what it links to exists."""

import json
import re
from pathlib import Path

import pytest
import torch
from bo_robust.study import Study

import bo_robust

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```$", README, flags=re.M | re.S)
(DIFF,) = re.findall(r"^```diff\n(.*?)^```$", README, flags=re.M | re.S)


def block(text, fewer=None):
    """The one block of code that holds this text, compiled.

    Args:
        text: Part of the block.
        fewer: Two texts: the second takes the place of the first, such as a smaller number of rounds.
    """
    (found,) = [b for b in BLOCKS if text in b]
    if fewer is not None:
        assert found.count(fewer[0]) == 1, fewer[0]
        found = found.replace(*fewer)
    return compile(found, "README.md", "exec")


def side(sign):
    """The loop of the diff before (``-``) or after (``+``) the change, compiled."""
    lines = [line[1:] for line in DIFF.split("\n") if not line or line[0] in f" {sign}"]
    return compile("\n".join(lines), f"README.md, diff, {sign}", "exec")


def test_it_is_one_page_of_small_snippets():
    assert README.count("\n") <= 180
    assert len(BLOCKS) == 4
    assert max(b.count("\n") for b in BLOCKS) <= 14


def test_the_two_commands_stand_there_as_one_line_each():
    commands = re.findall(r"^pip install .*$", README, flags=re.M)
    assert commands == [
        'pip install torch==2.13.0 -e ".[data]" && bo-robust run configs/quickstart.yaml',
        'pip install torch==2.13.0 -e ".[dev]" && pytest',
    ]


def test_the_table_shows_the_numbers_that_are_kept():
    kept = json.loads((ROOT / "benchmarks" / "results" / "curves" / "quickstart.json").read_text(encoding="utf-8"))
    (panel,) = [panel for panel in kept["panels"] if f"{panel['name']}: {panel['trials']} trials" in README]
    for name, found in panel["methods"].items():
        (row,) = re.findall(rf"^{name} +(.+)$", README, flags=re.M)
        regrets = [f"{mean:.3g} ± {error:.2g}" for mean, error in (found["average_regret"], found["simple_regret"])]
        assert re.split(r"  +", row)[:2] == regrets, name


def test_every_name_of_the_package_is_product_or_experiment():
    rows = re.findall(r"^\| ([●○]) (.+)$", README, flags=re.M)
    marked = {name.split("(")[0].split(".")[-1] for _, row in rows for name in re.findall(r"`([^`]+)`", row)}
    assert {mark for mark, _ in rows} == {"●", "○"}
    assert set(bo_robust.__all__) - marked == set()
    assert "RobustGP" in "".join(row for mark, row in rows if mark == "●")


def test_what_it_links_to_is_in_the_repository():
    links = [link.split("#") for link in re.findall(r"\]\(([^)\s]+)\)", README) if not link.startswith("http")]
    assert len(links) > 20
    assert [link for link, *_ in links if not (ROOT / link).is_file()] == []
    for link, *anchor in links:
        if anchor and link.endswith(".md"):
            titles = re.findall(r"^#+ (.+)$", (ROOT / link).read_text(encoding="utf-8"), flags=re.M)
            assert anchor[0] in {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}, link


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("seed", [0, 2, 4])
def test_the_diff_makes_the_model_see_through_spikes(seed):
    """One reading in ten is a spike of 30; 30 points, and a round of the loop before and after the diff."""

    def f(x):
        return torch.exp(-(((x - 0.7) / 0.2) ** 2))

    def measure(x):
        spike = 30.0 * (torch.rand_like(x) < 0.1) * torch.randn_like(x).sign()
        return f(x) + 0.05 * torch.randn_like(x) + spike

    grid = torch.linspace(0, 1, 101, dtype=torch.float64).unsqueeze(-1)
    errors = {}
    for sign, model in (("-", "SingleTaskGP"), ("+", "RobustGP")):
        torch.manual_seed(seed)
        X = torch.rand(30, 1, dtype=torch.float64)
        bounds = torch.tensor([[0.0], [1.0]], dtype=torch.float64)
        names = {"measure": measure, "X": X, "Y": measure(X), "bounds": bounds, "rounds": 1}
        exec(side(sign), names)
        assert names["X"].shape == (31, 1)
        assert type(names["model"]).__name__ == model
        errors[sign] = float((names["model"].posterior(grid).mean - f(grid)).abs().mean())
    assert errors["+"] < 0.1 < 1.0 < errors["-"]


@pytest.mark.filterwarnings("ignore")
def test_the_optuna_sampler_keeps_its_trials_in_the_database(tmp_path, monkeypatch):
    pytest.importorskip("optuna")
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    exec(block("RobustSampler(", ("n_trials=20", "n_trials=5")), names)
    assert (tmp_path / "study.db").exists()
    assert len(names["study"].trials) == 5


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_the_optuna_sampler_minimises(tmp_path, monkeypatch):
    pytest.importorskip("optuna")
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    exec(block("RobustSampler("), names)
    assert len(names["study"].trials) == 20
    assert abs(names["study"].best_params["x"] - 0.3) < 0.1


@pytest.mark.filterwarnings("ignore")
def test_the_loop_in_ax():
    pytest.importorskip("ax")
    names: dict = {}
    exec(block("generation_strategy("), names)
    client = names["client"]
    for _ in range(8):
        for index, p in client.get_next_trials(max_trials=1).items():
            client.complete_trial(trial_index=index, raw_data={"y": 0.5 - (p["x"] - 0.3) ** 2})
    assert len(client.summarize()) == 8


@pytest.mark.filterwarnings("ignore")
def test_the_study_can_be_run_twice(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    first: dict = {}
    exec(block('Study.create("run.study"', ("rounds=20", "rounds=8")), first)
    again: dict = {}
    exec(block('Study.create("run.study"', ("rounds=20", "rounds=10")), again)
    assert (tmp_path / "run.study").exists()
    assert first["best"].x.keys() == again["best"].x.keys() == {"x", "rate"}
    assert again["best"].value >= first["best"].value - 0.1


def test_a_study_can_be_played_by_hand(tmp_path):
    (line,) = re.findall(r"^By hand: `([^`]+)`\.$", README, flags=re.M)
    with Study.create(tmp_path / "run.study", {"x": (0.0, 1.0)}, seed=0) as study:
        exec(line, {"study": study, "value": 1.5})
        assert [value for _, value in study.results()] == [1.5]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_the_study_finds_the_best_design(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    exec(block('Study.create("run.study"'), names)
    assert abs(names["best"].x["x"] - 0.7) < 0.2
    assert 1e-3 < names["best"].x["rate"] < 1e-1


@pytest.mark.filterwarnings("ignore")
def test_the_value_at_risk_snippet_names_a_point_to_observe():
    """Everything that it uses it defines; the page of the family plays the loop, and a test there what it finds."""
    torch.manual_seed(0)
    names: dict = {}
    exec(block("ValueAtRiskUCB("), names)
    assert names["point"].shape == (1, 2)
    assert torch.equal(names["point"][:, :1], names["x"])
    assert bool(((names["point"] >= 0) & (names["point"] <= 1)).all())
