"""Finite-arm algorithms: one published method, one file. ``gp_ucb`` is the reference.

The names are those of :mod:`bo_robust.bandits.algorithms`, which is imported when one of them is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bo_robust.bandits.algorithms import *  # noqa: F403


def __getattr__(name: str) -> Any:
    if name == "__all__" or not name.startswith("_"):
        algorithms = import_module(f"{__name__}.algorithms")
        if name in ("__all__", *algorithms.__all__):
            return getattr(algorithms, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__getattr__("__all__")})
