"""bo_robust: Bayesian optimisation when the textbook assumptions fail.

Names load on first use, so that command-line calls and scripts over arms do not import BoTorch's acquisition functions.
Importing any acquisition function registers it with BoTorch's input constructors.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bo_robust import algorithms, confidence, truncation
    from bo_robust.acquisition import GPUCB, EliminationUCB, StableOpt, ValueAtRiskUCB
    from bo_robust.models import (
        BKBModel,
        CandidateEnsemble,
        FeatureGP,
        FourierMap,
        NystromMap,
        RobustGP,
        TruncatedFeatureGP,
        TruncatedGP,
        suggest_replicates,
    )

__all__ = [
    "GPUCB",
    "BKBModel",
    "CandidateEnsemble",
    "EliminationUCB",
    "FeatureGP",
    "FourierMap",
    "NystromMap",
    "RobustGP",
    "StableOpt",
    "TruncatedFeatureGP",
    "TruncatedGP",
    "ValueAtRiskUCB",
    "algorithms",
    "confidence",
    "suggest_replicates",
    "truncation",
]

__version__ = "0.1.0"

_ACQUISITIONS = {"EliminationUCB", "GPUCB", "StableOpt", "ValueAtRiskUCB"}
_ROOMS = {"algorithms", "confidence", "truncation"}
# Where a class may be that is not here, the likeliest first.
_ELSEWHERE = ("algorithms", "study", "confidence", "truncation", "models", "acquisition", "environments", "functionals")


def __getattr__(name: str) -> Any:
    if name in _ROOMS:
        return importlib.import_module(f"bo_robust.{name}")
    if name in __all__:
        home = "bo_robust.acquisition" if name in _ACQUISITIONS else "bo_robust.models"
        return getattr(importlib.import_module(home), name)
    if name[:1].isupper():  # a class: asking for a module shall import no other
        for room in _ELSEWHERE:
            if name in getattr(importlib.import_module(f"bo_robust.{room}"), "__all__", ()):
                # Of an AttributeError, `from bo_robust import ...` would not show the words.
                raise ImportError(f"{name} is in another module: from bo_robust.{room} import {name}")
    raise AttributeError(f"module 'bo_robust' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
