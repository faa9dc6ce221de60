"""Conditions of a value at risk as plain JSON, for frameworks that store and search them by name."""

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from bo_robust.environments import FiniteEnvironment
from bo_robust.specs import quoted


def finite_environment(conditions: Any, like: Tensor) -> FiniteEnvironment:
    """The environment of ``{"points": [{"z": 0.0}, ...], "probabilities": [...]}``, with dtype and device of ``like``.

    All points must have the same names. Without probabilities they are equally likely. Another form raises
    ``ValueError``.
    """
    form = "environment must be {'points': [{'z': number}, ...], 'probabilities': numbers, or left out}"
    try:
        names = list(conditions["points"][0])
        rows = [[float(point[name]) for name in names] for point in conditions["points"]]
        alike = all(set(point) == set(names) for point in conditions["points"])
        p = conditions.get("probabilities")
        probabilities = None if p is None else like.new_tensor([float(v) for v in p])
    except (TypeError, KeyError, IndexError, ValueError, AttributeError, OverflowError):
        raise ValueError(f"{form}, got {quoted(conditions)}.") from None
    if not names or not alike or not set(conditions) <= {"points", "probabilities"}:
        raise ValueError(f"{form}, all points with the same names; got {quoted(conditions)}.")
    return FiniteEnvironment(like.new_tensor(rows), probabilities)


def check_search_space(
    conditions: Mapping[str, Any], z: Tensor, columns: Sequence[str], bounds: Sequence[tuple[float, float]]
) -> None:
    """Raise ``ValueError`` unless the last columns of a search space are the conditions, and its box holds them.

    ``z`` are the points of ``conditions``, ``w x d_z``. The search space has ``d`` named ``columns`` and their
    ``bounds``.
    """
    names, columns = list(conditions["points"][0]), list(columns)
    if columns[-len(names) :] != names or len(columns) == len(names):
        raise ValueError(
            f"the last parameters of the search space must be the conditions {', '.join(names)}, in this order and as "
            f"numbers; its columns are {', '.join(columns)}."
        )
    low, high = z.new_tensor(bounds[-len(names) :]).T
    if bool(((z < low) | (z > high)).any()):
        raise ValueError(
            f"conditions must lie in the search space, and its parameters {', '.join(names)} must not be scaled by a "
            f"logarithm: they range over {bounds[-len(names) :]}."
        )
