"""The file: transactions of any number of processes, damage that is said, backups."""

import os
import random
import sqlite3
import tempfile
from pathlib import Path

import pytest

from bo_robust.study import FAILED, Study, StudyDamaged
from bo_robust.study.store import VERSION, checksum

FIXED = {"lengthscale": 0.2, "outputscale": 1.0, "noise_var": 0.1, "restarts": 2, "raw_samples": 16}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "a.study"


def create(path, **settings):
    return Study.create(path, {"x": (0.0, 1.0)}, **FIXED, **settings)


def filled(path, n=60):
    """A study with n trials, told one eighth of their numbers."""
    study = create(path, num_initial=1000)
    study.tell_many([(trial.id, trial.id / 8) for trial in study.ask(n)])
    return study


def changed(path, *statements):
    """The file, changed by these statements of SQL."""
    db = sqlite3.connect(path)
    db.create_function("checksum_of", -1, checksum)
    for statement in statements:
        db.execute(statement)
    db.commit()
    db.close()


def test_create_leaves_what_exists_alone_and_open_makes_nothing(path, tmp_path):
    changed(path, "CREATE TABLE theirs (x)")
    before = path.read_bytes()
    with pytest.raises(FileExistsError, match="choose another path"):
        create(path)
    with pytest.raises(StudyDamaged, match="it is no study"):
        Study.open(path)
    assert path.read_bytes() == before
    filled(tmp_path / "ours", 1).close()
    with pytest.raises(FileExistsError, match=r"Study\.open"):
        create(tmp_path / "ours")
    with pytest.raises(FileNotFoundError, match=r"Study\.create"):
        Study.open(tmp_path / "other")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.study", "ours"]


def test_an_interrupted_creation_is_said_and_can_be_repeated(path):
    path.touch()
    with pytest.raises(StudyDamaged, match="its creation was interrupted"):
        Study.open(path)
    create(path).close()


@pytest.mark.parametrize("version", [VERSION - 1, VERSION + 1])
def test_another_version_is_refused(path, version):
    filled(path, 1).close()
    changed(path, f"PRAGMA user_version = {version}")
    with pytest.raises(StudyDamaged, match=f"version is {version}, and this one reads {VERSION}"):
        Study.open(path)


def test_every_connection_sees_the_conditions_told(path, tmp_path):
    environment = {"points": [{"z": 0.0}, {"z": 1.0}]}
    with create(path, method="v-ucb", environment=environment, num_initial=9) as one, Study.open(path) as other:
        first, second, third = one.ask(3)
        one.tell(first.id, 1.0)
        assert [trial.x for trial, _ in other.results()] == [first.x]
        one.tell(second.id, 2.0, {"z": 0.25})
        other.tell(third.id, FAILED, {"z": 0.75})
        asked = [first.x, second.x | {"z": 0.25}, third.x | {"z": 0.75}]
        assert [trial.x for trial, _ in other.results()] == [trial.x for trial, _ in one.results()] == asked
        one.backup(tmp_path / "copy")
    with Study.open(tmp_path / "copy", readonly=True) as copy:
        assert [trial.x for trial, _ in copy.results()] == asked
    changed(path, "UPDATE tells SET condition = replace(condition, '0.25', '0.35')")
    with pytest.raises(StudyDamaged, match="checksum of tell 2"):
        Study.open(path)


def test_several_processes_ask_one_after_the_other(path, monkeypatch):
    with create(path) as one, Study.open(path) as other:
        asked = [study.ask()[0] for study in (one, other, one)]
        assert [trial.id for trial in asked] == [0, 1, 2]
        other.tell(0, 1.0)
        assert one.results() == [(asked[0], 1.0)]
        assert [other.add({"x": 0.5}, 2.0).id, one.add({"x": 0.5}, 2.0).id] == [3, 4]

        propose, numbers = one._policy.propose, []

        def meanwhile(history, trial):
            """The other process asks while this one searches."""
            numbers.append(trial)
            if len(numbers) == 1:
                assert other.ask()[0].id == trial
            return propose(history, trial)

        monkeypatch.setattr(one._policy, "propose", meanwhile)
        (trial,) = one.ask()
        assert (trial.id, numbers) == (6, [5, 6])
        assert one.replay(6) == trial.x != one.replay(5)


def test_an_expired_trial_is_handed_out_once(path, monkeypatch):
    with create(path) as one, Study.open(path) as other:
        one.ask(2)
        one.release()
        refresh = one._refresh
        monkeypatch.setattr(one, "_refresh", lambda: (monkeypatch.undo(), other.ask(), refresh()))
        assert [trial.id for trial in one.ask(2)] == [1, 2]


def test_a_reader_sees_what_is_written_and_writes_nothing(path):
    with create(path) as study, Study.open(path, readonly=True) as reader:
        (trial,) = study.ask()
        study.tell(trial.id, 1.5)
        assert reader.results() == [(trial, 1.5)]
        with pytest.raises(OSError, match=f"^{path} cannot be read or written: .*readonly"):
            reader.ask()


def test_a_fork_is_told_to_open_the_study_itself(path):
    study = create(path)
    read, write = os.pipe()
    if os.fork() == 0:
        try:
            study.status()
        except RuntimeError as error:
            os.write(write, str(error).encode())
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read) as lines:
        assert lines.read() == f"{path} was opened by process {os.getpid()}; open it again in this one."
    os.wait()
    study.add({"x": 0.5}, 1.0)
    study.close()


@pytest.mark.parametrize("content", [b"", b"not a database, but long enough to have a header " * 20])
def test_another_file_is_said_to_be_none(path, content):
    path.write_bytes(content)
    with pytest.raises(StudyDamaged, match=str(path)):
        Study.open(path)


@pytest.mark.parametrize("harm", ["flip", "truncate", "overwrite"])
def test_no_harm_to_the_file_changes_anything_in_silence(path, harm):
    filled(path, 120).close()
    whole = path.read_bytes()
    refused = 0
    for seed in range(60):
        choice, data = random.Random(seed), bytearray(whole)
        at = choice.randrange(len(data))
        if harm == "flip":
            data[at] ^= 1 << choice.randrange(8)
        elif harm == "truncate":
            del data[at:]
        else:
            data[at : at + 2000] = choice.randbytes(len(data[at : at + 2000]))
        path.write_bytes(data)
        try:
            with Study.open(path) as study:
                assert [(trial.id, value) for trial, value in study.results()] == [(i, i / 8) for i in range(120)]
                assert study.status().asked == 120
        except StudyDamaged as error:
            assert str(path) in str(error)  # noqa: PT017
            refused += 1
    assert refused >= {"flip": 5, "overwrite": 40, "truncate": 58}[harm]  # the others met free space


@pytest.mark.parametrize(
    ("statement", "fault"),
    [
        ("UPDATE trials SET x = replace(x, '0.', '1.') WHERE id = 1", "checksum of trial 1"),
        ("UPDATE tells SET value = 0.75 WHERE seq = 2", "checksum of tell 2"),
        ("UPDATE settings SET json = json || ' '", "checksum of the settings"),
        ("UPDATE settings SET json = CAST(x'7bff7d' AS TEXT)", "exception"),
        ("DELETE FROM settings", "settings are missing"),
        ("DELETE FROM tells WHERE seq = 2", "tells are missing"),
        ("DELETE FROM trials WHERE id = 0", "trials are missing"),
        ("DELETE FROM trials WHERE id = 2", "there is no trial 2"),
        ("DROP TABLE tells", "no such table"),
    ],
)
def test_what_is_not_a_whole_study_is_said(path, statement, fault):
    filled(path, 3).close()
    changed(path, statement)
    with pytest.raises(StudyDamaged, match=rf"a\.study cannot be opened as a study \(.*{fault}.*backup"):
        Study.open(path)


def test_a_commit_is_synchronised_to_the_disk(path):
    with create(path) as study:
        names = ("synchronous", "journal_mode")
        found = [study._store.db.execute(f"PRAGMA {name}").fetchone()[0] for name in names]
    assert found == [3, "delete"]  # 3: EXTRA


def test_an_interrupt_after_begin_leaves_no_transaction(path):
    with create(path) as study:
        db = study._store.db

        def interrupted():
            with study._store._commit():
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            interrupted()
        assert not db.in_transaction
        study.add({"x": 0.5}, 1.0)


@pytest.mark.parametrize("replaced", [False, True])
def test_a_commit_to_a_file_that_is_not_there_is_refused(path, replaced):
    study = create(path)
    study.add({"x": 0.5}, 1.0)
    other = path.with_name("other")
    path.rename(other)
    if replaced:
        path.write_bytes(other.read_bytes())
    with pytest.raises(OSError, match=f"^{path} cannot be read or written"):
        study.add({"x": 0.25}, 2.0)
    other.rename(path)
    study.add({"x": 0.75}, 3.0)
    assert [value for _, value in study.results()] == [1.0, 3.0]
    study.close()


def test_a_backup_is_the_study_as_it_stands_on_disk(path, tmp_path):
    copy = tmp_path / "copy.study"
    with filled(path, 200) as study:
        with Study.open(path, readonly=True) as reader:
            study.add({"x": 0.25}, 7.0)
            reader.backup(copy)
            study.add({"x": 0.75}, 8.0)
        with Study.open(copy) as copied:
            assert copied.results() == study.results()[:-1]
            assert copied.settings == study.settings
            copied.add({"x": 0.5}, 1.0)  # a study of its own
        before = copy.read_bytes()
        for taken in (copy, path, tmp_path):
            with pytest.raises(FileExistsError):
                study.backup(taken)
        with pytest.raises(FileNotFoundError):
            study.backup(tmp_path / "nowhere" / "copy")
        assert copy.read_bytes() == before
        assert study.status().told == 202


def test_a_backup_of_a_study_that_was_damaged_meanwhile_is_refused(path, tmp_path):
    filled(path, 2000).close()
    with Study.open(path) as study:
        with open(path, "r+b") as file:
            file.seek(4096 * 9)
            file.write(os.urandom(4096 * 3))
        study._store.db.execute("PRAGMA shrink_memory")  # what SQLite keeps in memory is whole
        with pytest.raises(StudyDamaged, match="backup"):
            study.backup(tmp_path / "copy")
    assert not (tmp_path / "copy").exists()


def test_a_path_that_is_no_file_of_its_own_is_refused_by_name(path, tmp_path):
    filled(path, 1).close()
    link, other, pipe = tmp_path / "link", tmp_path / "other", tmp_path / "pipe"
    link.symlink_to(path)
    with Study.open(link) as study:  # the same study
        assert study._store.path == path
    os.link(path, other)
    os.mkfifo(pipe)
    for call in (create, Study.open):
        for name in (path, other):
            with pytest.raises(ValueError, match=f"{name} has several names"):
                call(name)
        for name in (tmp_path, pipe):
            with pytest.raises(OSError, match=f"^{name} is no file"):
                call(name)
    with pytest.raises(OSError, match="nowhere"):
        create(tmp_path / "nowhere" / "a.study")


@pytest.mark.parametrize("protected", ["folder", "file"])
def test_a_path_that_cannot_be_written_is_named(protected):
    with tempfile.TemporaryDirectory() as folder:  # tmp_path lies where only its owner may look
        path, new = Path(folder) / "a.study", Path(folder) / "new"
        filled(path, 1).close()
        for name in (path.parent, path):
            name.chmod(0o777)
        (path.parent if protected == "folder" else path).chmod(0o555)
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                if os.geteuid() == 0:  # root may write anywhere
                    os.setuid(65534)
                study = create(new) if protected == "folder" else Study.open(path)
                study.add({"x": 0.5}, 1.0)
            except BaseException as error:
                os.write(write, f"{type(error).__name__}: {error}".encode())
            finally:
                os._exit(0)
        os.close(write)
        with os.fdopen(read) as lines:
            message = lines.read()
        os.waitpid(child, 0)
        path.parent.chmod(0o777)
    named = new if protected == "folder" else path
    assert message.startswith(f"OSError: {named} cannot be read or written: ")


def test_a_full_disk_is_no_damage_and_names_the_file(path):
    with filled(path, 3) as study:
        study._store.db.execute("PRAGMA max_page_count = 1")
        with pytest.raises(OSError, match=f"^{path} cannot be read or written: database or disk is full.$"):
            study.ask(500)
        study._store.db.execute("PRAGMA max_page_count = 100000")
        study.ask(500)
