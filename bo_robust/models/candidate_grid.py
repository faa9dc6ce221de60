"""Candidate sets U from what is known beforehand: ranges of hyperparameters and families of kernels.

Ziomek, Adachi & Osborne (ICML 2024) take U as given and name its choice as future work; this is ours. Two things to
know. Elimination strikes candidates whose errors are larger than they said, which those with a short lengthscale or a
large output scale never are: what U costs in regret is what its most flexible member costs, so let a range begin where
f can still be believed to vary. And nothing outside U is found: where the truth lies between two neighbours of a grid,
the more flexible of them serves.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from torch.quasirandom import SobolEngine

from bo_robust.validation import check_count, check_positive

__all__ = ["candidate_grid"]

NUM = 16  # candidates per family where several hyperparameters have a range
NUS = {"matern12": 0.5, "matern32": 1.5, "matern52": 2.5}
Range = float | tuple[float, float]


def candidate_grid(
    lengthscale: Range,
    noise_var: Range,
    outputscale: Range = 1.0,
    kernels: Sequence[str | Mapping[str, Any]] = ("rbf",),
    num: int | None = None,
    seed: int = 0,
) -> list[dict[str, Any]]:
    """Settings of candidates, the same set of hyperparameters for each family of kernels.

    One range: even steps of its logarithm, from end to end. Several: a scrambled Sobol sequence in their logarithms.
    None: one candidate per family.

    Args:
        lengthscale: A number > 0, or (low, high).
        noise_var: lambda > 0, or (low, high).
        outputscale: k(x, x) > 0, or (low, high).
        kernels: Families: "rbf", "matern12", "matern32", "matern52", or settings of
            :func:`~bo_robust.models.candidate` that belong to one, such as ``{"kernel": "periodic", "period": 7.0}`` or
            ``{"kernel": "rbf", "groups": [[0], [1, 2]]}``.
        num: Candidates per family; by default so many that one range is left in steps of at most a factor of two, and
            16 where several are.
        seed: Of the Sobol sequence.

    Returns:
        Arguments of :func:`~bo_robust.models.candidate`, which is what
        :class:`~bo_robust.models.CandidateEnsemble` takes as well; plain enough for JSON.

    Raises:
        ValueError: if a number is not positive, a range is upside down, or there is no or an unknown family.

    Example:
        >>> U = candidate_grid(lengthscale=(0.1, 0.8), noise_var=0.01, kernels=["rbf", "matern52"])  # 2 x 4 candidates
    """
    given = {"lengthscale": lengthscale, "noise_var": noise_var, "outputscale": outputscale}
    ranges = {name: value for name, value in given.items() if isinstance(value, tuple)}
    for name, value in given.items():
        low, high = value if isinstance(value, tuple) else (value, value)
        check_positive(**{name: low})
        check_positive(**{name: high})
        if isinstance(value, tuple) and not low < high:
            raise ValueError(f"the range of {name} must be (low, high) with low < high, got {value}.")
    check_count(1, num=1 if num is None else num)
    if not kernels or isinstance(kernels, str):
        raise ValueError(f"kernels must list at least one family, such as ['rbf'], got {kernels!r}.")
    points = _unit_points(list(ranges.values()), num, seed)
    hyperparameters = [
        given | {name: _between(*bounds, at) for (name, bounds), at in zip(ranges.items(), point, strict=True)}
        for point in points
    ]
    return [_family(family) | values for family in kernels for values in hyperparameters]


def _unit_points(ranges: list[tuple[float, float]], num: int | None, seed: int) -> list[list[float]]:
    """Where in the unit box the candidates are."""
    if not ranges:
        return [[]]
    if len(ranges) == 1:
        low, high = ranges[0]
        count = math.ceil(math.log2(high / low) - 1e-9) + 1 if num is None else num
        return [[i / (count - 1)] for i in range(count)] if count > 1 else [[0.5]]
    return SobolEngine(len(ranges), scramble=True, seed=seed).draw(NUM if num is None else num).tolist()


def _between(low: float, high: float, at: float) -> float:
    return low * (high / low) ** at


def _family(family: str | Mapping[str, Any]) -> dict[str, Any]:
    if isinstance(family, Mapping):
        if "kernel" not in family:
            raise ValueError(f"a family given by its settings needs a 'kernel', got {dict(family)}.")
        return dict(family)
    if family in NUS:
        return {"kernel": "matern", "nu": NUS[family]}
    if family != "rbf":
        raise ValueError(f"unknown family {family!r}; choose rbf, {', '.join(NUS)}, or give its settings.")
    return {"kernel": "rbf"}
