"""Objectives elsewhere: results told as they come, deaths survived."""

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import BrokenExecutor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

import pytest
from bo_robust.study import FAILED, LocalProcesses, Study, WorkerLost
from tests.study import objectives

FIXED = {"lengthscale": 0.2, "outputscale": 1.0, "noise_var": 0.1, "restarts": 2, "raw_samples": 16, "num_initial": 4}


@pytest.fixture
def study(tmp_path):
    with Study.create(tmp_path / "a.study", {"x": (0.0, 1.0)}, **FIXED) as made:
        yield made


def test_here_and_now_and_going_on(study):
    study.optimize(objectives.peak, 5)
    found = study.optimize(objectives.peak, 12)
    assert study.status().told == 12
    assert abs(found.x["x"] - 0.7) < 0.1


def test_failures_are_told_and_warned_about(study):
    with pytest.warns(UserWarning, match="no simulation on the left"):
        study.optimize(objectives.fails_on_the_left, 8)
    told = study.results()
    assert len(told) == 8
    assert all((v is FAILED) == (t.x["x"] < 0.5) for t, v in told)
    with pytest.warns(UserWarning, match="finite number"):
        study.optimize(lambda x: float("nan"), 9)


def test_a_pool_of_the_objective_that_broke_is_its_failure(study):
    def broken(x):
        raise BrokenProcessPool("a pool of the objective's own")

    study.add({"x": 0.1}, 1.0)
    with pytest.warns(UserWarning, match="cancelled by its own"):
        study.optimize(objectives.fails_as_if_cancelled, 2)
    with pytest.warns(UserWarning, match="own"), ThreadPoolExecutor(1) as pool:
        study.optimize(objectives.fails_as_if_cancelled, 3, executor=pool)
    with pytest.warns(UserWarning, match="own"), ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        study.optimize(objectives.fails_as_if_cancelled, 4, executor=pool)
    with pytest.warns(UserWarning, match="a pool of the objective's own"):
        study.optimize(broken, 5)
    assert study.status().failed == 4


def test_any_executor_of_concurrent_futures(study):
    running, most, lock = set(), [0], threading.Lock()

    def slow(x):
        with lock:
            running.add(x["x"])
            most[0] = max(most[0], len(running))
        time.sleep(0.05)
        with lock:
            running.remove(x["x"])
        return objectives.peak(x)

    with ThreadPoolExecutor(3) as pool:
        study.optimize(slow, 9, executor=pool, workers=3)
        assert pool.submit(objectives.peak, {"x": 0.7}).result() == 1.0  # not shut down
    assert most[0] == 3
    assert (study.status().told, study.status().open) == (9, 0)


class Dying:
    """Loses the submissions of these numbers."""

    def __init__(self, *deaths, error=WorkerLost):
        self.deaths, self.xs, self.error = deaths, [], error

    def submit(self, fn, x):
        self.xs.append(x)
        future = Future()
        if len(self.xs) in self.deaths:
            future.set_exception(self.error("the node went away"))
        else:
            future.set_result(fn(x))
        return future


def test_a_trial_is_tried_again_and_fails_after_three_deaths(study):
    twice = Dying(1, 2)
    study.optimize(objectives.peak, 2, executor=twice)
    assert twice.xs[0] == twice.xs[1] == twice.xs[2] == study.results()[0][0].x
    assert study.status().failed == 0
    with pytest.warns(UserWarning, match="died 3 times"):
        study.optimize(objectives.peak, 4, executor=Dying(2, 3, 4))
    assert (study.status().told, study.status().failed) == (3, 1)


def test_workers_that_never_give_a_result_are_no_failures(study):
    with pytest.raises(RuntimeError, match=r"no worker gave a result.*__main__"):
        study.optimize(objectives.peak, 4, executor=Dying(*range(1, 99), error=BrokenExecutor), workers=3)
    status = study.status()
    assert (status.told, status.failed, status.open, status.expired) == (0, 0, 3, 3)


def test_a_script_without_main_guard_fails_no_trial(tmp_path):
    script = f"""
from bo_robust.study import Study
study = Study.create({str(tmp_path / "a.study")!r}, {{"x": (0.0, 1.0)}}, num_initial=9)
def f(x): return x["x"]
study.optimize(f, 4, workers=2)
"""
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-"], input=script, text=True, capture_output=True, cwd=root, timeout=120)
    assert done.returncode == 1
    assert "no worker gave a result" in done.stderr
    with Study.open(tmp_path / "a.study") as study:
        assert (study.status().failed, study.status().expired) == (0, 2)


def test_neighbours_of_a_dying_worker_do_not_fail(study):
    with pytest.warns(UserWarning, match="while nothing else ran") as said:
        study.optimize(objectives.peak, 5, executor=Together(), workers=3)
    told = study.results()
    assert len(told) == 5
    assert {v is FAILED for _, v in told} == {True, False}
    assert all((v is FAILED) == (t.x["x"] < 0.5) for t, v in told)
    assert len(said) == sum(v is FAILED for _, v in told)


class Together:
    """A pool that breaks as a whole when a trial on the left runs: what runs beside it is lost too."""

    def __init__(self):
        self.out = []

    def submit(self, fn, x):
        self.out.append(Together.Running(self, x))
        return self.out[-1]

    class Running:
        def __init__(self, pool, x):
            self.pool, self.x, self.lost = pool, x, False

        def done(self):
            if any(other.x["x"] < 0.5 for other in self.pool.out):
                for other in self.pool.out:
                    other.lost = True
            self.pool.out.clear()
            return True

        def result(self):
            if self.lost:
                raise BrokenExecutor("the pool is gone")
            return objectives.peak(self.x)


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_an_interrupt_in_the_objective_frees_its_trial(study, error):
    def stops(x):
        raise error

    with pytest.raises(error):
        study.optimize(stops, 3)
    assert (study.status().told, study.status().open, study.status().expired) == (0, 1, 1)


def test_a_broken_pool_ends_the_run_tells_what_is_finished_and_frees_the_rest(study):
    class Broken:
        submitted = 0

        def submit(self, fn, x):
            self.submitted += 1
            if self.submitted == 3:
                raise BrokenExecutor("gone")
            future = Future()
            if self.submitted == 1:
                future.set_result(fn(x))
            return future

    with pytest.raises(BrokenExecutor):
        study.optimize(objectives.peak, 5, executor=Broken(), workers=3)
    assert [t.id for t, _ in study.results()] == [0]
    assert (study.status().open, study.status().expired) == (2, 2)


def test_an_interrupt_does_not_wait_for_long_objectives(study, monkeypatch):
    def interrupted(seconds):
        if time.monotonic() - began > 3.0:
            workers.extend(child.pid for child in multiprocessing.active_children())
            raise KeyboardInterrupt
        time_sleep(seconds)

    time_sleep, workers = time.sleep, []
    began = time.monotonic()
    monkeypatch.setattr("bo_robust.study.loop.time.sleep", interrupted)
    with pytest.raises(KeyboardInterrupt):
        study.optimize(objectives.sleeps, 2, workers=2)
    assert time.monotonic() - began < 20.0
    assert study.status().expired == 2
    assert len(workers) == 2
    while any(map(_alive, workers)):
        assert time.monotonic() - began < 20.0
        time_sleep(0.05)


def test_a_conflict_is_warned_about_and_the_others_are_told(study):
    def meddled(x):
        study.tell(0, 7.0) if not study.results() else None
        return 1.0

    with pytest.warns(UserWarning, match="the first stands") as said:
        study.optimize(meddled, 3)
    assert said[0].filename == __file__
    assert [(t.id, v) for t, v in study.results()] == [(0, 7.0), (1, 1.0), (2, 1.0)]


def test_an_interrupt_frees_what_was_running(study):
    class Never:
        cancelled = 0

        def submit(self, fn, x):
            return self

        def done(self):
            raise KeyboardInterrupt

        def result(self): ...

        def cancel(self):
            Never.cancelled += 1

    with pytest.raises(KeyboardInterrupt):
        study.optimize(objectives.peak, 5, executor=Never(), workers=2)
    assert Never.cancelled == 2
    assert (study.status().open, study.status().expired) == (2, 2)


def test_leases_of_long_evaluations_are_kept(tmp_path):
    with (
        Study.create(tmp_path / "b.study", {"x": (0.0, 1.0)}, lease_seconds=0.2, **FIXED) as study,
        ThreadPoolExecutor(2) as pool,
    ):
        times = iter([0.5] + [0.02] * 9)
        seen = []

        def objective(x):
            seen.append(x["x"])
            time.sleep(next(times))
            return objectives.peak(x)

        study.optimize(objective, 8, executor=pool, workers=2)
        assert sorted(seen) == sorted(t.x["x"] for t, _ in study.results())


def test_the_only_evaluation_keeps_its_lease(tmp_path):
    with (
        Study.create(tmp_path / "b.study", {"x": (0.0, 1.0)}, lease_seconds=0.4, **FIXED) as study,
        ThreadPoolExecutor(1) as pool,
    ):
        expired = []

        def objective(x):
            for _ in range(10):
                time.sleep(0.1)
                expired.append(study.status().expired)
            return 1.0

        study.optimize(objective, 1, executor=pool)
        assert expired == [0] * 10


def test_processes_have_their_threads_and_survive_a_death(study, tmp_path, monkeypatch):
    monkeypatch.setenv("BO_ROBUST_TEST_MARK", str(tmp_path / "mark"))
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    pool = LocalProcesses(1)
    try:
        assert pool.submit(objectives.threads, {}).result() == ("1", False)
        study.optimize(objectives.dies_once, 3, executor=pool)
        assert (tmp_path / "mark").exists()
        assert (study.status().told, study.status().failed) == (3, 0)
        assert "OMP_NUM_THREADS" not in os.environ
        with pytest.raises(ValueError, match="cannot be sent to a process"):
            pool.submit(lambda x: x, {})
    finally:
        pool.shutdown()


def test_workers_of_a_killed_parent_do_not_live_on():
    read, write = os.pipe()
    parent = os.fork()
    if parent == 0:
        try:
            pool = LocalProcesses(1)
            os.write(write, str(pool.submit(objectives.process, 0.0).result()).encode())
            time.sleep(60)
        finally:
            os._exit(1)
    worker = int(os.read(read, 32))
    os.kill(parent, signal.SIGKILL)
    os.waitpid(parent, 0)
    for _ in range(200):
        if not _alive(worker):
            return
        time.sleep(0.05)
    os.kill(worker, signal.SIGKILL)
    pytest.fail("the worker outlived its parent")


def _alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):  # gone before it was opened, or before it was read
        return False
