"""The lock: one writer, whatever happens to it, and no other file is touched."""

import fcntl
import os
import signal
import threading

import pytest

from bo_robust.study import Study, StudyLocked

FIXED = {"lengthscale": 0.2, "outputscale": 1.0, "noise_var": 0.1, "restarts": 2, "raw_samples": 16}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "a.study"


def create(path):
    return Study.create(path, {"x": (0.0, 1.0)}, **FIXED)


def test_a_second_writer_is_refused_and_readers_are_not(path):
    with Study.create(path, {"x": (0.0, 1.0)}, **FIXED) as study:
        with pytest.raises(StudyLocked, match=f"process {os.getpid()};"):
            Study.open(path, wait=0.05)
        with Study.open(path, readonly=True) as reader:
            (trial,) = study.ask()
            study.tell(trial.id, 1.5)
            assert reader.results() == [(trial, 1.5)]
            with pytest.raises(ValueError, match="readonly"):
                reader.ask()
    Study.open(path).close()


def test_the_lock_goes_with_the_writer_even_if_its_fork_lives_on(path):
    read, write = os.pipe()
    study = Study.create(path, {"x": (0.0, 1.0)}, **FIXED)
    child = os.fork()
    if child == 0:
        os.close(write)
        os.read(read, 1)
        os._exit(0)
    study.close()
    Study.open(path).close()
    os.close(write)
    os.waitpid(child, 0)


def test_an_orphan_of_a_killed_writer_does_not_keep_the_lock(path):
    read, write = os.pipe()
    writer = os.fork()
    if writer == 0:
        try:
            study = create(path)
            if os.fork() == 0:
                os.close(write)
                os.read(read, 1)  # until the test is over
                os._exit(0)
            os.kill(os.getpid(), signal.SIGKILL)
        finally:
            os._exit(1)
    os.waitpid(writer, 0)
    with Study.open(path) as study:
        assert study.status().recovered
    os.close(write)


def test_a_dropped_study_frees_its_lock(path):
    study = Study.create(path, {"x": (0.0, 1.0)}, **FIXED)
    study.add({"x": 0.5}, 1.0)
    del study
    with Study.open(path) as study:
        assert not study.status().recovered
        assert study.status().told == 1


def test_a_fork_that_drops_its_copy_leaves_the_lock_to_the_parent(path):
    study = Study.create(path, {"x": (0.0, 1.0)}, **FIXED)
    child = os.fork()
    if child == 0:
        del study
        os._exit(0)
    os.waitpid(child, 0)
    with pytest.raises(StudyLocked):
        Study.open(path)
    study.add({"x": 0.5}, 1.0)
    study.close()


def test_a_failed_opening_frees_the_lock(path, monkeypatch):
    create(path).close()
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError) as error:
            Study.open(path)
    Study.open(path).close()
    assert error  # its traceback held the store


def test_a_link_is_the_same_study(path):
    link = path.with_name("link")
    with Study.create(path, {"x": (0.0, 1.0)}, **FIXED):
        link.symlink_to(path)
        with pytest.raises(StudyLocked):
            Study.open(link)


def test_who_is_refused_leaves_the_number_of_the_writer(path):
    with create(path):
        for _ in range(2):
            with pytest.raises(StudyLocked, match=f"written by process {os.getpid()};"):
                Study.open(path)


def test_a_call_that_fails_leaves_no_trace_of_a_crash(path):
    create(path).close()
    with pytest.raises(FileExistsError):
        create(path)
    with Study.open(path) as study:
        assert not study.status().recovered


def test_a_clean_close_beside_a_reader_is_no_recovery(path):
    study = create(path)
    with Study.open(path, readonly=True) as reader:
        study.add({"x": 0.5}, 1.0)
        study.close()
        with Study.open(path) as again:
            assert not again.status().recovered
            assert reader.status().told == again.status().told == 1


@pytest.mark.parametrize("name", ["uv.lock", ".uv.lock", "uv-wal.lock"])
def test_other_locks_are_left_alone(tmp_path, name):
    other = tmp_path / name
    other.write_text("version = 1")
    with create(tmp_path / "uv") as study:
        study.add({"x": 0.5}, 1.0)
    assert other.read_text() == "version = 1"
    assert (tmp_path / ".uv.study-lock").read_text().strip() == "bo_robust study: closed"


@pytest.mark.parametrize("content", ["mine", "bo_robust study: open\n", "\0" * 500])
def test_a_file_that_is_no_lock_is_refused_and_stays(path, content):
    other = path.with_name(".a.study.study-lock")
    other.write_text(content)
    with pytest.raises(FileExistsError, match=f"{other} is not the lock of a study: move it away"):
        create(path)
    assert other.read_text() == content


def test_links_pipes_and_folders_in_place_of_the_lock_are_refused(path):
    lock, victim = path.with_name(".a.study.study-lock"), path.with_name("victim")
    victim.write_text("mine")
    lock.symlink_to(victim)
    with pytest.raises(FileExistsError, match="not the lock"):
        create(path)
    assert victim.read_text() == "mine"
    lock.unlink()
    os.mkfifo(lock)
    with pytest.raises(FileExistsError, match="not the lock"):
        create(path)
    lock.unlink()
    lock.mkdir()
    with pytest.raises(IsADirectoryError, match=f"{path} cannot be written: its lock {lock}"):
        create(path)
    assert not path.exists()


def test_an_empty_lock_is_a_new_one(path):
    create(path).close()
    for content in (b"", bytes(128)):  # a crash at its creation; a loss of power before it was written
        path.with_name(".a.study.study-lock").write_bytes(content)
        with Study.open(path) as study:
            assert not study.status().recovered


def test_a_lock_that_is_just_taken_names_no_process(path):
    create(path).close()
    with open(path.with_name(".a.study.study-lock")) as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(StudyLocked, match="written by another process"):
            Study.open(path)


def test_who_waits_gets_the_lock_once_it_is_free(path):
    create(path).close()
    holder = os.open(path.with_name(".a.study.study-lock"), os.O_RDWR)
    fcntl.flock(holder, fcntl.LOCK_EX)
    timer = threading.Timer(0.3, os.close, [holder])
    timer.start()
    Study.open(path, wait=60.0).close()
    timer.join()


def test_a_hard_linked_study_is_refused(path):
    with create(path) as study:
        other = path.with_name("other")
        os.link(path, other)
        for name in (path, other):
            for readonly in (False, True):
                with pytest.raises(ValueError, match=f"{name} has 2 names"):
                    Study.open(name, readonly=readonly)
        study.add({"x": 0.5}, 1.0)
    other.unlink()
    with Study.open(path) as study:
        assert study.status().told == 1
