"""What a user copies from the README is run here; the README stays short, and what it links to exists."""

import re
from pathlib import Path

import pytest
import torch

import bo_robust

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```$", README, flags=re.M | re.S)
(OUTPUT,) = re.findall(r"^```text\n(.*?)^```$", README, flags=re.M | re.S)


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


def test_it_is_short():
    assert len(README.split()) <= 1000


def test_the_two_commands_stand_there_as_one_line_each():
    commands = re.findall(r"^pip install .*$", README, flags=re.M)
    assert commands == [
        'pip install torch==2.13.0 -e ".[benchmarks]" && python configs/quickstart.py',
        'pip install torch==2.13.0 -e ".[dev]" && pytest',
    ]


def test_every_name_of_the_package_is_in_its_table():
    rows = re.findall(r"^\| ([●○]) (.+)$", README, flags=re.M)
    marked = {name.split("(")[0].split(".")[-1] for _, row in rows for name in re.findall(r"`([^`]+)`", row)}
    assert {mark for mark, _ in rows} == {"●", "○"}
    assert {name for name in bo_robust.__all__ if name[0].isupper()} - marked == set()


def test_what_it_links_to_is_in_the_repository():
    links = [link.split("#") for link in re.findall(r"\]\(([^)\s]+)\)", README) if not link.startswith("http")]
    assert len(links) > 20
    assert [link for link, *_ in links if not (ROOT / link).is_file()] == []
    for link, *anchor in links:
        if anchor and link.endswith(".md"):
            titles = re.findall(r"^#+ (.+)$", (ROOT / link).read_text(encoding="utf-8"), flags=re.M)
            assert anchor[0] in {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}, link


@pytest.mark.filterwarnings("ignore")
def test_the_loop_prints_what_stands_below_it(capsys):
    """The readings flagged are the wrong ones, and the recipe is the best of the table.

    Yields depend on the recipes chosen on the way, and those on the processor's rounding.
    """
    names: dict = {}
    exec(block("suggest_replicates(model"), names)
    printed, shown = (re.sub(r"\d+ looks wrong, \d+|yield \d+", "", text) for text in (capsys.readouterr().out, OUTPUT))
    assert printed == shown
    assert torch.equal(~names["model"].inlier_mask, names["Y"][:, 0] > 90)
    distance = (names["recipes"] - names["best"]).norm(dim=-1)
    assert torch.equal(names["safe"][names["mean"].argmax()], names["recipes"][distance.argmin()])


@pytest.mark.filterwarnings("ignore")
def test_the_same_loop_with_single_task_gp_is_led_astray():
    (code,) = [b for b in BLOCKS if "suggest_replicates(model" in b]
    code = code.replace(
        "from bo_robust import RobustGP, suggest_replicates", "from botorch.models import SingleTaskGP as RobustGP"
    )
    names: dict = {"suggest_replicates": lambda model, candidates: None}
    exec(compile(code.split("for i in (~")[0], "README.md", "exec"), names)
    x = names["X"][names["model"].posterior(names["X"]).mean.argmax()]
    true = float(80 * torch.exp(-4 * (x - names["best"]).square().sum()))
    assert f"true yield is {true:.0f}." in " ".join(README.split())


@pytest.mark.filterwarnings("ignore")
def test_the_optuna_sampler_keeps_its_trials_in_the_database(tmp_path, monkeypatch):
    pytest.importorskip("optuna")
    monkeypatch.chdir(tmp_path)
    for trials in (5, 10):
        names: dict = {}
        exec(block("RobustSampler(", ("n_trials=20", "n_trials=5")), names)
        assert len(names["study"].trials) == trials
    assert (tmp_path / "study.db").exists()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_the_optuna_sampler_minimizes(tmp_path, monkeypatch):
    pytest.importorskip("optuna")
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    exec(block("RobustSampler("), names)
    assert len(names["study"].trials) == 20
    assert abs(names["study"].sampler.recommend(names["study"]).x["x"] - 0.3) < 0.1


@pytest.mark.filterwarnings("ignore")
def test_the_loop_in_ax_finds_the_wrong_readings(capsys):
    pytest.importorskip("ax")
    names: dict = {}
    exec(block("generation_strategy("), names)
    parameters, value = names["recommend"](names["client"])
    assert abs(parameters["x"] - 0.3) < 0.05
    assert abs(value - 0.5) < 0.05
    assert names["outlier_trials"](names["client"]) == [3, 9]
