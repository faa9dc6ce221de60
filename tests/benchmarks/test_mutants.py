"""Mutants are wrong where they say so and nowhere else, the sample is the same every time, and equivalent ones count
for nothing."""

import json

import pytest

from benchmarks.mutants import __main__ as command
from benchmarks.mutants.edits import found_again, mutants, name_of, sample

SOURCE = '''"""Not this 1 < 2."""

LIMIT = 3

class A:
    size: int = 4

    def f(self, x, scale=5):
        """Nor this."""
        if not x:
            raise ValueError(f"{x + 6}")
        y: float = -x[1:]
        y += min(x, π)
        self.g(y <= 0.5 and y is x)
        return None if y else True
'''
EXPECTED = [
    ("boolean", "not x", "x"),
    ("boolean", "not x", "not not x"),
    ("arithmetic", "-x[1:]", "x[1:]"),
    *(("constant", "1", new) for new in ("2", "0")),
    ("slice", "1:", "1 + 1:"),
    ("arithmetic", "y += min(x, π)", "y -= min(x, π)"),
    ("removed", "y += min(x, π)", "pass"),
    ("swap", "min(x, π)", "max(x, π)"),
    ("removed", "self.g(y <= 0.5 and y is x)", "pass"),
    ("boolean", "y <= 0.5 and y is x", "y <= 0.5 or y is x"),
    ("comparison", "y <= 0.5", "y < 0.5"),
    ("comparison", "y <= 0.5", "y > 0.5"),
    *(("constant", "0.5", new) for new in ("1.5", "1.0", "0.0")),
    ("comparison", "y is x", "y is not x"),
    ("boolean", "True", "False"),
    ("return", "return None if y else True", "return None"),
]


@pytest.fixture
def tree(tmp_path):
    (tmp_path / "bo_robust").mkdir()
    (tmp_path / "bo_robust" / "a.py").write_text(SOURCE)
    return tmp_path


def test_every_mistake_and_no_other(tree):
    """Errors, types, defaults, texts and what stands outside functions stay; the rest of the text stays as it was."""
    found = mutants(tree / "bo_robust" / "a.py", tree)
    assert sorted((m["kind"], m["before"], m["after"]) for m in found) == sorted(EXPECTED)
    for m in found:
        begin, end, put = m["edit"]
        text = SOURCE.encode()[:begin] + put.encode() + SOURCE.encode()[end:]
        compile(text, "a.py", "exec")
        assert m["function"] == "A.f"
        assert SOURCE.encode()[begin:end].decode().replace("(", "").replace(")", "") == m["before"].replace(
            "(", ""
        ).replace(")", "")
        changed = [
            i for i, (a, b) in enumerate(zip(SOURCE.split("\n"), text.decode().split("\n"), strict=True), 1) if a != b
        ]
        assert changed == [m["line"]]


def test_the_sample_repeats_itself_and_takes_kinds_in_turn(tree):
    chosen = sample(tree, {"a": 9}, 0)
    assert chosen == sample(tree, {"a": 9}, 0) != sample(tree, {"a": 9}, 1)
    kinds = [m["kind"] for m in chosen]
    assert sorted(kinds[:8]) == [
        "arithmetic",
        "boolean",
        "comparison",
        "constant",
        "removed",
        "return",
        "slice",
        "swap",
    ]
    assert kinds[9:] == ["unchanged"]
    assert chosen[-1]["edit"] == (0, 0, "")


def test_what_was_played_stays_in_the_sample(tree):
    """Also when other lines came before it."""
    first = sample(tree, {"a": 5}, 0)
    (tree / "bo_robust" / "a.py").write_text("def g(z):\n    return z * 2 + 3 - 4\n\n" + SOURCE)
    names = [name_of(m) for m in first]
    assert [name_of(m) for m in sample(tree, {"a": 5}, 0, names)] == names
    assert [name_of(m) for m in sample(tree, {"a": 5}, 1, names)] == names


def test_a_mutant_is_found_again_where_its_statements_moved(tree):
    """Neither the documentation nor the place counts; a function of other statements gives nothing to play."""
    rows = [mutant | {"room": "a"} for mutant in mutants(tree / "bo_robust" / "a.py", tree)]
    (tree / "bo_robust" / "a.py").unlink()
    (tree / "bo_robust" / "b.py").write_text(SOURCE.replace("class A", "class B").replace("Nor this", "Other words"))
    found = found_again(tree, rows, 0)
    assert sorted(name_of(row) for row, _ in found) == sorted(map(name_of, rows))
    assert all(name_of(row)[2:] == name_of(mutant)[2:] for row, mutant in found)
    assert {mutant["file"] for _, mutant in found} == {"bo_robust/b.py"}
    (tree / "bo_robust" / "b.py").write_text(SOURCE.replace("x[1:]", "x[2:]"))
    assert not found_again(tree, rows, 0)


def test_recheck_asks_the_killer_first_and_prints_what_survives(tree, capsys, monkeypatch):
    (tree / "tests").mkdir()
    (tree / "tests" / "test_a.py").touch()
    found = mutants(tree / "bo_robust" / "a.py", tree)
    killers = ["tests/test_a.py::old", "tests/test_gone.py::old", "time limit"]
    rows = [mutant | {"room": "a", "by": by} for mutant, by in zip(found, killers, strict=False)]
    asked = []

    def tried(mutant, root, reached):
        asked.append((mutant["before"], mutant["after"], [test["test"] for test in reached]))
        return {"killed": reached[0]["test"] == killers[0], "after": mutant["after"]}

    monkeypatch.setattr(command, "tried", tried)
    now = {"test": "tests/test_a.py::new", "seconds": 0.1, "lines": {"bo_robust/a.py": list(range(30))}}
    assert not command.recheck(tree, [(row, row) for row in rows], lambda room: [now] * (room == "a"))
    assert [names for *_, names in asked] == [["tests/test_a.py::old"], [now["test"]], [now["test"]]]
    *survivors, count = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert survivors == [{"killed": False, "after": row["after"], "killed_before": row["by"]} for row in rows[1:]]
    assert (count["value"], count["detail"]) == (2, {"played": 3, "by_others": 2})
    assert command.recheck(tree, [(rows[0], rows[0])], lambda room: [now])


def row(kind, killed, code="x"):
    return {
        "kind": kind,
        "killed": killed,
        "room": "a",
        "file": "a.py",
        "function": "f",
        "code": code,
        "before": "1",
        "after": "2",
    }


def test_the_summary_leaves_out_equivalent_survivors_only(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(command, "RESULTS", tmp_path)
    (tmp_path / "equivalent.jsonl").write_text(json.dumps(row("constant", False, "same") | {"reason": "no arm is 2"}))
    rows = [row("constant", True, "same"), row("constant", False, "same"), row("swap", True), row("swap", False)]
    assert not command.summarise([*rows, row("unchanged", False)])
    told = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert (told[0]["value"], told[0]["met"]) == (0, True)
    assert (told[1]["value"], told[1]["detail"]) == (0.6667, {"sampled": 4, "equivalent": 1, "a": "2 of 3"})
    assert command.summarise([row("swap", True), row("unchanged", False)])
    assert not command.summarise([row("swap", True), row("unchanged", True)])
