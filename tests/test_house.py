"""The house is as its map says: imports point up the map's table only, there are no circles, and files stay short."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "bo_robust"
MAP = ROOT / "docs" / "pages" / "contributing.md"
FILES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted(PACKAGE.rglob("*.py"))
}


def rooms():
    """Row of the map's table for every room, from the first row down."""
    text = MAP.read_text().split("## The map of the house")[1].split("## ")[0]
    rows = [line.split("|")[1] for line in text.splitlines() if line.startswith("| `")]
    rows = [row for row in rows if "/`" in row or ".py`" in row]
    return {name.strip("/"): i for i, row in enumerate(rows) for name in re.findall(r"`([^`]+)`", row)}


def imports(path):
    """Modules of the package that a file imports, anywhere in it, but for types only; with the names it takes."""
    tree = ast.parse(path.read_text())
    types_only = {
        id(node)
        for block in ast.walk(tree)
        if isinstance(block, ast.If) and "TYPE_CHECKING" in ast.dump(block.test)
        for node in ast.walk(block)
    }
    for node in ast.walk(tree):
        if id(node) in types_only:
            continue
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "bo_robust":
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield (inner if inner in FILES else node.module), alias.name
        elif isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names if alias.name in FILES)


def room_of(module):
    """A room is a folder, or a file of the package's top."""
    parts = module.split(".")
    return parts[1] if (PACKAGE / parts[1]).is_dir() else f"{parts[1]}.py"


INNER = [module for module in FILES if "." in module]


def test_every_room_is_on_the_map():
    assert {room_of(module) for module in INNER} == set(rooms())


def test_imports_point_up_the_map():
    order = rooms()
    wrong = [
        f"{module} imports {target}"
        for module in INNER
        for target, _ in imports(FILES[module])
        if target != "bo_robust" and order[room_of(target)] > order[room_of(module)]
    ]
    assert not wrong


def test_there_are_no_circles():
    """Neither between files nor, seen from above, between a room's files and another room."""
    graph = {module: {t for t, _ in imports(path) if t != module} for module, path in FILES.items()}
    graph = {module: targets for module, targets in graph.items() if FILES[module].name != "__init__.py"}
    done, path = set(), []

    def visit(module):
        if module in path:
            pytest.fail("imports in a circle: " + " -> ".join([*path[path.index(module) :], module]))
        if module in done or module not in graph:
            return
        path.append(module)
        for target in sorted(graph[module]):
            visit(target)
        path.pop()
        done.add(module)

    for module in graph:
        visit(module)


def test_nobody_imports_private_names():
    places = [*FILES.values(), *(ROOT / "benchmarks").rglob("*.py"), *(ROOT / "tests").rglob("*.py")]
    taken = [f"{path.relative_to(ROOT)}: {name} of {module}" for path in places for module, name in imports(path)]
    assert not [line for line in taken if ": _" in line and ": __" not in line]


def test_files_are_short():
    long = {str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in FILES.values()}
    assert not {name: lines for name, lines in long.items() if lines > 400}


def test_methods_are_named_at_home_only():
    """Outside the rooms of methods nobody names one in a string, or asks whether an object is of one's class."""
    from bo_robust.algorithms import ALGORITHMS

    home = {"algorithms", "methods", "models", "acquisition"}
    names = re.compile(
        "[\"'](" + "|".join(re.escape(name) for name in ALGORITHMS if "-" in name) + ")[\"']"
        r"|isinstance\([^)]*(UCB|BKB|EliminationUCB|TruncatedGP|CandidateEnsemble)"
    )
    named = [
        f"{module}:{i}"
        for module in INNER
        if room_of(module) not in home
        for i, line in enumerate(FILES[module].read_text().splitlines(), 1)
        if names.search(line)
    ]
    assert len(named) <= 5, named
