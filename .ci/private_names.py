"""Count private names of other packages outside ``bo_robust/utils/upstream.py``: ``python .ci/private_names.py``.

It fails if there is one. A private name is of another package if no class of this package defines it, or if
``upstream.py`` lists it as used. Names that our classes override are counted apart.
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
UPSTREAM = ROOT / "bo_robust" / "utils" / "upstream.py"
PACKAGES = {"torch", "gpytorch", "botorch", "linear_operator", "ax", "optuna", "baybe", "bofire"}
STANDARD_LIBRARY = {"_replace", "_asdict", "_fields", "_exit", "_actions"}


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def listed(tree: ast.Module, table: str) -> set[str]:
    """The last parts of the names in a table of ``upstream.py``."""
    values = [node.value for node in tree.body if isinstance(node, ast.Assign) and node.targets[0].id == table]
    return {place.rsplit(":")[-1].rsplit(".")[-1] for place in ast.literal_eval(values[0])}


def in_bodies(tree: ast.Module) -> set[str]:
    """What the classes of a file define in their body: methods, and attributes with a value."""
    bodies = [node for cls in ast.walk(tree) if isinstance(cls, ast.ClassDef) for node in cls.body]
    assigned = [target for node in bodies for target in getattr(node, "targets", [getattr(node, "target", None)])]
    valued = {name.id for target in assigned if target for name in ast.walk(target) if isinstance(name, ast.Name)}
    return valued | {node.name for node in bodies if isinstance(node, ast.FunctionDef)}


def of_self(tree: ast.Module) -> set[str]:
    """Attributes of ``self`` that the statements of a file set."""
    attributes = (node for node in ast.walk(tree) if isinstance(node, ast.Attribute))
    return {x.attr for x in attributes if isinstance(x.ctx, ast.Store) and ast.unparse(x.value) == "self"}


def foreign(tree: ast.Module, ours: set[str], used: set[str]) -> Iterator[tuple[int, str]]:
    """Line and text of each name of another package in a file; ``ours`` are names of all files."""
    used = used - in_bodies(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in PACKAGES:
            path = str(node.module).split(".")
            for name in (alias.name for alias in node.names):
                if name in used or any(map(is_private, [*path, name])):
                    yield node.lineno, f"{node.module}.{name}"
        elif isinstance(node, ast.Attribute):
            unknown = is_private(node.attr) and node.attr not in ours
            if node.attr in used or unknown:
                yield node.lineno, ast.unparse(node)


def main() -> int:
    """Print what was found, and the counts; return 1 if something was."""
    files = {path: ast.parse(path.read_text("utf-8")) for path in sorted((ROOT / "bo_robust").rglob("*.py"))}
    tree = files.pop(UPSTREAM)
    used, overridden = listed(tree, "USED"), listed(tree, "OVERRIDDEN")
    ours = overridden | STANDARD_LIBRARY | {name for each in files.values() for name in in_bodies(each) | of_self(each)}
    found = [(path, *hit) for path, each in files.items() for hit in foreign(each, ours, used - overridden)]
    for path, line, text in found:
        print(f"{path.relative_to(ROOT)}:{line}: {text}")
    print(f"names of other packages: {len(found)} outside upstream.py, {len(used)} in it, {len(overridden)} overridden")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
