"""Runs from end to end: what they leave, how they go on after a stop, and how they are asked for."""

import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from benchmarks import keys
from benchmarks import run as runs
from benchmarks.loops.arms import ArmsPanel
from benchmarks.loops.conditions import ConditionsPanel
from benchmarks.methods.arms import practical, tgp_level, tgp_width
from benchmarks.methods.conditions import VUCB, Random
from benchmarks.problems.conditions.synthetic import Branin
from benchmarks.problems.rewards import StudentT
from benchmarks.problems.synthetic import RKHSFunction
from bo_robust.bandits import GPUCB, TGPUCB, RandomArm

ROOT = Path(__file__).resolve().parents[2]
METHODS = {"GP": lambda p: GPUCB(practical(p)), "TGP": lambda p: TGPUCB(tgp_width(p), tgp_level(p))}
T3 = RKHSFunction(noise=StudentT(3.0))


def plain(trials=3, rounds=60, methods=METHODS):
    """Two panels of two methods over arms: four jobs, the last two of them longer."""
    return [
        ArmsPanel("short", RKHSFunction(), methods, trials, 5),
        ArmsPanel("t3", T3, methods, trials, rounds, compare=[("TGP", "GP")]),
    ]


CONDITIONS = ConditionsPanel(
    "Branin (1,1)",
    Branin(),
    {"V": VUCB(restarts=1, raw_samples=8, maxiter=5), "RANDOM": Random()},
    trials=2,
    rounds=2,
    compare=[("V", "RANDOM")],
)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run that nothing interrupts, in one process."""
    folder = tmp_path_factory.mktemp("whole") / "out"
    runs.run(plain(), folder)
    return folder


def same(one, other):
    assert (one / "traces.parquet").read_bytes() == (other / "traces.parquet").read_bytes()


def files(folder):
    """The files of jobs, with when they were written."""
    return {path.name: path.stat().st_mtime_ns for path in (folder / "jobs").iterdir()}


def test_a_run_over_arms(whole):
    left = {"jobs", "summary.json", "traces.parquet", "00-short.png", "01-t3.png"}
    assert {p.name for p in whole.iterdir()} == left
    summary = json.loads((whole / "summary.json").read_text())
    about = summary["environment"]
    assert pd.Timestamp(about["date"]).tzinfo is not None
    assert about["versions"]["torch"] == torch.__version__
    assert "FiniteWidth(scale=0.4472135955, num_arms=100, delta=0.1)" in summary["settings"]["t3"]["methods"]["GP"]
    traces = pd.read_parquet(whole / "traces.parquet")
    assert list(traces.columns[:4]) == ["panel", "method", "trial", "round"]
    assert len(traces) == 2 * 3 * (60 + 5)
    entry = summary["panels"][1]["methods"]["GP"]
    rows = traces[(traces["method"] == "GP") & (traces["panel"] == "t3")]
    per_trial = rows.groupby("trial")["regret"].mean()
    assert entry["average_regret"] == pytest.approx([per_trial.mean(), per_trial.std(ddof=1) / 3**0.5])
    assert (rows["regret"] >= 0).all()
    assert rows["coverage"].between(0, 1).all()


def test_failed_pulls_are_reported_and_the_run_goes_on(tmp_path, monkeypatch):
    real = StudentT.__call__

    def broken(self, f, arms, draws):
        rewards = real(self, f, arms, draws)
        rewards[1] = float("nan")
        return rewards

    monkeypatch.setattr(StudentT, "__call__", broken)
    summary = runs.run(plain(rounds=20), tmp_path / "out")
    entry = summary["panels"][1]["methods"]["GP"]
    assert entry["failed_pulls"] == 20
    assert entry["first_failed"] == [1, 1]
    assert np.isfinite(entry["average_regret"][0])


def test_jobs_cover_the_trials_and_take_the_gpus_in_turn(monkeypatch, tmp_path):
    arms, conditions = (
        runs.jobs_of([panel.made(torch.device("cpu"))], tmp_path, "cpu") for panel in (plain(5)[0], CONDITIONS)
    )
    assert [(job.label, [*job.trials]) for job in arms] == [("GP", [*range(5)]), ("TGP", [*range(5)])]
    assert [(job.label, [*job.trials]) for job in conditions] == [
        ("V", [0]),
        ("RANDOM", [0]),
        ("V", [1]),
        ("RANDOM", [1]),
    ]
    assert len({job.file for job in (*arms, *conditions)}) == 6
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
    monkeypatch.setattr(runs, "device_named", torch.device)
    assert [job.device for job in runs.jobs_of([CONDITIONS], tmp_path, "cuda")] == [
        "cuda:0",
        "cuda:1",
        "cuda:1",
        "cuda:2",
    ]


@pytest.mark.slow
def test_workers_leave_the_traces_of_one_process(whole, tmp_path):
    runs.run(plain(), tmp_path / "out", jobs=2)
    same(whole, tmp_path / "out")


def test_a_run_that_was_stopped_goes_on(whole, tmp_path, monkeypatch, capsys):
    real, left = ArmsPanel.run, iter(range(2))

    def stopping(*given):
        if next(left, None) is None:
            raise KeyboardInterrupt
        return real(*given)

    with monkeypatch.context() as patch:
        patch.setattr(ArmsPanel, "run", stopping)
        with pytest.raises(KeyboardInterrupt):
            runs.run(plain(), tmp_path)
    before = files(tmp_path)
    assert len(before) == 2
    runs.run(plain(), tmp_path)
    assert "4 jobs, 2 of them finished before" in capsys.readouterr().err
    same(whole, tmp_path)
    assert before.items() < files(tmp_path).items()


def test_what_was_edited_runs_anew_and_the_rest_stays(tmp_path, monkeypatch):
    first = runs.run(plain(rounds=6), tmp_path)
    before = files(tmp_path)
    assert runs.run(plain(rounds=6), tmp_path)["panels"] == first["panels"]
    assert files(tmp_path) == before
    edited = METHODS | {"TGP": lambda p: TGPUCB(practical(p), tgp_level(p), rule="clip")}
    runs.run(plain(rounds=6, methods=edited), tmp_path)
    assert before.items() < files(tmp_path).items()
    assert len(files(tmp_path)) == 4 + 2
    monkeypatch.setattr(keys, "code", lambda: "another")  # of other code all
    runs.run(plain(rounds=6), tmp_path)
    assert len(files(tmp_path)) == 4 + 2 + 4


@pytest.mark.parametrize(
    "change",
    [{"seed": 1}, {"rounds": 9}, {"initial": 2}, {"problem": RKHSFunction(noise=StudentT(3.0), lengthscale=0.21)}],
)
def test_a_job_is_named_by_what_it_depends_on(change, tmp_path):
    def names(panel):
        return {job.file.name for job in runs.jobs_of([panel.made(torch.device("cpu"))], tmp_path, "cpu")}

    panel = plain()[1]
    assert not names(panel) & names(dataclasses.replace(panel, **change))
    assert names(panel) == names(dataclasses.replace(panel, name="other", compare=()))


def test_a_mistake_is_found_before_anything_is_run(tmp_path):
    late = ArmsPanel("late", T3, {"A": lambda p: GPUCB(practical(p)), "B": RandomArm()}, 2, 5, initial=5)
    with pytest.raises(ValueError, match="panel 'late': the 5 rounds of the initial design leave none"):
        runs.run([*plain(), late], tmp_path / "out")
    with pytest.raises(ValueError, match="different names"):
        runs.run([*plain(), *plain()], tmp_path / "out")
    with pytest.raises(ValueError, match=r"compares \['C'\]; it has A, B"):
        dataclasses.replace(late, compare=[("A", "C")])
    assert not (tmp_path / "out").exists()


def test_a_method_without_exact_form_is_refused_by_name(tmp_path):
    panel = dataclasses.replace(CONDITIONS, methods={"V": VUCB(width=max)}, compare=())
    with pytest.raises(TypeError, match=r"'V' of panel 'Branin \(1,1\)': width of .* holds <built-in function max>"):
        runs.jobs_of([panel], tmp_path, "cpu")


def test_only_some_panels_and_methods(tmp_path):
    def left(*names):
        return [(panel.name, panel.labels, list(panel.compare)) for panel in runs.only(plain(), names)]

    assert left() == [("short", ["GP", "TGP"], []), ("t3", ["GP", "TGP"], [("TGP", "GP")])]
    assert left("t3") == [("t3", ["GP", "TGP"], [("TGP", "GP")])]
    assert left("TGP") == [("short", ["TGP"], []), ("t3", ["TGP"], [])]
    assert left("t3", "TGP") == [("t3", ["TGP"], [])]
    with pytest.raises(ValueError, match=r"no panel or method \['TPG'\]; there are GP, TGP, short, t3"):
        left("TPG")


CONFIGURATION = """
from benchmarks.run import main
from tests.benchmarks.test_run import plain

if __name__ == "__main__":
    main(plain(rounds={rounds}))
"""


def command(folder, rounds, *arguments):
    """The command of a configuration in a folder of its own, and the options to start it."""
    (folder / "mine").mkdir(exist_ok=True)
    (folder / "mine" / "few.py").write_text(CONFIGURATION.format(rounds=rounds))
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    options = {"cwd": folder, "env": environment, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return [sys.executable, "mine/few.py", *arguments], options


@pytest.mark.slow
def test_a_configuration_is_a_command(tmp_path):
    words, options = command(tmp_path, 60, "--trials", "2", "--rounds", "6", "--only", "t3")
    ran = subprocess.run(words, **options, check=False)
    assert ran.returncode == 0, ran.stderr
    assert "t3: 2 trials x 6 rounds" in ran.stdout
    assert "TGP against GP: average regret" in ran.stdout
    assert len(pd.read_parquet(tmp_path / "results/mine-few/traces.parquet")) == 2 * 2 * 6


@pytest.mark.slow
def test_the_same_command_after_a_stop_ends_alike(tmp_path):
    words, options = command(tmp_path, 3_000, "--jobs", "2", "--out", "out")
    process = subprocess.Popen(words, **options)
    try:
        while not (tmp_path / "out/jobs").exists() or len(list((tmp_path / "out/jobs").glob("*.parquet"))) < 2:
            assert process.poll() is None
            time.sleep(0.02)
        process.send_signal(signal.SIGTERM)
        said = process.communicate(timeout=180)[1]
    finally:
        process.kill()
    assert (process.returncode, "Traceback" in said) == (130, False), said
    assert not (tmp_path / "out/summary.json").exists()
    again = subprocess.run(words, **options, timeout=300, check=False)
    assert again.returncode == 0, again.stderr
    assert "of them finished before" in again.stderr
    runs.run(plain(rounds=3_000), tmp_path / "whole")
    same(tmp_path / "whole", tmp_path / "out")


@pytest.mark.slow
def test_ray_workers_leave_the_traces_of_one_process(whole, tmp_path):
    ray = pytest.importorskip("ray")
    try:
        runs.run(plain(), tmp_path / "out", backend="ray", jobs=2)
    finally:
        ray.shutdown()
    same(whole, tmp_path / "out")
