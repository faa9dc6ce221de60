"""What goes in and out of a study: trials, values, FAILED."""

from __future__ import annotations

import enum
import math
import operator
from dataclasses import dataclass
from typing import Any

__all__ = ["FAILED", "Status", "Trial", "checked_id", "checked_value"]

LARGEST = 1e300  # of |value|: beyond it, squares and sums overflow long before a model sees them


class _Outcome(enum.Enum):
    FAILED = "failed"

    def __repr__(self) -> str:
        return self.value.upper()


FAILED = _Outcome.FAILED
"""Told in place of a value: the objective gave none. Models see there the worst reward told so far (of those not
truncated)."""


@dataclass(frozen=True)
class Trial:
    """A point to evaluate.

    Attributes:
        id: Its number in the study, from 0.
        x: ``{"name": number}``; for v-ucb with the condition to evaluate under.
        round: t: one more than the values that were told when it was chosen; 0 if it was added by hand.
    """

    id: int
    x: dict[str, float]
    round: int


@dataclass(frozen=True)
class Status:
    """Where a study stands.

    Attributes:
        method: Its name.
        asked: Trials there are.
        told: Of these, with a value.
        failed: Of these, told FAILED.
        open: Of these, told nothing yet.
        expired: Of the open ones, those whose lease is over: the next ``ask`` hands them out again.
        recovered: Whether the last writer did not close the study (a crash), and this one went on from the last commit
            there is: asked, told and failed are what was kept.
    """

    method: str
    asked: int
    told: int
    failed: int
    open: int
    expired: int
    recovered: bool


def checked_id(trial: Any) -> int:
    """The id; raises ``ValueError`` if it cannot be one."""
    try:
        number = -1 if isinstance(trial, bool) else operator.index(trial)
    except TypeError:
        number = -1
    if not 0 <= number < 2**63:
        raise ValueError(f"trials are told by their id, a whole number >= 0; {trial!r} was never asked.")
    return number


def checked_value(trial: int, value: Any) -> float | None:
    """What is stored of a value: a number, or None for FAILED; raises ``ValueError`` if it is neither."""
    if value is FAILED:
        return None
    try:
        number = math.nan if isinstance(value, bool | str | bytes) else float(value)
    except (TypeError, ValueError, OverflowError, RuntimeError):
        number = math.nan
    if not abs(number) <= LARGEST:
        raise ValueError(
            f"trial {trial}: a value is a finite number of at most {LARGEST:g} in size, got {value!r}; if the "
            "objective gave none, tell FAILED."
        )
    return number + 0.0  # SQLite keeps no -0.0
