"""Damage beside the file, in its log: nothing acknowledged is dropped in silence, nothing is touched."""

import os
import signal
import sqlite3

import pytest

from bo_robust.study import Study, StudyDamaged, StudyLocked, salvage
from bo_robust.study.recovery import read_log
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
    return {p.name: p.read_bytes() for p in path.parent.iterdir() if p.suffix != ".lock" and "-shm" not in p.name}


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
    ("at", "match"),
    [
        (0, "header of its log"),
        (20, "header of its log"),
        (40, "20|21 commits at or behind"),
        (32 + 500, "commits at or behind"),
        (32 + 12 * FRAME + 50, "commits at or behind"),
    ],
    ids=["magic", "salt", "first frame", "first page", "middle"],
)
def test_a_log_damaged_before_acknowledged_commits_is_refused(path, at, match):
    log = killed(path, before=500)
    with open(log, "r+b") as file:
        file.seek(at)
        old = file.read(1)
        file.seek(at)
        file.write(bytes([old[0] ^ 0x55]))
    refused(path, match)
    rows = salvage(path)
    assert len(rows) >= 519
    assert all(row["value"] == row["id"] / 8 for row in rows)
    assert sum(row["x"] is None for row in rows) < 100  # those on one page


def test_the_log_is_read_as_sqlite_reads_it(path):
    log = killed(path)
    found = read_log(log)
    assert found.sound
    assert (found.lost, found.page_size) == (0, 4096)
    data = bytearray(path.read_bytes())
    for page, body in found.pages.items():
        data[(page - 1) * 4096 : page * 4096] = body
    Study.open(path).close()  # puts the log into the file
    assert not log.exists()
    with sqlite3.connect(path) as db:
        assert db.execute("PRAGMA page_count").fetchone() == (len(data) // 4096,)
    assert path.read_bytes()[100:] == bytes(data)[100:]


def test_a_damaged_last_commit_is_a_torn_tail(path):
    log = killed(path)
    with open(log, "r+b") as file:
        file.seek(-10, os.SEEK_END)
        file.write(b"\xff" * 5)
    assert read_log(log).lost == 1
    with Study.open(path) as study:
        assert study.status().recovered
        assert study.status().told == 19
        assert os.path.getsize(log) == 0  # nothing stale stays behind the tear


def test_the_frame_that_ends_an_acknowledged_commit_is_damaged(path):
    log = killed(path)
    frames = range(32, os.path.getsize(log), FRAME)
    data = log.read_bytes()
    ends = [start for start in frames if data[start + 4 : start + 8] != bytes(4)]
    for byte in (8, 7):  # of the salt, of the size that marks the end of a commit
        damaged = bytearray(data)
        damaged[ends[-2] + byte] ^= 0xFF
        if byte == 7:
            damaged[ends[-2] + 4 : ends[-2] + 8] = bytes(4)
        log.write_bytes(damaged)
        assert read_log(log).lost == 2
        refused(path, "2 commits at or behind the damaged part")


@pytest.mark.parametrize("left", [None, 0, 20])
def test_a_log_that_is_gone_is_a_crash(path, left):
    log = killed(path)
    if left is None:
        log.unlink()
    else:
        os.truncate(log, left)
    with Study.open(path) as study:
        assert study.status().recovered  # of what was told nothing is there: the counts say so
        assert study.status().told == 0
    with Study.open(path) as study:
        assert not study.status().recovered


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


def test_a_damaged_file_keeps_its_log(path):
    log = killed(path, n=3, before=500)
    assert 1 not in read_log(log).pages  # else the log would heal what follows
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
