"""Value-at-risk problems by name: f(x, z) with a known distribution of z. Each knows its best value at risk."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from bo_robust.experiments.problems.value_at_risk.base import ValueAtRiskKind, ValueAtRiskProblem
from bo_robust.experiments.problems.value_at_risk.digits import Digits
from bo_robust.experiments.problems.value_at_risk.fine_tuning import FineTuning
from bo_robust.experiments.problems.value_at_risk.optimum import (
    Optimum,
    optimum,
    over_environment,
    regret,
    value_at_risk,
)
from bo_robust.experiments.problems.value_at_risk.portfolio import Portfolio
from bo_robust.experiments.problems.value_at_risk.recipe import Recipe
from bo_robust.experiments.problems.value_at_risk.robot_pushing import RobotPushing
from bo_robust.experiments.problems.value_at_risk.synthetic import (
    Branin,
    GoldsteinPrice,
    Hartmann3OneTwo,
    Hartmann3TwoOne,
)
from bo_robust.specs import build

__all__ = [
    "VALUE_AT_RISK_PROBLEMS",
    "Optimum",
    "ValueAtRiskKind",
    "ValueAtRiskProblem",
    "make",
    "optimum",
    "over_environment",
    "regret",
    "value_at_risk",
]

VALUE_AT_RISK_PROBLEMS: dict[str, Callable[..., ValueAtRiskKind]] = {
    "branin": Branin,
    "digits": Digits,
    "fine_tuning": FineTuning,
    "goldstein_price": GoldsteinPrice,
    "hartmann3_12": Hartmann3OneTwo,
    "hartmann3_21": Hartmann3TwoOne,
    "portfolio": Portfolio,
    "recipe": Recipe,
    "robot_pushing": RobotPushing,
}


def make(
    name: str,
    /,
    *,
    data_dir: Path | str | None = None,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float64,
    **options: Any,
) -> ValueAtRiskProblem:
    """Make the problem of a name, a key of :data:`VALUE_AT_RISK_PROBLEMS`, with tensors on ``device`` and in ``dtype``.

    ``data_dir``, settings and errors are as in :func:`bo_robust.experiments.problems.make_problem`.
    """
    context = {"data_dir": data_dir}
    kind: ValueAtRiskKind = build({**options, "kind": name}, VALUE_AT_RISK_PROBLEMS, context, "value-at-risk problem")
    return kind.make(device, dtype)
