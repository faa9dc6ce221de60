"""Do the tests notice a wrong line? Sampled mutants of the package, each played against the tests that run its line.

``nice python -m benchmarks.mutants [--quick | --survivors | --recheck | --summary] [--rooms ops,tails] [--each 60]``
appends one JSON object a mutant to ``benchmarks/results/mutants/seed-0.jsonl``, goes on where it stopped, and prints
the summary; the last row of a mutant counts. ``equivalent.jsonl`` beside it lists survivors whose behaviour cannot
differ, with the reason. ``--recheck``, after tests were cut, plays the mutants that were killed before and whose
statement is still there: first against the test that killed it, then against those of its room. It keeps no rows.

A mutant changes one expression or statement of one function, in a private copy of the tree. First every test file plays
once unharmed, traced: a mutant then meets the tests that run its statement, mirrored ones first, and no others. A test
file is traced for ``TRACED`` seconds; a test that took over ``LONGEST`` meets no mutant, and a mutant meets tests of
``PATIENCE`` seconds. Mutants that change nothing (``unchanged``) must survive. Every play is a fork of a process that
has imported PyTorch, BoTorch and pytest, and nothing of the package.
"""

from __future__ import annotations

import argparse
import compileall
import hashlib
import json
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from functools import cache
from itertools import accumulate
from pathlib import Path
from typing import Any

os.environ |= {"TRITON_INTERPRET": "1", "CI": "1"}  # CI: Hypothesis draws the same examples every time
import botorch  # noqa: F401
import hypothesis  # noqa: F401
import pandas  # noqa: F401
import pytest

from benchmarks.common import ROOT, environment, report
from benchmarks.mutants.edits import Row, files, found_again, name_of, sample

RESULTS = ROOT / "benchmarks" / "results" / "mutants"
ROOMS = dict.fromkeys(["experiments", "methods", "ops", "methods", "integrations", "tails", "environments"], 60)
ROOMS |= dict.fromkeys(["posteriors", "confidence", "truncation", "functionals"], 30)
ROOMS |= dict.fromkeys(["models", "acquisition", "features", "study"], 30)
TESTS = [*ROOMS, "contract", "executors", "continuous_loop", "two_faces", "mistakes", "covariance", "validation"]
MEMORY = 12 << 30  # bytes of address space
# Seconds of CPU while traced: of a test file, of a test that a mutant meets, and of all that it meets.
TRACED, LONGEST, PATIENCE = 60.0, 5.0, 20.0
OPTIONS = ["-q", "-o", "addopts=", "--import-mode=importlib", "-p", "no:cacheprovider", "-p", "no:xdist", "-m"]


class Plugin:
    """Runs wanted tests in the wanted order and tells which fail; without any wanted, it traces all."""

    def __init__(self, root: Path, wanted: list[str], out: Path) -> None:
        self.root, self.out, self.rank = f"{root}/", out, {name: i for i, name in enumerate(wanted)}
        self.hits: dict[str, set[int]] = defaultdict(set)

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        if self.rank:
            items[:] = sorted((i for i in items if i.nodeid in self.rank), key=lambda i: self.rank[i.nodeid])

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed:
            keep(self.out, {"failed": report.nodeid})

    pytest_collectreport = pytest_runtest_logreport

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: Any) -> Any:
        self.hits.clear()
        sys.settrace(None if self.rank else self.trace)
        began = time.process_time()
        result = yield
        sys.settrace(None)
        if not self.rank:
            lines = {name: sorted(lines) for name, lines in self.hits.items()}
            keep(self.out, {"test": item.nodeid, "seconds": time.process_time() - began, "lines": lines})
        return result

    def trace(self, frame: Any, *_: Any) -> Any:
        name = frame.f_code.co_filename
        if name.startswith(self.root + "bo_robust"):
            self.hits[name.removeprefix(self.root)].add(frame.f_lineno)
            return self.trace


def play(root: Path, paths: list[str], wanted: list[str], limit: float) -> tuple[list[Row], str | None]:
    """What a fork tells that runs the tests, in ``limit`` seconds of CPU, and how it ended if not as pytest ends."""
    out = Path(tempfile.mkstemp(dir=root.parent)[1])
    pid = os.fork()
    if pid == 0:
        os.setsid()
        resource.setrlimit(resource.RLIMIT_CPU, (int(limit), int(limit) + 1))
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))  # a search without end must not take the machine
        os.dup2(os.open(root.parent / "output", os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 1)
        os.dup2(1, 2)
        os.chdir(root)
        os.environ["PYTHONPATH"] = str(root)
        sys.path[:] = [str(root), *(path for path in sys.path if path not in ("", str(ROOT)))]
        code = pytest.main([*OPTIONS, "not slow", *["-x"] * bool(wanted), *paths], plugins=[Plugin(root, wanted, out)])
        os._exit(int(code))
    began, ended = time.monotonic(), None
    while not (done := os.waitpid(pid, os.WNOHANG))[0]:
        if ended is None and time.monotonic() - began > 20.0 * limit:  # it waits, or the machine is very busy
            ended = "time limit"
            os.killpg(pid, signal.SIGKILL)
        time.sleep(0.02)
    if ended is None and (code := os.waitstatus_to_exitcode(done[1])) not in (0, 1, 2, 5):
        ended = f"exit code {code}"
    return read(out), ended


def read(path: Path) -> list[Row]:
    """Rows of a file, none if there is none."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def keep(path: Path, row: Row) -> Row:
    """Append a row."""
    with path.open("a") as stream:
        stream.write(json.dumps(row) + "\n")
    return row


def reach(root: Path, paths: list[Path], store: Path) -> list[Row]:
    """Tests that pass on the unharmed tree with their seconds and the lines they run, stored."""
    source = b"".join(path.read_bytes() for path in sorted((root / "bo_robust").rglob("*.py")))
    known = {row["key"]: row for row in read(store)}
    found = []
    for path in paths:
        key = hashlib.sha256(source + path.read_bytes()).hexdigest()
        if key not in known:
            told, ended = play(root, [str(path)], [], TRACED)
            bad = {row["failed"] for row in told if "failed" in row}
            good = [row for row in told if row.get("test") not in {None, *bad} and row["seconds"] < LONGEST]
            if bad or ended or len(good) < len(told):
                print(f"{path}: {len(good)} of {len(told)} tests meet mutants {ended} {sorted(bad)}", file=sys.stderr)
            known[key] = keep(store, {"key": key, "tests": good})
        found += known[key]["tests"]
    return found


def meets(mutant: Row, tests: list[Row]) -> list[Row]:
    """Tests that run the mutant's statement, mirrored ones first, then the fastest, for :data:`PATIENCE`."""
    path, lines = Path(mutant["file"]), set(mutant["lines"])
    mirror = mutant["file"].replace("bo_robust", "tests", 1).replace(path.name, f"test_{path.name}")
    reached = [test for test in tests if not lines.isdisjoint(test["lines"].get(mutant["file"], ()))]
    reached = reached or [test for test in tests if mutant["file"] in test["lines"]]  # forks are not traced
    reached.sort(key=lambda test: (not test["test"].startswith(mirror), test["seconds"]))
    spent = accumulate(test["seconds"] for test in reached)
    return [test for test, seconds in zip(reached, spent, strict=True) if seconds < PATIENCE]


def tried(mutant: Row, root: Path, reached: list[Row]) -> Row:
    """Play a mutant against tests: its row, with the test that killed it."""
    path, (begin, end, put) = root / mutant["file"], mutant["edit"]
    sys.dont_write_bytecode = True  # that of the unharmed tree stays
    wanted = [test["test"] for test in reached]
    paths = list(dict.fromkeys(name.split("::")[0] for name in wanted))
    limit = 30.0 + 5.0 * sum(test["seconds"] for test in reached)
    text, kept, began = path.read_bytes(), path.stat(), time.monotonic()
    path.write_bytes(text[:begin] + put.encode() + text[end:])
    told, ended = play(root, paths, wanted, limit) if wanted else ([], None)
    path.write_bytes(text)
    os.utime(path, ns=(kept.st_atime_ns, kept.st_mtime_ns))  # bytecode of the unharmed file stays valid
    by, seconds = told[0]["failed"] if told else ended, round(time.monotonic() - began, 1)
    mutant = {name: value for name, value in mutant.items() if name not in ("edit", "lines")}
    return mutant | {"killed": by is not None, "by": by, "tests": len(wanted), "seconds": seconds}


def recheck(root: Path, pairs: list[tuple[Row, Row]], tests: Callable[[str], list[Row]]) -> bool:
    """Print the mutants that survive though they were killed before; whether there is none. The tests must pass."""
    others, survivors = 0, 0
    for row, mutant in pairs:
        by, room = str(row["by"]), Path(mutant["file"]).parts[1].removesuffix(".py")
        stands = (root / by.split("::")[0]).is_file()
        if not (stands and tried(mutant, root, [{"test": by, "seconds": LONGEST}])["killed"]):
            others += 1
            again = tried(mutant, root, meets(mutant, tests(room)))
            survivors += not again["killed"]
            if not again["killed"]:
                print(json.dumps(again | {"killed_before": by}), flush=True)
    report("survive_now", survivors, "count", "0", survivors == 0, {"played": len(pairs), "by_others": others})
    return survivors == 0


def summarise(rows: list[Row]) -> bool:
    """Report the share killed, without equivalent ones; whether both targets were met."""
    equivalent = {name_of(row) for row in read(RESULTS / "equivalent.jsonl")}
    same = [row["killed"] for row in rows if row["kind"] == "unchanged"]
    report("unchanged_killed", sum(same), "count", "0", not any(same), {"played": len(same)})
    rows = [row for row in rows if row["kind"] != "unchanged"]
    left = [row for row in rows if row["killed"] or name_of(row) not in equivalent]
    detail: Row = {"sampled": len(rows), "equivalent": len(rows) - len(left)}
    for room in dict.fromkeys(row["room"] for row in rows):
        killed = [row["killed"] for row in left if row["room"] == room]
        detail[room] = f"{sum(killed)} of {len(killed)}"
    share = sum(row["killed"] for row in left) / max(1, len(left))
    report("mutants_killed", share, "share", ">= 0.95", share >= 0.95, detail)
    return share >= 0.95 and not any(same)


def main() -> None:
    """Play the sample."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="five mutants within a minute, nothing kept")
    parser.add_argument("--survivors", action="store_true", help="play again those that survived")
    parser.add_argument("--recheck", action="store_true", help="play again those that were killed")
    parser.add_argument("--summary", action="store_true", help="play nothing, sum up what was played")
    parser.add_argument("--rooms", help="these rooms only, separated by commas")
    parser.add_argument("--each", type=int, help="so many mutants of every room, in place of those of ROOMS")
    parser.add_argument("--first", type=int, help="so many mutants of --recheck")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    print(json.dumps({"environment": environment()}), flush=True)
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch) / "tree"
        shutil.copytree(ROOT, root, ignore=shutil.ignore_patterns(".git", "build", ".*_cache"))
        rooms, places = {room: options.each or each for room, each in ROOMS.items()}, TESTS
        if options.rooms:
            rooms = {room: rooms[room] for room in options.rooms.split(",")}
        out, store = RESULTS / f"seed-{options.seed}.jsonl", ROOT / "build" / "reach.jsonl"
        if options.quick:
            rooms, places, out, store = {"truncation": 5}, ["truncation"], root / "out", root / "reach"
        out.parent.mkdir(exist_ok=True)
        store.parent.mkdir(exist_ok=True)
        played = {name_of(row): row for row in read(out)}
        compileall.compile_dir(root / "bo_robust", quiet=1)

        @cache
        def tests(*rooms: str) -> list[Row]:
            paths = [path for room in rooms for path in files(root / "tests", room, "test_") if path.is_file()]
            return reach(root, paths, store)

        if options.recheck:
            killed = [row for row in played.values() if row["killed"] and row["room"] in rooms]
            met = recheck(root, found_again(root, killed, options.seed)[: options.first], tests)
        else:
            chosen = sample(root, rooms, options.seed, played)
            for mutant in [] if options.summary else chosen:
                name = name_of(mutant)
                if name not in played or (options.survivors and not played[name]["killed"]):
                    played[name] = keep(out, tried(mutant, root, meets(mutant, tests(*places))))
            met = summarise([played[name] for name in map(name_of, chosen) if name in played])
    sys.exit(not met)


if __name__ == "__main__":
    main()
