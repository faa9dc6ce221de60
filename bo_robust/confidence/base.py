"""The base of every confidence width: how a width is called, and its scale."""

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar, Protocol, TypeVar, cast

import torch
from torch import Tensor

from bo_robust.utils.input_checks import Positive, check_fields, check_round
from bo_robust.utils.round_numbers import by_round, is_capturing

Number = float | Tensor
# A width times this has w^2 / 5, as in the experiments of Srinivas et al. It holds in no theorem.
EXPLORING = 5.0**-0.5


# What a width may read besides the round: its arguments of these names, and BKB's sum in place of the first.
GAIN, UNIFORM, DIMENSION = "information_gain", "uniform", "effective_dimension"


class Width(Protocol):
    """A confidence width; :meth:`ScaledWidth.__call__` explains the arguments, :func:`needs_of` what is computed."""

    def __call__(self, t: int, information_gain: Number = 0.0, uniform: Number | None = None) -> Number: ...


def needs_of(width: Width) -> frozenset[str]:
    """What a call of the width reads besides the round. A callable that does not say so gets both arguments."""
    needs: frozenset[str] = getattr(width, "needs", frozenset({GAIN, UNIFORM}))
    return needs


def width_at(width: Width, t: int, gain: Tensor, uniform: Number | None) -> Number:
    """The width of round ``t``, as :meth:`ScaledWidth.__call__`; where it is a number, by :func:`.by_round`."""
    if not is_capturing() or needs_of(width):
        return width(t, gain, uniform)
    return by_round(cast(Callable[[int], float], width), t, gain)


@dataclass(frozen=True)
class ScaledWidth(ABC):
    """Base of the widths: checks their fields and the round, and multiplies by ``scale``."""

    by_norm_bound: ClassVar[bool] = False  # whether it holds where k(x, x) <= 1 only

    scale: Positive = field(default=1.0, kw_only=True)

    def __init_subclass__(cls) -> None:
        """Forget the needs of the parent where a subclass computes the width anew and does not state its own."""
        if "_at" in vars(cls) and "needs" not in vars(cls):
            cls.needs = ScaledWidth.needs  # type: ignore[method-assign]

    @property
    def needs(self) -> frozenset[str]:
        """What a call reads besides ``t``: ``information_gain``, ``uniform``, or ``effective_dimension`` (of BKB)."""
        return frozenset({GAIN, UNIFORM})

    def __post_init__(self) -> None:
        check_fields(self)

    def __call__(self, t: int, information_gain: Number = 0.0, uniform: Number | None = None) -> Number:
        """The width of round ``t``, in units of sigma.

        The result is a tensor of shape ``s`` where the width depends on an argument that is a tensor, otherwise a
        number. Tensor arguments are never read back to the host.

        Args:
            t: The round about to be run, >= 1, after t - 1 rewards.
            information_gain: gamma_{t-1} = 1/2 logdet(I + K_{t-1}/noise_var) in nats, of the t - 1 points chosen: a
                number, or one per trial (``s``). Use the realized gain, not a worst case.
            uniform: Draws from [0, 1), a number or one per trial (``s``). Only :class:`RandomizedWidth` needs them.

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


def log(x: Number) -> Number:
    """The logarithm of a number or of a tensor."""
    return torch.log(x) if isinstance(x, Tensor) else math.log(x)


def required_size(size: Number | None) -> Number:
    """The number of features; ``ValueError`` where it is None."""
    if size is None:
        raise ValueError("the number of features is None, which is for ATAGPUCB with a NystromDictionary; give it.")
    return size


Schedule = TypeVar("Schedule")


def is_open(schedule: object) -> bool:
    """Whether a width or level was made with None for the number of features, which :func:`sized` fills in."""
    return getattr(schedule, "num_features", 0) is None


def sized(schedule: Schedule, size: Number) -> Schedule:
    """The width or level for ``size`` features (m_t of a dictionary, a number or ``s``), where it left that open."""
    if not is_open(schedule):
        return schedule
    copied = copy.copy(schedule)
    object.__setattr__(copied, "num_features", size)
    return copied
