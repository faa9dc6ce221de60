"""V-UCB (Nguyen, Dai, Low & Jaillet 2021, Algorithm 1): the value at risk under conditions that vary."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from bo_robust.acquisition import ValueAtRiskUCB
from bo_robust.acquisition.conditions import finite_environment
from bo_robust.functionals import ValueAtRisk
from bo_robust.methods.base import GPMethod, Spec, setting
from bo_robust.models import TruncatedGP


@dataclass(frozen=True, kw_only=True)
class VUCBMethod(GPMethod):
    """V-UCB: chooses a design and the condition to observe it under.

    Args:
        environment: ``{"points": [{"z": 0.0}, ...], "probabilities": [...]}``; without probabilities all are equal.
        risk_level: alpha of the value at risk: the worst share of the conditions, the LOWER tail of the reward.
        width: By default that of the paper's experiments.
    """

    model_class = TruncatedGP
    acquisition_class = ValueAtRiskUCB

    environment: Spec
    risk_level: float = 0.1
    width: Spec = setting({"kind": "finite", "num_arms": 1})

    def __post_init__(self) -> None:
        super().__post_init__()
        finite_environment(self.environment, torch.zeros(1, dtype=torch.float64))  # raises
        ValueAtRisk(self.risk_level)  # raises

    def model_options(self, known: Mapping[str, Any]) -> dict[str, Any]:
        return super().model_options(known) | {"truncation": {"kind": "none"}}

    def acquisition_options(self, known: Mapping[str, Any]) -> dict[str, Any]:
        risk = {"environment": dict(self.environment), "functional": self.risk_level}
        return super().acquisition_options(known) | risk

    def bounds(self, acquisition: Any, X: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        lower, upper = acquisition.bounds_at(X)
        F, p = acquisition.functional, acquisition.environment.probabilities
        return F(0.5 * (lower + upper), p), F.lower_bound(lower, upper, p), F.upper_bound(lower, upper, p)
