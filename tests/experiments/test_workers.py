"""Jobs side by side in processes: the shards of a run in one process, bit for bit, whatever interrupts them."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from bo_robust.experiments import arm_loop, results
from bo_robust.experiments import run as runs
from bo_robust.experiments.config import parse
from bo_robust.experiments.store import ShardKey, load_checkpoint

ROOT = Path(__file__).resolve().parents[2]
CLI = [sys.executable, "-m", "bo_robust.experiments.cli"]


def plain(trials=3, horizon=520):
    return {
        "name": "test",
        "trials": trials,
        "horizon": horizon,
        "methods": [
            {"name": "tgp-ucb", "label": "TGP", "width": {"kind": "tgp", "scale": 0.1}},
            {"name": "irgp-ucb", "label": "IRGP"},
        ],
        "panels": [
            {"name": "t3", "problem": {"kind": "rkhs_function", "noise": {"kind": "student_t", "df": 3}}},
            {"name": "short", "problem": {"kind": "rkhs_function"}, "horizon": 30},
        ],
    }


def same(one, other):
    """Traces byte for byte, and metadata except for seconds."""
    a, b = (results.load(folder) for folder in (one, other))
    for panel, of in a.metadata.items():
        for label, known in of.items():
            assert {**known, "seconds": None} == {**b.metadata[panel][label], "seconds": None}
    assert (one / "traces.parquet").read_bytes() == (other / "traces.parquet").read_bytes()
    assert {p.name for p in one.rglob("*")} == {p.name for p in other.rglob("*")}


@pytest.fixture(scope="module")
def in_turn(tmp_path_factory):
    folder = tmp_path_factory.mktemp("in_turn") / "out"
    runs.start(parse(plain()), folder)
    return folder


def test_the_same_shards_as_in_turn(in_turn, tmp_path):
    out = tmp_path / "out"
    summary = runs.start(parse(plain()), out, workers=2)
    same(in_turn, out)
    assert [panel["name"] for panel in summary["panels"]] == ["t3", "short"]


@pytest.mark.slow
def test_checkpoints_serve_one_process_and_several(in_turn, tmp_path, monkeypatch):
    monkeypatch.setattr(arm_loop, "CHECKPOINT_PAUSE", 0.0)
    out, save = tmp_path / "out", arm_loop.save_checkpoint
    under_way = ShardKey(0, 0, 0, 3).checkpoint(out)

    def saves_and_dies(*args):
        save(*args)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(arm_loop, "save_checkpoint", saves_and_dies)
        with pytest.raises(KeyboardInterrupt):
            runs.start(parse(plain()), out, checkpoint_seconds=0.0)
        assert load_checkpoint(under_way)[1]["round"] == 256
        with pytest.raises(KeyboardInterrupt):
            runs.resume(out)
    assert load_checkpoint(under_way)[1]["round"] == 512
    runs.resume(out, workers=2)
    same(in_turn, out)


@pytest.mark.parametrize("whom", [pytest.param("parent, asked to stop", marks=pytest.mark.slow), "parent, killed"])
def test_no_process_outlives_a_run(tmp_path, whom):
    path, out = tmp_path / "a.yaml", tmp_path / "out"
    path.write_text(yaml.safe_dump(plain(horizon=40_000)))
    begin = [*CLI, "run", str(path), "--out", str(out), "--workers", "2", "--checkpoint-seconds", "0.01"]
    process = subprocess.Popen(begin, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    try:
        _until(lambda: len(list(out.glob("checkpoints/00*"))) == 2)
        children = _children(process.pid)
        os.kill(process.pid, signal.SIGTERM if whom == "parent, asked to stop" else signal.SIGKILL)
        said = process.communicate(timeout=60)[1].decode()
    finally:
        process.kill()
    expected = {"parent, asked to stop": (130, "interrupted"), "parent, killed": (-9, "")}
    code, message = expected[whom]
    assert process.returncode == code
    assert message in said
    _until(lambda: not any(_alive(pid) for pid in children))
    assert not list((out / "shards").glob("00-*"))


@pytest.mark.slow
def test_a_worker_that_is_killed_is_replaced_and_its_job_goes_on(tmp_path):
    """The job of the killed worker goes on from its checkpoint in a new one, and the run ends as one in turn."""
    path, out = tmp_path / "a.yaml", tmp_path / "out"
    path.write_text(yaml.safe_dump(plain(horizon=3_000)))
    begin = [*CLI, "run", str(path), "--out", str(out), "--workers", "2", "--checkpoint-seconds", "0.01"]
    process = subprocess.Popen(begin, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    try:
        _until(lambda: len(list(out.glob("checkpoints/00*"))) == 2)
        os.kill(max(_children(process.pid)), signal.SIGKILL)
        said = process.communicate(timeout=120)[1].decode()
    finally:
        process.kill()
    assert process.returncode == 0, said
    runs.start(parse(plain(horizon=3_000)), tmp_path / "in_turn")
    same(tmp_path / "in_turn", out)


def _until(true):
    for _ in range(6000):  # two minutes, on a busy machine
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
