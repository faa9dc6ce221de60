"""Blocks of trials on an executor: the parts of a local run, whatever dies, is refused or interrupted."""

import json
import os
import shutil
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pandas as pd
import pytest
import torch
from rich.console import Console

from bo_robust.runner import blocks, cli, dispatch
from bo_robust.runner import run as runs
from bo_robust.runner.blocks import Block, blocks_of
from bo_robust.runner.config import RunConfig
from bo_robust.runner.errors import RunError
from bo_robust.study import InProcess, WorkerLost

ROOT = Path(__file__).resolve().parents[2]


def config(**panel):
    width = {"kind": "self_normalised", "norm_bound": 2.0}
    return RunConfig.from_dict(
        {
            "name": "test",
            "trials": 5,
            "horizon": 40,
            "algorithms": [{"name": "gp-ucb", "label": "GP"}, "random"],
            "panels": [
                {"name": "rkhs", "problem": {"kind": "rkhs_function"}, "compare": [["GP", "RANDOM"]], **panel},
                {
                    "name": "period",
                    "problem": {"kind": "unknown_period"},
                    "initial": 5,
                    "horizon": 100,
                    "algorithms": [{"name": "he-gp-ucb", "label": "HE", "width": width}],
                },
            ],
        }
    )


def quiet():
    return Console(file=open(os.devnull, "w"), width=200)


class Watched:
    """Plays in this process; notes (panel, algorithm, trials) of what it is sent, which ``changed`` may change."""

    def __init__(self, changed=lambda job, count: job):
        self.seen, self.changed = [], changed

    def submit(self, fn, text):
        job = json.loads(text)
        block = (job["config"]["panels"][0]["name"], job["algorithm"], *job["trials"])
        self.seen.append(block)
        return InProcess().submit(lambda x: fn(json.dumps(self.changed(x, self.seen.count(block)))), job)


def plain(folder):
    """Files of the parts; of facts all but seconds."""
    found = {path.name: path.read_bytes() for path in (folder / "parts").iterdir()}
    for name in found:
        if name.endswith(".json"):
            found[name] = {k: v for k, v in json.loads(found[name]).items() if k != "seconds"}
    return found | {"traces": (folder / "traces.parquet").read_bytes()}


@pytest.fixture(scope="module")
def local(tmp_path_factory):
    folder = tmp_path_factory.mktemp("local") / "out"
    runs.start(config(), folder, console=quiet())
    return folder


@pytest.fixture(scope="module")
def by_two(tmp_path_factory):
    """A run in blocks of two trials."""
    folder = tmp_path_factory.mktemp("by_two") / "out"
    runs.start(config(), folder, executor=Watched(), block=2, console=quiet())
    return folder


def test_blocks_cover_the_trials():
    assert blocks_of(0, 1, 5, 2) == [Block(0, 1, 0, 2), Block(0, 1, 2, 4), Block(0, 1, 4, 5)]
    assert blocks_of(3, 0, 5, None) == [Block(3, 0, 0, 5)]
    assert blocks_of(3, 0, 5, 9) == [Block(3, 0, 0, 5)]


@pytest.mark.parametrize("make", [Watched, lambda: ThreadPoolExecutor(1)])
def test_the_parts_of_a_local_run_bit_for_bit(local, tmp_path, make):
    out = tmp_path / "out"
    executor = make()
    runs.start(config(), out, executor=executor, console=quiet())
    assert plain(out) == plain(local)
    assert {p.name for p in out.iterdir()} == {p.name for p in local.iterdir()}
    if isinstance(executor, Watched):
        assert executor.seen == [("rkhs", 0, 0, 5), ("rkhs", 1, 0, 5), ("period", 0, 0, 5)]


def test_smaller_blocks_differ_by_rounding_at_most(local, by_two):
    ours, theirs = plain(by_two), plain(local)
    assert ours.keys() == theirs.keys()
    assert not (by_two / "blocks").exists()
    assert json.loads((by_two / "run.json").read_text())["block"] == 2
    a, b = (pd.read_parquet(folder / "traces.parquet") for folder in (by_two, local))
    pd.testing.assert_frame_equal(a, b, check_exact=False, rtol=1e-9)
    for name, facts in theirs.items():
        if name.endswith(".json"):
            assert facts.keys() == ours[name].keys()
            assert {**facts, "eliminations": None} == {**ours[name], "eliminations": None}  # notes tell of all trials
    found, expected = (facts["01-00.json"]["eliminations"] for facts in (ours, theirs))
    assert found.keys() == expected.keys()
    for key in ("candidates", "true", "survivors"):
        assert found[key] == expected[key]
    assert max(row["trial"] for row in expected["eliminations"]) >= 2  # not only in the first block
    pd.testing.assert_frame_equal(pd.DataFrame(found["eliminations"]), pd.DataFrame(expected["eliminations"]))
    for i, j in ((0, 0), (1, 0)):
        final = [runs.results.load_final(folder, i, j) for folder in (by_two, local)]
        for name in ("mean", "reach", "f"):
            torch.testing.assert_close(final[0][name], final[1][name])


def test_only_what_is_missing_is_played_after_an_interrupt(by_two, tmp_path):
    out = tmp_path / "out"

    def interrupted(job, count):
        if job["trials"] == [2, 4] and job["algorithm"] == 1:
            raise KeyboardInterrupt
        return job

    first = Watched(interrupted)
    with pytest.raises(KeyboardInterrupt):
        runs.start(config(), out, executor=first, block=2, console=quiet())
    assert {p.name for p in (out / "blocks").iterdir()} == {"00-01-000000-000002.safetensors"}
    assert (out / "parts" / "00-00.parquet").exists()
    copy = tmp_path / "copy"
    shutil.copytree(out, copy)
    second = Watched()
    runs.resume(out, executor=second, console=quiet())
    assert set(first.seen) & set(second.seen) == {("rkhs", 1, 2, 4)}
    assert len(first.seen + second.seen) == 9 + 1
    assert plain(out) == plain(by_two)
    runs.resume(copy, console=quiet())  # without an executor, in the same blocks
    assert plain(copy) == plain(by_two)
    assert not (copy / "blocks").exists()


@pytest.mark.parametrize("deaths", [2, 3])
def test_workers_that_die(local, tmp_path, deaths):
    out = tmp_path / "out"

    def dies(job, count):
        if job["algorithm"] == 1 and count <= deaths:
            raise WorkerLost("out of memory")
        return job

    executor = Watched(dies)
    if deaths < dispatch.ATTEMPTS:
        runs.start(config(), out, executor=executor, console=quiet())
    else:
        with pytest.raises(RunError, match=r"'RANDOM' of panel 'rkhs', trials 0 to 4: 3 workers .* out of memory"):
            runs.start(config(), out, executor=executor, console=quiet())
        assert {p.stem for p in (out / "parts").iterdir()} == {"00-00", "01-00"}  # the others went on
        runs.resume(out, executor=executor, console=quiet())
    assert executor.seen.count(("rkhs", 1, 0, 5)) == deaths + 1
    assert len(executor.seen) == deaths + 3
    assert plain(out) == plain(local)


def test_workers_with_other_code_are_refused(local, tmp_path):
    out = tmp_path / "out"

    def other(job, count):
        versions = {k: "1.0" if k in ("torch", "source") else v for k, v in job["versions"].items()}
        return job | {"versions": versions}

    with pytest.raises(RunError, match=rf"source \w+ for 1.0; .*torch {torch.__version__.split('+')[0]}\S* for 1.0"):
        runs.start(config(), out, executor=Watched(other), console=quiet())
    assert not (out / "parts").exists()
    runs.resume(out, executor=Watched(other), force=True, console=quiet())
    assert plain(out) == plain(local)


def test_a_block_that_cannot_be_played_is_named(local, tmp_path, capsys):
    out = tmp_path / "out"

    def elsewhere(job, count):
        if job["config"]["panels"][0]["name"] == "rkhs" and job["algorithm"] == 0:
            job["config"]["panels"][0]["problem"] = {"kind": "cmu_light"}
            return job | {"data_dir": "/no/such/folder"}
        return job

    with pytest.raises(RunError, match=r"'GP' of panel 'rkhs', .*there is no /no/such/folder here"):
        runs.start(config(), out, executor=Watched(elsewhere), console=Console(width=200))
    assert "Warning: 'GP' of panel 'rkhs'" in capsys.readouterr().out
    assert {p.stem for p in (out / "parts").iterdir()} == {"00-01", "01-00"}

    class WithoutPackage(Watched):
        def submit(self, fn, text):
            return InProcess().submit(lambda x: __import__("no_such_package"), text)

    with pytest.raises(RunError, match="install bo_robust on every machine"):
        runs.resume(out, executor=WithoutPackage(), console=quiet())
    runs.resume(out, executor=Watched(), console=quiet())
    assert plain(out) == plain(local)


def test_a_damaged_block_is_named_and_blocks_of_local_runs_are_dropped(local, tmp_path, monkeypatch):
    out = tmp_path / "out"
    with monkeypatch.context() as patch:
        patch.setattr(blocks, "write_part", _interrupt)
        with pytest.raises(KeyboardInterrupt):
            runs.start(config(), out, executor=Watched(), console=quiet())
    (stored,) = (out / "blocks").iterdir()
    kept = stored.read_bytes()
    stored.write_bytes(kept[:-10])
    with pytest.raises(RunError, match=r"00-00-000000-000005\.safetensors is damaged .* Delete it"):
        runs.resume(out, executor=Watched(), console=quiet())
    flipped = bytearray(kept)
    flipped[-20] ^= 1
    stored.write_bytes(flipped)
    with pytest.raises(RunError, match="checksum"):
        runs.resume(out, executor=Watched(), console=quiet())
    other = stored.with_name("00-01-000000-000005.safetensors")
    other.write_bytes(kept)
    stored.unlink()
    with pytest.raises(RunError, match="another run or block"):
        runs.resume(out, executor=Watched(), console=quiet())
    other.unlink()
    stored.write_bytes(kept)
    executor = Watched()
    with monkeypatch.context() as patch:
        patch.setattr(executor, "submit", _interrupt)
        with pytest.raises(KeyboardInterrupt):
            runs.resume(out, executor=executor, console=quiet())
    assert (out / "parts" / "00-00.parquet").exists()  # joined before anything is played
    stored.write_bytes(kept)
    runs.resume(out, console=quiet())
    assert plain(out) == plain(local)
    assert not (out / "blocks").exists()


def test_what_does_not_go_together(tmp_path, monkeypatch):
    out = tmp_path / "out"
    with pytest.raises(RunError, match="at least 1 trial"):
        runs.start(config(), out, block=0, console=quiet())
    with pytest.raises(RunError, match="leave out --workers"):
        runs.start(config(), out, block=2, workers=2, console=quiet())
    with pytest.raises(RunError, match="leave out --workers"):
        runs.start(config(), out, executor=Watched(), workers=2, console=quiet())
    assert not out.exists()
    smoke = ROOT / "configs" / "smoke.yaml"
    for options, message in (
        ({"executor": "dask"}, "unknown --executor 'dask'"),
        ({"address": "auto"}, "add --executor ray"),
        ({"executor": "ray", "device": "cuda:1"}, "give --device cuda"),
    ):
        with pytest.raises(RunError, match=message):
            cli.run(smoke, out=tmp_path / "other", **options)
    with pytest.raises(RunError, match="leave out --block"):
        cli.run(ROOT / "configs" / "value_at_risk" / "smoke.yaml", out=tmp_path / "other", block=2)
    monkeypatch.setitem(sys.modules, "bo_robust.integrations.ray", None)
    with pytest.raises(RunError, match=r"pip install 'bo_robust\[ray\]'"):
        cli.run(smoke, out=tmp_path / "other", executor="ray")
    assert not (tmp_path / "other").exists()


def _interrupt(*args):
    raise KeyboardInterrupt
