"""The base of every confidence width: how a width is called, and its scale."""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Protocol

from torch import Tensor

from bo_robust.utils.input_checks import check_round, check_settings

Number = float | Tensor
# A width times this has w^2 / 5, as in the experiments of Srinivas et al. It holds in no theorem.
EXPLORING = 5.0**-0.5


class Width(Protocol):
    """A confidence width; :meth:`ScaledWidth.__call__` explains the arguments."""

    def __call__(self, t: int, information_gain: Number = 0.0, uniform: Number | None = None) -> Number: ...


@dataclass(frozen=True)
class ScaledWidth(ABC):
    """Base of the widths: checks settings and the round, and multiplies by ``scale``."""

    scale: float = field(default=1.0, kw_only=True)

    def __post_init__(self) -> None:
        check_settings(self)

    def __call__(self, t: int, information_gain: Number = 0.0, uniform: Number | None = None) -> Number:
        """The width of round ``t``, in units of sigma.

        The result is a tensor of shape ``s`` where the width depends on an argument that is a tensor, otherwise a
        number. Tensor arguments are never read back to the host.

        Args:
            t: The round about to be played, >= 1, after t - 1 rewards.
            information_gain: gamma_{t-1} = 1/2 logdet(I + K_{t-1}/noise_var) in nats, of the t - 1 points played: a
                number, or one per trial (``s``). Use the realised gain, not a worst case.
            uniform: Draws from [0, 1), a number or one per trial (``s``). Only :class:`RandomisedWidth` needs them.

        Raises:
            ValueError: if ``t`` is below 1, or ``uniform`` is needed and missing.
        """
        check_round(t)
        return self.scale * self._at(t, information_gain, uniform)

    @abstractmethod
    def _at(self, t: int, gain: Number, uniform: Number | None) -> Number:
        """The width at scale 1; a number where it depends on ``t`` alone."""


def sqrt(x: Number) -> Number:
    """The square root of a number or of a tensor."""
    return x.sqrt() if isinstance(x, Tensor) else math.sqrt(x)
