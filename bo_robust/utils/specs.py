"""From a name and its options to an object.

A spec is plain data: ``{"kind": "tgp", "moment_bound": 4.0}``. A registry maps kinds to classes or functions. Every
name that a user writes (in the settings of a method, in Ax) becomes an object here.
"""

import difflib
import inspect
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from bo_robust.utils.input_checks import quoted

DESCRIPTIONS: dict[Any, str] = {int: "a whole number", float: "a number", str: "text", bool: "true or false"}
DESCRIPTIONS |= {dict: "a mapping", Mapping: "a mapping", types.NoneType: "empty"}


class SpecError(ValueError):
    """A spec that no object can be made from; the message says what to change."""


def build(spec: Any, registry: Mapping[str, Callable[..., Any]], context: Mapping[str, Any], role: str) -> Any:
    """Make the object that a spec describes.

    Args:
        spec: ``{"kind": name, **options}``.
        registry: Classes or functions by kind.
        context: Values for parameters that the spec leaves out; ignored are those that are no parameters, and None
            where the parameter may not be None.
        role: What is built, for errors: "width", "truncation of 'TGP-UCB'".

    Raises:
        SpecError: if the kind or an option is unknown (the nearest is named), or an option is missing, of another type
            or out of range.
    """
    kind = kind_of(spec, role)
    if kind not in registry:
        raise SpecError(f"unknown {role} {quoted(kind)}; {nearest(kind, registry)}")
    factory, what = registry[kind], f"{role} {kind!r}"
    parameters, hints = inspect.signature(factory).parameters, typing.get_type_hints(factory)
    options = {key: value for key, value in spec.items() if key != "kind"}
    for key in options:
        if key not in parameters:
            hint = nearest(key, parameters) if parameters else "it has no options."
            raise SpecError(f"{what} has no {quoted(key)}; {hint}")
    options = {key: typed(value, hints.get(key, object), f"{key} of {what}") for key, value in options.items()}
    for key in parameters.keys() & context.keys() - options.keys():
        if context[key] is not None or types.NoneType in typing.get_args(hints.get(key)):
            options[key] = context[key]
    required = [key for key, parameter in parameters.items() if parameter.default is parameter.empty]
    if missing := [repr(key) for key in required if key not in options]:
        raise SpecError(f"{what} needs {' and '.join(missing)}, which must be given.")
    try:
        return factory(**options)
    except (ValueError, TypeError, OverflowError) as error:
        raise SpecError(f"{what}: {error}") from None


def kind_of(spec: Any, role: str) -> str:
    """Return the kind of a spec; raise ``SpecError`` if it is no mapping with texts as keys and a text as its kind."""
    if not isinstance(spec, Mapping):
        raise SpecError(f"{role} must be a mapping with a `kind`, got {quoted(spec)}.")
    for key in spec:
        if not isinstance(key, str):
            raise SpecError(f"{role} has the key {quoted(key)}, which is no text; put it in quotes or correct it.")
    if "kind" not in spec:
        hint = f"; write kind: {quoted(spec['name'])}" if isinstance(spec.get("name"), str) else ""
        raise SpecError(f"{role} has no `kind`{hint}.")
    return typed(spec["kind"], str, f"the kind of {role}")


def nearest(name: Any, valid: Iterable[Any]) -> str:
    """Make a hint such as ``did you mean 'tgp-ucb'? (one of: ...)``; case and hyphens do not count."""
    options = sorted(str(v) for v in valid)
    by_letters = {_letters(option): option for option in options}
    letters = _letters(name if isinstance(name, str) else quoted(name))
    close = difflib.get_close_matches(letters, by_letters, n=1, cutoff=0.5)
    listed = f"one of: {', '.join(options)}"
    return f"did you mean {by_letters[close[0]]!r}? ({listed})" if close else f"choose {listed}"


def _letters(name: str) -> str:
    return name.lower().replace("-", "").replace("_", "")


def typed(value: Any, hint: Any, where: str) -> Any:
    """The value if it is of the annotated type, or union of types; else ``SpecError``, which names it by ``where``.

    What a container holds is not looked at. A whole number is a number too, true and false are none.
    """
    options = typing.get_args(hint) if typing.get_origin(hint) in (types.UnionType, typing.Union) else (hint,)
    plain = tuple(typing.get_origin(option) or option for option in options)
    checkable = [isinstance(option, type) and not getattr(option, "_is_protocol", False) for option in plain]
    if Any in plain or not all(checkable):  # left to the constructor
        return value
    # Larger whole numbers overflow a float; `type(...) is`, because bool is an int.
    if float in plain and type(value) is int and abs(value) < 10**300:
        return float(value)
    if not isinstance(value, plain) or (isinstance(value, bool) and not {bool, object} & {*plain}):
        described = " or ".join(DESCRIPTIONS.get(option, option.__name__) for option in plain)
        raise SpecError(f"{where} must be {described}, got {quoted(value)}.")
    return value
