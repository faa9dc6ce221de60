"""Names of a package that are imported when they are first used (PEP 562)."""

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def on_first_use(package: str, names: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """``__getattr__`` and ``__dir__`` of a package from the names in each module, or its subpackages by "".

    A module is relative to the package, so that a dot before it leads to a sister of the package.
    """
    places = {name: module for module, listed in names.items() for name in listed.split()}

    def find(name: str) -> Any:
        if name not in places:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module = import_module(f".{places[name] or name}", package)
        return getattr(module, name) if places[name] else module

    return find, lambda: sorted({*vars(sys.modules[package]), *places})
