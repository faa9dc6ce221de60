"""Problems over (x, z): f(x, z) with a known distribution of z. Each knows its best value at risk."""

from bo_robust.experiments.problems.conditions.base import ConditionsProblem
from bo_robust.experiments.problems.conditions.optimum import (
    Optimum,
    optimum,
    over_environment,
    regret,
    value_at_risk,
)

__all__ = ["ConditionsProblem", "Optimum", "optimum", "over_environment", "regret", "value_at_risk"]
