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
import yaml
from bo_robust.experiments import jobs
from bo_robust.experiments import run as runs
from bo_robust.experiments.build import fastest_device
from bo_robust.experiments.cli import main
from bo_robust.experiments.config import parse
from bo_robust.experiments.errors import RunError
from bo_robust.experiments.jobs import Job, jobs_of

from benchmarks.loops.arms import ArmsLoop
from benchmarks.problems.rewards import StudentT

ROOT = Path(__file__).resolve().parents[2]
LEFT = {"summary.json", "traces.parquet", "00-short.png", "01-t3.png"}


def plain(trials=3, horizon=60, **changes):
    """Two panels of two methods over arms: four jobs, the last two of them longer."""
    gp = {"name": "gp-ucb", "label": "GP", "width": {"kind": "finite", "scale": 5.0**-0.5}}
    tgp = {"name": "tgp-ucb", "label": "TGP", "width": {"kind": "tgp", "scale": 0.1}}
    short = {"name": "short", "problem": {"kind": "rkhs_function"}, "horizon": 5}
    t3 = {"name": "t3", "problem": {"kind": "rkhs_function", "noise": {"kind": "student_t", "df": 3}}}
    settings = {"name": "test", "trials": trials, "horizon": horizon, "compare": [["TGP", "GP"]]}
    return settings | {"methods": [gp, tgp], "panels": [short, t3]} | changes


CONDITIONS = {
    "loop": "conditions",
    "name": "test",
    "trials": 2,
    "horizon": 2,
    "methods": [{"name": "v-ucb", "label": "V", "restarts": 1, "raw_samples": 8, "maxiter": 5}, "random"],
    "compare": [["V", "RANDOM"]],
    "panels": [{"name": "Branin (1,1)", "problem": {"kind": "branin"}}],
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run that nothing interrupts, in one process."""
    folder = tmp_path_factory.mktemp("whole") / "out"
    runs.start(parse(plain()), folder)
    return folder


def same(one, other):
    """Traces byte for byte, and nothing but results in both folders."""
    assert (one / "traces.parquet").read_bytes() == (other / "traces.parquet").read_bytes()
    assert {p.name for p in one.iterdir()} == {p.name for p in other.iterdir()} == LEFT


def test_a_run_over_arms(whole):
    assert {p.name for p in whole.iterdir()} == LEFT
    summary = json.loads((whole / "summary.json").read_text())
    assert {"commit", "command", "config"} < summary.keys()
    assert pd.Timestamp(summary["date"]).tzinfo is not None
    assert summary["versions"]["torch"] == torch.__version__
    assert summary["machine"]["processor"] not in ("", "x86_64")
    assert parse(summary["config"]) == parse(plain())
    used = summary["settings"]["t3"]
    assert used["noise_var"] == 1.0
    assert used["methods"]["GP"]["width"] == {"kind": "finite", "num_arms": 100, "delta": 0.1, "scale": 5**-0.5}
    assert used["methods"]["TGP"]["truncation"]["moment_bound"] == pytest.approx(4.0)
    traces = pd.read_parquet(whole / "traces.parquet")
    assert len(traces) == 2 * 3 * (60 + 5)
    entry = summary["panels"][1]["methods"]["GP"]
    rows = traces[(traces["method"] == "GP") & (traces["panel"] == "t3")]
    per_trial = rows.groupby("trial")["regret"].mean()
    assert entry["average_regret"] == pytest.approx([per_trial.mean(), per_trial.std(ddof=1) / 3**0.5])
    assert (rows["regret"] >= 0).all()
    assert rows["coverage"].between(0, 1).all()


def test_a_run_over_conditions(tmp_path):
    summary = runs.start(parse(CONDITIONS), tmp_path / "out")
    assert {p.name for p in (tmp_path / "out").iterdir()} == {"summary.json", "traces.parquet", "00-branin-1-1.png"}
    assert json.loads((tmp_path / "out" / "summary.json").read_text()) == json.loads(json.dumps(summary))
    assert summary["settings"]["Branin (1,1)"]["methods"]["V"]["restarts"] == 1
    panel = summary["panels"][0]
    assert panel["optimum"]["value"] == pytest.approx(0.7324785, abs=1e-6)
    traces = pd.read_parquet(tmp_path / "out" / "traces.parquet")
    assert len(traces) == 2 * 2 * 3
    of = traces[traces["method"] == "V"]
    last = of[of["round"] == 2]
    entry = panel["methods"]["V"]
    assert entry["log10_regret"] == pytest.approx(np.log10(last["regret"]).mean())
    assert entry["regret_bound"] == pytest.approx(last["regret_bound"].median())
    assert entry["regret_bound_held"] == (of["regret_bound"] >= of["regret"]).mean()
    assert panel["methods"]["RANDOM"]["regret_bound"] is None
    gap = panel["comparisons"][0]["log10_regret"]["mean"]
    assert gap == pytest.approx(entry["log10_regret"] - panel["methods"]["RANDOM"]["log10_regret"])


def test_failed_pulls_are_reported_and_the_run_goes_on(tmp_path, monkeypatch):
    real = StudentT.__call__

    def broken(self, f, arms, draws):
        rewards = real(self, f, arms, draws)
        rewards[1] = float("nan")
        return rewards

    monkeypatch.setattr(StudentT, "__call__", broken)
    summary = runs.start(parse(plain(horizon=20)), tmp_path / "out")
    entry = summary["panels"][1]["methods"]["GP"]
    assert entry["failed_pulls"] == 20
    assert entry["first_failed"] == [1, 1]
    assert np.isfinite(entry["average_regret"][0])


def test_jobs_cover_the_trials():
    panels = parse(plain(trials=5)).panels[:1]
    assert jobs_of(panels, None) == [Job(0, 0, 0, 5), Job(0, 1, 0, 5)]
    assert [job[2:] for job in jobs_of(panels, 2) if job.method == 1] == [(0, 2), (2, 4), (4, 5)]
    assert len(jobs_of(parse(CONDITIONS).panels, 9)) == 4  # trial by trial


def test_jobs_take_the_gpus_in_turn(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
    took = [str(jobs._device(Job(0, method, first, first + 20), "cuda")) for first in (0, 20) for method in (0, 1)]
    assert took == ["cuda:0", "cuda:1", "cuda:1", "cuda:2"]
    assert str(jobs._device(Job(0, 1, 20, 40), "cuda:1")) == "cuda:1"


@pytest.mark.slow
def test_workers_leave_the_traces_of_one_process(whole, tmp_path):
    summary = runs.start(parse(plain()), tmp_path / "out", workers=2)
    same(whole, tmp_path / "out")
    assert [panel["name"] for panel in summary["panels"]] == ["short", "t3"]


def test_smaller_jobs_differ_by_rounding_at_most(whole, tmp_path):
    summary = runs.start(parse(plain()), tmp_path / "out", trials_per_job=2)
    ours, theirs = (pd.read_parquet(folder / "traces.parquet") for folder in (tmp_path / "out", whole))
    pd.testing.assert_frame_equal(ours, theirs, check_exact=False, rtol=1e-9)
    notes = [panel["notes"] for panel in json.loads((whole / "summary.json").read_text())["panels"]]
    assert [panel["notes"] for panel in summary["panels"]] == notes  # of all trials


def interrupted(folder, monkeypatch, data):
    """A run that stops after two of its four jobs."""
    real, left = ArmsLoop.run, iter(range(2))

    def stopping(*given):
        if next(left, None) is None:
            raise KeyboardInterrupt
        return real(*given)

    with monkeypatch.context() as patch:
        patch.setattr(ArmsLoop, "run", stopping)
        with pytest.raises(KeyboardInterrupt):
            runs.start(parse(data), folder)
    return sorted((folder / "jobs").glob("*.parquet"))


@pytest.mark.parametrize("content", ["torn", "empty", "of another job", "no parquet", "kept"])
def test_what_is_missing_or_unreadable_is_run_again(whole, tmp_path, monkeypatch, content, capsys):
    out = tmp_path / "out"
    first, second = interrupted(out, monkeypatch, plain())
    good = first.read_bytes()
    bad = {"torn": good[:-10], "empty": b"", "of another job": second.read_bytes(), "no parquet": b"x" * 500}
    first.write_bytes(bad.get(content, good))
    runs.start(parse(plain()), out)
    said = " ".join(capsys.readouterr().out.split())
    assert f"out: 4 jobs, {2 if content == 'kept' else 1} of them finished before" in said
    assert not second.exists()
    same(whole, out)


def test_a_finished_run_is_only_reported(tmp_path, capsys):
    out = tmp_path / "out"
    first = runs.start(parse(plain(horizon=5)), out)
    before = {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in out.iterdir()}
    (out / "jobs").mkdir()  # a kill before the last step of a run leaves it
    capsys.readouterr()
    assert runs.start(parse(plain(horizon=5)), out) == json.loads(json.dumps(first))
    assert {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in out.iterdir()} == before
    said = capsys.readouterr().out
    assert "holds this run, finished" in " ".join(said.split())
    assert "average regret" in said


def test_results_of_other_code_are_said(tmp_path, monkeypatch, capsys):
    out = tmp_path / "out"
    interrupted(out, monkeypatch, plain())
    for present, others in (("2.0 abc", [runs.code()]), ("2.1 def", [runs.code(), "2.0 abc"])):
        monkeypatch.setattr(runs, "code", lambda present=present: present)
        capsys.readouterr()
        runs.start(parse(plain()), out)
        said = " ".join(capsys.readouterr().out.split())
        assert "has results of bo_robust" in said
        assert f"and this is {present}; delete it to run all anew" in said
        assert others[-1] in said
    assert len(json.loads((out / "summary.json").read_text())["code"]) > 3


def test_two_runs_cannot_start_in_one_new_folder(tmp_path, monkeypatch):
    """The second starts while the first runs its jobs, before there is any file of a job."""
    config, other, refused = parse(plain(horizon=5)), parse(plain(horizon=6)), []
    run_jobs = runs._run_jobs

    def start_the_other(*args):
        monkeypatch.setattr(runs, "_run_jobs", run_jobs)
        with pytest.raises(RunError, match="another configuration"):
            runs.start(other, tmp_path / "out")
        refused.append(True)
        run_jobs(*args)

    monkeypatch.setattr(runs, "_run_jobs", start_the_other)
    summary = runs.start(config, tmp_path / "out")
    assert refused
    assert json.loads((tmp_path / "out" / "summary.json").read_text())["digest"] == summary["digest"]


def test_other_results_are_not_touched(tmp_path, monkeypatch):
    out, part = tmp_path / "out", tmp_path / "part"
    runs.start(parse(plain(horizon=5)), out)
    before = (out / "traces.parquet").read_bytes()
    interrupted(part, monkeypatch, plain(trials=2))
    for folder, options in ((out, {}), (part, {}), (part, {"trials_per_job": 2})):
        with pytest.raises(RunError, match=r"another configuration.*choose another --out, or delete that folder"):
            runs.start(parse(plain(trials=4)), folder, **options)
    assert (out / "traces.parquet").read_bytes() == before
    assert len(list((part / "jobs").glob("*.parquet"))) == 2
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "traces.parquet").write_text("mine")
    with pytest.raises(RunError, match="holds other files"):
        runs.start(parse(plain()), tmp_path / "mine")
    for text in ("{", "[]"):
        (out / "summary.json").write_text(text)
        with pytest.raises(RunError, match="choose another --out"):
            runs.start(parse(plain()), out)


def test_refused_before_anything_is_written(tmp_path):
    (tmp_path / "file").write_text("")
    new = tmp_path / "x"
    data = plain()
    data["panels"].append({"name": "last", "problem": {"kind": "rkhs_functoin"}})
    for config, options, message in (
        (plain(), {"device": "tpu7"}, "unknown device"),
        (plain(), {"trials_per_job": 0}, "must be at least 1"),
        (CONDITIONS, {"trials_per_job": 2}, "trial by trial"),
        (plain(), {"backend": "rey"}, "did you mean 'ray'"),
        (data, {}, "did you mean 'rkhs_function'"),
        (plain(), {"device": "cuda:99"}, "CUDA devices"),
    ):
        with pytest.raises(RunError, match=message):
            runs.start(parse(config), new, **options)
        assert not new.exists()
    with pytest.raises(RunError, match=r"choose another --out|cannot write"):
        runs.start(parse(plain()), tmp_path / "file" / "below")


def test_a_full_disk_is_one_sentence(tmp_path, monkeypatch):
    def full(source, target):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(RunError, match=r"cannot write .*No space left on device; what was written before is kept"):
        runs.start(parse(plain()), tmp_path / "out")
    assert [path.name for path in (tmp_path / "out" / "jobs").iterdir()] == ["digest"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "none.yaml"], "cannot read"),
        (["run", str(ROOT / "configs/quickstart.yaml"), "--threads", "9999"], "--threads must be between"),
    ],
)
def test_command_line_errors_are_one_line(arguments, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["bo-robust", *arguments])
    monkeypatch.setattr(signal, "signal", lambda *given: None)
    with pytest.raises(SystemExit) as stop:
        main()
    said = capsys.readouterr().err
    assert stop.value.code == 2
    assert message in said
    assert len(said.strip().splitlines()) == 1


@pytest.mark.slow
@pytest.mark.parametrize("whom", ["worker, killed", "parent, killed", "parent, stopped"])
def test_the_same_command_after_a_kill_ends_alike(tmp_path, whom):
    """Killed while the two long jobs run, of which each worker has one."""
    data = plain(horizon=3_000)
    path, out = tmp_path / "c.yaml", tmp_path / "out"
    path.write_text(yaml.safe_dump(data))
    command = [sys.executable, "-m", "bo_robust", "run", str(path), "--out", str(out), "--workers", "2"]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    options = {"cwd": tmp_path, "env": environment, "stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
    process = subprocess.Popen(command, **options)
    try:
        _until(lambda: len(list(out.glob("jobs/00-*.parquet"))) == 2)
        workers = _workers(process.pid)
        number = signal.SIGTERM if whom == "parent, stopped" else signal.SIGKILL
        os.kill(max(workers) if whom == "worker, killed" else process.pid, number)
        said = process.communicate(timeout=180)[1].decode()
    finally:
        process.kill()
    ends = {"worker, killed": (2, "a worker died"), "parent, killed": (-9, ""), "parent, stopped": (130, "")}
    code, message = ends[whom]
    assert (process.returncode, "Traceback" in said) == (code, False), said
    assert message in said
    assert not (out / "summary.json").exists()
    _until(lambda: not any(_is_alive(pid) for pid in workers))
    assert len(list(out.glob("jobs/*.parquet"))) < 4
    again = subprocess.run(command, **options, timeout=300, check=False)
    assert again.returncode == 0, again.stderr
    runs.start(parse(data), tmp_path / "whole")
    same(tmp_path / "whole", out)


@pytest.mark.slow
def test_ray_workers_leave_the_traces_of_one_process(whole, tmp_path):
    ray = pytest.importorskip("ray")
    try:
        runs.start(parse(plain()), tmp_path / "out", backend="ray", workers=2)
    finally:
        ray.shutdown()
    same(whole, tmp_path / "out")


def _until(true):
    for _ in range(9000):  # three minutes, on a busy machine
        if true():
            return
        time.sleep(0.02)
    raise AssertionError("it never came")


def _workers(parent):
    """Processes of a run's pool that are started."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            of = int((folder / "stat").read_text().rsplit(")", 1)[1].split()[1])
            if of == parent and "LokyProcess" in (folder / "cmdline").read_text():
                found.append(int(folder.name))
        except (OSError, ValueError):
            continue
    return found


def _is_alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def test_the_device_of_a_run_that_names_none_follows_its_size(monkeypatch):
    few, many = parse(plain(trials=3)).panels, parse(plain(trials=100)).panels  # of 100 arms
    assert fastest_device(many, None) == ("cuda" if torch.cuda.is_available() else "cpu")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert fastest_device(few, None) == "cpu"
    assert fastest_device(many, None) == "cuda"
    assert fastest_device(parse(CONDITIONS).panels, None) == "cpu"
