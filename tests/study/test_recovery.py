"""Damage of the file and of its log: nothing acknowledged is lost or changed in silence, nothing is touched."""

import os
import random
import shutil
import signal
import sqlite3
import tempfile
from pathlib import Path

import pytest

from bo_robust.study import Study, StudyDamaged, salvage
from bo_robust.study.schema import add_checksum

FIXED = {"lengthscale": 0.2, "outputscale": 1.0, "noise_var": 0.1, "restarts": 2, "raw_samples": 16}
FRAME = 24 + 4096


@pytest.fixture
def path(tmp_path):
    return tmp_path / "a.study"


def killed(path, n=20, before=0):
    """A study whose writer was killed after n tells, ``before`` of others that are in the file."""
    child = os.fork()
    if child == 0:
        try:
            study = Study.create(path, {"x": (0.0, 1.0)}, num_initial=10000, **FIXED)
            if before:
                study.tell_many([(trial.id, trial.id / 8) for trial in study.ask(before)])
                study.close()
                study = Study.open(path)
            for trial in study.ask(n):
                study.tell(trial.id, trial.id / 8)
            os.kill(os.getpid(), signal.SIGKILL)
        finally:
            os._exit(1)
    _, status = os.waitpid(child, 0)
    assert os.WTERMSIG(status) == signal.SIGKILL
    return path.with_name("a.study-wal")


def contents(path):
    """Of the files beside it; SQLite may make an empty log where there is none."""
    return {p.name: p.read_bytes() for p in path.parent.iterdir() if "-shm" not in p.name and p.stat().st_size}


def refused(path, match, opening=(Study.open, lambda p: Study.open(p, readonly=True))):
    before = contents(path)
    for call in opening:
        with pytest.raises(StudyDamaged, match=match):
            call(path)
        assert contents(path) == before


def create(path):
    return Study.create(path, {"x": (0.0, 1.0)}, **FIXED)


@pytest.mark.parametrize("lose", [os.unlink, lambda path: os.truncate(path, 0)], ids=["deleted", "emptied"])
def test_a_log_whose_file_is_gone_is_refused_and_salvaged(path, lose):
    killed(path)
    lose(path)
    refused(path, "missing or empty, but not its log.* 20 tells are readable", (Study.open, create))
    rows = salvage(path)
    assert [(row["id"], row["value"]) for row in rows] == [(i, i / 8) for i in range(20)]
    assert all(0 <= row["x"]["x"] <= 1 for row in rows)


def test_a_created_study_is_whole_without_its_log(path):
    killed(path)
    copy = path.with_name("copy")
    copy.write_bytes(path.read_bytes())
    with Study.open(copy) as study:
        assert study.settings["settings"]["noise_var"] == 0.1
        assert study.status().asked == 0


@pytest.mark.parametrize(
    ("at", "left"),
    [(0, 500), (20, 500), (40, 500), (32 + 500, 500), (32 + 12 * FRAME + 50, r"50\d")],
    ids=["magic", "salt", "first frame", "first page", "middle"],
)
def test_a_log_damaged_before_acknowledged_commits_is_refused(path, at, left):
    log = killed(path, before=500)
    with open(log, "r+b") as file:
        file.seek(at)
        old = file.read(1)
        file.seek(at)
        file.write(bytes([old[0] ^ 0x55]))
    refused(
        path, rf"acknowledged 520 trials and 520 tells; 5[02]0 and {left} are left, because its log {log} is damaged"
    )
    rows = salvage(path)
    assert len(rows) >= 519
    assert all(row["value"] == row["id"] / 8 for row in rows)
    assert sum(row["x"] is None for row in rows) < 100  # those on one page


@pytest.mark.parametrize("harm", ["first", "last commit", "ends a commit", "torn", "emptied", "deleted"])
def test_acknowledged_tells_that_the_log_lost_are_said_and_one_can_go_on_without_them(path, harm):
    log = killed(path)
    data = bytearray(log.read_bytes())
    ends = [start for start in range(32, len(data), FRAME) if data[start + 4 : start + 8] != bytes(4)]
    if harm == "first":
        data[32 + 500] ^= 1
    elif harm == "last commit":
        data[-10:-5] = b"\xff" * 5
    elif harm == "ends a commit":  # the size that marks the end of the last but one
        data[ends[-2] + 4 : ends[-2] + 8] = bytes(4)
    log.write_bytes(data[:-12000] if harm == "torn" else data[:20] if harm == "emptied" else data)
    if harm == "deleted":
        log.unlink()
    left = {"last commit": 19, "ends a commit": 18, "torn": 18}.get(harm, 0)
    asked = 20 if left else 0
    refused(path, f"acknowledged 20 trials and 20 tells; {asked} and {left} are left")
    kept = {row["id"]: row["value"] for row in salvage(path)}
    assert kept == {i: i / 8 for i in kept}
    assert len(kept) >= (left if harm in ("torn", "emptied", "deleted") else 19)
    path.with_name(".a.study.study-lock").unlink()  # as the message says
    with Study.open(path) as study:
        assert [(t.id, v) for t, v in study.results()] == [(i, i / 8) for i in range(left)]
        assert study.status().recovered == (harm not in ("emptied", "deleted"))
        assert os.path.getsize(log) <= (20 if harm == "emptied" else 0)  # nothing stale stays behind the tear
    with Study.open(path) as study:
        assert not study.status().recovered


def test_an_interrupted_commit_is_no_damage(path):
    log = killed(path, n=3)
    whole = log.read_bytes()
    log.write_bytes(whole + whole[32 : 32 + 2 * FRAME - 700])  # frames of no commit
    with Study.open(path) as study:
        assert study.status().recovered
        assert study.status().told == 3


@pytest.mark.parametrize("which", ["a.study", "a.study-wal"])
def test_a_flipped_bit_changes_nothing_in_silence(path, which):
    killed(path, before=100)
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "a.study"
        for seed in range(60):
            for file in path.parent.iterdir():
                if "-shm" not in file.name:
                    shutil.copy(file, folder)
            choice, target = random.Random(seed), Path(folder) / which
            data = bytearray(target.read_bytes())
            data[choice.randrange(len(data))] ^= 1 << choice.randrange(8)
            target.write_bytes(data)
            try:
                with Study.open(copy) as study:
                    assert [(t.id, v) for t, v in study.results()] == [(i, i / 8) for i in range(120)]
                    assert study.status().asked == 120
            except StudyDamaged:
                assert all(row["value"] == row["id"] / 8 for row in salvage(copy))
            for file in Path(folder).iterdir():
                file.unlink()


def test_an_older_file_beside_the_lock_of_a_killed_writer_is_said(path):
    create(path).close()
    older = path.read_bytes()
    path.unlink()
    log = killed(path, n=5)
    Study.open(path).close()
    assert not log.exists()
    path.write_bytes(older)
    Study.open(path).close()  # that writer closed it: a file that was put back is the study
    path.unlink()
    killed(path, n=5).unlink()
    path.write_bytes(older)
    refused(path, "0 and 0 are left, because .* the file is an older one")


def test_a_damaged_file_keeps_its_log(path):
    log = killed(path, n=3, before=500).read_bytes()
    assert bytes(3) + b"\x01" not in [
        log[at : at + 4] for at in range(32, len(log), FRAME)
    ]  # else it would heal page 1
    with open(path, "r+b") as file:
        file.seek(68)
        file.write(bytes(4))  # application_id
    refused(path, "its application_id is 0.* 503 tells are readable")


@pytest.mark.parametrize("at", [0, 100, 3800], ids=["header", "page", "schema"])
def test_a_garbled_first_page_costs_no_row(path, at):
    killed(path, before=500)
    with open(path, "r+b") as file:
        file.seek(at)
        file.write(b"garbage!" * 4)
    rows = salvage(path)
    assert [(row["id"], row["value"]) for row in rows] == [(i, i / 8) for i in range(520)]
    with pytest.raises(FileNotFoundError, match="neither"):
        salvage(path.with_name("other"))


def written(path, *statements):
    create(path).close()
    with sqlite3.connect(path) as db:
        add_checksum(db)
        for statement in statements:
            db.execute(statement)
    db.close()


@pytest.mark.parametrize(
    "statements",
    [
        ("INSERT INTO trials (id, x, asked_after) VALUES (0, CAST(x'7bff7d' AS TEXT), 0)",),
        ("PRAGMA user_version = 1",),
        ("DELETE FROM settings",),
        ("PRAGMA user_version = 0",),
        ("UPDATE settings SET json = CAST(x'7bff7d' AS TEXT)",),
        ("UPDATE settings SET json = '{}', checksum = NULL",),
        ("INSERT INTO trials VALUES (1, '{}', 0, 0, checksum_of(1, '{}', 0))",),
        ("INSERT INTO tells VALUES (1, 0, 0.5, checksum_of(0, 0.5))",),
    ],
    ids=["UTF-8", "version 1", "no settings", "version 0", "settings", "checksum", "a gap", "a tell of none"],
)
def test_what_is_not_a_study_is_said_to_be_damaged(path, statements):
    written(path, *statements)
    with pytest.raises(StudyDamaged, match=r"a\.study is damaged"):
        Study.open(path)


@pytest.mark.parametrize("table", ["trials", "tells", "settings"])
def test_a_flipped_bit_of_a_value_is_seen(path, table):
    with create(path) as study:
        for trial in study.ask(3):
            study.tell(trial.id, 0.5)
    cell = {"trials": "x = replace(x, '0.', '1.')", "tells": "value = 0.75", "settings": "json = json || ' '"}[table]
    where = "" if table == "settings" else "WHERE rowid = 2"
    with sqlite3.connect(path) as db:
        db.execute(f"UPDATE {table} SET {cell} {where}")
    db.close()
    with pytest.raises(StudyDamaged, match=f"1 rows of {table} do not fit their checksums"):
        Study.open(path)
    rows = [(row["id"], row["x"] is None, row["value"]) for row in salvage(path)]
    kept = {"trials": [(0, False, 0.5), (1, False, 0.5), (2, True, 0.5)], "tells": [(0, False, 0.5), (2, False, 0.5)]}
    assert rows == kept.get(table, [(i, False, 0.5) for i in range(3)])


def test_salvage_takes_any_type_of_x(path):
    written(path, "CREATE TABLE t (x)")
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA writable_schema = ON")
        db.execute("UPDATE sqlite_master SET sql = replace(sql, 'x TEXT', 'x BLOB') WHERE name = 'trials'")
    with sqlite3.connect(path) as db:
        db.execute("INSERT INTO trials (id, x) VALUES (0, 5), (1, x'ff'), (2, '{\"x\": 0.5}')")
        db.execute("INSERT INTO tells (seq, trial, value) VALUES (1, 0, 1.5), (2, 1, NULL), (3, 2, 2.5)")
    assert salvage(path) == [
        {"id": 0, "x": None, "value": 1.5},
        {"id": 1, "x": None, "value": None},
        {"id": 2, "x": {"x": 0.5}, "value": 2.5},
    ]
