"""Value-at-risk problems by name: f(x, z) with a known distribution of z, which know their best value at risk."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bo_robust.problems import nearest_name
from bo_robust.problems.robust.base import RobustProblem
from bo_robust.problems.robust.branin import branin
from bo_robust.problems.robust.digits import digits
from bo_robust.problems.robust.goldstein_price import goldstein_price
from bo_robust.problems.robust.hartmann3 import hartmann3_12, hartmann3_21
from bo_robust.problems.robust.optimum import Optimum, optimum, over_environment, regret, value_at_risk
from bo_robust.problems.robust.portfolio import portfolio
from bo_robust.problems.robust.robot_pushing import robot_pushing

__all__ = [
    "ROBUST_PROBLEMS",
    "Optimum",
    "RobustProblem",
    "make",
    "optimum",
    "over_environment",
    "regret",
    "value_at_risk",
]

ROBUST_PROBLEMS: dict[str, Callable[..., RobustProblem]] = {
    "branin": branin,
    "digits": digits,
    "goldstein_price": goldstein_price,
    "hartmann3_12": hartmann3_12,
    "hartmann3_21": hartmann3_21,
    "portfolio": portfolio,
    "robot_pushing": robot_pushing,
}


def make(name: str, /, *, data_dir: Path | str | None = None, **options: Any) -> RobustProblem:
    """The value-at-risk problem of a name.

    Args:
        name: Key of :data:`ROBUST_PROBLEMS`.
        data_dir: Folder of real data; ignored by problems that read none.
        **options: Options of the problem's factory: all take ``device`` and ``dtype``, the synthetic ones ``z``.

    Raises:
        ValueError: for an unknown name or option, naming the nearest valid one, or a bad value.
        FileNotFoundError: if a data file is not there.
        ImportError: if the problem needs a package that is not installed.
    """
    if name not in ROBUST_PROBLEMS:
        raise ValueError(f"no value-at-risk problem is called {name!r}{nearest_name(name, ROBUST_PROBLEMS)}")
    factory = ROBUST_PROBLEMS[name]
    accepted = list(inspect.signature(factory).parameters)
    settable = [p for p in accepted if p != "data_dir"]
    for option in options:
        if option not in settable:
            raise ValueError(f"problem {name!r} has no option {option!r}{nearest_name(option, settable)}")
    if "data_dir" in accepted:
        options["data_dir"] = data_dir
    return factory(**options)
