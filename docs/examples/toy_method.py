"""GP-UCB with a constant width: the smallest method there is, over finite arms and in BoTorch.

The page on contributing shows this file, and ``tests/methods/test_toy_method.py`` plays it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from bo_robust.algorithms.base import ArmAlgorithm, Selection, State
from bo_robust.algorithms.gp_ucb import select_ucb
from bo_robust.confidence import ConstantWidth
from bo_robust.methods.base import GPMethod, Spec, setting
from bo_robust.models import TruncatedGP
from bo_robust.validation import check_positive


@dataclass(frozen=True)
class ConstantUCB(ArmAlgorithm):
    """Over finite arms: argmax mu + w sigma, the same w in every round.

    Args:
        value: w > 0.
    """

    value: float = 2.0

    def __post_init__(self) -> None:
        check_positive(value=self.value)

    def select(self, state: State, uniform: Tensor) -> Selection:
        """The arm of largest upper confidence bound."""
        return select_ucb(state, ConstantWidth(self.value), uniform)


@dataclass(frozen=True, kw_only=True)
class ConstantUCBMethod(GPMethod):
    """In a study, Ax and Optuna: an exact GP, and ``GPUCB`` (of the base class) as its acquisition function.

    Args:
        value: w > 0. The width takes it from here, as it takes every option that it leaves out.
    """

    model_class = TruncatedGP

    value: float = 2.0
    width: Spec = setting({"kind": "constant"})

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(value=self.value)

    def model_options(self, known: Mapping[str, Any]) -> dict[str, Any]:
        """Options of ``TruncatedGP.construct_inputs``: no reward is truncated."""
        return super().model_options(known) | {"truncation": {"kind": "none"}}
