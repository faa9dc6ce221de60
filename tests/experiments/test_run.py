"""Runs end to end: results, resuming after any interruption, and every way a run can be refused."""

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
from rich.console import Console

from bo_robust.experiments import arm_loop, comparisons
from bo_robust.experiments import run as runs
from bo_robust.experiments.cli import main
from bo_robust.experiments.config import parse
from bo_robust.experiments.errors import RunError
from bo_robust.experiments.problems.rewards import StudentT
from bo_robust.experiments.provenance import fingerprint
from bo_robust.experiments.report import write_report
from bo_robust.experiments.store import ShardKey, write_run

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def _every_chunk_is_saved(monkeypatch):
    monkeypatch.setattr(arm_loop, "CHECKPOINT_PAUSE", 0.0)


def config(trials=4, horizon=60, **panel):
    methods = [
        {"name": "gp-ucb", "label": "GP", "width": {"kind": "finite", "scale": 5.0**-0.5}},
        {"name": "tgp-ucb", "label": "TGP", "width": {"kind": "tgp", "scale": 0.1}},
        {"name": "irgp-ucb", "label": "IRGP"},
    ]
    noise = {"kind": "student_t", "df": 3}
    return parse(
        {
            "name": "test",
            "trials": trials,
            "horizon": horizon,
            "methods": methods,
            "compare": [["TGP", "GP"]],
            "panels": [{"name": "t3", "problem": {"kind": "rkhs_function", "noise": noise}, **panel}],
        }
    )


def test_a_run_leaves_what_it_promises(tmp_path, device):
    summary = runs.start(config(), tmp_path / "out", device=str(device))
    names = {p.name for p in (tmp_path / "out").iterdir()}
    assert {"SHA256SUMS", "run.json", "summary.json", "traces.parquet", "regret.png", "shards"} == names
    info = json.loads((tmp_path / "out" / "run.json").read_text())
    assert {"config", "fingerprint", "git", "device", "seeds", "platform", "started", "command"} <= set(info)
    used = info["used"]["t3"]
    assert used["noise_var"] == 1.0
    assert used["methods"]["GP"]["width"] == {"kind": "finite", "num_arms": 100, "delta": 0.1, "scale": 5**-0.5}
    assert used["methods"]["TGP"]["truncation"]["moment_bound"] == pytest.approx(4.0)
    traces = pd.read_parquet(tmp_path / "out" / "traces.parquet")
    assert len(traces) == 3 * 4 * 60
    entry = summary["panels"][0]["methods"]["GP"]
    rows = traces[traces["method"] == "GP"]
    per_trial = rows.groupby("trial")["regret"].mean()
    assert entry["average_regret"][0] == pytest.approx(per_trial.mean())
    assert entry["average_regret"][1] == pytest.approx(per_trial.std(ddof=1) / 2.0)
    assert (rows["regret"] >= 0).all()
    assert rows["coverage"].between(0, 1).all()
    # summary.json is what start returned
    assert json.loads((tmp_path / "out" / "summary.json").read_text()) == json.loads(json.dumps(summary))


def test_traces_are_reproduced_from_first_principles(tmp_path):
    """Regret, rewards and coverage of the traces, recomputed with dense solves for one trial."""
    from bo_robust.confidence import FiniteWidth
    from bo_robust.experiments.problems import make_problem
    from bo_robust.random import stream

    runs.start(config(trials=2, horizon=25), tmp_path / "out")
    rows = pd.read_parquet(tmp_path / "out" / "traces.parquet").query("method == 'GP' and trial == 1")
    problem = make_problem("rkhs_function", [1], 0, noise={"kind": "student_t", "df": 3})
    f = problem.f[0].numpy()
    K = problem.kernel if isinstance(problem.kernel, torch.Tensor) else problem.kernel(problem.arms, problem.arms)
    K = K.numpy()
    draws = problem.rewards.draw(stream(0, "reward", 1, 0), 256)
    width = FiniteWidth(len(f), 0.1, scale=5**-0.5)
    arms, rewards = [], []
    for t in range(25):
        mean, variance = np.zeros(len(f)), K.diagonal()
        if arms:
            A = np.linalg.solve(K[np.ix_(arms, arms)] + problem.noise_var * np.eye(t), K[arms])
            mean, variance = np.array(rewards) @ A, K.diagonal() - (K[arms] * A).sum(0)
        sigma = np.sqrt(np.maximum(variance, 0))
        arm = int(np.argmax(mean + width(t + 1) * sigma))
        row = rows.iloc[t]
        assert row["arm"] == arm
        assert row["coverage"] == pytest.approx((np.abs(f - mean) <= width(t + 1) * sigma + 1e-9).mean(), abs=1e-6)
        reward = problem.rewards(problem.f, torch.tensor([arm]), torch.from_numpy(draws[t : t + 1])).item()
        assert row["reward"] == pytest.approx(reward, rel=1e-12)
        assert row["regret"] == pytest.approx(f.max() - f[arm], abs=1e-12)
        arms.append(arm)
        rewards.append(reward)


def interrupt_after(monkeypatch, chunks):
    """Let a run die after so many chunks of rounds, checkpoints written at each."""
    real, count = arm_loop.draw_chunk, {"left": chunks}

    def dying(*args):
        if count["left"] == 0:
            raise KeyboardInterrupt
        count["left"] -= 1
        return real(*args)

    monkeypatch.setattr(arm_loop, "draw_chunk", dying)


T3 = {"kind": "rkhs_function", "num_arms": 40, "noise": {"kind": "student_t", "df": 3}}
B2 = {"kind": "self_normalised", "norm_bound": 2.0}
RESUMED = {
    "exact posteriors": config(3, 30, problem=T3),
    "dictionaries": config(
        2,
        30,
        problem=T3,
        methods=[{"name": "bkb", "oversampling": 2.0}, {"name": "bbkb", "oversampling": 2.0, "batch_constant": 0.5}],
        compare=[],
    ),
    # a small B and R: many eliminations, and trials in which every candidate failed
    "dead candidates": config(
        4,
        30,
        problem={"kind": "unknown_lengthscale", "num_arms": 30},
        methods=[
            {"name": "he-gp-ucb", "noise_scale": 0.01, "width": B2 | {"norm_bound": 0.5}},
            {"name": "a-gp-ucb", "width": B2},
            {"name": "expected-ucb", "width": B2},
        ],
        initial=3,
        compare=[],
    ),
}


@pytest.mark.parametrize("case", RESUMED)
def test_resume_is_bit_identical(tmp_path, monkeypatch, case):
    """Chunks of 8 rounds, interrupted after some: traces and eliminations as uninterrupted."""
    monkeypatch.setattr(arm_loop, "CHUNK_ROUNDS", 8)
    whole = RESUMED[case]
    expected = eliminations(runs.start(whole, tmp_path / "a"))
    if case == "dead candidates":
        dead_at = [row["round"] for row in expected["HE-GP-UCB"]["eliminations"]]
        assert min(dead_at) <= 16 < max(dead_at)  # some before and some after the interruptions
        assert expected["HE-GP-UCB"]["all_failed"] > 0
    for chunks in (1, 2, 7):
        folder = tmp_path / f"b{chunks}"
        with monkeypatch.context() as patch:
            interrupt_after(patch, chunks)
            with pytest.raises(KeyboardInterrupt):
                runs.start(whole, folder, checkpoint_seconds=0.0)
        assert len(list(folder.glob("checkpoints/*"))) == 1
        assert eliminations(runs.resume(folder)) == expected
        assert not (folder / "checkpoints").exists()
        pd.testing.assert_frame_equal(
            pd.read_parquet(tmp_path / "a" / "traces.parquet"),
            pd.read_parquet(folder / "traces.parquet"),
            check_exact=True,
        )


def eliminations(summary):
    return {label: method["eliminations"] for label, method in summary["panels"][0]["methods"].items()}


def test_refused_before_anything_is_lost(tmp_path, monkeypatch):
    out = tmp_path / "out"
    runs.start(config(horizon=5), out)
    before = (out / "traces.parquet").read_bytes()
    with pytest.raises(RunError, match="exists already"):
        runs.start(config(horizon=5), out)
    info = json.loads((out / "run.json").read_text())
    info["config"]["panels"][0]["seed"] = 3
    (out / "run.json").write_text(json.dumps(info))
    with pytest.raises(RunError, match="was changed"):
        runs.resume(out)
    assert (out / "traces.parquet").read_bytes() == before
    with pytest.raises(RunError, match="not a result folder"):
        runs.resume(tmp_path / "nothing")
    (out / "run.json").write_text("{")
    with pytest.raises(RunError, match="damaged"):
        runs.resume(out)
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(RunError, match="cannot write"):
        runs.start(config(horizon=5), file / "below")
    with pytest.raises(RunError, match="unknown device"):
        runs.start(config(horizon=5), tmp_path / "x", device="tpu7")
    if not torch.cuda.is_available():
        with pytest.raises(RunError, match="finds 0 CUDA devices"):
            runs.start(config(horizon=5), tmp_path / "x", device="cuda")
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize(
    ("trials", "horizon", "level"),
    [(4, 200, "0.0376"), (1, 9, "0.0173")],  # b_T = v^(1/2) T^(1/4)
)
def test_losing_most_rewards_to_truncation_warns(tmp_path, trials, horizon, level):
    data = config(trials, horizon).to_dict()
    data["panels"][0]["methods"] = [
        {"name": "tgp-ucb", "label": "TGP", "truncation": {"kind": "tgp", "moment_bound": 1e-4, "alpha": 1.0}}
    ]
    data["panels"][0]["compare"] = []
    summary = runs.start(parse(data), tmp_path / "out")
    (line,) = summary["panels"][0]["warnings"]
    assert "moment_bound" in line
    assert "the most in number is arm" in line
    assert f"b_t = {level}" in line
    assert "NaN" not in (tmp_path / "out" / "summary.json").read_text()  # one trial has no standard error


def test_failed_pulls_are_reported_and_the_run_goes_on(tmp_path, monkeypatch):

    real = StudentT.__call__

    def broken(self, f, arms, draws):
        rewards = real(self, f, arms, draws)
        rewards[1] = float("nan")
        return rewards

    monkeypatch.setattr(StudentT, "__call__", broken)
    summary = runs.start(config(horizon=20), tmp_path / "out")
    entry = summary["panels"][0]["methods"]["GP"]
    assert entry["failed_pulls"] == 20
    assert entry["first_failed"] == [1, 1]
    assert np.isfinite(entry["average_regret"][0])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "none.yaml"], "cannot read"),
        (["resume", "."], "not a result folder"),
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


def cli(*arguments, **options):
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "bo_robust.experiments.cli", *map(str, arguments)]
    return subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)])
def test_interrupting_says_how_to_go_on(tmp_path, number):
    path = tmp_path / "c.yaml"
    path.write_text(
        yaml.safe_dump(
            {
                "name": "x",
                "panels": [
                    {
                        "name": "p",
                        "horizon": 2_000_000,
                        "trials": 2,
                        "problem": {"kind": "rkhs_function"},
                        "methods": ["random"],
                    }
                ],
            }
        )
    )
    options = {"preexec_fn": lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)}  # a background job ignores it
    process = cli("run", path, "--out", tmp_path / "out", "--checkpoint-seconds", "0.05", **options)
    deadline = time.monotonic() + 60
    while not list(tmp_path.glob("out/checkpoints/00*")):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    process.send_signal(number)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert f"bo-robust resume {tmp_path / 'out'}" in errors
    assert "Traceback" not in errors


def test_a_mistake_in_the_last_panel_costs_nothing(tmp_path):
    data = config(horizon=5).to_dict()
    second = json.loads(json.dumps(data["panels"][0])) | {"name": "second", "problem": {"kind": "rkhs_functoin"}}
    data["panels"].append(second)
    with pytest.raises(RunError, match="did you mean 'rkhs_function'"):
        runs.start(parse(data), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_changed_code_is_refused_unless_forced(tmp_path, monkeypatch):
    monkeypatch.setattr(arm_loop, "CHUNK_ROUNDS", 16)
    out = tmp_path / "out"
    with monkeypatch.context() as patch:
        interrupt_after(patch, 3)
        with pytest.raises(KeyboardInterrupt):
            runs.start(config(), out, checkpoint_seconds=0.0)
    with pytest.raises(RunError, match=r"results are missing \(t3: "):
        runs.finish(out)
    info = json.loads((out / "run.json").read_text())
    begun = info["fingerprint"] = info["fingerprint"] | {"torch": "1.0"}
    write_run(info, out)
    with pytest.raises(RunError, match=r"torch 1.0 -> .*--force"):
        runs.resume(out)
    with monkeypatch.context() as patch:
        interrupt_after(patch, 2)
        with pytest.raises(KeyboardInterrupt):
            runs.resume(out, force=True)
    runs.resume(out)  # the same as since the resumption
    info = json.loads((out / "run.json").read_text())
    assert info["fingerprint"] == begun
    (entry,) = info["resumed"]
    assert entry["fingerprint"] == fingerprint("cpu")
    names = [ShardKey(0, j, 0, 4).name for j in range(3)]
    assert entry["from_round"] == {names[0]: 48, names[1]: 0, names[2]: 0}
    said = write_report(out).read_text()
    assert "torch 1.0 -&gt; " in said
    assert f"{names[0]} from round 49, {names[1]} from round 1" in said
    info["resumed"][0]["fingerprint"] = begun
    write_run(info, out)
    runs.resume(out)  # nothing left to play: summarised again


def test_damaged_shards_are_named_and_played_again(tmp_path):
    out = tmp_path / "out"
    data = config(horizon=5).to_dict()
    data["panels"][0]["intervals"] = True
    runs.start(parse(data), out)
    before = pd.read_parquet(out / "traces.parquet")
    shard = ShardKey(0, 1, 0, 4).path(out)
    shard.write_bytes(shard.read_bytes()[:-10])
    with pytest.raises(RunError, match=r"00-01-000000-000004.parquet is damaged.*Delete it"):
        runs.finish(out)
    shard.unlink()
    runs.resume(out)
    pd.testing.assert_frame_equal(before, pd.read_parquet(out / "traces.parquet"), check_exact=True)


def test_odd_names_and_narrow_terminals_do_not_break_a_table(tmp_path, capsys):
    data = config(horizon=5).to_dict()
    data["panels"][0] |= {"name": "a[/red]b $x_$", "compare": []}
    data["panels"][0]["methods"] = [{"name": "random", "label": "_h [red]"}, {"name": "ei", "label": "$\\foo{$"}]
    runs.start(parse(data), tmp_path / "out", console=Console(width=40))
    assert (tmp_path / "out" / "regret.png").exists()
    table = capsys.readouterr().out.split("average regret:")[0].split("a[/red]b $x_$: 4 trials")[1]
    assert "_h [red]" in table
    assert "…" not in table


def test_verdicts_use_the_t_distribution():
    # 3 trials, differences 1, 2, 3: mean 2, error 0.577, t = 3.46 < 4.30: not significant, though above 2 errors
    difference = comparisons.difference(np.array([2.0, 4.0, 6.0]), np.array([1.0, 2.0, 3.0]))
    assert difference["mean"] == pytest.approx(2.0)
    assert difference["error"] == pytest.approx(1 / np.sqrt(3))
    assert difference["significant"] is False
    assert comparisons.difference(np.arange(20.0) + 5, np.arange(20.0) * 1.01)["significant"] is True


def test_standard_error_of_one_trial_is_not_a_number():
    mean, error = comparisons.mean_and_error(np.array([2.0]))
    assert mean == 2.0
    assert error is None
    # 1, 3: mean 2, sd sqrt 2, error 1
    assert comparisons.mean_and_error(np.array([1.0, 3.0])) == pytest.approx((2.0, 1.0))
