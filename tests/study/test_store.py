"""The file: one writer, migration, damage reported with what was kept."""

import json
import os
import runpy
import sqlite3
import sys
import tempfile
from pathlib import Path

import pytest

from bo_robust.study import FAILED, Study, StudyDamaged, salvage
from bo_robust.study.schema import APPLICATION, VERSION

FIXED = {"lengthscale": 0.2, "outputscale": 1.0, "noise_var": 0.1, "restarts": 2, "raw_samples": 16}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "a.study"


def create(path, **settings):
    return Study.create(path, {"x": (0.0, 1.0)}, **FIXED, **settings)


def filled(path, n=60):
    filled_study(path, n).close()
    return path


def filled_study(path, n):
    study = create(path, num_initial=1000)
    study.tell_many([(trial.id, trial.id / 8) for trial in study.ask(n)])
    return study


def test_create_leaves_the_database_of_another_program_alone(path):
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE theirs (x)")
    db.close()
    before = path.read_bytes()
    with pytest.raises(FileExistsError, match="choose another path"):
        create(path)
    assert path.read_bytes() == before


def test_create_does_not_overwrite_and_open_does_not_create(path, tmp_path):
    filled(path, 1)
    with pytest.raises(FileExistsError, match=r"Study\.open"):
        Study.create(path, {"x": (0.0, 1.0)})
    with pytest.raises(FileNotFoundError, match=r"Study\.create"):
        Study.open(tmp_path / "other")


def test_an_interrupted_creation_is_said_and_can_be_repeated(path):
    sqlite3.connect(path).execute("PRAGMA journal_mode = WAL").connection.close()
    with pytest.raises(StudyDamaged, match="creation was interrupted"):
        Study.open(path)
    Study.create(path, {"x": (0.0, 1.0)}, **FIXED).close()


def test_version_1_is_migrated_and_its_open_trials_are_handed_out_again(path):
    known = filled(path.with_name("model"), 1)
    with Study.open(known) as study:
        settings = study.settings
    db = sqlite3.connect(path)
    db.executescript(
        f"""
        CREATE TABLE settings (json TEXT NOT NULL);
        CREATE TABLE trials (id INTEGER PRIMARY KEY, x TEXT NOT NULL, asked_after INTEGER);
        CREATE TABLE tells (seq INTEGER PRIMARY KEY, trial INTEGER NOT NULL UNIQUE REFERENCES trials (id), value REAL);
        INSERT INTO trials VALUES (0, '{{"x": 0.25}}', 0), (1, '{{"x": 0.75}}', 0), (2, '{{"x": 0.5}}', 0);
        INSERT INTO tells VALUES (1, 2, 4.5), (2, 0, NULL);
        PRAGMA application_id = {APPLICATION};
        PRAGMA user_version = 1;
        """
    )
    db.execute("INSERT INTO settings VALUES (?)", (json.dumps(settings),))
    db.commit()
    db.close()
    with pytest.raises(ValueError, match="open it once for writing"):
        Study.open(path, readonly=True)
    with Study.open(path) as study:
        assert [(t.id, t.x, v) for t, v in study.results()] == [(2, {"x": 0.5}, 4.5), (0, {"x": 0.25}, FAILED)]
        assert [t.id for t in study.ask(2)] == [1, 3]
    assert sqlite3.connect(path).execute("PRAGMA user_version").fetchone() == (VERSION,)
    with Study.open(path) as study:  # every row got its checksum: a file without is damaged
        assert [(t.id, v) for t, v in study.results()] == [(2, 4.5), (0, FAILED)]


def test_a_later_version_is_refused(path):
    filled(path, 1)
    with sqlite3.connect(path) as db:
        db.execute(f"PRAGMA user_version = {VERSION + 1}")
    with pytest.raises(ValueError, match="upgrade"):
        Study.open(path)


@pytest.mark.parametrize("part", [0.35, 0.6, 0.95])
def test_a_truncated_file_says_what_is_readable_and_how_to_get_it_out(path, part):
    size = filled(path, 2000).stat().st_size
    os.truncate(path, int(size * part))
    before = path.read_bytes()
    with pytest.raises(StudyDamaged, match=r"a\.study is damaged") as error:
        Study.open(path)
    kept = salvage(path)
    assert f"{len(kept)} tells are readable" in str(error.value)
    assert "python -m bo_robust.study" in str(error.value)
    assert all(row["value"] == row["id"] / 8 for row in kept)
    assert path.read_bytes() == before
    if part > 0.9:
        assert len(kept) > 200
        assert sum(row["x"] is not None for row in kept) > 200


def test_overwritten_pages_are_found_and_the_rest_is_exported(path, capsys, monkeypatch):
    filled(path, 2000)
    with open(path, "r+b") as file:
        file.seek(4096 * 9)
        file.write(os.urandom(4096 * 3))
    with pytest.raises(StudyDamaged, match="tells are readable"):
        Study.open(path)
    monkeypatch.setattr(sys, "argv", ["study", str(path)])
    runpy.run_module("bo_robust.study", run_name="__main__")
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert rows == salvage(path)
    with Study.create(path.with_name("new"), {"x": (0.0, 1.0)}, **FIXED) as study:
        usable = [row for row in rows if row["x"] is not None][:5]
        for row in usable:
            study.add(row["x"], row["value"])
        assert [(t.x, v) for t, v in study.results()] == [(row["x"], row["value"]) for row in usable]


@pytest.mark.parametrize("content", [b"", b"not a database, but long enough to have a header " * 20])
def test_another_file_is_said_to_be_none(path, content):
    path.write_bytes(content)
    with pytest.raises(StudyDamaged, match=str(path)):
        Study.open(path)


def test_another_sqlite_file_is_said_to_be_none(path):
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE cats (name TEXT)")
    with pytest.raises(StudyDamaged, match="is no study"):
        Study.open(path)


def test_a_commit_is_synchronised_to_the_disk(path):
    with Study.create(path, {"x": (0.0, 1.0)}, **FIXED) as study:
        assert pragmas(study) == (2, "wal")  # 2: FULL
    with Study.open(path) as study:
        assert pragmas(study) == (2, "wal")


def pragmas(study):
    db = study._store._file.db
    return tuple(db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("synchronous", "journal_mode"))


def test_an_interrupted_transaction_is_rolled_back_by_the_next(path):
    with Study.create(path, {"x": (0.0, 1.0)}, **FIXED) as study:
        (trial,) = study.ask()
        db = study._store._file.db
        db.execute("BEGIN IMMEDIATE")  # Ctrl-C came right after it
        db.execute("INSERT INTO tells (trial, value) VALUES (0, 7.0)")
        study.tell(trial.id, 1.5)
        assert study.results() == [(trial, 1.5)]


def test_an_interrupt_after_begin_leaves_no_transaction(path, monkeypatch):
    class Interrupted:
        def __init__(self, db):
            self.db = db

        def __getattr__(self, name):
            return getattr(self.db, name)

        def execute(self, query, *values):
            result = self.db.execute(query, *values)
            if query.startswith("BEGIN"):
                raise KeyboardInterrupt
            return result

    with Study.create(path, {"x": (0.0, 1.0)}, **FIXED) as study:
        db = study._store._file.db
        with monkeypatch.context() as patch:
            patch.setattr(study._store._file, "_db", Interrupted(db))
            with pytest.raises(KeyboardInterrupt):
                study.add({"x": 0.5}, 1.0)
        assert not db.in_transaction
        study.add({"x": 0.5}, 1.0)


@pytest.mark.parametrize("form", ["{}", "{}-wal", ".{}.study-lock"], ids=["file", "log", "lock"])
@pytest.mark.parametrize("how", ["moved", "replaced"])
def test_a_commit_to_a_file_that_is_not_there_is_refused(path, form, how):
    study = Study.create(path, {"x": (0.0, 1.0)}, **FIXED)
    study.add({"x": 0.5}, 1.0)
    name, other = path.with_name(form.format(path.name)), path.with_name("other")
    name.rename(other)
    if how == "replaced":
        name.write_bytes(other.read_bytes())
    with pytest.raises(StudyDamaged, match="moved, deleted or replaced"):
        study.add({"x": 0.25}, 2.0)
    other.rename(name)
    study.add({"x": 0.75}, 3.0)
    assert [value for _, value in study.results()] == [1.0, 3.0]
    study.close()


def test_a_closed_study_is_read_where_nothing_can_be_written(path, monkeypatch):
    filled(path, 3)
    monkeypatch.setattr(os, "access", lambda *_: False)
    with Study.open(path, readonly=True) as reader:
        assert reader.status().told == 3
        assert sorted(p.name for p in path.parent.iterdir()) == [".a.study.study-lock", "a.study"]
        Study.open(path).close()
        assert reader.status().told == 3
        with Study.open(path) as study:
            study.add({"x": 0.5}, 1.0)
        with pytest.raises(RuntimeError, match="open it again"):
            reader.results()


def test_a_backup_is_the_study_as_it_stands_on_disk(path, tmp_path):
    copy = tmp_path / "copy.study"
    with filled_study(path, 200) as study:
        with Study.open(path, readonly=True) as reader:
            study.add({"x": 0.25}, 7.0)
            reader.backup(copy)
            study.add({"x": 0.75}, 8.0)
        with Study.open(copy) as copied:
            assert copied.results() == study.results()[:-1]
            assert copied.settings == study.settings
            study.release()
            assert not copied.status().recovered
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
    filled(path, 2000)
    with Study.open(path) as study:
        with open(path, "r+b") as file:
            file.seek(4096 * 9)
            file.write(os.urandom(4096 * 3))
        study._store._file.db.execute("PRAGMA shrink_memory")  # what SQLite keeps in memory is whole
        with pytest.raises(StudyDamaged, match="tells are readable"):
            study.backup(tmp_path / "copy")
    assert not (tmp_path / "copy").exists()


def test_a_path_that_is_no_file_is_refused_by_name(tmp_path):
    loop = tmp_path / "loop"
    loop.symlink_to(tmp_path / "loop")
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for name in (tmp_path, loop, pipe):
        for call in (create, Study.open, lambda p: Study.open(p, readonly=True)):
            with pytest.raises(OSError, match=f"^{name} is no file, but a folder"):
                call(name)
    with pytest.raises(OSError, match=r"x cannot be a study \(File name too long\); choose another path"):
        create(tmp_path / ("x" * 300))
    nowhere = tmp_path / "nowhere" / "a.study"
    with pytest.raises(FileNotFoundError, match=f"^{nowhere} cannot be written: its lock .* cannot be opened"):
        create(nowhere)
    with pytest.raises(FileNotFoundError, match=f"there is no study at {nowhere}"):
        Study.open(nowhere)


@pytest.mark.parametrize("protected", ["folder", "file"])
def test_a_path_that_cannot_be_written_is_named(protected):
    with tempfile.TemporaryDirectory() as folder:  # tmp_path lies where only its owner may look
        path, new = Path(folder) / "a.study", Path(folder) / "new"
        filled(path, 1)
        for name in (path.parent, path, path.with_name(".a.study.study-lock")):
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
            said = lines.read()
        os.waitpid(child, 0)
        path.parent.chmod(0o777)
    expected = {
        "folder": f"PermissionError: {new} cannot be written: its lock",
        "file": f"StudyUnreachable: {path} cannot be",
    }
    assert said.startswith(expected[protected])


def test_a_full_disk_is_no_damage_and_names_the_file(path):
    with filled_study(path, 3) as study:
        file = study._store._file
        file.db.execute("PRAGMA max_page_count = 1")
        said = f"^{path} cannot be read or written: database or disk is full.$"
        with pytest.raises(sqlite3.OperationalError, match=said), file.explained():
            study.ask(500)
        file.db.execute("PRAGMA max_page_count = 100000")
        study.ask(500)
