"""YAML to frozen dataclasses, with errors that name the nearest valid key.

A file describes panels. Keys at the top level are defaults of its panels; with ``include`` (other files, by
paths relative to this one) they override what those files say::

    name: quickstart
    trials: 48
    horizon: 2000
    algorithms:
      - {name: gp-ucb, width: {kind: finite, scale: 0.447}}
    panels:
      - {name: clean, problem: {kind: sp500}}
"""

from __future__ import annotations

import dataclasses
import difflib
import hashlib
import json
import re
import types
import typing
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from bo_robust.algorithms import ALGORITHMS
from bo_robust.runner.errors import RunError
from bo_robust.validation import check_count, check_delta, check_positive

__all__ = ["AlgorithmConfig", "PanelConfig", "RunConfig", "apply_overrides", "kind_of", "load", "nearest", "typed"]


@dataclass(frozen=True)
class AlgorithmConfig:
    """One algorithm of a panel.

    Attributes:
        name: Name in :data:`bo_robust.algorithms.ALGORITHMS`.
        label: Name in tables and pictures; the upper-case name by default. Unique within a panel.
        width: ``{kind: ..., ...}`` of :data:`bo_robust.schedules.WIDTHS`; what is left out comes from the problem.
        truncation: ``{kind: ..., ...}`` of :data:`bo_robust.schedules.TRUNCATIONS`.
        margin: Of the probability of improvement only.
        features: ``{kind: ..., ...}`` of :data:`bo_robust.runner.build.FEATURES`, for methods in feature space.
        root: "symmetric" or "cholesky", for methods in feature space.
        rule: "zero", "clip" or "residual", for methods that truncate.
        groups: Of the median of means only.
        oversampling: q of BKB and BBKB.
        epsilon: In place of it: accuracy of their dictionaries, in (0, 1); q is then the theorem's for T and delta.
        redraw: "fresh" or "persistent", of BKB only.
        batch_constant: Of BBKB (on the scale of variances) and mini-GP-UCB (C >= 1).
        noise_scale: R of HE-GP-UCB's test, and of its width if that sets none; the problem's by default.
    """

    name: str
    label: str = ""
    width: dict[str, Any] | None = None
    truncation: dict[str, Any] | None = None
    margin: float | None = None
    features: dict[str, Any] | None = None
    root: str | None = None
    rule: str | None = None
    groups: int | None = None
    oversampling: float | None = None
    epsilon: float | None = None
    redraw: str | None = None
    batch_constant: float | None = None
    noise_scale: float | None = None

    def __post_init__(self) -> None:
        if self.name not in ALGORITHMS:
            raise RunError(f"unknown algorithm {self.name!r}; {nearest(self.name, ALGORITHMS)}")
        if not self.label:
            object.__setattr__(self, "label", self.name.upper())


@dataclass(frozen=True)
class PanelConfig:
    """One problem, several algorithms on the same draws.

    Attributes:
        name: Unique within the run.
        problem: ``{kind: ..., ...}`` of :data:`bo_robust.problems.PROBLEMS`.
        algorithms: What to compare.
        trials: Independent trials, >= 1, all played at once.
        horizon: Rounds, >= 1, those of the initial design included.
        initial: Rounds of the initial design, uniform random arms that are the same for all algorithms; < horizon.
        seed: Seed of problems, rewards and randomised algorithms.
        delta: Failure probability handed to widths and levels that do not set their own.
        noise_var: lambda of the posterior; the problem's by default.
        dtype: "float64" or "float32".
        compare: Pairs of labels to compare in words, the candidate first.
        intervals: Whether to draw the final confidence intervals of the worst-covered trial.
    """

    name: str
    problem: dict[str, Any]
    algorithms: tuple[AlgorithmConfig, ...]
    trials: int = 20
    horizon: int = 1000
    initial: int = 0
    seed: int = 0
    delta: float = 0.1
    noise_var: float | None = None
    dtype: str = "float64"
    compare: tuple[tuple[str, ...], ...] = ()
    intervals: bool = False

    def __post_init__(self) -> None:
        try:
            check_count(1, trials=self.trials)
            check_count(1, horizon=self.horizon)
            check_count(0, seed=self.seed, initial=self.initial)
            check_delta(self.delta)
            if self.noise_var is not None:
                check_positive(noise_var=self.noise_var)
        except ValueError as error:
            raise RunError(f"panel {self.name!r}: {error}") from None
        if self.initial >= self.horizon:
            raise RunError(
                f"panel {self.name!r}: initial must be below the horizon, whose first rounds it is; got "
                f"{self.initial} of {self.horizon}."
            )
        if self.dtype not in ("float64", "float32"):
            raise RunError(f"panel {self.name!r}: dtype must be float64 or float32, got {self.dtype!r}.")
        check_labels(self.name, "algorithms", [a.label for a in self.algorithms], self.compare)


@dataclass(frozen=True)
class RunConfig:
    """Everything a run does.

    Attributes:
        name: Of the run; names the result folder, so a plain folder name.
        panels: In the order they are played.
        description: One or two sentences shown with the results.
    """

    name: str
    panels: tuple[PanelConfig, ...]
    description: str = ""

    def __post_init__(self) -> None:
        plain = self.name.strip() and self.name.isprintable() and len(self.name) <= 100
        if not plain or self.name.startswith(".") or any(c in self.name for c in "/\\:"):
            raise RunError(
                f"the run's `name` becomes a folder: give up to 100 printable characters without / \\ : and without a "
                f"leading dot, got {self.name!r}."
            )
        names = [p.name for p in self.panels]
        if not names:
            raise RunError(f"run {self.name!r} has no panels; list at least one under `panels:`.")
        for name in names:
            if names.count(name) > 1:
                raise RunError(f"run {self.name!r} has two panels named {name!r}; give each its own name.")

    def to_dict(self) -> dict[str, Any]:
        """Plain data, with every default written out."""
        return json.loads(json.dumps(dataclasses.asdict(self)))

    @property
    def digest(self) -> str:
        """A hash of :meth:`to_dict`, to notice a changed configuration."""
        return hashlib.sha256(json.dumps(self.to_dict(), sort_keys=True).encode()).hexdigest()[:16]

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> RunConfig:
        """From the data of one file (without ``include``), unknown and ill-typed keys refused."""
        panel_keys = {f.name for f in dataclasses.fields(PanelConfig)} - {"name", "problem"}
        known = {"name", "description", "panels"} | panel_keys
        _refuse_unknown(_mapping(data, "the configuration"), known, "the run")
        defaults = {k: v for k, v in data.items() if k in panel_keys}
        panels = _panel_list(data, "the configuration")
        return cls(
            name=typed(data.get("name", "run"), str, "name"),
            description=typed(data.get("description", ""), str, "description"),
            panels=tuple(_panel({**defaults, **p}) for p in panels),
        )


def load(path: Path, overrides: Iterable[str] = (), **forced: Any) -> RunConfig:
    """Read a configuration file.

    Args:
        path: The YAML file.
        overrides: ``key=value`` strings; keys are dotted paths (``trials``, ``panels.0.problem.bad_ticks``).
            A panel key at the top level is set in every panel.
        **forced: Panel keys to set in every panel where the value is not None (trials, horizon).

    Raises:
        RunError: on a missing or unreadable file, unknown or ill-typed keys, or values out of range.
    """
    data = _read(path)
    apply_overrides(data, overrides)
    for key, value in forced.items():
        if value is not None:
            _force(data, key, value)
    return RunConfig.from_dict(data)


def check_labels(panel: str, kind: str, labels: list[str], compare: Iterable[Sequence[str]]) -> None:
    """Raise ``RunError`` unless a panel has entries, of distinct labels, and compares pairs of these.

    Args:
        panel: Its name.
        kind: What it lists: "algorithms" or "methods".
        labels: Of the entries.
        compare: Pairs of labels.
    """
    if not labels:
        raise RunError(f"panel {panel!r} has no {kind}; list at least one under `{kind}:`.")
    for label in labels:
        if labels.count(label) > 1:
            raise RunError(f"panel {panel!r} has two {kind} labelled {label!r}; give each a `label`.")
    for pair in compare:
        if len(pair) != 2:
            raise RunError(f"panel {panel!r}: `compare` holds pairs of labels, got {list(pair)}.")
        for label in pair:
            if label not in labels:
                raise RunError(f"panel {panel!r} compares {label!r}, {nearest(label, labels)}")


def apply_overrides(data: dict[str, Any], overrides: Iterable[str]) -> None:
    """Set ``key=value`` strings in plain configuration data, in place.

    Raises:
        RunError: on text without ``=``, a value that is no YAML, or a path that leads nowhere.
    """
    for text in overrides:
        key, separator, value = text.partition("=")
        if not separator:
            raise RunError(f"--set takes key=value, got {text!r}.")
        parsed = _parse(value, f"the value of --set {text!r}")
        *path, last = key.split(".")
        if not path:
            _force(data, key, parsed)
            continue
        target: Any = data
        for part in path:
            target = target[_step(target, part, key)]
        if isinstance(target, dict):
            target[last] = parsed
        else:
            target[_step(target, last, key)] = parsed


def nearest(name: str, valid: Iterable[str]) -> str:
    """A hint such as ``did you mean 'tgp-ucb'? (one of: ...)``."""
    options = sorted(str(v) for v in valid)
    close = difflib.get_close_matches(name, options, n=1, cutoff=0.5)
    hint = f"did you mean {close[0]!r}? " if close else ""
    return f"{hint}(one of: {', '.join(options)})"


class _Loader(yaml.SafeLoader):
    """YAML in which 1e-3 is a number (YAML 1.1 asks for 1.0e-3) and a key stands once."""

    def compose_mapping_node(self, anchor: Any) -> Any:
        """The mapping; ConstructorError where a key stands twice, of which YAML would keep the last."""
        node = super().compose_mapping_node(anchor)
        keys = [key for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        for i, key in enumerate(keys):
            if key.value in (k.value for k in keys[:i]):
                raise yaml.constructor.ConstructorError(None, None, f"key {key.value!r} stands twice", key.start_mark)
        return node


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?(\d+\.?\d*|\.\d+)[eE][-+]?\d+$"), list("-+.0123456789")
)


def _parse(text: str, where: str) -> Any:
    try:
        return yaml.load(text, _Loader)
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # ValueError: a date such as 2020-13-01
        raise RunError(f"{where} is not valid YAML: {' '.join(str(error).split())}") from None


def _read(path: Path, seen: tuple[Path, ...] = ()) -> dict[str, Any]:
    """One file with its includes resolved into ``panels``."""
    if path.resolve() in seen:
        raise RunError(f"{path} includes itself.")
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise RunError(f"cannot read the configuration {path}: {error.strerror}.") from None
    except UnicodeDecodeError as error:
        raise RunError(f"{path} is not valid YAML: {error}") from None
    data = _mapping(_parse(text, str(path)), str(path))
    included = data.pop("include", None)
    if included is None:
        return data
    if not isinstance(included, list):
        raise RunError(f"{path}: `include:` must be a list of files.")
    panels: list[dict[str, Any]] = []
    for name in included:
        inner = _read(path.parent / str(name), (*seen, path.resolve()))
        shared = {k: v for k, v in inner.items() if k not in ("name", "description", "panels")}
        panels += [{**shared, **panel} for panel in _panel_list(inner, str(name))]
    over = {k: v for k, v in data.items() if k not in ("name", "description", "panels")}
    own = _panel_list(data, str(path)) if "panels" in data else []
    data["panels"] = [{**panel, **over} for panel in panels] + own
    return data


def _panel_list(data: dict[str, Any], where: str) -> list[dict[str, Any]]:
    panels = data.get("panels")
    if not isinstance(panels, list):
        raise RunError(f"`panels:` of {where} must be a list of panels, got {panels!r}.")
    return [_mapping(panel, f"a panel of {where}") for panel in panels]


def _force(data: dict[str, Any], key: str, value: Any) -> None:
    data[key] = value
    panels = data.get("panels")
    if key not in ("name", "description", "panels") and isinstance(panels, list):
        for panel in panels:
            if isinstance(panel, dict):
                panel.pop(key, None)


def _step(target: Any, part: str, key: str) -> Any:
    """``part`` as a valid index or key of ``target``."""
    if isinstance(target, list):
        if part.isdecimal() and int(part) < len(target):
            return int(part)
        options = [str(i) for i in range(len(target))]
    elif isinstance(target, dict):
        if part in target:
            return part
        options = list(target)
    else:
        raise RunError(f"--set {key}: there is no {part!r}, for {target!r} has no keys.")
    raise RunError(f"--set {key}: there is no {part!r}; {nearest(part, options)}")


def _panel(data: dict[str, Any]) -> PanelConfig:
    where = f"panel {data.get('name', '?')!r}"
    for key in ("name", "problem"):
        if key not in data:
            raise RunError(f"{where} has no `{key}:`.")
    values = dict(data)
    kind_of(values["problem"], f"`problem` of {where}")
    algorithms = values.get("algorithms", [])
    if not isinstance(algorithms, list):
        raise RunError(f"`algorithms` of {where} must be a list.")
    values["algorithms"] = tuple(_algorithm(a, where) for a in algorithms)
    compare = values.get("compare", [])
    if not isinstance(compare, list) or not all(isinstance(p, list) for p in compare):
        raise RunError(f"`compare` of {where} must be a list of pairs of labels.")
    values["compare"] = tuple(tuple(str(label) for label in pair) for pair in compare)
    return PanelConfig(**_checked(values, PanelConfig, where))


def _algorithm(data: Any, where: str) -> AlgorithmConfig:
    if isinstance(data, str):
        data = {"name": data}
    values = _mapping(data, f"an algorithm of {where}")
    if "name" not in values:
        raise RunError(f"an algorithm of {where} has no `name:`.")
    for key in ("width", "truncation", "features"):
        if values.get(key) is not None:
            kind_of(values[key], f"`{key}` of {values['name']!r} in {where}")
    return AlgorithmConfig(**_checked(values, AlgorithmConfig, f"algorithm {values['name']!r} of {where}"))


def _checked(values: dict[str, Any], cls: type, where: str) -> dict[str, Any]:
    hints = typing.get_type_hints(cls)
    _refuse_unknown(values, hints, where)
    return {key: typed(value, hints[key], f"{key} of {where}") for key, value in values.items()}


def typed(value: Any, hint: Any, where: str) -> Any:
    """The value if it is of the annotated type; a whole number is a number too, true and false are not.

    Args:
        value: As read from YAML.
        hint: A type, or a union of types; what a container holds is not looked at.
        where: Names the value in errors.

    Raises:
        RunError: if it is of another type.
    """
    options = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    plain = tuple(typing.get_origin(option) or option for option in options)
    fits = isinstance(value, plain) and (bool in plain or not isinstance(value, bool))
    if float in plain and type(value) is int and abs(value) < 10**300:
        return float(value)
    if not fits:
        raise RunError(f"{where} must be {_describe(plain)}, got {value!r}.")
    return value


def kind_of(data: Any, where: str) -> str:
    """The ``kind`` of a mapping that must have one.

    Raises:
        RunError: if ``data`` is no mapping, or its kind is missing or no text.
    """
    if not isinstance(data, dict):
        raise RunError(f"{where} must be a mapping with a `kind:`, got {data!r}.")
    if "kind" not in _mapping(data, where):
        raise RunError(f"{where} has no `kind:`.")
    return typed(data["kind"], str, f"kind of {where}")


def _describe(options: tuple[type, ...]) -> str:
    names: dict[Any, str] = {int: "a whole number", float: "a number", str: "text", bool: "true or false"}
    names |= {dict: "a mapping", Mapping: "a mapping"}
    return " or ".join(names.get(o, "empty" if o is types.NoneType else o.__name__) for o in options)


def _refuse_unknown(data: dict[str, Any], known: Iterable[str], where: str) -> None:
    for key in data:
        if key not in set(known):
            raise RunError(f"unknown key {key!r} in {where}; {nearest(str(key), known)}")


def _mapping(data: Any, where: str) -> dict[str, Any]:
    if not isinstance(data, dict):
        raise RunError(f"{where} must be a mapping of keys to values, got {data!r}.")
    for key in data:
        if not isinstance(key, str):
            raise RunError(f"{where} has the key {key!r}, which is no text; put it in quotes or correct it.")
    return data
