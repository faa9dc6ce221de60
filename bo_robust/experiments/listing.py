"""One line about every entry of a registry, read from the source: importing the classes would be slow."""

import ast
import re
from pathlib import Path

import bo_robust

# Title, module and name of every registry that a configuration, or a study, Ax and Optuna, can name entries of.
REGISTRIES = (
    ("algorithms", "bo_robust.algorithms", "ALGORITHMS"),
    ("problems", "bo_robust.experiments.problems", "PROBLEMS"),
    ("features", "bo_robust.experiments.build", "FEATURES"),
    ("widths", "bo_robust.confidence", "WIDTHS"),
    ("truncation levels", "bo_robust.truncation", "TRUNCATIONS"),
    ("methods of a study, Ax and Optuna (the first is the default)", "bo_robust.methods", "METHODS"),
    ("methods of value-at-risk runs", "bo_robust.experiments.value_at_risk.methods", "METHODS"),
)


def everything() -> dict[str, dict[str, str]]:
    """One line about every entry of every registry, by the registry's title and the entry's name."""
    return {title: registry_lines(module, name) for title, module, name in REGISTRIES}


def registry_lines(module: str, registry: str) -> dict[str, str]:
    """One line about every entry, by name, of a registry: a dict literal of classes or functions in ``module``.

    ``LookupError`` is raised if there is no such dict.
    """
    tree = _tree(module)
    for node in tree.body:
        if not isinstance(node, ast.Assign | ast.AnnAssign) or not isinstance(node.value, ast.Dict):
            continue
        target = node.target if isinstance(node, ast.AnnAssign) else node.targets[0]
        if isinstance(target, ast.Name) and target.id == registry:
            pairs = zip(node.value.keys, node.value.values, strict=True)
            return {ast.literal_eval(key): _line(module, value.id) for key, value in pairs}  # type: ignore[arg-type, attr-defined]
    raise LookupError(f"{module} has no dict {registry}.")


def plain_line(docstring: str) -> str:
    """The first sentence of a docstring, without markup."""
    text = " ".join(docstring.split("\n\n")[0].split())
    text = re.sub(r":[a-z]+:`~?(?:[\w.]*\.)?(\w+)`", r"\1", text)
    text = text.replace("``", "")
    end = re.search(r"\.(?= [A-Z(]|$)", text)
    return f"{text[: end.start()] if end else text}."


def _line(module: str, name: str) -> str:
    """The line about a class or function, found in its module or in the one it is imported from."""
    tree = _tree(module)
    for node in tree.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name == name:
            line = plain_line(ast.get_docstring(node) or "")
            # Where the class only repeats its name, the file says what it is.
            return line if " " in line else plain_line(ast.get_docstring(tree) or line)
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                if (alias.asname or alias.name) == name:
                    return _line(str(node.module), alias.name)
    raise LookupError(f"{module} has no class or function {name}.")


def _tree(module: str) -> ast.Module:
    path = Path(bo_robust.__file__).parent.joinpath(*module.split(".")[1:])
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return ast.parse(file.read_text(encoding="utf-8"))
