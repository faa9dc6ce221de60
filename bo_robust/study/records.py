"""What goes into a study and comes out of it: trials, values, FAILED."""

import enum
import math
import operator
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from bo_robust.specs import quoted

LARGEST_TOLD = 1e300  # limit of |value|: beyond it, squares and sums overflow long before a model sees them
WITH_CONSTRAINTS = "use Ax with bo_robust.integrations.ax.generation_strategy()"


class _Outcome(enum.Enum):
    FAILED = "failed"

    def __repr__(self) -> str:
        return self.value.upper()


FAILED = _Outcome.FAILED
"""Told where the objective gave no value: the point is bad. ``robust`` keeps away from where that is likelier than a
value. Models of other methods see the worst reward told so far there (of those not truncated). Where only the reading
went wrong, measure again and tell what that gives.
"""


@dataclass(frozen=True)
class Trial:
    """A point to evaluate.

    Attributes:
        id: Its number in the study, from 0.
        x: ``{"name": value}``; for v-ucb it includes the condition to evaluate under, or, once told under another one,
            that one.
        round: One more than the number of values told when it was chosen; 0 if it was added by hand.
        repeats: Id of the first trial of the same point, if this one is another reading of it: a reward there is too
            good to be believed at once, or the method asks a point again because the noise hides how good it is.
    """

    id: int
    x: dict[str, Any]
    round: int
    repeats: int | None = None


@dataclass(frozen=True)
class Status:
    """Where a study stands, in numbers of trials.

    ``asked`` counts all of them, ``told`` those with a value, ``failed`` those told FAILED, ``open`` those told nothing
    yet. ``expired`` counts open trials whose lease is over, which the next ``ask`` hands out again.
    """

    method: str
    asked: int
    told: int
    failed: int
    open: int
    expired: int


def checked_id(trial: Any) -> int:
    """Return the id of a trial as a plain number; raise ``ValueError`` if it cannot be one."""
    try:
        number = -1 if isinstance(trial, bool) else operator.index(trial)
    except TypeError:
        number = -1
    if not 0 <= number < 2**63:
        raise ValueError(f"trials are told by their id, a whole number >= 0; {quoted(trial)} was never asked.")
    return number


def checked_ids(trials: Any) -> list[int]:
    """Return the ids of several trials; raise ``ValueError`` if they are no list, or one cannot be an id."""
    if not isinstance(trials, Iterable) or isinstance(trials, str | bytes):
        raise ValueError(f"give the ids of trials in a list, such as [0], got {quoted(trials)}.")
    return [checked_id(trial) for trial in trials]


def checked_value(value: Any, trial: int | None = None) -> float | None:
    """Return a value, of a trial, as stored: a number, or None for FAILED; raise ``ValueError`` for anything else."""
    if value is FAILED:
        return None
    if isinstance(value, list | tuple | dict):
        raise ValueError(f"a study takes one number, got {quoted(value)}; for several outcomes {WITH_CONSTRAINTS}.")
    try:
        given = value.item() if hasattr(value, "item") else value  # of an array with one entry
        number = math.nan if isinstance(given, bool | str | bytes) else float(given)
        # RuntimeError: PyTorch's, for a complex tensor for example.
    except (TypeError, ValueError, OverflowError, RuntimeError):
        number = math.nan
    # Not `>`: NaN must be refused too.
    if not abs(number) <= LARGEST_TOLD:
        whose = "" if trial is None else f" of trial {trial}"
        raise ValueError(
            f"the value{whose} must be a finite number of at most {LARGEST_TOLD:g} in size, got {quoted(value)}; "
            "if the objective gave none, tell FAILED (or return it from the objective)."
        )
    return number + 0.0  # 0.0 for -0.0, as SQLite keeps it
