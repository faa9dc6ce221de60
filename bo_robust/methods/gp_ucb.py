"""GP-UCB (Srinivas, Krause, Kakade & Seeger 2010), by default with the randomised width of Takeno et al. 2023."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bo_robust.methods.base import GPMethod
from bo_robust.models import TruncatedGP


@dataclass(frozen=True, kw_only=True)
class GPUCBMethod(GPMethod):
    """GP-UCB: an exact GP of prior mean zero that sees every reward as it is."""

    model_class = TruncatedGP

    def model_options(self, known: Mapping[str, Any]) -> dict[str, Any]:
        return super().model_options(known) | {"truncation": {"kind": "none"}}
