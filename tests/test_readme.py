"""The README's commands and code are what a user copies: they are run here."""

import random
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", README, flags=re.S)


def block(text):
    """The one block of code that holds this text."""
    found = [b for b in BLOCKS if text in b]
    assert len(found) == 1, text
    return found[0]


def test_the_two_commands_stand_there_as_one_line_each():
    commands = re.findall(r"^pip install .*$", README, flags=re.M)
    assert commands == [
        'pip install torch==2.13.0 -e ".[data]" && bo-robust run configs/quickstart.yaml',
        'pip install torch==2.13.0 -e ".[dev]" && pytest',
    ]


@pytest.mark.filterwarnings("ignore")
def test_the_botorch_loop_finds_the_optimum():
    names: dict = {}
    loop = block("GPUCB(model, width)")
    statements = [line for line in loop.split("\n") if line and not line.startswith(("import", "from"))]
    assert len(statements) <= 15
    exec(compile(loop, "README.md", "exec"), names)
    assert abs(float(names["best"]) - 0.7) < 0.15
    assert len(names["Y"]) == 30


def test_the_arm_mode_loop_runs(capsys):
    torch.manual_seed(0)
    exec(compile(block("algorithm = TGPUCB("), "README.md", "exec"), {})
    regret = float(re.search(r"tensor\(([0-9.]+)", capsys.readouterr().out)[1])
    assert regret < 0.2  # of a range of 2; random arms lose 0.9


def test_the_feature_model_sees_through_the_noise():
    torch.manual_seed(0)
    names: dict = {}
    exec(compile(block("TruncatedFeatureGP("), "README.md", "exec"), names)
    grid = torch.rand(500, 2, dtype=torch.float64)
    error = names["model"].posterior(grid).mean - torch.sin(6 * grid).sum(1, keepdim=True)
    assert names["posterior"].mean.shape == (20_000, 1, 1)
    assert float(error.abs().mean()) < 0.3  # of a standard deviation of 1


def test_the_recommendation_is_for_infinite_variance(capsys):
    exec(compile(block("recommend(y)"), "README.md", "exec"), {})
    text = capsys.readouterr().out
    assert "the variance is infinite" in text
    assert "Truncation is worthwhile" in text


def test_the_streamed_loop_runs():
    torch.manual_seed(0)
    names: dict = {}
    exec(compile(block("ArmStream.of_tensor"), "README.md", "exec"), names)
    assert names["state"].round == 30
    best = float(torch.sin(4 * names["arms"]).sum(1).max())
    assert best - float(torch.sin(4 * names["pick"].location).sum()) < 1.0  # of a range of 5


@pytest.mark.filterwarnings("ignore")
def test_the_robust_loop_finds_the_design_that_is_good_in_all_conditions():
    names: dict = {}
    exec(compile(block("acqf.select_environment(x)"), "README.md", "exec"), names)
    assert abs(float(names["found"].x) - 0.7) < 0.1  # on average x = 0.25 is better


@pytest.mark.filterwarnings("ignore")
def test_the_loops_in_ax():
    pytest.importorskip("ax")
    names: dict = {}
    exec(compile(block('generation_strategy("tgp-ucb"'), "README.md", "exec"), names)
    assert len(names["client"].summarize()) == 15
    exec(compile(block('generation_strategy("v-ucb"'), "README.md", "exec"), names)
    assert abs(names["x"]["x"] - 0.4) < 0.3  # of [0, 1]; the worst condition, z = 1, asks for x = 0.15
    assert names["value_at_risk"] < 0.0


@pytest.mark.filterwarnings("ignore")
def test_the_optuna_sampler_minimises(tmp_path, monkeypatch):
    pytest.importorskip("optuna")
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    exec(compile(block("RobustSampler("), "README.md", "exec"), names)
    assert (tmp_path / "study.db").exists()
    assert names["study"].best_value < 0.1  # 0 at (0.03, 2); one layer off costs 0.1


@pytest.mark.filterwarnings("ignore")
def test_the_loop_over_candidate_kernels_eliminates_wrong_ones(capsys):
    names: dict = {}
    loop = block("candidate_grid(")
    assert len([line for line in loop.split("\n") if line and not line.startswith(("import", "from"))]) <= 20
    exec(compile(loop, "README.md", "exec"), names)
    alive = names["model"].alive
    assert capsys.readouterr().out.count("eliminated") == int((~alive).sum()) >= 1
    assert alive[:2].any()  # rbf, 0.2 or 0.4: f is a product of a sine of period 0.8 and a line


@pytest.mark.filterwarnings("ignore")
def test_elimination_goes_over_other_methods(capsys):
    torch.manual_seed(0)
    exec(compile(block("base=base"), "README.md", "exec"), {})
    lines = capsys.readouterr().out.strip().split("\n")
    assert [line.split()[0] for line in lines] == ["None", "VUCB", "TGPUCB", "BKB"]


@pytest.mark.filterwarnings("ignore")
def test_the_study_sees_through_spikes(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    random.seed(0)
    names: dict = {}
    exec(compile(block('Study.create("run.study"'), "README.md", "exec"), names)
    assert (tmp_path / "run.study").exists()
    assert abs(names["best"].x["x"] - 0.7) < 0.2
    assert 1e-3 < names["best"].x["rate"] < 1e-1


@pytest.mark.filterwarnings("ignore")
def test_the_study_over_ray(tmp_path):
    """In a process of its own: what Ray sends by value must not be from a test module."""
    pytest.importorskip("ray")
    check = "\nwith Study.open('a.study', readonly=True) as study:\n    print(len(study.results()), 'told')"
    command = [sys.executable, "-c", block("RayExecutor(") + check]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "12 told" in done.stdout
