"""V-UCB (Nguyen, Dai, Low & Jaillet 2021, Algorithm 1): the value at risk under conditions that vary."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from bo_robust.acquisition import ValueAtRiskUCB
from bo_robust.acquisition.conditions import finite_environment
from bo_robust.functionals import ValueAtRisk
from bo_robust.methods.base import Spec, setting
from bo_robust.methods.robust import JudgingMethod

WIDTH = {"kind": "finite", "num_arms": 1}  # of the paper's experiments; a study, Ax and runs play it


@dataclass(frozen=True, kw_only=True)
class VUCBMethod(JudgingMethod):
    """V-UCB: chooses a design and the condition to observe it under, the most probable lacing value.

    A faulty reading looks like the bad tail, so the model is a ``RobustGP``.

    Args:
        width: w, a number or ``{"kind": name in WIDTHS, ...}``. By default that of the paper's experiments.
        environment: ``{"points": [{"z": 0.0}, ...], "probabilities": [...]}``; without probabilities all are equal.
        risk_level: alpha of the value at risk: the worst share of the conditions, the LOWER tail of the reward.
    """

    acquisition_class = ValueAtRiskUCB

    width: Spec = setting(WIDTH)
    environment: Spec
    risk_level: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        finite_environment(self.environment, torch.zeros(1, dtype=torch.float64))  # raises
        ValueAtRisk(self.risk_level)  # raises

    def acquisition_options(self, known: Mapping[str, Any]) -> dict[str, Any]:
        risk = {"environment": dict(self.environment), "functional": self.risk_level}
        return super().acquisition_options(known) | risk

    def bounds(self, acquisition: Any, X: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        lower, upper = acquisition.bounds_at(X)
        F, p = acquisition.functional, acquisition.environment.probabilities
        return F(0.5 * (lower + upper), p), F.lower_bound(lower, upper, p), F.upper_bound(lower, upper, p)
