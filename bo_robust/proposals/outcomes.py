"""What was measured, as :func:`bo_robust.suggest` gets it, and as its models take it."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bo_robust.models.batch_effect import label_numbers
from bo_robust.models.reward_units import robust_units
from bo_robust.models.robust.slips import Readings
from bo_robust.models.training_data import checked_limits
from bo_robust.proposals.inputs import listed, numbers
from bo_robust.utils.input_checks import outside_package, quoted

Limits = tuple[float | None, float | None]
LARGEST = 1e8  # limit of |y| in robust standard deviations, as models square it
FAR = 100.0  # a value so many ranges of all others away from them stands for failures, if several designs have it


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
        batch: Label of the batch, day or instrument of each design measured, ``n``, numbers or texts. The observations
            of one share a deviation; what is expected and suggested is for a new one.
        ids: Names of the observations, ``n``, such as dates or numbers of experiments. They say that of two equal ones
            of a design the second one is no copy.
    """

    X: Any = ()
    Y: Any = ()
    maximize: bool | Sequence[bool] = True
    constraints: Any = None
    outcome_limits: Any = None
    X_pending: Any = None
    X_failed: Any = None
    batch: Any = None
    ids: Sequence[Any] | None = None


@dataclass(frozen=True)
class Outputs:
    """Observations in robust standard deviations, where large objectives are good and constraints hold up to 0.

    Objectives have a median of 0, or keep their zero, which says whether a logarithm makes sense.
    """

    scaled: Tensor  # n x (m + k)
    center: Tensor
    scale: Tensor  # negative where an objective is minimized
    options: list[dict[str, Any]]  # of the model of each column, which takes those that it has
    objectives: int
    ids: Sequence[Any] | None = None

    @property
    def several(self) -> bool:
        return self.scaled.shape[-1] > 1

    def of(self, j: int) -> tuple[Tensor, Tensor, dict[str, Any]]:
        """Which designs have an observation of column j, ``n`` bool, these ``k``, and the options of its model."""
        rows, options = self.scaled[:, j].isfinite(), self.options[j]
        if "batch" in options:
            options = options | {"batch": options["batch"][rows]}
        return rows, self.scaled[rows, j], options

    def copies(self, X: Tensor) -> dict[int, int]:
        """Rows that repeat the only other observation of their design, as people write it, not 0; with that row."""
        same_X, same_Y = ((x == x.unsqueeze(1)).all(-1) for x in (X, self.scaled.nan_to_num(math.inf)))
        rows = (row.nonzero().flatten().tolist() for row in same_X)
        pairs = {pair[1]: pair[0] for pair in rows if len(pair) == 2 and same_Y[pair[0], pair[1]]}
        columns = map(self.of, range(len(self.options)))
        by_hand = all(Readings(y.numpy(), about["reading_unit"]).texts for _, y, about in columns)
        apart = self.ids if by_hand else range(len(X))
        return {i: j for i, j in pairs.items() if apart is None or apart[i] == apart[j] if self.scaled[i].all()}

    def without(self, rows: Sequence[int]) -> Outputs:
        """The outputs, as if these rows had not been observed."""
        scaled = self.scaled.clone()
        scaled[list(rows)] = math.nan
        return replace(self, scaled=scaled)

    @classmethod
    def from_data(cls, data: Data, n: int, centered: bool) -> Outputs:
        """The readings of n designs; raises ``ValueError`` where they are none."""
        Y = numbers("Y", data.Y)
        Y = Y.unsqueeze(-1) if Y.ndim == 1 else Y
        if Y.ndim != 2 or len(Y) != n or Y.shape[-1] == 0:
            raise ValueError(f"Y needs one row for each of the {n} designs of X, got shape {tuple(Y.shape)}.")
        if not Y.isfinite().all():
            row = int((~Y.isfinite()).any(-1).nonzero()[0])
            raise ValueError(f"Y has no finite value in row {row}: give that design in X_failed or X_pending instead.")
        m = Y.shape[-1]
        C = Y[:, :0] if data.constraints is None else numbers("constraints", data.constraints)
        if C.ndim != 2 or len(C) != n:
            raise ValueError(f"constraints need one row for each of the {n} designs of X, got {tuple(C.shape)}.")
        C = C.where(C.isfinite(), math.nan)[:, C.isfinite().any(0) if n else slice(None)]
        every = torch.cat([Y, C], -1)
        center, scale = _units(every, m, data.maximize)
        for j, y in enumerate(Y.mT):
            _warn_of_sentinel(y, j)
        scaled = ((every - center) / scale).clamp(-LARGEST, LARGEST) if n else every
        if n and not centered:
            scaled, center = scaled + center / scale, torch.zeros_like(center)
        pairs = _limits(data.outcome_limits, m)
        for pair, y in zip(pairs, Y.mT, strict=True):
            if n:
                checked_limits(pair, y)
        units_of = zip(pairs, center.tolist(), scale.tolist(), strict=False)
        limits = [None if pair is None else _in_units(pair, a, b) for pair, a, b in units_of]
        options: list[dict[str, Any]] = [{"maximize": True, "outcome_limits": pair} for pair in limits]
        options += [{"maximize": None}] * C.shape[-1]  # constraints have no good side
        options = [option | {"reading_unit": a} for option, a in zip(options, scale.tolist(), strict=False)]
        labels = {name: getattr(data, name) for name in ("batch", "ids") if getattr(data, name) is not None}
        labels = {name: label_numbers(name, given, every) for name, given in labels.items()}
        options = [option | {name: labels[name] for name in labels if name == "batch"} for option in options]
        return cls(scaled, center, scale, options, m, labels["ids"].tolist() if "ids" in labels else None)


def _units(every: Tensor, m: int, maximize: bool | Sequence[bool]) -> tuple[Tensor, Tensor]:
    """Center and scale of m objectives and of constraints, which keep their zero; none before there are readings."""
    signs = np.asarray(maximize if hasattr(maximize, "ndim") else listed(maximize), dtype=object)
    if signs.shape not in ((), (m,)) or not all(isinstance(sign, bool | np.bool_) for sign in signs.flat):
        raise ValueError(f"maximize needs true or false, or one for each of {m} objectives, got {quoted(maximize)}.")
    units = [robust_units(y[y.isfinite()].numpy()) for y in every.mT] if len(every) else []
    center = torch.tensor([u.center if j < m else 0.0 for j, u in enumerate(units)], dtype=torch.float64)
    scale = torch.tensor([u.scale for u in units], dtype=torch.float64)
    if not (center.isfinite() & scale.isfinite()).all():
        raise ValueError("readings differ by more than floating point holds; divide them by their size.")
    scale[:m] *= torch.from_numpy(np.where(np.broadcast_to(signs.astype(bool), m), 1.0, -1.0))[: len(scale)]
    return center, scale


def _limits(limits: Any, m: int) -> list[Limits | None]:
    """Limits of each of m objectives, from one pair or one (or None) per objective."""
    limits = limits.tolist() if hasattr(limits, "tolist") else limits
    pair = not isinstance(limits, Sequence) or (
        len(limits) == 2 and all(x is None or isinstance(x, Real) for x in limits)
    )
    if pair:
        limits = [limits] * m
    limits = [pair.tolist() if hasattr(pair, "tolist") else pair for pair in limits]
    if len(limits) != m or not all(pair is None or (isinstance(pair, Sequence) and len(pair) == 2) for pair in limits):
        raise ValueError(f"outcome_limits need one pair, or one for each of {m} objectives, got {quoted(limits)}.")
    return [None if pair is None else (pair[0], pair[1]) for pair in limits]


def _in_units(limits: Limits, center: float, scale: float) -> Limits:
    """Limits of (y - center) / scale."""
    lower, upper = (None if x is None else (x - center) / scale for x in limits)
    return (lower, upper) if scale > 0.0 else (upper, lower)


def _warn_of_sentinel(y: Tensor, j: int) -> None:
    if (value := _sentinel(y)) is not None:
        warnings.warn(
            f"{value:g} was read at several designs, and lies far from all other readings of objective {j}: "
            "if it stands for a measurement that failed, give these designs as failed (Optuna: raise "
            "TrialPruned); the model takes numbers for readings.",
            UserWarning,
            stacklevel=outside_package(),
        )


def _sentinel(y: Tensor) -> float | None:
    """The value that seems to stand for failures, such as -999: several readings have it, none is near; or None."""
    for value in (y.amin(), y.amax()) if len(y) else ():
        others = y[y != value]
        if len(y) - len(others) >= 2 and len(others) >= 3:  # at fewer it may be all others that are odd
            spread = others.amax() - others.amin()
            if (value - others).abs().amin() > FAR * spread > 0.0:
                return float(value)
    return None
