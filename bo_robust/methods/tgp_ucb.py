"""TGP-UCB (Ray Chowdhury & Gopalan 2019, Algorithm 1): rewards beyond a growing level are truncated."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from torch import Tensor

from bo_robust.methods.base import HeavyTailMethod, Spec, completed, setting
from bo_robust.models import TruncatedGP
from bo_robust.truncation import TRUNCATIONS


@dataclass(frozen=True, kw_only=True)
class TGPUCBMethod(HeavyTailMethod):
    """TGP-UCB.

    Args:
        truncation: ``{"kind": name in TRUNCATIONS, ...}``, the level b_t.
    """

    model_class = TruncatedGP

    truncation: Spec = setting({"kind": "tgp"})

    def model_options(self, known: Mapping[str, Any]) -> dict[str, Any]:
        level = completed(self.truncation, TRUNCATIONS, self._context(known), "truncation")
        return super().model_options(known) | {"truncation": level, "rule": self.rule}

    @staticmethod
    def set_aside(model: Any) -> Tensor:
        return cast(Tensor, model.truncated).squeeze(-1)
