"""Configuration of a run: frozen models checked by pydantic; :func:`parse` says every mistake in one sentence.

A file (:mod:`bo_robust.experiments.files`) describes panels. A panel is one problem and what is compared on it:
algorithms over arms or, with ``loop: value_at_risk``, methods over pairs (x, z). Keys at the top level are defaults of
the panels::

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
import hashlib
import json
import typing
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, Strict, ValidationError
from pydantic import model_validator as validator
from pydantic_core import ErrorDetails

from bo_robust.algorithms import ALGORITHMS
from bo_robust.experiments.errors import RunError
from bo_robust.experiments.problems import of_loop
from bo_robust.specs import DESCRIPTIONS, SpecError, kind_of, nearest, quoted, typed

# A description is what an error says the value must be.
Natural = Annotated[int, Field(ge=0, lt=2**63, description="a whole number >= 0 and < 2^63")]
Positive = Annotated[int, Field(ge=1, lt=2**63, description="a whole number >= 1 and < 2^63")]
Name = Annotated[str, Field(max_length=100, description="text of at most 100 characters")]
# Lists of YAML become tuples; what they hold is still checked strictly.
Entries = Annotated[tuple["Entry", ...], Strict(False), Field(description="a list")]
Pair = Annotated[tuple[str, str], Strict(False)]
Pairs = Annotated[tuple[Pair, ...], Strict(False), Field(description="a list of pairs of labels")]


class _Frozen(BaseModel):
    """Base of all models: frozen, no unknown keys, and no conversion (a text is no number, nor is true)."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class Entry(_Frozen):
    """An algorithm of :data:`bo_robust.algorithms.ALGORITHMS`, or a method of value-at-risk runs, in a panel.

    ``label`` is its name in tables and pictures, unique within a panel and by default the upper-case name. Every other
    key is an option, a field of its class. A width, truncation or feature map is written as ``{kind: ..., ...}``;
    constants it leaves out come from problem and panel (:func:`bo_robust.experiments.build.build_algorithm`).
    """

    model_config = ConfigDict(extra="allow")

    name: Name
    label: Name = ""

    @validator(mode="before")
    @classmethod
    def _completed(cls, data: Any) -> Any:
        """Turn a bare name into a mapping, and fill in the label."""
        data = {"name": data} if isinstance(data, str) else data
        if isinstance(data, Mapping) and isinstance(data.get("name"), str) and not data.get("label", ""):
            return {**data, "label": data["name"].upper()}
        return data

    @property
    def options(self) -> dict[str, Any]:
        """Options by name, in a new dictionary. One that is null is None: not the default, if that is another."""
        return dict(self.model_extra or {})


class Panel(_Frozen):
    """Base of both kinds of panel."""

    entry_name: ClassVar[str]
    """What one entry is called: "algorithm" or "method". The plural is the key that lists them."""
    trial_name: ClassVar[str]
    """What one trial is called: "trial" or "repetition"."""

    name: Name
    problem: dict[str, Any] = Field(description="a mapping with a `kind`")  # {kind: ..., ...}
    seed: Natural = 0  # Seed of all random streams of the panel
    compare: Pairs = ()  # Pairs of labels to compare in words; each difference is the first minus the second

    @classmethod
    def entry_key(cls) -> str:
        """The key that lists the entries."""
        return f"{cls.entry_name}s"

    @property
    def entries(self) -> tuple[Entry, ...]:
        """The algorithms or methods to compare."""
        return getattr(self, self.entry_key())

    @property
    def labels(self) -> list[str]:
        return [entry.label for entry in self.entries]

    def with_entries(self, entries: tuple[Entry, ...], **changes: Any) -> Any:
        """The same panel with these entries, without comparisons of entries that are gone."""
        labels = [entry.label for entry in entries]
        compare = tuple(pair for pair in self.compare if {*pair} <= {*labels})
        return self.model_copy(update={self.entry_key(): entries, "compare": compare, **changes})

    @validator(mode="after")
    def _consistent(self) -> Panel:
        kind_of(self.problem, f"`problem` of panel {self.name!r}")
        labels, key = self.labels, self.entry_key()
        if not labels:
            raise RunError(f"panel {self.name!r} has no {key}; list at least one under `{key}:`.")
        for label in labels:
            if labels.count(label) > 1:
                raise RunError(f"panel {self.name!r} has two {key} labelled {quoted(label)}; give each a `label`.")
        for label in (label for pair in self.compare for label in pair):
            if label not in labels:
                raise RunError(f"panel {self.name!r} compares {quoted(label)}, {nearest(label, labels)}")
        return self


class PanelConfig(Panel):
    """One problem over arms and several algorithms on the same draws."""

    entry_name = "algorithm"
    trial_name = "trial"

    algorithms: Entries
    trials: Positive = 20
    horizon: Positive = 1000  # Rounds of each trial, those of the initial design included
    initial: Natural = 0  # Rounds of the initial design: uniform random arms, the same for all algorithms; < horizon
    # Failure probability of widths and levels that do not set their own
    delta: float = Field(0.1, gt=0.0, lt=1.0, description="a number strictly between 0 and 1")
    # lambda of the posterior; by default the problem's
    noise_var: float | None = Field(None, gt=0.0, description="a finite number > 0")
    dtype: Literal["float64", "float32"] = Field("float64", description="float64 or float32")
    intervals: bool = False  # Whether to draw the final confidence intervals of the worst-covered trial

    @validator(mode="after")
    def _known(self) -> PanelConfig:
        if self.initial >= self.horizon:
            raise RunError(
                f"panel {self.name!r}: initial must be below the horizon, whose first rounds it is; got "
                f"{self.initial} of {self.horizon}."
            )
        for algorithm in self.algorithms:
            _check_algorithm(algorithm, self.name)
        return self

    @property
    def rows(self) -> int:
        """Rows of traces per trial."""
        return self.horizon

    def shards(self, size: int | None) -> list[tuple[int, int]]:
        """First and last (exclusive) trial of every shard: ``size`` trials each, or one shard of all trials."""
        step = size or self.trials
        return [(first, min(self.trials, first + step)) for first in range(0, self.trials, step)]


class ValueAtRiskPanelConfig(Panel):
    """One problem over (x, z) and several methods with the same initial points and noise."""

    entry_name = "method"
    trial_name = "repetition"

    methods: Entries
    repetitions: Positive = 10
    rounds: Positive = 30  # Observations after the initial points
    # How many; by default the problem's
    initial_points: int | None = Field(None, ge=1, lt=2**63, description="a whole number >= 1 and < 2^63")
    refit_every: Positive = 3  # Rounds between fits of the hyperparameters

    @validator(mode="after")
    def _known(self) -> ValueAtRiskPanelConfig:
        from bo_robust.experiments.value_at_risk.methods import build_method  # imports BoTorch's optimisers

        kind = self.problem["kind"]
        if kind not in of_loop("conditions"):
            raise RunError(
                f"panel {self.name!r}: unknown problem {quoted(kind)}; {nearest(kind, of_loop('conditions'))}"
            )
        for method in self.methods:
            try:
                build_method(method.name, method.options)
            except SpecError as error:
                raise RunError(f"panel {self.name!r}: {error}") from None
        return self

    @property
    def trials(self) -> int:
        """Repetitions, under the name that panels over arms use."""
        return self.repetitions

    @property
    def horizon(self) -> int:
        """Rounds, under the name that panels over arms use."""
        return self.rounds

    @property
    def rows(self) -> int:
        """Rows of traces per repetition: one after the initial points, one after every round."""
        return self.rounds + 1

    def shards(self, size: int | None) -> list[tuple[int, int]]:
        """First and last (exclusive) repetition of every shard. ``size`` is ignored: a shard is one repetition."""
        return [(first, first + 1) for first in range(self.repetitions)]


class AnyRun(_Frozen):
    """Base of both kinds of run; ``name`` is that of the result folder, ``description`` is shown with the results."""

    panel_class: ClassVar[type[Panel]]

    name: str = "run"
    description: str = ""

    @validator(mode="before")
    @classmethod
    def _with_defaults(cls, data: Any) -> Any:
        """Make panel keys at the top level defaults of the panels."""
        if not isinstance(data, Mapping) or not isinstance(data.get("panels"), list | tuple):
            return data
        defaults = {key: value for key, value in data.items() if key in cls.shared_keys()}
        panels = [{**defaults, **panel} if isinstance(panel, Mapping) else panel for panel in data["panels"]]
        return {key: value for key, value in data.items() if key not in defaults} | {"panels": panels}

    @classmethod
    def shared_keys(cls) -> list[str]:
        """Keys of a panel that may stand at the top level."""
        return [key for key in cls.panel_class.model_fields if key not in ("name", "problem")]

    @validator(mode="after")
    def _named(self) -> AnyRun:
        plain = self.name.strip() and self.name.isprintable() and len(self.name) <= 100
        if not plain or self.name.startswith(".") or any(c in self.name for c in "/\\:"):
            raise RunError(
                f"the run's `name` becomes a folder: give up to 100 printable characters without / \\ : and without a "
                f"leading dot, got {quoted(self.name)}."
            )
        names = [panel.name for panel in self.panels]  # type: ignore[attr-defined]
        if not names:
            raise RunError(f"run {self.name!r} has no panels; list at least one under `panels:`.")
        for name in names:
            if names.count(name) > 1:
                raise RunError(f"run {self.name!r} has two panels named {quoted(name)}; give each its own name.")
        return self

    def to_dict(self) -> dict[str, Any]:
        """Plain data for :func:`parse`, with all defaults of the panels written out."""
        return self.model_dump(mode="json")

    def with_panels(self, panels: tuple[Any, ...]) -> Any:
        """The same run with other panels of its kind."""
        return self.model_copy(update={"panels": panels})

    @property
    def digest(self) -> str:
        """A hash of :meth:`to_dict`, to notice a changed configuration."""
        return hashlib.sha256(json.dumps(self.to_dict(), sort_keys=True).encode()).hexdigest()[:16]


class RunConfig(AnyRun):
    """A run over arms; ``loop`` tells the kinds of run apart, and panels are played in order."""

    panel_class = PanelConfig

    loop: Literal["arms"] = "arms"
    panels: Annotated[tuple[PanelConfig, ...], Strict(False), Field(description="a list of panels")]


class ValueAtRiskRunConfig(AnyRun):
    """A run over pairs (x, z)."""

    panel_class = ValueAtRiskPanelConfig

    loop: Literal["value_at_risk"] = "value_at_risk"
    panels: Annotated[tuple[ValueAtRiskPanelConfig, ...], Strict(False), Field(description="a list of panels")]


Run = RunConfig | ValueAtRiskRunConfig


def _check_algorithm(entry: Entry, panel: str) -> None:
    """Raise ``RunError`` unless the algorithm exists and has options of these names and types."""
    if entry.name not in ALGORITHMS:
        raise RunError(f"unknown algorithm {quoted(entry.name)}; {nearest(entry.name, ALGORITHMS)}")
    cls = ALGORITHMS[entry.name]
    hints, fields = typing.get_type_hints(cls), [f.name for f in dataclasses.fields(cls)]  # type: ignore[arg-type]
    if "oversampling" in fields:
        fields, hints = [*fields, "epsilon"], {**hints, "epsilon": float}
    where = f"algorithm {entry.name!r} of panel {panel!r}"
    try:
        for key, value in entry.options.items():
            if key not in fields:
                raise RunError(f"unknown key {quoted(key)} in {where}; {nearest(key, [*fields, 'name', 'label'])}")
            if key in ("width", "truncation", "features"):
                kind_of(value, f"`{key}` of {where}")
            else:
                typed(value, hints[key], f"{key} of {where}")
    except SpecError as error:
        raise RunError(str(error)) from None


_RUNS: dict[str, type[Run]] = {"arms": RunConfig, "value_at_risk": ValueAtRiskRunConfig}


def parse(data: Any) -> Run:
    """The run that plain data describe: the content of one file, after ``include`` is resolved."""
    if not isinstance(data, Mapping):
        raise RunError(f"the configuration must be a mapping of keys to values, got {quoted(data)}.")
    loop = data.get("loop", "arms")
    if not isinstance(loop, str) or loop not in _RUNS:
        raise RunError(f"unknown `loop:` {quoted(loop)}; {nearest(loop, _RUNS)}")
    try:
        return _RUNS[loop].model_validate(data)
    except ValidationError as error:
        raise RunError(_in_words(error.errors(include_url=False)[0], data, _RUNS[loop])) from None


def _in_words(error: ErrorDetails, data: Mapping[str, Any], run: type[AnyRun]) -> str:
    """The first mistake that pydantic found, in one sentence."""
    if error["type"] == "value_error":  # said by a model itself
        return str(error["ctx"]["error"])
    path = list(error["loc"])
    model: type[BaseModel] = run
    where, what = "the run", "the configuration"
    shared = run.shared_keys()
    if path[:1] == ["panels"] and len(path) > 1:
        given = data["panels"][path[1]]
        model, what, shared = run.panel_class, "a panel of the configuration", []
        where, path = f"panel {quoted(given.get('name', '?')) if isinstance(given, Mapping) else '?'}", path[2:]
        key = run.panel_class.entry_key()
        if path[:1] == [key] and len(path) > 1:
            merged = {**data, **given}
            entry = merged[key][path[1]]
            model, what = Entry, f"one of the {key} of {where}"
            name = quoted(entry.get("name", "?")) if isinstance(entry, Mapping) else "?"
            where, path = f"{run.panel_class.entry_name} {name} of {where}", path[2:]
    value = error["input"]
    if error["type"] == "invalid_key" or path[-1:] == ["[key]"]:
        return f"{where} has the key {quoted(value)}, which is no text; put it in quotes or correct it."
    if not path:
        return f"{what} must be a mapping, got {quoted(value)}."
    key = str(path[0])
    if error["type"] == "extra_forbidden":
        return f"unknown key {quoted(key)} in {where}; {nearest(key, [*model.model_fields, *shared])}"
    if error["type"] == "missing" and len(path) == 1:
        return f"{where} has no `{key}:`."
    hint = model.model_fields[key].annotation
    must = model.model_fields[key].description or DESCRIPTIONS.get(typing.get_origin(hint) or hint, str(hint))
    return f"{key} of {where} must be {must}, got {quoted(value)}."
