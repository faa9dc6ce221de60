"""Ask/tell studies in a file: for loops without Ax that lose nothing when a machine dies.

Names load on first use, so that a worker process imports no PyTorch unless its objective does.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bo_robust.study.executors import Executor, Future, InProcess, LocalProcesses, WorkerLost
    from bo_robust.study.methods import Recommendation
    from bo_robust.study.records import FAILED, Status, Trial
    from bo_robust.study.recovery import salvage
    from bo_robust.study.space import Arms, Box, Float, Integer
    from bo_robust.study.store import StudyDamaged, StudyLocked
    from bo_robust.study.study import Study

__all__ = [
    "FAILED",
    "Arms",
    "Box",
    "Executor",
    "Float",
    "Future",
    "InProcess",
    "Integer",
    "LocalProcesses",
    "Recommendation",
    "Status",
    "Study",
    "StudyDamaged",
    "StudyLocked",
    "Trial",
    "WorkerLost",
    "salvage",
]

_HOMES = {
    "executors": ("Executor", "Future", "InProcess", "LocalProcesses", "WorkerLost"),
    "methods": ("Recommendation",),
    "records": ("FAILED", "Status", "Trial"),
    "recovery": ("salvage",),
    "space": ("Arms", "Box", "Float", "Integer"),
    "store": ("StudyDamaged", "StudyLocked"),
    "study": ("Study",),
}


def __getattr__(name: str) -> Any:
    for home, names in _HOMES.items():
        if name in names:
            return getattr(importlib.import_module(f"bo_robust.study.{home}"), name)
    raise AttributeError(f"module 'bo_robust.study' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
