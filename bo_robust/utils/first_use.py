"""Names of a package that are imported when they are first used (PEP 562)."""

import ast
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any


def on_first_use(package: str) -> tuple[list[str], Callable[[str], Any], Callable[[], list[str]]]:
    """``__all__``, ``__getattr__`` and ``__dir__`` of a package that imports its names for type checkers only.

    Its ``__init__.py`` is read: the imports under ``if TYPE_CHECKING:`` are the one list of the names.
    """
    module = sys.modules[package]
    loader: Any = module.__loader__
    places: dict[str, str] = {}
    for statement in ast.parse(loader.get_source(package)).body:
        if isinstance(statement, ast.If) and ast.unparse(statement.test) == "TYPE_CHECKING":
            for line in statement.body:
                assert isinstance(line, ast.ImportFrom)
                places |= {alias.name: str(line.module) for alias in line.names}

    def find(name: str) -> Any:
        if name not in places:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        if places[name] == package:
            return import_module(f"{package}.{name}")
        return getattr(import_module(places[name]), name)

    return sorted(places), find, lambda: sorted({*vars(module), *places})
