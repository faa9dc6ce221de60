"""On a real local Ray, objectives and runs: results as elsewhere, deaths survived."""

import json
import os
import signal
import sys
import threading
import time
import types
from pathlib import Path

import pandas as pd
import pytest
from bo_robust.study import FAILED, InProcess, Study, WorkerLost
from rich.console import Console
from tests.study import objectives

from bo_robust.experiments import cli, results
from bo_robust.experiments import run as runs
from bo_robust.experiments.config import parse
from bo_robust.experiments.errors import RunError
from bo_robust.experiments.jobs import play_jobs

ray = pytest.importorskip("ray")

from bo_robust.integrations.ray import RayExecutor  # noqa: E402

FIXED = {"lengthscale": 0.2, "outputscale": 1.0, "noise_var": 0.1, "restarts": 2, "raw_samples": 16, "num_initial": 4}


@pytest.fixture(scope="module")
def own():
    """Ray on this machine, with a GPU to hand out, real or not."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("OMP_NUM_THREADS", raising=False)
        patch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        with pytest.raises(RuntimeError, match=r"call ray\.init"):
            RayExecutor()
        ray.init(address="local", num_cpus=2, num_gpus=1, include_dashboard=False)
        yield RayExecutor(cpus=0.5)
        ray.shutdown()


@pytest.fixture
def study(tmp_path):
    with Study.create(tmp_path / "a.study", {"x": (0.0, 1.0)}, **FIXED) as made:
        yield made


def content_of(mark):
    """What the file says, as soon as it says something."""
    for _ in range(3000):
        if mark.exists() and mark.read_text():
            return mark.read_text()
        time.sleep(0.01)
    raise AssertionError(f"{mark} was not written")


def killed_once(mark):
    """An objective whose process is killed in the first call."""

    def objective(x):
        if not Path(mark).exists():
            Path(mark).write_text(str(os.getpid()))
            os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(60)
        return objectives.peak(x)

    return objective


def test_the_same_as_in_this_process(own, study, tmp_path):
    found = study.optimize(objectives.peak, 10, executor=own)
    with Study.create(tmp_path / "b.study", {"x": (0.0, 1.0)}, **FIXED) as here:
        here.optimize(objectives.peak, 10, executor=InProcess())
        assert study.results() == here.results()
    assert abs(found.x["x"] - 0.7) < 0.1


def test_two_at_a_time(own, study, tmp_path):
    def meets(x, folder=str(tmp_path)):
        """Leaves when somebody else is there too."""
        (Path(folder) / f"{x['x']!r}.here").touch()
        while len(list(Path(folder).glob("*.here"))) < 2:
            time.sleep(0.01)
        return objectives.peak(x)

    began = time.monotonic()
    study.optimize(meets, 2, executor=own, workers=2)
    assert time.monotonic() - began < 20
    assert (study.status().told, study.status().failed) == (2, 0)
    futures = [own.submit(objectives.process, 0.3) for _ in range(2)]
    assert len({future.result() for future in futures}) == 2


@pytest.mark.parametrize("retries", [0, 1])
def test_a_killed_worker_loses_nothing(own, study, tmp_path, retries):
    study.optimize(objectives.peak, 3, executor=own)
    told = study.results()
    mark = tmp_path / "mark"
    executor = Counting(RayExecutor(cpus=0.5, retries=retries))
    study.optimize(killed_once(str(mark)), 7, executor=executor, workers=2)
    assert mark.exists()
    assert study.results()[:3] == told
    assert len(study.results()) == 7
    assert (study.status().told, study.status().failed, study.status().open) == (7, 0, 0)
    assert all(value == objectives.peak(trial.x) for trial, value in study.results())
    # Ray tried again by itself, or the study handed the same point out again. Two die if both saw no mark.
    assert len(executor.xs) == 4 if retries else len(executor.xs) in (5, 6)
    assert len({x["x"] for x in executor.xs}) == 4


def test_a_worker_killed_from_outside_and_three_deaths(own, study, tmp_path):
    future = own.submit(objectives.marks_and_sleeps, str(tmp_path / "mark"))
    pid = int(content_of(tmp_path / "mark"))
    assert not future.done()
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(WorkerLost):
        future.result()
    assert future.done()
    study.optimize(objectives.peak, 1, executor=own)
    with pytest.warns(UserWarning, match="died 3 times"):
        study.optimize(lambda x: os._exit(1), 2, executor=own)
    assert (study.status().told, study.status().failed) == (1, 1)


def test_what_the_objective_raises_and_what_cannot_be_sent(own, study):
    with pytest.raises(KeyError, match="'nothing'"):
        own.submit(lambda x: x["nothing"], {}).result()
    with pytest.warns(UserWarning, match="no simulation on the left"):
        study.optimize(objectives.fails_on_the_left, 6, executor=own, workers=2)
    assert all((v is FAILED) == (t.x["x"] < 0.5) for t, v in study.results())
    lock = threading.Lock()
    with pytest.raises(ValueError, match="cannot be sent"):
        own.submit(lambda x: lock, {})


def test_cancelled_tasks_free_their_places(own, tmp_path):
    running = [own.submit(objectives.marks_and_sleeps, str(tmp_path / f"mark{i}")) for i in range(4)]
    waiting = own.submit(objectives.process, 60.0)
    for i in range(4):
        content_of(tmp_path / f"mark{i}")
    for future in (waiting, *running):
        future.cancel()
    with pytest.raises(WorkerLost):
        waiting.result()
    assert own.submit(lambda x: x + 1, 1).result() == 2


def test_threads_and_workers_without_torch(own):
    assert own.submit(objectives.threads, {}).result() == ("1", False)


def test_two_tasks_share_a_gpu_and_a_third_waits(own, tmp_path):
    def uses(i, folder=str(tmp_path)):
        """Its GPU and how many tasks run, looked at when two have begun."""
        (Path(folder) / f"{i}.began").touch()
        while len(list(Path(folder).glob("*.began"))) < 2:
            time.sleep(0.01)
        time.sleep(0.3)
        running = len(list(Path(folder).glob("*.began"))) - len(list(Path(folder).glob("*.ended")))
        (Path(folder) / f"{i}.ended").touch()
        return os.environ.get("CUDA_VISIBLE_DEVICES"), running

    executor = RayExecutor(cpus=0.1, gpus=0.5)
    futures = [executor.submit(uses, i) for i in range(3)]
    gpus, running = zip(*(future.result() for future in futures), strict=True)
    assert gpus == ("0", "0", "0")
    assert max(running) <= 2


def run_config():
    """Two panels of one algorithm and one of two, of few rounds but for the first."""
    return parse(
        {
            "name": "test",
            "trials": 3,
            "methods": ["gp-ucb"],
            "panels": [
                {"name": "long", "problem": {"kind": "rkhs_function", "num_arms": 20}, "horizon": 300},
                {"name": "short", "problem": {"kind": "rkhs_function"}, "horizon": 20},
                {
                    "name": "period",
                    "problem": {"kind": "unknown_period"},
                    "horizon": 30,
                    "methods": ["he-gp-ucb", "irgp-ucb"],
                },
            ],
        }
    )


def what_is_in(folder):
    """Metadata except for seconds, and the traces as stored."""
    run = results.load(folder)
    known = {name: {k: {**m, "seconds": None} for k, m in of.items()} for name, of in run.metadata.items()}
    return known, (folder / "traces.parquet").read_bytes()


def quiet():
    return Console(file=open(os.devnull, "w"), width=200)


def test_a_run_whose_worker_is_killed_ends_as_a_local_one(own, tmp_path):
    local, out = tmp_path / "local", tmp_path / "out"
    runs.start(run_config(), local, console=quiet())
    killed = []

    class Marking(Counting):
        """Has workers note their process by panel; the long one is at first much too long, to be killed in play."""

        def submit(self, fn, x):
            def marked(text, folder=str(tmp_path)):
                job = json.loads(text)
                panel = job["run"]["panels"][0]
                mark = Path(folder) / panel["name"]
                if panel["name"] == "long" and not mark.exists():
                    panel["horizon"] = 10**6
                mark.write_text(str(os.getpid()))
                return fn(json.dumps(job))

            self.xs.append(x)
            return self.inner.submit(marked, x)

    executor = Marking(own)

    def kill():
        """The worker that plays the long panel, when all short ones are finished."""
        for _ in range(30000):  # five minutes, on a busy machine
            if len(list((out / "shards").glob("0[12]-*"))) == 3 and (tmp_path / "long").exists():
                break
            time.sleep(0.01)
        killed.append(int((tmp_path / "long").read_text()))
        os.kill(killed[0], signal.SIGKILL)

    thread = threading.Thread(target=kill)
    thread.start()
    runs.start(run_config(), out, executor=executor, console=quiet())
    thread.join()
    assert len(killed) == 1
    jobs = [json.loads(text) for text in executor.xs]
    played = [(job["run"]["panels"][0]["name"], job["key"][1]) for job in jobs]
    assert sorted(played) == [("long", 0), ("long", 0), ("period", 0), ("period", 1), ("short", 0)]
    assert what_is_in(out) == what_is_in(local)


def test_a_worker_without_the_code_is_said(own, monkeypatch):
    module = types.ModuleType("only_here")
    exec("def play(text): return '', b''", module.__dict__)
    monkeypatch.setitem(sys.modules, "only_here", module)
    with pytest.raises(RunError, match=r"one: .*No module named 'only_here'.*install bo_robust on every machine"):
        play_jobs(own, module.play, {1: ("one", {})}, print, quiet())


@pytest.mark.parametrize("loop", ["arms", "conditions"])
def test_the_command_line(own, tmp_path, loop):
    methods = {"methods": ["tgp-ucb"], "trials": 2, "horizon": 20}
    panel = {"name": "a", "problem": {"kind": "rkhs_function", "noise": {"kind": "student_t", "df": 3}}}
    seconds = []
    if loop == "conditions":
        methods = {"loop": loop, "methods": ["random"], "trials": 2, "horizon": 1}
        panel["problem"], seconds = {"kind": "branin"}, ["seconds", "fit_seconds"]
    path, here, out = tmp_path / "a.yaml", tmp_path / "here", tmp_path / "out"
    path.write_text(json.dumps({"name": "test", **methods, "panels": [panel]}))  # JSON is YAML
    cli.run(path, out=here)
    before = signal.getsignal(signal.SIGTERM)
    try:
        cli.run(path, out=out, executor="ray")
        next((out / "shards").glob("00-00*")).unlink()
        (out / "traces.parquet").unlink()
        cli.resume(out, executor="ray")
    finally:
        signal.signal(signal.SIGTERM, before)
    ours, theirs = (pd.read_parquet(folder / "traces.parquet").drop(columns=seconds) for folder in (out, here))
    pd.testing.assert_frame_equal(ours, theirs, check_exact=True)
    assert ray.is_initialized()  # it was here before


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"cpus": 0}, "cpus must be"),
        ({"cpus": 1.5}, "cpus must, from 1 on, be whole"),
        ({"gpus": 1.5}, "gpus must be"),
        ({"gpus": -1}, "gpus must be"),
        ({"gpus": float("inf")}, "gpus must be"),
        ({"retries": -1}, "retries must be"),
    ],
)
def test_numbers_out_of_range(bad, message):
    with pytest.raises(ValueError, match=message):
        RayExecutor(**bad)


class Counting:
    """Notes what is submitted."""

    def __init__(self, inner):
        self.inner, self.xs = inner, []

    def submit(self, fn, x):
        self.xs.append(x)
        return self.inner.submit(fn, x)
