"""Objectives elsewhere: results told as they come, deaths survived."""

import os
import signal
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor

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
    """Loses the first so many submissions."""

    def __init__(self, deaths):
        self.deaths, self.xs = deaths, []

    def submit(self, fn, x):
        self.xs.append(x)
        future = Future()
        if len(self.xs) <= self.deaths:
            future.set_exception(WorkerLost("the node went away"))
        else:
            future.set_result(fn(x))
        return future


def test_a_trial_is_tried_again_and_fails_after_three_deaths(study):
    twice = Dying(2)
    study.optimize(objectives.peak, 2, executor=twice)
    assert twice.xs[0] == twice.xs[1] == twice.xs[2] == study.results()[0][0].x
    assert study.status().failed == 0
    with pytest.warns(UserWarning, match="died 3 times"):
        study.optimize(objectives.peak, 4, executor=Dying(3))
    assert (study.status().told, study.status().failed) == (3, 1)


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
    except FileNotFoundError:
        return False
