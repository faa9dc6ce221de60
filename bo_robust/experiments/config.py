"""Configuration of a run: frozen models checked by pydantic; :func:`parse` says every mistake in one sentence.

A file (:mod:`bo_robust.experiments.files`) describes panels. A panel is one problem and the methods that are compared
on it: over arms, with ``loop: conditions`` over pairs (x, z), or with ``loop: botorch`` over designs. Keys at the top
level are defaults of the panels.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, SerializerFunctionWrapHandler, ValidationError
from pydantic import model_serializer as serializer
from pydantic import model_validator as validator
from pydantic_core import ErrorDetails

from bo_robust.experiments.errors import RunError
from bo_robust.experiments.loop import Loop
from bo_robust.experiments.loops import LOOPS
from bo_robust.experiments.outliers import OUTLIERS, Frozen, Outliers
from bo_robust.utils.specs import SpecError, build, kind_of, nearest, quoted

Natural = Annotated[int, Field(ge=0, lt=2**63)]
Positive = Annotated[int, Field(ge=1, lt=2**63)]
Name = Annotated[str, Field(max_length=100)]
Pair = Annotated[list[str], Field(min_length=2, max_length=2)]


class PanelMethod(Frozen):
    """A method in a panel.

    Keys beside these are options, fields of its class. A width, truncation or feature map is ``{kind: ..., ...}``;
    constants it leaves out come from problem and panel (:func:`bo_robust.experiments.build.constants_of`).
    """

    model_config = ConfigDict(extra="allow")

    name: Name  # a key of the loop's ``methods``
    label: Name = ""  # in tables and pictures, unique within a panel; by default the name, in capitals if it has none

    @validator(mode="before")
    @classmethod
    def _completed(cls, data: Any) -> Any:
        """Turn a bare name into a mapping, and fill in the label."""
        data = {"name": data} if isinstance(data, str) else data
        if isinstance(data, Mapping) and isinstance(data.get("name"), str) and not data.get("label", ""):
            name = data["name"]
            return {**data, "label": name.upper() if name.islower() else name}
        return data

    @property
    def options(self) -> dict[str, Any]:
        return dict(self.model_extra or {})


class Panel(Frozen):
    """One problem, and several methods on the same draws."""

    name: Name
    loop: str = "arms"  # a key of :data:`bo_robust.experiments.loops.LOOPS`
    problem: dict[str, Any]  # {kind: ..., ...}
    methods: list[PanelMethod]
    trials: Positive
    horizon: Positive  # Rounds of each trial; over arms those of the initial design are among them
    # Size of the initial design, random and the same for all methods. Over arms rounds < horizon, by default 0; over
    # designs the same, by default 2 d + 2; points (x, z) before the first round, by default as many as the problem says
    initial: Natural | None = None
    seed: Natural = 0  # Seed of all random streams of the panel
    compare: list[Pair] = Field([])  # Labels to compare in words; each difference is the first minus the second

    # Over arms only. Failure probability of widths and levels that do not set their own
    delta: float = Field(0.1, gt=0.0, lt=1.0)
    noise_var: float | None = Field(None, gt=0.0)  # lambda of the posterior; by default the problem's
    dtype: Literal["float64", "float32"] = "float64"

    # Over designs only. Which observations are wrong, by default none
    outliers: Outliers | None = None

    # Over (x, z) only. Rounds between fits of the hyperparameters
    refit_every: Positive = 3

    def __hash__(self) -> int:
        return hash(self.model_dump_json())

    @property
    def runner(self) -> Loop:
        """The loop that runs the panel."""
        return LOOPS[self.loop]

    @property
    def labels(self) -> list[str]:
        return [method.label for method in self.methods]

    @validator(mode="before")
    @classmethod
    def _of_its_loop(cls, data: Any) -> Any:
        """Fill in the defaults of the loop, and refuse keys of the others."""
        if not isinstance(data, Mapping):
            return data
        loop = data.get("loop", "arms")
        if not isinstance(loop, str) or loop not in LOOPS:
            raise RunError(f"unknown `loop:` {quoted(loop)}; {nearest(loop, LOOPS)}")
        for other in sorted(LOOPS.keys() - {loop}):
            for key in sorted((LOOPS[other].keys - LOOPS[loop].keys) & data.keys()):
                raise RunError(f"`{key}:` of panel {quoted(data.get('name', '?'))} is for `loop: {other}` only.")
        return {**LOOPS[loop].defaults, **data}

    @serializer(mode="wrap")
    def _dumped(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Plain data that :meth:`_of_its_loop` takes."""
        others = {key for loop in LOOPS.values() for key in loop.keys} - self.runner.keys
        return {key: value for key, value in dump(self).items() if key not in others}

    @validator(mode="after")
    def _consistent(self) -> Panel:
        _check_name(kind_of(self.problem, f"`problem` of panel {self.name!r}"), "problem", self)
        if not self.methods:
            raise RunError(f"panel {self.name!r} has no methods; list at least one under `methods:`.")
        for label in self.labels:
            if self.labels.count(label) > 1:
                raise RunError(f"panel {self.name!r} has two methods labeled {quoted(label)}; give each a `label`.")
        for label in (label for pair in self.compare for label in pair):
            if label not in self.labels:
                raise RunError(f"panel {self.name!r} compares {quoted(label)}; {nearest(label, self.labels)}")
        for method in self.methods:
            _check_name(method.name, "method", self)
        self.runner.check(self)
        return self

    def build_method(self, method: PanelMethod) -> Any:
        """Make the object of a method of a loop that runs trial by trial; ``RunError`` names a bad option."""
        try:
            return build({"kind": method.name, **method.options}, self.runner.methods, {}, "method")
        except SpecError as error:
            raise RunError(f"panel {self.name!r}: {error}") from None


class RunConfig(Frozen):
    """A run: its name is that of the result folder, and panels are run in order."""

    name: str = "run"
    description: str = ""  # Shown with the results
    panels: list[Panel]

    @validator(mode="before")
    @classmethod
    def _with_defaults(cls, data: Any) -> Any:
        """Make panel keys at the top level defaults of the panels."""
        if not isinstance(data, Mapping) or not isinstance(data.get("panels"), list):
            return data
        defaults = {key: value for key, value in data.items() if key in SHARED_KEYS}
        panels = [{**defaults, **panel} if isinstance(panel, Mapping) else panel for panel in data["panels"]]
        return {key: value for key, value in data.items() if key not in defaults} | {"panels": panels}

    @validator(mode="after")
    def _named(self) -> RunConfig:
        if not (self.name.strip() and self.name.isprintable() and re.fullmatch(r"[^./\\:][^/\\:]{0,99}", self.name)):
            raise RunError(
                f"the run's `name` becomes a folder: give up to 100 printable characters without / \\ : and without a "
                f"leading dot, got {quoted(self.name)}."
            )
        names = [panel.name for panel in self.panels]
        if not names:
            raise RunError(f"run {self.name!r} has no panels; list at least one under `panels:`.")
        for name in names:
            if names.count(name) > 1:
                raise RunError(f"run {self.name!r} has two panels named {quoted(name)}; give each its own name.")
        if len({panel.loop for panel in self.panels}) > 1:
            raise RunError(f"run {self.name!r} has panels of several loops; give each loop a run of its own.")
        return self


# What other packages, and earlier versions of this one, call a key.
SYNONYMS = {"repetitions": "trials", "algorithms": "methods", "rounds": "horizon"}
# Keys of a panel that may stand at the top level.
SHARED_KEYS = [key for key in Panel.model_fields if key not in ("name", "problem")]


def _check_name(name: str, role: str, panel: Panel) -> None:
    """Raise ``RunError`` unless the problem or method of a name exists in the loop of the panel."""
    registries = {loop: getattr(LOOPS[loop], f"{role}s") for loop in LOOPS}
    if name in registries[panel.loop]:
        return
    hint = f"unknown {role} {quoted(name)}; {nearest(name, registries[panel.loop])}"
    for loop, registry in registries.items():
        if name in registry:
            hint = f"{role} {quoted(name)} is for `loop: {loop}`, this is `loop: {panel.loop}`."
    raise RunError(f"panel {panel.name!r}: {hint}")


def parse(data: Any) -> RunConfig:
    """The run that plain data describe: the content of one file, after ``include`` is resolved."""
    if not isinstance(data, Mapping):
        raise RunError(f"the configuration must be a mapping of keys to values, got {quoted(data)}.")
    try:
        return RunConfig.model_validate(data)
    except ValidationError as error:
        # A key that nothing knows comes first: it may be why another one is missing.
        found = error.errors(include_url=False)
        unknown = [one for one in found if one["type"] == "extra_forbidden" and one["loc"][-1] not in SHARED_KEYS]
        raise RunError(_in_words((unknown or found)[0], data)) from None


def _in_words(error: ErrorDetails, data: Mapping[str, Any]) -> str:
    """The first mistake that pydantic found, in one sentence."""
    if error["type"] == "value_error":  # said by a model itself
        return str(error["ctx"]["error"])
    path, where = list(error["loc"]), "the run"
    model: type[BaseModel] = RunConfig
    if path[:1] == ["panels"] and len(path) > 1:
        panel = data["panels"][path[1]]
        where = f"panel {quoted(panel.get('name', '?'))}" if isinstance(panel, Mapping) else f"panels.{path[1]}"
        path, model = path[2:], Panel
    key = quoted(".".join(map(str, path)))[1:-1]
    if error["type"] == "extra_forbidden":
        if key in Panel.model_fields:
            return f"`{key}:` is a key of a panel; write it there, under `panels:`."
        if len(path) > 1:  # of outliers
            model = OUTLIERS[str(path[-2])]
        keys = [*model.model_fields, *(SHARED_KEYS if model is RunConfig else ())]
        return f"unknown key {key!r} in {where}; {nearest(SYNONYMS.get(key, key), keys)}"
    message = (error["msg"][0].lower() + error["msg"][1:]).replace("dictionary", "mapping")  # as YAML calls it
    if error["type"] == "union_tag_invalid":
        message = f"unknown kind {quoted(error['ctx']['tag'])}; {nearest(error['ctx']['tag'], OUTLIERS)}"
    elif error["type"] != "missing":
        message += f", got {quoted(error['input'])}"
    return f"{where}: {key + ': ' if path else ''}{message}."
