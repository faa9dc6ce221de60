"""The arguments of :func:`bo_robust.suggest`: the designs there are, and what was measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from bo_robust.utils.input_checks import check_count, quoted
from bo_robust.utils.linalg import device_named
from bo_robust.utils.specs import nearest

__all__ = ["Data", "Search", "Space"]


@dataclass(frozen=True)
class Space:
    """The designs that there are, in the units of the data: a box, a mixed space or a list.

    Attributes:
        bounds: ``2 x d``, the smallest and the largest value of each column. Not needed with ``candidates``.
        candidates: ``N x d`` designs to choose from, by any descriptors.
        discrete: Values of columns that take no others, in order, by number of the column.
        categorical: Values of columns whose values have no order, by number of the column.
        fixed: Values that columns keep in every suggestion, by number of the column.
        equality_constraints: What suggestions fulfil, in units of X, as ``optimize_acqf`` has it: a list of (columns,
            coefficients, right-hand side). A mixture is ``[([0, 1, 2], [1.0, 1.0, 1.0], 100.0)]``. A list of
            candidates has no such constraints.
        inequality_constraints: The same, with a sum of at least the right-hand side.
        conditions: Columns that are observed, not chosen. The design to use is then good in the ``worst`` share of the
            conditions in X, by :class:`bo_robust.ValueAtRiskUCB`, and ``Suggestion.mean`` is its value at risk.
            ``candidates`` are designs without these columns, and so are one objective and the default method needed.
        worst: A share of the conditions, in (0, 1).
        set_conditions: Whether an experiment can be made under a condition of choice. Each proposal then has the
            condition to test it under; otherwise NaN.
    """

    bounds: Any = None
    candidates: Any = None
    discrete: Mapping[int, Sequence[float]] = field(default_factory=dict)
    categorical: Mapping[int, Sequence[float]] = field(default_factory=dict)
    fixed: Mapping[int, float] = field(default_factory=dict)
    equality_constraints: Sequence[Any] = ()
    inequality_constraints: Sequence[Any] = ()
    conditions: Sequence[int] = ()
    worst: float = 0.1
    set_conditions: bool = True


@dataclass(frozen=True)
class Data:
    """What was measured, is under way, or failed; units do not matter.

    Attributes:
        X: ``n x d`` designs measured, n >= 0, in the order of measurement.
        Y: ``n`` or ``n x m`` observations of m objectives, finite.
        maximize: Whether large observations are good; one value, or one per objective.
        constraints: ``n x k`` observations of constraints, which hold where they are at most 0; NaN where not measured.
        outcome_limits: Smallest and largest possible observation, such as (0, 100) of a yield; either may be None. One
            pair, or one (or None) per objective. An observation beyond them is flagged, and nothing beyond is expected.
        X_pending: ``p x d`` designs under way. They are not suggested again, as if they were measured.
        X_failed: ``f x d`` designs whose measurement failed; their neighborhood is avoided where failure is likely.
    """

    X: Any = ()
    Y: Any = ()
    maximize: bool | Sequence[bool] = True
    constraints: Any = None
    outcome_limits: Any = None
    X_pending: Any = None
    X_failed: Any = None


@dataclass(frozen=True)
class Search:
    """How designs are searched for; see :func:`bo_robust.suggest`. Raises ``ValueError`` where an argument is wrong."""

    num_initial: int | None = None
    repeats: str = "if noisy"
    restarts: int = 8
    raw_samples: int = 128
    device: str = "cpu"

    def __post_init__(self) -> None:
        check_count(0, num_initial=0 if self.num_initial is None else self.num_initial)
        check_count(1, restarts=self.restarts)
        check_count(self.restarts, raw_samples=self.raw_samples)
        if self.repeats not in ("never", "if noisy"):
            raise ValueError(f"repeats must be 'never' or 'if noisy', got {quoted(self.repeats)}.")
        device_named(self.device)


def from_arguments(X: Any, Y: Any, space: Space | None, more: Mapping[str, Any]) -> tuple[Data, Space]:
    """The data and the space of a call, whose fields may be arguments; raises ``TypeError`` where they do not fit."""
    names = {kind: [one.name for one in fields(kind)] for kind in (Data, Space)}
    every = names[Data] + names[Space]
    if unknown := [name for name in more if name not in every]:
        raise TypeError(f"suggest has no argument {unknown[0]!r}; {nearest(unknown[0], every)}.")
    data_fields, described = ({name: more[name] for name in names[kind] if name in more} for kind in (Data, Space))
    if (isinstance(X, Data) and (data_fields or Y is not None)) or (space is not None and described):
        raise TypeError("give Data or its fields, and Space or its fields, not both of one.")
    return X if isinstance(X, Data) else Data(X, Y, **data_fields), Space(**described) if space is None else space
