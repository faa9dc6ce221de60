"""Algorithms side by side: the parts of a run in one process, bit for bit, whatever interrupts it."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml
from rich.console import Console

from bo_robust.runner import cli
from bo_robust.runner import run as runs
from bo_robust.runner.checkpoint import load_checkpoint
from bo_robust.runner.config import RunConfig
from bo_robust.runner.errors import RunError

ROOT = Path(__file__).resolve().parents[2]
CLI = [sys.executable, "-m", "bo_robust.runner.cli"]


def plain(trials=3, horizon=520):
    return {
        "name": "test",
        "trials": trials,
        "horizon": horizon,
        "algorithms": [
            {"name": "tgp-ucb", "label": "TGP", "width": {"kind": "tgp", "scale": 0.1}},
            {"name": "irgp-ucb", "label": "IRGP"},
        ],
        "panels": [
            {"name": "t3", "problem": {"kind": "rkhs_function", "noise": {"kind": "student_t", "df": 3}}},
            {"name": "short", "problem": {"kind": "rkhs_function"}, "horizon": 30},
        ],
    }


def quiet():
    return Console(file=open(os.devnull, "w"), width=200)


def same_parts(one, other):
    """Traces and final intervals byte for byte, facts except for seconds."""
    names = sorted(p.name for p in (one / "parts").iterdir())
    assert names == sorted(p.name for p in (other / "parts").iterdir())
    assert len(names) == 4 * 3
    for name in names:
        a, b = (one / "parts" / name).read_bytes(), (other / "parts" / name).read_bytes()
        if name.endswith(".json"):
            a, b = ({k: v for k, v in json.loads(x).items() if k != "seconds"} for x in (a, b))
        assert a == b, name
    assert (one / "traces.parquet").read_bytes() == (other / "traces.parquet").read_bytes()


@pytest.fixture(scope="module")
def in_turn(tmp_path_factory):
    folder = tmp_path_factory.mktemp("in_turn") / "out"
    runs.start(RunConfig.from_dict(plain()), folder, console=quiet())
    return folder


def test_the_same_parts_as_in_turn(in_turn, tmp_path):
    out = tmp_path / "out"
    summary = runs.start(RunConfig.from_dict(plain()), out, workers=2, console=quiet())
    same_parts(in_turn, out)
    assert [panel["name"] for panel in summary["panels"]] == ["t3", "short"]
    assert {p.name for p in out.iterdir()} == {p.name for p in in_turn.iterdir()}


def test_checkpoints_pass_between_one_process_and_several(in_turn, tmp_path, monkeypatch):
    monkeypatch.setattr(runs, "CHECKPOINT_PAUSE", 0.0)
    out, save = tmp_path / "out", runs.save_checkpoint
    alone, part = out / "checkpoint.safetensors", out / "checkpoint-00-00.safetensors"

    def saves_and_dies(*args):
        save(*args)
        raise KeyboardInterrupt

    def play(function, *args, **options):
        with pytest.raises(KeyboardInterrupt):
            function(*args, **options)

    with monkeypatch.context() as patch:
        patch.setattr(runs, "save_checkpoint", saves_and_dies)
        play(runs.start, RunConfig.from_dict(plain()), out, checkpoint_seconds=0.0, console=quiet())
    assert load_checkpoint(alone)[1]["round"] == 256
    with monkeypatch.context() as patch:
        patch.setattr("bo_robust.runner.parallel.play_parts", _interrupt)
        play(runs.resume, out, workers=2, console=quiet())
    assert not alone.exists()
    with monkeypatch.context() as patch:  # what a process does with it
        patch.setattr(runs, "save_checkpoint", saves_and_dies)
        play(runs.play_part, out, 0, 0)
    assert load_checkpoint(part)[1]["round"] == 512
    runs.resume(out, console=quiet())  # and back in turn
    same_parts(in_turn, out)
    assert not list(out.glob("checkpoint*"))


@pytest.mark.parametrize("whom", ["parent, asked to stop", "parent, killed", "one of the processes"])
def test_no_process_lives_on(tmp_path, whom):
    path, out = tmp_path / "a.yaml", tmp_path / "out"
    path.write_text(yaml.safe_dump(plain(horizon=40_000)))
    begin = [*CLI, "run", str(path), "--out", str(out), "--workers", "2", "--checkpoint-seconds", "0.01"]
    process = subprocess.Popen(begin, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    try:
        _until(lambda: len(list(out.glob("checkpoint-*.safetensors"))) == 2)
        children = _children(process.pid)
        killed = max(children) if whom == "one of the processes" else process.pid
        os.kill(killed, signal.SIGTERM if whom == "parent, asked to stop" else signal.SIGKILL)
        said = process.communicate(timeout=20)[1].decode()
    finally:
        process.kill()
    expected = {"parent, asked to stop": (130, "interrupted"), "parent, killed": (-9, "")}
    code, message = expected.get(whom, (2, "of panel 1 died; `bo-robust resume"))
    assert process.returncode == code
    assert message in said
    _until(lambda: not any(_alive(pid) for pid in children))
    assert not list((out / "parts").glob("00-*.parquet"))


def test_a_damaged_checkpoint_is_said(tmp_path, monkeypatch):
    out = tmp_path / "out"
    with monkeypatch.context() as patch:
        patch.setattr(runs, "_play_side_by_side", _interrupt)
        with pytest.raises(KeyboardInterrupt):
            runs.start(RunConfig.from_dict(plain()), out, workers=2, console=quiet())
    (out / "checkpoint-00-01.safetensors").write_bytes(b"nothing")
    with pytest.raises(RunError, match=r"checkpoint-00-01\.safetensors is damaged"):
        runs.resume(out, workers=2, console=quiet())


def test_value_at_risk_runs_have_one_process(tmp_path):
    config = next((ROOT / "configs" / "value_at_risk").glob("*.yaml"))
    with pytest.raises(RunError, match="leave out --workers"):
        cli.run(config, out=tmp_path / "out", workers=2)
    assert not (tmp_path / "out").exists()


def _interrupt(*args):
    raise KeyboardInterrupt


def _until(true):
    for _ in range(1000):
        if true():
            return
        time.sleep(0.02)
    raise AssertionError("it never came")


def _children(parent):
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if int((folder / "stat").read_text().rsplit(")", 1)[1].split()[1]) == parent:
                found.append(int(folder.name))
        except (OSError, ValueError):
            continue
    return found


def _alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False
