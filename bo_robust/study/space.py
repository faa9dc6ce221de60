"""What a study searches: a box of named parameters, or a finite set of arms.

A model sees the unit cube: each parameter's range (of its logarithm, where ``log``) is mapped to [0, 1]. People,
objectives and the file see values in their own units, as ``{"name": number}``.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Integral
from typing import Any, ClassVar

import torch
from torch import Tensor

from bo_robust.validation import is_number, quoted

NUMBERS_ONLY = (
    "a study knows numbers only, so for categorical or conditional parameters use Optuna with "
    "bo_robust.integrations.optuna.RobustSampler()"
)


@dataclass(frozen=True)
class _Range:
    low: float
    high: float
    log: bool = False

    reach: ClassVar[float] = 0.0
    """How far the share of [0, 1] that belongs to an end goes beyond it."""

    def __post_init__(self) -> None:
        low, high = _check_range(type(self).__name__, self.low, self.high, self.log)
        object.__setattr__(self, "low", low)
        object.__setattr__(self, "high", high)

    def _ends(self) -> tuple[float, float]:
        low, high = self.low - self.reach, self.high + self.reach
        return (math.log(low), math.log(high)) if self.log else (low, high)

    def to_unit(self, value: float) -> float:
        """The value as a number in [0, 1]."""
        low, high = self._ends()
        return ((math.log(value) if self.log else value) - low) / (high - low)

    def from_unit(self, u: float) -> float:
        """The value at u in [0, 1], or the one whose share u is in; rounding must not leave the range."""
        low, high = self._ends()
        value = low + u * (high - low)
        return min(max(self._nearest(math.exp(value) if self.log else value), self.low), self.high)

    def _nearest(self, value: float) -> float:
        return value

    def holds(self, value: float) -> bool:
        """Whether this is a value of the parameter."""
        return self.low <= value <= self.high and value == self._nearest(value)


@dataclass(frozen=True)
class Float(_Range):
    """A real parameter in [low, high]; ``log`` searches its logarithm and needs low > 0.

    Raises ``ValueError`` if the bounds are no such range.
    """


@dataclass(frozen=True)
class Integer(_Range):
    """A whole number from low to high, each with an equal share of [0, 1] (of the logarithm's range, where ``log``).

    Raises ``ValueError`` if the bounds are not whole, or no such range (``log`` needs low >= 1).
    """

    reach = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.low.is_integer() or not self.high.is_integer():
            raise ValueError(f"the bounds of an Integer must be whole numbers, got {self.low!r} and {self.high!r}.")
        object.__setattr__(self, "low", int(self.low))
        object.__setattr__(self, "high", int(self.high))

    def _nearest(self, value: float) -> int:
        return round(float(value))


@dataclass(frozen=True)
class Box:
    """Every combination of named parameters; raises ``ValueError`` if there are none.

    Args:
        parameters: Maps names to :class:`Float`, :class:`Integer` or ``(low, high)``, short for ``Float(low, high)``.
    """

    parameters: Mapping[str, Any]

    def __post_init__(self) -> None:
        made: dict[str, Float | Integer] = {}
        if not isinstance(self.parameters, Mapping):
            raise ValueError(f"parameters must map names to ranges, got {quoted(self.parameters)}.")
        for name, p in self.parameters.items():
            if not isinstance(name, str) or not name:
                raise ValueError(f"parameters have names, got {quoted(name)}.")
            if isinstance(p, tuple | list) and len(p) == 2 and all(map(is_number, p)):
                p = Float(*p)
            if not isinstance(p, Float | Integer):
                got = f"parameter {quoted(name)} must be Float, Integer or (low, high), got {quoted(p)}"
                raise ValueError(f"{got}; {NUMBERS_ONLY}.")
            made[name] = p
        if not made:
            raise ValueError("a space needs at least one parameter.")
        object.__setattr__(self, "parameters", made)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the parameters, d of them."""
        return tuple(self.parameters)

    def check(self, x: Mapping[str, Any]) -> dict[str, float]:
        """Return the point as stored; raise ``ValueError`` naming a missing, unknown or out-of-range parameter."""
        _check_names(x, self.names)
        for name, p in self.parameters.items():
            if not is_number(x[name]) or not p.holds(x[name]):
                raise ValueError(f"{name} = {x[name]!r} is not in {p}.")
        return {n: int(x[n]) if isinstance(p, Integer) else float(x[n]) for n, p in self.parameters.items()}

    def to_unit(self, x: Mapping[str, float]) -> list[float]:
        """Coordinates in the unit cube, ``d``."""
        return [p.to_unit(x[name]) for name, p in self.parameters.items()]

    def from_unit(self, u: Sequence[float]) -> dict[str, float]:
        """The point at coordinates in the unit cube, ``d``; whole numbers are rounded."""
        return {name: p.from_unit(v) for (name, p), v in zip(self.parameters.items(), u, strict=True)}

    def to_json(self) -> dict[str, Any]:
        """Plain JSON, see :func:`space_from_json`."""
        rows = {n: [type(p).__name__.lower(), p.low, p.high, p.log] for n, p in self.parameters.items()}
        return {"kind": "box", "parameters": rows}


@dataclass(frozen=True)
class Arms:
    """Finitely many points; each may be asked any number of times.

    There must be at least two different ones, each ``{"name": number}`` with the same names, else ``ValueError`` is
    raised. Models see every column scaled from its smallest to its largest value.
    """

    points: Sequence[Mapping[str, float]]
    _ranges: list[tuple[float, float]] = field(init=False, repr=False, compare=False)
    _rows: set[tuple[float, ...]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not isinstance(self.points, Iterable):
            raise ValueError(f"arms are a list of points, each {{'name': number}}, got {quoted(self.points)}.")
        points = list(self.points)
        if not all(isinstance(p, Mapping) for p in points):
            raise ValueError(f"arms are a list of points, each {{'name': number}}, got {quoted(self.points)}.")
        if len(points) < 2 or not points[0]:
            raise ValueError("give at least two arms, each with at least one number.")
        for i, p in enumerate(points):
            _check_names(p, tuple(points[0]))
            for name, value in p.items():
                if not is_number(value):
                    raise ValueError(f"arm {i}: {name} = {value!r} is not a finite number; {NUMBERS_ONLY}.")
        plain = tuple({name: _plain(p[name]) for name in points[0]} for p in points)
        rows = [tuple(p.values()) for p in plain]
        if len(set(rows)) < len(rows):
            raise ValueError(f"{len(rows) - len(set(rows))} arms are there twice; leave the copies out.")
        object.__setattr__(self, "points", plain)
        columns = list(zip(*rows, strict=True))
        # The range of a constant column counts as 1: all its coordinates are 0.
        object.__setattr__(self, "_ranges", [(min(c), (max(c) - min(c)) or 1.0) for c in columns])
        object.__setattr__(self, "_rows", set(rows))

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns, d of them."""
        return tuple(self.points[0])

    def check(self, x: Mapping[str, Any]) -> dict[str, float]:
        """Return the arm as stored; raise ``ValueError`` if it is none."""
        _check_names(x, self.names)
        plain = {name: _plain(x[name]) if is_number(x[name]) else x[name] for name in self.names}
        if not all(map(is_number, plain.values())) or tuple(plain.values()) not in self._rows:
            raise ValueError(f"{plain} is not one of the {len(self.points)} arms.")
        return plain

    def to_unit(self, x: Mapping[str, float]) -> list[float]:
        """Coordinates in the unit cube, ``d``."""
        return [(x[name] - low) / side for name, (low, side) in zip(self.names, self._ranges, strict=True)]

    def unit_points(self) -> Tensor:
        """All arms in the unit cube, ``n x d`` float64."""
        return torch.tensor([self.to_unit(p) for p in self.points], dtype=torch.float64)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON, see :func:`space_from_json`."""
        return {"kind": "arms", "points": [dict(p) for p in self.points]}


Space = Box | Arms


def as_space(space: Space | Mapping[str, Any]) -> Space:
    """Return a space as it is, or the box of a mapping from names to parameters."""
    if isinstance(space, Box | Arms):
        return space
    if isinstance(space, Mapping):
        return Box(space)
    raise ValueError(f"space must be a dict of parameters, a Box or Arms, got {type(space).__name__}.")


def space_from_json(data: Mapping[str, Any]) -> Space:
    """Make the space that ``to_json`` wrote."""
    if data["kind"] == "arms":
        return Arms(data["points"])
    kinds = {"float": Float, "integer": Integer}
    return Box({name: kinds[kind](low, high, log) for name, (kind, low, high, log) in data["parameters"].items()})


def _plain(value: Any) -> float:
    return int(value) if isinstance(value, Integral) else float(value)


def _check_names(x: Mapping[str, Any], names: tuple[str, ...]) -> None:
    if not isinstance(x, Mapping) or set(x) != set(names):
        raise ValueError(f"a point has a number for each of {', '.join(names)}; got {quoted(x)}.")


def _check_range(kind: str, low: float, high: float, log: bool) -> tuple[float, float]:
    """The bounds as floats."""
    said = f"{kind} needs finite bounds with low < high, got {low!r} and {high!r}."
    if not (is_number(low) and is_number(high)):
        raise ValueError(said)
    low, high = float(low), float(high)
    if not low < high:
        raise ValueError(said)
    if not math.isfinite(high - low):
        raise ValueError(f"the range of {kind}({low!r}, {high!r}) overflows.")
    if log and low <= 0:
        raise ValueError(f"{kind} with log needs low > 0, got {low!r}.")
    if log and not math.log(low) < math.log(high):
        raise ValueError(f"the logarithms of {low!r} and {high!r} are equal: leave out log, or widen the range.")
    return low, high
