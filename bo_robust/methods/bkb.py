"""BKB (Calandriello, Carratino, Lazaric, Valko & Rosasco 2019): GP-UCB on a dictionary of the points observed."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bo_robust.methods.base import GPMethod
from bo_robust.models import BKBModel


@dataclass(frozen=True, kw_only=True)
class BKBMethod(GPMethod):
    """BKB.

    Args:
        oversampling: q >= 1: points enter the dictionary so many times more often than by their leverage score.
        max_size: Most points in the dictionary.
        min_size: Fewest points in the dictionary, if there are as many.
    """

    model_class = BKBModel

    oversampling: float = 4.0
    max_size: int = 512
    min_size: int = 128

    def model_options(self, known: Mapping[str, Any]) -> dict[str, Any]:
        options = {name: getattr(self, name) for name in ("oversampling", "max_size", "min_size")}
        return super().model_options(known) | options | ({"seed": known["seed"]} if "seed" in known else {})
