"""Expected improvement on the rewards that the model believes, with no setting to choose: the default method."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, cast

import torch
from botorch.acquisition.logei import qLogNoisyExpectedImprovement
from torch import Tensor

from bo_robust.methods.base import GPMethod, Spec
from bo_robust.models import RobustGP, verify
from bo_robust.models.training_data import recommendable


@dataclass(frozen=True, kw_only=True)
class JudgingMethod(GPMethod):
    """A method whose model judges every reward by what the others let expect there.

    Before the acquisition is maximised, a reward that is better than all believed ones, but not believed, is measured
    again: :func:`bo_robust.verify`. It is an outlier or the find of the campaign, and one more reading tells.

    The model standardises by the believed rewards. So ``noise_var`` is in units of the rewards as they are told, and a
    study needs no ``center`` and no ``scale``.
    """

    model_class = RobustGP
    judges_rewards = True
    many_set_aside = 0.25
    advice = (
        "there may be more outliers, or the kernel does not fit, so look at the rewards before you trust the "
        "recommendation (set_aside lists those not believed)"
    )
    study_defaults = MappingProxyType({"kernel": "rbf", "outputscale": 1.0})  # the prior of BoTorch's SingleTaskGP

    @property
    def any_units(self) -> bool:
        """As the base class: where the noise is learned."""
        return self.noise_var is None

    @staticmethod
    def set_aside(model: Any) -> Tensor:
        return ~cast(Tensor, model.believed)

    def model_options(self, known: Mapping[str, Any]) -> dict[str, Any]:
        """As the base class; predictions keep no doubt: suspects are measured again, or bad, and Ax may minimise."""
        return super().model_options(known) | {"maximize": None}

    def suspects(self, model: Any, maximize: bool = True) -> list[int]:
        """As the base class; none where :func:`bo_robust.verify` asks for no reading, as enough were refuted."""
        return [] if verify(model, maximize) is None else cast(list[int], model.suspects(maximize).tolist())


@dataclass(frozen=True, kw_only=True)
class RobustMethod(JudgingMethod):
    """Outliers handled from the data alone.

    Args:
        width: None: the acquisition is BoTorch's ``qLogNoisyExpectedImprovement``, over the points that may be
            recommended. A width makes it GP-UCB.
        verify: Whether suspects are measured again.
    """

    width: Spec = None
    verify: bool = True

    @property
    def failures_apart(self) -> bool:
        return self.width is None

    def acquisition_options(self, known: Mapping[str, Any]) -> dict[str, Any]:
        return {} if self.width is None else super().acquisition_options(known)

    def acquisition(
        self,
        model: Any,
        known: Mapping[str, Any] | None = None,
        X_pending: Tensor | None = None,
        generator: torch.Generator | None = None,
    ) -> Any:
        """As the base class; expected improvement draws from PyTorch's global random numbers."""
        if self.width is not None:
            return super().acquisition(model, known, X_pending, generator)
        best = recommendable(model.points, model.value(), ~model.believed)  # of a model not fitted, all
        return qLogNoisyExpectedImprovement(model, model.points[best], X_pending=X_pending)

    def suspects(self, model: Any, maximize: bool = True) -> list[int]:
        """As the base class; none where ``verify`` is off."""
        return super().suspects(model, maximize) if self.verify else []
