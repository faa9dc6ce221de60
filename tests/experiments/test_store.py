"""Result folders: damaged files, other runs, two runs at once, folders that are none, and a machine too small."""

import contextlib
import errno
import json
import os
import random
import shutil
import subprocess

import numpy as np
import pandas as pd
import pytest
import torch

from bo_robust.experiments import arm_loop, cli, memory, results, store
from bo_robust.experiments import run as runs
from bo_robust.experiments.config import parse
from bo_robust.experiments.errors import RunError
from bo_robust.experiments.report import write_report
from bo_robust.experiments.store import ShardKey, load_checkpoint, load_shard, locked, put_files, read_run, write_run

KEYS = [ShardKey(0, j, 0, 2) for j in range(2)]
STORED, UNDER_WAY = KEYS[0].name, "checkpoints/00-01-000000-000002.npz"


def config(seed=5, **more):
    panel = {"name": "p", "problem": {"kind": "rkhs_function", "num_arms": 12}}
    return parse({"trials": 2, "horizon": 48, "seed": seed, "methods": ["gp-ucb", "random"], "panels": [panel]} | more)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("finished") / "out"
    runs.start(config(), folder)
    return folder


@pytest.fixture(scope="module")
def under_way(tmp_path_factory):
    """A run that stopped with one shard stored and the checkpoint of the other, which has 32 rounds."""
    folder = tmp_path_factory.mktemp("under_way") / "out"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(arm_loop, "CHUNK_ROUNDS", 16)
        patch.setattr(arm_loop, "CHECKPOINT_PAUSE", 0.0)
        real, left = arm_loop.draw_chunk, iter(range(5))

        def dying(*args):
            if next(left, None) is None:
                raise KeyboardInterrupt
            return real(*args)

        patch.setattr(arm_loop, "draw_chunk", dying)
        with pytest.raises(KeyboardInterrupt):
            runs.start(config(), folder, checkpoint_seconds=0.0)
    assert [path.name for path in (folder / "checkpoints").iterdir()] == [os.path.basename(UNDER_WAY)]
    return folder


@pytest.fixture
def copy(under_way, tmp_path):
    return shutil.copytree(under_way, tmp_path / "copy")


def _tensors(content):
    return content and ({name: (t.dtype, t.tolist()) for name, t in content[0].items()}, content[1])


def _shard(folder):
    shard = load_shard(folder, KEYS[0], config().digest)
    return shard.frame.to_dict(), shard.metadata


READERS = {
    "run.json": lambda folder: read_run(folder)[0],
    UNDER_WAY: lambda folder: _tensors(load_checkpoint(folder / UNDER_WAY)),
    STORED: _shard,
}


@pytest.mark.filterwarnings("ignore:the checkpoint")
@pytest.mark.parametrize("name", READERS)
def test_a_flipped_bit_is_noticed_or_changes_nothing(copy, name):
    path, read = copy / name, READERS[name]
    whole, good, refused, noticed = path.read_bytes(), str(read(copy)), [], 0
    for seed in range(200):
        choice, data = random.Random(seed), bytearray(whole)
        data[choice.randrange(len(data))] ^= 1 << choice.randrange(8)
        path.write_bytes(data)
        content = None
        try:
            content = read(copy)
        except RunError as error:
            refused.append(str(error))
        assert content is None or str(content) == good
        noticed += content is None
    assert noticed > 150
    remedy = "start a new run" if name == "run.json" else "Delete it"
    assert all(str(path) in text and remedy in text for text in refused)


@pytest.mark.parametrize("cut", [0, 50, -10])
def test_an_unreadable_checkpoint_warns_and_its_job_starts_again(copy, finished, cut):
    path = copy / UNDER_WAY
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.warns(UserWarning, match=f"{UNDER_WAY} cannot be read .* starts again"):
        runs.resume(copy)
    again, expected = (load_shard(folder, KEYS[1], config().digest).frame for folder in (copy, finished))
    pd.testing.assert_frame_equal(again, expected, check_exact=True)


def test_a_checkpoint_keeps_every_bit(tmp_path):
    tensors = {"a.b": torch.tensor([0.1, -0.0, torch.nan]), "n": torch.tensor(3), "ok": torch.tensor([[True]])}
    tensors["strided"] = torch.arange(6.0, dtype=torch.float64).reshape(2, 3).T
    store.save_checkpoint(tmp_path / "deep" / "a.npz", tensors, {"round": 3, "x": None})
    saved, numbers = load_checkpoint(tmp_path / "deep" / "a.npz")
    assert numbers == {"round": 3, "x": None}
    assert saved.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert saved[name].dtype == tensor.dtype
        assert saved[name].shape == tensor.shape
        assert saved[name].numpy().tobytes() == tensor.contiguous().numpy().tobytes()
    assert load_checkpoint(tmp_path / "none.npz") is None


def test_a_shard_is_plain_parquet_with_metadata(finished):
    path = finished / STORED
    frame = pd.read_parquet(path)
    traces = pd.read_parquet(finished / "traces.parquet")
    assert frame["arm"].tolist() == traces[traces["method"] == "GP-UCB"]["arm"].tolist()
    about = json.loads(store.pq.read_schema(path).metadata[store.METADATA])
    assert about["key"] == [0, 0, 0, 2]
    assert about["metadata"]["intervals"]["arms"] == [*range(12)]
    assert results.load(finished).metadata["p"]["GP-UCB"] == about["metadata"]


def test_shards_of_another_run_or_place_are_refused(copy, tmp_path):
    put_files(copy, {KEYS[1].name: KEYS[0].path(copy).read_bytes()})
    with pytest.raises(RunError, match=r"is of another run or shard\. Delete it and run `bo-robust resume"):
        runs.resume(copy)
    with pytest.raises(RunError, match="is of another run or shard"):
        load_shard(copy, KEYS[0], config(seed=6).digest)


def test_every_file_of_a_finished_run_has_one_digest(finished, tmp_path):
    folder = shutil.copytree(finished, tmp_path / "copy")
    write_report(folder)
    listed = [line.split("  ")[1] for line in (folder / "SHA256SUMS").read_text().splitlines()]
    files = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    assert sorted(listed) == sorted(files - {"SHA256SUMS"})
    check = ["sha256sum", "--check", "--quiet", "SHA256SUMS"]
    assert subprocess.run(check, cwd=folder, check=False).returncode == 0
    with open(folder / "traces.parquet", "r+b") as file:
        file.write(b"x")
    assert subprocess.run(check, cwd=folder, check=False, capture_output=True).returncode == 1
    runs.finish(folder)  # made anew from the shards
    assert subprocess.run(check, cwd=folder, check=False).returncode == 0
    for digests in (b"\xff no  digests\n\n", b""):
        (folder / "SHA256SUMS").write_bytes(digests)
        runs.finish(folder)


def test_a_kill_between_a_file_and_its_digest_leaves_no_wrong_digest(finished, tmp_path, monkeypatch):
    folder = shutil.copytree(finished, tmp_path / "copy")
    real, written = store.write_atomic, []

    def killed(path, write):
        real(path, write)
        written.append(path.name)
        if path.name == "run.json":
            raise KeyboardInterrupt

    info = read_run(folder)[0]
    with monkeypatch.context() as patch:
        patch.setattr(store, "write_atomic", killed)
        with pytest.raises(KeyboardInterrupt):
            write_run(info | {"git": "other"}, folder)
    assert written == ["SHA256SUMS", "run.json"]
    assert read_run(folder)[0]["git"] == "other"


def test_a_full_disk_keeps_what_was_written(tmp_path, monkeypatch):
    monkeypatch.setattr(arm_loop, "CHUNK_ROUNDS", 16)
    monkeypatch.setattr(arm_loop, "CHECKPOINT_PAUSE", 0.0)
    out, real, calls = tmp_path / "out", np.savez, []

    def full(*args, **kwargs):
        calls.append(1)
        if len(calls) > 2:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(*args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(np, "savez", full)
        with pytest.raises(RunError, match="No space left on device"):
            runs.start(config(horizon=60), out, checkpoint_seconds=0.0)
    assert load_checkpoint(KEYS[0].checkpoint(out))[1]["round"] == 32
    assert not list(out.rglob(".*.part"))
    runs.resume(out)
    assert (out / "summary.json").exists()


def test_the_faster_of_two_runs_has_the_folder(tmp_path, monkeypatch):
    """Both found it empty; run.json and the traces are of one of them."""
    out, real = tmp_path / "out", runs.describe_run
    for there in (True, False):  # the faster one is done, or still at work

        def overtaken(*args, there=there):
            with monkeypatch.context() as patch:
                patch.setattr(runs, "describe_run", real)
                if there:
                    runs.start(config(seed=6), out)
                else:
                    out.mkdir()
                    stack.enter_context(locked(out))
            return real(*args)

        with monkeypatch.context() as patch, contextlib.ExitStack() as stack:
            patch.setattr(runs, "describe_run", overtaken)
            with pytest.raises(RunError, match="exists already" if there else "another process is running"):
                runs.start(config(seed=5), out)
        if there:
            assert read_run(out)[0]["seeds"] == {"p": 6}
            shutil.rmtree(out)
    assert not list(out.iterdir())


def test_run_json_is_read_again_under_the_lock(copy, monkeypatch):
    held = runs.locked

    def slow(folder):
        info = json.loads((folder / "run.json").read_text())
        write_run(info | {"device": "tpu7"}, folder)  # by another process, which had the lock until now
        return held(folder)

    monkeypatch.setattr(runs, "locked", slow)
    with pytest.raises(RunError, match="tpu7"):
        runs.resume(copy)


def test_one_process_at_a_time(finished):
    with locked(finished), pytest.raises(RunError, match="another process"), locked(finished):
        pass
    with locked(finished):
        pass


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
    (out / ".run.json.123.part").write_text("{")
    runs.start(config(), out)
    assert not list(out.rglob(".*"))


@pytest.mark.parametrize("make", [lambda path: path.touch(), lambda path: (path / "run.json").mkdir(parents=True)])
def test_what_is_no_result_folder_is_named(tmp_path, make):
    path = tmp_path / "out"
    make(path)
    for call in (lambda path: runs.start(config(), path), runs.resume, runs.finish, write_report):
        with pytest.raises(RunError, match=str(path)):
            call(path)


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").touch()
    for path in (tmp_path / "file" / "below", tmp_path / ("x" * 300)):
        with pytest.raises(RunError, match=f"{path}.*choose another --out"):
            runs.start(config(), path)


@pytest.mark.cpu_only("on CUDA the memory of the GPU counts")
def test_states_count_against_the_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(memory, "FINISHED_BYTES", 0)
    monkeypatch.setattr(runs, "locked", pytest.fail)  # before it takes the memory
    panel = {"name": "p", "problem": {"kind": "rkhs_function", "num_arms": 100}}
    many = config(trials=20_000_000, horizon=1, panels=[panel])  # states of 1.6 TB
    with pytest.raises(RunError, match=r"'p'.*--shard"):
        runs.start(many, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_what_finishing_holds_counts_against_the_memory(tmp_path, monkeypatch):
    """All algorithms of all panels: each panel fits alone, four of two algorithms do not."""
    monkeypatch.setattr(runs, "locked", pytest.fail)
    pages = {"SC_PHYS_PAGES": 8 * 2 * 48 * memory.FINISHED_BYTES - 1, "SC_PAGE_SIZE": 1}
    monkeypatch.setattr(memory.os, "sysconf", pages.__getitem__)
    problem = {"kind": "rkhs_function", "num_arms": 12}
    memory.check_finish(config(panels=[{"name": "a", "problem": problem}]).panels)
    four = config(panels=[{"name": name, "problem": problem} for name in "abcd"])
    with pytest.raises(RunError, match="4 panels together: 768 rows"):
        runs.start(four, tmp_path / "out")
