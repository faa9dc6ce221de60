"""What a study searches: a box of named parameters, or a finite set of arms.

A model sees the unit cube. A range (of the logarithm, where ``log``) is mapped to [0, 1], and a categorical parameter
has one column per choice. People, objectives and the file see values as they are, as ``{"name": value}``.
"""

import itertools
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from numbers import Integral
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bo_robust.validation import is_number, quoted

Point = dict[str, Any]
MOST_POINTS = 4096  # so many combinations of discrete parameters are all looked at
CONDITIONAL = "for conditional parameters use Optuna with bo_robust.integrations.optuna.RobustSampler()"


@dataclass(frozen=True)
class Float:
    """A real parameter in [low, high].

    Args:
        low: Its smallest value.
        high: Its largest value.
        log: Whether its logarithm is searched, which needs low > 0.
        step: If given, its values are low, low + step, ..., high, each with an equal share of [0, 1].

    Raises:
        ValueError: if the bounds are no such range.
    """

    low: float
    high: float
    log: bool = False
    step: float | None = None

    def __post_init__(self) -> None:
        _check_range(type(self).__name__, self.low, self.high, self.log)
        object.__setattr__(self, "low", float(self.low))
        object.__setattr__(self, "high", float(self.high))
        if self.step is not None:
            _check_step(self.low, self.high, self.log, self.step)

    @property
    def columns(self) -> tuple[str, ...]:
        """What a model's columns add to the name of the parameter."""
        return ("",)

    def encode(self, value: float) -> list[float]:
        """The value as a number in [0, 1]."""
        low, high = self._ends()
        return [((math.log(value) if self.log else value) - low) / (high - low)]

    def decode(self, columns: Sequence[float]) -> float:
        """The value at a number in [0, 1], or the one whose share it is in; rounding must not leave the range."""
        low, high = self._ends()
        value = low + columns[0] * (high - low)
        return min(max(self._nearest(math.exp(value) if self.log else value), self.low), self.high)

    def check(self, value: Any) -> float:
        """Return the value as stored; raise ``ValueError`` if it is none of this parameter."""
        if is_number(value) and self.low <= value <= self.high:
            nearest = min(self._nearest(value), self.high)
            if abs(value - nearest) <= 1e-9 * (self.step or 0.0):
                return nearest
        raise ValueError(f"{value!r} is not in {self}")

    def values(self) -> list[Any] | None:
        """All values; None if they are a continuum, or more than ``MOST_POINTS``."""
        if self.step is None or (self.high - self.low) / self.step >= MOST_POINTS:
            return None
        count = round((self.high - self.low) / self.step) + 1
        return [min(self.low + i * self.step, self.high) for i in range(count)]

    def _ends(self) -> tuple[float, float]:
        share = 0.5 * (self.step or 0.0)
        low, high = self.low - share, self.high + share
        return (math.log(low), math.log(high)) if self.log else (low, high)

    def _nearest(self, value: float) -> float:
        if self.step is None:
            return float(value)
        return self.low + round((value - self.low) / self.step) * self.step


@dataclass(frozen=True)
class Integer(Float):
    """A whole number low, low + step, ..., high, each with an equal share of [0, 1] (of the logarithm's range).

    Raises ``ValueError`` if the bounds or step are not whole, or no such range (``log`` needs low >= 1 and step 1).
    """

    step: int = 1

    def __post_init__(self) -> None:
        for name in ("low", "high", "step"):
            value = getattr(self, name)
            if is_number(value) and value != int(value):
                raise ValueError(f"{name} of an Integer must be a whole number, got {value!r}.")
        super().__post_init__()
        for name in ("low", "high", "step"):
            object.__setattr__(self, name, int(getattr(self, name)))

    def _nearest(self, value: float) -> int:
        return int(super()._nearest(value))


@dataclass(frozen=True, init=False)
class Categorical:
    """A parameter whose values have no order: texts, numbers, true, false, None.

    Raises ``ValueError`` unless there are at least two values that differ, plain JSON.
    """

    choices: Sequence[Any]

    def __init__(self, choices: Sequence[Any], *others: Any) -> None:
        if others:
            raise TypeError(f"choices are one list: write Categorical({quoted([choices, *others])}).")
        given = list(choices) if isinstance(choices, list | tuple) else []
        plain = all(map(_is_choice, given))
        if len(given) < 2 or not plain:
            raise ValueError(
                f"choices must be at least two different texts, numbers, true, false or None; got {quoted(choices)}."
            )
        for a, b in itertools.combinations(given, 2):
            if a == b:
                raise ValueError(f"choices must differ, but in Python {quoted(a)} == {quoted(b)}: make one a text.")
        object.__setattr__(self, "choices", tuple(json.loads(json.dumps(given, default=_plain))))

    @property
    def columns(self) -> tuple[str, ...]:
        """What a model's columns add to the name of the parameter."""
        return tuple(f"={choice}" for choice in self.choices)

    def encode(self, value: Any) -> list[float]:
        """1 in the column of the choice, 0 in the others."""
        return [float(choice == value) for choice in self.choices]

    def decode(self, columns: Sequence[float]) -> Any:
        """The choice of the largest column."""
        return self.choices[max(range(len(columns)), key=columns.__getitem__)]

    def check(self, value: Any) -> Any:
        """Return the value as stored; raise ``ValueError`` if it is none of this parameter."""
        if not _is_choice(value) or value not in self.choices:
            raise ValueError(f"{value!r} is not in {self}")
        return self.choices[self.choices.index(value)]

    def values(self) -> list[Any]:
        """All choices."""
        return list(self.choices)


Parameter = Float | Integer | Categorical
KINDS: dict[str, type[Parameter]] = {"float": Float, "integer": Integer, "categorical": Categorical}


@dataclass(frozen=True)
class Box:
    """Every combination of named parameters; raises ``ValueError`` if there are none.

    Args:
        parameters: Maps names to :class:`Float`, :class:`Integer`, :class:`Categorical`, or ``(low, high)``, which is
            short for ``Float(low, high)``, also where low and high are whole numbers.
    """

    parameters: Mapping[str, Any]

    def __post_init__(self) -> None:
        made: dict[str, Parameter] = {}
        if not isinstance(self.parameters, Mapping):
            raise ValueError(f"parameters must map names to ranges, got {quoted(self.parameters)}.")
        for name, p in self.parameters.items():
            if not isinstance(name, str) or not name:
                raise ValueError(f"parameters have names, got {quoted(name)}.")
            p = p.tolist() if isinstance(p, Tensor | np.ndarray) else p
            if isinstance(p, tuple | list) and len(p) == 2 and all(is_number(v) or isinstance(v, float) for v in p):
                try:
                    p = Float(*p)
                except ValueError as error:
                    raise ValueError(f"parameter {quoted(name)}: {error}") from None
            if not isinstance(p, Parameter):
                wanted = f"parameter {quoted(name)} must be Float, Integer, Categorical or (low, high), a Float"
                listed = isinstance(p, tuple | list) and len(p) > 1 and all(map(_is_choice, p))
                hint = f"write Categorical({quoted(list(p))})" if listed else CONDITIONAL
                raise ValueError(f"{wanted}, got {quoted(p)}; {hint}.")
            made[name] = p
        if not made:
            raise ValueError("a space needs at least one parameter.")
        object.__setattr__(self, "parameters", made)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the parameters."""
        return tuple(self.parameters)

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of a model's columns, d of them."""
        return tuple(f"{name}{column}" for name, p in self.parameters.items() for column in p.columns)

    @cached_property
    def points(self) -> list[Point] | None:
        """All combinations; None if they are a continuum, or more than ``MOST_POINTS``."""
        values = [p.values() for p in self.parameters.values()]
        if None in values or math.prod(len(v) for v in values) > MOST_POINTS:
            return None
        return [dict(zip(self.names, combined, strict=True)) for combined in itertools.product(*values)]

    def check(self, x: Mapping[str, Any]) -> Point:
        """Return the point as stored; raise ``ValueError`` naming a missing, unknown or out-of-range parameter."""
        _check_names(x, self.names)
        point = {}
        for name, p in self.parameters.items():
            try:
                point[name] = p.check(x[name])
            except ValueError as error:
                raise ValueError(f"{name} = {error}.") from None
        return point

    def encode(self, x: Mapping[str, Any]) -> list[float]:
        """Coordinates in the unit cube, ``d``."""
        return [u for name, p in self.parameters.items() for u in p.encode(x[name])]

    def decode(self, columns: Sequence[float]) -> Point:
        """The point at coordinates in the unit cube, ``d``; discrete parameters take the nearest value."""
        rest = iter(columns)
        return {name: p.decode([next(rest) for _ in p.columns]) for name, p in self.parameters.items()}

    def to_json(self) -> dict[str, Any]:
        """Plain JSON, see :func:`space_from_json`."""
        rows = {name: {"kind": type(p).__name__.lower(), **asdict(p)} for name, p in self.parameters.items()}
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
        points = list(self.points) if isinstance(self.points, Iterable) else [None]
        if not all(isinstance(p, Mapping) for p in points):
            raise ValueError(f"arms are a list of points, each {{'name': number}}, got {quoted(self.points)}.")
        if len(points) < 2 or not points[0]:
            raise ValueError("give at least two arms, each with at least one number.")
        for i, p in enumerate(points):
            _check_names(p, tuple(points[0]))
            for name, value in p.items():
                if not is_number(value):
                    raise ValueError(f"arm {i}: {name} = {value!r} is not a finite number; a Box may be Categorical.")
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

    @property
    def columns(self) -> tuple[str, ...]:
        """The same, as of a :class:`Box`."""
        return self.names

    def check(self, x: Mapping[str, Any]) -> Point:
        """Return the arm as stored; raise ``ValueError`` if it is none."""
        _check_names(x, self.names)
        plain = {name: _plain(x[name]) if is_number(x[name]) else x[name] for name in self.names}
        if not all(map(is_number, plain.values())) or tuple(plain.values()) not in self._rows:
            raise ValueError(f"{plain} is not one of the {len(self.points)} arms.")
        return plain

    def check_condition(self, z: Mapping[str, Any]) -> Point:
        """Return a condition as stored, where the arms are those of an environment.

        Raises ``ValueError`` unless each of its numbers is between the smallest and the largest of the arms.
        """
        _check_names(z, self.names, "a condition")
        for name in self.names:
            low, high = (end(p[name] for p in self.points) for end in (min, max))
            if not is_number(z[name]) or not low <= z[name] <= high:
                raise ValueError(
                    f"{name} = {quoted(z[name])} is no number from {low!r} to {high!r}, the range of the environment; "
                    "a new study may list farther conditions, if need be with probability 0, and `add` these results."
                )
        return {name: _plain(z[name]) for name in self.names}

    def encode(self, x: Mapping[str, float]) -> list[float]:
        """Coordinates in the unit cube, ``d``."""
        return [(x[name] - low) / side for name, (low, side) in zip(self.names, self._ranges, strict=True)]

    def to_json(self) -> dict[str, Any]:
        """Plain JSON, see :func:`space_from_json`."""
        return {"kind": "arms", "points": [dict(p) for p in self.points]}


Space = Box | Arms


def all_points(space: Space) -> Tensor:
    """All points of a finite space in the unit cube, ``n x d`` float64."""
    return torch.tensor([space.encode(p) for p in space.points or ()], dtype=torch.float64)


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
    rows = {name: dict(options) for name, options in data["parameters"].items()}
    return Box({name: KINDS[options.pop("kind")](**options) for name, options in rows.items()})


def _is_choice(value: Any) -> bool:
    return value is None or isinstance(value, str | bool) or is_number(value)


def _plain(value: Any) -> float:
    return int(value) if isinstance(value, Integral) else float(value)


def _check_names(x: Mapping[str, Any], names: tuple[str, ...], what: str = "a point") -> None:
    if not isinstance(x, Mapping) or set(x) != set(names):
        raise ValueError(f"{what} has a value for each of {', '.join(names)}; got {quoted(x)}.")


def _check_range(kind: str, low: float, high: float, log: bool) -> None:
    if not (is_number(low) and is_number(high) and low < high):
        raise ValueError(f"{kind} needs finite bounds with low < high, got {low!r} and {high!r}.")
    if not math.isfinite(float(high) - float(low)):
        raise ValueError(f"the range of {kind}({low!r}, {high!r}) overflows.")
    if log and low <= 0:
        raise ValueError(f"{kind} with log needs low > 0, got {low!r}.")
    if log and not math.log(low) < math.log(high):
        raise ValueError(f"the logarithms of {low!r} and {high!r} are equal: leave out log, or widen the range.")


def _check_step(low: float, high: float, log: bool, step: float) -> None:
    steps = (high - low) / step if is_number(step) and step > 0 else math.nan
    if not abs(steps - round(steps) if math.isfinite(steps) else math.nan) <= 1e-9 * steps:
        raise ValueError(f"step must be > 0 and lead from {low!r} to {high!r}, got {step!r}.")
    if log and step != 1:
        raise ValueError(f"step must be left out with log, got {step!r}.")
