"""Ask/tell studies, each kept in one file: for loops without Ax that lose nothing when a machine dies.

Names load on first use: a worker process imports PyTorch only if its objective does.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bo_robust.executors import Executor, Future, InProcess, LocalProcesses, WorkerLost
    from bo_robust.study.policy import Recommendation
    from bo_robust.study.records import FAILED, Status, Trial
    from bo_robust.study.space import Arms, Box, Categorical, Float, Integer
    from bo_robust.study.store import StudyDamaged
    from bo_robust.study.study import Study

__all__ = [
    "FAILED",
    "Arms",
    "Box",
    "Categorical",
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
    "Trial",
    "WorkerLost",
]

_HOMES = {
    "bo_robust.executors": ("Executor", "Future", "InProcess", "LocalProcesses", "WorkerLost"),
    "bo_robust.study.policy": ("Recommendation",),
    "bo_robust.study.records": ("FAILED", "Status", "Trial"),
    "bo_robust.study.space": ("Arms", "Box", "Categorical", "Float", "Integer"),
    "bo_robust.study.store": ("StudyDamaged",),
    "bo_robust.study.study": ("Study",),
}


def __getattr__(name: str) -> Any:
    for home, names in _HOMES.items():
        if name in names:
            return getattr(importlib.import_module(home), name)
    raise AttributeError(f"module 'bo_robust.study' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
