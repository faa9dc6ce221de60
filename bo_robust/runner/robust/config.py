"""Configuration of robust runs, with the rules of :mod:`bo_robust.runner.config`: panels, includes, nearest keys::

loop: value_at_risk
name: discrete
repetitions: 10
rounds: 30
methods: [v-ucb-prob, {name: rho-kg-apx, fantasies: 8}, random]
panels:
  - {name: "Branin-Hoo (1,1)", problem: {kind: branin, z: discrete}}
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import typing
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from bo_robust.problems.robust import ROBUST_PROBLEMS, RobustProblem, make
from bo_robust.runner.config import (
    RunConfig,
    _checked,
    _force,
    _mapping,
    _panel_list,
    _read,
    _refuse_unknown,
    apply_overrides,
    check_labels,
    kind_of,
    nearest,
    typed,
)
from bo_robust.runner.errors import RunError
from bo_robust.validation import check_count

__all__ = [
    "LOOP",
    "MethodConfig",
    "RobustPanelConfig",
    "RobustRunConfig",
    "build_problem",
    "is_robust",
    "is_robust_folder",
    "load",
]

LOOP = "value_at_risk"
# Arguments of problems that are no parameters of the problem, and where they are set instead.
RESERVED = {"device": "use --device", "dtype": "robust runs are in float64", "data_dir": "use --data-dir"}


@dataclass(frozen=True)
class MethodConfig:
    """One method of a panel.

    Attributes:
        name: Name in :data:`bo_robust.runner.robust.methods.METHODS`.
        label: Name in tables and pictures; the upper-case name by default. Unique within a panel.
        options: Settings of the method, by the names of its fields.
    """

    name: str
    label: str = ""
    options: dict[str, Any] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.label:
            object.__setattr__(self, "label", self.name.upper())
        self.build()

    def build(self) -> Any:
        """The method.

        Raises:
            RunError: if there is none of that name, or it does not take the settings.
        """
        from bo_robust.runner.robust.methods import METHODS  # imports BoTorch's optimisers

        if self.name not in METHODS:
            raise RunError(f"unknown method {self.name!r}; {nearest(self.name, METHODS)}")
        cls = METHODS[self.name]
        hints = typing.get_type_hints(cls)
        known = [f.name for f in dataclasses.fields(cls)]
        where = f"method {self.name!r}"
        _refuse_unknown(self.options, [*known, "name", "label"], where)
        try:
            return cls(**{k: typed(v, hints[k], f"{k} of {where}") for k, v in self.options.items()})
        except ValueError as error:
            raise RunError(f"{where}: {error}") from None


@dataclass(frozen=True)
class RobustPanelConfig:
    """One problem, several methods from the same initial points and with the same noise.

    Attributes:
        name: Unique within the run.
        problem: ``{kind: ..., ...}`` of :data:`bo_robust.problems.robust.ROBUST_PROBLEMS`.
        methods: What to compare.
        repetitions: Runs of each method, >= 1.
        rounds: Observations after the initial ones, >= 1.
        initial_points: Observations before; the problem's by default.
        refit_every: Rounds between fits of the hyperparameters, >= 1.
        seed: Of initial points, noise and methods.
        compare: Pairs of labels to compare in words, the candidate first.
    """

    name: str
    problem: dict[str, Any]
    methods: tuple[MethodConfig, ...]
    repetitions: int = 10
    rounds: int = 30
    initial_points: int | None = None
    refit_every: int = 3
    seed: int = 0
    compare: tuple[tuple[str, ...], ...] = ()

    def __post_init__(self) -> None:
        try:
            check_count(1, repetitions=self.repetitions)
            check_count(1, rounds=self.rounds)
            check_count(1, initial_points=1 if self.initial_points is None else self.initial_points)
            check_count(1, refit_every=self.refit_every)
            check_count(0, seed=self.seed)
        except ValueError as error:
            raise RunError(f"panel {self.name!r}: {error}") from None
        check_labels(self.name, "methods", [m.label for m in self.methods], self.compare)


@dataclass(frozen=True)
class RobustRunConfig:
    """Everything a robust run does; as :class:`bo_robust.runner.config.RunConfig`.

    Attributes:
        name: Of the run; names the result folder.
        panels: In the order they are played.
        description: One or two sentences shown with the results.
    """

    name: str
    panels: tuple[RobustPanelConfig, ...]
    description: str = ""

    def __post_init__(self) -> None:
        RunConfig.__post_init__(cast(RunConfig, self))  # the same rules for names

    def to_dict(self) -> dict[str, Any]:
        """Plain data that :meth:`from_dict` takes, with every default of the panels written out."""
        data = json.loads(json.dumps(dataclasses.asdict(self)))
        for panel in data["panels"]:
            panel["methods"] = [{"name": m["name"], "label": m["label"], **m["options"]} for m in panel["methods"]]
        return {"loop": LOOP, **data}

    @property
    def digest(self) -> str:
        """A hash of :meth:`to_dict`, to notice a changed configuration."""
        return hashlib.sha256(json.dumps(self.to_dict(), sort_keys=True).encode()).hexdigest()[:16]

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> RobustRunConfig:
        """From the data of one file (without ``include``), unknown and ill-typed keys refused."""
        panel_keys = {f.name for f in dataclasses.fields(RobustPanelConfig)} - {"name", "problem"}
        known = {"loop", "name", "description", "panels"} | panel_keys
        _refuse_unknown(_mapping(data, "the configuration"), known, "the run")
        if data.get("loop") != LOOP:
            raise RunError(f"unknown `loop:` {data.get('loop')!r}; {nearest(str(data.get('loop')), [LOOP])}")
        defaults = {k: v for k, v in data.items() if k in panel_keys}
        # Included files hand their `loop:` down to their panels.
        panels = [{k: v for k, v in p.items() if k != "loop"} for p in _panel_list(data, "the configuration")]
        return cls(
            name=typed(data.get("name", "run"), str, "name"),
            description=typed(data.get("description", ""), str, "description"),
            panels=tuple(_panel({**defaults, **p}) for p in panels),
        )


def is_robust(path: Path) -> bool:
    """Whether a configuration file asks for another loop than the arm engine.

    Raises:
        RunError: if the file cannot be read.
    """
    return "loop" in _read(path)


def is_robust_folder(folder: Path) -> bool:
    """Whether a result folder is one of a robust run; False also where it is none at all."""
    try:
        return json.loads((folder / "run.json").read_text(encoding="utf-8"))["config"].get("loop") == LOOP
    except (OSError, ValueError, KeyError, AttributeError, TypeError):
        return False


def load(path: Path, overrides: Iterable[str] = (), **forced: Any) -> RobustRunConfig:
    """Read a configuration file; arguments and errors as :func:`bo_robust.runner.config.load`."""
    data = _read(path)
    apply_overrides(data, overrides)
    for key, value in forced.items():
        if value is not None:
            _force(data, key, value)
    return RobustRunConfig.from_dict(data)


def build_problem(panel: RobustPanelConfig, data_dir: Path | None, device: Any) -> RobustProblem:
    """The problem of a panel.

    Raises:
        RunError: naming the panel, on an unknown problem, bad options, or missing data or packages.
    """
    where = f"panel {panel.name!r}"
    options = {k: v for k, v in panel.problem.items() if k != "kind"}
    for key in options:
        if key in RESERVED:
            raise RunError(f"{where}: {key!r} is no parameter of a problem; {RESERVED[key]}.")
    try:
        return make(panel.problem["kind"], data_dir=data_dir, device=device, **options)
    except (ValueError, TypeError, OSError, ImportError) as error:
        raise RunError(f"{where}: {error}") from None


def _panel(data: dict[str, Any]) -> RobustPanelConfig:
    where = f"panel {data.get('name', '?')!r}"
    for key in ("name", "problem"):
        if key not in data:
            raise RunError(f"{where} has no `{key}:`.")
    values = dict(data)
    kind = kind_of(values["problem"], f"`problem` of {where}")
    if kind not in ROBUST_PROBLEMS:
        raise RunError(f"{where}: unknown problem {kind!r}; {nearest(kind, ROBUST_PROBLEMS)}")
    methods = values.get("methods", [])
    if not isinstance(methods, list):
        raise RunError(f"`methods` of {where} must be a list.")
    values["methods"] = tuple(_method(m, where) for m in methods)
    compare = values.get("compare", [])
    if not isinstance(compare, list) or not all(isinstance(p, list) for p in compare):
        raise RunError(f"`compare` of {where} must be a list of pairs of labels.")
    values["compare"] = tuple(tuple(str(label) for label in pair) for pair in compare)
    return RobustPanelConfig(**_checked(values, RobustPanelConfig, where))


def _method(data: Any, where: str) -> MethodConfig:
    if isinstance(data, str):
        data = {"name": data}
    values = _mapping(data, f"a method of {where}")
    if "name" not in values:
        raise RunError(f"a method of {where} has no `name:`.")
    name, label = (typed(values.get(key, ""), str, f"{key} of a method of {where}") for key in ("name", "label"))
    return MethodConfig(name, label, {k: v for k, v in values.items() if k not in ("name", "label")})
