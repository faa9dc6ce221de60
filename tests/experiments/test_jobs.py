"""Jobs on an executor: the shards of a run in one process, whatever dies, is refused or interrupted."""

import json
import shutil
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pandas as pd
import pytest
import torch
from rich.console import Console

from bo_robust.executors import InProcess, WorkerLost
from bo_robust.experiments import cli, jobs, results
from bo_robust.experiments import run as runs
from bo_robust.experiments.config import parse
from bo_robust.experiments.errors import RunError
from bo_robust.experiments.store import ShardKey, keys_of, load_shard

ROOT = Path(__file__).resolve().parents[2]


def config(**panel):
    width = {"kind": "self_normalised", "norm_bound": 2.0}
    return parse(
        {
            "name": "test",
            "trials": 5,
            "horizon": 40,
            "methods": [{"name": "gp-ucb", "label": "GP"}, "random"],
            "panels": [
                {"name": "rkhs", "problem": {"kind": "rkhs_function"}, "compare": [["GP", "RANDOM"]], **panel},
                {
                    "name": "period",
                    "problem": {"kind": "unknown_period"},
                    "initial": 5,
                    "horizon": 100,
                    "methods": [{"name": "he-gp-ucb", "label": "HE", "width": width}],
                },
            ],
        }
    )


class Watched:
    """Plays in this process; notes (panel, algorithm, trials) of what it is sent, which ``changed`` may change."""

    def __init__(self, changed=lambda job, count: job):
        self.seen, self.changed = [], changed

    def submit(self, fn, text):
        job = json.loads(text)
        shard = (job["run"]["panels"][0]["name"], *job["key"][1:])
        self.seen.append(shard)
        return InProcess().submit(lambda x: fn(json.dumps(self.changed(x, self.seen.count(shard)))), job)


def plain(folder):
    """What the shards hold, but for seconds, and the traces as stored."""
    found = {}
    for path in (folder / "shards").iterdir():
        shard = load_shard(folder, ShardKey(*map(int, path.stem.split("-"))), config().digest)
        found[path.name] = (shard.frame.to_json(), {**shard.metadata, "seconds": None})
    return found | {"traces": (folder / "traces.parquet").read_bytes()}


@pytest.fixture(scope="module")
def local(tmp_path_factory):
    folder = tmp_path_factory.mktemp("local") / "out"
    runs.start(config(), folder)
    return folder


@pytest.fixture(scope="module")
def by_two(tmp_path_factory):
    """A run in shards of two trials."""
    folder = tmp_path_factory.mktemp("by_two") / "out"
    runs.start(config(), folder, executor=Watched(), shard=2)
    return folder


def test_shards_cover_the_trials():
    first = config().panels[:1]
    trials = [key[2:] for key in keys_of(first, 2) if key.method == 1]
    assert trials == [(0, 2), (2, 4), (4, 5)]
    for size in (None, 9):
        assert keys_of(first, size) == [ShardKey(0, 0, 0, 5), ShardKey(0, 1, 0, 5)]


@pytest.mark.parametrize("make", [Watched, lambda: ThreadPoolExecutor(1)])
def test_the_shards_of_a_local_run_bit_for_bit(local, tmp_path, make):
    out = tmp_path / "out"
    executor = make()
    runs.start(config(), out, executor=executor)
    assert plain(out) == plain(local)
    assert {p.name for p in out.iterdir()} == {p.name for p in local.iterdir()}
    if isinstance(executor, Watched):
        assert executor.seen == [("rkhs", 0, 0, 5), ("rkhs", 1, 0, 5), ("period", 0, 0, 5)]


def test_smaller_shards_differ_by_rounding_at_most(local, by_two):
    ours, theirs = results.load(by_two), results.load(local)
    assert json.loads((by_two / "run.json").read_text())["shard"] == 2
    a, b = (pd.read_parquet(folder / "traces.parquet") for folder in (by_two, local))
    pd.testing.assert_frame_equal(a, b, check_exact=False, rtol=1e-9)
    changing = {"eliminations": None, "seconds": None, "covered": None, "intervals": None}
    for panel, of in theirs.metadata.items():
        for label, known in of.items():
            assert {**known, **changing} == {**ours.metadata[panel][label], **changing}  # notes tell of all trials
    found, expected = (run.metadata["period"]["HE"]["eliminations"] for run in (ours, theirs))
    assert found.keys() == expected.keys()
    for key in ("candidates", "true", "survivors"):
        assert found[key] == expected[key]
    assert max(row["trial"] for row in expected["eliminations"]) >= 2  # not only in the first shard
    pd.testing.assert_frame_equal(pd.DataFrame(found["eliminations"]), pd.DataFrame(expected["eliminations"]))
    for which in (("rkhs", "GP"), ("period", "HE")):
        a, b = (run.metadata[which[0]][which[1]]["intervals"] for run in (ours, theirs))
        for name in ("mean", "reach", "f"):
            assert a[name] == pytest.approx(b[name], rel=1e-7)


def test_only_what_is_missing_is_played_after_an_interrupt(by_two, tmp_path):
    out = tmp_path / "out"

    def interrupted(job, count):
        if job["key"] == [0, 1, 2, 4]:
            raise KeyboardInterrupt
        return job

    first = Watched(interrupted)
    with pytest.raises(KeyboardInterrupt):
        runs.start(config(), out, executor=first, shard=2)
    assert {p.stem for p in (out / "shards").iterdir()} == {
        *("00-00-000000-000002", "00-01-000000-000002", "00-00-000002-000004")
    }
    copy = tmp_path / "copy"
    shutil.copytree(out, copy)
    second = Watched()
    runs.resume(out, executor=second)
    assert set(first.seen) & set(second.seen) == {("rkhs", 1, 2, 4)}
    assert len(first.seen + second.seen) == 9 + 1
    assert plain(out) == plain(by_two)
    runs.resume(copy)  # without an executor, in the same shards
    assert plain(copy) == plain(by_two)


@pytest.mark.parametrize("deaths", [2, 3])
def test_workers_that_die(local, tmp_path, deaths):
    out = tmp_path / "out"

    def dies(job, count):
        if job["key"][1] == 1 and count <= deaths:
            raise WorkerLost("out of memory")
        return job

    executor = Watched(dies)
    if deaths < jobs.ATTEMPTS:
        runs.start(config(), out, executor=executor)
    else:
        with pytest.raises(RunError, match=r"'RANDOM' of panel 'rkhs', trials 0 to 4: 3 workers .* out of memory"):
            runs.start(config(), out, executor=executor)
        assert {p.stem[:5] for p in (out / "shards").iterdir()} == {"00-00", "01-00"}  # the others went on
        runs.resume(out, executor=executor)
    assert executor.seen.count(("rkhs", 1, 0, 5)) == deaths + 1
    assert len(executor.seen) == deaths + 3
    assert plain(out) == plain(local)


def test_workers_with_other_code_are_refused(local, tmp_path):
    out = tmp_path / "out"

    def other(job, count):
        changed = {k: "1.0" if k in ("torch", "source") else v for k, v in job["fingerprint"].items()}
        return job | {"fingerprint": changed}

    with pytest.raises(RunError, match=rf"source 1.0 -> \w+; .*torch 1.0 -> {torch.__version__.split('+')[0]}"):
        runs.start(config(), out, executor=Watched(other))
    assert not (out / "shards").exists()
    runs.resume(out, executor=Watched(other), force=True)
    assert plain(out) == plain(local)


def test_a_job_that_cannot_be_played_is_named(local, tmp_path, capsys):
    out = tmp_path / "out"

    def elsewhere(job, count):
        if job["key"][:2] == [0, 0]:
            job["run"]["panels"][0]["problem"] = {"kind": "cmu_light"}
            return job | {"data_dir": "/no/such/folder"}
        return job

    with pytest.raises(RunError, match=r"'GP' of panel 'rkhs', .*there is no /no/such/folder here"):
        runs.start(config(), out, executor=Watched(elsewhere), console=Console(width=200))
    assert "Warning: 'GP' of panel 'rkhs'" in capsys.readouterr().out
    assert {p.stem[:5] for p in (out / "shards").iterdir()} == {"00-01", "01-00"}

    class WithoutPackage(Watched):
        def submit(self, fn, text):
            return InProcess().submit(lambda x: __import__("no_such_package"), text)

    with pytest.raises(RunError, match="install bo_robust on every machine"):
        runs.resume(out, executor=WithoutPackage())
    runs.resume(out, executor=Watched())
    assert plain(out) == plain(local)


def test_a_pool_is_handed_as_many_jobs_as_it_has_workers():
    """So that a death takes no job with it that has not begun."""

    class Pool:
        workers = 2
        under_way = most = 0

        def submit(self, fn, text):
            self.under_way += 1
            self.most = max(self.most, self.under_way)
            future = InProcess().submit(fn, text)
            looks = iter((False, True))
            future.done = lambda: next(looks, True)
            return future

    pool, came = Pool(), []

    def arrived(key, content):
        pool.under_way -= 1
        came.append(key)

    jobs.play_jobs(pool, lambda text: ("", b""), {k: (str(k), {}) for k in range(7)}, arrived, Console())
    assert pool.most == 2
    assert sorted(came) == [*range(7)]


def test_what_does_not_go_together(tmp_path, monkeypatch):
    out = tmp_path / "out"
    with pytest.raises(RunError, match="at least 1 trial"):
        runs.start(config(), out, shard=0)
    with pytest.raises(RunError, match="leave out --workers"):
        runs.start(config(), out, executor=Watched(), workers=2)
    assert not out.exists()
    smoke = ROOT / "configs" / "smoke.yaml"
    for options, message in (
        ({"executor": "dask"}, "unknown --executor 'dask'"),
        ({"address": "auto"}, "add --executor ray"),
        ({"executor": "ray", "device": "cuda:1"}, "give --device cuda"),
    ):
        with pytest.raises(RunError, match=message):
            cli.run(smoke, out=tmp_path / "other", **options)
    with pytest.raises(RunError, match="leave out --shard"):
        cli.run(ROOT / "configs" / "value_at_risk" / "smoke.yaml", out=tmp_path / "other", shard=2)
    monkeypatch.setitem(sys.modules, "bo_robust.integrations.ray", None)
    with pytest.raises(RunError, match=r"pip install 'bo_robust\[ray\]'"):
        cli.run(smoke, out=tmp_path / "other", executor="ray")
    assert not (tmp_path / "other").exists()
