"""Configuration files: YAML, the files they include, and settings of the command line.

``include`` lists other files, by paths relative to the file. The file's own keys override those of the others.
"""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

from bo_robust.experiments.config import Run, parse
from bo_robust.experiments.errors import RunError
from bo_robust.specs import DESCRIPTIONS, nearest, quoted

# What the command line calls trials and horizon, by loop.
COUNTS = {"value_at_risk": {"trials": "repetitions", "horizon": "rounds"}}
LARGEST, DEEPEST = 1_000_000, 50  # characters and levels of a configuration; the largest in configs/: 3456 and 6
MOST_FILES = 1000  # that one configuration reads
LONGEST = 1000  # characters of a number, which takes a time quadratic in them
OF_A_RUN = ("name", "description", "panels", "loop")  # the other keys are of panels


def load(path: Path, overrides: Iterable[str] = (), **forced: Any) -> Run:
    """The run that a YAML file describes.

    ``overrides`` are ``key=value`` strings with dotted paths as keys (``trials``, ``panels.0.problem.bad_ticks``). A
    panel key at the top level is set in every panel. ``forced`` are ``trials`` (or repetitions) and ``horizon`` (or
    rounds) of every panel, where they are not None.
    """
    data = read(path)
    apply_overrides(data, overrides)
    names = COUNTS.get(str(data.get("loop")), {})
    for key, value in forced.items():
        if value is not None:
            _force(data, names.get(key, key), value)
    return parse(data)


def read(path: Path, including: tuple[Path, ...] = (), opened: list[Path] | None = None) -> dict[str, Any]:
    """The data of one file, with the panels of the files that it includes.

    ``including`` are the files on the way here, to notice a circle, and ``opened`` all files so far.
    """
    if path.resolve() in including:
        raise RunError(f"{path} includes itself.")
    opened = [] if opened is None else opened
    opened.append(path)
    if len(opened) > MOST_FILES:  # a few files that include each other often are a bomb, too
        raise RunError(f"{opened[0]} includes more than {MOST_FILES} files; name fewer of them.")
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read(LARGEST + 1)  # a device has no end
    except OSError as error:
        raise RunError(f"cannot read the configuration {path}: {error.strerror}.") from None
    except UnicodeDecodeError as error:
        raise RunError(f"{path} is not valid YAML: it is no text in UTF-8 ({error.reason}).") from None
    data = _mapping(_parsed(text, str(path)), str(path))
    included = data.pop("include", None)
    if included is None:
        return data
    if not isinstance(included, list) or not all(isinstance(name, str) and len(name) < 1000 for name in included):
        raise RunError(f"{path}: `include:` must be a list of files, got {quoted(included)}.")
    # From weak to strong: top-level keys of an included file, its panels, top-level keys of this file.
    panels: list[dict[str, Any]] = []
    for name in included:
        inner = read(path.parent / name, (*including, path.resolve()), opened)
        if inner.get("loop") != data.get("loop"):
            raise RunError(f"{path} includes {quoted(name)}, whose `loop:` is another; give both the same.")
        shared = {key: value for key, value in inner.items() if key not in OF_A_RUN}
        panels += [{**shared, **panel} for panel in _panels(inner, name)]
    over = {key: value for key, value in data.items() if key not in OF_A_RUN}
    own = _panels(data, str(path)) if "panels" in data else []
    data["panels"] = [{**panel, **over} for panel in panels] + own
    return data


def apply_overrides(data: dict[str, Any], overrides: Iterable[str]) -> None:
    """Set ``key=value`` strings in plain configuration data, in place."""
    for text in overrides:
        key, separator, value = text.partition("=")
        if not separator:
            raise RunError(f"--set takes key=value, got {quoted(text)}.")
        parsed = _parsed(value, f"the value of --set {quoted(text)}")
        *path, last = key.split(".")
        if not path:
            _force(data, key, parsed)
            continue
        target: Any = data
        for step in path:
            target = target[_step(target, step, key)]
        target[last if isinstance(target, dict) else _step(target, last, key)] = parsed


class _Loader(yaml.SafeLoader):
    """YAML in which 1e-3 is a number (YAML 1.1 asks for 1.0e-3) and no key may stand twice in a mapping.

    Text that aliases expand to more than ``LARGEST`` characters and nodes, or to more than ``DEEPEST`` levels, is
    refused before it is expanded.
    """

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.measured: dict[int, tuple[int, int]] = {}  # size and depth of nodes composed so far, by id

    def compose_node(self, parent: Any, index: Any) -> Any:
        """Compose a node, and measure it; raise ``MarkedYAMLError`` if it is too large, or holds itself."""
        alias, mark = self.check_event(yaml.AliasEvent), self.peek_event().start_mark
        node: Any = super().compose_node(parent, index)
        if not alias:
            scalar, mapping = isinstance(node, yaml.ScalarNode), isinstance(node, yaml.MappingNode)
            inner = [] if scalar else [part for pair in node.value for part in pair] if mapping else node.value
            parts = [self.measured[id(part)] for part in inner]
            size = 1 + sum(size for size, _ in parts) + scalar * len(node.value)
            self.measured[id(node)] = size, 1 + max((depth for _, depth in parts), default=0)
            if scalar and size > LONGEST and not node.tag.endswith(":str"):
                raise yaml.MarkedYAMLError(None, None, f"a number of more than {LONGEST} characters", mark)
        size, depth = self.measured.get(id(node), (LARGEST + 1, 0))  # an alias within what it names: without end
        if size > LARGEST or depth > DEEPEST:
            raise yaml.MarkedYAMLError(None, None, f"more than {LARGEST} characters or {DEEPEST} levels", mark)
        return node

    def compose_mapping_node(self, anchor: Any) -> Any:
        """Raise ``ConstructorError`` if a key stands twice; YAML would keep the last value."""
        node = super().compose_mapping_node(anchor)
        seen = set[str]()
        for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
            if key.value in seen:
                said = f"key {quoted(key.value)} stands twice"
                raise yaml.constructor.ConstructorError(None, None, said, key.start_mark)
            seen.add(key.value)
        return node


# PyYAML reads numbers without a dot, or without a sign in the exponent, as text.
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?(\d+(\.\d*)?|\.\d+)[eE][-+]?\d+$"), list("-+.0123456789")
)


def _parsed(text: str, where: str) -> Any:
    if len(text) > LARGEST:
        raise RunError(f"{where} has more than {LARGEST} characters, too many for a configuration.")
    try:
        return yaml.load(text, _Loader)
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # ValueError: a date such as 2020-13-01
        # The error's own text repeats lines of the file, which may be any file that was included.
        said = " ".join(str(getattr(error, "problem", None) or error)[:100].split())
        if isinstance(error, RecursionError):
            said = f"more than {DEEPEST} levels"
        mark = getattr(error, "problem_mark", None)
        place = "" if mark is None else f" in line {mark.line + 1}, column {mark.column + 1}"
        raise RunError(f"{where} is not valid YAML{place}: {said}.") from None


def _mapping(data: Any, where: str) -> dict[str, Any]:
    if not isinstance(data, dict):  # the value is not repeated: it may be any file that was included
        described = "nothing" if data is None else DESCRIPTIONS.get(type(data), f"a {type(data).__name__}")
        raise RunError(f"{where} must be a mapping of keys to values, but it is {described}.")
    return data


def _panels(data: dict[str, Any], where: str) -> list[dict[str, Any]]:
    panels = data.get("panels")
    if not isinstance(panels, list):
        raise RunError(f"`panels:` of {where} must be a list of panels, got {quoted(panels)}.")
    return [_mapping(panel, f"a panel of {where}") for panel in panels]


def _force(data: dict[str, Any], key: str, value: Any) -> None:
    """Set a key of the run, or a key of all its panels."""
    data[key] = value
    panels = data.get("panels")
    # What a panel says itself would hide the value at the top level.
    if key not in OF_A_RUN and isinstance(panels, list):
        for panel in panels:
            if isinstance(panel, dict):
                panel.pop(key, None)


def _step(target: Any, step: str, key: str) -> Any:
    """``step`` as a valid index or key of ``target``."""
    if isinstance(target, list):
        if step.isdecimal() and int(step) < len(target):
            return int(step)
        options = [str(i) for i in range(len(target))]
    elif isinstance(target, dict):
        if step in target:
            return step
        options = [str(name) for name in target]
    else:
        raise RunError(f"--set {quoted(key)}: there is no {quoted(step)}, for {quoted(target)} has no keys.")
    raise RunError(f"--set {quoted(key)}: there is no {quoted(step)}; {nearest(step, options)}")
