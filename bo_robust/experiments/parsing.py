"""From plain data to the models of :mod:`bo_robust.experiments.config`, with every mistake in one sentence.

Pydantic finds the mistake. The sentence names the key and the panel, and the nearest valid key if a key is unknown.
"""

import typing
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BaseModel, Discriminator, Tag, TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from bo_robust.experiments.config import AnyRun, Entry, Run, RunConfig, ValueAtRiskRunConfig
from bo_robust.experiments.errors import RunError
from bo_robust.specs import DESCRIPTIONS, nearest, quoted

_RUNS: dict[str, type[AnyRun]] = {"arms": RunConfig, "value_at_risk": ValueAtRiskRunConfig}
_RUN: TypeAdapter[Run] = TypeAdapter(
    Annotated[
        Annotated[RunConfig, Tag("arms")] | Annotated[ValueAtRiskRunConfig, Tag("value_at_risk")],
        Discriminator(lambda data: data.get("loop", "arms")),
    ]
)


def parse(data: Any) -> Run:
    """The run that plain data describe: the content of one file, after ``include`` is resolved.

    Raises:
        RunError: naming the first key that is unknown, missing, of another type or out of range.
    """
    if not isinstance(data, Mapping):
        raise RunError(f"the configuration must be a mapping of keys to values, got {quoted(data)}.")
    loop = data.get("loop", "arms")
    if not isinstance(loop, str) or loop not in _RUNS:
        raise RunError(f"unknown `loop:` {quoted(loop)}; {nearest(loop, _RUNS)}")
    try:
        return _RUN.validate_python(data)
    except ValidationError as error:
        raise RunError(_in_words(error.errors(include_url=False)[0], data, _RUNS[loop])) from None


def _in_words(error: ErrorDetails, data: Mapping[str, Any], run: type[AnyRun]) -> str:
    """The first mistake that pydantic found, in one sentence."""
    if error["type"] == "value_error":  # said by a model itself
        return str(error["ctx"]["error"])
    path = list(error["loc"][1:])  # the first step is the kind of run
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
