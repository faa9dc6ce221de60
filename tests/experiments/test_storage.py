"""Result folders under attack: damaged files, links that lead elsewhere, other runs, and folders that are none."""

import contextlib
import json
import os
import random
import shutil
import subprocess

import pandas as pd
import pytest
import torch
from rich.console import Console

from bo_robust.experiments import arm_run, cli, play
from bo_robust.experiments import run as runs
from bo_robust.experiments.config import parse
from bo_robust.experiments.errors import RunError
from bo_robust.experiments.guards import locked
from bo_robust.experiments.provenance import read_run, write_run
from bo_robust.experiments.report import write_report
from bo_robust.experiments.shards import ShardKey, load_shard
from bo_robust.experiments.storage import load_checkpoint, sealed, write_bytes

KEYS = [ShardKey(0, j, 0, 2) for j in range(2)]


def config(seed=5, **more):
    panel = {"name": "p", "problem": {"kind": "rkhs_function", "num_arms": 12}}
    return parse(
        {"trials": 2, "horizon": 48, "seed": seed, "algorithms": ["gp-ucb", "random"], "panels": [panel]} | more
    )


def quiet():
    return Console(file=open(os.devnull, "w"), width=200)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("finished") / "out"
    runs.start(config(), folder, console=quiet())
    return folder


@pytest.fixture(scope="module")
def under_way(tmp_path_factory):
    """A run that stopped with one shard stored and the checkpoint of the other."""
    folder = tmp_path_factory.mktemp("under_way") / "out"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(play, "CHUNK_ROUNDS", 16)
        patch.setattr(arm_run, "CHECKPOINT_PAUSE", 0.0)
        real, left = play.draw_chunk, iter(range(5))

        def dying(*args):
            if next(left, None) is None:
                raise KeyboardInterrupt
            return real(*args)

        patch.setattr(play, "draw_chunk", dying)
        with pytest.raises(KeyboardInterrupt):
            runs.start(config(), folder, checkpoint_seconds=0.0, console=quiet())
    (checkpoint,) = (folder / "checkpoints").iterdir()
    assert checkpoint == KEYS[1].checkpoint(folder)
    return folder


@pytest.fixture
def copy(under_way, tmp_path):
    return shutil.copytree(under_way, tmp_path / "copy")


def _plain(content):
    tensors, header = content
    return {name: (t.dtype, t.tolist()) for name, t in tensors.items()}, header


READERS = {
    "run.json": lambda folder: read_run(folder)[0],
    "checkpoints": lambda folder: _plain(load_checkpoint(KEYS[1].checkpoint(folder))),
    "shards": lambda folder: load_shard(folder, KEYS[0], config().digest).frame.to_dict(),
}


@pytest.mark.parametrize("which", READERS)
def test_a_flipped_bit_is_said_or_changes_nothing(copy, which):
    path = copy / which if which == "run.json" else next((copy / which).iterdir())
    whole, good, said = path.read_bytes(), str(READERS[which](copy)), []
    for seed in range(300):
        choice, data = random.Random(seed), bytearray(whole)
        # Most bytes are tensors, and the text before them has other ways to be wrong.
        at = choice.randrange(len(data) if seed % 2 else min(2000, len(data)))
        data[at] ^= 1 << choice.randrange(8)
        path.write_bytes(data)
        try:
            assert str(READERS[which](copy)) == good, (seed, at)
        except RunError as error:
            said.append(str(error))
    assert len(said) > 200
    remedy = "start a new run" if which == "run.json" else "Delete it"
    assert all(f"{path} is damaged" in text and remedy in text for text in said)


def test_what_has_a_digest_of_another_time_is_no_damage(copy):
    """The digest is of the content: another checkpoint in its place is whole, and of another job."""
    write_bytes(KEYS[0].path(copy).read_bytes(), KEYS[1].path(copy))
    with pytest.raises(RunError, match=r"is of another run or shard\. Delete it and run `bo-robust resume"):
        runs.resume(copy, console=quiet())


def test_the_digests_of_a_finished_run(finished, tmp_path, capsys):
    folder = shutil.copytree(finished, tmp_path / "copy")
    write_report(folder)
    listed = {line.split("  ")[1] for line in (folder / "SHA256SUMS").read_text().splitlines()}
    files = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    assert listed == files - {"SHA256SUMS"}
    check = ["sha256sum", "--check", "--quiet", "SHA256SUMS"]
    assert subprocess.run(check, cwd=folder, check=False).returncode == 0
    before = pd.read_parquet(folder / "traces.parquet")
    for name in ("traces.parquet", "report.html"):
        with open(folder / name, "r+b") as file:
            file.write(b"x")
    assert subprocess.run(check, cwd=folder, check=False, capture_output=True).returncode == 1
    runs.finish(folder, console=Console(width=200))
    said = capsys.readouterr().out
    assert f"Warning: {folder}/traces.parquet was damaged or changed" in said
    assert f"Warning: {folder}/report.html was damaged or changed" in said
    assert "summary.json was damaged" not in said
    pd.testing.assert_frame_equal(before, pd.read_parquet(folder / "traces.parquet"), check_exact=True)
    runs.finish(folder, console=Console(width=200))  # the report is still not made anew
    said = capsys.readouterr().out
    assert "report.html was damaged" in said
    assert "traces.parquet was damaged" not in said
    (folder / "SHA256SUMS").write_bytes(b"\xff no  digests\n\n")
    runs.finish(folder, console=quiet())


def test_no_link_is_followed(copy, tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("precious")
    names = ["run.json", "traces.parquet", "summary.json", "regret.png", "report.html", "SHA256SUMS"]
    places = [copy / name for name in names]
    places += [KEYS[1].path(copy), KEYS[1].checkpoint(copy)]
    for call in (runs.resume, runs.finish, write_report):
        for place in places:
            place.parent.mkdir(exist_ok=True)
            place.with_name(f".{place.name}.part").symlink_to(victim)
        for place in places[1:6]:
            place.unlink(missing_ok=True)
            place.symlink_to(victim)
        call(copy)
        assert victim.read_text() == "precious"
        for path in copy.rglob(".*.part"):
            assert call is not runs.resume  # which deletes what lies about, under its lock
            path.unlink()
    assert not (copy / "report.html").is_symlink()


@pytest.mark.parametrize("name", ["shards", "checkpoints"])
def test_folders_that_lead_elsewhere_are_refused(copy, tmp_path, name):
    (copy / name).rename(tmp_path / "elsewhere")
    (copy / name).symlink_to(tmp_path / "elsewhere")
    before = sorted((tmp_path / "elsewhere").iterdir())
    with pytest.raises(RunError, match=f"copy/{name} is a symbolic link"):
        runs.resume(copy, console=quiet())
    assert sorted((tmp_path / "elsewhere").iterdir()) == before


def test_the_faster_of_two_runs_has_the_folder(tmp_path, monkeypatch):
    """Both found it empty; run.json and the traces are of one of them."""
    out, real = tmp_path / "out", runs.describe_run
    for there in (True, False):  # the faster one is done, or still at work

        def overtaken(*args, there=there):
            with monkeypatch.context() as patch:
                patch.setattr(runs, "describe_run", real)
                if there:
                    runs.start(config(seed=6), out, console=quiet())
                else:
                    out.mkdir()
                    stack.enter_context(locked(out))
            return real(*args)

        with monkeypatch.context() as patch, contextlib.ExitStack() as stack:
            patch.setattr(runs, "describe_run", overtaken)
            with pytest.raises(RunError, match="exists already" if there else "another process is running"):
                runs.start(config(seed=5), out, console=quiet())
        if there:
            assert read_run(out)[0]["seeds"] == {"p": 6}
            runs.start(config(seed=6), tmp_path / "alone", console=quiet())
            frames = [pd.read_parquet(folder / "traces.parquet") for folder in (out, tmp_path / "alone")]
            pd.testing.assert_frame_equal(*frames, check_exact=True)
            shutil.rmtree(out)
    assert not list(out.iterdir())


def test_run_json_is_read_again_under_the_lock(copy, monkeypatch):
    held = runs.locked

    def slow(folder):
        info = json.loads((folder / "run.json").read_text())
        write_run(info | {"device": "tpu7"}, folder)  # by another process, which had the lock until now
        return held(folder)

    monkeypatch.setattr(runs, "locked", slow)
    with pytest.raises(RunError, match="unknown device 'tpu7'"):
        runs.resume(copy, console=quiet())


def test_two_default_folders_are_two(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with cli.folder_of("a", None) as first, cli.folder_of("a", None) as second:
        assert (str(first), str(second)) == ("results/a", "results/a-2")
        (second / "run.json").touch()
    assert not first.exists()  # nothing came into it
    assert second.exists()
    with cli.folder_of("a", None) as first, cli.folder_of("a", None) as third, cli.folder_of("a", second) as named:
        assert (first.name, third.name, named.name) == ("a", "a-3", "a-2")
    shutil.rmtree("results")
    (tmp_path / "results").touch()
    with pytest.raises(RunError, match=r"cannot make results/a \(Not a directory\)"), cli.folder_of("a", None):
        pass


def test_a_folder_with_leftovers_only_is_free(tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    for name in (".run.json.part", ".run.json.abc123.part"):
        (out / name).write_text("{")
    runs.start(config(), out, console=quiet())
    assert not list(out.rglob(".*"))


def _loop(path):
    path.symlink_to(path)


def _closed(path):
    if os.geteuid() == 0:
        pytest.skip("root may read everything")
    path.mkdir(0)


@pytest.mark.parametrize(
    ("make", "run_said", "read_said"),
    [
        (lambda path: path.touch(), "exists already", "Not a directory"),
        (_loop, "Too many levels of symbolic links", "Too many levels of symbolic links"),
        (lambda path: path.symlink_to("/nowhere/at/all"), "No such file", "No such file"),
        (_closed, "Permission denied", "Permission denied"),
        (lambda path: (path / "run.json").mkdir(parents=True), "exists already", "Is a directory"),
        (os.mkfifo, "exists already", "Not a directory"),
    ],
    ids=["file", "loop", "dangling", "closed", "run.json a folder", "pipe"],
)
def test_what_is_no_folder_is_said_with_its_path(tmp_path, make, run_said, read_said):
    path = tmp_path / "out"
    make(path)
    calls = [(lambda: runs.start(config(), path, console=quiet()), run_said)]
    calls += [(lambda call=call: call(path), read_said) for call in (runs.resume, runs.finish, write_report)]
    for call, said in calls:
        with pytest.raises(RunError) as found:
            call()
        assert said in str(found.value)
        assert str(path) in str(found.value)
        assert "\n" not in str(found.value)


def test_a_folder_that_cannot_be_made_is_said(tmp_path):
    (tmp_path / "file").touch()
    for path in (tmp_path / "file" / "below", tmp_path / ("x" * 300), tmp_path / "file" / "a" / "b"):
        with pytest.raises(RunError, match=r"choose another --out") as found:
            runs.start(config(), path, console=quiet())
        assert str(path) in str(found.value)


def test_states_count_against_the_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(runs, "locked", pytest.fail)  # before it takes the memory
    panel = {"name": "p", "problem": {"kind": "rkhs_function", "num_arms": 100}}
    many = config(trials=20_000_000, horizon=1, panels=[panel])  # its traces take 0.9 GiB, its states 1.6 TB
    with pytest.raises(RunError, match="lower --trials or --horizon, or give a --shard"):
        runs.start(many, tmp_path / "out", console=quiet())
    assert not (tmp_path / "out").exists()


def test_a_tensor_of_any_strides_has_a_digest():
    """One trial's tensors may be views of stride 0."""
    expanded = torch.tensor(2.5).expand(1).clone()
    assert sealed({"x": expanded}, "") == sealed({"x": torch.tensor([2.5])}, "")
    assert sealed({"x": expanded}, "") != sealed({"x": expanded + 1.0}, "")
